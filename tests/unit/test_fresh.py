"""Nodes that serve one job each: what their prologs do, and whose drains outlive them."""

import asyncio
import subprocess
from pathlib import Path

import pytest

from springtide.batch.slurm_reason import SLURM
from springtide.batch.slurm_text import parse_nodes
from springtide.configure.programs import Programs
from springtide.ports import OURS, Unavailable
from tests.sim.world import Life, World
from tests.unit.test_hook import LIMIT_S, daemon, run

LINE = "NodeName=a State={} Reason={} [{}@2026-11-16T00:54:20]"
JOB = {"SLURM_JOB_ID": "5", "SLURM_JOB_NODELIST": "c1", "SLURM_JOB_PARTITION": "once"}


# Whose drain it was


@pytest.mark.parametrize("state", ["IDLE+CLOUD+POWERING_DOWN", "IDLE+CLOUD+POWERED_DOWN"])
def test_a_reason_that_came_after_slurms_own_is_of_a_drain_that_went_with_the_power(
    state: str,
) -> None:
    drained = LINE.format(state, "bad fan", "alice")
    assert parse_nodes(drained, fresh=["a"])["a"].owner == "alice"
    assert parse_nodes(drained)["a"].owner is None
    for reason, owner in {"POWER_DOWN_ASAP": SLURM, "springtide: no": OURS}.items():
        seen = parse_nodes(LINE.format(state, reason, "root"), fresh=["a"])["a"]
        assert (seen.owner, seen.drained) == (owner, False)
    assert parse_nodes(f"NodeName=a State={state}", fresh=["a"])["a"].owner is None


def test_a_reason_of_a_node_in_service_is_nobodys_wish() -> None:
    assert parse_nodes(LINE.format("IDLE+CLOUD", "bad fan", "root"), fresh=["a"])["a"].owner is None


# The prolog


def programs_in(place: Path, wait_s: float) -> Programs:
    made = Programs(
        place / "bin", place / "sock", place / "spool", "root", None, wait_s, fresh=["once"]
    )
    made.install()
    return made


def test_a_job_is_put_back_rather_than_started_on_a_node_that_would_stay(tmp_path: Path) -> None:
    programs = programs_in(tmp_path, 2.0)
    assert run(programs.directory / "prolog", **JOB) == 1
    assert run(programs.directory / "prolog", **{**JOB, "SLURM_JOB_PARTITION": "often"}) == 0


def test_a_job_waits_for_a_daemon_that_comes_back(tmp_path: Path) -> None:
    programs = programs_in(tmp_path, LIMIT_S)
    process = subprocess.Popen([programs.directory / "prolog"], env=JOB)
    with daemon(programs.socket, b"200 OK") as heard:
        assert process.wait(timeout=LIMIT_S) == 0
    assert heard[0][1]["partition"] == "once"


# The daemon


@pytest.mark.looptime
async def test_a_node_that_is_spent_goes_with_its_job_and_takes_no_other(tmp_path: Path) -> None:
    world = World(tmp_path, nodes=1)
    async with world.living(Life()) as living:
        first, second = world.batch.submit(1, 60), world.batch.submit(1, 60)
        await living.prologs.wait(first.id, ["c1"], 600)
        await living.prologs.spend(["c1"])
        await asyncio.sleep(30)
        assert living.parts.record.nodes["c1"].generation == 1
        await asyncio.sleep(600)
        assert (first.state, second.state) == ("COMPLETED", "COMPLETED")
        assert living.parts.record.nodes["c1"].generation == 2


@pytest.mark.looptime
async def test_many_jobs_that_start_at_once_cost_one_call(tmp_path: Path) -> None:
    world = World(tmp_path, nodes=3)
    async with world.living(Life()) as living:
        await asyncio.gather(*(living.prologs.spend([f"c{i % 3 + 1}"]) for i in range(100)))
        assert world.batch.calls["power_down"] == 1
        world.batch.unavailable = True
        with pytest.raises(Unavailable):
            await living.prologs.spend(["c1"])
