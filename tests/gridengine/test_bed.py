"""The Grid Engine that other tests use: nodes join, run jobs of ordinary users, and leave."""

import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest

from springtide.ports import Instance, Launch
from springtide.providers.containers import Containers, Mount
from tests.e2e.real import until
from tests.gridengine import conf
from tests.gridengine.bed import GridEngine, gridengine
from tests.leftovers import remove_leftovers
from tests.providers.world import instances
from tests.spaces import unused

pytestmark = [pytest.mark.real, pytest.mark.timeout(400)]

CLUSTER = f"sge-bed-{os.getpid()}"


@pytest.fixture
def bed() -> Iterator[GridEngine]:
    before = Path("/etc/hosts").read_text()
    with gridengine() as bed:
        yield bed
    assert not bed.root.exists()
    assert Path("/etc/hosts").read_text() == before


@pytest.fixture
async def containers(bed: GridEngine) -> AsyncIterator[Containers]:
    seen = [
        Mount(bed.root, bed.root, read_only=True),
        Mount(bed.shared, bed.shared, read_only=False),
    ]
    with tempfile.TemporaryDirectory(prefix="tide-", dir="/var/tmp") as state:
        containers = Containers(Path(state), {}, seen, [], unused())
        await containers.prepare(CLUSTER)
        try:
            yield containers
        finally:
            await containers.remove(CLUSTER)
            await containers.close()


async def machine(containers: Containers, bed: GridEngine, name: str) -> Instance:
    launch = Launch(CLUSTER, name, 1, "general", "host", "default", user_data=bed.boot())
    (instance,) = instances(await containers.create([launch]))
    return instance


def shown(bed: GridEngine, name: str) -> list[str]:
    """The words of qhost about a host."""
    lines = [line.split() for line in bed.run("qhost").splitlines()]
    return next((words for words in lines if words and words[0] == name), [])


def is_up(bed: GridEngine, name: str) -> bool:
    words = shown(bed, name)
    return len(words) > 6 and words[6] != "-"


async def test_a_job_waits_for_a_node_runs_on_it_and_the_node_goes(
    bed: GridEngine, containers: Containers
) -> None:
    job = bed.submit("hostname", "-q", conf.QUEUE, "-N", "first")
    began = time.monotonic()
    instance = await machine(containers, bed, "node-1")
    bed.add("node-1", str(instance.address))
    until(lambda: is_up(bed, "node-1"))
    until(lambda: bed.is_over(job))
    print(f"the job was over {time.monotonic() - began:.1f} s after its node was asked for")
    assert (bed.shared / f"first.o{job}").read_text() == "node-1\n"
    bed.remove("node-1")
    assert shown(bed, "node-1") == []


async def test_an_address_that_another_node_had_is_believed(
    bed: GridEngine, containers: Containers
) -> None:
    old = await machine(containers, bed, "node-1")
    bed.add("node-1", str(old.address))
    until(lambda: is_up(bed, "node-1"))
    bed.remove("node-1")
    await containers.delete([old])
    new = await machine(containers, bed, "node-2")
    assert new.address == old.address
    bed.add("node-2", str(new.address))
    until(lambda: is_up(bed, "node-2"))


async def test_a_node_that_is_cut_off_is_noticed(bed: GridEngine, containers: Containers) -> None:
    instance = await machine(containers, bed, "node-1")
    bed.add("node-1", str(instance.address))
    until(lambda: is_up(bed, "node-1"))
    await containers.delete([instance])
    until(lambda: not is_up(bed, "node-1"))


def test_qmaster_knows_its_jobs_after_it_was_killed(bed: GridEngine) -> None:
    job = bed.submit("hostname", "-q", conf.QUEUE)
    bed.kill()
    assert bed.attempt("qstat", "-j", job).returncode != 0
    bed.start()
    assert not bed.is_over(job)


def test_commands_work_for_who_knows_only_their_directory(bed: GridEngine) -> None:
    done = subprocess.run([bed.bin / "qconf", "-sql"], capture_output=True, text=True, check=True)
    assert done.stdout.split() == [conf.ON_PREMISES, conf.QUEUE]


KILLED = """import sys
from tests.gridengine.bed import gridengine
with gridengine() as bed:
    print(bed.root, bed.init.pid, flush=True)
    sys.stdin.read()
"""


def test_nothing_is_left_of_a_run_that_was_killed() -> None:
    run = subprocess.Popen(
        [sys.executable, "-c", KILLED], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    with run:
        assert run.stdout is not None
        root, init = run.stdout.readline().split()
        (qmaster,) = Path("/proc", init, "task", init, "children").read_text().split()
        run.send_signal(signal.SIGKILL)
    until(lambda: not Path("/proc", qmaster).exists())
    remove_leftovers()
    assert not Path(root).exists()
