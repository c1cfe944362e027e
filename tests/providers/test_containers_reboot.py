"""Rebooted containers: nothing of before is left, and a crash at any point is made good."""

import asyncio
import json
import os
import signal
import subprocess
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path

import pytest

from springtide.ports import CloudError, Instance, InstanceState, Launch, Rejected, Transient
from springtide.providers.containers import Containers, Mount, links
from tests.providers.machine import (
    FOREVER,
    SUBNET,
    Machine,
    eventually,
    image_from_host,
    launch,
    nodes,
    process_of,
    processes,
    read,
    say,
)
from tests.providers.world import BLUE, GREEN, delete_until_gone, instances, running, until

pytestmark = pytest.mark.real

PER_NODE = 3
"""Processes of a node that only sleeps."""


async def rebooted(containers: Containers, *launches: Launch) -> list[Instance]:
    answers = await containers.reboot(launches or [launch()])
    made = instances(answers)
    assert len(made) == len(answers), answers
    return made


async def reboot_error(containers: Containers, one: Launch) -> CloudError:
    answer = (await containers.reboot([one]))[one.node]
    assert isinstance(answer, CloudError), answer
    return answer


# What a reboot is


async def test_nothing_of_before_is_left(machine: Machine) -> None:
    containers = await machine.prepared()
    written = "/etc/tide-old /tide-old /tmp/tide-old /run/tide-old /dev/shm/tide-old"
    script = f"touch {written}; rm /etc/passwd; sleep 1000 & " + say(machine.shared / "1", "true")
    await containers.create([launch("n0", script)])
    await read(machine.shared / "1")
    former = set(processes(BLUE))
    look = f"ls -d {written} /etc/passwd 2>/dev/null; grep -c . /proc/mounts"
    await rebooted(containers, launch("n0", say(machine.shared / "2", look)))
    assert (await read(machine.shared / "2")).splitlines()[:-1] == ["/etc/passwd"]
    assert former & set(processes(BLUE)) == set()
    await eventually(lambda: len(processes(BLUE)) == PER_NODE)
    assert len(links.ports(links.bridge_name(BLUE))) == 1


async def test_the_boot_time_advances_and_the_network_is_reached(machine: Machine) -> None:
    containers = await machine.prepared()
    starts = []
    for path in (machine.shared / "1", machine.shared / "2"):
        tell = "read -r stat </proc/1/stat; echo $stat; ip -o -4 address show eth0"
        await containers.create([launch()])
        (made,) = await rebooted(containers, launch("n0", say(path, tell)))
        first, address = (await read(path)).splitlines()
        starts.append(int(first.rpartition(")")[2].split()[19]))
        assert f"inet {made.address}/" in address
    assert starts[0] < starts[1]


async def test_the_log_is_of_the_last_boot(machine: Machine) -> None:
    containers = await machine.prepared()
    await containers.create([launch("n0", f"echo first\n{FOREVER}")])
    await rebooted(containers, launch("n0", "echo second; exit 3\n"))
    await until(containers, BLUE, lambda all: all[0].state is InstanceState.BROKEN)
    log = (machine.directory(BLUE) / "instances/n0/boot.log").read_text()
    assert log == "second\nthe boot script ended with status 3\n"


async def test_32_reboot_at_once_and_are_pending_until_they_run(machine: Machine) -> None:
    containers, other = await machine.prepared(), machine.open(BLUE)
    wanted = [launch(node) for node in nodes(32)]
    made = instances(await containers.create(wanted))
    rebooting = asyncio.create_task(containers.reboot(wanted))
    seen: set[InstanceState] = set()
    while not rebooting.done():
        found = await other.list(BLUE)
        assert [one.id for one in found] == sorted(one.id for one in made)
        seen |= {one.state for one in found}
    assert seen == {InstanceState.PENDING, InstanceState.RUNNING}
    assert {one.state for one in (await rebooting).values() if isinstance(one, Instance)} == {
        InstanceState.RUNNING
    }
    await eventually(lambda: len(processes(BLUE)) == PER_NODE * 32)


async def test_nodes_start_again_after_the_machine_was_rebooted(machine: Machine) -> None:
    containers = machine.open(BLUE, subnet=SUBNET)
    await containers.prepare(BLUE)
    (made,) = instances(await containers.create([launch()]))
    pid = process_of(machine)
    os.kill(pid, signal.SIGKILL)
    await eventually(lambda: processes(BLUE) == [])
    claim = machine.directory(BLUE) / "instances/n0/process"
    claim.write_text("another-boot " + claim.read_text().partition(" ")[2])
    links.remove(links.bridge_name(BLUE))
    (again,) = await rebooted(containers)
    assert (again.id, again.address) == (made.id, made.address)
    assert again.state is InstanceState.RUNNING


# Its image


