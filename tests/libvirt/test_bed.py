"""The libvirt that other tests use: machines boot, run their user data, and leave nothing."""

import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.leftovers import remove_leftovers
from tests.libvirt.daemon import NETWORK, Libvirt, connected, libvirt
from tests.libvirt.image import node_image
from tests.libvirt.machines import Machine, prepare

pytestmark = [pytest.mark.real, pytest.mark.timeout(600)]

LIMIT_S = 150.0
"""For a machine to boot while others use all processors."""
PORT = 7000
USER_DATA = f"""\
#!/bin/sh
echo "the word is $(hostname)" | tee /var/tmp/word
nc -ll -p {PORT} -e cat /var/tmp/word
"""
LINKS = Path("/sys/class/net")


def within(look: Callable[[], bool], limit_s: float = LIMIT_S) -> None:
    end = time.monotonic() + limit_s
    while not look():
        assert time.monotonic() < end, f"not within {limit_s} s"
        time.sleep(0.05)


@pytest.fixture(scope="module")
def running() -> Iterator[Libvirt]:
    with libvirt() as running:
        ours = index(running.link)
        yield running
    assert not running.root.exists()
    assert index(running.link) != ours


@pytest.fixture
def machine(running: Libvirt) -> Iterator[Machine]:
    machine = Machine("bed-1", running.root, node_image())
    yield machine
    machine.remove()


def index(link: str) -> str:
    """Another run takes the name as soon as it is free, but no other link gets the number."""
    try:
        return Path(LINKS, link, "ifindex").read_text()
    except OSError:
        return ""


def addresses(connection: Any) -> list[str]:
    """Those that were given, as soon as that is written down."""
    leases = connection.networkLookupByName(NETWORK).DHCPLeases()
    return [str(lease["ipaddr"]) for lease in leases]


def asked(address: str) -> str:
    """Nothing until somebody listens there."""
    try:
        with socket.create_connection((address, PORT), timeout=30.0) as peer:
            return peer.makefile().read()
    except OSError:
        return ""


def resident_mb(pid: int) -> int:
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    (line,) = (line for line in lines if line.startswith("VmRSS"))
    return int(line.split()[1]) // 1024


def test_a_machine_runs_its_user_data_answers_and_goes(running: Libvirt, machine: Machine) -> None:
    with connected(running) as connection:
        began_at = time.monotonic()
        domain = connection.defineXML(prepare(machine, USER_DATA))
        domain.create()
        try:
            within(lambda: "the word is bed-1" in machine.said())
            took_s = time.monotonic() - began_at
            within(lambda: [*map(asked, addresses(connection))] == ["the word is bed-1\n"])
            (pid,) = running.processes("qemu-system-x86")
            print(f"user data ran after {took_s:.1f} s, {resident_mb(pid)} MB resident")
        except BaseException:
            print(machine.said())
            raise
        finally:
            domain.destroy()
            domain.undefine()
        assert connection.listAllDomains() == []
    assert running.processes("qemu-system-x86") == []


def test_what_a_node_writes_is_on_its_own_disk(running: Libvirt, machine: Machine) -> None:
    """And is there after a reset, when user data does not run again: the id is the same."""
    told = "#!/bin/sh\necho first >/root/kept\nsync\necho written\n"
    every = "echo 'echo kept: $(cat /root/kept)'"
    place = "/var/lib/cloud/scripts/per-boot/tell"
    told += f"{{ echo '#!/bin/sh'; {every}; }} >{place}\nchmod 755 {place}\nsync\necho ready\n"
    with connected(running) as connection:
        domain = connection.defineXML(prepare(machine, told))
        domain.create()
        try:
            within(lambda: "user data ended with status 0" in machine.said())
            domain.reset()
            within(lambda: "kept: first" in machine.said())
            assert machine.said().count("written") == 1
        finally:
            domain.destroy()
            domain.undefine()


KILLED = """import sys
from tests.libvirt.daemon import libvirt
with libvirt() as running:
    print(running.link, running.root, *running.processes("libvirtd"), flush=True)
    sys.stdin.read()
"""


def test_nothing_is_left_of_a_run_that_was_killed() -> None:
    run = subprocess.Popen(
        [sys.executable, "-c", KILLED], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    with run:
        assert run.stdout is not None
        link, root, *pids = run.stdout.readline().split()
        ours = index(link)
        assert pids
        assert ours
        run.send_signal(signal.SIGKILL)
    within(lambda: not any(Path("/proc", pid).exists() for pid in pids))
    within(lambda: index(link) != ours)
    remove_leftovers()
    within(lambda: not Path(root).exists())  # another run may be removing it
