"""How nodes in containers live and die, and what a crash of the daemon leaves of them."""

import asyncio
import os
import shutil
import signal
import time
from contextlib import suppress
from pathlib import Path

import pytest

from springtide.ports import Instance, InstanceState
from springtide.providers.containers import forgotten, links
from springtide.providers.containers.instances import intend, write_intent
from springtide.providers.containers.site import read_ground
from tests.providers.machine import (
    Machine,
    cut_off,
    error_of,
    eventually,
    launch,
    nodes,
    process_of,
    processes,
)
from tests.providers.world import BLUE, delete_until_gone, instances, running, until

pytestmark = pytest.mark.real


async def test_a_node_goes_on_after_its_boot_script(machine: Machine) -> None:
    """It reaps what the script left behind, and runs until it is deleted."""
    containers = await machine.prepared()
    flag = machine.shared / "flag"
    script = f"for i in 1 2 3; do (sleep 0.0$i; : >{flag}$i) & done\n"
    await containers.create([launch("n0", script)])
    await eventually(lambda: all(Path(f"{flag}{i}").exists() for i in (1, 2, 3)))
    pid = process_of(machine)
    await eventually(lambda: "sleep" in children_of(pid) and "Z" not in children_of(pid))
    assert len(await running(containers, BLUE, 1)) == 1


def children_of(pid: int) -> list[str]:
    """The names of its children, and their states; none if one ended while they were read."""
    children = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    try:
        stats = [Path(f"/proc/{child}/stat").read_text() for child in children]
    except (FileNotFoundError, ProcessLookupError):
        return []
    return [word for stat in stats for word in (stat.split()[1].strip("()"), stat.split()[2])]


async def test_a_node_whose_boot_script_fails_is_broken(machine: Machine) -> None:
    containers = await machine.prepared()
    await containers.create([launch("n0", "echo no munge key here; exit 3\n")])
    (found,) = await until(containers, BLUE, lambda all: all[0].state is InstanceState.BROKEN)
    log = (machine.directory(BLUE) / "instances/n0/boot.log").read_text()
    assert log == "no munge key here\nthe boot script ended with status 3\n"
    assert (await containers.create([launch("n0")]))["n0"] == found
    assert await containers.delete([found]) == {}
    assert await containers.list(BLUE) == []


async def test_a_node_that_is_killed_is_broken_and_loses_all_its_processes(
    machine: Machine,
) -> None:
    containers = await machine.prepared()
    await containers.create([launch("n0", "sleep 1000 & sleep 1000")])
    os.kill(process_of(machine), signal.SIGKILL)
    await until(containers, BLUE, lambda all: all[0].state is InstanceState.BROKEN)
    await eventually(lambda: processes(BLUE) == [])


async def test_delete_returns_when_all_is_gone(machine: Machine) -> None:
    containers = await machine.prepared()
    made = instances(await containers.create([launch(node) for node in nodes(8)]))
    pids = [process_of(machine, node) for node in nodes(8)]
    assert await containers.delete(made) == {}
    assert await containers.list(BLUE) == []
    assert links.ports(links.bridge_name(BLUE)) == []
    assert list((machine.directory(BLUE) / "instances").iterdir()) == []
    assert list((machine.directory(BLUE) / "addresses").iterdir()) == []
    await eventually(lambda: not any(Path(f"/proc/{pid}").exists() for pid in pids))


async def test_a_freed_address_is_given_again(machine: Machine) -> None:
    containers = await machine.prepared()
    made = instances(await containers.create([launch(node) for node in nodes(3)]))
    assert await containers.delete(made[1:2]) == {}
    (new,) = instances(await containers.create([launch("n7")]))
    assert new.address == made[1].address


async def test_the_file_that_tells_a_process_means_no_other_to_kill(machine: Machine) -> None:
    containers = await machine.prepared()
    await containers.create([launch()])
    words = (machine.directory(BLUE) / "instances/n0/process").read_text().split()
    assert [word for word in words if word.lstrip("-").isdigit()] == [str(process_of(machine))]


