"""A real libvirtd for tests, that knows nothing of the machine's own and leaves nothing behind.

`libvirt()` starts virtlogd and libvirtd in network, mount and pid namespaces of their own (see
`init`), with one network:

    host                           namespace of libvirtd
    tidevtN  10.95.N.2/24 ======== port of bridge tide0, 10.95.N.1/24, dnsmasq
                                   one port of tide0 for each machine, 10.95.N.10 and up

A veth pair is the only way between the two. So a test and the slurmctld that it starts stay in
the host's namespace and bind `control` (10.95.N.2); machines get their addresses by DHCP and
have no route to anything else. N is the first whose link is not there, so that runs side by side
do not meet.

The daemon is reached at `uri`, over a unix socket, from outside the namespaces; paths of disks
are the same inside and outside, but for /run, /var/lib, /var/cache and /var/log. When the
process of the test ends, even by SIGKILL, the namespaces end with their processes, links
and firewall rules; the directory below /var/tmp is removed by the next run (`tests.leftovers`).

Machines must be `<domain type='qemu'>`: KVM may seem to be there where it does not work.
"""

import shutil
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass
from importlib import import_module
from ipaddress import IPv4Address, IPv4Network
from pathlib import Path
from typing import Any

from tests.leftovers import owned

# It has no types, so it is not imported by name.
binding: Any = import_module("libvirt")

NETWORK = "tide"
BRIDGE = "tide0"
LIMIT_S = 200.0
INIT = Path(__file__).with_name("init.py")
FIRST = 10
"""The first address for machines; those before are for bridges and control hosts."""

QEMU = """\
user = "root"
group = "root"
namespaces = []
cgroup_controllers = []
security_driver = "none"
dynamic_ownership = 0
remember_owner = 0
"""
"""Without the last two it would note in the image's files who uses them, and a killed run stays."""
LIBVIRTD = """\
auth_unix_rw = "none"
auth_unix_ro = "none"
"""


@dataclass(frozen=True, slots=True)
class Libvirt:
    """One that runs. `root` is for whatever a test wants to keep no longer than it."""

    root: Path
    subnet: IPv4Network
    link: str
    pid: int
    """A process in its network namespace."""

    @property
    def socket(self) -> Path:
        return self.root / "run" / "libvirt-sock"

    @property
    def uri(self) -> str:
        return f"qemu+unix:///system?socket={self.socket}"

    @property
    def control(self) -> IPv4Address:
        """This side's address, for what machines must reach."""
        return self.subnet[2]

    def processes(self, name: str) -> list[int]:
        """Those of this name that live with it."""
        return [pid for pid in _processes(name) if _namespace(pid) == _namespace(self.pid)]


@contextmanager
def libvirt() -> Iterator[Libvirt]:
    """A libvirtd with a network, for the length of the block or of the process."""
    root = Path(tempfile.mkdtemp(prefix="tide-", dir="/var/tmp"))
    root.chmod(0o755)
    with ExitStack() as stack:
        stack.enter_context(owned(root))
        stack.callback(shutil.rmtree, root)  # while it is ours: others would remove it as well
        _write_configuration(root / "etc")
        pid = stack.enter_context(_namespaces(root))
        link, subnet = stack.enter_context(_linked(pid))
        running = Libvirt(root, subnet, link, pid)
        try:
            _start_network(running)
            yield running
        except BaseException:
            _show(root)
            raise


@contextmanager
def connected(running: Libvirt) -> Iterator[Any]:
    connection = binding.open(running.uri)
    try:
        yield connection
    finally:
        connection.close()


def _write_configuration(directory: Path) -> None:
    directory.mkdir()
    (directory / "qemu.conf").write_text(QEMU)
    (directory / "libvirtd.conf").write_text(LIBVIRTD)


