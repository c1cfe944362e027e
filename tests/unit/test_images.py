"""Families of images: which one a node gets, what is built, what may go, and how a build ends."""

import subprocess
from dataclasses import replace
from pathlib import Path

import pytest

from springtide import images
from springtide.configure.anonymise import LAG_S, UNHEARD, done, failed
from springtide.configure.building import (
    BUILT,
    PLACE,
    Recipe,
    Script,
    decide_outcome,
    render_build,
)
from springtide.images import decide_clean, newest, resolve, sites, wanted
from springtide.model import MadeImage, Making, Node, NodeState
from springtide.orders import unreached
from springtide.ports import CloudImage
from springtide.providers.aws import shapes as aws
from springtide.providers.azure import shapes as azure
from springtide.providers.containers.layers import Picture
from springtide.providers.google import parse as google
from springtide.providers.openstack import shapes as openstack
from springtide.spec import Cluster, parse

SPEC = """
cluster: blue
provider: {kind: fake}
images:
  base: {id: base-1}
  soft: {build: {base: base, keep: 2}}
  soft.gpu: {build: {base: soft, group: gpu}}
flavors:
  intel: {cpus: 2, memory: 4G}
  arm: {cpus: 2, memory: 4G, arch: aarch64}
groups:
  intel: {nodes: "i[1-2]", flavors: [intel], image: soft}
  both: {nodes: "b[1-2]", flavors: [arm, intel], image: soft}
  gpu: {nodes: "g[1-2]", flavors: [intel], image: soft.gpu}
  plain: {nodes: "p1", flavors: [intel], image: base}
"""


@pytest.fixture
def spec() -> Cluster:
    return parse(SPEC, "cluster.yaml")


def made(family: str, number: int, arch: str = "x86_64", state: Making = Making.READY) -> MadeImage:
    about = MadeImage(family, number, arch, "intel", "fake", "base")
    return replace(about, state=state, id=f"{family}-{number}-{arch}")


def node(name: str, image: str, state: NodeState = NodeState.READY) -> Node:
    return Node(name, "intel", state, image=image)


@pytest.mark.accepts("C21")
def test_new_nodes_get_the_newest_that_is_ready_for_their_architectures(spec: Cluster) -> None:
    found = [
        *(made("soft", 1), made("soft", 1, "aarch64"), made("soft", 2)),
        *(made("soft", 3, state=Making.BUILDING), made("soft", 4, state=Making.FAILED)),
    ]
    assert wanted(spec, found, "intel") == "soft@2"
    assert wanted(spec, found, "both") == "soft@1"
    assert wanted(spec, found, "plain") == "base"
    assert wanted(spec, (), "intel") == "soft"
    assert newest(found, "soft", {"riscv64"}) is None


def test_an_image_of_another_provider_is_none_for_a_group(spec: Cluster) -> None:
    elsewhere = replace(made("soft", 5), provider="aws")
    assert resolve(spec, [made("soft", 1), elsewhere], "soft", "intel") == "soft@1"


TWO_REGIONS = """
cluster: blue
provider: {kind: aws, region: eu-west-1, subnets: {eu-west-1a: subnet-1}}
images:
  base: {id: ami-1}
  soft: {build: {base: base}}
flavors: {intel: {cpus: 2, memory: 4G}}
groups:
  here: {nodes: "a[1-2]", flavors: [intel], image: soft}
  there:
    {nodes: "b[1-2]", flavors: [intel], image: base,
     provider: {kind: aws, region: us-east-1, subnets: {us-east-1a: subnet-2}}}
"""


def test_an_image_of_another_region_is_none_for_a_group() -> None:
    spec = parse(TWO_REGIONS, "cluster.yaml")
    here = replace(made("soft", 1), group="here", provider="aws")
    there = replace(made("soft", 2), group="there", provider="aws")
    forgotten = replace(made("soft", 3), group="gone", provider="aws")
    assert resolve(spec, [here, there], "soft", "here") == "soft@1"
    assert resolve(spec, [here, there], "soft", "there") == "soft@2"
    assert resolve(spec, [here, there, forgotten], "soft", "there") == "soft@3"


def test_the_next_number_is_past_what_a_cluster_of_this_name_left_at_its_provider() -> None:
    listed = ["soft-7-x86-64", "soft-9-1-x86-64", "softer-8-x86-64", "soft-x", "other"]
    assert images.next_number([], "soft", listed) == 8
    assert images.next_number([made("soft", 11)], "soft", listed) == 12
    assert images.next_number([], "soft-9", listed) == 2


def test_images_are_known_as_a_file_would_name_them() -> None:
    there = replace(made("disk", 1), provider="libvirt", id="/disks/1.qcow2")
    known = images.known([made("soft", 2), made("soft", 2, "aarch64"), there])
    assert known["soft@2"].id_for("aarch64") == "soft-2-aarch64"
    assert str(known["disk@1"].path) == "/disks/1.qcow2"