async def test_a_pid_that_went_to_another_process_is_not_killed(machine: Machine) -> None:
    containers = await machine.prepared()
    await containers.create([launch()])
    home = machine.directory(BLUE) / "instances/n0"
    old = process_of(machine)
    born = (home / "process").stat().st_mtime
    await eventually(lambda: time.time() > born + 0.05)  # starts are told apart by 0.01 s
    stranger = await asyncio.create_subprocess_exec("sleep", "1000")
    try:
        text = (home / "process").read_text()
        (home / "process").write_text(text.replace(f" {old} ", f" {stranger.pid} ", 1))
        (found,) = await containers.list(BLUE)
        assert found.state is InstanceState.BROKEN
        assert await containers.delete([found]) == {}
        assert stranger.returncode is None
    finally:
        os.kill(old, signal.SIGKILL)
        stranger.kill()
        await stranger.wait()


# Crashes


async def test_a_container_whose_directory_was_removed_makes_way(machine: Machine) -> None:
    containers = await machine.prepared()
    await containers.create([launch()])
    lost = process_of(machine)
    shutil.rmtree(machine.directory(BLUE) / "instances/n0")
    assert await containers.list(BLUE) == []
    (second,) = instances(await containers.create([launch(generation=2)]))
    assert (await running(containers, BLUE, 1))[0].id == second.id
    await eventually(lambda: not Path(f"/proc/{lost}").exists())
    shutil.rmtree(machine.directory(BLUE) / "instances/n0")
    await containers.remove(BLUE)
    await eventually(lambda: processes(BLUE) == [])


async def test_a_container_of_a_cluster_in_a_container_is_not_taken_for_a_forgotten_one(
    tmp_path: Path,
) -> None:
    """It may have our name, and `/proc` shows what runs in containers too."""
    program = tmp_path / "providers" / "containers" / "init.sh"
    program.parent.mkdir(parents=True)
    program.write_text("sleep 1000\n:\n")
    space = ("unshare", "--pid", "--fork", "--kill-child")
    environment = {**os.environ, "TIDE_CLUSTER": "nested", "TIDE_NODE": "n0"}

    async def started(*spaces: str) -> asyncio.subprocess.Process:
        return await asyncio.create_subprocess_exec(*spaces, "sh", program, env=environment)

    ours, theirs = await started(*space), await started(*space, *space)
    try:
        await eventually(lambda: len(running_in(program)) == 2)
        forgotten.end("nested")
        await asyncio.wait_for(ours.wait(), 20)
        assert theirs.returncode is None
        assert len(running_in(program)) == 1
    finally:
        for process in (ours, theirs):
            if process.returncode is None:
                process.kill()
            await process.wait()


def running_in(program: Path) -> list[Path]:
    """The processes that run it, but for those that have it started."""
    wanted = f"sh\0{program}\0".encode()
    found = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        with suppress(OSError):
            found += [path] if path.read_bytes() == wanted else []
    return found


async def test_an_intent_without_a_process_is_launched_by_the_next_create(
    machine: Machine,
) -> None:
    containers = await machine.prepared()
    intent = plant_intent(machine, created_at=0.0)
    (found,) = await containers.list(BLUE)
    assert found.state is InstanceState.BROKEN
    (made,) = instances(await containers.create([launch(flavor="large")]))
    assert (made.id, made.address) == (intent.id, intent.address)
    assert (made.state, made.flavor) == (InstanceState.RUNNING, "large")
    assert made.created_at > intent.created_at


async def test_an_intent_without_a_process_can_be_deleted(machine: Machine) -> None:
    containers = await machine.prepared()
    plant_intent(machine, created_at=2e9)
    (found,) = await containers.list(BLUE)
    assert found.state is InstanceState.PENDING
    assert await containers.delete([found]) == {}
    assert await containers.list(BLUE) == []


def plant_intent(machine: Machine, created_at: float) -> Instance:
    """What a daemon leaves that is killed before it starts the node."""
    home = machine.directory(BLUE) / "instances/n0"
    home.mkdir()
    ground = read_ground(machine.directory(BLUE))
    assert ground
    intent = intend(launch(), str(ground.subnet[-2]), created_at)
    write_intent(home, intent)
    return intent


