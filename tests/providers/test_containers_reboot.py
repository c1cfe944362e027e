"""Rebooted containers: nothing of before is left, and the image stays what it was."""

import asyncio
import json
import os
import signal
import sys
import time
from collections.abc import Sequence
from importlib import import_module
from pathlib import Path
from threading import Event
from types import FrameType

import pytest

from springtide.ports import CloudError, Instance, InstanceState, Launch, Rejected, Transient
from springtide.providers.containers import Containers, Mount, links
from springtide.providers.containers.halt import halt
from springtide.providers.containers.instances import Intent, Process, observe_all
from tests.providers.machine import (
    FOREVER,
    LIMIT_S,
    PER_NODE,
    SUBNET,
    Machine,
    eventually,
    image_from_host,
    launch,
    nodes,
    process_of,
    processes,
    read,
    rebooted,
    say,
)
from tests.providers.world import BLUE, GREEN, instances, until

pytestmark = pytest.mark.real


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
    await eventually(lambda: former & set(processes(BLUE)) == set())
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


async def test_32_reboot_at_once_and_are_pending_until_they_run(
    machine: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    containers, other = await machine.prepared(), machine.open(BLUE)
    wanted = [launch(node) for node in nodes(32)]
    made = instances(await containers.create(wanted))
    go = held_up(monkeypatch, "n0")
    rebooting = asyncio.create_task(containers.reboot(wanted))
    seen: set[InstanceState] = set()
    while not rebooting.done():
        found = await other.list(BLUE)
        assert [one.id for one in found] == sorted(one.id for one in made)
        seen |= {one.state for one in found}
        if found[0].state is InstanceState.PENDING:
            go.set()
    assert seen == {InstanceState.PENDING, InstanceState.RUNNING}
    assert {one.state for one in (await rebooting).values() if isinstance(one, Instance)} == {
        InstanceState.RUNNING
    }
    await eventually(lambda: len(processes(BLUE)) == PER_NODE * 32)


def held_up(monkeypatch: pytest.MonkeyPatch, node: str) -> Event:
    """A reboot of this node does not end what runs before it may go on."""
    go = Event()

    def late(instance: Instance, process: Process | None) -> None:
        if instance.node == node:
            go.wait(LIMIT_S)
        halt(instance, process)

    monkeypatch.setattr(import_module("springtide.providers.containers.reboot"), "halt", late)
    return go


@pytest.mark.parametrize("function", ["read_process", "is_alive", "is_deleting"])
async def test_a_node_that_reboots_while_it_is_listed_is_not_taken_for_broken(
    machine: Machine, function: str
) -> None:
    containers = await machine.prepared()
    await containers.create([launch()])
    reached, go = Event(), Event()
    listing = asyncio.create_task(
        asyncio.to_thread(slow_list, machine.directory(BLUE), function, reached, go)
    )
    try:
        await eventually(reached.is_set)
        (again,) = await rebooted(containers)
    finally:
        go.set()
    (found,) = await listing
    assert found.instance == again


def slow_list(directory: Path, function: str, reached: Event, go: Event) -> Sequence[Intent]:
    """A list that stops short when it comes to a function, until it may go on."""

    def trace(frame: FrameType, event: str, _: object) -> None:
        if frame.f_code.co_name == function:
            reached.set()
            go.wait(LIMIT_S)

    sys.settrace(trace)
    try:
        return observe_all(directory, BLUE, time.time() - 60.0)
    finally:
        sys.settrace(None)


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
    await containers.create([launch("n0", say(machine.shared / "up", "true"), image="base")])
    await read(machine.shared / "up")
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
