"""What nodes get only when they boot is of their configuration: without it they are not right."""

from pathlib import Path

import pytest

from springtide import service
from springtide.cli.images import render_images
from springtide.configure.boot_only import boot_only
from springtide.model import Node, NodeState
from springtide.spec import Cluster, parse
from tests.unit.join_world import TEXT, join_world

CONTAINERS = """
cluster: blue
batch: {kind: fake}
provider: {kind: containers}
groups: {general: {nodes: "b[1-4]"}}
"""
SHARED = "shared: [{source: 'filer:/data', path: /data}]\n"
READ_ONLY = "shared: [{source: 'filer:/data', path: /data, options: [ro]}]\n"
HEALTH = "health: /opt/site/check-node\n"


def remote(more: str = "") -> Cluster:
    text = TEXT.replace("STATE", "/var/tmp/blue").replace("PORT", "6821")
    return parse(text + more, "blue.yaml")


@pytest.mark.parametrize("more", [SHARED, READ_ONLY, HEALTH, SHARED + HEALTH])
async def test_a_change_of_mounts_or_of_the_check_is_another_configuration(
    tmp_path: Path, more: str
) -> None:
    async with join_world(tmp_path) as world:
        parts = world.parts
        before = {group: parts.config_of(group) for group in parts.spec.groups}
        up = [Node(f"{key}1", key, NodeState.READY, config=text) for key, text in before.items()]
        parts.spec = remote(more)
        after = {group: parts.config_of(group) for group in parts.spec.groups}
    assert service.unconfigured(up, after) == {"general1": "another configuration"}


def test_container_nodes_have_other_mounts_only_after_a_start() -> None:
    texts = [boot_only(parse(CONTAINERS + more, "b"), "general") for more in (SHARED, READ_ONLY)]
    assert boot_only(parse(CONTAINERS, "b"), "general") == ""
    assert len({"", *texts}) == 3
    assert boot_only(parse(CONTAINERS + HEALTH, "b"), "general") == ""  # they see the check live


def test_a_group_without_a_feature_is_not_touched_by_its_changes() -> None:
    without = TEXT.replace("flavors: [small]}", "flavors: [small], without: [mounts]}", 1)
    known = without.replace("STATE", "/var/tmp/blue").replace("PORT", "6821")
    assert boot_only(parse(known + SHARED, "b"), "general") == ""
    assert boot_only(remote(SHARED), "bare") == ""
    assert boot_only(remote(SHARED), "gone") == ""


def test_nodes_that_started_with_another_configuration_are_not_shown_as_right() -> None:
    node = {"name": "c1", "state": "ready", "generation": 1, "image": "old", "rebuilds": 2}
    node |= {"wanted_image": "old", "outdated": None, "unconfigured": "another configuration"}
    [cells] = render_images([{**node, "instances": [], "batch": None}], each=False, now=1.0)
    assert cells[4] == "no: another configuration, see `tide update`"
