"""`tide maintenance`: people say that nothing is to be repaired, and everybody sees it."""

import json
import re

import pytest

from springtide.cli.endings import Exit
from tests.unit.cli_world import SPEC, World, served, wait_until


def happened(world: World, *what: str) -> list[tuple[str, str]]:
    found = [json.loads(line) for line in world.run("events", "--json").out.splitlines()]
    return [(one["what"], one["detail"]) for one in found if one["what"] in what]


def test_it_is_seen_by_everybody_until_somebody_ends_it() -> None:
    with served() as world:
        assert world.run("maintenance").out == "maintenance off: what looks wrong is repaired\n"
        assert "maintenance" not in world.run("status").out
        done = world.run("maintenance", "on", "--reason", "new switch")
        assert (done.code, done.out.startswith("maintenance on, by root ")) == (0, True)
        said = ": new switch; nothing is repaired or replaced; jobs start and stop nodes as ever; "
        for command in ("maintenance", "status"):
            assert f"{said}`tide maintenance off` ends it" in world.run(command).out
        assert world.run("maintenance", "off").code == 0
        assert "maintenance" not in world.run("status").out
        assert happened(world, "maintenance began", "maintenance ended") == [
            ("maintenance began", "by root: new switch"),
            ("maintenance ended", "by root"),
        ]


def test_another_reason_does_not_begin_it_anew() -> None:
    with served() as world:
        shown, said = [], []
        for reason in ("new switch", "new switch, second try"):
            done = world.run("maintenance", "on", "-r", reason, "--json")
            shown.append(json.loads(done.out)["maintenance"])
            said.append(done.err)
        assert [one["reason"] for one in shown] == ["new switch", "new switch, second try"]
        assert shown[0]["since_at"] == shown[1]["since_at"]
        assert said[0] == ""
        before = r"tide: it was on already, by root \d+s ago: new switch\n"
        assert re.fullmatch(before, said[1])


def test_to_end_what_has_not_begun_is_no_event() -> None:
    with served() as world:
        assert world.run("maintenance", "off").code == 0
        assert happened(world, "maintenance ended") == []


def test_nodes_start_and_stop_all_the_same() -> None:
    with served() as world:
        world.run("maintenance", "on", "--reason", "new switch")
        world.submit(1, seconds=0.1)
        assert world.run("resume", "c1").code == 0
        assert world.run("suspend", "c1").code == 0


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["on"], "say why: --reason TEXT"),
        (["on", "--reason", "  "], "say why: --reason TEXT"),
        (["off", "--reason", "x"], "a reason is for `tide maintenance on`"),
        (["--reason", "x"], "a reason is for `tide maintenance on`"),
        (["perhaps"], "maintenance is on or off, not 'perhaps'"),
    ],
)
def test_what_cannot_be_meant_is_refused(words: list[str], said: str) -> None:
    with served() as world:
        done = world.run("maintenance", *words)
        assert (done.code, said in done.err) == (Exit.WRONG, True)
        assert world.run("maintenance").out.startswith("maintenance off")


def test_a_dry_run_changes_nothing() -> None:
    with served() as world:
        done = world.run("maintenance", "on", "--reason", "new switch", "--dry-run")
        assert (done.code, done.err) == (0, "nothing was changed\n")
        assert world.run("maintenance").out.startswith("maintenance off")


def test_whoever_may_not_change_the_cluster_may_look() -> None:
    with served() as world:
        refused = world.as_user("nobody", "maintenance", "on", "--reason", "mine")
        assert (refused.returncode, "may not change this cluster" in refused.stderr) == (1, True)
        assert world.as_user("nobody", "maintenance").stdout.startswith("maintenance off")


def another_pass(world: World) -> None:
    """Wait for the end of a pass that begins after now."""
    for _ in range(2):
        known = world.daemon.reconciler.findings
        wait_until(lambda: world.daemon.reconciler.findings is not known)  # noqa: B023


def test_what_breaks_meanwhile_is_told_and_repaired_only_afterwards() -> None:
    often = SPEC.replace("timing: {", "timing: {reconcile: 50ms, grace: 0s, ")
    with served(often) as world:
        assert world.run("resume", "c1").code == 0
        world.run("maintenance", "on", "--reason", "new switch")

        async def die() -> None:
            [instance] = world.cloud.alive()
            world.cloud.die(instance.id)

        another_pass(world)  # one that was under way when it began may still have repaired
        before = world.operations()
        world.call(die)
        wait_until(lambda: "c1" in world.daemon.reconciler.findings)
        another_pass(world)
        assert world.operations() == before
        assert world.states("c1") == ["ready"]
        world.run("maintenance", "off")
        wait_until(lambda: world.states("c1") == ["off"])
