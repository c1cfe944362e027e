"""Level 3: a node is a virtual machine that really boots, joins a real Slurm and goes again."""

import asyncio
import socket
import subprocess
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import pytest

from springtide.configure.anonymise import anonymise, done
from springtide.configure.cloud_node import CloudNode
from springtide.layout import Layout
from springtide.ports import Instance, InstanceState, Launch, Provider, Site
from springtide.providers.cloud import Catalog
from springtide.providers.libvirt import provider as libvirt_provider
from springtide.spec import load
from springtide.spec.clouds import Libvirt as LibvirtSpec
from tests.e2e.disks import KEY, TOKEN, found, holds, secrets
from tests.e2e.real import until
from tests.e2e.vm import JOIN_PORT, Machines, machines, plant, to_qcow2, to_raw, write_keyed
from tests.libvirt.daemon import NETWORK, Libvirt, connected, libvirt
from tests.libvirt.image import node_image
from tests.libvirt.machines import Machine, prepare

pytestmark = [pytest.mark.real, pytest.mark.timeout(900)]

IDLE_S = 5
BOOT_S = 300.0
BUSY = "trap 'exit 0' USR1; sync; echo it is at work; while :; do sleep 1; done"
"""A job that ends well when it is told to: machines have no files in common."""
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
        script = f"echo the job ran on $(hostname); {BUSY}"
        job = vms.real.sbatch(script, "-D", "/", "-o", "/dev/console")
        (domain,) = until(lambda: connection.listAllDomains())
        assert domain.name() == "vm.vm-1.1"
        address = until(lambda: vms.real.record("vm-1")["vm-1"]["address"])
        assert f"ip='{address}'" in entries(vms)
        try:
            # The console goes with its machine, so it is read before the job ends.
            until(lambda: "it is at work" in vms.console("vm.vm-1.1"), BOOT_S)
            assert "the job ran on vm-1" in vms.console("vm.vm-1.1")
            end(vms, job)
        finally:
            print(vms.console("vm.vm-1.1"))
        vms.real.all_off("vm-1")
        assert connection.listAllDomains() == []
    assert list(vms.disks.iterdir()) == []
    assert "<host" not in entries(vms)


@pytest.mark.accepts("E22")
def test_an_image_is_built_on_a_machine_that_goes_and_holds_what_its_script_made(
    vms: Machines,
) -> None:
    made = '#!/bin/sh\necho "$TIDE_IMAGE" >/etc/soft\n'
    (vms.real.shared / "soft.sh").write_text(made)
    done = vms.real.tide("image", "build", "soft")
    assert done.returncode == 0, done.stderr + vms.real.tide("image", "log", "soft@1").stdout
    (disk,) = vms.disks.glob("*soft-1*.qcow2")
    raw = vms.running.root / "soft.raw"
    to_raw(disk, raw)
    assert text(raw, "/etc/soft") == "soft@1\n"
    assert names(raw, "/etc/munge") == set()
    with connected(vms.running) as connection:
        assert connection.listAllDomains() == []
    gone = vms.real.tide("image", "clean", "soft", "--keep", "0", "--yes")
    assert gone.returncode == 0, gone.stderr
    assert list(vms.disks.iterdir()) == []


@pytest.mark.accepts("A8")
def test_a_node_that_boots_without_the_daemon_waits_for_it_and_starts_no_slurmd(
    vms: Machines,
) -> None:
    with nobody_joins(vms):
        job = vms.real.sbatch("true", "-w", "vm-3", "-D", "/", "-o", "/dev/null")
        until(lambda: vms.real.states("vm-3") <= {"booting", "joining"}, BOOT_S)
        vms.real.kill_daemon()
    try:
        until(lambda: "waiting for the control host" in vms.console("vm.vm-3.1"), BOOT_S)
        assert "slurmd" not in vms.console("vm.vm-3.1")
        assert "POWERING_UP" in vms.real.node("vm-3")["State"]
    finally:
        vms.real.start_daemon()
    try:
        vms.real.finished(job, BOOT_S)
    finally:
        print(vms.console("vm.vm-3.1"))
    vms.real.all_off("vm-3", BOOT_S)


