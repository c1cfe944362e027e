"""Addresses of nodes: libvirt's network gives each MAC its own, by an entry of its DHCP server.

libvirt refuses an entry whose address or MAC another one has. So clusters that share a
network, and daemons that know nothing of each other, cannot take the same address.
"""

import hashlib
import threading
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from ipaddress import IPv4Address
from typing import Any
from xml.etree import ElementTree
from xml.sax.saxutils import quoteattr

import libvirt

from springtide.ports import NoCapacity, Rejected, Transient
from springtide.providers.libvirt.connection import told
from springtide.providers.libvirt.errors import is_gone

BOTH = libvirt.VIR_NETWORK_UPDATE_AFFECT_LIVE | libvirt.VIR_NETWORK_UPDATE_AFFECT_CONFIG
TRIES = 20
"""Others may take the address that we have just chosen, but not for ever."""
_TAKEN = frozenset({libvirt.VIR_ERR_OPERATION_INVALID, libvirt.VIR_ERR_OPERATION_FAILED})


@dataclass(frozen=True, slots=True)
class Range:
    """The addresses that the DHCP server may give."""

    first: int
    last: int

    def __len__(self) -> int:
        return self.last - self.first + 1

    def __contains__(self, address: str) -> bool:
        return self.first <= int(IPv4Address(address)) <= self.last

    def begun_at(self, offset: int) -> Iterator[str]:
        """All of them, from somewhere in the middle."""
        for step in range(len(self)):
            yield str(IPv4Address(self.first + (offset + step) % len(self)))


@dataclass(frozen=True, slots=True)
class Known:
    """What a network's definition says."""

    range: Range | None
    own: frozenset[str]
    """Its host's addresses."""
    entries: Mapping[str, str]
    """Addresses by MAC."""


def parse(text: str) -> Known:
    tree = ElementTree.fromstring(text)  # noqa: S314 - libvirt has made it
    found = tree.find("ip/dhcp/range")
    hosts = tree.findall("ip/dhcp/host")
    return Known(
        range=_range(found) if found is not None else None,
        own=frozenset(ip.get("address", "") for ip in tree.findall("ip")),
        entries={h.get("mac", "").lower(): h.get("ip", "") for h in hosts if h.get("mac")},
    )


def _range(found: ElementTree.Element) -> Range | None:
    try:
        first, last = (IPv4Address(found.get(end, "")) for end in ("start", "end"))
    except ValueError:
        return None
    return Range(int(first), int(last))


def mac_of(cluster: str, node: str) -> str:
    """Of a node, for ever. `06` is locally administered, and nobody's who makes hardware."""
    seen = hashlib.sha256(f"{cluster}/{node}".encode()).digest()
    return ":".join(f"{byte:02x}" for byte in (0x06, *seen[:5]))


def decide_address(mac: str, known: Known, leased: Mapping[str, str]) -> str | None:
    """Its own entry, its own lease, or else one that nobody has; None if there is none.

    Which one is tried first depends on the MAC: daemons side by side rarely meet.
    """
    assert known.range is not None
    if mac in known.entries:
        return known.entries[mac]
    others = {address for other, address in leased.items() if other != mac}
    taken = {*known.entries.values(), *known.own, *others}
    if (mine := leased.get(mac)) and mine not in taken and mine in known.range:
        return mine
    offset = int(mac.replace(":", ""), 16) % len(known.range)
    return next((one for one in known.range.begun_at(offset) if one not in taken), None)


class Network:
    """One network of a libvirt."""

    def __init__(self, name: str) -> None:
        self.name = name
        self._lock = threading.Lock()

    def known(self, connection: Any) -> Known:
        with told(f"network {self.name}"):
            return parse(self._found(connection).XMLDesc())

    def leased(self, connection: Any) -> dict[str, str]:
        """Addresses by MAC, as its DHCP server gave them."""
        try:
            leases = self._found(connection).DHCPLeases()
        except libvirt.libvirtError as error:
            if error.get_error_code() == libvirt.VIR_ERR_NO_SUPPORT:
                return {}
            raise
        return {one["mac"].lower(): one["ipaddr"] for one in leases if one["mac"]}

    def bind(self, connection: Any, mac: str) -> str:
        """An address for this MAC, and no other; again is the same."""
        with self._lock, told(f"network {self.name}"):
            for _ in range(TRIES):
                known = self.known(connection)
                if mac in known.entries:
                    return known.entries[mac]
                address = self._chosen(mac, known, self.leased(connection))
                if self._add(connection, mac, address):
                    return address
        raise Transient(f"network {self.name}: every address that was chosen was taken just then")

    def release(self, connection: Any, mac: str) -> None:
        """Gone already is fine."""
        with self._lock, told(f"network {self.name}"):
            try:
                network = self._found(connection)
            except libvirt.libvirtError as error:
                if is_gone(error):
                    return
                raise
            address = parse(network.XMLDesc()).entries.get(mac)
            if address is not None:
                command = libvirt.VIR_NETWORK_UPDATE_COMMAND_DELETE
                self._update(network, command, _entry(mac, address))

    def _chosen(self, mac: str, known: Known, leased: Mapping[str, str]) -> str:
        if known.range is None:
            raise Rejected(
                f"network {self.name} has no range of addresses (ip/dhcp/range): give it one with "
                f"`virsh net-edit {self.name}`, or name another network"
            )
        if (address := decide_address(mac, known, leased)) is None:
            raise NoCapacity(
                f"network {self.name}: all {len(known.range)} addresses are taken; make its range "
                f"larger with `virsh net-edit {self.name}`"
            )
        return address

    def _add(self, connection: Any, mac: str, address: str) -> bool:
        """False if the address is somebody else's by now."""
        try:
            command = libvirt.VIR_NETWORK_UPDATE_COMMAND_ADD_LAST
            self._update(self._found(connection), command, _entry(mac, address))
        except libvirt.libvirtError as error:
            if error.get_error_code() in _TAKEN and "existing dhcp host" in str(error):
                return False
            raise
        return True

    def _update(self, network: Any, command: int, entry: str) -> None:
        """A transient network has no definition to keep it in."""
        flags = BOTH if network.isPersistent() else libvirt.VIR_NETWORK_UPDATE_AFFECT_LIVE
        network.update(command, libvirt.VIR_NETWORK_SECTION_IP_DHCP_HOST, -1, entry, flags)

    def _found(self, connection: Any) -> Any:
        return connection.networkLookupByName(self.name)


def _entry(mac: str, address: str) -> str:
    return f"<host mac={quoteattr(mac)} ip={quoteattr(address)}/>"
