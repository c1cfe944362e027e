"""What `tide check` says of a libvirt: is it reached, and has it all that the file wants."""

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from shutil import which
from typing import Any
from urllib.parse import urlsplit
from xml.etree import ElementTree

import libvirt

from springtide.ports import Check, CloudError, Launch, Need
from springtide.providers.libvirt import marks
from springtide.providers.libvirt.connection import told
from springtide.providers.libvirt.domain import Paths, memory_mib, render_domain
from springtide.providers.libvirt.errors import is_gone, translated
from springtide.providers.libvirt.host import Host
from springtide.providers.libvirt.network import Known, mac_of
from springtide.providers.libvirt.storage import Disks, source

MIB = 1024 * 1024
FORMATS = ("qcow2", "raw")
LEAST_FREE = 1024 * MIB
Look = Callable[[], Check]


def of_created(host: Host, disks: Disks, needs: Sequence[Need]) -> Sequence[Check]:
    reached = _reached(host)
    if not reached.ok:
        return [reached]
    connection = host.connection.get()
    looks: list[tuple[str, Look]] = [
        ("network", lambda: _network(host, connection, needs)),
        ("disks", lambda: _disks(connection, disks)),
        ("emulation", lambda: _emulation(host, connection)),
        ("memory", lambda: _memory(host, connection, needs)),
        ("seed", _seed),
        *((f"image {name}", _image_look(host, connection, name)) for name in _images(needs)),
        *(
            (f"machine {one}", _machine_look(host, connection, one))
            for one in _flavors(host, needs)
        ),
    ]
    return [reached, *(_tried(name, look) for name, look in looks)]


def of_powered(host: Host) -> Sequence[Check]:
    """Which nodes there are is not told; who is missing is seen when it is to start."""
    reached = _reached(host)
    if not reached.ok:
        return [reached]
    connection = host.connection.get()
    return [
        reached,
        _tried("machines", lambda: _machines(connection)),
    ]


def _tried(name: str, look: Look) -> Check:
    try:
        with told():
            return look()
    except CloudError as error:
        return Check(name, False, str(error))


def _reached(host: Host) -> Check:
    uri = host.wanted.uri
    try:
        with told():
            version = host.connection.get().getLibVersion()
    except CloudError as error:
        todo = f"see whether `virsh -c '{uri}' list` works for the user that the daemon runs as"
        return Check("libvirt", False, str(error), todo)
    shown = f"{version // 1_000_000}.{version // 1000 % 1000}.{version % 1000}"
    return Check("libvirt", True, f"{uri} is reached, libvirt {shown}")


def _machine_look(host: Host, connection: Any, flavor: str) -> Look:
    return lambda: _machine(host, connection, flavor)


def _machine(host: Host, connection: Any, flavor: str) -> Check:
    """libvirt is asked what it would run, for which one needs the right to have it run."""
    launch = Launch("check", "check", 1, "", "", flavor)
    mark = marks.made_for(launch, 0.0, "", mac_of("check", "check"), "")
    paths = Paths(*(f"/nonexistent/check.{name}" for name in ("qcow2", "iso", "console")))
    wanted = render_domain(mark, host.catalog.flavors[flavor], host.wanted, paths)
    name = f"machine {flavor}"
    try:
        connection.domainXMLToNative("qemu-argv", wanted, 0)
    except libvirt.libvirtError as error:
        if error.get_error_code() == libvirt.VIR_ERR_NO_SUPPORT:
            return Check(name, None, "this kind of libvirt does not tell")
        todo = (
            "correct `emulate` and `options`, or give the daemon's user the right to manage libvirt"
        )
        return Check(name, False, str(translated(error)), todo)
    return Check(name, True, "libvirt would take its definition, and we may have it run")


def _network(host: Host, connection: Any, needs: Sequence[Need]) -> Check:
    name = host.wanted.network
    network = connection.networkLookupByName(name)
    if not network.isActive():
        todo = f"start it: `virsh net-start {name}`, and `virsh net-autostart {name}`"
        return Check("network", False, f"network {name} is not active", todo)
    known, wanted = host.network.known(connection), sum(need.count for need in needs)
    if known.range is None:
        todo = f"give it an ip/dhcp/range with `virsh net-edit {name}`"
        return Check("network", False, f"network {name} has no range of addresses", todo)
    free = _free(known, host.network.leased(connection))
    text = f"network {name} has {free} of {len(known.range)} addresses free; {wanted} nodes may be"
    todo = f"make its range larger: `virsh net-edit {name}`" if free < wanted else ""
    return Check("network", None if todo else True, text, todo)