async def test_a_node_is_rebooted_from_the_directory_it_was_made_from(machine: Machine) -> None:
    old, new = (host_with(machine, name) for name in ("old", "new"))
    machine.images["base"] = old
    containers = await machine.prepared()
    (made,) = instances(await containers.create([launch(image="base")]))
    assert made.image == "base"
    machine.images["base"] = new
    later = machine.open(BLUE)
    assert [one.image for one in await later.list(BLUE)] == [str(old)]
    assert [one.image for one in await containers.list(BLUE)] == ["base"]
    tell = say(machine.shared / "said", "cat /marker/name")
    (again,) = await rebooted(later, launch("n0", tell, image="base"))
    assert again.image == str(old)
    assert await read(machine.shared / "said") == "old"


async def test_an_image_that_was_linked_elsewhere_is_another(machine: Machine) -> None:
    old, new = (host_with(machine, name) for name in ("old", "new"))
    link = machine.root / "current"
    link.symlink_to(old)
    machine.images["base"] = link
    containers = await machine.prepared()
    await containers.create([launch("n0", image="base")])
    link.unlink()
    link.symlink_to(new)
    await containers.create([launch("n1", image="base")])
    assert [one.image for one in await containers.list(BLUE)] == [str(old), "base"]


async def test_an_image_whose_name_is_gone_is_shown_by_its_directory(machine: Machine) -> None:
    machine.images["base"] = image = host_with(machine, "old")
    containers = await machine.prepared()
    await containers.create([launch(image="base")])
    del machine.images["base"]
    assert [one.image for one in await machine.open(BLUE).list(BLUE)] == [str(image)]


async def test_an_image_that_was_removed_is_told_and_the_node_runs_on(machine: Machine) -> None:
    machine.images["base"] = image = host_with(machine, "old")
    containers = await machine.prepared()
    await containers.create([launch(image="base")])
    before, pid = await containers.list(BLUE), process_of(machine)
    (image / "bin/sh").unlink()
    error = await reboot_error(containers, launch(image="base"))
    assert isinstance(error, Rejected)
    assert str(image) in str(error)
    assert (await containers.list(BLUE), process_of(machine)) == (before, pid)


async def test_an_instance_of_before_there_were_reboots_is_read(machine: Machine) -> None:
    containers = await machine.prepared()
    (made,) = instances(await containers.create([launch()]))
    path = machine.directory(BLUE) / "instances/n0/instance.json"
    data = {
        "id": made.id,
        "cluster": BLUE,
        "node": "n0",
        "generation": 1,
        "state": "pending",
        "address": made.address,
        "image": "host",
        "flavor": "default",
        "zone": None,
        "created_at": made.created_at,
    }
    path.write_text(json.dumps(data))
    assert await containers.list(BLUE) == [made]
    (again,) = await rebooted(containers)
    assert (again.id, again.created_at, again.image) == (made.id, made.created_at, "host")
    assert again.booted_at > made.booted_at


def host_with(machine: Machine, name: str) -> Path:
    """An image with a few of this machine's programs and a marker."""
    image = image_from_host(machine.root / f"image-{name}", PROGRAMS)
    (image / "marker").mkdir()
    (image / "marker/name").write_text(name)
    return image


PROGRAMS = ("sh", "umount", "sleep", "cat", "mv")


# What is refused


async def test_what_cannot_be_rebooted_is_told(machine: Machine) -> None:
    containers = await machine.prepared()
    await containers.create([launch()])
    home = machine.directory(BLUE) / "instances"
    for one, word in (
        (launch("n1"), f"{BLUE}.n1.1 does not exist"),
        (launch(generation=2), f"{BLUE}.n0.2 does not exist"),
        (launch("../n0"), "../n0"),
        (launch(""), "name"),
        (launch(cluster=GREEN), "holds the containers"),
    ):
        error = await reboot_error(containers, one)
        assert isinstance(error, Rejected)
        assert word in str(error)
    assert [path.name for path in home.iterdir()] == ["n0"]
    (home / "n0/deleting").touch()
    error = await reboot_error(containers, launch())
    assert isinstance(error, Transient)
    assert "being deleted" in str(error)
    (home / "n0/instance.json").write_text("{")
    assert "damaged" in str(await reboot_error(containers, launch()))


async def test_a_node_that_fails_to_start_is_rebooted_later(machine: Machine) -> None:
    containers = await machine.prepared()
    (made,) = instances(await containers.create([launch()]))
    below_a_file = Mount(machine.shared, Path("/etc/passwd/x"), read_only=False)
    error = await reboot_error(machine.open(BLUE, mounts=[below_a_file]), launch())
    assert isinstance(error, Transient)
    assert "/etc/passwd/x" in str(error)
    (found,) = await containers.list(BLUE)
    assert (found.id, found.address, found.state) == (made.id, made.address, InstanceState.BROKEN)
    await eventually(lambda: processes(BLUE) == [])
    (again,) = await rebooted(containers)
    assert (again.id, again.address, again.state) == (made.id, made.address, InstanceState.RUNNING)


async def test_an_intent_whose_address_went_to_another_is_not_rebooted(machine: Machine) -> None:
    """As a daemon leaves it that is killed before it takes the address."""
    containers = await machine.prepared()
    (first, _) = instances(await containers.create([launch("n0"), launch("n1")]))
    link = machine.directory(BLUE) / f"addresses/{first.address}"
    link.unlink()
    link.symlink_to("n1")
    error = await reboot_error(containers, launch())
    assert isinstance(error, Rejected)
    assert "delete it" in str(error)
    link.unlink()
    link.symlink_to("n0")


