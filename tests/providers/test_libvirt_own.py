"""libvirt: what a machine is made of, and that it goes with all of it."""

import asyncio
import subprocess
import tempfile
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from springtide.ports import Check, Need, NoCapacity, Provider, Rejected, Transient
from springtide.providers.libvirt.network import mac_of, parse
from springtide.spec import Image
from tests.libvirt.daemon import NETWORK, connected, libvirt
from tests.libvirt.daemon import Libvirt as Running
from tests.providers.libvirt_world import Place, clean, created, place, unpacked
from tests.providers.servers.libvirt import Between, between
from tests.providers.world import (
    BLUE,
    GREEN,
    World,
    delete_until_gone,
    instances,
    launch,
    saying,
)
from tests.providers.world import running as all_running

pytestmark = pytest.mark.real

SMALL = """\
<network>
  <name>small</name>
  <bridge name='tide1' stp='off' delay='0'/>
  <ip address='10.96.0.1' netmask='255.255.255.248'>
    <dhcp><range start='10.96.0.1' end='10.96.0.3'/></dhcp>
  </ip>
</network>
"""
IDLE = "<network><name>idle</name><bridge name='tide2'/></network>"


@pytest.fixture(scope="module")
def running() -> Iterator[Running]:
    with libvirt() as running:
        with connected(running) as connection:
            connection.networkDefineXML(SMALL).create()
            connection.networkDefineXML(IDLE)
        yield running


@pytest.fixture
def here(running: Running) -> Iterator[Place]:
    one = place(running)
    yield one
    clean(one)


@pytest.fixture
def world(here: Place) -> World:
    return created(here, Between(here.running.socket))


def entries(here: Place, network: str = NETWORK) -> dict[str, str]:
    with connected(here.running) as connection:
        return dict(parse(connection.networkLookupByName(network).XMLDesc()).entries)


def files(here: Place) -> set[str]:
    return {path.name for path in here.disks.iterdir()}


@pytest.mark.accepts("B4")
async def test_a_machine_has_a_disk_on_its_image_a_seed_and_an_address_and_leaves_nothing(
    here: Place, world: World
) -> None:
    provider = here.open()
    (made,) = instances(await provider.create([saying(world, "n0", "well")]))
    id = f"{BLUE}.n0.1"
    assert files(here) == {f"{id}.qcow2", f"{id}.iso", f"{id}.console"}
    assert backing(here.disks / f"{id}.qcow2") == str(here.images["base"].path)
    assert entries(here) == {mac_of(BLUE, "n0"): made.address}
    seed = unpacked(here.disks / f"{id}.iso")
    assert f'"{id}.1"' in seed["meta-data"]
    assert '"local-hostname": "n0"' in seed["meta-data"]
    assert seed["user-data"].startswith("#!/bin/sh\nTIDE_NODE=n0 TIDE_GENERATION=1 TIDE_TOKEN=''\n")
    assert mac_of(BLUE, "n0") in seed["network-config"]
    await provider.reboot([saying(world, "n0", "again")])
    assert f'"{id}.2"' in unpacked(here.disks / f"{id}.iso")["meta-data"]
    assert entries(here) == {mac_of(BLUE, "n0"): made.address}
    await delete_until_gone(provider, BLUE)
    assert files(here) == set()
    assert entries(here) == {}
    await provider.remove(BLUE)
    await provider.close()


def backing(disk: Path) -> str:
    command = ["qemu-img", "info", "-U", str(disk)]
    shown = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    words = [line.partition("backing file: ")[2] for line in shown.splitlines()]
    return next((word for word in words if word), "")


async def test_a_host_key_is_known_before_the_node_boots_if_the_file_wants_it(
    here: Place, world: World
) -> None:
    provider = here.open(host_keys=True)
    (made,) = instances(await provider.create([saying(world, "n0", "well")]))
    seed = here.disks / f"{made.id}.iso"
    assert seed.stat().st_mode & 0o077 == 0
    told = unpacked(seed)["user-data"]
    begin, end = "-----BEGIN OPENSSH PRIVATE KEY-----", "-----END OPENSSH PRIVATE KEY-----"
    assert told.count(begin) == told.count(end) == 1
    with connected(here.running) as connection:
        mark = connection.lookupByName(made.id).XMLDesc()
    assert "PRIVATE" not in mark
    assert public_half(begin + told.partition(begin)[2].partition(end)[0] + end) in mark
    await provider.reboot([saying(world, "n0", "again")])
    assert begin not in unpacked(seed)["user-data"]
    with connected(here.running) as connection:
        assert "host_key='ssh-ed25519 " in connection.lookupByName(made.id).XMLDesc().replace(
            '"', "'"
        )


