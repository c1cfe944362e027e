"""`provider: {kind: libvirt}`."""

from pathlib import Path
from typing import Literal

from springtide.spec.clouds.remote import Remote
from springtide.spec.values import AbsolutePath, Id, Parameter, Seconds, Size, Switch, Word


class Libvirt(Remote):
    """Virtual machines of a libvirt host."""

    kind: Literal["libvirt"] = "libvirt"
    """Images are disk images of that host, by their path. Zones and markets there are none."""
    uri: Id = "qemu:///system"
    """Which libvirt, such as `qemu+ssh://root@host/system`."""
    nodes: Literal["create", "power"] = "create"
    """`create` makes a machine for each node; `power` switches existing ones on and off, whose
    names are the nodes'."""
    network: Word = "default"
    """The libvirt network that nodes are on; it binds each node's address to its MAC."""
    disks: AbsolutePath = Path("/var/lib/libvirt/images")
    """Where disks and seeds of nodes are kept."""
    disk: Size | None = None
    """Of the root disk; left out, the image's."""
    emulate: Literal["kvm", "qemu"] = "kvm"
    """`qemu` needs no hardware support, and is slow."""
    kernel: AbsolutePath | None = None
    """Boot this kernel directly; left out, the disk's own boot loader runs."""
    initrd: AbsolutePath | None = None
    """The initial RAM disk of that kernel."""
    cmdline: Parameter | None = None
    """What that kernel is told."""
    host_keys: Switch = False
    """Whether nodes get their ssh host key from us, in their seed: then it is known before they
    boot. Whoever can read the disks of that host can read it."""
    grace: Seconds = 60.0
    """How long a machine of `nodes: power` may take to shut down; then its power is cut."""
