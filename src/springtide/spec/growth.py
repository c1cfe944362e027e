"""More names for a group: they go on from its last one. Pure; called by `rewrite`."""

import re
from collections.abc import Collection, Iterator
from itertools import count
from typing import NamedTuple

from springtide import nodeset

_LAST_ITEM = re.compile(r"(?:[^,\[\] ]|\[[^\]]*\])+$")
_LAST_BRACKET = re.compile(r"(.*)\[((?:[^\]]*,)?)([0-9]+)(-[0-9]+)?\]([^\[\]]*)", re.DOTALL)
_LAST_NUMBER = re.compile(rf"(.*?)([0-9]{{1,{nodeset.MAX_DIGITS}}})", re.DOTALL)


class NoNumber(ValueError):
    """The last name of a host list has no number that could go on."""


class _Series(NamedTuple):
    """Names that are alike but for a number from `first` to `last`; `before` are other numbers."""

    head: str
    before: str
    first: str
    last: int
    tail: str

    def names(self, number: int) -> list[str]:
        return nodeset.expand(f"{self.head}{self._digits(number)}{self.tail}")

    def until(self, numbers: Collection[int]) -> str:
        """The host list of the series with these further numbers."""
        mine = range(int(self.first), self.last + 1)
        ranges = nodeset.fold(map(self._digits, (*mine, *numbers))).strip("[]")
        return f"{self.head}[{self.before}{ranges}]{self.tail}"

    def _digits(self, number: int) -> str:
        return f"{number:0{len(self.first)}d}"


def grown(text: str, size: int) -> str:
    """The host list with as many more names as make it this long, or a bit longer.

    `rack[1-2]n[1-6]` grows by two names at a time, for the last range goes on for all racks.
    """
    item = _LAST_ITEM.search(text)
    series = _series(item[0]) if item else None
    if item is None or series is None:
        raise NoNumber(item[0] if item else text)
    names = set(nodeset.expand(text))
    numbers: list[int] = []
    for number in range(series.last + 1, 10**nodeset.MAX_DIGITS):
        if len(names) >= size:
            return text[: item.start()] + series.until(numbers)
        more = series.names(number)
        if names.isdisjoint(more):
            numbers.append(number)
            names.update(more)
    raise NoNumber(item[0])


def _series(item: str) -> _Series | None:
    if found := _LAST_BRACKET.fullmatch(item):
        head, before, first, last, tail = found.groups()
        return _Series(head, before, first, int((last or first).lstrip("-")), tail)
    if found := _LAST_NUMBER.fullmatch(item):
        return _Series(found[1], "", found[2], int(found[2]), "")
    return None


def invented(cluster: str, group: str, size: int, taken: Collection[str]) -> str:
    """Names for a group that has none, of which no other group has any."""
    for prefix in _prefixes(f"{cluster}-{group}"):
        text = f"{prefix}-[1-{size}]" if size > 1 else f"{prefix}-1"
        if not any(name in taken for name in nodeset.expand(text)):
            return text
    raise AssertionError("there is always another number")


def _prefixes(first: str) -> Iterator[str]:
    yield first
    yield from (f"{first}-{number}" for number in count(2))
