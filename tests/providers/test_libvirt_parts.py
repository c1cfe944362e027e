"""libvirt: what is pure, and many machines on libvirt's own driver for tests."""

import asyncio
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import libvirt
import pytest
from hypothesis import given
from hypothesis import strategies as st

from springtide.ports import (
    CloudError,
    CloudImage,
    Denied,
    Instance,
    InstanceState,
    Launch,
    NoCapacity,
    QuotaExceeded,
    Rejected,
    Transient,
)
from springtide.providers.cloud import Catalog
from springtide.providers.libvirt import checks, images, marks, provider
from springtide.providers.libvirt.domain import Paths, memory_mib, render_domain
from springtide.providers.libvirt.errors import advice, decide_class
from springtide.providers.libvirt.marks import Mark, decide_state
from springtide.providers.libvirt.network import Known, Range, decide_address, mac_of
from springtide.providers.libvirt.storage import Disks
from springtide.spec import Flavor, Image
from springtide.spec.clouds import Libvirt

MARK = Mark(
    cluster="blue",
    node="n1",
    generation=3,
    group="general",
    image="base",
    flavor="small",
    disk="/images/base.qcow2",
    mac="06:00:00:00:00:01",
    address="10.0.0.7",
    created_at=1700000000.25,
    booted_at=1700000100.5,
)
TEN = Range(10, 19)


@pytest.mark.parametrize(
    ("code", "domain", "message", "kind"),
    [
        (38, 7, "Failed to connect socket to '/x': No such file or directory", Transient),
        (38, 7, "Failed to connect socket to '/x': Permission denied", Denied),
        (38, 7, "unable to connect to server at 'h:22': Connection refused", Transient),
        (39, 7, "internal error: client socket is closed", Transient),
        (45, 7, "authentication failed: no agent", Denied),
        (88, 10, "access denied", Denied),
        (29, 0, "operation virDomainDestroy forbidden for read only access", Denied),
        (1, 10, "process exited: cannot set up guest memory 'pc.ram'", NoCapacity),
        (38, 18, "cannot write 'x': No space left on device", NoCapacity),
        (38, 18, "cannot write 'x': Disk quota exceeded", QuotaExceeded),
        (43, 19, "Network not found: no network with matching name 'x'", Rejected),
        (55, 19, "Requested operation is not valid: network 'x' is not active", Transient),
        (55, 18, "Requested operation is not valid: storage pool 'x' is not active", Transient),
        (38, 10, "Cannot access storage file '/x': No such file or directory", Rejected),
        (27, 10, "XML error: unknown type", Rejected),
        (68, 10, "Timed out during operation: cannot acquire state change lock", Transient),
        (1, 10, "something new", Transient),
    ],
)
def test_errors_become_their_class(
    code: int, domain: int, message: str, kind: type[CloudError]
) -> None:
    assert decide_class(code, domain, message) is kind


@pytest.mark.parametrize(
    ("code", "message", "driver"),
    [
        (3, "this function is not supported by the connection driver: {}LookupByName", "network"),
        (3, "this function is not supported by the connection driver: {}Destroy", ""),
        (5, "no connection driver available for qemu:///system", "qemu"),
        (38, "no connection driver available for qemu:///system", ""),
    ],
)
def test_a_part_of_libvirt_that_is_missing_is_named(code: int, message: str, driver: str) -> None:
    said = advice(code, message.format("virNetwork"))
    assert (f"install libvirt-daemon-driver-{driver} " in said) if driver else said == ""


class WithoutDrivers:
    """A libvirtd of Debian 13, with none of the packages that it recommends."""

    def __getattr__(self, name: str) -> Any:
        def refuse(*_: object) -> None:
            called = f"vir{name[0].upper()}{name[1:]}"
            error = libvirt.libvirtError("")
            error.err = (3, 18, f"not supported by the connection driver: {called}", 2, *[None] * 5)
            raise error

        return refuse


def test_a_pool_that_cannot_be_looked_for_is_not_taken_for_one_to_be_made() -> None:
    look = checks._tried("disks", lambda: checks._disks(WithoutDrivers(), Disks(Path("/srv"))))
    assert look.ok is False
    assert "install libvirt-daemon-driver-storage on its host" in look.text


def test_a_mark_is_read_as_it_was_written() -> None:
    for mark in (MARK, replace(MARK, starting=True, going_at=5.5, zone="a", boot=4)):
        assert marks.parse(marks.render(mark)) == mark
        assert marks.parse(marks.render(mark, "springtide")) == mark


@pytest.mark.parametrize("text", ["", "<instance/>", "<x cluster='a'/>", "<instance", "no"])
def test_what_is_no_mark_of_ours_is_nobody(text: str) -> None:
    assert marks.parse(text) is None


@pytest.mark.parametrize(
    ("state", "reason", "seen"),
    [
        (libvirt.VIR_DOMAIN_RUNNING, 0, InstanceState.RUNNING),
        (libvirt.VIR_DOMAIN_PAUSED, libvirt.VIR_DOMAIN_PAUSED_USER, InstanceState.RUNNING),
        (libvirt.VIR_DOMAIN_PAUSED, libvirt.VIR_DOMAIN_PAUSED_IOERROR, InstanceState.BROKEN),
        (libvirt.VIR_DOMAIN_SHUTOFF, 0, InstanceState.STOPPED),
        (libvirt.VIR_DOMAIN_CRASHED, 0, InstanceState.BROKEN),
        (99, 0, InstanceState.PENDING),
    ],
)
def test_states_of_libvirt_become_ours(state: int, reason: int, seen: InstanceState) -> None:
    assert decide_state(state, reason, MARK) is seen
    assert decide_state(state, reason, replace(MARK, going_at=1.0)) is InstanceState.DELETING


