"""The definition of a machine that we make. Pure.

`options` of the provider block are pieces of libvirt's own XML: `devices` and `features` are added
to ours, any other is an element of the domain that takes the place of ours.
"""

from dataclasses import dataclass
from math import ceil
from typing import Any
from uuid import UUID, uuid5
from xml.etree import ElementTree
from xml.sax.saxutils import escape, quoteattr

from springtide.ports import Rejected
from springtide.providers.libvirt.marks import PREFIX, Mark, render
from springtide.spec import Flavor
from springtide.spec.clouds import Libvirt

KERNEL_MIB = 64
KERNEL_SHARE = 0.03
"""What a kernel takes for itself, so that the node has what its flavor promises."""
ADDED_TO = ("devices", "features")
IDS = UUID("7d4f2a52-5f0e-4f0e-9a57-0d1f6f2a9c31")
"""The same machine has the same id, whoever defines it."""


@dataclass(frozen=True, slots=True)
class Paths:
    """Of the files of one machine."""

    disk: str
    seed: str
    console: str


def memory_mib(flavor: Flavor) -> int:
    """Of the machine."""
    return flavor.memory + KERNEL_MIB + ceil(flavor.memory * KERNEL_SHARE)


def render_domain(mark: Mark, flavor: Flavor, wanted: Libvirt, paths: Paths) -> str:
    own = f"""\
<domain type={quoteattr(wanted.emulate)}>
  <name>{escape(mark.id)}</name>
  <uuid>{uuid5(IDS, mark.id)}</uuid>
  <title>{escape(f"{mark.node} of {mark.cluster}")}</title>
  <metadata>{render(mark, PREFIX)}</metadata>
  <memory unit='MiB'>{memory_mib(flavor)}</memory>
  <vcpu>{flavor.cpus}</vcpu>
  {_os(flavor, wanted)}
  <features>{"<acpi/>" if flavor.arch == "x86_64" else ""}</features>
  {_cpu(flavor, wanted)}
  <on_poweroff>destroy</on_poweroff>
  <on_reboot>restart</on_reboot>
  <on_crash>destroy</on_crash>
  <devices>
    <disk type='file' device='disk'>
      <driver name='qemu' type='qcow2' discard='unmap'/>
      <source file={quoteattr(paths.disk)}/>
      <target dev='vda' bus='virtio'/>
      <boot order='1'/>
    </disk>
    <disk type='file' device='disk'>
      <driver name='qemu' type='raw'/>
      <source file={quoteattr(paths.seed)}/>
      <target dev='vdb' bus='virtio'/>
      <readonly/>
    </disk>
    <interface type='network'>
      <mac address={quoteattr(mark.mac)}/>
      <source network={quoteattr(wanted.network)}/>
      <model type='virtio'/>
      <rom enabled='no'/>
    </interface>
    <serial type='file'><source path={quoteattr(paths.console)} append='on'/></serial>
    <rng model='virtio'><backend model='random'>/dev/urandom</backend></rng>
    <memballoon model='none'/>
    <controller type='usb' model='none'/>
  </devices>
</domain>
"""
    return with_options(own, wanted.options)


def _os(flavor: Flavor, wanted: Libvirt) -> str:
    machine = "pc" if flavor.arch == "x86_64" else "virt"
    parts = [f"<type arch={quoteattr(flavor.arch)} machine='{machine}'>hvm</type>"]
    if wanted.kernel:
        direct = {"kernel": wanted.kernel, "initrd": wanted.initrd, "cmdline": _cmdline(wanted)}
        parts += [f"<{tag}>{escape(str(what))}</{tag}>" for tag, what in direct.items() if what]
    return f"<os>{''.join(parts)}</os>"


def _cmdline(wanted: Libvirt) -> str:
    """One with spaces is quoted in the file."""
    return (wanted.cmdline or "").strip('"')


def _cpu(flavor: Flavor, wanted: Libvirt) -> str:
    """What this host's processor can, if it is the one that computes."""
    mode = " mode='host-passthrough'" if wanted.emulate == "kvm" else ""
    return f"<cpu{mode}>{_topology(flavor)}</cpu>" if mode or _topology(flavor) else ""


def _topology(flavor: Flavor) -> str:
    sockets, threads = flavor.sockets or 1, flavor.threads or 1
    if flavor.cpus % (sockets * threads):
        return ""
    cores = flavor.cpus // (sockets * threads)
    return f"<topology sockets='{sockets}' cores='{cores}' threads='{threads}'/>"


def with_options(own: str, options: dict[str, Any]) -> str:
    if not options:
        return own
    tree = ElementTree.fromstring(own)  # noqa: S314 - it is ours
    for tag, text in options.items():
        for element in _elements(tag, text):
            _put(tree, tag, element)
    ElementTree.register_namespace(PREFIX, "urn:springtide:instance:1")
    return ElementTree.tostring(tree, encoding="unicode")


def _elements(tag: str, text: object) -> list[ElementTree.Element]:
    try:
        parsed = ElementTree.fromstring(f"<all>{text}</all>")  # noqa: S314 - the admin's own file
    except ElementTree.ParseError as error:
        raise Rejected(f"provider.options.{tag} is no XML ({error}): correct it") from error
    if tag not in ADDED_TO and [one.tag for one in parsed] != [tag]:
        raise Rejected(f"provider.options.{tag} must be one element <{tag}>, not {text!r}")
    return list(parsed)


def _put(tree: ElementTree.Element, tag: str, element: ElementTree.Element) -> None:
    there = tree.find(tag)
    if there is not None and tag in ADDED_TO:
        there.append(element)
        return
    if there is not None:
        tree.remove(there)
    tree.append(element)
