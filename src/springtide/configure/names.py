"""The names of nodes: what a name server of the cluster's own reads, and what nodes are told.

Pure; `served.names` writes the files and runs the server, `membership` tells nodes `names_of`.
"""

import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import Any

from springtide.ports import Site
from springtide.spec import Cluster
from springtide.spec.clouds import Remote

NAME_PORT = 53
"""Nodes' resolvers know no other."""
USER = "dnsmasq"
_DOMAIN = re.compile("[A-Za-z0-9_][A-Za-z0-9_.-]{0,252}")
CACHED = 1000
"""Other names that are remembered."""


def has_server(spec: Cluster) -> bool:
    """Whether nodes ask a name server on the control host."""
    return spec.naming.kind == "dns" and bool(asking(spec))


def asking(spec: Cluster) -> tuple[str, ...]:
    """Groups whose nodes are told whom to ask for names."""
    return tuple(group for group in spec.groups if "names" in spec.gets(group))


def address_for(spec: Cluster, group: str, site: Site) -> str:
    """The control host's, as the nodes of a group know it."""
    provider = spec.provider_of(group)
    own = provider.control_address if isinstance(provider, Remote) else None
    return own or site.control_address


def names_of(
    spec: Cluster,
    control: Sequence[str],
    address: str,
    addresses: Mapping[str, str],
    domains: Sequence[str],
    servers: Mapping[str, str] = MappingProxyType({}),
) -> dict[str, Any]:
    """As a welcome has them. `control` are the control host's names, `address` is where the node
    reaches it, `addresses` are those of all nodes that are there, `domains` this machine's,
    `servers` further machines that it must know, or this one at the only address that will do.

    Nobody else may tell them at boot. An address leads back to the name that comes first.
    """
    hosts = dict.fromkeys(control, address) | dict(servers)
    if not has_server(spec):
        return {"nameserver": "", "search": [], "hosts": {**addresses, **hosts}}
    found = domains if spec.naming.search is None else spec.naming.search
    search = list(dict.fromkeys((spec.cluster, *found)))
    return {"nameserver": address, "search": search, "hosts": hosts}


def parse_domains(resolver: str) -> list[str]:
    """Those in which short names are looked for, by a resolv.conf: its last word counts."""
    lines = (line.split() for line in resolver.splitlines())
    found = [words[1:] for words in lines if words[:1] in (["search"], ["domain"])]
    return [name for name in found[-1] if _DOMAIN.fullmatch(name)] if found else []


def render_entry(name: str, address: str, cluster: str) -> str:
    """The file of one name. An address leads back to what is named first."""
    return f"{address} {name} {name}.{cluster}\n"


def parse_entry(text: str) -> str:
    """The address in such a file; empty if it has none."""
    return text.partition(" ")[0]


def decide_changes(
    known: Mapping[str, str], wanted: Mapping[str, str]
) -> tuple[dict[str, str], list[str]]:
    """Entries to write, and names to forget."""
    written = {name: address for name, address in wanted.items() if known.get(name) != address}
    return written, [name for name in known if name not in wanted]


DNSMASQ = """\
# Written by Springtide; changes are lost.
user={user}
port={port}
bind-interfaces
{listen}
no-hosts
# Watched: a file that comes, changes or goes is noticed at once.
hostsdir={hosts}
# Names without a domain are those of nodes, and nobody else knows the cluster's domain.
domain-needed
local=/{cluster}/
no-negcache
cache-size={cached}
"""


def render_dnsmasq(cluster: str, hosts: Path, listen: Sequence[str], forward: Sequence[str]) -> str:
    """The configuration of the server."""
    text = DNSMASQ.format(
        user=USER,
        port=NAME_PORT,
        listen="\n".join(f"listen-address={address}" for address in listen),
        hosts=hosts,
        cluster=cluster,
        cached=CACHED,
    )
    others = ["no-resolv", *(f"server={address}" for address in forward)] if forward else []
    return text + "".join(f"{line}\n" for line in others)
