"""A crash of the daemon at any point of a reboot: the next reboot, or a delete, makes it good."""

import asyncio
import subprocess
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from springtide.ports import InstanceState
from springtide.providers.containers import links
from tests.providers.machine import (
    PER_NODE,
    Machine,
    cut_off,
    eventually,
    launch,
    nodes,
    processes,
    read,
    rebooted,
    say,
)
from tests.providers.world import BLUE, delete_until_gone, instances, running

pytestmark = pytest.mark.real


@pytest.mark.parametrize("after_s", [0.0, 0.01, 0.03, 0.06, 0.1])
async def test_a_daemon_killed_while_rebooting_loses_and_doubles_nothing(
    machine: Machine, after_s: float
) -> None:
    containers = await machine.prepared()
    wanted = [launch(node) for node in nodes(8)]
    made = instances(await containers.create(wanted))
    await cut_off(machine, "reboot", "exec sleep 999", after_s)
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
from springtide.providers.containers import Containers, links

links.PAUSE_S = 0.1  # else most lines are spent on waiting if the machine is busy

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
