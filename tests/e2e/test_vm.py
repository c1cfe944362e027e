"""Level 3: a node is a virtual machine that really boots, joins a real Slurm and goes again."""

import asyncio
import socket
import subprocess
from collections.abc import Iterator
from dataclasses import replace
from mmap import ACCESS_READ, mmap
from pathlib import Path

import pytest

from springtide.configure.anonymise import DONE, anonymise
from springtide.configure.cloud_node import CloudNode
from springtide.layout import Layout
from springtide.ports import Instance, InstanceState, Launch, Provider, Site
from springtide.providers.cloud import Catalog
from springtide.providers.libvirt import provider as libvirt_provider
from springtide.spec import load
from springtide.spec.clouds import Libvirt as LibvirtSpec
from tests.e2e.real import until
from tests.e2e.vm import Machines, machines, plant, to_qcow2, to_raw, write_keyed
from tests.libvirt.daemon import NETWORK, Libvirt, connected, libvirt
from tests.libvirt.image import node_image
from tests.libvirt.machines import Machine, prepare

pytestmark = [pytest.mark.real, pytest.mark.timeout(400)]

IDLE_S = 5
BOOT_S = 150.0
SHUT_DOWN_BY_ITSELF = 1
"""libvirt's reason for a machine that is off, other than that somebody cut it off."""


@pytest.fixture(scope="module")
def running() -> Iterator[Libvirt]:
    with libvirt() as running:
        yield running


@pytest.fixture(scope="module")
def vms(running: Libvirt) -> Iterator[Machines]:
    with machines(running, node_image(), IDLE_S) as vms:
        yield vms


def entries(vms: Machines) -> str:
    with connected(vms.running) as connection:
        return str(connection.networkLookupByName(NETWORK).XMLDesc())


@pytest.mark.accepts("B4", "B21")
def test_a_machine_boots_joins_runs_a_job_and_is_destroyed_with_its_disks(vms: Machines) -> None:
    with connected(vms.running) as connection:
        job = vms.real.sbatch("echo the job ran on $(hostname)", "-D", "/", "-o", "/dev/console")
        (domain,) = until(lambda: connection.listAllDomains(), 30)
        assert domain.name() == "vm.vm-1.1"
        try:
            vms.real.finished(job, BOOT_S)
        finally:
            print(vms.console("vm.vm-1.1"))
        until(lambda: "the job ran on vm-1" in vms.console("vm.vm-1.1"))
        address = vms.real.record("vm-1")["vm-1"]["address"]
        assert f"ip='{address}'" in entries(vms)
        vms.real.all_off("vm-1")
        assert connection.listAllDomains() == []
    assert list(vms.disks.iterdir()) == []
    assert "<host" not in entries(vms)


@pytest.fixture
def rack(vms: Machines) -> Iterator[Machine]:
    """A machine of the site's own: it has a disk, and starts slurmd at every boot by itself."""
    machine = Machine("rack-1", vms.running.root, node_image())
    with connected(vms.running) as connection:
        domain = connection.defineXML(prepare(machine, "#!/bin/sh\n"))
        machine.disk.unlink()
        write_keyed(machine.image.disk, raw := vms.running.root / "rack.raw", vms.key)
        plant(raw, written(vms), "/var/lib/cloud/scripts/per-boot/join", 0o755)
        to_qcow2(raw, machine.disk)
        yield machine
        if domain.isActive():
            domain.destroy()
        domain.undefine()
    machine.remove()
    raw.unlink()


def written(vms: Machines) -> Path:
    """What makes a node of Slurm of it, as its admin has put it there."""
    state = Layout(vms.real.state)
    node = CloudNode(socket.gethostname(), vms.port, state.munge_socket)
    script = vms.running.root / "join"
    head = "#!/bin/sh\nTIDE_NODE=rack-1\n"
    script.write_text(head + node.user_data(Site(str(vms.running.control))))
    return script


@pytest.mark.accepts("B3", "B21")
def test_a_machine_that_exists_is_switched_on_for_a_job_and_shut_down_after_it(
    vms: Machines, rack: Machine
) -> None:
    """In order: it is asked to shut down, and does."""
    with connected(vms.running) as connection:
        domain = connection.lookupByName("rack-1")
        assert not domain.isActive()
        job = vms.real.sbatch("hostname", "-p", "racks", "-D", "/", "-o", "/dev/console")
        try:
            vms.real.finished(job, BOOT_S)
            until(lambda: "\nrack-1\r" in rack.said() or "\nrack-1\n" in rack.said())
            assert "springtide:instance" in domain.XMLDesc()
            vms.real.all_off("rack-1", BOOT_S)
        finally:
            print(rack.said())
        until(lambda: not domain.isActive())
        assert domain.state()[1] == SHUT_DOWN_BY_ITSELF


