"""How long jobs take from submission to running, from zero nodes: `python -m tests.matrix.starts`.

Slurm by itself launches on booting nodes at the next tick of a timer of 30 s. What it prints shows
whether any start waited for that.
"""

import json
import sys
import time
from pathlib import Path

from tests.e2e.real import RealCluster, cluster, until

SPEC = """\
cluster: starts
groups: {general: {nodes: "starts-[01-04]"}}
provider: {kind: containers, mounts: [SHARED]}
timing: {idle: 1h}
"""
SIZES = (1, 4)
TIMES = 10


def main(path: Path) -> None:
    with cluster(SPEC) as made:
        found = {size: [_start(made, size) for _ in range(TIMES)] for size in SIZES}
    path.write_text(json.dumps(found))


def _start(made: RealCluster, size: int) -> float:
    """Seconds until the job itself says that it runs."""
    said = made.shared / "began"
    said.unlink(missing_ok=True)
    began_at = time.time()
    job = made.sbatch(f"date +%s.%N >{said}", f"--nodes={size}")
    made.finished(job)
    took_s = float(until(lambda: said.exists() and said.read_text().strip())) - began_at
    made.slurm("scontrol", "update", "nodename=starts-[01-04]", "state=power_down")
    made.all_off("starts-[01-04]")
    return took_s


if __name__ == "__main__":
    main(Path(sys.argv[1]))
