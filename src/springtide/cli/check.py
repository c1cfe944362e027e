"""`tide check`: whether the file is right, the machine is able, and the cluster is well."""

from collections.abc import Iterable
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

import typer

from springtide.cli import output
from springtide.cli.endings import Complaint, Exit
from springtide.cli.output import JsonOption
from springtide.cli.place import Choice, ClusterOption, FileArgument, StateOption, spec_file

if TYPE_CHECKING:
    from springtide.cli.checks import Check
    from springtide.spec import Cluster

_MARKS = {True: "✓", False: "✗", None: "-"}


def check(
    file: FileArgument = None,
    json: JsonOption = False,
    cluster: ClusterOption = None,
    state: StateOption = None,
) -> None:
    """Whether file, machine and cluster are well."""
    path = spec_file(file, Choice(cluster, state))
    spec = read_spec(path)

    from springtide.cli.checks import ALL, Check, look, subject

    checks = [Check("file", True, f"{path} describes cluster {spec.cluster}")]
    checks += look(ALL, subject(spec))
    well = all(each.ok is not False for each in checks)
    if json:
        output.put_json({"ok": well, "checks": [asdict(each) for each in checks]})
    else:
        output.put("\n".join(render_checks(checks)))
    raise typer.Exit(Exit.DONE if well else Exit.FAILED)


def read_spec(path: Path) -> "Cluster":
    from springtide.spec import SpecError, load

    try:
        return load(path)
    except SpecError as error:
        raise Complaint(str(error), Exit.WRONG) from None


def render_checks(checks: Iterable["Check"]) -> list[str]:
    """A line each, and under what is wrong what to do."""
    lines = []
    for each in checks:
        lines.append(f"{_MARKS[each.ok]} {each.name}: {output.printable(each.text)}")
        if each.todo:
            lines.append(f"  → {each.todo}")
    return lines
