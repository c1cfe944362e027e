"""What must be right before a cluster is attached to an existing Slurm; looks, changes nothing.

`tide attach` makes these before it starts a daemon, and `tide check` makes them too.
"""

import os
import socket
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

from springtide.batch import slurm_actions, slurm_existing
from springtide.batch.slurm_attachment import Attachment
from springtide.batch.slurm_existing import MUNGE_KEY, Conf, Running, parse_lines
from springtide.batch.slurm_include import parse_former
from springtide.batch.slurm_munge import MungedAway, try_key
from springtide.batch.slurm_service import read
from springtide.batch.slurm_standing import Standing
from springtide.batch.slurm_text import release
from springtide.batch.slurm_versions import TooOldError, check_version, untried
from springtide.cli.file_checks import containers
from springtide.cli.subject import Check, Subject
from springtide.cli.whereabouts import option
from springtide.compose_slurm import attached_view
from springtide.configure.mounts import bound_in
from springtide.layout import Layout
from springtide.nodeset import fold
from springtide.ports import Unavailable
from springtide.spec import Slurm

T = TypeVar("T")

OTHERS_PROGRAMS = ("resumeprogram", "suspendprogram", "resumefailprogram")
SPELLED = {
    "resumeprogram": "ResumeProgram",
    "suspendprogram": "SuspendProgram",
    "resumefailprogram": "ResumeFailProgram",
}
WRITTEN = ("SlurmdSpoolDir", "SlurmdLogFile", "SlurmdPidFile")
"""What slurmd writes to, if slurm.conf has it elsewhere than in /var."""
SOCKET = "munge's socket"
PLACE_TODO = "name another directory in slurm.conf, as in /var/spool, and restart slurmctld"
SOCKET_TODO = (
    "have it in a directory without slurm.conf and the key; for the key, a copy elsewhere will do: "
    "batch.munge_key"
)
NO_DIRECTORIES = frozenset({Path("/"), Path("/etc")})
"""These cannot be mounted into nodes: each has its own."""


@dataclass(frozen=True, slots=True)
class Sight:
    """All that can be seen of that Slurm now; what cannot says why."""

    subject: Subject
    attachment: Attachment
    conf: Conf | Unavailable
    running: Running | Unavailable
    standing: Standing | Unavailable

    @property
    def batch(self) -> Slurm:
        assert isinstance(self.subject.spec.batch, Slurm)
        return self.subject.spec.batch

    @property
    def theirs(self) -> dict[str, str]:
        """The settings that are that Slurm's own, also those that went from slurm.conf for us."""
        if isinstance(self.conf, Unavailable):
            return {}
        return parse_former(read(self.attachment.include)) | self.conf.settings

    @property
    def other(self) -> Path | None:
        """The state directory of another cluster that is attached to that Slurm."""
        program = Path(self.theirs.get("resumeprogram", ""))
        layout = Layout(program.parent.parent)
        is_other = program.parent == layout.programs and layout.state != self.subject.spec.state
        return layout.state if is_other and layout.is_ours else None

    @property
    def is_loaded(self) -> bool:
        """Whether slurmctld runs our programs, however well."""
        return isinstance(self.running, Running) and self.attachment.is_used(self.running)

    @property
    def needs_programs(self) -> bool:
        """Whether slurmctld may call our programs; one that does not answer may."""
        return self.is_loaded or isinstance(self.running, Unavailable)


Look = Callable[[Sight], Iterable[Check]]


def see(subject: Subject) -> Sight:
    """Nobody is asked twice: a slurmctld that is away takes its time not to answer."""
    attachment = Attachment(subject.spec)
    conf, running = _tried(attachment.read_conf), _tried(attachment.read_running)
    standing: Standing | Unavailable
    if isinstance(conf, Unavailable):
        standing = conf
    elif isinstance(running, Unavailable):
        standing = running
    else:
        standing = _tried(lambda: attachment.look(conf, running))
    return Sight(subject, attachment, conf, running, standing)


def _tried(look: Callable[[], T]) -> T | Unavailable:
    try:
        return look()
    except Unavailable as error:
        return error


# --- that Slurm --------------------------------------------------------------------------


