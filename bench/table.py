"""Numbers as people read them: medians, ratios, aligned columns. Every benchmark prints with it."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from statistics import median


@dataclass(frozen=True, slots=True)
class Table:
    """A title, a header, rows, and what a reader must know to read them."""

    title: str
    header: Sequence[str]
    rows: list[Sequence[str]] = field(default_factory=list)
    notes: Sequence[str] = ()

    def __str__(self) -> str:
        lines = [self.header, *self.rows]
        widths = [max(len(line[at]) for line in lines) for at in range(len(self.header))]
        body = [_aligned(line, widths) for line in lines]
        return "\n".join([self.title, *(f"  {line}" for line in (*body, *self.notes))])


def _aligned(cells: Sequence[str], widths: Sequence[int]) -> str:
    """What a row is about to the left, numbers to the right."""
    first, *rest = (
        cell.ljust(width) if at == 0 else cell.rjust(width)
        for at, (cell, width) in enumerate(zip(cells, widths, strict=True))
    )
    return "  ".join([first, *rest]).rstrip()


def seconds(value: float | None) -> str:
    return "-" if value is None else f"{value:.2f}"


def milliseconds(value: float) -> str:
    return f"{value * 1000:.1f}"


def ratio(ours: float | None, floor: float | None) -> str:
    return f"{ours / floor:.2f}" if ours and floor else "-"


def middle(values: Iterable[float]) -> float | None:
    """The median, if there is one."""
    known = list(values)
    return median(known) if known else None


def percentile(values: Iterable[float], share: float) -> float | None:
    """The smallest value that so many of them do not exceed."""
    known = sorted(values)
    return known[min(len(known) - 1, int(share * len(known)))] if known else None