# Crashes

DAEMON = """
import asyncio, sys
from pathlib import Path
from springtide.ports import Launch
from springtide.providers.containers import Containers

async def main(directory, cluster):
    containers = Containers(Path(directory), {}, [], [], None)
    print("begun", flush=True)
    await containers.reboot([
        Launch(cluster, f"n{i}", 1, "general", "host", "default", user_data="exec sleep 999")
        for i in range(8)
    ])

asyncio.run(main(*sys.argv[1:]))
"""


@pytest.mark.parametrize("after_s", [0.0, 0.01, 0.03, 0.06, 0.1])
async def test_a_daemon_killed_while_rebooting_loses_and_doubles_nothing(
    machine: Machine, after_s: float
) -> None:
    containers = await machine.prepared()
    wanted = [launch(node) for node in nodes(8)]
    made = instances(await containers.create(wanted))
    arguments = [sys.executable, "-c", DAEMON, str(machine.directory(BLUE)), BLUE]
    daemon = await asyncio.create_subprocess_exec(*arguments, stdout=subprocess.PIPE)
    assert daemon.stdout
    await daemon.stdout.readline()
    await asyncio.sleep(after_s)
    with suppress(ProcessLookupError):  # it was done already
        daemon.kill()
    await daemon.wait()
    again = await rebooted(containers, *wanted)
    assert [(one.id, one.address) for one in again] == [(one.id, one.address) for one in made]
    await running(containers, BLUE, 8)
    await eventually(lambda: len(processes(BLUE)) == PER_NODE * 8)
    assert len(links.ports(links.bridge_name(BLUE))) == 8
    await delete_until_gone(containers, BLUE)


STUMBLER = """
import os, sys
from pathlib import Path
from springtide.ports import Instance, Launch
from springtide.providers import containers
from springtide.providers.containers import Containers

PARTS = {str(Path(containers.__file__).with_name(f"{part}.py"))
         for part in ("reboot", "halt", "start", "files", "instances", "links", "locks")}

def stumble(steps):
    left = steps
    def trace(frame, event, _):
        nonlocal left
        if frame.f_code.co_filename not in PARTS:
            return None
        left -= event == "line"
        if left < 0:
            os._exit(1)
        return trace
    sys.settrace(trace)

def reboot(directory, cluster, steps):
    launch = Launch(cluster, "n0", 1, "general", "host", "default", user_data="exec sleep 999")
    provider = Containers(Path(directory), {}, [], [], None)
    stumble(steps)
    made = provider._attempt(provider._reboot, launch)
    os._exit(0 if isinstance(made, Instance) else 2)

for line in sys.stdin:
    child = os.fork()
    if not child:
        reboot(*sys.argv[1:], int(line))
    print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), flush=True)
"""
"""Reboots n0 again and again, and each time dies after as many lines as it is told."""
STRIDE = 4


@asynccontextmanager
async def stumbler(machine: Machine) -> AsyncIterator[asyncio.subprocess.Process]:
    arguments = [sys.executable, "-c", STUMBLER, str(machine.directory(BLUE)), BLUE]
    process = await asyncio.create_subprocess_exec(
        *arguments, stdin=subprocess.PIPE, stdout=subprocess.PIPE
    )
    try:
        yield process
    finally:
        process.kill()
        await process.wait()


async def stumbled(process: asyncio.subprocess.Process, steps: int) -> bool:
    assert process.stdin
    assert process.stdout
    process.stdin.write(f"{steps}\n".encode())
    status = int(await process.stdout.readline())
    assert status in (0, 1), "the reboot failed"
    return status == 1


async def test_a_reboot_cut_anywhere_is_listed_and_done_by_the_next(machine: Machine) -> None:
    containers = await machine.prepared()
    (made,) = instances(await containers.create([launch()]))
    steps = 0
    async with stumbler(machine) as process:
        while await stumbled(process, steps):
            (found,) = await containers.list(BLUE)
            assert found.state in (InstanceState.PENDING, InstanceState.RUNNING), steps
            word = machine.shared / str(steps)
            (again,) = await rebooted(containers, launch("n0", say(word, "echo back")))
            assert (again.id, again.address) == (made.id, made.address)
            assert await read(word) == "back\n"
            await eventually(lambda: len(processes(BLUE)) == PER_NODE)
            assert len(links.ports(links.bridge_name(BLUE))) == 1
            steps += STRIDE
    assert steps > 20 * STRIDE


async def test_a_reboot_cut_anywhere_can_be_deleted(machine: Machine) -> None:
    containers = await machine.prepared()
    await containers.create([launch()])
    steps = STRIDE // 2
    async with stumbler(machine) as process:
        while await stumbled(process, steps):
            assert await containers.delete(await containers.list(BLUE)) == {}
            assert await containers.list(BLUE) == []
            assert links.ports(links.bridge_name(BLUE)) == []
            await eventually(lambda: processes(BLUE) == [])
            assert len(instances(await containers.create([launch()]))) == 1
            steps += STRIDE
    assert steps > 20 * STRIDE
