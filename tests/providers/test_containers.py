"""Containers as every provider must be, and what a node is. Real namespaces, links, mounts."""

import asyncio
import os
import signal
import socket
from dataclasses import replace
from pathlib import Path

import pytest

from springtide.providers.containers import Mount
from springtide.providers.containers.files import replace_quickly
from tests.providers.conformance import Conformance
from tests.providers.machine import (
    FOREVER,
    LIMIT_S,
    Machine,
    contents,
    eventually,
    image_from_host,
    knocks,
    launch,
    nodes,
    process_of,
    read,
    said,
    say,
)
from tests.providers.world import BLUE, World, instances, running

pytestmark = pytest.mark.real


@pytest.mark.accepts("C30")
class TestContainers(Conformance):
    @pytest.fixture
    def world(self, machine: Machine) -> World:
        return World(
            open=machine.open,
            spoil=lambda one: replace(one, image="no-such-image"),
            says=lambda node, word: say(machine.shared / node, f"echo {word}"),
            said=lambda node: last_word(machine.shared / node),
            kill=lambda one: os.kill(process_of(machine, one.node), signal.SIGKILL),
            snapshots=True,
        )


def last_word(path: Path) -> str | None:
    return path.read_text().strip() if path.exists() else None


# What a node is


async def test_a_node_has_its_own_name_address_and_processes(machine: Machine) -> None:
    containers = await machine.prepared()
    command = (
        "hostname; echo $$; ip -o -4 address show eth0; ls -d /proc/[0-9]* | wc -l; "
        "ls -d /sys/kernel; wc -l </proc/mounts"
    )
    lines = (await said(machine, command, containers)).splitlines()
    (instance,) = await running(containers, BLUE, 1)
    assert lines[0] == "n0"
    assert int(lines[1]) < 50
    assert f"inet {instance.address}/20 " in lines[2]
    assert int(lines[3]) < 10
    assert lines[4] == "/sys/kernel"
    assert int(lines[5]) < 40
    assert instance.id == f"{BLUE}.n0.1"


async def test_the_boot_script_gets_a_clean_environment(machine: Machine) -> None:
    containers = await machine.prepared()
    site = await containers.prepare(BLUE)
    text = await said(machine, "env", containers)
    (instance,) = await containers.list(BLUE)
    found = dict(line.split("=", 1) for line in text.splitlines())
    assert found.pop("PATH")
    assert found == {
        "PWD": "/",
        "TIDE_CLUSTER": BLUE,
        "TIDE_NODE": "n0",
        "TIDE_GENERATION": "1",
        "TIDE_ADDRESS": instance.address,
        "TIDE_CONTROL_ADDRESS": site.control_address,
    }


async def test_the_boot_script_holds_nothing_of_the_daemon(machine: Machine) -> None:
    text = await said(machine, "ls -l /proc/$$/fd; grep SigIgn: /proc/$$/status")
    *listed, ignored = text.splitlines()
    held = {Path(line.partition(" -> ")[2]).name for line in listed if " -> " in line}
    assert held == {"null", "boot.log", "boot", "said.new"}
    # What Python ignores must not be ignored there; what our own parents ignore may be.
    theirs = _ignored(ignored) - _ignored(_own_line("SigIgn:"))
    assert theirs | (_ignored(ignored) & {signal.SIGPIPE, signal.SIGXFSZ}) == set()
    assert os.getsid(process_of(machine)) != os.getsid(0)


def _own_line(key: str) -> str:
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(line for line in lines if line.startswith(key))


def _ignored(line: str) -> set[int]:
    mask = int(line.split()[1], 16)
    return {bit + 1 for bit in range(64) if mask >> bit & 1}


async def test_names_resolve_from_files_only(machine: Machine) -> None:
    name = socket.gethostname()
    command = f"getent hosts localhost n0 {name}; cat /etc/nsswitch.conf"
    text = await said(machine, command)
    site = await machine.open(BLUE).prepare(BLUE)
    assert [line.split()[1] for line in text.splitlines()[:3]] == ["localhost", "n0", name]
    assert f"{site.control_address} " in text
    assert text.endswith("passwd: files\ngroup: files\nshadow: files\nhosts: files\n")


async def test_nodes_reach_each_other_and_the_control_host(machine: Machine) -> None:
    containers = await machine.prepared()
    (server,) = instances(await containers.create([launch("n0", ECHO_SERVER)]))
    ask = f"/usr/bin/python3 -c {ECHO_CLIENT!r} {server.address}"
    text = say(machine.shared / "answer", f"until {ask}; do sleep 0.1; done 2>/dev/null")
    await containers.create([launch("n1", text)])
    assert (await read(machine.shared / "answer")).strip() == "n0"
    assert await heard(str(server.address)) == b"n0"


async def test_an_address_that_is_given_again_is_reached_at_once(machine: Machine) -> None:
    """What others remember of the address must not lead to the dead node."""
    containers = await machine.prepared()
    (old,) = instances(await containers.create([launch("n0", ECHO_SERVER)]))
    assert await heard(str(old.address)) == b"n0"
    await containers.delete([old])
    (new,) = instances(await containers.create([launch("n1", ECHO_SERVER)]))
    assert new.address == old.address
    assert knocks(new) <= 1
    assert await heard(str(new.address)) == b"n1"


ECHO_SERVER = """exec /usr/bin/python3 -c "
import socket
server = socket.create_server(('', 7000))
while True:
    server.accept()[0].sendall(socket.gethostname().encode())
"
"""
ECHO_CLIENT = (
    "import socket, sys; print(socket.create_connection((sys.argv[1], 7000), 5).recv(99).decode())"
)


