"""Reboots whose action an admin has chosen, as Slurm 26.05 can: on virtual time."""

from pathlib import Path

import pytest

from springtide.model import Kind, Request
from tests.sim.test_service import apply, deployed, running, spec, states, until, world_of
from tests.sim.world import Life

pytestmark = pytest.mark.looptime


@pytest.mark.accepts("E14")
@pytest.mark.parametrize(
    ("program", "image"), [("rebuild", "two"), ("reboot-only", "one"), ("reboot", "one")]
)
async def test_a_chosen_action_counts_more_than_a_reason(
    tmp_path: Path, program: str, image: str
) -> None:
    """The file wants `two`; the reason, which nobody wrote for us, is no rebuild's."""
    world = world_of(tmp_path)
    async with world.living(Life()) as daemon:
        await deployed(daemon)
        await apply(world, daemon, spec(image="two"))
        await world.batch.drain(["c1"], "disk is slow", "alice")
        await world.batch.reboot(["c1"], "disk is slow")
        await daemon.receive(Request("r1", program, ("c1",)))
        await until(lambda: bool(daemon.engine.at(Kind.REBUILD)))
        await daemon.engine.idle()
        assert states(daemon)["c1"] == "ready"
        assert running(world) == {"c1": image, "c2": "one", "c3": "one"}
        seen = await world.batch.nodes(["c1"])
        assert (seen["c1"].registered, seen["c1"].owner) == (True, "alice")
