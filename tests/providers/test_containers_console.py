"""What a container said while it booted can be read as long as it is there, alive or dead."""

from dataclasses import replace

import pytest

from springtide.ports import InstanceState
from springtide.providers.containers.console import LONGEST
from tests.providers.machine import FOREVER, Machine, eventually, launch, rebooted
from tests.providers.world import BLUE, running, until

pytestmark = pytest.mark.real


async def test_the_console_of_a_dead_node_has_its_last_words(machine: Machine) -> None:
    containers = await machine.prepared()
    await containers.create([launch("n0", "echo no munge key here; exit 3\n")])
    (dead,) = await until(containers, BLUE, lambda all: all[0].state is InstanceState.BROKEN)
    said = await containers.console([dead])
    assert said == {dead.id: "no munge key here\nthe boot script ended with status 3\n"}


async def test_the_end_of_a_long_log_is_shown_from_the_beginning_of_a_line(
    machine: Machine,
) -> None:
    containers = await machine.prepared()
    talk = f"i=0; while [ $i -lt 3000 ]; do i=$((i + 1)); echo line $i; done\n{FOREVER}"
    await containers.create([launch("n0", talk)])
    (found,) = await running(containers, BLUE, 1)
    log = machine.directory(BLUE) / "instances/n0/boot.log"
    await eventually(lambda: log.read_text().endswith("line 3000\n"))
    text = (await containers.console([found]))[found.id]
    assert text.endswith("line 3000\n")
    assert text.startswith("line ")
    assert LONGEST - 20 < len(text) <= LONGEST


async def test_the_console_is_that_of_the_last_boot_and_of_this_generation(
    machine: Machine,
) -> None:
    containers = await machine.prepared()
    await containers.create([launch("n0", f"echo first\n{FOREVER}")])
    await rebooted(containers, launch("n0", f"printf 'second \\377\\n'\n{FOREVER}"))
    (found,) = await running(containers, BLUE, 1)
    log = machine.directory(BLUE) / "instances/n0/boot.log"
    await eventually(lambda: log.read_bytes() == b"second \xff\n")
    assert await containers.console([found]) == {found.id: "second \ufffd\n"}
    former = replace(found, id=f"{BLUE}.n0.7", generation=7)
    strange = replace(found, id="x", node="../../etc")
    assert await containers.console([former, strange]) == {}