@contextmanager
def nobody_joins(vms: Machines) -> Iterator[None]:
    """Somebody else has the port at which machines ask: none joins, however soon it has booted."""
    vms.real.kill_daemon()
    with socket.create_server((str(vms.running.control), JOIN_PORT)):
        vms.real.start_daemon()
        yield


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
        script = f"hostname; {BUSY}"
        job = vms.real.sbatch(script, "-p", "racks", "-D", "/", "-o", "/dev/console")
        try:
            until(lambda: "it is at work" in rack.said(), BOOT_S)
            assert "\nrack-1\r" in rack.said() or "\nrack-1\n" in rack.said()
            assert "springtide:instance" in domain.XMLDesc()
            end(vms, job)
            vms.real.all_off("rack-1", BOOT_S)
        finally:
            print(rack.said())
        until(lambda: not domain.isActive())
        assert domain.state()[1] == SHUT_DOWN_BY_ITSELF


async def anonymous(instance: Instance, provider: Provider) -> Instance:
    """Started again, the node forgets who it was and switches itself off."""
    launch = Launch("vm", "vm-2", instance.generation, "vms", "node", "small")
    told = await provider.reboot([replace(launch, user_data=anonymise("golden-1"))])
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
    job = await asyncio.to_thread(busy, vms)
    known = credentials(vms)
    vms.real.kill_daemon()  # it would find the node dead, and delete it
    await asyncio.to_thread(end, vms, job)
    spec = load(vms.real.file)
    wanted = spec.provider_of("vms")
    assert isinstance(wanted, LibvirtSpec)
    provider = libvirt_provider(wanted, Catalog(spec.images, spec.flavors), spec.state)
    try:
        instance = await listed(provider, "vm", InstanceState.RUNNING)
        off = await anonymous(instance, provider)
        assert done("golden-1") in (await provider.console([off]))[off.id]
        image = await provider.snapshot(off, "golden-1")
        examine(vms, Path(image.id), known)
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
    vms.real.all_off("vm-2", BOOT_S)
    assert list(vms.disks.iterdir()) == []


def busy(vms: Machines) -> str:
    """A job that runs on vm-2 until it is ended."""
    job = vms.real.sbatch(BUSY, "-w", "vm-2", "-D", "/", "-o", "/dev/console")
    until(lambda: vms.real.states("vm-2") == {"ready"}, BOOT_S)
    instance = vms.real.record("vm-2")["vm-2"]["instance"]
    until(lambda: "it is at work" in vms.console(instance), BOOT_S)
    return job


def end(vms: Machines, job: str) -> None:
    vms.real.slurm("scancel", "--batch", "--signal=USR1", job)
    vms.real.finished(job)


@pytest.mark.accepts("E22")
def test_an_image_of_a_machine_in_service_is_taken_when_its_job_has_ended(vms: Machines) -> None:
    job = busy(vms)
    known = credentials(vms)
    with ThreadPoolExecutor(1) as beside:
        words = ("image", "snapshot", "vm-2", "--name", "taken", "--yes")
        taking = beside.submit(vms.real.tide, *words)
        try:
            until(lambda: taking.done() or "DRAIN" in vms.real.node("vm-2")["State"])
            assert list(vms.disks.glob("*taken-1*.qcow2")) == []
        finally:
            end(vms, job)
        taken = taking.result()
    assert taken.returncode == 0, taken.stdout + taken.stderr
    (image,) = vms.disks.glob("*taken-1*.qcow2")
    examine(vms, image, known)
    gone = vms.real.tide("image", "clean", "taken", "--keep", "0", "--yes")
    assert gone.returncode == 0, gone.stderr
    vms.real.all_off("vm-2", BOOT_S)
    assert list(vms.disks.iterdir()) == []


def credentials(vms: Machines) -> dict[str, bytes]:
    """Of the control host, and of vm-2 as they lie on its disk now: so they would be found."""
    disk = vms.running.root / "joined.raw"
    to_raw(vms.disks / f"{vms.real.record('vm-2')['vm-2']['instance']}.qcow2", disk)
    known = {"munge key": vms.key.read_bytes()[:64], **dict(secrets(vms.real.state))}
    assert holds(disk, known["munge key"])
    known |= {"token": found(disk, TOKEN), "key of the node": found(disk, KEY)}
    disk.unlink()
    assert all(known.values()), known.keys()
    return known


def examine(vms: Machines, image: Path, known: Mapping[str, bytes]) -> None:
    disk = vms.running.root / "examined.raw"
    to_raw(image, disk)
    assert names(disk, "/etc/munge") == set()
    assert names(disk, "/etc/slurm") == set()
    assert "springtide" not in names(disk, "/var/lib")
    assert names(disk, "/var/spool/slurmd") == set()
    assert names(disk, "/var/log/munge") == set()
    assert names(disk, "/var/lib/cloud/scripts/per-boot") == set()
    assert "vm-2" not in text(disk, "/etc/hosts")
    assert [name for name, one in known.items() if holds(disk, one)] == [], "in a free block"
    disk.unlink()
