"""A daemon that serves a cluster's file: whether there is one, and starting it if not.

For `tide deploy`, `tide start` and `tide destroy`, which work though the daemon is away.
"""

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from springtide.cli import detached
from springtide.cli.check import render_checks
from springtide.cli.client import Away, Client, Json, Refused
from springtide.cli.endings import Complaint, Exit, cannot_write
from springtide.model import PLANS, Kind
from springtide.nodeset import fold

if TYPE_CHECKING:
    from springtide.cli.subject import Look
    from springtide.spec import Cluster


def status_of(daemon: Client) -> Json | None:
    """None if nobody serves."""
    try:
        return daemon.get("/status")
    except Away:
        return None


def knows(status: Json, spec: "Cluster") -> bool:
    """Whether the daemon runs with this very file."""
    from springtide.spec.fingerprint import fingerprint

    same: bool = status["spec"] == fingerprint(spec)
    return same


def plan_from_file(spec: "Cluster", kind: Kind, names: tuple[str, ...]) -> Json:
    """What the file alone tells of a plan; nodes and jobs are the daemon's to know."""
    return {
        "operation": kind.value,
        "nodes": fold(names),
        "count": len(names),
        "steps": [step.value for step in PLANS[kind]],
        "states": {},
        "jobs": [],
        "price_per_hour": spec.price(names),
        "price_change_per_hour": None,
        "notes": ["no daemon answers, so that nothing is known of nodes and jobs"],
    }


def refuse_other(status: Json | None, spec: "Cluster") -> None:
    """One state directory, one cluster."""
    if status is not None and status["cluster"] != spec.cluster:
        raise Complaint(
            f"{spec.state} belongs to cluster {status['cluster']}; give {spec.cluster} a state "
            "directory of its own",
            Exit.WRONG,
        )


def start(daemon: Client, spec: "Cluster", path: Path) -> None:
    """Start a daemon from this file, if the machine is able."""
    from springtide.cli import controlled

    require(spec)
    controlled.refuse_move(spec)
    if refusal := daemon.layout.refusal():
        raise Complaint(refusal, Exit.WRONG)
    _store(path, daemon)
    detached.start(daemon, path)
    if not knows(daemon.get("/status"), spec):
        raise Complaint(
            f"somebody else started a daemon for {spec.state} from another file; start that one "
            f"again with {path}"
        )


@contextmanager
def undone_if_refused(daemon: Client) -> Iterator[None]:
    """A daemon that is started in the block ends if it refuses what it was started for.

    A state directory that is new goes with it, and with one that did not start: nobody would find
    a cluster in it to destroy.
    """
    known, served = daemon.layout.is_ours, detached.answers(daemon)
    try:
        yield
    except Refused:
        if not served and not daemon.layout.control.exists():
            _end(daemon, known)
        raise
    except detached.NotStarted:
        if not known and not daemon.layout.control.exists():
            _remove(daemon)
        raise


def _end(daemon: Client, known: bool) -> None:
    """Not while it is at something all the same."""
    begun = daemon.get("/operations", limit=1)["operations"]
    if begun and begun[0]["ended_at"] is None:
        return
    if detached.stop(daemon) and not known:
        _remove(daemon)


def _remove(daemon: Client) -> None:
    from springtide.api.server import remove_state

    remove_state(daemon.layout)


def require(spec: "Cluster") -> None:
    """Complain of what a deploy would fail at."""
    from springtide.cli.checks import REQUIRED

    _refuse_wrong(spec, REQUIRED, f"{spec.cluster} cannot be deployed here:")


def require_file(spec: "Cluster") -> None:
    """The same for what the file alone names, on a machine that is able."""
    from springtide.cli.file_checks import REQUIRED, look_at_kinds

    looks = [look for look in REQUIRED if look is not look_at_kinds]
    _refuse_wrong(spec, looks, "what the file names cannot be used here:")


def _refuse_wrong(spec: "Cluster", looks: "Iterable[Look]", what: str) -> None:
    from springtide.cli.subject import look, subject

    wrong = [check for check in look(looks, subject(spec)) if check.ok is False]
    if wrong:
        raise Complaint("\n".join([what, *render_checks(wrong)]))


def _store(path: Path, daemon: Client) -> None:
    """Keep a copy, so that the cluster can be served and destroyed without the file."""
    copy = daemon.stored_spec
    if path == copy:
        return
    try:
        copy.parent.mkdir(parents=True, exist_ok=True)
        daemon.layout.keep_spec(path.read_bytes())
    except OSError as error:
        raise cannot_write(str(copy), error) from error
