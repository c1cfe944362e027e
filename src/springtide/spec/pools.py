"""Whether the addresses of groups are those of their nodes, each of one; called by `checks`."""

from collections.abc import Iterator, Mapping

from springtide.spec.findings import KEY, Data, Finding, readable, section
from springtide.spec.problems import suggest
from springtide.spec.values import shown


def check_addresses(data: Data, names: Mapping[str, list[str]]) -> Iterator[Finding]:
    taken: dict[str, str] = {}
    for key, group in readable(data, "groups").items():
        members = names.get(key, [])
        yield from _of_containers(data, key, group)
        for name, address in section(group, "addresses").items():
            loc = ("groups", key, "addresses", name)
            if key in names and name not in members:
                hint = suggest(str(name), members, "its nodes")
                message = f"{shown(name)} has an address, but is no node of group {key!r}; {hint}"
                yield Finding(loc, message, KEY)
            if str(address) in taken:
                yield Finding(loc, f"{shown(name)} and {taken[str(address)]} have one address")
            taken[str(address)] = str(name)


def _of_containers(data: Data, key: str, group: Data) -> Iterator[Finding]:
    """They have addresses of the provider's network, whatever the file says."""
    provider = group.get("provider") or data.get("provider") or {}
    kind = provider.get("kind", "containers") if isinstance(provider, dict) else None
    if kind == "containers" and group.get("addresses"):
        message = f"nodes of group {key!r} are containers, which get addresses of provider.subnet"
        todo = "leave `addresses` out, or give the group another provider, such as {kind: none}"
        yield Finding(("groups", key, "addresses"), f"{message}; {todo}", KEY)
