"""Machines of tests: programs with processes, mounts, a name and a network of their own.

Each is at an address of its own on the bridge of its test, as nodes are on a real network. On one
loopback a batch system would hear from all of them at one address, take it for theirs, and send
to it what is for others.
"""

import json
import os
import signal
import subprocess
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from ipaddress import IPv4Address, IPv4Network
from pathlib import Path
from random import SystemRandom
from typing import IO, Any

from springtide.providers.containers import links
from tests.e2e.real import LIMIT_S, until

POOL = IPv4Network("10.75.0.0/16")
"""Where no cluster is that chooses its network by itself."""
SPACES = ("--net", "--mount", "--pid", "--uts", "--fork", "--kill-child", "--mount-proc")
SET_UP = """\
name=$1 address=$2 control=$3 bridge=$4 hardware=$5
shift 5
# The cable is made on the side of the bridge, whose network is the standard input.
exec 3</proc/self/ns/net
nsenter --net=/proc/self/fd/0 ip link add master "$bridge" up type veth \\
    peer name eth0 address "$hardware" netns /proc/self/fd/3
exec 3<&- </dev/null
ip link set lo up
ip address add "$address/24" dev eth0
ip link set eth0 up
hostname "$name"
mount -t tmpfs tmpfs /run
printf '127.0.0.1 localhost\\n%s %s\\n%s %s\\n' "$address" "$name" $control >/run/hosts
mount --bind /run/hosts /etc/hosts
mkdir /run/spool
mount --bind /run/spool /var/spool
exec "$@"
"""


@dataclass(frozen=True, slots=True)
class Network:
    """A bridge of this machine, with room for machines of a test."""

    bridge: str
    subnet: IPv4Network

    @property
    def control(self) -> str:
        """Where this machine is on it."""
        return str(self.subnet[1])

    def address(self, number: int) -> str:
        """Of a machine: they count from 1."""
        return str(self.subnet[1 + number])


@contextmanager
def network(root: Path) -> Iterator[Network]:
    """One for the length of the block; of a run that was killed, the next one removes it."""
    bridge = f"tlab-{os.urandom(4).hex()}"
    (root / "site.json").write_text(json.dumps({"bridge": bridge}))
    try:
        links.change([f"link add {bridge} type bridge mcast_snooping 0", f"link set {bridge} up"])
        yield Network(bridge, _claim(bridge))
    finally:
        links.remove(bridge)


def _claim(bridge: str) -> IPv4Network:
    """By chance, for runs side by side. Who chooses the same at the same time sees it as well,
    and both choose again."""
    for block in SystemRandom().sample(list(POOL.subnets(new_prefix=24)), 256):
        if _is_taken(block, bridge):
            continue
        address = f"{block[1]}/24 dev {bridge}"
        links.change([f"address add {address}"])
        if not _is_taken(block, bridge):
            return block
        links.change([f"address delete {address}"])
    raise AssertionError(f"no part of {POOL} is free")


def unused() -> IPv4Network:
    """A block that is nobody's now, for a provider that makes its bridge by itself."""
    blocks = SystemRandom().sample(list(POOL.subnets(new_prefix=24)), 256)
    return next(block for block in blocks if not _is_taken(block, by_others_than=""))


def _is_taken(block: IPv4Network, by_others_than: str) -> bool:
    used = (one.network for one in links.used() if one.link != by_others_than)
    return any(block.overlaps(other) for other in used)


def start(
    network: Network, name: str, address: str, command: Sequence[str | Path], log: IO[Any]
) -> "subprocess.Popen[bytes]":
    """A machine that runs one command; `cut` ends it."""
    control = f"{network.control} {os.uname().nodename}"
    hardware = links.hardware_address(IPv4Address(address))
    known = (name, address, control, network.bridge, hardware)
    with open("/proc/self/ns/net", "rb") as here:  # noqa: PTH123 - no file to read
        return subprocess.Popen(
            ["unshare", *SPACES, "sh", "-ec", SET_UP, "sh", *known, *command],
            stdin=here,
            stdout=log,
            stderr=log,
            start_new_session=True,
        )


def cut(process: "subprocess.Popen[bytes]") -> None:
    """Have a machine lose its power: all that runs on it ends at once, and has when this returns.

    Its first process is killed, which ends only after all others of its space, and unshare only
    after that. With unshare killed instead, some might go on for a while.
    """
    until(lambda: process.poll() is not None or _first(process))
    for pid in _first(process):
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
    process.wait(timeout=LIMIT_S)


def _first(process: "subprocess.Popen[bytes]") -> list[int]:
    """The child of unshare; none before it has one, or when it has ended."""
    if process.poll() is not None:
        return []
    listed = Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text()
    return [int(pid) for pid in listed.split()]