async def anonymous(instance: Instance, provider: Provider) -> Instance:
    """Started again, the node forgets who it was and switches itself off."""
    launch = Launch("vm", "vm-2", instance.generation, "vms", "node", "small")
    told = await provider.reboot([replace(launch, user_data=anonymise())])
    assert isinstance(told["vm-2"], Instance), told
    return await listed(provider, "vm", InstanceState.STOPPED)


async def listed(provider: Provider, cluster: str, state: InstanceState) -> Instance:
    async with asyncio.timeout(BOOT_S):
        while [one.state for one in await provider.list(cluster)] != [state]:
            await asyncio.sleep(0.1)
    (one,) = await provider.list(cluster)
    return one


def names(disk: Path, directory: str) -> set[str]:
    """What is in a directory of an image."""
    command = ["/usr/sbin/debugfs", "-R", f"ls -p {directory}", str(disk)]
    shown = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    found = {line.split("/")[5] for line in shown.splitlines() if line.count("/") > 5}
    return found - {".", ".."}


def text(disk: Path, path: str) -> str:
    command = ["/usr/sbin/debugfs", "-R", f"cat {path}", str(disk)]
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout


SELF = """\
echo "host $(hostname), instance $(cat /run/instance-id), key $(ls /etc/munge | wc -l)"
echo "$(grep -c vm-2 /etc/hosts) traces of another"
"""


@pytest.mark.accepts("E22")
async def test_an_image_of_a_node_is_anonymous_and_makes_nodes_of_their_own(vms: Machines) -> None:
    job = vms.real.sbatch("true", "-w", "vm-2", "-D", "/", "-o", "/dev/null")
    await asyncio.to_thread(vms.real.finished, job, BOOT_S)
    vms.real.kill_daemon()  # it would find the node dead, and delete it
    spec = load(vms.real.file)
    wanted = spec.provider_of("vms")
    assert isinstance(wanted, LibvirtSpec)
    provider = libvirt_provider(wanted, Catalog(spec.images, spec.flavors), spec.state)
    try:
        instance = await listed(provider, "vm", InstanceState.RUNNING)
        off = await anonymous(instance, provider)
        assert DONE in (await provider.console([off]))[off.id]
        image = await provider.snapshot(off, "golden-1")
        examine(vms, Path(image.id))
        launch = Launch("other", "new-7", 1, "vms", "golden", "small", user_data=SELF)
        made = (await provider.create([launch]))["new-7"]
        assert isinstance(made, Instance), made
        async with asyncio.timeout(BOOT_S):
            while "traces" not in (said := (await provider.console([made]))[made.id]):
                await asyncio.sleep(0.1)
        assert "host new-7, instance other.new-7.1.1, key 0" in said
        assert "0 traces of another" in said
        await provider.remove("other")
        await provider.forget(image)
    finally:
        await provider.close()
        vms.real.start_daemon()
    vms.real.all_off("vm-2")
    assert list(vms.disks.iterdir()) == []


def examine(vms: Machines, image: Path) -> None:
    disk = vms.running.root / "examined.raw"
    to_raw(image, disk)
    key = vms.key.read_bytes()
    assert names(disk, "/etc/munge") == set()
    assert names(disk, "/etc/slurm") == set()
    assert names(disk, "/var/spool/slurmd") == set()
    assert names(disk, "/var/log/munge") == set()
    assert names(disk, "/var/lib/cloud/scripts/per-boot") == set()
    assert "vm-2" not in text(disk, "/etc/hosts")
    assert holds(vms.running.root / "keyed.raw", key[:64])
    assert not holds(disk, key[:64]), "the munge key is in a free block of the image"
    disk.unlink()


def holds(disk: Path, content: bytes) -> bool:
    """Anywhere, in files or not."""
    with disk.open("rb") as file, mmap(file.fileno(), 0, access=ACCESS_READ) as all_of_it:
        return all_of_it.find(content) >= 0
