"""What the runs on each release found: a table of the docs, and the same for who watches."""

import json
import re
import xml.etree.ElementTree as ET
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from statistics import median

from springtide.batch.slurm_versions import ALIKE, Change, shown
from tests.matrix.areas import AREAS, area_of
from tests.matrix.roots import RELEASES

PAGE = """\
# Slurm and Debian versions

On these Springtide was run: real slurmctlds and slurmds of each release of Debian, in a root of its
own. `make matrix` runs all of it and writes this page; nobody edits it by hand. Newer versions are
not refused: `tide check` warns that nobody has tried them.

{versions}

## Tests, by area

Passed / failed / skipped. The reason of every failure and skip is below.

{areas}

## From submission to running, from zero nodes

Seconds over ten starts each: least, median, most. Slurm by itself would launch at the next tick of
a timer of 30 s.

{starts}

## What versions do differently

{changes}

And where one way suits all of them:

{alike}
{notes}"""
TIMER_S = 14.0
"""A start that took longer may have waited for Slurm's timer."""


@dataclass(slots=True)
class Counts:
    passed: int = 0
    failed: int = 0
    skipped: int = 0
    run: str = ""
    """When, and of which commit."""

    def __str__(self) -> str:
        return f"{self.passed} / {self.failed} / {self.skipped}"


@dataclass(slots=True)
class Found:
    """What one run on a release found."""

    suite: str
    slurm: str
    python: str
    run: str
    """When this was, and of which commit; earlier runs of other areas may stand beside it."""
    areas: dict[str, Counts] = field(default_factory=dict)
    notes: dict[str, list[str]] = field(default_factory=dict)
    """Of each area, the tests that did not pass, and why."""
    starts: dict[str, list[float]] = field(default_factory=dict)

    @property
    def failed(self) -> int:
        return sum(counts.failed for counts in self.areas.values())


def read_tests(path: Path, found: Found) -> None:
    """Adds what a report of pytest (JUnit XML) says."""
    for case in ET.parse(path).iter("testcase"):  # noqa: S314 - our own pytest wrote it
        area = area_of(case.get("classname", "")) or _area_of_file(case) or "elsewhere"
        counts = found.areas.setdefault(area, Counts(run=found.run))
        notes = found.notes.setdefault(area, [])
        bad = [node for kind in ("failure", "error") for node in case.findall(kind)]
        skipped = case.find("skipped")
        if bad:
            counts.failed += 1
            notes.append(f"failed: {case.get('name')}: {_first_line(bad[0])}")
        elif skipped is not None:
            counts.skipped += 1
            notes.append(f"skipped: {case.get('name')}: {_first_line(skipped)}")
        else:
            counts.passed += 1


def _area_of_file(case: ET.Element) -> str | None:
    """A file that could not even be read has its name where tests have theirs."""
    return area_of(case.get("name", "").replace("/", "."))


def _first_line(node: ET.Element) -> str:
    lines = (node.get("message") or "no reason").strip().splitlines()
    return lines[0][:200] if lines else "no reason"


def summary(found: Found) -> str:
    """The closing lines of a run."""
    rows = [f"{area:22} {found.areas[area]}" for area in AREAS if area in found.areas]
    starts = [f"{nodes} node(s): {_spread(took)} s" for nodes, took in found.starts.items()]
    head = f"{found.suite}: Slurm {found.slurm}, Python {found.python} (passed / failed / skipped)"
    notes = [note for some in found.notes.values() for note in some]
    return "\n".join([head, *rows, *starts, *notes])


def wrong(found: Found, areas: Iterable[str], status: int) -> list[str]:
    """Why a run proves nothing of these areas, or the contrary; `status` is that of pytest."""
    idle = [area for area in areas if not found.areas.get(area, Counts()).passed]
    said = [f"nothing passed: {', '.join(idle)}"] if idle else []
    if status not in (0, 1) or (status and not found.failed):
        said.append(f"pytest ended with status {status}")
    if found.failed:
        said.append(f"{found.failed} failed")
    if late := stalls(found):
        said.append(f"{late} starts may have waited for Slurm's timer")
    return said


