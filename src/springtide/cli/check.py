"""`tide check`: whether the file is right, the machine is able, and the cluster is well."""

from collections.abc import Iterable
from dataclasses import asdict, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, NoReturn

import typer

from springtide.cli import output
from springtide.cli.endings import Complaint, Exit
from springtide.cli.output import JsonOption
from springtide.cli.place import (
    Choice,
    ClusterOption,
    FileArgument,
    StateOption,
    refuse_elsewhere,
    spec_file,
)

if TYPE_CHECKING:
    from springtide.cli.subject import Check
    from springtide.spec import Cluster, SpecError

_MARKS = {True: "✓", False: "✗", None: "-"}


def check(
    file: FileArgument = None,
    json: JsonOption = False,
    offline: Annotated[
        bool, typer.Option("--offline", help="Ask no provider; look at this machine only.")
    ] = False,
    cluster: ClusterOption = None,
    state: StateOption = None,
) -> None:
    """Whether file, machine, providers and cluster are well.

    Clouds are asked about credentials, images, sizes, networks, quotas and rights.
    """
    path = spec_file(file, Choice(cluster, state))

    from springtide.spec import SpecError, load

    try:
        spec = load(path)
    except SpecError as error:
        if json:
            _put_wrong(error)
        raise Complaint(str(error), Exit.WRONG) from None
    refuse_elsewhere(spec, file, Choice(cluster, state))
    _put(_look(spec, path, offline), json)


def _put_wrong(error: "SpecError") -> NoReturn:
    """For programs: each problem of the file is a failed check."""
    from springtide.cli.subject import Check

    _put_json([Check("file", False, str(problem)) for problem in error.problems])
    raise typer.Exit(Exit.WRONG)


def _look(spec: "Cluster", path: Path, offline: bool) -> "list[Check]":
    from springtide.cli.checks import ALL
    from springtide.cli.subject import Check, look, subject

    first = Check("file", True, f"{path} describes cluster {spec.cluster}")
    about = replace(subject(spec, path), offline=offline)
    if not spec.attached:
        return [first, *look(ALL, about)]
    from springtide.cli import provider_checks
    from springtide.cli.attached import look_around
    from springtide.cli.checks import look_at_ansible, look_at_original
    from springtide.cli.family_checks import look_at_families

    others = look([look_at_ansible, *provider_checks.ALL, look_at_families], about)
    return [first, *look_at_original(about), *look_around(about)[0], *others]


def _put(checks: "list[Check]", json: bool) -> NoReturn:
    if json:
        _put_json(checks)
    else:
        output.put("\n".join(render_checks(checks)))
    raise typer.Exit(Exit.DONE if _well(checks) else Exit.FAILED)


def _put_json(checks: "list[Check]") -> None:
    output.put_json({"ok": _well(checks), "checks": [asdict(each) for each in checks]})


def _well(checks: "list[Check]") -> bool:
    return all(each.ok is not False for each in checks)


def read_spec(path: Path) -> "Cluster":
    from springtide.spec import SpecError, load

    try:
        return load(path)
    except SpecError as error:
        raise Complaint(str(error), Exit.WRONG) from None


def parse_spec(text: str, path: Path) -> "Cluster":
    from springtide.spec import SpecError, parse

    try:
        return parse(text, str(path))
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
