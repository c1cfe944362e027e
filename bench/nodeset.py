"""How fast hostlists fold and expand, beside ClusterShell's NodeSet in the same run.

`python -m bench.nodeset` prints the rows; `make bench` prints them among the others.
"""

import time
from collections.abc import Callable
from functools import partial

from ClusterShell.NodeSet import NodeSet

from springtide.nodeset import expand, fold

NAMES, FEW = 100_000, 10_000
REPEATS = 5


def run(count: int = NAMES) -> list[tuple[str, str]]:
    rows = []
    for what, text in texts(count).items():
        names = expand(text)
        rows.append(row(f"expand {what}", partial(expand, text), partial(their_expand, text)))
        rows.append(row(f"fold {what}", partial(fold, names), partial(their_fold, names)))
    return rows


def texts(count: int) -> dict[str, str]:
    """So many names each, but where every second is left out."""
    second = ",".join(map(str, range(count, 2 * count, 2)))
    return {
        f"one range of {count:,}": f"blue-[00000-{count - 1:05}]",
        f"10 prefixes x {count // 10:,}": ",".join(
            f"{one}-[0-{count // 10 - 1}]" for one in "abcdefghij"
        ),
        f"every second of {count:,}": f"n[{second}]",
        f"{count // 200} racks x 200": f"r[0-{count // 200 - 1}]u[000-199]",
    }


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