def stalls(found: Found) -> int:
    """Starts that may have waited for Slurm's timer."""
    return sum(one > TIMER_S for took in found.starts.values() for one in took)


def _spread(took: Sequence[float]) -> str:
    return f"{min(took):.1f}, {median(took):.1f}, {max(took):.1f}"


# --- the page -------------------------------------------------------------------------------


def write(page: Path, found: Found) -> None:
    """The page with this run; what it says of other releases, and of other areas, stays."""
    kept = {one.suite: one for one in read_runs(page)}
    kept[found.suite] = _beside(found, kept.get(found.suite))
    runs = sorted(kept.values(), key=lambda one: _number(one.slurm))
    page.write_text(render(runs))


def _beside(found: Found, before: Found | None) -> Found:
    """What was found, with what an earlier run on the same Slurm found of other areas."""
    if before is None or before.slurm != found.slurm:
        return found
    return replace(
        found,
        areas=before.areas | found.areas,
        notes=before.notes | found.notes,
        starts=found.starts or before.starts,
    )


def render(runs: Sequence[Found]) -> str:
    versions = _table(
        ["Debian", "Slurm", "Python", "oldest run of an area", "newest"],
        [[one.suite, one.slurm, one.python, *_first_and_last(one)] for one in runs],
    )
    areas = _table(
        ["", *(one.slurm for one in runs)],
        [[area, *(str(one.areas.get(area, "not run")) for one in runs)] for area in AREAS],
    )
    sizes = sorted({size for one in runs for size in one.starts}, key=int)
    starts = _table(
        ["nodes", *(one.slurm for one in runs)],
        [
            [
                size,
                *(_spread(one.starts[size]) if size in one.starts else "not run" for one in runs),
            ]
            for size in sizes
        ],
    )
    data = json.dumps([asdict(one) for one in runs], sort_keys=True)
    changes = _table(
        ["since", "Slurm"], [[shown(one.value.release), one.value.what] for one in Change]
    )
    alike = _table(["since", "Slurm"], [[shown(one.release), one.what] for one in ALIKE])
    text = PAGE.format(
        versions=versions,
        areas=areas,
        starts=starts,
        changes=changes,
        alike=alike,
        notes=_notes(runs),
    )
    return f"{text}\n<!-- {data} -->\n"


def _first_and_last(found: Found) -> list[str]:
    runs = sorted(counts.run for counts in found.areas.values())
    return [runs[0], runs[-1]] if runs else [found.run, found.run]


def _notes(runs: Sequence[Found]) -> str:
    lines = [
        f"- {one.slurm}, {area}, {note}"
        for one in runs
        for area, notes in one.notes.items()
        for note in notes
    ] + [
        f"- {one.slurm}, {package} is that of {suite}: {RELEASES[one.suite].broken}"
        for one in runs
        for package, suite in RELEASES[one.suite].older
    ]
    return "\n".join(["", "## Failed, skipped, and replaced", "", *lines, ""]) if lines else ""


def _table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join(f"| {' | '.join(cells)} |" for cells in lines)


def read_runs(page: Path) -> list[Found]:
    """What the page keeps of former runs."""
    text = page.read_text() if page.exists() else ""
    held = re.search(r"^<!-- (\[.*\]) -->$", text, re.MULTILINE)
    return [_found(row) for row in json.loads(held[1])] if held else []


def _found(row: Mapping[str, object]) -> Found:
    found = Found(**row)  # type: ignore[arg-type]
    areas: Mapping[str, Mapping[str, int]] = row["areas"]  # type: ignore[assignment]
    found.areas = {
        area: Counts(**{"run": found.run, **counts})  # type: ignore[arg-type]
        for area, counts in areas.items()
    }
    return found


def _number(version: str) -> tuple[int, ...]:
    return tuple(int(part) for part in re.findall(r"\d+", version))