def public_half(private: str) -> str:
    with tempfile.NamedTemporaryFile("w") as file:
        file.write(private + "\n")
        file.flush()
        command = ["ssh-keygen", "-y", "-f", file.name]
        shown = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    return " ".join(shown.split()[:2])


async def test_clusters_on_one_network_have_different_addresses_until_it_is_full(
    here: Place, world: World
) -> None:
    blue, green = here.open(network="small"), here.open(network="small")
    (one,) = instances(await blue.create([launch(world, BLUE, "n0")]))
    (other,) = instances(await green.create([launch(world, GREEN, "n0")]))
    assert {one.address, other.address} == {"10.96.0.2", "10.96.0.3"}
    full = (await blue.create([launch(world, BLUE, "n1")]))["n1"]
    assert isinstance(full, NoCapacity)
    assert "virsh net-edit small" in str(full)
    await delete_until_gone(green, GREEN)
    (third,) = instances(await blue.create([launch(world, BLUE, "n1")]))
    assert third.address == other.address
    await delete_until_gone(blue, BLUE)
    assert entries(here, "small") == {}
    assert files(here) == set()


async def test_a_node_that_comes_again_has_the_address_it_had(here: Place, world: World) -> None:
    provider = here.open()
    (first,) = instances(await provider.create([launch(world, BLUE, "n0")]))
    await delete_until_gone(provider, BLUE)
    (again,) = instances(await provider.create([launch(world, BLUE, "n0", 2)]))
    assert again.address == first.address


async def test_of_a_launch_that_fails_nothing_is_left(here: Place, world: World) -> None:
    """An option that libvirt does not know; and one that is no XML."""
    for bad in ({"devices": "<disk type='file'/>"}, {"cpu": "<cpu>"}, {"cpu": "<cpus/>"}):
        provider = here.open(options=bad)
        refused = (await provider.create([launch(world, BLUE, "n0")]))["n0"]
        assert isinstance(refused, Rejected), refused
        assert await provider.list(BLUE) == []
        assert files(here) == set()
        assert entries(here) == {}


async def test_what_a_dead_daemon_left_goes_with_the_site(here: Place, world: World) -> None:
    provider = here.open()
    (here.disks / f"{BLUE}.n7.3.qcow2").write_bytes(b"half")
    (here.disks / f"{GREEN}.n7.3.qcow2").write_bytes(b"another's")
    await provider.remove(BLUE)
    assert files(here) == {f"{GREEN}.n7.3.qcow2"}


async def test_a_console_that_was_put_aside_goes_with_the_machine(
    here: Place, world: World
) -> None:
    provider = here.open()
    (made,) = instances(await provider.create([launch(world, BLUE, "n0")]))
    (here.disks / f"{made.id}.console.0").write_text("long ago")
    await delete_until_gone(provider, BLUE)
    assert files(here) == set()


async def test_the_directory_of_disks_is_made_and_need_not_be_there(
    here: Place, world: World
) -> None:
    wanted = here.disks / "deep" / "disks"
    provider = here.open(disks=wanted)
    await provider.remove(BLUE)
    assert not wanted.exists()
    wanted.parent.mkdir()
    await provider.prepare(BLUE)
    assert len(instances(await provider.create([launch(world, BLUE, "n0")]))) == 1
    await delete_until_gone(provider, BLUE)
    assert list(wanted.iterdir()) == []


async def test_an_image_that_machines_stand_on_is_not_forgotten(here: Place, world: World) -> None:
    provider = here.open()
    await provider.create([launch(world, BLUE, "n0")])
    (instance,) = await all_running(provider, BLUE, 1)
    image = await provider.snapshot(instance, "golden")
    here.images["golden"] = Image(path=image.id)
    await provider.create([replace(launch(world, GREEN, "n0"), image="golden")])
    with pytest.raises(Rejected, match=f"{GREEN}.n0.1"):
        await provider.forget(image)
    await delete_until_gone(provider, GREEN)
    await provider.forget(image)
    assert await provider.images(BLUE) == []


async def test_a_machine_of_the_same_name_that_is_not_ours_is_left_alone(
    here: Place, world: World
) -> None:
    name = f"{BLUE}.n0.1"
    with connected(here.running) as connection:
        os = "<os><type arch='x86_64'>hvm</type></os>"
        theirs = f"<domain type='qemu'><name>{name}</name><memory>65536</memory>{os}</domain>"
        connection.defineXML(theirs)
        before = connection.lookupByName(name).XMLDesc()
        provider = here.open()
        assert not instances(await provider.create([launch(world, BLUE, "n0")]))
        await provider.remove(BLUE)
        assert connection.lookupByName(name).XMLDesc() == before


