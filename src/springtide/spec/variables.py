"""The lines of an environment file, as systemd reads them; pure.

Values may be in quotes and go over several lines; a backslash at the end of a line joins it with
the next. What systemd passes over is passed over here as well, and told.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass

_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_BLANK = r"[^\S\n]*"
_QUOTED = r"""'[^']*(?:'|\Z)|"(?:\\.|[^"\\])*(?:"|\\?\Z)"""
_ENTRY = re.compile(
    rf"{_BLANK}(?:[#;][^\n]*"
    rf"|(?P<name>[^=\n]*)=(?P<quoted>(?:{_BLANK}(?:{_QUOTED}))*){_BLANK}"
    r"(?P<plain>(?:\\.|[^\\\n])*(?:\\\Z)?)"
    r"|(?P<other>[^\n]*))(?:\n|\Z)",
    re.DOTALL,
)
_PART = re.compile(_QUOTED, re.DOTALL)
_ESCAPE = re.compile(r"\\(.?)", re.DOTALL)


@dataclass(frozen=True, slots=True)
class Variable:
    """A name that is given a value."""

    name: str
    value: str
    line: int


@dataclass(frozen=True, slots=True)
class Passed:
    """A line that gives no name a value."""

    line: int
    words: frozenset[str]
    """Names that are in it. The rest is not shown: it may be a secret."""


def read(text: str) -> Iterator[Variable | Passed]:
    """All that is in a file with this text, in order."""
    number = 1
    for found in _ENTRY.finditer(text):
        name, other = (found["name"] or "").strip(), found["other"] or ""
        if _NAME.fullmatch(name):
            yield Variable(name, _value(found["quoted"], found["plain"]), number)
        elif found["name"] is not None or other.strip():
            yield Passed(number, frozenset(_NAME.findall(name or other)))
        number += found[0].count("\n")


def _value(quoted: str, plain: str) -> str:
    parts = (_unquoted(part[0]) for part in _PART.finditer(quoted))
    return "".join(parts) + _ESCAPE.sub(_joined, plain).rstrip()


def _unquoted(part: str) -> str:
    mark, inner = part[0], part[1:]
    inner = inner.removesuffix(mark)
    return _ESCAPE.sub(_escaped, inner) if mark == '"' else inner


def _joined(found: re.Match[str]) -> str:
    return "" if found[1] == "\n" else found[1]


def _escaped(found: re.Match[str]) -> str:
    """In double quotes, a backslash is for few."""
    if found[1] == "\n":
        return ""
    return found[1] if found[1] in '"\\`$' else found[0]
