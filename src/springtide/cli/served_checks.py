"""What names and shared files need of this machine, for clusters whose nodes are elsewhere.

`checks` makes these beside its own.
"""

import os
import shutil
from collections.abc import Iterable, Iterator, Mapping
from ipaddress import ip_address
from pathlib import Path

from springtide.cli.subject import Check, Subject, search_path
from springtide.configure.exports import exports_of, mounting
from springtide.configure.names import NAME_PORT, address_for, asking, has_server
from springtide.ports import Site, Unavailable
from springtide.served.names import Names
from springtide.served.nfs import Ganesha
from springtide.served.where import addresses_for

NFSD = Path("/proc/fs/nfsd/threads")
"""Has how many threads the kernel's NFS server runs."""
INSTEAD: Mapping[str, str] = {
    "dnsmasq": "run `apt-get install dnsmasq-base`, or set `naming: {kind: hosts}`",
    "ganesha.nfsd": "run `apt-get install nfs-ganesha-vfs`",
    "exportfs": "run `apt-get install nfs-kernel-server`, or set `nfs: {server: ganesha}`",
}


def look_at_served(subject: Subject) -> Iterable[Check]:
    spec = subject.spec
    if has_server(spec):
        yield _startable(subject, "names", "dnsmasq")
        yield from _open(subject)
    if not exports_of(spec):
        return
    if spec.nfs.server == "ganesha":
        yield _startable(subject, "nfs", "ganesha.nfsd")
    elif spec.nfs.server == "kernel":
        yield _kernel()


def _startable(subject: Subject, name: str, program: str) -> Check:
    """Whether it runs or could; who is not root cannot try its port."""
    found, site = _program(name, program), _site(subject)
    if not found.ok or site is None or os.geteuid() != 0:
        return found
    server = Names(subject.spec, "") if program == "dnsmasq" else Ganesha(subject.spec)
    try:
        server.require(site)
    except Unavailable as error:
        text, _, todo = str(error).partition("; ")
        return Check(name, False, text, todo)
    return found


def _open(subject: Subject) -> Iterator[Check]:
    """A name server that all the world can ask helps to attack others."""
    site = _site(subject)
    for address in addresses_for(subject.spec, asking(subject.spec), site) if site else ():
        if ip_address(address).is_global:
            text = f"dnsmasq answers everybody who reaches port {NAME_PORT} of {address}"
            yield Check("names", None, text, "have a firewall let nodes alone reach that port")


def _site(subject: Subject) -> Site | None:
    """As far as file and daemon tell by which address nodes know this machine."""
    spec, told = subject.spec, subject.status and subject.status["control_address"]
    site = Site(told or "")
    groups = [group for group in spec.groups if spec.gets(group) or group in mounting(spec)]
    elsewhere = [address_for(spec, group, site) for group in groups]
    return site if all(elsewhere) or spec.join.listen else None


def _program(name: str, program: str) -> Check:
    if shutil.which(program, path=search_path()) is None:
        return Check(name, False, f"{program} not found", INSTEAD[program])
    return Check(name, True, f"{program} is there")


def _kernel() -> Check:
    found = _program("nfs", "exportfs")
    if found.ok and not _serves():
        todo = "run `systemctl enable --now nfs-server`, or set `nfs: {server: ganesha}`"
        return Check("nfs", False, "the kernel's NFS server does not run", todo)
    return found


def _serves() -> bool:
    try:
        return int(NFSD.read_text()) > 0
    except (OSError, ValueError):
        return False
