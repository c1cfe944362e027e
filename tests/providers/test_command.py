"""Machines that programs of the site switch on and off, with real programs."""

import os
import stat
import time
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path

import pytest

from springtide.ports import (
    CloudError,
    Denied,
    InstanceState,
    NoCapacity,
    Provider,
    QuotaExceeded,
    Rejected,
    Transient,
)
from springtide.providers.cloud import Catalog
from springtide.providers.command import lines, provider
from springtide.providers.programs.run import run
from springtide.spec import Flavor
from springtide.spec.clouds import Command
from tests.providers import site_programs
from tests.providers.conformance import Conformance
from tests.providers.world import BLUE, World, instances, launch, prepared, running

WORDS: Mapping[type[CloudError], str] = {
    NoCapacity: "full",
    QuotaExceeded: "quota",
    Denied: "denied",
    Rejected: "wrong",
}


@dataclass
class Machines:
    """A rack, its programs, and what daemons noted of them."""

    root: Path
    events: list[tuple[str, Mapping[str, str] | None, str]] = field(default_factory=list)

    def rack(self, cluster: str) -> Path:
        (self.root / cluster).mkdir(exist_ok=True)
        return self.root / cluster

    def spec(self, cluster: str, **changes: object) -> Command:
        power, rack = str(self.root / "power"), str(self.rack(cluster))
        acts = {"create": "on", "delete": "off", "list": "list", "reboot": "reset"}
        words = {key: (power, act, rack) for key, act in acts.items()}
        return Command.model_validate({**words, "control_address": "127.0.0.1", **changes})

    def open(self, cluster: str, **changes: object) -> Provider:
        catalog = Catalog({}, {"default": Flavor(cpus=1, memory=512)})
        return provider(
            self.spec(cluster, **changes), catalog, self.root / "state" / cluster, self._note
        )

    async def _note(self, what: str, nodes: Mapping[str, str] | None, detail: str) -> None:
        self.events.append((what, nodes, detail))

    def calls(self) -> int:
        calls = list(self.root.glob("*/calls"))
        return sum(len(path.read_text().splitlines()) for path in calls)

    def said(self, node: str) -> str | None:
        path = self.rack(BLUE) / node / "said"
        return path.read_text().strip() if path.exists() else None


@pytest.fixture
def machines(tmp_path: Path) -> Machines:
    site_programs.write(tmp_path)
    return Machines(tmp_path)


@pytest.fixture
def world(machines: Machines) -> World:
    rack = machines.rack(BLUE)
    return World(
        open=machines.open,
        spoil=lambda one: replace(one, image="no-such-image"),
        says=lambda node, word: f"echo {word}\n",
        said=machines.said,
        kill=lambda one: (rack / one.node / "on").unlink(),
        refuse=lambda kind: (rack / "refuse").write_text(WORDS[kind]),
        refusals=tuple(WORDS),
        lose_reply=lambda: (rack / "lose").touch(),
        calls=machines.calls,
        many=200,
        batch=1000,
    )


@pytest.mark.accepts("C30", "N23", "B3")
class TestCommand(Conformance):
    """Level 2: machines that exist, switched by any command."""


@pytest.mark.accepts("B2")
async def test_a_command_runs_on_an_existing_node_and_leaves_no_zombie(
    machines: Machines, world: World
) -> None:
    before = _children()
    blue = await prepared(world, BLUE)
    await blue.create([replace(launch(world, BLUE, "n0"), user_data='echo "$TIDE_NODE is up"\n')])
    assert machines.said("n0") == "n0 is up"
    assert _children() <= before
    (began, _), (ended, nodes) = [(what, nodes) for what, nodes, _ in machines.events]
    assert (began, ended) == ("program started", "program ended")
    assert nodes is not None
    assert "power: exit code 0 after" in nodes["n0"]
    assert "n0 ok 127.65." in nodes["n0"]


async def test_what_a_program_leaves_running_does_not_hold_it_up(tmp_path: Path) -> None:
    program = _program(tmp_path, "sleep 600 & echo $!\n")
    done = run([str(program)], timeout_s=120)
    os.kill(int(done.output), 9)
    assert done.took_s < 60


def test_a_program_that_takes_too_long_is_killed_with_all_it_started(tmp_path: Path) -> None:
    before = _children()
    said = tmp_path / "child"
    program = _program(tmp_path, f"sleep 600 & echo $! >{said}.new; mv {said}.new {said}; wait\n")
    for limit_s in (0.5, 5.0, 50.0):  # until it had the time to start something
        with pytest.raises(Transient, match=rf"took longer than {limit_s:g} s and was killed"):
            run([str(program)], timeout_s=limit_s)
        if said.exists():
            break
    end = time.monotonic() + 60
    while _lives(int(said.read_text())):
        assert time.monotonic() < end
        time.sleep(0.01)
    assert _children() <= before


def test_a_program_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(Transient, match="cannot run /no/such: No such file or directory"):
        run(["/no/such"], timeout_s=1)


