"""The site of containers, what it refuses, and that nothing is left of it."""

import asyncio
import os
import signal
from collections.abc import Mapping, Sequence
from ipaddress import IPv4Network
from pathlib import Path

import pytest

from springtide.ports import Denied, Instance, InstanceState, NoCapacity, Rejected, Transient
from springtide.providers.containers import Containers, Mount, links, locks
from tests.providers.machine import (
    SUBNET,
    Machine,
    error_of,
    eventually,
    knocks,
    launch,
    nodes,
    process_of,
    processes,
    traces,
)
from tests.providers.world import BLUE, GREEN, instances, running

pytestmark = pytest.mark.real


async def test_the_site_is_a_bridge_with_the_first_address_of_its_subnet(
    machine: Machine,
) -> None:
    containers = machine.open(BLUE, subnet=SUBNET)
    site = await containers.prepare(BLUE)
    assert site.control_address == str(SUBNET[1])
    assert site.facts == {"bridge": links.bridge_name(BLUE), "subnet": str(SUBNET)}
    assert (site.facts["bridge"], SUBNET) in links.used()


async def test_clusters_get_different_subnets(machine: Machine) -> None:
    sites = [await machine.open(name).prepare(name) for name in (BLUE, GREEN)]
    first, second = (IPv4Network(site.facts["subnet"]) for site in sites)
    assert not first.overlaps(second)


async def test_a_bridge_that_was_lost_in_a_reboot_is_made_again(machine: Machine) -> None:
    containers = machine.open(BLUE, subnet=SUBNET)
    await containers.prepare(BLUE)
    links.remove(links.bridge_name(BLUE))
    assert instances(await containers.create([launch()]))


async def test_nodes_that_run_are_reached_again_when_their_bridge_is_made_anew(
    machine: Machine,
) -> None:
    containers = machine.open(BLUE, subnet=SUBNET)
    await containers.prepare(BLUE)
    (first, second) = instances(await containers.create([launch("n0"), launch("n1")]))
    links.remove(links.bridge_name(BLUE))
    assert links.is_loose(links.port_name(BLUE, "n0"))
    await containers.prepare(BLUE)
    assert knocks(first) <= 1
    links.remove(links.bridge_name(BLUE))
    assert instances(await containers.create([launch("n2")])), "that needs the bridge, too"
    assert knocks(second) <= 1


async def test_after_a_reboot_instances_are_broken_and_nothing_stands_in_the_way(
    machine: Machine,
) -> None:
    """With what a machine leaves that was switched off: files and links to names, half of some."""
    containers = machine.open(BLUE, subnet=SUBNET)
    await containers.prepare(BLUE)
    made = instances(await containers.create([launch(node) for node in nodes(4)]))
    directory = machine.directory(BLUE)
    switch_off(machine, *nodes(4))
    (directory / "instances/n1/process").write_text("half of a")
    os.utime(directory / "instances/n1/process", (1, 1))
    (directory / "instances/n2/instance.json").unlink()
    (directory / "instances/n3/deleting").touch()
    (directory / "addresses" / str(SUBNET[200])).symlink_to("n9")
    states = {one.node: one.state for one in await containers.list(BLUE)}
    assert states["n0"] is InstanceState.BROKEN
    assert states["n3"] is InstanceState.DELETING
    assert "n2" not in states
    await containers.prepare(BLUE)
    assert not (directory / "addresses" / str(SUBNET[200])).is_symlink()
    assert await containers.delete(made) == {}
    again = [launch(node, generation=2) for node in nodes(4)]
    assert len(instances(await containers.create(again))) == 4
    assert max(knocks(one) for one in await running(containers, BLUE, 4)) <= 1
    assert len(list((directory / "addresses").iterdir())) == 4


def switch_off(machine: Machine, *names: str) -> None:
    """No process is left, and no link; ids are of another boot."""
    for name in names:
        os.kill(process_of(machine, name), signal.SIGKILL)
        path = machine.directory(BLUE) / "instances" / name / "process"
        boot, _, rest = path.read_text().partition(" ")
        path.write_text(f"{boot[::-1]} {rest}")
    links.remove(links.bridge_name(BLUE))


@pytest.mark.skipif(
    not Path("/proc/sys/net/ipv4/neigh/default/gc_thresh1").exists(),
    reason="this machine has a network namespace of its own, which has no such limits",
)
async def test_limits_on_neighbours_are_raised_and_restored(machine: Machine) -> None:
    """By whoever removes the last bridge of this machine, which may be of another run."""
    with locks.machine_lock():
        others, before = links.bridges(), thresholds()
    containers = await machine.prepared()
    await machine.prepared(GREEN)
    assert thresholds()[2] >= 65536
    await containers.remove(BLUE)
    assert thresholds()[2] >= 65536
    await machine.open(GREEN).remove(GREEN)
    await eventually(lambda: others or links.bridges() or thresholds() == before)