@contextmanager
def _namespaces(root: Path) -> Iterator[int]:
    """The process that made them; it lives in all but the pid namespace."""
    command = ["unshare", "--net", "--mount", "--pid", "--fork", "--kill-child", "--mount-proc"]
    init = subprocess.Popen(
        [*command, sys.executable, "-I", str(INIT), str(root)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        env={"PATH": "/usr/sbin:/usr/bin:/sbin:/bin"},
    )
    with init:
        assert init.stdin is not None
        assert init.stdout is not None
        try:
            assert init.stdout.readline() == b"started\n", "libvirt's namespaces were not made"
            yield init.pid
        finally:
            init.stdin.close()
            init.wait(LIMIT_S)


@contextmanager
def _linked(pid: int) -> Iterator[tuple[str, IPv4Network]]:
    """The pair between the namespaces; the other end is called like this one."""
    link, subnet = _add_link(pid)
    try:
        _run("ip", "address", "add", f"{subnet[2]}/{subnet.prefixlen}", "dev", link)
        _run("ip", "link", "set", link, "up")
        yield link, subnet
    finally:
        subprocess.run(["ip", "link", "delete", link], check=False, capture_output=True)


def _add_link(pid: int) -> tuple[str, IPv4Network]:
    for number in range(256):
        link = f"tidevt{number}"
        command = ["ip", "link", "add", link, "type", "veth", "peer", link, "netns", str(pid)]
        done = subprocess.run(command, check=False, capture_output=True, text=True)
        if done.returncode == 0:
            return link, IPv4Network(f"10.95.{number}.0/24")
        assert "exists" in done.stderr, done.stderr
    raise AssertionError("no link tidevt0 to tidevt255 is free: see `ip link`")


def _start_network(running: Libvirt) -> None:
    _wait_for_daemons(running)
    with connected(running) as connection:
        connection.networkDefineXML(render_network(running.subnet)).create()
    inside = ["nsenter", f"--net=/proc/{running.pid}/ns/net"]
    _run(*inside, "ip", "link", "set", running.link, "master", BRIDGE, "up")


def _listens(path: Path) -> bool:
    """A socket is there a moment before it can be connected to."""
    with closing(socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)) as trial:
        try:
            trial.connect(str(path))
        except OSError:
            return False
    return True


def render_network(subnet: IPv4Network) -> str:
    """No forwarding and no names. Without `no-ping` dnsmasq asks 3 s for who has an address."""
    return f"""\
<network xmlns:dnsmasq='http://libvirt.org/schemas/network/dnsmasq/1.0'>
  <name>{NETWORK}</name>
  <bridge name='{BRIDGE}' stp='off' delay='0'/>
  <dns enable='no'/>
  <ip address='{subnet[1]}' netmask='{subnet.netmask}'>
    <dhcp><range start='{subnet[FIRST]}' end='{subnet[-2]}'/></dhcp>
  </ip>
  <dnsmasq:options><dnsmasq:option value='no-ping'/></dnsmasq:options>
</network>
"""


def _wait_for_daemons(running: Libvirt) -> None:
    """Both: libvirtd starts no machine whose output virtlogd does not take."""
    end = time.monotonic() + LIMIT_S
    for path in (running.socket.with_name("virtlogd-sock"), running.socket):
        while not _listens(path):
            assert time.monotonic() < end, f"nobody listens at {path} within {LIMIT_S} s"
            time.sleep(0.02)


def _processes(name: str) -> Iterator[int]:
    """Looked at one by one: a process may end at any moment."""
    for path in Path("/proc").glob("[0-9]*"):
        try:
            if (path / "comm").read_text(errors="replace").startswith(name[:15]):
                yield int(path.name)
        except OSError:
            continue


def _namespace(pid: int) -> str:
    try:
        return str(Path(f"/proc/{pid}/ns/net").readlink())
    except OSError:
        return f"none: {pid} has ended"


def _run(*command: str) -> None:
    subprocess.run(command, check=True)


def _show(root: Path) -> None:
    """What a failed test leaves to read."""
    for path in sorted((root / "log").rglob("*")):
        if path.is_file():
            print(
                f"=== {path.name}", *path.read_text(errors="replace").splitlines()[-40:], sep="\n"
            )
