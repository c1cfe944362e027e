"""How fast hostlists fold and expand, beside ClusterShell's NodeSet in the same run.

`python -m bench.nodeset` prints the rows; `make bench` prints them among the others.
"""

import time
from collections.abc import Callable
from functools import partial

from ClusterShell.NodeSet import NodeSet

from springtide.nodeset import expand, fold

TEXTS = {
    "one range of 100,000": "blue-[00000-99999]",
    "10 prefixes x 10,000": ",".join(f"{prefix}-[0-9999]" for prefix in "abcdefghij"),
    "every second of 100,000": f"n[{','.join(map(str, range(100_000, 200_000, 2)))}]",
    "500 racks x 200": "r[0-499]u[000-199]",
}
REPEATS = 5


def run() -> list[tuple[str, str]]:
    rows = []
    for what, text in TEXTS.items():
        names = expand(text)
        rows.append(row(f"expand {what}", partial(expand, text), partial(their_expand, text)))
        rows.append(row(f"fold {what}", partial(fold, names), partial(their_fold, names)))
    return rows


def their_expand(text: str) -> list[str]:
    return list(NodeSet(text))


def their_fold(names: list[str]) -> str:
    return str(NodeSet.fromlist(names))


def row(what: str, ours: Callable[[], object], theirs: Callable[[], object]) -> tuple[str, str]:
    our_s, their_s = cpu_s(ours, REPEATS), cpu_s(theirs, 1)
    return what, f"{our_s:.3f} s CPU, ClusterShell {their_s:.3f} s ({their_s / our_s:.0f} x)"


def cpu_s(work: Callable[[], object], repeats: int) -> float:
    """The least of several: the machine's other work only ever adds."""
    spent = []
    for _ in range(repeats):
        start = time.process_time()
        work()
        spent.append(time.process_time() - start)
    return min(spent)


def main() -> None:
    for what, value in run():
        print(f"{what:32} {value}")


if __name__ == "__main__":
    main()