def test_an_image_is_built_for_each_architecture_of_the_groups_that_use_it(spec: Cluster) -> None:
    assert [(one.arch, one.group, one.flavors) for one in sites(spec, "soft")] == [
        ("x86_64", "intel", ("intel",)),
        ("aarch64", "both", ("arm",)),
    ]
    assert [one.group for one in sites(spec, "soft.gpu")] == ["gpu"]
    assert images.lineage(spec, "soft.gpu") == ["soft.gpu", "soft", "base"]


CLOUD = """
cluster: blue
provider: {kind: openstack, cloud: mine, network: net}
flavors: {small: {cpus: 1, memory: 1G}}
images: {base: {id: image-1}}
groups: {g: {nodes: n1, flavors: [small], image: base}}
"""


@pytest.mark.parametrize(
    ("about", "why"),
    [
        ({}, ""),
        ({"without": ("ssh",)}, "g is without ssh"),
        ({"without": ("join",)}, "g is without ssh"),
        ({"markets": ("on-demand",)}, ""),
        ({"markets": ("preemptible", "on-demand")}, "a preemptible machine"),
    ],
)
def test_an_image_of_a_node_is_refused_where_it_cannot_be_told_to_forget_who_it_is(
    about: dict[str, tuple[str, ...]], why: str
) -> None:
    """That this cloud has no such markets is checked elsewhere."""
    spec = parse(CLOUD, "c.yaml")
    group = spec.groups["g"].model_copy(update=about)
    told = unreached(spec.model_copy(update={"groups": {"g": group}}), "g", "openstack")
    assert (why in told) if why else told == ""


def test_a_builder_has_a_host_name() -> None:
    name = images.builder_name("Soft.gpu_" + "x" * 60, 12, "x86_64")
    assert name.startswith("tide-build-soft-gpu-xx")
    assert name.endswith("-12-x86-64")
    assert len(name) <= 63
    assert images.builder_name("soft", 3, "aarch64") == "tide-build-soft-3-aarch64"


def test_families_with_names_that_look_alike_have_builders_of_their_own() -> None:
    names = {images.builder_name(one, 1, "x86_64") for one in ("a-b", "a_b", "a.b", "A-b")}
    assert len(names) == 4


@pytest.mark.accepts("C21")
def test_what_nodes_run_or_would_get_is_not_cleaned(spec: Cluster) -> None:
    found = [made("soft", number) for number in range(1, 7)]
    found += [made("soft", 7, state=Making.FAILED), made("soft", 8, state=Making.BUILDING)]
    nodes = [node("i1", "soft@2"), node("i2", "soft@3", NodeState.OFF)]
    plan = decide_clean(spec, found, nodes)
    assert [one.name for one in plan.going] == ["soft@1", "soft@3", "soft@4", "soft@7"]
    assert plan.kept["soft@2"] == "i1 runs it"
    assert plan.kept["soft@6"] == "new nodes of intel get it"
    assert plan.kept["soft@8"] == "it is being built"
    assert set(decide_clean(spec, found, nodes, "soft", 0).kept) == {"soft@2", "soft@6", "soft@8"}
    assert decide_clean(spec, found, nodes, "other").going == ()


def test_what_another_family_begins_with_is_not_cleaned(spec: Cluster) -> None:
    users = ("intel", "both")
    alone = spec.model_copy(
        update={"groups": {k: g for k, g in spec.groups.items() if k not in users}}
    )
    plan = decide_clean(alone, [made("soft", 1), made("soft", 2)], (), "soft", 0)
    assert [one.name for one in plan.going] == ["soft@1"]
    assert plan.kept == {"soft@2": "soft.gpu is built from it"}


def test_what_an_image_is_being_built_from_is_not_cleaned_though_there_is_a_newer_one(
    spec: Cluster,
) -> None:
    found = [made("soft", number) for number in range(1, 5)]
    under_way = made("soft.gpu", 1, state=Making.BUILDING)
    builds = replace(under_way, made_from="soft@1", builder="tide-build-soft-gpu-1")
    plan = decide_clean(spec, [*found, builds], (), "soft", 1)
    assert [one.name for one in plan.going] == ["soft@2", "soft@3"]
    assert plan.kept["soft@1"] == "tide-build-soft-gpu-1 runs it"
    over = replace(builds, state=Making.FAILED)
    assert decide_clean(spec, [*found, over], (), "soft@1").kept == {}


def test_what_an_image_that_stays_stands_on_is_not_cleaned(spec: Cluster) -> None:
    """Below an image is also what lies below that; who is to go keeps nothing."""
    found = [made("mine", 1), *(made("soft", number) for number in range(1, 5))]
    first, second, third = (f"soft-{number}-x86-64" for number in (1, 2, 3))
    below = {"mine-1-x86-64": (second, first), second: (first,), "soft-4-x86-64": (third,)}
    plan = decide_clean(spec, found, [node("i1", "mine@1")], "soft", 1, below)
    assert plan.going == ()
    assert list(plan.kept.items())[:3] == [
        ("soft@1", "mine@1 stands on it"),
        ("soft@2", "mine@1 stands on it"),
        ("soft@3", "soft@4 stands on it"),
    ]
    whole = decide_clean(spec, found, [node("i1", "mine@1")], "soft", 1)
    assert [one.name for one in whole.going] == ["soft@1", "soft@2", "soft@3"]
    unused = decide_clean(spec, found, (), None, 0, below)
    assert [one.name for one in unused.going] == ["mine@1", "soft@1", "soft@2"]
    named = decide_clean(spec, found, (), "soft@1", None, below)
    assert (named.going, list(named.kept)) == ((), ["soft@1"])


