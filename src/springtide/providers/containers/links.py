"""Network links of this machine: what ours are called, what is there, and `ip` to change it.

The site (its bridge) and the instances (their ports on it) both come here.
"""

import hashlib
import json
import os
import subprocess
import time
from collections.abc import Iterable
from ipaddress import IPv4Address, IPv4Network
from pathlib import Path
from typing import NamedTuple

from springtide.ports import Transient

LINKS = Path("/sys/class/net")
BRIDGE_PREFIX = "tide-"
PORT_PREFIX = "tv-"
IP_LIMIT_S = 30.0
UNPLUG_LIMIT_S = 2.0
PAUSE_S = 0.002


class Used(NamedTuple):
    """A network that a link of this machine is in."""

    link: str
    network: IPv4Network


def bridge_name(cluster: str) -> str:
    return BRIDGE_PREFIX + _digest(cluster, 8)


def port_name(cluster: str, node: str) -> str:
    """The host's end of a node's cable: the kernel takes 15 characters."""
    return PORT_PREFIX + _digest(f"{cluster}/{node}", 12)


def hardware_address(address: IPv4Address) -> str:
    """The same for the same address, so that what others remember stays right."""
    return "02:54:" + address.packed.hex(":")


def exists(link: str) -> bool:
    return (LINKS / link).exists()


def is_loose(port: str) -> bool:
    """Whether it is there, but on no bridge."""
    return exists(port) and not (LINKS / port / "master").exists()


def bridges() -> list[str]:
    """The bridges of all clusters on this machine."""
    return sorted(path.name for path in LINKS.glob(f"{BRIDGE_PREFIX}*"))


def ports(bridge: str) -> list[str]:
    """Our ports on a bridge."""
    return [path.name for path in (LINKS / bridge / "brif").glob(f"{PORT_PREFIX}*")]


def alias(link: str) -> str:
    """The remark on a link, empty if there is none."""
    try:
        return (LINKS / link / "ifalias").read_text().strip()
    except OSError:
        return ""


def change(commands: Iterable[str]) -> None:
    """Run commands of `ip` in one go, in order, up to the first that fails."""
    _ip(["-batch", "-"], "\n".join(commands) + "\n")


def remove(link: str) -> None:
    """Gone already is fine, also when it goes while we ask."""
    try:
        change([f"link delete {link}"])
    except Transient:
        if exists(link):
            raise


def unplug(port: str) -> None:
    """The kernel does it soon after a node's last process; we do if it does not."""
    end = time.monotonic() + UNPLUG_LIMIT_S
    while exists(port):
        if time.monotonic() > end:
            remove(port)
        time.sleep(PAUSE_S)


def used() -> list[Used]:
    return parse_addresses(_ip(["-json", "-4", "address", "show"]))


def parse_addresses(text: str) -> list[Used]:
    """From the JSON of `ip address`."""
    return [
        Used(link["ifname"], IPv4Network((info["local"], info["prefixlen"]), strict=False))
        for link in json.loads(text or "[]")
        if "ifname" in link
        for info in link.get("addr_info", ())
    ]


def _ip(arguments: list[str], commands: str = "") -> str:
    done = subprocess.run(
        ["ip", *arguments],
        input=commands,
        capture_output=True,
        text=True,
        timeout=IP_LIMIT_S,
        env={"PATH": f"{os.environ.get('PATH', '')}:/usr/sbin:/sbin"},
    )
    if done.returncode:
        lines = done.stderr.strip().splitlines() or [f"exit status {done.returncode}"]
        raise Transient(f"ip: {lines[0]} (while asked to: {commands.strip() or arguments})")
    return done.stdout


def _digest(text: str, length: int) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:length]
