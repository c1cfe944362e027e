"""What our side and a program say to each other: a line for each node. Pure.

A program reads      NODE GENERATION IMAGE FLAVOR ZONE MARKET    ('-' is none)
create, delete and reboot print, if they have something to say of a node,
                     NODE ok [ADDRESS]
                     NODE full|quota|denied|busy|wrong WHY
list prints          NODE on|off|starting|stopping|broken [ADDRESS]
"""

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from ipaddress import IPv4Address

from springtide.ports import (
    CloudError,
    Denied,
    Instance,
    InstanceState,
    Launch,
    NoCapacity,
    QuotaExceeded,
    Rejected,
    Transient,
)

REFUSALS: Mapping[str, type[CloudError]] = {
    "full": NoCapacity,
    "quota": QuotaExceeded,
    "denied": Denied,
    "busy": Transient,
    "wrong": Rejected,
}
STATES: Mapping[str, InstanceState | None] = {
    "on": InstanceState.RUNNING,
    "starting": InstanceState.PENDING,
    "stopping": InstanceState.DELETING,
    "broken": InstanceState.BROKEN,
    "off": None,
}


@dataclass(frozen=True, slots=True)
class Seen:
    """A machine as the program that lists them says; a state of None is off."""

    state: InstanceState | None
    address: str | None = None


def render_launches(launches: Iterable[Launch], images: Mapping[str, str]) -> str:
    """Images in the words of the site, if it has any for them."""
    return "".join(
        " ".join(
            (
                launch.node,
                str(launch.generation),
                images.get(launch.image, launch.image),
                launch.flavor,
                launch.zone or "-",
                launch.market or "-",
            )
        )
        + "\n"
        for launch in launches
    )


def render_instances(instances: Iterable[Instance]) -> str:
    return "".join(f"{one.node} {one.generation}\n" for one in instances)


def parse_answers(output: str, nodes: Collection[str]) -> dict[str, str | CloudError | None]:
    """By node: an address, nothing but that it is done, or why it is not; other lines are talk."""
    answers: dict[str, str | CloudError | None] = {}
    for words in map(str.split, output.splitlines()):
        if len(words) < 2 or words[0] not in nodes:
            continue
        node, word, *rest = words
        if word == "ok":
            answers[node] = _address(rest)
        elif word in REFUSALS:
            answers[node] = REFUSALS[word](" ".join([f"{node}:", *(rest or ["no reason given"])]))
    return answers


def parse_list(output: str) -> dict[str, Seen]:
    """A line that is not understood is an error: who is not listed would be taken to be off."""
    seen: dict[str, Seen] = {}
    for line in filter(str.strip, output.splitlines()):
        words = line.split()
        if len(words) < 2 or words[1] not in STATES:
            known = ", ".join(STATES)
            raise Transient(
                f"the list has the line {line[:80]!r}: it must be NODE and one of {known}"
            )
        seen[words[0]] = Seen(STATES[words[1]], _address(words[2:]))
    return seen


def _address(words: list[str]) -> str | None:
    """What is no address that Slurm could use is talk."""
    try:
        return str(IPv4Address(words[0])) if words else None
    except ValueError:
        return None
