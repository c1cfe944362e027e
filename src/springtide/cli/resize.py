"""`tide resize`: groups with more or fewer nodes, written into the cluster file."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Annotated

import typer

from springtide.cli import output
from springtide.cli.changing import Change, finish, foresee, mention_cut_off, watch
from springtide.cli.check import parse_spec
from springtide.cli.client import Client, Json
from springtide.cli.cluster_file import ClusterFile, find, render_edits, rewritten
from springtide.cli.consent import NO_CHANGE, Consent
from springtide.cli.endings import Complaint, Exit
from springtide.cli.parameters import DryRun, NoWait, Yes, YesReally
from springtide.cli.place import Choice, ClusterOption, StateOption, client
from springtide.cli.serving import knows
from springtide.nodeset import MAX_RANGE

if TYPE_CHECKING:
    from springtide.spec import Cluster

_SIZE = re.compile(r"([^=]+)=([0-9]{1,9})")

SizesArgument = Annotated[
    list[str],
    typer.Argument(metavar="GROUP=N", help="How many nodes of a group are always up."),
]


def resize(
    sizes: SizesArgument,
    dry_run: DryRun = False,
    yes: Yes = False,
    yes_really: YesReally = None,
    no_wait: NoWait = False,
    cluster: ClusterOption = None,
    state: StateOption = None,
) -> None:
    """Give groups more or fewer nodes.

    The number is written into the cluster file; nodes that leave may end their jobs first.
    """
    daemon = client(Choice(cluster, state))
    status = daemon.get("/status")
    before, after = rewrite(daemon, status, sizes)
    change = foresee(daemon, status, after, numbers(sizes))
    if after.text == before.text and status["applied"]:
        output.put(f"{' '.join(sizes)} is what {before.path} says already: {NO_CHANGE}")
        return
    if dry_run:
        output.put(render(change, before))
        output.note(NO_CHANGE)
    elif change.under_way:
        raise typer.Exit(watch(change, no_wait))
    else:
        mention_cut_off(status)
        raise typer.Exit(_resize(change, before, Consent(yes, yes_really), no_wait))


def rewrite(daemon: Client, status: Json, sizes: Sequence[str]) -> tuple[ClusterFile, ClusterFile]:
    """The file as it is, and as it would be; complains if it is not the one that is served."""
    from springtide.spec import SpecError
    from springtide.spec.rewrite import resized

    file = find(daemon, status)
    spec = parse_spec(file.text, file.path)
    wanted = parse_sizes(sizes, spec)
    if not knows(status, spec):
        raise Complaint(
            f"{file.path} was changed since it was applied; run `tide apply` first", Exit.WRONG
        )
    try:
        text = resized(file.text, str(file.path), wanted)
    except SpecError as error:
        raise Complaint(str(error), Exit.WRONG) from None
    return file, replace(file, text=text)


def parse_sizes(words: Sequence[str], spec: "Cluster") -> Mapping[str, int]:
    """The size of each group that is named."""
    found: dict[str, int] = {}
    for word in words:
        match = _SIZE.fullmatch(word)
        if match is None:
            raise _wrong(f"{word[:60]!r} is no size: write GROUP=N, N from 0 to {MAX_RANGE}", spec)
        if match[1] not in spec.groups:
            raise _wrong(f"there is no group {match[1][:60]!r}{_meant(match[1], spec)}", spec)
        if match[1] in found:
            raise _wrong(f"group {match[1]} is named twice", spec)
        found[match[1]] = int(match[2])
    return found


def numbers(words: Sequence[str]) -> Mapping[str, int]:
    """Of words that are sizes."""
    return {word.partition("=")[0]: int(word.partition("=")[2]) for word in words}


def _meant(name: str, spec: "Cluster") -> str:
    from springtide.spec.problems import nearest

    begun = [key for key in spec.groups if key.startswith(name)]
    near = begun or nearest(name, spec.groups)
    return f": did you mean {near[0]}?" if near else ""


def _wrong(what: str, spec: "Cluster") -> Complaint:
    known = ", ".join(f"{key}={group.min}" for key, group in spec.groups.items())
    return Complaint(f"{what}; the groups are {known or 'none'}", Exit.WRONG)


def render(change: Change, before: ClusterFile) -> str:
    """The plans, and the lines of the file that would be others."""
    edits = render_edits(before.path, before.text, change.file.text)
    return f"{change.render()}\n\n{edits}"


def _resize(change: Change, before: ClusterFile, consent: Consent, no_wait: bool) -> Exit:
    output.note(render(change, before))
    change.require(consent)
    with rewritten(before, change.file.text):
        opened = change.apply()
    return finish(change, opened, no_wait)
