"""Lines of nodes never promise more than slurmd reports: of tables, templates, and what joined."""

import re
import shutil
from pathlib import Path
from typing import Any

import pytest

from springtide.api.machines import smallest
from springtide.batch.slurm_conf import render as render_conf
from springtide.cli import file_checks
from springtide.cli.init import KINDS, render
from springtide.cli.machine_checks import decide_size
from springtide.cli.subject import run as run_program
from springtide.imports import limits, shapes
from springtide.imports.parts import Wish, of_limits
from springtide.imports.parts import render as render_parts
from springtide.model import Node, NodeState, Ticket
from springtide.ports import Site
from springtide.spec import Cluster, load, parse, source
from springtide.spec.values import parse_size

pytestmark = pytest.mark.accepts("C6")
slurm = pytest.mark.skipif(shutil.which("slurmd") is None, reason="needs Slurm's programs")

TOP = Path(__file__).parents[2]
CRASH_KERNEL_MIB = {"x86_64": 256, "aarch64": 512}
"""What distributions set aside where there is little memory; of much the percentage is more."""


def kernel_shows(nominal: int, arch: str) -> float:
    """The least: without a 64th for the table of pages, firmware's share, and a crash kernel."""
    return nominal * (1 - 1 / 64 - 1 / 100) - CRASH_KERNEL_MIB[arch]


def conf_of(cluster: Cluster) -> list[dict[str, str]]:
    text = render_conf(cluster, Site("127.0.0.1"), state=cluster.state, version=(22, 5))
    lines = [line for line in text.splitlines() if line.startswith("NodeName=")]
    return [dict(word.partition("=")[::2] for word in line.split()) for line in lines]


def of_table(kind: str) -> Cluster:
    """A group for each shape."""
    known = shapes.table(kind)
    found = limits.parse_limits("".join(f"{name}: 2\n" for name in known), "limits.yaml")
    parts = of_limits(found, known, Wish("none", "compute"))
    return parse(f"cluster: c\nprovider: {{kind: none}}\n{render_parts(parts)}\n", "c.yaml")


@pytest.mark.parametrize("kind", shapes.KINDS)
def test_no_shape_promises_more_than_a_kernel_shows_of_it(kind: str) -> None:
    cluster = of_table(kind)
    path = shapes.TABLES / f"{kind}.yaml"
    entries = source.read(path.read_text(), str(path)).data
    for line, (name, entry) in zip(conf_of(cluster), entries.items(), strict=True):
        nominal, arch = parse_size(entry["nominal"]), entry.get("arch", "x86_64")
        least = max(kernel_shows(nominal, arch), nominal / 2)
        assert nominal / 2 <= int(line["RealMemory"]) <= least, name
        sockets, threads = int(entry.get("sockets", 1)), int(entry["threads_per_core"])
        assert int(line["CPUs"]) == sockets * int(entry["cores_per_socket"]) * threads, name
        topology = (line["Sockets"], line["CoresPerSocket"], line["ThreadsPerCore"])
        assert topology == (str(sockets), entry["cores_per_socket"], str(threads)), name
        assert line["Feature"] == f"shape={name}"
        assert line.get("Gres") == entry.get("gres")


@slurm
@pytest.mark.parametrize("kind", shapes.KINDS)
def test_slurm_reads_the_lines_of_all_shapes(kind: str) -> None:
    cluster = of_table(kind)
    text = render_conf(cluster, Site("127.0.0.1"), state=cluster.state, version=(22, 5))
    assert file_checks._misread(text) == ""


@pytest.mark.parametrize("kind", [kind for kind in KINDS if kind in shapes.KINDS])
def test_a_file_to_begin_with_promises_no_more_than_the_table_knows(kind: str) -> None:
    for flavor in parse(render(kind), kind).flavors.values():
        known = shapes.table(kind).get(flavor.type or "") or shapes.flexible(flavor.type or "")
        assert known is not None, flavor.type
        assert (flavor.cpus, flavor.threads) == (known.cpus, known.threads)
        assert flavor.memory <= known.memory


@slurm
def test_containers_to_begin_with_are_no_bigger_than_this_machine() -> None:
    """Containers show all of the machine that they are on."""
    said = run_program(["slurmd", "-C"]).stdout
    here = {key: int(value) for key, value in re.findall(r"(CPUs|RealMemory)=(\d+)", said)}
    clusters = [parse(render("containers"), "init"), load(TOP / "examples" / "containers.yaml")]
    lines = [line for cluster in clusters for line in conf_of(cluster)]
    assert lines
    for line in lines:
        assert {key: int(line[key]) <= here[key] for key in here} == dict.fromkeys(here, True)


# --- what joined -----------------------------------------------------------------------------

SPEC = """
cluster: c
flavors: {small: {cpus: 2, memory: 1000M}, large: {cpus: 4, memory: 4000M}}
groups: {g: {nodes: "a[1-3]", flavors: [large, small]}}
"""


@pytest.mark.parametrize(
    ("cpus", "memory", "ok", "said"),
    [
        (2, 1000, True, "its nodes report 2 CPUs and 1000 MiB, which is what Slurm is told"),
        (2, 999, False, "report 2 CPUs and 999 MiB, but Slurm is told 1000 MiB"),
        (1, 1000, False, "report 1 CPUs and 1000 MiB, but Slurm is told 2 CPUs"),
    ],
)
def test_a_group_whose_nodes_are_smaller_than_the_file_says_is_named(
    cpus: int, memory: int, ok: bool, said: str
) -> None:
    row = {"group": "g", "count": 1, "cpus": cpus, "memory": memory}
    check = decide_size(parse(SPEC, "c.yaml"), row)
    assert (check.name, check.ok) == ("size of g", ok)
    assert said in check.text
    assert bool(check.todo) is not ok


def test_the_smallest_node_that_is_there_counts() -> None:
    def node(name: str, state: NodeState = NodeState.READY) -> Node:
        return Node(name, "g", state, generation=2)

    def ticket(name: str, generation: int = 2, **machine: Any) -> Ticket:
        return Ticket(name, generation, 0.0, 1.0, machine=machine)

    nodes = [node("a1"), node("a2"), node("a3", NodeState.OFF), node("a4"), node("a5")]
    tickets = [
        ticket("a1", cpus=2, memory=1500),
        ticket("a2", cpus=4, memory=1400),
        ticket("a3", cpus=1, memory=1),
        ticket("a4", generation=1, cpus=1, memory=1),
        ticket("a5", cpus="many", memory=-1),
    ]
    found = smallest(nodes, {one.node: one for one in tickets})
    assert found == [{"group": "g", "cpus": 2, "memory": 1400, "count": 2}]


def test_machines_on_premises_are_where_the_pool_says() -> None:
    pool = "{kind: none}\ngroups: {p: {nodes: 'b2,a1', addresses: {a1: 10.0.0.1, b2: 10.0.0.2}}}"
    [line] = conf_of(parse(f"cluster: c\nprovider: {pool}\n", "c.yaml"))
    assert (line["NodeName"], line["NodeAddr"]) == ("a1,b2", "10.0.0.1,10.0.0.2")