def look_at_conf(sight: Sight) -> Iterator[Check]:
    path = sight.attachment.conf
    if isinstance(sight.conf, Unavailable):
        yield Check("slurm.conf", False, str(sight.conf), "correct batch.attach, or that file")
    elif path.parent in NO_DIRECTORIES:
        text = f"{path.parent} cannot be mounted into nodes, which read {path.name} there"
        yield Check("slurm.conf", False, text, "move it to a directory of its own")
    else:
        nodes, files = len(sight.conf.nodes), len(sight.conf.files)
        more = f" and {files - 1} that it includes" if files > 1 else ""
        own = "1 node of its own" if nodes == 1 else f"{nodes} nodes of its own"
        yield Check("slurm.conf", True, f"{path}{more}: {own}")


def look_at_slurmctld(sight: Sight) -> Iterator[Check]:
    if gone := sight.attachment.gone():
        text = f"{gone}, so that no command of Slurm answers"
        yield Check("include", False, text, sight.subject.deploy)
        return
    if isinstance(sight.running, Unavailable):
        yield Check("slurmctld", False, str(sight.running), "start it, or correct batch.attach")
        return
    host, here = sight.running.host, socket.gethostname()
    same = host.partition(".")[0] == here.partition(".")[0]
    text = f"answers, on {host}" if same else f"runs on {host}, not on this machine ({here})"
    todo = "" if same else f"run this on {host}: slurmctld calls our programs there"
    yield Check("slurmctld", same, text, todo)


def look_at_version(sight: Sight) -> Iterator[Check]:
    if not isinstance(sight.running, Unavailable):
        yield judge_version(sight.running.version)


def judge_version(version: str) -> Check:
    """Too old is refused; newer than any that was tried is used, with a warning."""
    try:
        check_version(release(version))
    except TooOldError as error:
        return Check("Slurm's version", False, str(error), "nothing works with less")
    if warning := untried(release(version)):
        todo = "try resume, rebuild and suspend on one node before you rely on it"
        return Check("Slurm's version", None, f"{version}: {warning}", todo)
    return Check("Slurm's version", True, version)


def look_at_rights(sight: Sight) -> Iterator[Check]:
    """root and SlurmUser may change nodes; SlurmUser calls our programs."""
    root = os.geteuid() == 0
    text = "you are root, who may change nodes" if root else "you are not root"
    yield Check("rights", root, text, "" if root else "run it as root")
    if isinstance(sight.running, Unavailable):
        return
    user, ours = sight.running.user, sight.batch.user
    text = f"slurmctld runs as {user}"
    if user != ours:
        text += f", but batch.user is {ours}: its calls would be refused"
    todo = "" if user == ours else f"set `batch: {{user: {user}}}`"
    yield Check("SlurmUser", user == ours, text, todo)


def look_at_munge(sight: Sight) -> Iterator[Check]:
    if isinstance(sight.conf, Unavailable):
        return
    key = sight.batch.munge_key or MUNGE_KEY
    if os.geteuid() != 0:
        yield Check("munge", None, "only root can try the key", "run it as root")
        return
    try:
        try_key(key, slurm_existing.places(sight.conf).socket)
    except MungedAway as error:
        yield Check("munge", False, str(error), "start munged; if it runs, restart it")
    except Unavailable as error:
        todo = "set batch.munge_key to the key of that Slurm's munged"
        yield Check("munge", False, str(error), todo)
    else:
        yield Check("munge", True, f"{key} is the key of that Slurm's munged")


def look_at_places(sight: Sight) -> Iterator[Check]:
    """Container nodes see the directories of slurm.conf and of the key as they are, read-only."""
    spec, conf = sight.subject.spec, sight.conf
    if isinstance(conf, Unavailable) or not containers(spec):
        return
    found = slurm_existing.places(conf)
    view = attached_view(spec, sight.batch, found)
    writable = [each for provider in containers(spec) for each in provider.mounts]
    writable += [one.path for one in bound_in(spec) if not one.read_only]
    written = {key: conf.settings.get(key.lower(), "") for key in WRITTEN}
    for what, path in {**written, SOCKET: str(found.socket)}.items():
        if path and (seen := view.read_only(Path(path), writable)):
            text = f"{what} is {path}, but container nodes see {seen} read-only, as it is here"
            yield Check("places", False, text, SOCKET_TODO if what == SOCKET else PLACE_TODO)


# --- what is ours beside what is theirs --------------------------------------------------


