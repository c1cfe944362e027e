"""Nodes of a Slurm that is slow to begin, with a scontrol that shows what it is told to."""

from pathlib import Path

import pytest

from springtide.batch import slurm_nodes
from springtide.batch.slurm_commands import Commands
from springtide.batch.slurm_hidden import Hidden
from springtide.batch.slurm_nodes import SlurmNodes

SCONTROL = """\
#!/bin/sh
reason='Reason=bad fan (by ann, drained) [root@2026-11-16T00:04:13]'
case $* in
*show*)
    if mkdir {home}/looked 2>/dev/null; then
        sleep 1.5
        echo "NodeName=c1 State=IDLE+CLOUD+DRAIN+POWER_DOWN $reason"
    else
        echo "NodeName=c1 State=IDLE+CLOUD+POWERING_DOWN $reason"
    fi
    ;;
*) echo "$*" >>{home}/calls ;;
esac
"""
"""It begins with the power-down, which ends the drain, only after it has answered, late."""


async def test_a_drain_that_goes_with_the_power_comes_back_though_slurm_answers_late(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "slurm.conf").touch()
    (tmp_path / "scontrol").write_text(SCONTROL.format(home=tmp_path))
    (tmp_path / "scontrol").chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    monkeypatch.setattr(slurm_nodes, "BEGIN_S", 1.0)
    nodes = SlurmNodes(Commands(tmp_path / "slurm.conf", "deploy it"), "slurm", Hidden())
    await nodes.release(["c1"])
    calls = (tmp_path / "calls").read_text().splitlines()
    assert calls == ["update nodename=c1 state=drain reason=bad fan (by ann)"]
