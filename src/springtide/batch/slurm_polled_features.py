"""The features that a job of a Slurm that is read asks for (--constraint). Pure.

Slurm reads them from left to right, and `&` binds no tighter than `|`: a|b&c is (a|b)&c. What
cannot be read asks for nothing here, so that no job is said to be impossible that is not.
"""

import re
from dataclasses import dataclass
from functools import lru_cache

from springtide.batch.wants import MOST_WAYS, Ways

_COUNTED = re.compile(r"(\([^()]*\)|[^*&|,()\[\]]+)\*(\d{1,9})")
_BRACKETS = re.compile(r"\[([^\[\]]*)\]")
_TOKENS = re.compile(r"[&|,()\[\]]|[^&|,()\[\]]+")

ANY: Ways = (frozenset(),)


@dataclass(frozen=True, slots=True)
class Featured:
    """So many nodes, in the words of `ports.Chunk`."""

    count: int
    features: frozenset[str] = frozenset()
    ways: Ways = ()
    alike: bool = False


@lru_cache(maxsize=1024)
def parse_featured(text: str, count: int) -> tuple[Featured, ...]:
    """Of a job of so many nodes. Beside features that some of its nodes must have (`a*2`), those
    that all must have are passed over: Slurm takes such jobs, and does not say what it means."""
    if not text:
        return (Featured(count),)
    if counted := _COUNTED.findall(text):
        if "|" in _COUNTED.sub("", text):
            return (Featured(count),)
        some = [_featured(int(number), _ways(words)) for words, number in counted]
        rest = count - sum(one.count for one in some)
        return (*some, *([Featured(rest)] if rest > 0 else []))
    return (_featured(count, _ways(text), alike=_is_alike(text)),)


def _featured(count: int, ways: Ways, *, alike: bool = False) -> Featured:
    if len(ways) == 1:
        return Featured(count, ways[0])
    return Featured(count, ways=ways, alike=alike)


def _is_alike(text: str) -> bool:
    """[a|b] is of one kind for all nodes; beside other alternatives that cannot be said here."""
    found = _BRACKETS.findall(text)
    return len(found) == 1 and "|" in found[0] and "|" not in _BRACKETS.sub("", text)


def _ways(text: str) -> Ways:
    try:
        return ANY if "*" in text else _Expression(text).ways()
    except (IndexError, ValueError):
        return ANY


class _Expression:
    """Raises ValueError or IndexError for what it is not."""

    def __init__(self, text: str) -> None:
        self._words = [word for word in map(str.strip, _TOKENS.findall(text)) if word][::-1]

    def ways(self) -> Ways:
        found = self._expression()
        if self._words:
            raise ValueError(self._words)
        return found

    def _expression(self) -> Ways:
        found = self._term()
        while self._words and self._words[-1] in "&|,":
            either, other = self._words.pop() == "|", self._term()
            pairs = (one | two for one in found for two in other)
            found = tuple(dict.fromkeys((*found, *other) if either else pairs))
            if len(found) > MOST_WAYS:
                raise ValueError(len(found))
        return found

    def _term(self) -> Ways:
        word = self._words.pop()
        if word not in ("(", "["):
            if word in "&|,)]":
                raise ValueError(word)
            return (frozenset({word}),)
        found = self._expression()
        if self._words.pop() != {"(": ")", "[": "]"}[word]:
            raise ValueError(word)
        return found