def look_at_other_cluster(sight: Sight) -> Iterator[Check]:
    """Whoever made room for us as beside programs of theirs would break it."""
    if (other := sight.other) is not None:
        chosen = option(other)
        text = f"the cluster in {other} is attached to this Slurm already, which can have only one"
        todo = (
            f"add your groups to its file (see `tide status {chosen}`), and run "
            f"`tide attach {chosen}`"
        )
        yield Check("other cluster", False, text, todo)


def look_at_names(sight: Sight) -> Iterator[Check]:
    if isinstance(sight.conf, Unavailable):
        return
    nodes = sight.subject.spec.node_group.keys() & set(sight.conf.nodes)
    if nodes:
        text = f"{fold(nodes)} is defined in {sight.attachment.conf} already"
        yield Check("names of nodes", False, text, "give the nodes of `groups` other names")
    else:
        count = len(sight.subject.spec.node_group)
        yield Check("names of nodes", True, f"none of our {count} is defined there already")
    for name in sorted(_partitions(sight) & set(sight.conf.partitions)):
        text = f"partition {name} is defined in {sight.attachment.conf} already"
        yield Check("names of partitions", False, text, "give it another name in `partitions`")


def _partitions(sight: Sight) -> set[str]:
    """Ours, with those for rebuilds."""
    if isinstance(sight.standing, Unavailable):
        return set(sight.subject.spec.partitions)
    lines = parse_lines(sight.standing.wanted)
    return {line.name for line in lines if line.kind == "partitionname"}


def look_at_their_programs(sight: Sight) -> Iterator[Check]:
    """Slurm has one of each."""
    if isinstance(sight.conf, Unavailable):
        return
    ours = f"{sight.subject.daemon.layout.programs}/"
    found = {key: sight.theirs.get(key, ours) for key in OTHERS_PROGRAMS}
    foreign = {key: value for key, value in found.items() if not value.startswith(ours)}
    for key, value in foreign.items():
        text = f"{SPELLED[key]} is {value}: that Slurm saves power by itself, and has one for all"
        todo = "take it out of slurm.conf, or do not attach: both together do not work"
        yield Check("their programs", False, text, todo)
    if not foreign:
        yield Check("their programs", True, "no power saving of its own")


def look_at_prolog(sight: Sight) -> Iterator[Check]:
    theirs, chained = sight.theirs.get("prologslurmctld", ""), sight.batch.prolog
    ours = f"{sight.subject.daemon.layout.programs}/"
    if not theirs or theirs.startswith(ours):
        return
    if theirs != str(chained or ""):
        text = f"PrologSlurmctld is {theirs}, and would not run any more"
        yield Check("their prolog", False, text, f"set `batch: {{prolog: {theirs}}}`")
    else:
        yield Check("their prolog", True, f"{theirs} runs after ours")


def look_at_reboot(sight: Sight) -> Iterator[Check]:
    """With power actions of ours it does not matter what RebootProgram is."""
    if isinstance(sight.standing, Standing) and slurm_actions.chosen(sight.standing.wanted):
        return
    theirs = sight.theirs.get("rebootprogram", "")
    if theirs and not theirs.startswith(f"{sight.subject.daemon.layout.programs}/"):
        text = f"RebootProgram stays {theirs}, so Slurm cannot rebuild our nodes"
        todo = "nothing: `tide rebuild` drains them and does it, but not --via jobs"
        yield Check("their RebootProgram", None, text, todo)


def look_at_include(sight: Sight) -> Iterator[Check]:
    """By letting Slurm read slurm.conf with it."""
    if isinstance(sight.standing, Unavailable):
        return
    try:
        sight.attachment.try_include(sight.standing)
    except Unavailable as error:
        todo = "correct batch.parameters, or the parameters of the partitions"
        yield Check("the include", False, str(error), todo)


REQUIRED: Sequence[Look] = (
    look_at_conf,
    look_at_slurmctld,
    look_at_version,
    look_at_rights,
    look_at_munge,
    look_at_places,
)
BESIDE: Sequence[Look] = (
    look_at_names,
    look_at_their_programs,
    look_at_prolog,
    look_at_reboot,
    look_at_include,
)


def required(sight: Sight) -> Sequence[Look]:
    """All that must be right; beside another cluster of ours nothing else would be good advice."""
    return (*REQUIRED, *((look_at_other_cluster,) if sight.other else BESIDE))