async def heard(address: str) -> bytes:
    """What the server says, as soon as it listens."""
    async with asyncio.timeout(LIMIT_S):
        while True:
            try:
                reader, writer = await asyncio.open_connection(address, 7000)
                break
            except ConnectionRefusedError:
                await asyncio.sleep(0.01)
    try:
        return await reader.readexactly(2)
    finally:
        writer.close()
        await writer.wait_closed()


async def test_what_a_node_writes_stays_in_the_node(machine: Machine) -> None:
    before = {path: Path(path).read_bytes() for path in ("/etc/hosts", "/etc/passwd")}
    mounts = mounts_here(machine)
    command = (
        "echo x >/etc/passwd; rm /etc/hosts; mkdir /tide-test; echo x >/usr/tide-test; "
        "echo x >/tmp/tide-test; echo x >/run/tide-test; umount /dev/shm; echo done"
    )
    assert await said(machine, command) == "done\n"
    assert {path: Path(path).read_bytes() for path in before} == before
    assert mounts_here(machine) == mounts
    for path in ("/tide-test", "/usr/tide-test", "/tmp/tide-test", "/run/tide-test"):
        assert not Path(path).exists()
    assert socket.gethostname() != "n0"


def mounts_here(machine: Machine) -> list[str]:
    """Without those of other tests, which come and go."""
    lines = Path("/proc/self/mountinfo").read_text().splitlines()
    own, places = str(machine.root), ("/tmp/", "/var/tmp/")
    return [one for one in lines if own in one or not one.split()[4].startswith(places)]


async def test_hidden_directories_are_empty_but_for_what_is_mounted_there(
    machine: Machine,
) -> None:
    state = machine.root / "state with space"
    for name in ("conf", "secret"):
        (state / name).mkdir(parents=True)
        (state / name / "file").write_text(name)
    containers = machine.open(
        BLUE, mounts=[Mount(state / "conf", state / "conf", read_only=True)], hidden=[state]
    )
    await containers.prepare(BLUE)
    command = (
        f"cd '{state}'; ls; cat conf/file; echo; echo x >conf/new || echo read-only; "
        f"ls {machine.directory(BLUE)} | wc -l"
    )
    lines = (await said(machine, command, containers)).splitlines()
    assert lines[:2] == ["conf", "conf"]
    assert lines[-2:] == ["read-only", "0"]


async def test_a_file_that_is_replaced_in_a_mounted_directory_is_seen_at_once(
    machine: Machine,
) -> None:
    """Names of nodes come and go in one file, which /etc/hosts of every node links to."""
    conf, found = machine.root / "conf", machine.shared / "found"
    conf.mkdir()
    replace_quickly(conf / "hosts", "127.0.0.1 localhost\n")
    containers = machine.open(BLUE, mounts=[Mount(conf, conf, read_only=True)])
    await containers.prepare(BLUE)
    look = f"ln -sf {conf}/hosts /etc/hosts; getent hosts n7; : >{found}.ready\n" + "".join(
        f"until getent hosts {name}; do sleep 0.02; done; : >{found}.{name}\n"
        for name in ("n7", "n8")
    )
    await containers.create([launch("n0", say(found, f"{look}getent hosts n7 || echo no n7"))])
    await read(machine.shared / "found.ready")
    replace_quickly(conf / "hosts", "10.1.2.7 n7\n")
    await read(machine.shared / "found.n7")
    replace_quickly(conf / "hosts", "10.1.2.8 n8\n")
    assert [line.split() for line in (await read(found)).splitlines()] == [
        ["10.1.2.7", "n7"],
        ["10.1.2.8", "n8"],
        ["no", "n7"],
    ]


async def test_a_hidden_directory_within_a_mount_stays_hidden(machine: Machine) -> None:
    secret = machine.shared / "state"
    secret.mkdir()
    (secret / "key").write_text("secret")
    containers = machine.open(BLUE, hidden=[secret])
    await containers.prepare(BLUE)
    assert await said(machine, f"ls {secret} | wc -l", containers) == "0\n"


async def test_another_image_is_another_root_and_is_not_changed(machine: Machine) -> None:
    image = image_from_host(machine.root / "image", ["sh", "umount", "sleep", "cat"])
    (image / "marker").write_text("tiny image")
    (image / "out").symlink_to(machine.root / "outside")
    before = contents(image)
    machine.images["tiny"] = image
    containers = machine.open(BLUE, mounts=[Mount(machine.shared, Path("/out"), read_only=False)])
    await containers.prepare(BLUE)
    script = f"cat /marker >/out/marker.new\necho x >/marker\nexec 2>/out/x; {FOREVER}"
    (made,) = instances(await containers.create([launch("n0", script, image="tiny")]))
    assert made.image == "tiny"
    await eventually((machine.shared / "x").exists)
    assert (machine.shared / "marker.new").read_text() == "tiny image"
    assert contents(image) == before
    assert not (machine.root / "outside").exists()


# Many


async def test_64_at_once(machine: Machine) -> None:
    containers = await machine.prepared()
    answers = await containers.create([launch(node) for node in nodes(64)])
    assert len(instances(answers)) == 64
    listed = await running(containers, BLUE, 64)
    assert len({one.address for one in listed}) == 64
    assert await containers.delete(listed) == {}
    assert await containers.list(BLUE) == []