def test_an_image_of_a_container_tells_which_images_lie_below_it() -> None:
    below = ("/state/images/soft-2-x86-64", "/state/images/soft-1-x86-64", "/")
    picture = Picture("mine-1-x86-64", "blue", 0.0, "x86_64", below)
    shown = picture.shown(Path("/state/images/mine-1-x86-64"))
    assert shown.below == ("soft-2-x86-64", "soft-1-x86-64")


def test_an_image_that_turned_out_bad_is_withdrawn_by_its_name(spec: Cluster) -> None:
    found = [made("soft", 1), made("soft", 2)]
    assert [one.name for one in decide_clean(spec, found, (), "soft@2").going] == ["soft@2"]
    in_use = decide_clean(spec, found, [node("i1", "soft@2"), node("i2", "soft@2")], "soft@2")
    assert in_use.kept == {"soft@2": "i1 and 1 more run it"}


LABEL = "soft-1-x86-64"
DONE, FAILED = done(LABEL), failed(LABEL)
OTHER = "soft-2-x86-64"


@pytest.mark.parametrize(
    ("console", "running", "off_s", "remote", "outcome"),
    [
        ("running x\n", True, None, False, None),
        (f"x\n{BUILT}\n", True, None, False, ""),
        (f"echo {BUILT}\n", True, None, False, None),
        (f"{FAILED}x ended with status 3\n", True, None, True, "x ended with status 3"),
        (f"{FAILED}x ended with status 3\n", False, None, False, "x ended with status 3"),
        (f"[   15.12] cloud-init[721]: {FAILED}x ended\n", True, None, True, "x ended"),
        (f"google: startup-script: {FAILED}x ended\n", True, None, True, "x ended"),
        (f"{BUILT}\n", True, None, True, None),
        (f"{BUILT}\n{DONE}\n", True, None, True, ""),
        ("", False, 0.0, True, ""),
        (f"{BUILT}\n{DONE}\n", False, 0.0, True, ""),
        ("running x\n", False, 0.0, True, None),
        ("running x\n", False, LAG_S, True, UNHEARD),
        (f"{FAILED}\n", True, None, True, "it did not say why"),
        (f"{BUILT}\n{done(OTHER)}\n", True, None, True, None),
        (f"{failed(OTHER)}x ended\n", True, None, True, None),
        (f"{failed(OTHER)}x ended\n{DONE}\r\n", True, None, True, ""),
        ("", False, None, True, "the machine that it was built on died"),
    ],
)
def test_what_a_builder_says_and_does_tells_how_it_went(
    console: str, running: bool, off_s: float | None, remote: bool, outcome: str | None
) -> None:
    assert decide_outcome(LABEL, console, running, off_s, remote) == outcome


@pytest.mark.parametrize(("status", "outcome"), [(0, ""), (3, "x ended with status 3")])
def test_a_script_that_does_not_end_its_line_hides_nothing_of_ours(
    tmp_path: Path, status: int, outcome: str
) -> None:
    text = f"#!/bin/sh\nprintf 'fetched 100%%'\nexit {status}\n"
    recipe = Recipe("soft", "soft@1", "x86_64", LABEL, [Script("x", text)])
    script = render_build(recipe, remote=False).replace(PLACE, str(tmp_path / "place"))
    ran = subprocess.run(["sh", "-c", script], capture_output=True, text=True, check=False)
    assert decide_outcome(LABEL, ran.stdout, running=True, off_s=None, remote=False) == outcome


def test_scripts_are_passed_on_as_they_are() -> None:
    text = "#!/bin/sh\necho 'it''s' \"$HOME\" \\\n\t{}\n"
    recipe = Recipe("soft", "soft@1", "x86_64", LABEL, [Script("/srv/a b", text)])
    assert "running /srv/a b" in render_build(recipe, remote=False)
    assert "forgotten" not in render_build(recipe, remote=False)
    script = render_build(recipe, remote=True)
    assert script.rstrip().endswith("poweroff")
    assert decide_outcome(LABEL, script, True, None, True) is None, "it may be shown on the console"


@pytest.mark.parametrize(
    "image",
    [
        aws.image({"ImageId": "ami-1", "State": "failed"}),
        azure.image({"id": "1", "name": "x", "properties": {"provisioningState": "Failed"}}),
        google.image("blue", {"name": "x", "status": "FAILED"}, "project"),
        openstack.parse_image({"id": "1", "status": "killed"}),
    ],
)
def test_an_image_that_a_cloud_could_not_make_is_told_from_one_that_is_made(
    image: CloudImage,
) -> None:
    assert (image.ready, image.failed) == (False, True)
