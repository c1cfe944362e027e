"""limits.yaml of Cluster in the Cloud: how many nodes of which shape there may be, and where.

Oracle's form is `{shape: {domain: n}}`, that of the others `{type: n}`; a file may have both.
"""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

from springtide.nodeset import MAX_RANGE
from springtide.spec import source
from springtide.spec.problems import Problem
from springtide.spec.values import shown

FIRST = "`SHAPE: NUMBER`"
_COUNT = re.compile("[0-9]{1,9}")
_ZONE = re.compile("[A-Za-z0-9_][A-Za-z0-9_.:/-]{0,127}")
_TYPE = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.:/-]{0,127}")


@dataclass(frozen=True, slots=True)
class Limit:
    """So many nodes of a shape, in one availability domain or anywhere."""

    shape: str
    count: int
    zone: str | None = None

    @property
    def path(self) -> source.Path:
        """Where it is in its file."""
        return (self.shape,) if self.zone is None else (self.shape, self.zone)

    def __str__(self) -> str:
        return self.shape if self.zone is None else f"{self.shape} in {self.zone}"


@dataclass(frozen=True, slots=True)
class Limits:
    """A limits.yaml, in the order of the file."""

    document: source.Document
    limits: tuple[Limit, ...]
    problems: tuple[Problem, ...] = ()
    """What is wrong in it; such a limit is none."""

    @property
    def shapes(self) -> tuple[str, ...]:
        return tuple(dict.fromkeys(limit.shape for limit in self.limits))

    @property
    def mixed(self) -> str:
        """What has a domain beside what has none, in words; empty if the file has one form."""
        first = {limit.zone is None: limit for limit in reversed(self.limits)}
        if len(first) < 2:
            return ""
        forms = f"{first[False].shape} has domains, and {first[True].shape} has none"
        return f"{forms}: the file has both forms, and each is taken as it is"


@dataclass(frozen=True, slots=True)
class Control:
    """Where the management node is, which counts too."""

    shape: str
    zone: str | None = None


class NoSuchLimit(ValueError):
    """The management node is nowhere in the file, or could be at several places."""


def parse_limits(text: str, name: str) -> Limits:
    """With every line that is wrong; SpecError if nothing can be read."""
    document = source.read(text, name, FIRST)
    problems = (*document.problems, *_problems(document))
    return Limits(document, tuple(_limits(document.data)), problems)


def _limits(data: Mapping[str, Any]) -> Iterator[Limit]:
    for shape, value in data.items():
        if not _TYPE.fullmatch(shape):
            continue
        if isinstance(value, dict):
            yield from (Limit(shape, _count(count), zone) for zone, count in value.items())
        else:
            yield Limit(shape, _count(value))


def _count(value: Any) -> int:
    return int(value) if _is_count(value) else 0


def _is_count(value: Any) -> bool:
    return isinstance(value, str) and bool(_COUNT.fullmatch(value)) and int(value) <= MAX_RANGE


def _problems(document: source.Document) -> Iterator[Problem]:
    for shape, value in document.data.items():
        if not _TYPE.fullmatch(shape):
            yield document.key((shape,), f"{shown(shape)} is no name of a shape")
        if not isinstance(value, dict):
            yield from _wrong_count(document, (shape,), value)
            continue
        if not value:
            message = f"{shown(shape)} has no availability domain with a limit"
            yield document.value((shape,), message)
        for zone, count in value.items():
            if not _ZONE.fullmatch(zone):
                message = f"{shown(zone)} is no availability domain, such as 1"
                yield document.key((shape, zone), message)
            yield from _wrong_count(document, (shape, zone), count)


def _wrong_count(document: source.Document, path: source.Path, value: Any) -> Iterator[Problem]:
    if not _is_count(value):
        what = f"the limit of {shown(' '.join(map(str, path)))}"
        told = "missing" if value is None else f"not {shown(value)}"
        message = f"{what} must be a whole number from 0 to {MAX_RANGE}; it is {told}"
        yield document.value(path, message)


# --- the management node ---------------------------------------------------------------------


def without(limits: Limits, control: Control) -> Limits:
    """The limits of what is left for nodes, when the management node has its own."""
    index = _place_of(limits, control)
    taken = limits.limits[index]
    if taken.count == 0:
        raise NoSuchLimit(f"the limit of {taken} is 0, but the control node is one")
    rest = list(limits.limits)
    rest[index] = replace(taken, count=taken.count - 1)
    return replace(limits, limits=tuple(rest))


def _place_of(limits: Limits, control: Control) -> int:
    alike = [(i, one) for i, one in enumerate(limits.limits) if one.shape == control.shape]
    found = [i for i, one in alike if control.zone in (None, one.zone)]
    if len(found) == 1:
        return found[0]
    domains = ", ".join(one.zone or "none" for _, one in alike)
    if not alike:
        raise NoSuchLimit(f"there is no limit of {control.shape}, the shape of the control node")
    if found:
        raise NoSuchLimit(f"say with --control-ad where the control node is: {domains}")
    raise NoSuchLimit(f"there is no limit of {control.shape} in {control.zone}; it has {domains}")
