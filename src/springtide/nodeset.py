"""Hostlists in Slurm's syntax: `expand` turns text into node names, `fold` turns names into text.

Slurm hands us nodes as hostlists and takes them back as hostlists, one call for many nodes.
Every layer above uses this module; it does no I/O and needs only the standard library.

The text means what it means to `scontrol show hostnames`. Where Slurm guesses or garbles
(`a[1` becomes `a]`, `a[1-]` becomes `a1`, `a[1, 2]` becomes `a1 a02`, and `a[1-010]` loses its
padding) the text is refused.
Three differences are deliberate:

- a suffix after a bracket (`n[1-2]-ib`) is understood here, but Slurm 22.05 refuses it, so
  `fold` never writes one;
- three or more brackets count with the rightmost fastest; Slurm gives the same names but
  turns its first bracket before its second;
- names are separated by commas, with spaces around them if you like. Slurm also takes bare
  whitespace and skips empty elements, which hides slips of the hand.
"""

import re
from collections import defaultdict
from collections.abc import Iterable, Iterator
from typing import NamedTuple

MAX_TEXT = 1_000_000  # characters of one host list
MAX_NAMES = 1_000_000  # names that one host list may stand for
MAX_NAME = 253  # characters of a name, as in DNS
MAX_LABEL = 63  # characters between two dots, as in DNS
MAX_DIGITS = 18  # digits of a number in a bracket; Slurm counts in 64 bits and garbles 20
MAX_RANGE = 65_536  # Slurm refuses longer ranges, and more numbers in a bracket before the last

ALLOWED = "letters, digits, '-', '_' and '.'"
_DIGITS = "0123456789"
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]{0,62}(?:\.[A-Za-z0-9_-]{1,63})*")
_NOT_IN_NAME = re.compile(r"[^A-Za-z0-9._-]")
_NOT_IN_TEXT = re.compile(r"[^A-Za-z0-9._\-,\[\] ]")
_STOP = re.compile(r"[\[\],]")
_BRACKET = re.compile(r"\[([^\]]*)\]")
_ELEMENT = re.compile(rf"[0-9]{{1,{MAX_DIGITS}}}(?:-[0-9]{{1,{MAX_DIGITS}}})?")
_ELEMENTS = re.compile(rf"{_ELEMENT.pattern}(?:,{_ELEMENT.pattern})*")
_RUNS = re.compile(rf"([0-9]{{1,{MAX_NAME}}})")
_LAST_RUN = re.compile(rf"(.*[^0-9]|)([0-9]{{1,{MAX_DIGITS}}})([^0-9]+)")


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


class Pattern(NamedTuple):
    """One top-level item: literals[0] bracket[0] literals[1] … ; a bare str is one number."""

    literals: list[str]
    brackets: list[list[str | Span]]


# Names


def validate_name(name: str) -> str:
    """Return the name if it can be a node's name, else say what is wrong with it."""
    if _is_name(name):
        return name
    raise NodeNameError(f"node name {_shown(name)}: {_why_not(name)}")


def _is_name(name: str) -> bool:
    return len(name) <= MAX_NAME and _NAME.fullmatch(name) is not None


def _why_not(name: str) -> str:
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


# From text to names


def expand(text: str, *, limit: int = MAX_NAMES) -> list[str]:
    """The names of a host list, in the order given, repeated if they are given twice."""
    _check_text(text)
    if "[" not in text and text.count(",") < limit:
        plain = [name.strip(" ") for name in text.split(",")]
        if all(map(_is_name, plain)):
            return plain
    patterns = [_parse_item(text, start, end) for start, end in _items(text)]
    total = sum(map(_count, patterns))
    if total > limit:
        raise NodeNameError(
            f"host list {_shown(text)}: it stands for {total} names; at most {limit} are allowed"
        )
    names: list[str] = []
    for pattern in patterns:
        names += _build(pattern)
    return names


def _check_text(text: str) -> None:
    if len(text) > MAX_TEXT:
        raise NodeNameError(
            f"host list {_shown(text)}: it has {len(text)} characters; "
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
        text, offset, f"{_shown(element)} is neither a number nor a range; write them like 1-3,7"
    )


def _check_longest(text: str, start: int, pattern: Pattern) -> None:
    """One name stands for all: they differ only in digits, and none is longer than this one."""
    longest = pattern.literals[0]
    for bracket, literal in zip(pattern.brackets, pattern.literals[1:], strict=True):
        longest += "0" * max(map(_width, bracket)) + literal
    if not _is_name(longest):
        raise _wrong(text, start, f"{_shown(longest)} is no node name: {_why_not(longest)}")


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
    return NodeNameError(f"host list {_shown(text, at)}: at character {at + 1}: {why}")