def _free(known: Known, leased: dict[str, str]) -> int:
    assert known.range is not None
    taken = {*known.entries.values(), *leased.values(), *known.own}
    return len(known.range) - sum(1 for one in taken if one and one in known.range)


def _disks(connection: Any, disks: Disks) -> Check:
    """Without a pool nothing can be said: a check makes none."""
    directory = str(disks.directory)
    try:
        pool = connection.storagePoolLookupByTargetPath(directory)
    except libvirt.libvirtError as error:
        if not is_gone(error):
            raise
        text = f"{directory} is no pool of libvirt yet; one is made at deploy"
        return Check("disks", None, text)
    _, _, _, free = pool.info()
    text = f"{directory} has {free // MIB} MiB free"
    if free < LEAST_FREE:
        return Check("disks", None, text, "make room there, or name another directory as `disks`")
    return Check("disks", True, text)


def _flavors(host: Host, needs: Sequence[Need]) -> Iterator[str]:
    """Those that are not in the file are the file's error."""
    yield from sorted({one for need in needs for one in need.flavors} & host.catalog.flavors.keys())


def _images(needs: Sequence[Need]) -> Iterator[str]:
    yield from sorted({need.image for need in needs})


def _image_look(host: Host, connection: Any, name: str) -> Look:
    return lambda: _image(host, connection, name)


def _image(host: Host, connection: Any, name: str) -> Check:
    image = host.catalog.images.get(name)
    if image is None or image.path is None:
        return Check(f"image {name}", False, "it has no path", f"set images.{name}.path")
    known = source(connection, str(image.path))
    size = f"{known.format}, {known.capacity // MIB} MiB"
    if known.format not in FORMATS:
        todo = f"convert it: `qemu-img convert -O qcow2 {image.path} …`"
        return Check(f"image {name}", False, f"{image.path} is {size}", todo)
    return Check(f"image {name}", True, f"{image.path} is {size}")


def _emulation(host: Host, connection: Any) -> Check:
    wanted = host.wanted.emulate
    capabilities = ElementTree.fromstring(connection.getCapabilities())  # noqa: S314
    offered = {one.get("type") for one in capabilities.findall("guest/arch/domain")}
    if wanted not in offered:
        todo = "load the module kvm_intel or kvm_amd, or set `emulate: qemu`, which is slow"
        return Check("emulation", False, f"libvirt's host offers no {wanted}", todo)
    here = urlsplit(host.wanted.uri).hostname is None
    if wanted == "kvm" and here and not _has_virtualization(capabilities):
        text = "KVM is offered, but the host's processor shows no vmx or svm"
        return Check("emulation", None, text, "if machines die at start, set `emulate: qemu`")
    return Check("emulation", True, f"machines run with {wanted}")


def _has_virtualization(capabilities: ElementTree.Element) -> bool:
    """Of this machine. libvirt lists only what its processor has beyond its model."""
    named = {one.get("name") for one in capabilities.findall("host/cpu/feature")}
    if named & {"vmx", "svm"}:
        return True
    try:
        words = Path("/proc/cpuinfo").read_text().split()
    except OSError:
        return True
    return "vmx" in words or "svm" in words


def _memory(host: Host, connection: Any, needs: Sequence[Need]) -> Check:
    there = int(connection.getInfo()[1])
    wanted = sum(need.count * _largest(host, need) for need in needs)
    text = f"all nodes at once need {wanted} MiB of memory, the host has {there} MiB"
    if wanted > there:
        todo = "have fewer nodes, or smaller ones: those that do not fit will not start"
        return Check("memory", None, text, todo)
    return Check("memory", True, text)


def _largest(host: Host, need: Need) -> int:
    flavors = [host.catalog.flavors[one] for one in need.flavors if one in host.catalog.flavors]
    return max((memory_mib(flavor) for flavor in flavors), default=0)


def _seed() -> Check:
    if which("genisoimage"):
        return Check("seed", True, "genisoimage is installed here")
    text = "genisoimage, which writes the seeds of machines, is not installed here"
    return Check("seed", False, text, "install the package genisoimage")


def _machines(connection: Any) -> Check:
    count = len(connection.listAllDomains())
    if count:
        return Check("machines", True, f"libvirt has {count} machines")
    return Check("machines", False, "libvirt has no machines", "define one for each node")
