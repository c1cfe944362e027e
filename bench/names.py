"""What it costs to make the names of nodes known: a file for each node, or one hosts file for all.

Nodes elsewhere ask a name server that watches a directory; the other way would be a new hosts file,
which each of them must get.
"""

import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

from bench.nodeset import cpu_s
from bench.paper import address
from bench.table import Table, milliseconds, ratio
from springtide.configure.boot import render_hosts
from springtide.configure.names import render_entry
from springtide.layout import Layout
from springtide.ports import Site
from springtide.served.names import Names
from springtide.spec import Cluster, parse

NODES, FEW = 10_000, 1000
CHANGED = (1, 100)
REPEATS = 7
SITE = Site("127.0.0.1")
CONTROL = "head"
SPEC = """
cluster: scale
state: {state}
provider: {{kind: command, list: [x], create: [x], delete: [x]}}
groups: {{g: {{nodes: "n[00001-{nodes:05}]"}}}}
"""


def run(quick: bool) -> Iterator[Table]:
    nodes = FEW if quick else NODES
    table = Table(
        f"changed names of {nodes:,} nodes",
        ["", "files", "bytes", "CPU ms", "one hosts file: bytes", "CPU ms", "ratio of bytes"],
        notes=["a hosts file would have to reach every node as well"],
    )
    with tempfile.TemporaryDirectory(prefix="tide-bench-") as directory:
        spec = parse(SPEC.format(state=directory, nodes=nodes), "bench")
        table.rows.extend(_row(spec, count, 2 if quick else REPEATS) for count in CHANGED)
    yield table


def _row(spec: Cluster, count: int, repeats: int) -> list[str]:
    before = {name: address(at) for at, name in enumerate(spec.managed)}
    after = before | {
        name: address(len(before) + at) for at, name in enumerate(spec.managed[:count])
    }
    names = Names(spec, CONTROL)
    names.make_places()
    names.write(before)
    files = names.write(after)
    size = sum(len(render_entry(name, after[name], spec.cluster)) for name in spec.managed[:count])
    ours_s = cpu_s(_there_and_back(names, before, after), repeats) / 2
    hosts = Layout(spec.state).naming / "all"
    whole_s = cpu_s(lambda: _write_hosts(hosts, after), repeats)
    whole = hosts.stat().st_size
    return [
        f"{count:,} changed",
        f"{files:,}",
        f"{size:,}",
        milliseconds(ours_s),
        f"{whole:,}",
        milliseconds(whole_s),
        ratio(whole, size),
    ]


def _there_and_back(
    names: Names, before: dict[str, str], after: dict[str, str]
) -> Callable[[], None]:
    def change() -> None:
        names.write(before)
        names.write(after)

    return change


def _write_hosts(path: Path, addresses: dict[str, str]) -> None:
    path.write_text(render_hosts(CONTROL, SITE, addresses))