async def test_what_a_failing_program_said_is_the_reason(machines: Machines, world: World) -> None:
    await prepared(world, BLUE)
    failing = _program(machines.root, "echo no such rack >&2; exit 3\n")
    blue = machines.open(BLUE, create=(str(failing),))
    answer = (await blue.create([launch(world, BLUE, "n0")]))["n0"]
    assert isinstance(answer, Transient)
    assert str(answer) == "program failed with exit code 3: no such rack"
    assert await blue.list(BLUE) == []


async def test_a_machine_that_somebody_else_switched_on_is_left_alone(
    machines: Machines, world: World
) -> None:
    blue = await prepared(world, BLUE)
    (machines.rack(BLUE) / "n7").mkdir()
    (machines.rack(BLUE) / "n7" / "on").write_text("127.65.0.7\n")
    await blue.create([launch(world, BLUE, "n0")])
    assert [one.node for one in await blue.list(BLUE)] == ["n0"]
    await blue.remove(BLUE)
    assert (machines.rack(BLUE) / "n7" / "on").exists()


async def test_a_machine_that_a_person_switches_on_after_us_is_not_ours(
    machines: Machines, world: World
) -> None:
    blue = await prepared(world, BLUE)
    made = instances(await blue.create([launch(world, BLUE, "n0")]))
    assert await blue.delete(made) == {}
    assert await blue.list(BLUE) == []
    on = machines.rack(BLUE) / "n0" / "on"
    on.write_text("127.65.0.1\n")
    assert await blue.list(BLUE) == []
    await blue.remove(BLUE)
    assert on.exists()


async def test_what_many_nodes_have_in_common_is_said_once_and_no_argument_is(
    machines: Machines, world: World
) -> None:
    blue = await prepared(world, BLUE)
    await blue.create([launch(world, BLUE, f"n{i}") for i in range(20)])
    began, ended = machines.events
    assert began == ("program started", None, "n[0-19]: power")
    assert ended[1] is None
    assert ended[2].startswith("n[0-19]: power: exit code 0")


async def test_a_machine_that_went_off_is_listed_as_stopped(
    machines: Machines, world: World
) -> None:
    blue = await prepared(world, BLUE)
    await blue.create([launch(world, BLUE, "n0")])
    (machines.rack(BLUE) / "n0" / "on").unlink()
    (one,) = await blue.list(BLUE)
    assert one.state is InstanceState.STOPPED


async def test_without_a_program_for_it_a_reboot_stops_and_starts(
    machines: Machines, world: World
) -> None:
    blue = machines.open(BLUE, reboot=None)
    await blue.prepare(BLUE)
    (made,) = instances(await blue.create([launch(world, BLUE, "n0")]))
    (again,) = instances(await blue.reboot([launch(world, BLUE, "n0")]))
    assert (again.id, again.created_at) == (made.id, made.created_at)
    assert again.booted_at > made.booted_at
    acts = (machines.rack(BLUE) / "calls").read_text().split()
    assert [act for act in acts if act != "list"] == ["on", "off", "on"]
    await running(blue, BLUE, 1)


async def test_a_list_that_is_not_understood_is_an_error(machines: Machines, world: World) -> None:
    blue = await prepared(world, BLUE)
    await blue.create([launch(world, BLUE, "n0")])
    strange = _program(machines.root, "echo n0 maybe\n")
    with pytest.raises(Transient, match=r"n0 maybe.*must be NODE and one of on"):
        await machines.open(BLUE, list=(str(strange),)).list(BLUE)


async def test_check_names_programs_that_are_missing(machines: Machines) -> None:
    blue = machines.open(BLUE, delete=("/no/such", "off"))
    (finding,) = await blue.check(BLUE, [])
    assert (finding.name, finding.ok) == ("program delete", False)
    assert "/no/such is not there" in finding.text
    (fine,) = await machines.open(BLUE).check(BLUE, [])
    assert fine.ok


def test_answers_are_read_and_talk_is_not() -> None:
    text = "starting\nn0 ok 10.0.0.1\nn1 full no power left\nn2 ok\nn3 hums\nn4 ok fd00::2\n"
    text += "Chassis ok now\n"
    answers = lines.parse_answers(text, ["n0", "n1", "n2", "n3", "n4"])
    assert answers["n0"] == "10.0.0.1"
    assert isinstance(answers["n1"], NoCapacity)
    assert str(answers["n1"]) == "n1: no power left"
    assert answers["n2"] is None
    assert answers["n4"] is None
    assert answers.keys() == {"n0", "n1", "n2", "n4"}


def _program(directory: Path, text: str) -> Path:
    path = directory / "program"
    path.write_text(f"#!/bin/sh\n{text}")
    path.chmod(stat.S_IRWXU)
    return path


def _children() -> set[str]:
    """Processes of ours that ended and were not waited for, or run still."""
    return set(Path(f"/proc/self/task/{os.getpid()}/children").read_text().split())


def _lives(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except (FileNotFoundError, ProcessLookupError):
        return False
