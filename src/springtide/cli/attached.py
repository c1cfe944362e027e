"""An existing Slurm with our part in it, looked at and told of. Imported late: few need it."""

from pathlib import Path

from springtide.batch.slurm_attachment import ADVICE, Attachment
from springtide.batch.slurm_existing import Running
from springtide.batch.slurm_standing import Standing
from springtide.cli import (
    attach_checks,
    attached_checks,
    boot_checks,
    checks,
    file_checks,
    machine_checks,
    output,
)
from springtide.cli.attach_checks import Sight, see
from springtide.cli.attach_text import render_joining, render_restart
from springtide.cli.client import Json
from springtide.cli.endings import Complaint
from springtide.cli.join_checks import look_at_join
from springtide.cli.rising import changes
from springtide.cli.served_checks import look_at_served
from springtide.cli.subject import Check, Subject, look
from springtide.cli.whereabouts import option
from springtide.model import OperationState
from springtide.ports import Unavailable
from springtide.spec import Cluster

MACHINE = (checks.look_at_programs, checks.look_at_state, checks.look_at_kernel)
FILE = (
    file_checks.look_at_kinds,
    file_checks.look_at_prolog,
    file_checks.look_at_images,
    file_checks.look_at_mounts,
    file_checks.look_at_shared,
    file_checks.look_at_cloud_configs,
    look_at_served,
    look_at_join,
    file_checks.look_at_subnet,
)
CLUSTER = (
    checks.look_at_rights,
    checks.look_at_daemon,
    checks.look_at_batch,
    boot_checks.look_at_boots,
    machine_checks.look_at_machines,
)
SYSTEMD = Path("/run/systemd/system")


def required(subject: Subject) -> list[Check]:
    """What must be right before anything is done."""
    return _required(subject, see(subject))


def look_around(subject: Subject) -> tuple[list[Check], Sight]:
    """All that there is to see."""
    sight = see(subject)
    found = _required(subject, sight)
    found += attached_checks.look(attached_checks.STATE, sight)
    return [*found, *look(CLUSTER, subject)], sight


def _required(subject: Subject, sight: Sight) -> list[Check]:
    found = attached_checks.look(attach_checks.required(sight), sight)
    return list(dict.fromkeys([*found, *look((*MACHINE, *FILE), subject)]))


def is_working(sight: Sight) -> bool:
    return isinstance(sight.standing, Standing) and sight.standing.is_taken


def has_failed(operation: Json) -> bool:
    """Not if the owner of that Slurm only has something to do first."""
    waits = operation["reason"].endswith(ADVICE)
    return operation["state"] == OperationState.FAILED and not waits


def will_be_attached(subject: Subject) -> bool:
    """Whether that Slurm knows our nodes, or will as soon as we ask."""
    now = see(subject).standing
    if isinstance(now, Unavailable) or now.conf.ours is None:
        return False
    return now.is_taken or now.may_reload


def restore(spec: Cluster) -> None:
    """An include that is gone comes first: without it no command of that Slurm answers."""
    try:
        told = Attachment(spec).restore()
    except Unavailable as error:
        raise Complaint(str(error)) from None
    if told:
        output.note(f"tide: {told}")


# --- what is told --------------------------------------------------------------------------


def restarting(sight: Sight) -> list[str]:
    """How the owner restarts slurmctld, where we cannot do with less."""
    running = None if isinstance(sight.running, Unavailable) else sight.running
    return render_restart(running, _command(running))


def _command(running: Running | None) -> str:
    if SYSTEMD.is_dir():
        return "systemctl restart slurmctld"
    if running is None:
        return "as you start it"
    return f"kill $(cat {running.get('slurmctldpidfile')}), and start it as it was started"


def attaching(sight: Sight) -> str:
    file, state = sight.subject.file, sight.subject.spec.state
    return f"tide attach {file if file and file.parent != state else option(state)}"


def render_waiting(sight: Sight) -> str:
    """What the owner of that Slurm has to do now."""
    name, conf = sight.subject.spec.cluster, sight.attachment.conf
    head = f"cluster {name} is not attached to {conf} yet; all else is prepared. Now:"
    return "\n".join(["", head, *_advice(sight)])


def _advice(sight: Sight) -> list[str]:
    if isinstance(sight.standing, Unavailable):
        return [str(sight.standing)]
    again = attaching(sight)
    return render_joining(sight.standing, sight.attachment.include, restarting(sight), again)


def render_intent(subject: Subject) -> str:
    """What would be written, and what there would be to do."""
    sight = see(subject)
    if isinstance(sight.standing, Unavailable):
        return str(sight.standing)
    head = f"would be in {sight.attachment.include}:"
    text = [f"  {line}".rstrip() for line in sight.standing.wanted.splitlines()]
    if sight.standing.is_taken:
        return "\n".join(["", head, *text])
    return "\n".join(["", head, *text, "", "and then you would be told to:", *_advice(sight)])


def render_attached(sight: Sight, news: list[str], operation: Json) -> str:
    """What happened, and how to use the nodes."""
    spec, daemon = sight.subject.spec, sight.subject.daemon
    told = [*news, *changes(daemon, operation)]
    status = daemon.get("/status")
    ready, total = status["nodes"]["ready"], sum(status["nodes"].values())
    partition = next(iter(spec.partitions))
    return "\n".join(
        [
            "",
            f"cluster {spec.cluster} is attached to {sight.attachment.conf}: "
            f"{'; '.join(told) or 'nothing had to be changed'}",
            f"{ready} of {total} nodes ready",
            f"  sbatch -p {partition} -N1 --wrap hostname",
        ]
    )
