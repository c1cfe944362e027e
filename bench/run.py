"""All benchmarks, or those named: a table each. `python -m bench` cleans up after it."""

import argparse
import os
import signal
import sys
from collections.abc import Callable, Iterator, Sequence
from types import FrameType
from typing import NoReturn

from bench import clouds, demand, hook, many, names, nodeset, reconcile, scale, start
from bench.queue import GaveUp
from bench.table import Table


def _nodeset(quick: bool) -> Iterator[Table]:
    rows = nodeset.run(nodeset.FEW if quick else nodeset.NAMES)
    yield Table("hostlists", ["", "CPU"], [list(row) for row in rows])


BENCHMARKS: dict[str, Callable[[bool], Iterator[Table]]] = {
    "start": start.run,
    "hook": hook.run,
    "many": many.run,
    "scale": scale.run,
    "reconcile": reconcile.run,
    "demand": demand.run,
    "nodeset": _nodeset,
    "names": names.run,
    "clouds": clouds.run,
}
OPENSTACK = "openstack"
ASKED_FOR = {OPENSTACK: clouds.openstack}
"""Only when asked for: a real OpenStack takes minutes."""
NEED_ROOT = frozenset({"start", "hook", "many", "names", OPENSTACK})


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m bench", description=__doc__)
    parser.add_argument("benchmarks", nargs="*", metavar="NAME", help=", ".join(BENCHMARKS))
    parser.add_argument(
        "--quick", action="store_true", help="few and small, to see that all of them work"
    )
    parser.add_argument(
        "--openstack", action="store_true", help="calls to a real Nova: alone, or after those named"
    )
    chosen = parser.parse_args(arguments)
    if unknown := set(chosen.benchmarks) - BENCHMARKS.keys():
        parser.error(f"no such benchmark: {', '.join(sorted(unknown))}")
    wanted = chosen.benchmarks or ([] if chosen.openstack else list(BENCHMARKS))
    wanted += [OPENSTACK] if chosen.openstack else []
    if os.geteuid() != 0 and NEED_ROOT & set(wanted):
        parser.error(
            "containers need root; `scale`, `reconcile`, `demand`, `nodeset` and `clouds` do not"
        )
    signal.signal(signal.SIGTERM, _stop)
    return _run(wanted, chosen.quick)


def _run(wanted: Sequence[str], quick: bool) -> int:
    print(f"{os.cpu_count()} cores, load {os.getloadavg()[0]:.1f}\n", flush=True)
    try:
        for name in wanted:
            for table in (BENCHMARKS | ASKED_FOR)[name](quick):
                if not table.rows:
                    raise GaveUp(f"{name}: nothing was found of {table.title}")
                print(table, end="\n\n", flush=True)
    except KeyboardInterrupt:
        print("interrupted; everything was removed", file=sys.stderr)
        return 130
    except GaveUp as error:
        print(f"bench: {error}", file=sys.stderr)
        return 1
    return 0


def _stop(number: int, frame: FrameType | None) -> NoReturn:
    """As Ctrl-C does."""
    raise KeyboardInterrupt


if __name__ == "__main__":
    sys.exit(main())
