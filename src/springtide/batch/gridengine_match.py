"""Names against the patterns in which jobs of Grid Engine ask for queues and hosts. Pure."""

import re
from fnmatch import fnmatchcase

from springtide.batch.unread import UnreadableError

MOST_LONG, MOST_WORD, MOST_DEEP = 8192, 256, 20
"""Characters of a pattern and of each word, which no name has more of, and parentheses within each
other: a job's owner may write any, and some take long to compare."""
_PATTERN = re.compile(r"[*?\[|&!()]")


def matches(value: str, pattern: str) -> bool:
    """As Grid Engine compares: shell patterns, with `!`, `&`, `|` and parentheses between them.

    Raises UnreadableError.
    """
    if not _PATTERN.search(pattern):
        return value == pattern
    return _Expression(value, pattern).holds()


def is_readable(pattern: str) -> bool:
    try:
        matches("", pattern)
    except UnreadableError:
        return False
    return True


def matches_host(host: str, pattern: str) -> bool:
    """Of hosts the domain may be left out."""
    short = not _PATTERN.search(pattern) and host == pattern.partition(".")[0]
    return short or matches(host, pattern)


def hosts_of(pattern: str, hosts: frozenset[str]) -> frozenset[str]:
    """Those that it means; a name is found without looking at all."""
    if not _PATTERN.search(pattern):
        return hosts & {pattern, pattern.partition(".")[0]}
    return frozenset(host for host in hosts if matches(host, pattern))


class _Expression:
    """One comparison: alternatives of conjunctions of patterns that may be negated."""

    def __init__(self, value: str, pattern: str) -> None:
        if len(pattern) > MOST_LONG:
            raise UnreadableError(f"a pattern of {len(pattern)} characters")
        self._value = value
        self._words = re.findall(r"[!&|()]|[^!&|()\s]+", pattern)[::-1]
        if any(len(word) > MOST_WORD for word in self._words):
            raise UnreadableError(f"a pattern with a word of more than {MOST_WORD} characters")
        self._deep = 0

    def holds(self) -> bool:
        answer = self._either()
        return answer and not self._words

    def _either(self) -> bool:
        answer = self._both()
        while self._take("|"):
            answer = self._both() or answer
        return answer

    def _both(self) -> bool:
        answer = self._one()
        while self._take("&"):
            answer = self._one() and answer
        return answer

    def _one(self) -> bool:
        wanted = True
        while self._take("!"):
            wanted = not wanted
        return self._plain() is wanted

    def _plain(self) -> bool:
        if self._take("("):
            return self._within()
        return bool(self._words) and fnmatchcase(self._value, self._words.pop())

    def _within(self) -> bool:
        self._deep += 1
        if self._deep > MOST_DEEP:
            raise UnreadableError(f"a pattern with {MOST_DEEP} parentheses within each other")
        answer = self._either()
        self._take(")")
        self._deep -= 1
        return answer

    def _take(self, word: str) -> bool:
        if self._words and self._words[-1] == word:
            self._words.pop()
            return True
        return False
