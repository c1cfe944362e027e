"""`make bench`: has `bench.run` do its work in another process, and nothing is left behind by it.

However that ends, and whenever somebody wants it to, everything below its directory is removed:
processes, mounts, links and files. Signals are only noted here, so that nothing interrupts this.
"""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from types import FrameType

from tests.leftovers import place, sweep

STOPS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
PATIENCE_S = 60.0
"""For the benchmarks to clean up after themselves when they are to stop."""
LOOK_S = 0.2
INTERRUPTED = 130


def main(arguments: Sequence[str]) -> int:
    asked: list[int] = []

    def note(number: int, frame: FrameType | None) -> None:
        asked.append(number)

    for number in STOPS:
        signal.signal(number, note)
    with place() as root:
        try:
            return _run(root.as_posix(), arguments, asked)
        finally:
            sweep(root)


def _run(root: str, arguments: Sequence[str], asked: Sequence[int]) -> int:
    """In a session of its own, so that it gets one signal, and that from us."""
    process = subprocess.Popen(
        [sys.executable, "-m", "bench.run", *arguments],
        env={**os.environ, "TMPDIR": root},
        start_new_session=True,
    )
    try:
        while process.poll() is None and not asked:
            time.sleep(LOOK_S)
        return _stopped(process) if asked else process.returncode
    finally:
        process.kill()
        process.wait()


def _stopped(process: "subprocess.Popen[bytes]") -> int:
    process.terminate()
    try:
        process.wait(PATIENCE_S)
    except subprocess.TimeoutExpired:
        print("bench: it is killed, for it does not end", file=sys.stderr)
    return INTERRUPTED


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
