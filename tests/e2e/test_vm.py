"""Level 3: a node is a virtual machine that really boots, joins a real Slurm and goes again."""

import socket
from collections.abc import Iterator

import pytest

from tests.e2e.real import until
from tests.e2e.vm import Machines, machines
from tests.libvirt.daemon import NETWORK, Libvirt, connected, libvirt
from tests.libvirt.image import node_image

pytestmark = [pytest.mark.real, pytest.mark.timeout(400)]

IDLE_S = 5
BOOT_S = 150.0


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
