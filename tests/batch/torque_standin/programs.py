"""The programs, by their names."""

import sys
from collections.abc import Callable
from pathlib import Path

from tests.batch.torque_standin.calls import Call, Failed
from tests.batch.torque_standin.jobs import qalter, qdel, qrerun, qrls, qstat, qsub
from tests.batch.torque_standin.mom import pbs_mom
from tests.batch.torque_standin.nodes import pbsnodes, qmgr

PROGRAMS: dict[str, Callable[[Call], int]] = {
    "pbs_mom": pbs_mom,
    "pbsnodes": pbsnodes,
    "qalter": qalter,
    "qdel": qdel,
    "qmgr": qmgr,
    "qrerun": qrerun,
    "qrls": qrls,
    "qstat": qstat,
    "qsub": qsub,
}


def main(program: str, arguments: list[str], state: str, user: str) -> int:
    call = Call(arguments, Path(state), user)
    try:
        return PROGRAMS[program](call)
    except Failed as failure:
        sys.stderr.write(failure.said)
        return failure.code
