"""The pure parts of the containers provider, which need no root."""

import asyncio
import os
import threading
from ipaddress import IPv4Address, IPv4Network
from pathlib import Path

import pytest

from springtide.ports import Instance, InstanceState, Launch, Rejected, Transient
from springtide.providers.containers import Containers, locks
from springtide.providers.containers.instances import (
    Intent,
    Process,
    await_process,
    decide_state,
    parse_process,
    parse_stat,
)
from springtide.providers.containers.links import (
    Used,
    bridge_name,
    hardware_address,
    parse_addresses,
    port_name,
)
from springtide.providers.containers.mounts import Entry, inside, render_fstab
from springtide.providers.containers.site import decide_subnet, parse_remark, render_remark

STAT = "4711 (a) b (c) S 1 4711 4711 0 -1 4194560 77 0 0 0 0 0 0 0 20 0 1 0 135929 2654208 387"


def test_link_names_are_short_and_differ_by_cluster_and_node() -> None:
    names = [bridge_name("blue"), port_name("blue", "n" * 63), port_name("green", "n" * 63)]
    assert len(set(names)) == 3
    assert max(map(len, names)) <= 15


def test_a_hardware_address_is_local_and_follows_from_the_address() -> None:
    assert hardware_address(IPv4Address("10.77.0.2")) == "02:54:0a:4d:00:02"


def test_the_first_free_block_is_chosen() -> None:
    used = [Used("tide-1", IPv4Network("10.77.0.0/20")), Used("eth0", IPv4Network("10.0.0.0/16"))]
    assert decide_subnet(None, used) == IPv4Network("10.77.16.0/20")


def test_a_pool_without_a_free_block_is_refused() -> None:
    with pytest.raises(Rejected, match=r"provider\.subnet"):
        decide_subnet(None, [Used("vpn0", IPv4Network("10.0.0.0/8"))])


def test_a_subnet_without_room_for_a_node_is_refused() -> None:
    with pytest.raises(Rejected, match="too small"):
        decide_subnet(IPv4Network("10.9.0.0/31"), [])


def test_addresses_are_read_with_the_networks_they_are_in() -> None:
    text = """[{}, {"ifname": "lo", "addr_info": [{"local": "127.0.0.1", "prefixlen": 8}]}]"""
    assert parse_addresses(text) == [Used("lo", IPv4Network("127.0.0.0/8"))]


def test_a_remark_is_read_as_it_was_written() -> None:
    assert parse_remark(render_remark("blue", (1, 2, 3))) == (1, 2, 3)
    assert parse_remark("somebody's bridge") == ()


def test_a_process_is_read_whatever_its_name() -> None:
    assert parse_stat(STAT) == (4711, "S", 135929)
    assert parse_process(f"boot-id {STAT}\nready\n") == Process("boot-id", 4711, 135929, True)
    assert parse_process(f"boot-id {STAT}\n") == Process("boot-id", 4711, 135929, False)
    text = "boot-id 4711 started=135929\n"
    assert parse_process(text) == Process("boot-id", 4711, 135929, False)
    assert parse_process(f"{text}ready\n") == Process("boot-id", 4711, 135929, True)


def test_an_image_is_shown_by_its_name_as_long_as_that_leads_to_its_directory() -> None:
    instance = Instance("blue.n0.1", "blue", "n0", 1, InstanceState.RUNNING, image="base")
    intent = Intent(instance, Path("/images/1"))
    assert intent.shown({"base": Path("/images/1")}).image == "base"
    assert intent.shown({"base": Path("/images/2")}).image == "/images/1"
    assert intent.shown({}).image == "/images/1"
    assert Intent(instance).shown({"base": Path("/images/2")}).image == "base"


def test_a_process_that_has_not_finished_saying_who_it_is_is_unknown() -> None:
    assert parse_process("") is None
    assert parse_process("boot-id 4711 (sh) S 1") is None
    assert parse_process("boot-id 4711 started=1359") is None


def test_a_process_of_which_a_disk_lost_some_is_unknown() -> None:
    assert parse_process("boot-id 4711 (sh) S 1\n") is None
    assert parse_process("boot-id \0\0\0\n") is None
    assert parse_process("boot-id 4711 started=\0\0\n") is None


def test_a_process_that_is_about_to_say_who_it_is_is_waited_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "process"
    monkeypatch.setattr("springtide.providers.containers.instances.CLAIM_LIMIT_S", 600.0)
    path.touch()
    pauses = iter(["boot-id 47", "boot-id 4711 started=135929\n"])
    monkeypatch.setattr("time.sleep", lambda _: path.write_text(next(pauses)))
    assert await_process(tmp_path) == Process("boot-id", 4711, 135929, False)


