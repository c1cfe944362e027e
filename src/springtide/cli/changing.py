"""From the cluster file that is served to another one: foreseen, asked for, done.

`tide apply`, `tide resize` and `tide deploy` of a changed file all go this way.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from springtide.cli import output
from springtide.cli.check import read_spec
from springtide.cli.client import Client, Json
from springtide.cli.cluster_file import ClusterFile
from springtide.cli.consent import Consent
from springtide.cli.course import conclude
from springtide.cli.endings import Complaint, Exit
from springtide.cli.foresight import render_changes
from springtide.cli.place import Choice, chosen, client
from springtide.cli.status import applying, is_cut_off
from springtide.cli.whereabouts import option
from springtide.model import Kind

Sizes = Mapping[str, int]
"""How many nodes of a group are always up."""


def daemon_for(file: str | None, choice: Choice) -> Client:
    """The chosen cluster's; if none was chosen, a file says itself which one it is."""
    if file is None or chosen(choice) is not None:
        return client(choice)
    return Client(read_spec(Path(file).absolute()).state)


@dataclass(frozen=True, slots=True)
class Change:
    """Another cluster file, and what the daemon says would follow from it."""

    daemon: Client
    status: Json
    file: ClusterFile
    foreseen: Json
    sizes: Sizes = field(default_factory=dict)
    """Of groups, if somebody asked for these alone: the calendar may be against it."""

    @property
    def is_one(self) -> bool:
        return bool(self.foreseen["changes"] or self.foreseen["plans"])

    @property
    def under_way(self) -> list[Json]:
        """Operations that follow from this very file already."""
        return [] if self.foreseen["changes"] else applying(self.status)

    @property
    def shrinks(self) -> bool:
        return any(plan["operation"] == Kind.SHRINK for plan in self.foreseen["plans"])

    @property
    def moves_file(self) -> bool:
        """People have the file elsewhere than the daemon thinks."""
        return not self.file.ours and self.status["file"] != str(self.file.path)

    @property
    def is_up(self) -> bool:
        return self.status["control_address"] is not None and not self.status["stopped"]

    def render(self) -> str:
        return render_changes(self.foreseen)

    def render_rest(self) -> str:
        """For a cluster that is not up: who does what follows."""
        name, command = self.status["cluster"], "start" if self.status["stopped"] else "deploy"
        follow = f"`tide {command} {option(self.daemon.layout.state)}` does what follows from it"
        return f"cluster {name} has {self.file.path} now, and is not up: {follow}"

    def require(self, consent: Consent) -> None:
        """Somebody must want it; of a protected cluster only nodes that leave matter so much."""
        name, protected = self.status["cluster"], self.status["protected"] and self.shrinks
        consent.require(name, f"apply this to cluster {name}", protected=protected)

    def apply(self) -> list[Json]:
        """Have it done; the operations that were opened for it."""
        file = "" if self.file.ours else str(self.file.path)
        body: Json = {"spec": self.file.text, "file": file, "base": self.status["spec"]}
        body["sizes"] = dict(self.sizes)
        if self.shrinks:
            body["confirm"] = self.status["cluster"]
        opened: list[Json] = self.daemon.post("/apply", body)["operations"]
        return opened


def foresee(daemon: Client, status: Json, file: ClusterFile, sizes: Sizes | None = None) -> Change:
    """What the file would change; complains of what cannot be changed."""
    known = dict(sizes or {})
    body = {"spec": file.text, "file": str(file.path), "dry_run": True, "sizes": known}
    foreseen = daemon.post("/apply", body)
    if refusals := foreseen["refusals"]:
        from springtide.spec import environment

        said = [*refusals, *environment.blamed(status["cluster"], refusals)]
        raise Complaint("\n".join([f"{file.path} cannot be applied:", *said]), Exit.WRONG)
    return Change(daemon, status, file, foreseen, known)


def finish(change: Change, opened: list[Json], no_wait: bool) -> Exit:
    """Watch what follows from the file, and say how it came out."""
    if not opened and not change.is_up:
        output.put(change.render_rest())
        return Exit.DONE
    code = conclude(change.daemon, opened, no_wait)
    if code:
        command = "attach" if change.status["attached"] else "apply"
        stay = "nodes that stayed leave when they are idle, and " if change.shrinks else ""
        output.note(
            f"tide: {change.file.path} counts all the same: {stay}`tide {command}` tries "
            "again whatever else is missing"
        )
    elif not no_wait:
        output.put(f"cluster {change.status['cluster']} is as {change.file.path} says")
    return code


def watch(change: Change, no_wait: bool) -> Exit:
    """Somebody applies this very file at the moment: nothing to ask, but to see."""
    output.note(f"{change.file.path} is being applied already")
    return finish(change, change.under_way, no_wait)


def mention_cut_off(status: Json) -> None:
    """Somebody's apply did not come to its end; whoever applies now goes on with it."""
    if is_cut_off(status):
        output.note("a former apply was cut off before its end; this one goes on with it")
