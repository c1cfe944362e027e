"""A real Slurm whose calendar turns from a minimum to a maximum while jobs come."""

import struct
import time
import zoneinfo
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from tests.e2e.real import RealCluster, cluster, until

pytestmark = pytest.mark.real

SPEC = """
cluster: tides
batch: {{kind: slurm, port: 17087, node_port: 17088}}
provider: {{kind: containers, mounts: [SHARED]}}
groups: {{general: {{nodes: "t-[1-4]"}}}}
timing: {{idle: {idle}s, start: 2m, stop: 5s, reconcile: 1s, grace: 2s}}
calendar:
  time_zone: {zone}
  entries:
    - {{name: day, daily: "08:00-18:00", min: 2}}
    - {{name: night, daily: "18:00-08:00", max: 1}}
"""
NOON = timedelta(hours=12)
DUSK = timedelta(hours=18)
IDLE_S = 4
LEFT = timedelta(seconds=3)
"""So long the day goes on after another time zone was written into the file."""


@pytest.fixture
def zones(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Where time zones are that we make: the test need not wait for the time of day."""
    monkeypatch.setenv("PYTHONTZPATH", str(tmp_path))
    zoneinfo.reset_tzpath([tmp_path])
    yield tmp_path
    monkeypatch.undo()
    zoneinfo.reset_tzpath()


def write_zone(path: Path, shown: timedelta) -> None:
    """One whose clock shows this time of the day now, in the form of RFC 8536."""
    now = datetime.now(UTC)
    since = now - now.replace(hour=0, minute=0, second=0, microsecond=0)
    counts = struct.pack(">6l", 0, 0, 0, 0, 1, 4)
    kind = struct.pack(">lbb", round((shown - since).total_seconds()), 0, 0)
    path.write_bytes(b"TZif" + bytes(16) + counts + kind + b"LMT\0")


def spec(zone: str) -> str:
    return SPEC.format(zone=zone, idle=IDLE_S)


def idle_s(real: RealCluster) -> float:
    """For how long the nodes of the day are there."""
    since: float = max(node["changed_at"] for node in real.record("t-[1-2]").values())
    return time.time() - since


def held_back(real: RealCluster) -> list[str]:
    """The nodes that Slurm would not start, by the calendar."""
    nodes = real.client.get("/nodes", names="t-[1-4]")["nodes"]
    seen = {one["name"]: one["batch"] or {"drained": False} for one in nodes}
    why = "springtide: calendar: at most 1 until"
    return [
        name
        for name, node in seen.items()
        if node["drained"] and "POWERED_DOWN" in node["flags"] and node["reason"].startswith(why)
    ]


@pytest.mark.timeout(500)
@pytest.mark.accepts("N19", "N22")
def test_nodes_are_kept_up_by_day_and_held_back_by_night(zones: Path) -> None:
    write_zone(zones / "Noon", NOON)
    with cluster(spec("Noon")) as real:
        assert real.states("t-[1-2]") == {"ready"}, "they are deployed for the day"
        assert real.states("t-[3-4]") == {"off"}
        config = real.slurm("scontrol", "show", "config").split("SuspendExcNodes")[1]
        assert config.splitlines()[0].partition("=")[2].strip() == "t-[1-2]"
        refused = real.tide("resize", "general=1", "--yes")
        assert refused.returncode == 1
        assert "2 to 4 nodes until 18:00 Noon, by entry day" in refused.stderr
        until(lambda: idle_s(real) > IDLE_S + 2)
        assert real.states("t-[1-2]") == {"ready"}, "idle for longer than timing.idle, and there"
        write_zone(zones / "Dusk", DUSK - LEFT)
        real.write(spec("Dusk"))
        applied = real.tide("apply", "--yes")
        assert applied.returncode == 0, applied.stderr
        until(lambda: {"t-3", "t-4"}.issubset(held_back(real)))
        jobs = [real.sbatch("sleep 2; hostname", "--exclusive") for _ in range(3)]
        for job in jobs:
            assert real.finished(job, 200)["Restarts"] == "0"
        real.all_off("t-[1-4]")
        until(lambda: len(held_back(real)) == 3)
        used = {name for job in jobs for name in real.output(job)}
        assert used <= {"t-1", "t-2"}, "no further node was started"
        again = real.sbatch("hostname", "--exclusive")
        assert real.finished(again)["Restarts"] == "0"
