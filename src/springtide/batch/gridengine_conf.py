"""What qconf shows of queues, resources and parallel environments. Pure."""

import re
from collections.abc import Iterable
from dataclasses import dataclass
from math import inf

from springtide.batch.unread import UnreadableError

MOST_DIGITS = 18


@dataclass(frozen=True, slots=True)
class ClusterQueue:
    """A cluster queue, as qconf -sq shows it."""

    name: str
    hosts: tuple[str, ...]
    """Hosts and hostgroups."""
    environments: frozenset[str]
    slots: str
    kinds: frozenset[str] = frozenset()
    resources: frozenset[str] = frozenset()
    """Those that the queue itself has."""
    longest_s: float = inf
    """No job that asks for more (h_rt) may run in it."""
    load_thresholds: str = "NONE"
    """The load from which on a host gets no job."""

    @property
    def group(self) -> str | None:
        """The hostgroup that its hosts come and go in."""
        return next((one for one in self.hosts if one.startswith("@")), None)

    @property
    def own_slots(self) -> frozenset[str]:
        """Hosts with slots of their own."""
        return frozenset(re.findall(r"\[([^@=\]]+)=", self.slots))


@dataclass(frozen=True, slots=True)
class Complex:
    """A resource that jobs can ask for, as qconf -sc shows it."""

    name: str
    type: str
    relation: str
    consumed: bool = False
    """Each slot takes as much of it as was asked for."""


def parse_settings(text: str) -> list[dict[str, str]]:
    """Objects of `key value` lines; those of several objects are apart by blank lines or a key
    that comes again."""
    found: list[dict[str, str]] = []
    for line in text.replace("\\\n", " ").splitlines():
        key, _, value = line.strip().partition(" ")
        if not key or key.startswith("#"):
            continue
        if not found or key in found[-1]:
            found.append({})
        found[-1][key] = value.strip()
    return found


def parse_queues(text: str) -> dict[str, ClusterQueue]:
    """Of `qconf -sq`, which fails if there are none."""
    queues = [_queue(one) for one in parse_settings(text)]
    if not queues:
        raise UnreadableError("qconf -sq shows no queues")
    return {queue.name: queue for queue in queues}


def _queue(settings: dict[str, str]) -> ClusterQueue:
    try:
        return ClusterQueue(
            name=settings["qname"],
            hosts=tuple(_items(settings["hostlist"])),
            environments=frozenset(re.split(r"[\s,\[\]=]+", settings["pe_list"])),
            slots=settings["slots"],
            kinds=frozenset(_items(settings["qtype"])),
            resources=parse_values(settings.get("complex_values", "")),
            longest_s=_longest(settings.get("h_rt", "")),
            load_thresholds=settings.get("load_thresholds", "NONE"),
        )
    except KeyError as error:
        raise UnreadableError(f"a queue without {error}") from None


def parse_complexes(text: str) -> dict[str, Complex]:
    lines = [line.split() for line in text.splitlines() if line and not line.startswith("#")]
    if not lines or any(len(words) < 6 for words in lines):
        raise UnreadableError("qconf -sc lists no resources")
    found = [Complex(w[0], w[2], w[3], w[5] == "YES") for w in lines]
    return {one.name: one for one in found}


def parse_rule(text: str) -> str:
    """How a parallel environment places slots."""
    try:
        return parse_settings(text)[0]["allocation_rule"]
    except (IndexError, KeyError):
        raise UnreadableError("a parallel environment without allocation_rule") from None


def _longest(text: str) -> float:
    """`24:0:0,[old1=INFINITY]` is for hosts that differ, of which the most generous counts."""
    return max(parse_duration(part) for part in re.split(r",\[[^=]*=", text.replace("]", "")))


def parse_duration(text: str) -> float:
    """`90`, `1:30` or `24:0:0` in seconds; whatever is no such thing is no limit.

    Of a number that is longer than any time the first digits will do.
    """
    if not re.fullmatch(r"\d*(?::\d*){0,2}", text) or not any(map(str.isdigit, text)):
        return inf
    seconds = 0
    for part in text.split(":"):
        seconds = seconds * 60 + int(part.lstrip("0")[:MOST_DIGITS] or 0)
    return seconds


def parse_values(text: str) -> frozenset[str]:
    """The names of `a=1,[host=b=2]`."""
    return frozenset(re.findall(r"(?:^|[\s,=\[])([A-Za-z_][\w.-]*)=[^=\]]*(?=[,\]]|$)", text))


def parse_global(text: str) -> frozenset[str]:
    """The resources that the cell has as a whole, from qconf -se global."""
    shown = parse_settings(text)
    if not shown or "complex_values" not in shown[0]:
        raise UnreadableError("qconf -se global shows no complex_values")
    return parse_values(shown[0]["complex_values"])


def _items(text: str) -> Iterable[str]:
    return [one for one in re.split(r"[\s,]+", text) if one and one != "NONE"]