async def test_an_image_has_all_that_the_disk_has_and_the_machine_goes_on(
    here: Place, world: World
) -> None:
    provider = here.open()
    await provider.create([launch(world, BLUE, "n0"), launch(world, BLUE, "n1")])
    one, other = await all_running(provider, BLUE, 2)
    here.kill(other)
    for instance in (one, other):
        image = await provider.snapshot(instance, f"of-{instance.node}")
        assert image.id == str(here.disks / f"springtide-{BLUE}-of-{instance.node}.qcow2")
        assert backing(Path(image.id)) == ""
        assert begins_with(Path(image.id), "b")
    assert is_moving(here, one.id)
    with pytest.raises(Rejected):
        await provider.snapshot(one, "../escape")


def begins_with(disk: Path, letter: str) -> bool:
    command = ["qemu-io", "-r", "-c", f"read -P {ord(letter)} 0 64k", str(disk)]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    return "failed" not in done.stdout + done.stderr


def is_moving(here: Place, name: str) -> bool:
    with connected(here.running) as connection:
        return bool(connection.lookupByName(name).state()[0] == 1)


async def test_a_broken_half_of_an_image_is_no_image(here: Place, world: World) -> None:
    provider = here.open()
    await provider.create([launch(world, BLUE, "n0")])
    (instance,) = await all_running(provider, BLUE, 1)
    (here.disks / f"springtide-{BLUE}-half.qcow2").write_bytes(b"half")
    assert await provider.images(BLUE) == []
    image = await provider.snapshot(instance, "half")
    assert [one.id for one in await provider.images(BLUE)] == [image.id]


def by_name(checks: object) -> dict[str, Check]:
    assert isinstance(checks, list)
    return {one.name: one for one in checks}


async def checked(provider: Provider, count: int = 2, image: str = "base") -> dict[str, Check]:
    return by_name(await provider.check(BLUE, [Need("general", count, image, ["tiny"])]))


async def test_the_check_says_what_is_there(here: Place) -> None:
    provider = here.open()
    await provider.prepare(BLUE)
    seen = await checked(provider)
    assert all(one.ok for one in seen.values()), seen
    assert {"libvirt", "network", "disks", "emulation", "seed", "machine tiny"} <= seen.keys()
    assert "qcow2, 1 MiB" in seen["image base"].text


async def test_the_check_says_what_is_missing_and_what_to_do(here: Place) -> None:
    assert "virsh net-start idle" in (await checked(here.open(network="idle")))["network"].todo
    assert (await checked(here.open(network="none")))["network"].ok is False
    assert (await checked(here.open(network="small"), 9))["network"].ok is None
    here.images["lost"] = elsewhere(here, "lost.qcow2")
    assert "no image" in (await checked(here.open(), image="lost"))["image lost"].text
    odd = {"cpu": "<cpu mode='custom'><model>abacus</model></cpu>"}
    assert "abacus" in (await checked(here.open(options=odd)))["machine tiny"].text
    (away,) = (await checked(here.open(uri="qemu+unix:///system?socket=/nowhere"))).values()
    assert away.ok is False
    assert "virsh -c" in away.todo


def elsewhere(here: Place, name: str) -> Image:
    base = here.images["base"]
    assert base.path is not None
    return base.model_copy(update={"path": base.path.with_name(name)})


async def test_a_connection_that_broke_is_opened_again(here: Place, world: World) -> None:
    path = here.disks.parent / "sock"
    provider = here.open(uri=f"qemu+unix:///system?socket={path}")
    with between(here.running.socket, path):
        await provider.create([launch(world, BLUE, "n0")])
    with between(here.running.socket, path):
        (found,) = await all_running(provider, BLUE, 1)
    assert found.node == "n0"
    await provider.close()


async def test_a_libvirt_that_says_nothing_any_more_is_given_up_and_tried_again(
    here: Place, world: World
) -> None:
    path = here.disks.parent / "sock"
    with between(here.running.socket, path) as wire:
        provider = here.open(uri=f"qemu+unix:///system?socket={path}", timeout=20.0)
        assert await provider.list(BLUE) == []
        wire.silent = True
        async with asyncio.timeout(200):
            with pytest.raises(Transient):
                await provider.list(BLUE)
        wire.silent = False
        assert await provider.list(BLUE) == []
        await provider.close()