def _shown(text: str, at: int = 0) -> str:
    """The text near the position, short and with control characters made visible."""
    start = max(0, at - 30)
    shown = ascii(text[start : start + 60])
    return f"{'…' if start else ''}{shown}{'…' if len(text) > start + 60 else ''}"


# From names to text


def fold(names: Iterable[str]) -> str:
    """The shortest sensible host list for the set of these names, naturally sorted.

    Slurm expands it to the same set, unless a name ends in a number of 20 digits or more,
    which Slurm cannot hold.
    """
    tails: defaultdict[str, list[str]] = defaultdict(list)
    for name in names:
        head = name.rstrip(_DIGITS)
        tails[head].append(name[len(head) :])
    items: list[tuple[str, str]] = []
    ranges: dict[str, str] = {}
    for head, digits in tails.items():
        _check_group(head, digits)
        foldable = [d for d in digits if 0 < len(d) <= MAX_DIGITS]
        if len(foldable) < len(digits):
            alone = {head + d for d in digits if not 0 < len(d) <= MAX_DIGITS}
            items += [(name, name) for name in alone]
        if foldable:
            ranges[head] = ",".join(map(str, _spans(foldable)))
    items += _join_heads(ranges)
    items.sort(key=lambda item: natural_key(item[0]))
    return ",".join(text for _, text in items)


def _check_group(head: str, digits: list[str]) -> None:
    """The longest stands for all, and the one without digits may end in a dot."""
    validate_name(head + max(digits, key=len))
    if "" in digits:
        validate_name(head)


def _spans(digits: Iterable[str]) -> list[Span]:
    """The fewest ranges for these numbers, which keep the digits they are written with."""
    by_width: defaultdict[int, list[str]] = defaultdict(list)
    for number in digits:
        by_width[len(number)].append(number)
    spans: list[Span] = []
    for width in sorted(by_width):
        runs = _runs(sorted(set(map(int, by_width[width]))), width)
        spans = _append(spans, runs, 10 ** (width - 1))
    spans.sort(key=lambda span: (span.lo, span.width))
    return [part for span in spans for part in _split(span)]


def _runs(numbers: list[int], width: int) -> list[Span]:
    if numbers[-1] - numbers[0] + 1 == len(numbers):
        return [Span(numbers[0], numbers[-1], width)]
    runs = []
    low = last = numbers[0]
    for number in numbers[1:]:
        if number != last + 1:
            runs.append(Span(low, last, width))
            low = number
        last = number
    runs.append(Span(low, last, width))
    return runs


def _append(spans: list[Span], runs: list[Span], edge: int) -> list[Span]:
    """Join 9 and 10-12, but not 09-99 and 100-120: ClusterShell refuses 09-120."""
    before = len(spans) - 1
    for run in runs:
        if run.lo == edge and before >= 0 and _reaches(spans[before], edge):
            joined = spans.pop(before)
            spans.append(Span(joined.lo, run.hi, joined.width))
        else:
            spans.append(run)
    return spans


def _reaches(span: Span, edge: int) -> bool:
    return span.hi == edge - 1 and span.width == len(str(span.lo))


def _split(span: Span) -> list[Span]:
    if span.hi - span.lo < MAX_RANGE:
        return [span]
    starts = range(span.lo, span.hi + 1, MAX_RANGE)
    return [Span(lo, min(lo + MAX_RANGE - 1, span.hi), span.width) for lo in starts]


def _join_heads(ranges: dict[str, str]) -> list[tuple[str, str]]:
    """Items with the head each is sorted by; r1u[1-9] and r2u[1-9] become r[1-2]u[1-9]."""
    alike: defaultdict[tuple[str, str, str], list[str]] = defaultdict(list)
    items = []
    for head, numbers in ranges.items():
        if match := _LAST_RUN.fullmatch(head):
            before, run, after = match.groups()
            alike[before, after, numbers].append(run)
        else:
            items.append((head, _item(head, numbers)))
    for (before, after, numbers), runs in alike.items():
        items += _join_runs(before, runs, after, numbers)
    return items


def _join_runs(before: str, runs: list[str], after: str, numbers: str) -> list[tuple[str, str]]:
    apart = [(h, _item(h, numbers)) for h in (before + run + after for run in runs)]
    if not 1 < len(runs) <= MAX_RANGE:
        return apart
    outer = ",".join(map(str, _spans(runs)))
    joined = f"{before}[{outer}]{after}[{numbers}]"
    if len(joined) >= sum(len(text) + 1 for _, text in apart) - 1:
        return apart
    return [(min((head for head, _ in apart), key=natural_key), joined)]


def _item(head: str, numbers: str) -> str:
    return head + numbers if numbers.isdigit() else f"{head}[{numbers}]"
