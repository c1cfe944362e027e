"""Keeps the processes of one control plane, and sees that none of them outlives its test.

Run as `unshare --pid --ipc python -m tests.openstack.keeper ROOT`: all it starts lives in a
process namespace that ends with its first process. It takes one JSON order per line from its
standard input and answers each with one line; when the input ends, because the test is done or
was killed, it kills the namespace and removes ROOT. When it is killed itself, the first process
dies with it and takes the others along.
"""

import json
import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

from tests.leftovers import owned

FIRST = ("setpriv", "--pdeathsig", "KILL", "env", "--ignore-signal=CHLD", "sleep", "infinity")
"""Reaps what its namespace orphans by ignoring its children's ends, and does nothing else."""

Processes = dict[str, subprocess.Popen[bytes]]


def main() -> None:
    root = Path(sys.argv[1])
    with owned(root):
        first = subprocess.Popen(FIRST, stdin=subprocess.DEVNULL)
        processes: Processes = {}
        try:
            for line in sys.stdin:
                print(json.dumps(_obey(root, processes, json.loads(line))), flush=True)
        finally:
            first.kill()
            for process in (*processes.values(), first):
                process.wait()
            shutil.rmtree(root, ignore_errors=True)


def _obey(root: Path, processes: Processes, order: dict[str, Any]) -> Any:
    name = order.get("name", "")
    match order["do"]:
        case "start":
            processes[name] = _start(root / "log" / f"{name}.log", order["argv"], order["env"])
        case "signal":
            os.killpg(processes[name].pid, signal.Signals(order["signal"]))
        case "wait":
            return _wait(processes[name], order["timeout_s"])
        case "ended":
            codes = {name: process.poll() for name, process in processes.items()}
            return {name: code for name, code in codes.items() if code is not None}
    return None


def _start(log: Path, argv: list[str], environment: dict[str, str]) -> subprocess.Popen[bytes]:
    with log.open("ab") as output:
        return subprocess.Popen(
            argv,
            env={**os.environ, **environment},
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )


def _wait(process: subprocess.Popen[bytes], timeout_s: float) -> int | None:
    try:
        return process.wait(timeout_s)
    except subprocess.TimeoutExpired:
        return None


if __name__ == "__main__":
    main()
