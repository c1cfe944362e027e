"""What this machine serves over NFS, as the files of NFS servers. Pure; `served.nfs` writes them.

Only nodes are served: NFS believes a machine that asks who its users are.
"""

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from ipaddress import IPv4Network, IPv6Network, collapse_addresses, ip_network
from pathlib import Path
from zlib import crc32

from springtide.configure.mounts import READ_ONLY
from springtide.spec import Cluster

NOBODY = 65534
MOST_IDS = 65535
LEASE_S, GRACE_S = 20, 25
"""Nodes that were deleted never come back for their locks, so a restart must not wait long."""
KERNEL = {
    True: "rw,sync,root_squash,no_subtree_check",
    False: "ro,sync,root_squash,no_subtree_check",
}
"""Options by whether nodes may write."""


@dataclass(frozen=True, slots=True, order=True)
class Export:
    """A directory of this machine that nodes mount."""

    directory: str
    writable: bool


@dataclass(frozen=True, slots=True)
class Listening:
    """Where an NFS server of the cluster's own is reached, and where it keeps what it must."""

    address: str
    """0.0.0.0 is all of this machine's."""
    port: int
    memory: Path
    """Who had which file open, for its next start."""


def clients_of(spec: Cluster, addresses: Mapping[str, str]) -> list[str]:
    """Who is served: nodes, unless the file names networks."""
    return [str(net) for net in spec.nfs.clients] or sorted(addresses.values())


def mounting(spec: Cluster) -> tuple[str, ...]:
    """Groups whose nodes mount what this machine serves: as they join, or by Ansible."""
    return tuple(
        group for group in spec.remote if "mounts" in spec.gets(group) or spec.applies("nfs", group)
    )


def exports_of(spec: Cluster) -> tuple[Export, ...]:
    """What nodes elsewhere are to have; each directory once."""
    if not mounting(spec):
        return ()
    written: dict[str, bool] = {}
    for one in spec.shared:
        if one.here:
            writable = READ_ONLY not in one.options
            written[one.directory] = written.get(one.directory, False) or writable
    return tuple(sorted(Export(*each) for each in written.items()))


# The server of the kernel


def export_lines(exports: Sequence[Export], clients: Collection[str]) -> list[str]:
    """One for each directory and node, so that a change is that of some lines."""
    return [
        f"{one.directory} {client}({KERNEL[one.writable]})"
        for one in exports
        for client in sorted(clients)
    ]


def render_exports(cluster: str, lines: Sequence[str]) -> str:
    """A file of /etc/exports.d."""
    head = f"# Written by Springtide for the nodes of the cluster {cluster}; changes are lost."
    return "\n".join([head, *lines]) + "\n"


def parse_exports(text: str) -> list[str]:
    """The lines of such a file."""
    return [line for line in text.splitlines() if line and not line.startswith("#")]


def parse_line(line: str) -> tuple[str, str]:
    """CLIENT:DIRECTORY and the options, as exportfs takes them."""
    directory, _, rest = line.partition(" ")
    client, _, options = rest.partition("(")
    host = f"[{client}]" if ":" in client else client
    return f"{host}:{directory}", options.rstrip(")")


# A server of the cluster's own

GANESHA = """\
# Written by Springtide; changes are lost.
NFS_CORE_PARAM {{
    Protocols = 4;
    Bind_addr = {address};
    NFS_Port = {port};
    Enable_NLM = false;
    Enable_RQUOTA = false;
    # Newer ones want CAP_SYS_RESOURCE otherwise, which root has not in every container.
    Allow_Set_Io_Flusher_Fail = true;
}}
NFSv4 {{
    # Users have the same ids everywhere: no names, which would need a mapping.
    Only_Numeric_Owners = true;
    Lease_Lifetime = {lease};
    Grace_Period = {grace};
    RecoveryBackend = fs;
    RecoveryRoot = "{memory}";
}}
NFS_KRB5 {{ Active_krb5 = false; }}
"""
EXPORT = """\
EXPORT {{
    Export_Id = {id};
    Path = "{directory}";
    Pseudo = "{directory}";
    Protocols = 4;
    Transports = TCP;
    SecType = sys;
    Access_Type = None;
    Squash = Root_Squash;
    # Only root has these: any user of a node could otherwise claim to be another.
    PrivilegedPort = true;
    Anonymous_Uid = {nobody};
    Anonymous_Gid = {nobody};
    # Files change on this machine as well.
    Attr_Expiration_Time = 1;
    FSAL {{ Name = VFS; }}
{client}}}
"""
CLIENT = """\
    CLIENT {{
        Clients = {clients};
        Protocols = 4;
        Access_Type = {access};
        Squash = Root_Squash;
        PrivilegedPort = true;
    }}
"""


def render_ganesha(where: Listening, exports: Sequence[Export], clients: Collection[str]) -> str:
    """Without clients, what it must be restarted for; the rest it reads anew while it runs."""
    head = GANESHA.format(
        address=where.address,
        port=where.port,
        lease=LEASE_S,
        grace=GRACE_S,
        memory=where.memory,
    )
    return head + "".join(_blocks(exports, clients))


def _blocks(exports: Sequence[Export], clients: Collection[str]) -> Iterator[str]:
    taken: set[int] = set()
    for one in exports:
        taken.add(number := export_id(one.directory, taken))
        client = _client(one, clients)
        yield EXPORT.format(id=number, directory=one.directory, nobody=NOBODY, client=client)


def export_id(directory: str, taken: Collection[int]) -> int:
    """The same whatever else is exported: nodes know open files by it."""
    number = crc32(directory.encode()) % MOST_IDS
    while number + 1 in taken:
        number = (number + 1) % MOST_IDS
    return number + 1


def _client(export: Export, clients: Collection[str]) -> str:
    if not clients:
        return ""
    access = "RW" if export.writable else "RO"
    return CLIENT.format(clients=", ".join(folded(clients)), access=access)


def folded(addresses: Collection[str]) -> list[str]:
    """The same addresses as few networks: a server looks through them at every request."""
    networks = [ip_network(address) for address in addresses]
    old = collapse_addresses(one for one in networks if isinstance(one, IPv4Network))
    new = collapse_addresses(one for one in networks if isinstance(one, IPv6Network))
    return [*map(_short, old), *map(_short, new)]


def _short(network: IPv4Network | IPv6Network) -> str:
    single = network.prefixlen == network.max_prefixlen
    return str(network.network_address if single else network)
