"""Answers for names of nodes that come from outside and cannot be acted on; called by Cluster."""

from collections.abc import Mapping, Sequence

from springtide import nodeset
from springtide.spec.parts import Group
from springtide.spec.problems import UnknownNodes, folded, nearest, short
from springtide.spec.values import shown


def unknown(names: Sequence[str], groups: Mapping[str, Group]) -> UnknownNodes:
    noun = "node" if len(names) == 1 else "nodes"
    near = _nearest(names[0], groups)
    hint = f"; did you mean {near}?" if near else ""
    return UnknownNodes(f"unknown {noun} {_listed(names)}; {_known(groups)}{hint}")


def untouched(names: Sequence[str], group_of: Mapping[str, str]) -> UnknownNodes:
    groups = ", ".join(dict.fromkeys(group_of[name] for name in names))
    return UnknownNodes(
        f"nodes of {groups} are never created, deleted or suspended, for their provider is "
        f"'none'; leave out {folded(names)}"
    )


def _listed(names: Sequence[str]) -> str:
    try:
        return folded(names)
    except nodeset.NodeNameError:
        more = f" and {len(names) - 1} more" if len(names) > 1 else ""
        return f"{shown(names[0])}{more}"


def _known(groups: Mapping[str, Group]) -> str:
    ranges = [f"{group.nodes} ({key})" for key, group in groups.items() if group.nodes]
    return f"the cluster has {short(', '.join(ranges)) or 'no nodes'}"


def _nearest(name: str, groups: Mapping[str, Group]) -> str | None:
    """The name with the same numbers: padded otherwise, or with letters most like these."""
    known = dict.fromkeys(name for group in groups.values() for name in group.names)
    prefix = _prefix(name)
    number = name[len(prefix) :]
    for near in nearest(prefix, dict.fromkeys(map(_prefix, known))):
        for width in range(len(number) + 6):
            candidate = near + (number.lstrip("0") or number[:1]).zfill(width)
            if candidate in known and _digits(near) == _digits(prefix):
                return candidate
    return None


def _prefix(name: str) -> str:
    return name.rstrip("0123456789")


def _digits(text: str) -> list[str]:
    return [character for character in text if character.isdigit()]
