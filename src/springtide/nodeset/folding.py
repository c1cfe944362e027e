"""From names to the host list that stands for them."""

import re
from collections import defaultdict
from collections.abc import Iterable

from springtide.nodeset.names import MAX_DIGITS, MAX_RANGE, Span, natural_key, validate_name

_DIGITS = "0123456789"
_LAST_RUN = re.compile(rf"(.*[^0-9]|)([0-9]{{1,{MAX_DIGITS}}})([^0-9]+)")


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