def test_a_machine_that_was_never_seen_to_run_is_not_there_yet() -> None:
    begun = replace(MARK, starting=True)
    assert decide_state(libvirt.VIR_DOMAIN_SHUTOFF, 0, begun) is None
    assert decide_state(libvirt.VIR_DOMAIN_RUNNING, 0, begun) is InstanceState.RUNNING


def test_macs_are_the_nodes_own_and_nobody_elses() -> None:
    assert mac_of("blue", "n1") == mac_of("blue", "n1")
    many = {mac_of(cluster, f"n{i}") for cluster in ("blue", "green") for i in range(5000)}
    assert len(many) == 10000
    assert all(int(mac[:2], 16) & 0b11 == 0b10 for mac in many)


def known(entries: dict[str, str]) -> Known:
    return Known(TEN, frozenset({"0.0.0.10"}), entries)


@given(st.sets(st.integers(10, 19)), st.sets(st.integers(10, 19)), st.integers(0, 2**40 - 1))
def test_an_address_is_nobody_elses_or_there_is_none(
    bound: set[int], leased: set[int], number: int
) -> None:
    mac = "06:" + ":".join(f"{byte:02x}" for byte in number.to_bytes(5, "big"))
    entries = {f"e{n}": f"0.0.0.{n}" for n in bound}
    leases = {f"l{n}": f"0.0.0.{n}" for n in leased}
    taken = {*entries.values(), *leases.values(), "0.0.0.10"}
    chosen = decide_address(mac, known(entries), leases)
    assert (chosen is None) == (len(taken) == 10)
    assert chosen is None or (chosen in TEN and chosen not in taken)


def test_a_node_keeps_its_entry_and_prefers_its_lease() -> None:
    mac = mac_of("blue", "n1")
    assert decide_address(mac, known({mac: "0.0.0.12"}), {}) == "0.0.0.12"
    assert decide_address(mac, known({}), {mac: "0.0.0.15"}) == "0.0.0.15"
    assert decide_address(mac, known({"other": "0.0.0.15"}), {mac: "0.0.0.15"}) != "0.0.0.15"


def test_a_machine_has_more_memory_than_its_flavor_promises() -> None:
    assert memory_mib(Flavor(cpus=1, memory=1000)) == 1094


def test_a_definition_takes_options_as_they_stand() -> None:
    wanted = Libvirt(
        kernel="/k", cmdline='"a b"', options={"devices": "<a/><b/>", "cpu": "<cpu mode='x'/>"}
    )
    text = render_domain(MARK, Flavor(cpus=4, memory=512), wanted, Paths("/d", "/s", "/c"))
    assert "<a />" in text
    assert '<cpu mode="x" />' in text
    assert "host-passthrough" not in text
    assert "<kernel>/k</kernel><cmdline>a b</cmdline>" in text
    assert f'xmlns:springtide="{marks.SPACE}"' in text


def test_what_is_said_of_an_image_is_read_as_it_was_written() -> None:
    image = CloudImage("/d/springtide-blue-a.qcow2", "a", "blue", 1700000000.5)
    assert images.parse(images.render(image)) == image
    assert images.parse("{}") is None
    assert images.parse("half") is None


# --- many machines, in libvirt's own driver for tests

COUNT = 250


@pytest.fixture
def many() -> Iterator[Any]:
    """All connections of a process to it see the same machines, as long as one is open."""
    connection = libvirt.open("test:///default")
    for number in range(COUNT):
        os = "<os><type>hvm</type></os>"
        name = f"<name>m{number:03}</name>"
        connection.defineXML(f"<domain type='test'>{name}<memory>1024</memory>{os}</domain>")
    yield connection
    connection.close()


@pytest.mark.accepts("B3")
async def test_many_machines_are_switched_on_listed_and_switched_off(many: Any) -> None:
    wanted = Libvirt(uri="test:///default", nodes="power", grace=0, control_address="10.0.0.1")
    catalog = Catalog({"host": Image(path="/")}, {"default": Flavor(cpus=1, memory=1)})
    power = provider(wanted, catalog, Path("/nowhere"))
    launches = [
        Launch("blue", f"m{number:03}", 1, "general", "host", "default") for number in range(COUNT)
    ]
    began_at = time.monotonic()
    answers = await power.create(launches)
    assert all(isinstance(one, Instance) for one in answers.values())
    listed = await power.list("blue")
    assert [one.state for one in listed] == [InstanceState.RUNNING] * COUNT
    assert await power.list("green") == []
    assert many.lookupByName("test").isActive()
    assert await power.delete(listed) == {}
    assert await power.list("blue") == []
    assert time.monotonic() - began_at < 100
    assert many.lookupByName("test").isActive()
    await asyncio.wait_for(power.close(), 60)
