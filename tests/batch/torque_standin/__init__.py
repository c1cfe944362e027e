"""A stand-in for Torque 6.1.3: programs that keep a server's state in a directory and answer as
recorded, nasty cases too. Standard library only, for it runs on nodes as well.

`install` makes a directory of its programs. Time goes on at each command: nodes are heard from,
jobs start, what was put off is done; all of it sooner than in earnest.

`test_torque_standin` compares its answers with recordings, byte for byte; but no jobs that are
over, of which it shows less. Seen on a real server, and done here as there: `pbsnodes -x` without
any node ends with 2 and `No nodes found`; `qrerun -f` works for jobs of a dead node; `pbsnodes -r`
ends a drain; what queues ask for by default is for jobs without `-l nodes=` alone; names of nodes
are resolved when they are created and when the server starts, and other addresses refused.
Nobody recorded, and this is assumed (docs/batch/torque.md says it): to create a node whose name
does not resolve is refused with `Unknown node`; `pbsnodes -r` adds `down` until the node is heard
from; a job that asks for a host that there is not waits, with `Unknown node` in its comment; what
qrerun, qalter, qdel and qrls say; `list server scheduling`, and that to set it has the scheduler
look at once; routing queues; what qmgr says while the server is down.
"""

import shutil
from pathlib import Path

PROGRAMS = ("pbs_mom", "pbsnodes", "qalter", "qdel", "qmgr", "qrerun", "qrls", "qstat", "qsub")
LAUNCHER = """\
#!/usr/bin/python3 -I
import sys
sys.path.insert(0, {library!r})
from tests.batch.torque_standin.programs import main
sys.exit(main({name!r}, sys.argv[1:], {state!r}, {user!r}))
"""


def install(bin: Path, state: Path, user: str = "root") -> Path:
    """Programs for one user of the server whose state is in a directory; root is a manager."""
    library = bin / "lib"
    shutil.copytree(
        Path(__file__).parent,
        library / "tests/batch/torque_standin",
        ignore=shutil.ignore_patterns("__pycache__"),
    )
    for name in PROGRAMS:
        program = bin / name
        text = LAUNCHER.format(library=str(library), name=name, state=str(state), user=user)
        program.write_text(text)
        program.chmod(0o755)
    return bin


def is_own(program: Path) -> bool:
    """Whether nobody has put another in its place."""
    return program.exists() and LAUNCHER.partition("{")[0] in program.read_text()
