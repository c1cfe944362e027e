"""One command of the stand-in, as its executables call it."""

import os
import signal
import socket
import sys
import time
from collections.abc import Callable
from pathlib import Path

from tests.batch.openpbs_standin.jobs import qalter, qdel, qrerun, qstat, qsub
from tests.batch.openpbs_standin.nodes import Answer, pbsnodes, qmgr
from tests.batch.openpbs_standin.scheduler import State
from tests.batch.openpbs_standin.show import VERSION
from tests.batch.openpbs_standin.state import HARDWARE, changing

COMMANDS: dict[str, Callable[[State, list[str], str], Answer]] = {
    "qstat": qstat,
    "pbsnodes": pbsnodes,
    "qmgr": qmgr,
    "qsub": qsub,
    "qdel": qdel,
    "qrerun": qrerun,
    "qalter": qalter,
}


def main(program: str, arguments: list[str], directory: str, user: str) -> int:
    if "--version" in arguments:
        print(f"pbs_version = {VERSION}")
        return 0
    if program == "pbs_mom":
        return mom(Path(directory))
    code, out, errors = answer(program, arguments, Path(directory), user)
    sys.stdout.write(out)
    sys.stderr.write(errors)
    return code


def answer(program: str, arguments: list[str], directory: Path, user: str) -> Answer:
    with changing(directory) as state:
        state["calls"] += 1
        if state["spoil"] is not None:
            return 0, state["spoil"], ""
        return COMMANDS[program](state, arguments, user)


def _reaches(server: str, address: str, port: int) -> bool:
    """Whether the server's name leads to where it has registered: elsewhere it never answers."""
    try:
        at = socket.gethostbyname(server.partition(":")[0])
        socket.create_connection((at, port), 5).close()
    except OSError:
        return False
    return at == address


def mom(directory: Path) -> int:
    """`pbs_mom -N` stays until it is told to end; pbs.conf says its name."""
    conf = Path(os.environ.get("PBS_CONF_FILE", "/etc/pbs.conf")).read_text()
    pairs = dict(line.split("=", 1) for line in conf.splitlines())
    name = pairs["PBS_MOM_NODE_NAME"]
    ended: list[int] = []
    signal.signal(signal.SIGTERM, lambda number, _: ended.append(number))
    with changing(directory) as state:
        registered = state["registered"]
    if registered and not _reaches(pairs["PBS_SERVER"], *registered):
        print("im_eof, Premature end of message", file=sys.stderr, flush=True)
    else:
        with changing(directory) as state:
            state["moms"][name] = HARDWARE
    while not ended:
        time.sleep(0.05)
    with changing(directory) as state:
        state["moms"].pop(name, None)
    return 0
