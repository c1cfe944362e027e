"""Partitions for rebuild jobs, and other parts of a file that must fit together.

What is said when they do not is in tests/cases/spec; see test_spec.py.
"""

from pathlib import Path

import pytest

from springtide import spec

CASES = Path(__file__).parents[1] / "cases" / "spec"
GROUPS = """
cluster: blue
groups:
  general: {nodes: "blue-[000-015]"}
  quick: {nodes: "blue-quick-[1-2]"}
  gpu: {nodes: "gpu-[1-2]"}
  empty: {}
partitions:
  standard: {groups: [general], default: true}
  debug: {groups: [quick, general, empty]}
  gpu: {groups: [gpu]}
"""


@pytest.mark.accepts("A13")
@pytest.mark.parametrize(
    ("case", "told"),
    [
        ("rebuild-partitions-that-overlap", "'first' and 'second' both have group 'general'"),
        ("rebuild-of-a-part-of-a-partition", "list 'debug' in it too"),
        ("rebuild-partition-called-like-another", "'standard' is a partition of users already"),
        ("partition-called-rebuild", "rename this one, or that one"),
    ],
)
def test_rebuild_partitions_must_not_overlap_and_must_have_whole_partitions(
    case: str, told: str
) -> None:
    with pytest.raises(spec.SpecError) as caught:
        spec.load(CASES / f"{case}.yaml")
    assert told in str(caught.value)


@pytest.mark.accepts("A13")
@pytest.mark.parametrize(
    "partitions",
    [
        "{}",
        "{every: [standard, debug, gpu]}",
        "{one: [standard, debug], two: [gpu]}",
        "{one: [debug, standard]}",
        "{two: [gpu]}",
        "{two: [gpu, gpu-too]}",
    ],
)
def test_rebuild_partitions_of_whole_partitions_are_fine(partitions: str) -> None:
    more = "  gpu-too: {groups: [gpu]}\n" if "too" in partitions else ""
    cluster = spec.parse(f"{GROUPS}{more}rebuild: {{partitions: {partitions}}}\n", "c.yaml")
    assert bool(cluster.rebuild.partitions) == (partitions != "{}")


def test_a_group_without_nodes_counts_too_for_it_may_get_some() -> None:
    text = GROUPS.replace("groups: [gpu]", "groups: [gpu, empty]")
    with pytest.raises(spec.SpecError, match="'one' and 'two' both have group 'empty'"):
        spec.parse(
            f"{text}rebuild: {{partitions: {{one: [debug, standard], two: [gpu]}}}}", "c.yaml"
        )


def test_a_user_partition_may_be_called_rebuild_where_the_other_has_another_name() -> None:
    text = (
        f"{GROUPS}  rebuild: {{groups: [gpu]}}\nrebuild: {{partitions: {{ours: [rebuild, gpu]}}}}"
    )
    assert spec.parse(text, "c.yaml").rebuild.partitions == {"ours": ("rebuild", "gpu")}


def test_the_partition_that_is_there_by_itself_can_be_rebuilt() -> None:
    text = "cluster: blue\ngroups: {a: {nodes: n1}}\nrebuild: {partitions: {ours: [main]}}"
    assert spec.parse(text, "c.yaml").rebuild.partitions == {"ours": ("main",)}


@pytest.mark.parametrize("provider", ["", "provider: {kind: containers}", "provider: {}"])
def test_control_may_be_in_a_container_where_all_nodes_are(provider: str) -> None:
    text = f"cluster: blue\ncontrol: container\n{provider}\ngroups: {{a: {{nodes: n1}}}}"
    assert spec.parse(text, "c.yaml").control == "container"


def test_an_attached_cluster_may_have_any_provider() -> None:
    text = "cluster: blue\nprovider: {kind: none}\nbatch: {attach: /etc/slurm/slurm.conf}"
    assert spec.parse(text, "c.yaml").batch == spec.Slurm(attach=Path("/etc/slurm/slurm.conf"))


PRICED = """
cluster: blue
flavors:
  small: {cpus: 1, memory: 256M, price: 0.1}
  large: {cpus: 2, memory: 1G, price: 0.25}
  odd: {cpus: 2, memory: 1G}
groups:
  a: {nodes: "a[1-9]", flavors: [small, odd]}
  b: {nodes: "b[1-9]", flavors: [large, small]}
  c: {nodes: "c[1-9]", flavors: [odd, small]}
"""


def test_nodes_cost_what_the_first_flavor_of_their_group_costs() -> None:
    cluster = spec.parse(PRICED, "c.yaml")
    assert cluster.price(["a1", "a2", "a3", "b9"]) == pytest.approx(0.55)
    assert cluster.price([]) == 0


def test_a_price_is_unknown_if_that_of_any_node_is() -> None:
    cluster = spec.parse(PRICED, "c.yaml")
    assert cluster.price(["a1", "c1"]) is None
