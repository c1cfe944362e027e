"""What can be wrong with a cluster file, and with names of nodes that come from outside."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from itertools import islice

from springtide import nodeset

MAX_LIST = 200  # characters of a list in a message
MAX_COMPARED = 200  # comparing words is slow, and an answer is wanted at once


@dataclass(frozen=True, slots=True)
class Problem:
    """One thing wrong in a file; line and column count from 1, None where there is no place."""

    file: str
    line: int | None
    column: int | None
    message: str

    def __str__(self) -> str:
        place = self.file if self.line is None else f"{self.file}:{self.line}:{self.column}"
        return f"{place}: {self.message}"

    @property
    def order(self) -> tuple[int, int]:
        return self.line or 0, self.column or 0


class SpecError(Exception):
    """A cluster file that cannot be used, with everything that is wrong in it."""

    def __init__(self, problems: list[Problem]) -> None:
        self.problems = sorted(dict.fromkeys(problems), key=lambda problem: problem.order)
        super().__init__("\n".join(map(str, self.problems)))


class UnknownGroup(SpecError):
    """A group from outside that the file does not have."""


class UnknownNodes(ValueError):
    """Names from outside that are none of ours, or of machines that we never touch."""


def suggest(wrong: str, valid: Sequence[str], what: str) -> str:
    """The valid word nearest to the wrong one, or all of them."""
    if near := nearest(wrong, valid):
        return f"did you mean {near[0]!r}?"
    return f"{what} are {short(', '.join(valid))}" if valid else f"there are no {what}"


def nearest(wrong: str, valid: Iterable[str]) -> list[str]:
    """The valid words most like the wrong one, the nearest first."""
    return get_close_matches(wrong[:60], islice(valid, MAX_COMPARED), cutoff=0.65)


def folded(names: Iterable[str]) -> str:
    """The names as a host list short enough for a message."""
    return short(nodeset.fold(names))


def short(text: str) -> str:
    return text if len(text) <= MAX_LIST else f"{text[:MAX_LIST]}…"