def thresholds() -> list[int]:
    path = Path("/proc/sys/net/ipv4/neigh/default")
    return [int((path / f"gc_thresh{number}").read_text()) for number in (1, 2, 3)]


async def test_nothing_is_left_after_remove(machine: Machine) -> None:
    containers = await machine.prepared()
    await containers.create([launch(node) for node in nodes(5)])
    assert len(traces(machine)) > 5
    await containers.remove(BLUE)
    await eventually(lambda: traces(machine) == [])


# What is refused


async def test_an_image_that_is_not_there_is_rejected(machine: Machine) -> None:
    machine.images |= {"lost": machine.root / "lost", "empty": machine.shared}
    containers = await machine.prepared()
    for image, word in {"none": "known: empty, host, lost", "lost": "lost", "empty": "sh"}.items():
        error = await error_of(containers, launch(image=image))
        assert isinstance(error, Rejected)
        assert word in str(error)
    assert await containers.list(BLUE) == []


async def test_a_mount_that_is_not_there_is_rejected(machine: Machine) -> None:
    lost = machine.root / "lost"
    containers = machine.open(BLUE, mounts=[Mount(lost, lost, read_only=True)])
    await containers.prepare(BLUE)
    error = await error_of(containers, launch())
    assert isinstance(error, Rejected)
    assert str(lost) in str(error)


async def test_a_node_name_that_leads_out_is_rejected(machine: Machine) -> None:
    containers = await machine.prepared()
    for name in ("../n0", "n 0", "", "n" * 64):
        assert isinstance(await error_of(containers, launch(name)), Rejected)


async def test_a_launch_for_no_site_or_another_cluster_is_rejected(machine: Machine) -> None:
    containers = machine.open(BLUE)
    assert "no site" in str(await error_of(containers, launch()))
    await containers.prepare(BLUE)
    assert "holds the containers" in str(await error_of(containers, launch(cluster=GREEN)))
    with pytest.raises(Rejected, match="holds the containers"):
        await containers.prepare(GREEN)


async def test_a_start_that_fails_is_told_and_leaves_nothing(machine: Machine) -> None:
    below_a_file = Mount(machine.shared, Path("/etc/passwd/x"), read_only=False)
    containers = machine.open(BLUE, mounts=[below_a_file])
    await containers.prepare(BLUE)
    error = await error_of(containers, launch())
    assert isinstance(error, Transient)
    assert "/etc/passwd/x" in str(error)
    assert await containers.list(BLUE) == []
    assert list((machine.directory(BLUE) / "addresses").iterdir()) == []
    await eventually(lambda: processes(BLUE) == [])


async def test_a_full_subnet_has_no_capacity(machine: Machine) -> None:
    containers = machine.open(BLUE, subnet=IPv4Network((SUBNET[0], 30)))
    await containers.prepare(BLUE)
    answers = await containers.create([launch(node) for node in nodes(3)])
    assert len(instances(answers)) == 1
    assert sum(isinstance(answer, NoCapacity) for answer in answers.values()) == 2


async def test_a_full_bridge_has_no_capacity(machine: Machine) -> None:
    containers = await machine.prepared()
    for number in range(1023):
        (machine.directory(BLUE) / f"addresses/taken-{number}").symlink_to("other")
    error = await error_of(containers, launch())
    assert isinstance(error, NoCapacity)
    assert "1023" in str(error)


async def test_a_subnet_in_use_is_rejected_with_the_link_that_uses_it(machine: Machine) -> None:
    site = await machine.open(GREEN).prepare(GREEN)
    containers = machine.open(BLUE, subnet=IPv4Network(site.facts["subnet"]))
    with pytest.raises(Rejected, match=site.facts["bridge"]):
        await containers.prepare(BLUE)


async def test_a_second_directory_for_the_same_cluster_is_rejected(machine: Machine) -> None:
    await machine.prepared()
    other = Containers(machine.root / "other", {}, [], [], None)
    with pytest.raises(Rejected, match="another state directory"):
        await other.prepare(BLUE)
    await other.remove(BLUE)
    await other.close()
    assert links.exists(links.bridge_name(BLUE))


async def test_without_root_everything_is_denied(machine: Machine) -> None:
    containers = await machine.prepared()
    made = instances(await containers.create([launch()]))
    denied = await as_nobody(containers, made)
    assert [type(error) for error in denied] == [Denied] * 4
    assert "root" in str(denied[0])
    await running(containers, BLUE, 1)


async def as_nobody(containers: Containers, made: Sequence[Instance]) -> list[object]:
    os.seteuid(65534)
    try:
        prepared = await asyncio.gather(containers.prepare(BLUE), return_exceptions=True)
        answers: Mapping[str, object] = await containers.create([launch("n1")])
        rebooted: Mapping[str, object] = await containers.reboot([launch()])
        refused = await containers.delete(made)
        return [*prepared, *answers.values(), *rebooted.values(), *refused.values()]
    finally:
        os.seteuid(0)