def test_a_process_that_never_said_who_it_is_is_not_waited_for_later(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As a machine leaves it that was switched off."""
    monkeypatch.setattr("time.sleep", lambda _: pytest.fail("it waits"))
    assert await_process(tmp_path) is None
    path = tmp_path / "process"
    path.touch()
    os.utime(path, (1, 1))
    assert await_process(tmp_path) is None


@pytest.mark.parametrize(
    ("process", "alive", "young", "deleting", "state"),
    [
        (None, False, True, False, InstanceState.PENDING),
        (None, False, False, False, InstanceState.BROKEN),
        ("starting", True, True, False, InstanceState.PENDING),
        ("starting", True, False, False, InstanceState.BROKEN),
        ("starting", False, True, False, InstanceState.BROKEN),
        ("ready", True, True, False, InstanceState.RUNNING),
        ("ready", True, False, False, InstanceState.RUNNING),
        ("ready", False, True, False, InstanceState.BROKEN),
        ("ready", True, False, True, InstanceState.DELETING),
        (None, False, False, True, InstanceState.DELETING),
    ],
)
def test_the_state_follows_from_process_and_age(
    process: str | None, alive: bool, young: bool, deleting: bool, state: InstanceState
) -> None:
    found = Process("boot-id", 1, 1, process == "ready") if process else None
    assert decide_state(found, alive, young, deleting) is state


def test_a_lock_that_somebody_keeps_is_told_and_not_waited_for_for_ever(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    name = f"springtide-test-{os.getpid()}"
    monkeypatch.setattr(locks, "MACHINE_LOCK", f"\0{name}")
    monkeypatch.setattr(locks, "WAIT_S", 0.05)
    with (
        locks.machine_lock(),
        pytest.raises(Transient, match=rf"lock for .* `ss -xap \| grep {name}`"),
        locks.machine_lock(),
    ):
        pass
    with locks.machine_lock():
        pass


def test_a_lock_that_cannot_be_asked_for_is_not_taken_for_held(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(locks, "MACHINE_LOCK", "/nowhere/lock")
    with pytest.raises(FileNotFoundError), locks.machine_lock():
        pass


async def test_a_cancelled_call_ends_after_all_that_it_began(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else a reboot could come after the one that followed it, and the node run the old script."""
    began, go = threading.Event(), threading.Event()
    ended: list[str] = []

    def attempt(self: Containers, do: object, launch: Launch) -> None:
        began.set()
        go.wait(60)
        ended.append(launch.node)

    monkeypatch.setattr(Containers, "_attempt", attempt)
    containers = Containers(tmp_path, {}, [], [], None, threads=1)
    launches = [Launch("blue", node, 1, "g", "host", "default") for node in ("n0", "n1")]
    rebooting = asyncio.create_task(containers.reboot(launches))
    await asyncio.to_thread(began.wait, 60)
    rebooting.cancel()
    await asyncio.wait([rebooting], timeout=0.1)
    assert not rebooting.done()
    go.set()
    with pytest.raises(asyncio.CancelledError):
        await rebooting
    assert ended == ["n0"], "and what had not begun never does"
    await containers.close()


def test_an_fstab_holds_paths_with_spaces() -> None:
    entry = Entry("/a b", Path("/c\td\\e"), "none", "bind")
    assert render_fstab(iter([entry])) == "/a\\040b /c\\011d\\134e none bind\n"


def test_links_of_an_image_are_followed_within_it(tmp_path: Path) -> None:
    (tmp_path / "usr/bin").mkdir(parents=True)
    (tmp_path / "bin").symlink_to("usr/bin")
    (tmp_path / "away").symlink_to("/bin/../../../etc")
    assert inside([tmp_path], Path("/bin/sh")) == tmp_path / "usr/bin/sh"
    assert inside([tmp_path], Path("/away/passwd")) == tmp_path / "etc/passwd"


def test_what_an_upper_layer_covers_is_not_in_the_image(tmp_path: Path) -> None:
    upper, base = tmp_path / "upper", tmp_path / "base"
    (base / "a/b/c").mkdir(parents=True)
    (upper / "a").mkdir(parents=True)
    assert inside([upper, base], Path("/a/b/c")) == base / "a/b/c"
    (upper / "a/b").touch()
    assert not inside([upper, base], Path("/a/b/c")).exists()


def test_links_that_go_in_circles_are_refused(tmp_path: Path) -> None:
    (tmp_path / "a").symlink_to("b")
    (tmp_path / "b").symlink_to("a")
    with pytest.raises(Rejected, match="too many symbolic links"):
        inside([tmp_path], Path("/a/x"))
