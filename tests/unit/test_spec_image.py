"""One image for all groups of a cluster file, and exceptions from it.

What is said when it does not fit is in tests/cases/spec, what a resize leaves of it in
tests/cases/rewrite; see test_spec.py and test_spec_rewrite.py.
"""

import pytest

from springtide import images, service, spec
from springtide.model import Node, NodeState
from springtide.spec.leaving import diff, union

FILE = """
cluster: blue
images:
  old: {path: /srv/old}
  new: {path: /srv/new}
  test: {path: /srv/test}
image: old
groups:
  general: {nodes: "n[1-2]"}
  quick: {nodes: "q1", image: test}
  metal: {nodes: "m1", provider: {kind: none}}
  racked: {nodes: "r1", provider: {kind: libvirt, uri: "qemu:///system", nodes: power}}
"""


def parsed(*changes: tuple[str, str]) -> spec.Cluster:
    text = FILE
    for old, new in changes:
        assert old in text
        text = text.replace(old, new)
    return spec.parse(text, "c.yaml")


NEW = ("image: old", "image: new")


@pytest.mark.accepts("A31")
def test_groups_that_name_no_image_have_that_of_the_cluster() -> None:
    cluster = parsed()
    assert {key: cluster.image_of(key) for key in ("general", "quick")} == {
        "general": "old",
        "quick": "test",
    }
    assert images.wanted(cluster, [], "general") == "old"


def test_machines_that_exist_do_not_get_it() -> None:
    """They are never rebuilt, and would be outdated for ever."""
    cluster = parsed()
    assert {cluster.image_of("metal"), cluster.image_of("racked")} == {"host"}


@pytest.mark.parametrize("line", ["", "image:\n", "image: host\n"])
def test_it_is_this_machines_root_where_the_file_names_none(line: str) -> None:
    assert parsed(("image: old\n", line)).image_of("general") == "host"


def test_a_group_without_a_value_follows_too() -> None:
    assert parsed(('"n[1-2]"}', '"n[1-2]", image: }')).image_of("general") == "old"


@pytest.mark.accepts("A31")
def test_another_one_outdates_nodes_of_groups_that_follow_and_no_others() -> None:
    nodes = [
        Node("n1", "general", NodeState.READY, image="old", flavor="default"),
        Node("q1", "quick", NodeState.READY, image="test", flavor="default"),
    ]
    assert service.outdated(parsed(), nodes, []) == {}
    assert service.outdated(parsed(NEW), nodes, []) == {"n1": "image old instead of new"}


@pytest.mark.accepts("A31")
def test_another_one_is_told_with_the_groups_that_follow() -> None:
    changes = diff(parsed(), parsed(NEW))
    assert changes.images == {"general": ("old", "new")}
    assert changes.lines == ("groups.general.image: old → new", "image: old → new")


def test_a_group_that_begins_or_ceases_to_follow_is_told_though_its_image_stays() -> None:
    """Otherwise an apply would pass the file over, and it would look edited for ever."""
    named = parsed(('"n[1-2]"}', '"n[1-2]", image: old}'))
    assert diff(parsed(), named).lines == ("groups.general.image: nothing → old",)
    assert diff(named, parsed()).lines == ("groups.general.image: old → nothing",)
    assert diff(parsed(), named).images == {}


def test_nodes_that_leave_with_their_group_keep_the_image_that_it_had() -> None:
    wanted = parsed(NEW, ('  general: {nodes: "n[1-2]"}\n', ""), ("  old: {path: /srv/old}\n", ""))
    both = union(wanted, parsed(), ["n1"])
    assert both.image_of("general") == "old"
    assert union(wanted, both, ["n1"]) == both


def test_a_family_is_built_where_the_groups_that_follow_it_are() -> None:
    cluster = parsed(NEW, ("new: {path: /srv/new}", "new: {build: {base: old}}"))
    assert images.users_of(cluster, "new") == ["general"]
    assert list(images.unbuilt(cluster, [])) == ["general"]
