"""Names of nodes: which are allowed, how they are sorted, and what Slurm can count."""

import re
from collections.abc import Iterable
from typing import NamedTuple

MAX_NAME = 253  # characters of a name, as in DNS
MAX_LABEL = 63  # characters between two dots, as in DNS
MAX_DIGITS = 18  # digits of a number in a bracket; Slurm counts in 64 bits and garbles 20
MAX_RANGE = 65_536  # Slurm refuses longer ranges, and more numbers in a bracket before the last

ALLOWED = "letters, digits, '-', '_' and '.'"
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]{0,62}(?:\.[A-Za-z0-9_-]{1,63})*")
_NOT_IN_NAME = re.compile(r"[^A-Za-z0-9._-]")
_RUNS = re.compile(rf"([0-9]{{1,{MAX_NAME}}})")


class NodeNameError(ValueError):
    """A node name or host list from outside is wrong; the message says where and why."""


class Span(NamedTuple):
    """The numbers lo..hi, each written with at least `width` digits."""

    lo: int
    hi: int
    width: int

    def __str__(self) -> str:
        first = f"{self.lo:0{self.width}d}"
        return first if self.lo == self.hi else f"{first}-{self.hi:0{self.width}d}"


def validate_name(name: str) -> str:
    """Return the name if it can be a node's name, else say what is wrong with it."""
    if is_name(name):
        return name
    raise NodeNameError(f"node name {shown(name)}: {why_not(name)}")


def is_name(name: str) -> bool:
    return len(name) <= MAX_NAME and _NAME.fullmatch(name) is not None


def why_not(name: str) -> str:
    if not name:
        return "it is empty"
    if len(name) > MAX_NAME:
        return f"it has {len(name)} characters; at most {MAX_NAME} are allowed"
    if bad := _NOT_IN_NAME.search(name):
        return f"character {bad.start() + 1} is {bad[0]!a}; allowed are {ALLOWED}"
    if not name[0].isalnum():
        return f"character 1 is {name[0]!r}; it must be a letter or a digit"
    return _wrong_label(name)


def _wrong_label(name: str) -> str:
    at = 1
    for label in name.split("."):
        if not label:
            return f"a part is missing at character {at}, before or after a dot"
        if len(label) > MAX_LABEL:
            break
        at += len(label) + 1
    return f"the part at character {at} is longer than {MAX_LABEL} characters; shorten it"


def natural_key(name: str) -> tuple[tuple[str | int, ...], int, str]:
    """Sorts n2 before n10, and n1 before n01."""
    parts = _RUNS.split(name)
    return tuple(int(p) if i % 2 else p for i, p in enumerate(parts)), len(name), name


def sort(names: Iterable[str]) -> list[str]:
    return sorted(names, key=natural_key)


def shown(text: str, at: int = 0) -> str:
    """The text near the position, short and with control characters made visible."""
    start = max(0, at - 30)
    shown = ascii(text[start : start + 60])
    return f"{'…' if start else ''}{shown}{'…' if len(text) > start + 60 else ''}"