async def test_a_start_that_was_killed_in_the_middle_is_made_again(machine: Machine) -> None:
    containers = await machine.prepared()
    (first,) = instances(await containers.create([launch()]))
    home = machine.directory(BLUE) / "instances/n0"
    os.kill(process_of(machine), signal.SIGKILL)
    await until(containers, BLUE, lambda all: all[0].state is InstanceState.BROKEN)
    text = (home / "process").read_text()
    (home / "process").write_text(text.removesuffix("ready\n"))
    (again,) = instances(await containers.create([launch()]))
    assert (again.state, again.address) == (InstanceState.RUNNING, first.address)


async def test_an_interrupted_delete_is_shown_and_completed(machine: Machine) -> None:
    containers = await machine.prepared()
    (made,) = instances(await containers.create([launch()]))
    (machine.directory(BLUE) / "instances/n0/deleting").touch()
    (found,) = await containers.list(BLUE)
    assert found.state is InstanceState.DELETING
    assert "still terminating" in str(await error_of(containers, launch()))
    assert await containers.delete([made]) == {}
    assert await containers.list(BLUE) == []


async def test_a_node_starts_anew_though_its_former_end_was_cut_short(machine: Machine) -> None:
    """As a kill could leave it that came between the intent's removal and the rest's."""
    containers = await machine.prepared()
    (made,) = instances(await containers.create([launch()]))
    home = machine.directory(BLUE) / "instances/n0"
    (home / "deleting").touch()
    (home / "instance.json").unlink()
    assert await containers.list(BLUE) == []
    former = process_of(machine)
    (again,) = instances(await containers.create([launch(generation=2)]))
    assert again.state is InstanceState.RUNNING
    assert again.address == made.address, "it was given up and is the lowest"
    assert process_of(machine) != former
    await eventually(lambda: len(processes(BLUE)) == 3)


async def test_what_is_left_of_a_removal_is_not_listed_and_swept(machine: Machine) -> None:
    containers = await machine.prepared()
    (made,) = instances(await containers.create([launch()]))
    homes = machine.directory(BLUE) / "instances"
    shutil.copytree(homes / "n0", homes / ".gone-n1.1", symlinks=True)
    assert [one.node for one in await containers.list(BLUE)] == ["n0"]
    assert await containers.delete([made]) == {}
    assert list(homes.iterdir()) == []


@pytest.mark.parametrize(
    "text",
    ["", "{", "[]", "{}", "[" * 200_000, '{"state": "pending"}', "other node", "\x00" * 64],
    ids=["empty", "half", "list", "bare", "nested", "fields", "other", "zeros"],
)
async def test_a_damaged_intent_is_listed_as_broken_and_can_be_deleted(
    machine: Machine, text: str
) -> None:
    containers = await machine.prepared()
    healthy, _ = instances(await containers.create([launch("n0"), launch("n1")]))
    path = machine.directory(BLUE) / "instances/n1/instance.json"
    path.write_text(path.read_text().replace("n1", "n2") if text == "other node" else text)
    first, second = await containers.list(BLUE)
    assert first == healthy
    assert (second.node, second.generation, second.state) == ("n1", 0, InstanceState.BROKEN)
    assert "damaged" in str(await error_of(containers, launch("n1")))
    assert await containers.delete([second]) == {}
    assert await containers.list(BLUE) == [healthy]
    assert len(list((machine.directory(BLUE) / "addresses").iterdir())) == 1
    assert len(instances(await containers.create([launch("n1")]))) == 1


@pytest.mark.parametrize("after_s", [0.0, 0.004, 0.012, 0.03, 0.06, 0.1])
async def test_a_daemon_killed_while_creating_loses_and_doubles_nothing(
    machine: Machine, after_s: float
) -> None:
    containers = await machine.prepared()
    await cut_off(machine, "create", "exec sleep 1000", after_s)
    answers = await containers.create([launch(node) for node in nodes(8)])
    assert len(instances(answers)) == 8, answers
    assert len({one.address for one in await running(containers, BLUE, 8)}) == 8
    await eventually(lambda: len(processes(BLUE)) == 3 * 8)
    await delete_until_gone(containers, BLUE)
