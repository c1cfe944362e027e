"""`tide status` shows what is not mended by itself, and `tide why` says the same of each node."""

import json
from datetime import datetime, timedelta
from math import inf

import pytest

from springtide.ports import InstanceState
from tests.unit.cli_world import SPEC, World, served, wait_until

OFTEN = SPEC.replace("timing: {", "timing: {reconcile: 50ms, grace: 200ms, ")


def line(world: World, what: str) -> str:
    """What status says of something; nothing if it does not."""
    lines = world.run("status").out.splitlines()
    return next((one[len(what) :].strip() for one in lines if one.startswith(f"{what} ")), "")


def why(world: World, what: str) -> dict[str, str]:
    story: dict[str, str] = json.loads(world.run("why", what, "--json").out)
    return story


def die(world: World, name: str) -> None:
    async def die() -> None:
        (instance,) = [one for one in world.cloud.alive() if one.node == name]
        world.cloud.die(instance.id, InstanceState.BROKEN)

    world.call(die)


@pytest.mark.accepts("X5")
def test_a_node_whose_slurmd_hangs_needs_a_person() -> None:
    with served(OFTEN) as world:
        assert world.run("resume", "c1").code == 0

        async def hang() -> None:
            world.batch.node("c1").registered = False

        world.call(hang)
        hung = "Slurm does not hear from it, though its instance runs"
        wait_until(lambda: hung in why(world, "c1")["now"])
        told = why(world, "c1")["next"]
        assert told.startswith("nothing by itself until Slurm gives it up, when SlurmdTimeout")
        world.file.write_text(world.file.read_text().replace("start: 10m", "start: 1s"))
        assert world.run("apply", "--yes").code == 0
        wait_until(lambda: line(world, "needs a person") != "")
        assert line(world, "needs a person") == (
            "c1: its instance runs, but the batch system does not hear from it; see `tide why`"
        )
        assert why(world, "c1")["next"].endswith("; it needs a person.")


def test_in_maintenance_it_shows_what_would_be_repaired() -> None:
    with served(OFTEN) as world:
        assert world.run("resume", "c1").code == 0
        assert line(world, "not repaired") == ""
        assert world.run("maintenance", "on", "--reason", "new switch").code == 0
        die(world, "c1")
        wait_until(lambda: line(world, "not repaired") == "c1: its instance died")


def test_an_account_of_jobs_that_does_not_run_is_shown_though_the_batch_system_answers() -> None:
    with served() as world:
        assert line(world, "batch") == "fake fake"
        assert world.run("maintenance", "on", "--reason", "new disks").code == 0
        world.batch.lacks = "slurmdbd does not run"
        head, _, told = line(world, "batch").partition("; ")
        assert head == "fake fake, but slurmdbd does not run"
        assert told.startswith("nothing by itself: maintenance since ")
        assert told.endswith(
            "jobs start and run all the same, and what has to be accounted for is kept; "
            "`tide deploy` starts it; or `tide maintenance off`"
        )
        answer = json.loads(world.run("status", "--json").out)["batch"]
        assert (answer["version"], answer["problem"]) == ("fake", None)
        assert answer["lacks"].startswith("slurmdbd does not run; ")
        assert world.run("maintenance", "off").code == 0
        told = line(world, "batch").partition("; ")[2]
        assert told.startswith("Springtide starts it again by itself, within ")
        assert told.endswith("; if it does not come back, `tide deploy` tells why")


def test_a_list_that_is_not_believed_is_shown_and_what_to_look_at() -> None:
    with served(OFTEN) as world:
        assert world.run("resume", "c[1-4]").code == 0
        world.faults.stale_s = inf
        wait_until(lambda: line(world, "brake") != "")
        told = "their provider lists no instance of c[1-4] that runs, but Slurm hears from them; "
        assert line(world, "brake").startswith(f"c[1-4]: {told}so many at once are not believed")
        wait_until(lambda: why(world, "c2")["next"].startswith(f"nothing for now: {told}"))
        assert why(world, "c2")["do"].startswith("look whether the provider is well; ")
        assert world.states("c1", "c2", "c3", "c4") == ["ready"] * 4
        world.faults.stale_s = 0.0
        wait_until(lambda: line(world, "brake") == "")


def test_nodes_that_wait_for_the_hours_of_their_replacement_are_shown() -> None:
    soon = datetime.now().astimezone() + timedelta(hours=6)
    hours = f"{soon:%H:%M}-{soon + timedelta(hours=1):%H:%M}"
    late = f'{OFTEN}drift: {{replace: true, hours: ["{hours}"]}}\n'
    with served(late) as world:
        assert world.run("resume", "c1").code == 0
        assert line(world, "drift") == ""
        world.file.write_text(late.replace('nodes: "c[1-4]"', 'nodes: "c[1-4]", image: new'))
        assert world.run("apply", "--yes", str(world.file)).code == 0
        told = f"Springtide replaces it in the hours for that: {hours} (drift.hours"
        assert line(world, "drift").startswith("c1: image ")
        assert f" instead of new: {told}" in line(world, "drift")
        assert why(world, "c1")["next"].startswith(told)
