"""From a host list to the names that it stands for."""

import re
from collections.abc import Iterator
from typing import NamedTuple

from springtide.nodeset.names import (
    ALLOWED,
    MAX_DIGITS,
    NodeNameError,
    Span,
    is_name,
    shown,
    why_not,
)

MAX_TEXT = 1_000_000  # characters of one host list
MAX_NAMES = 1_000_000  # names that one host list may stand for

_NOT_IN_TEXT = re.compile(r"[^A-Za-z0-9._\-,\[\] ]")
_STOP = re.compile(r"[\[\],]")
_BRACKET = re.compile(r"\[([^\]]*)\]")
_ELEMENT = re.compile(rf"[0-9]{{1,{MAX_DIGITS}}}(?:-[0-9]{{1,{MAX_DIGITS}}})?")
_ELEMENTS = re.compile(rf"{_ELEMENT.pattern}(?:,{_ELEMENT.pattern})*")


class Pattern(NamedTuple):
    """One top-level item: literals[0] bracket[0] literals[1] … ; a bare str is one number."""

    literals: list[str]
    brackets: list[list[str | Span]]


def expand(text: str, *, limit: int = MAX_NAMES) -> list[str]:
    """The names of a host list, in the order given, repeated if they are given twice."""
    _check_text(text)
    if "[" not in text and text.count(",") < limit:
        plain = [name.strip(" ") for name in text.split(",")]
        if all(map(is_name, plain)):
            return plain
    patterns = [_parse_item(text, start, end) for start, end in _items(text)]
    total = sum(map(_count, patterns))
    if total > limit:
        raise NodeNameError(
            f"host list {shown(text)}: it stands for {total} names; at most {limit} are allowed"
        )
    names: list[str] = []
    for pattern in patterns:
        names += _build(pattern)
    return names


def _check_text(text: str) -> None:
    if len(text) > MAX_TEXT:
        raise NodeNameError(
            f"host list {shown(text)}: it has {len(text)} characters; "
            f"at most {MAX_TEXT} are allowed"
        )
    if not text.strip(" "):
        raise NodeNameError("empty host list: give at least one node name")
    if bad := _NOT_IN_TEXT.search(text):
        raise _wrong(text, bad.start(), f"{bad[0]!a} is not allowed; allowed are {ALLOWED}")


def _items(text: str) -> Iterator[tuple[int, int]]:
    """Where each top-level item starts and ends, without the spaces around it."""
    start = 0
    while True:
        end = _item_end(text, start)
        item = text[start:end]
        if not item.strip(" "):
            raise _wrong(text, start, "a name is missing here; remove the extra comma")
        yield start + len(item) - len(item.lstrip(" ")), start + len(item.rstrip(" "))
        if end == len(text):
            return
        start = end + 1


def _item_end(text: str, start: int) -> int:
    """The top-level comma after start, or the end of the text."""
    while stop := _STOP.search(text, start):
        if stop[0] == ",":
            return stop.start()
        start = _bracket_end(text, stop.start())
    return len(text)


def _bracket_end(text: str, at: int) -> int:
    if text[at] == "]":
        raise _wrong(text, at, "this ']' closes nothing; write a '[' before it or remove it")
    close = text.find("]", at)
    if close < 0:
        raise _wrong(text, at, "this '[' is never closed; add a ']'")
    if (inner := text.find("[", at + 1, close)) >= 0:
        raise _wrong(text, inner, "a '[' inside a bracket; close the one before it first")
    return close + 1


def _parse_item(text: str, start: int, end: int) -> Pattern:
    item = text[start:end]
    if " " in item:
        space = start + item.index(" ")
        raise _wrong(text, space, "a space within a name or bracket; put commas between names")
    pieces = _BRACKET.split(item)
    offset, brackets = start, []
    for literal, body in zip(pieces[::2], pieces[1::2], strict=False):
        offset += len(literal) + 1
        brackets.append(_parse_elements(text, offset, body))
        offset += len(body) + 1
    pattern = Pattern(pieces[::2], brackets)
    _check_longest(text, start, pattern)
    return pattern


def _parse_elements(text: str, offset: int, body: str) -> list[str | Span]:
    if not _ELEMENTS.fullmatch(body):
        raise _wrong_element(text, offset, body)
    if "-" not in body:
        return list(body.split(","))
    elements: list[str | Span] = []
    for element in body.split(","):
        low, dash, high = element.partition("-")
        elements.append(_span(text, offset, low, high) if dash else element)
        offset += len(element) + 1
    return elements


def _span(text: str, offset: int, low: str, high: str) -> Span:
    span = Span(int(low), int(high), len(low))
    if span.hi < span.lo:
        raise _wrong(text, offset, f"the range {low}-{high} goes down; the smaller number first")
    if high[0] == "0" and len(high) > max(1, len(low)):
        raise _wrong(
            text, offset, f"the range {low}-{high} pads only its end; pad both numbers or none"
        )
    return span


def _wrong_element(text: str, offset: int, body: str) -> NodeNameError:
    for element in body.split(","):
        if not _ELEMENT.fullmatch(element):
            break
        offset += len(element) + 1
    if not element:
        return _wrong(text, offset, "a number is missing here; write numbers or ranges like 1-3,7")
    if len(max(element.split("-"), key=len)) > MAX_DIGITS:
        return _wrong(text, offset, f"a number has more than {MAX_DIGITS} digits")
    return _wrong(
        text, offset, f"{shown(element)} is neither a number nor a range; write them like 1-3,7"
    )


def _check_longest(text: str, start: int, pattern: Pattern) -> None:
    """One name stands for all: they differ only in digits, and none is longer than this one."""
    longest = pattern.literals[0]
    for bracket, literal in zip(pattern.brackets, pattern.literals[1:], strict=True):
        longest += "0" * max(map(_width, bracket)) + literal
    if not is_name(longest):
        raise _wrong(text, start, f"{shown(longest)} is no node name: {why_not(longest)}")


def _width(element: str | Span) -> int:
    if isinstance(element, str):
        return len(element)
    return max(element.width, len(str(element.hi)))


def _count(pattern: Pattern) -> int:
    total = 1
    for bracket in pattern.brackets:
        total *= sum(1 if isinstance(e, str) else e.hi - e.lo + 1 for e in bracket)
    return total


def _build(pattern: Pattern) -> list[str]:
    names = [pattern.literals[0]]
    for bracket, literal in zip(pattern.brackets, pattern.literals[1:], strict=True):
        numbers = _numbers(bracket)
        tails = [number + literal for number in numbers] if literal else numbers
        names = [name + tail for name in names for tail in tails]
    return names


def _numbers(bracket: list[str | Span]) -> list[str]:
    numbers: list[str] = []
    for element in bracket:
        if isinstance(element, str):
            numbers.append(element)
        else:
            form = f"%0{element.width}d"
            numbers += [form % i for i in range(element.lo, element.hi + 1)]
    return numbers


def _wrong(text: str, at: int, why: str) -> NodeNameError:
    return NodeNameError(f"host list {shown(text, at)}: at character {at + 1}: {why}")
