"""Names of nodes and jobs, as batch systems show them and as their commands are given them. Pure.

Those from outside are checked before a command runs; what is wrong raises Unavailable.
"""

import re
from collections import Counter
from collections.abc import Collection, Iterable, Sequence
from ipaddress import ip_address
from typing import TypeVar

from springtide.batch.running import shortened
from springtide.nodeset import NodeNameError, validate_name
from springtide.ports import Unavailable

T = TypeVar("T")


def node_names(names: Iterable[str]) -> list[str]:
    """Names of nodes, each once."""
    try:
        return list(dict.fromkeys(validate_name(name) for name in names))
    except NodeNameError as error:
        raise Unavailable(str(error)) from None


def matching(pattern: re.Pattern[str], values: Iterable[str], what: str) -> list[str]:
    """Each once, if all can be what they are said to be, such as "a queue of Grid Engine"."""
    listed = list(dict.fromkeys(values))
    for value in listed:
        if not pattern.fullmatch(value):
            raise Unavailable(f"{shortened(value)!r} cannot be {what}")
    return listed


def check_address(name: str, address: str) -> None:
    try:
        ip_address(address)
    except ValueError:
        raise Unavailable(f"{address!r} is no address for node {name}") from None


def batches(values: Sequence[T], at_once: int) -> list[Sequence[T]]:
    """As many as one command is given."""
    return [values[at : at + at_once] for at in range(0, len(values), at_once)]


def named(shown: Iterable[str], names: Collection[str]) -> dict[str, str]:
    """What we call the nodes that are shown: n1.example.org is our n1, if no other node is."""
    listed = list(shown)
    labels = Counter(name.partition(".")[0] for name in listed)

    def ours(name: str) -> str:
        label = name.partition(".")[0]
        return label if name not in names and label in names and labels[label] == 1 else name

    return {name: ours(name) for name in listed}
