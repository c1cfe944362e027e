"""Our part in a Slurm of somebody else's: one file that its slurm.conf includes.

The daemon's AttachedSlurm reloads through an Attachment; `tide attach` and `tide check` look
through one. Nothing else of that Slurm is written, and its slurmctld is never started or
stopped: it is asked to reread its files where that is enough.
"""

import tempfile
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TypeVar

from springtide.batch import slurm_actions, slurm_existing, slurm_text
from springtide.batch.slurm import NODES
from springtide.batch.slurm_commands import Commands
from springtide.batch.slurm_conf import hides_nodes, slurm_of
from springtide.batch.slurm_existing import Conf, Running, UnreadableConf
from springtide.batch.slurm_include import (
    compose_include,
    decide_differences,
    lost,
    render_left,
)
from springtide.batch.slurm_place import check_reachable, directory, write
from springtide.batch.slurm_service import read
from springtide.batch.slurm_standing import Standing
from springtide.batch.slurm_versions import Change, Release, TooOldError
from springtide.batch.unread import UnreadableError
from springtide.layout import Layout
from springtide.nodeset import NodeNameError, expand, fold
from springtide.ports import Job, Unavailable
from springtide.spec import Cluster

T = TypeVar("T")

REREAD_S = 10.0
"""A slurmctld has reread its files by then."""
LOOK_S = 0.2


class Waiting(Unavailable):
    """The owner of that Slurm has something to do first; the text says what."""


class Attachment:
    """One cluster's."""

    def __init__(self, cluster: Cluster) -> None:
        batch = slurm_of(cluster)
        assert batch.attach is not None
        self._cluster = cluster
        self._layout = Layout(cluster.state)
        self._user = batch.user
        self.commands = Commands(batch.attach, "is batch.attach right?", silent=self.gone)

    @property
    def conf(self) -> Path:
        return self.commands.conf

    @property
    def include(self) -> Path:
        return self._layout.include

    # Looking

    def look(self, conf: Conf | None = None, running: Running | None = None) -> Standing:
        """One look at the files and at slurmctld, as far as none was had; raises Unavailable."""
        conf, running = conf or self.read_conf(), running or self.read_running()
        written = read(self.include)
        try:
            wanted = compose_include(self._cluster, conf, running, written)
        except TooOldError as error:
            raise Unavailable(str(error)) from error
        at = self.include.stat().st_mtime if written else 0.0
        return Standing(
            conf, running, self._missing(running.release), wanted, written, at, self.taken
        )

    def read_conf(self) -> Conf:
        try:
            return slurm_existing.read(self.conf, self.include)
        except UnreadableConf as error:
            raise Unavailable(str(error)) from error

    def gone(self) -> str:
        """That slurm.conf includes our file, and it is not there, in words: no command of Slurm
        answers then, and each tries for a minute."""
        if self.include.exists():
            return ""
        try:
            line = self.read_conf().ours
        except Unavailable:
            return ""
        if line is None:
            return ""
        return f"{line.file}, line {line.number} includes {self.include}, which is not there"

    def read_running(self) -> Running:
        return self._asked(slurm_existing.parse_running, "scontrol", "show", "config")

    def _missing(self, version: Release) -> tuple[str, ...]:
        """A Slurm that hides powered-down nodes cannot tell."""
        if hides_nodes(self._cluster, version):
            return ()
        known = self._asked(slurm_text.parse_nodes, "scontrol", "-o", "show", "nodes")
        return tuple(name for name in self._cluster.node_group if name not in known)

    def _asked(self, parse: Callable[[str], T], *command: str) -> T:
        """What a command says, read."""
        said = self.commands.checked(command).stdout
        try:
            return parse(said)
        except UnreadableError as error:
            raise Unavailable(str(error)) from error

    @property
    def taken(self) -> str:
        """The include that slurmctld was last seen to run with."""
        return read(self._taken)

    @property
    def reboots(self) -> bool:
        """Whether `scontrol reboot` comes to us: not where RebootProgram is theirs."""
        try:
            theirs = self.read_conf().settings.get("rebootprogram")
        except Unavailable:
            return True
        return not theirs or self._is_ours(theirs) or bool(slurm_actions.chosen(self.taken))

    def _is_ours(self, program: str) -> bool:
        return program.startswith(f"{self._layout.programs}/")

    def require_reboots(self) -> None:
        if slurm_actions.chosen(self.taken):
            return
        theirs = self.read_running().get("rebootprogram")
        if not self._is_ours(theirs):
            raise Unavailable(
                f"RebootProgram of this Slurm is {theirs or 'not set'}, which does not rebuild "
                "nodes; use `tide rebuild --direct`"
            )

    @property
    def _taken(self) -> Path:
        return self._layout.run / "springtide.conf"

    @property
    def _closed(self) -> Path:
        """There while our partitions are closed by us."""
        return self._layout.run / "closed"

    @property
    def _opening(self) -> Path:
        """In its place since a start has begun, which is to open them."""
        return self._layout.run / "opening"

    # Changing

    def reload(self) -> str:
        """Write the include and have slurmctld run with it; says what that changed."""
        now = self.load()
        if not now.taken:
            self.open()
        elif self._closed.exists():
            self._closed.replace(self._opening)
        write(self._layout.conf / NODES, "".join(f"{name}\n" for name in self._cluster.managed))
        write(self._taken, now.wanted)
        return "slurmctld runs with our nodes" if now.taken != now.wanted else ""

    def restore(self) -> str:
        """Write the include again if it is gone, as slurmctld last ran with it; says so.

        One that it never ran with is empty, until it is known what it should be.
        """
        if not (gone := self.gone()):
            return ""
        try:
            directory(self.include.parent, "root", 0o755)
            write(self.include, self.taken)
        except OSError as error:
            raise Unavailable(f"{gone}; it cannot be written: {error.strerror}") from error
        return f"{gone}; it was written again"

    def load(self) -> Standing:
        """The same, but for our own account of it. Raises Waiting for what its owner must do."""
        self.restore()
        before = self.look()
        try:
            self._install(before)
        except OSError as error:
            where = error.filename or self._layout.state
            raise Unavailable(f"cannot write {where}: {error.strerror}") from error
        now = self.look()
        if now.conf.ours is None:
            raise Waiting(f"{self.conf} does not include {self.include} yet; {ADVICE}")
        if now.is_taken:
            return now
        if not before.may_reload:
            raise Waiting(f"slurmctld has not read {self.include} as it is now; {ADVICE}")
        self.commands.checked(["scontrol", "reconfigure"])
        return self._reread()

    def _reread(self) -> Standing:
        end = time.monotonic() + REREAD_S
        while not (now := self.look()).is_taken:
            if time.monotonic() > end:
                raise Waiting(f"slurmctld has reread its files, but {_why(now)}; {ADVICE}")
            time.sleep(LOOK_S)
        return now

    def _install(self, now: Standing) -> None:
        """A file that Slurm would not read never takes the place of one that it does."""
        directory(self._layout.state, "root", 0o755)
        check_reachable(self._layout.state, self._user)
        for path in (self._layout.run, self._layout.log, self.include.parent):
            directory(path, "root", 0o755)
        if now.written != now.wanted:
            self.try_include(now)
            write(self.include, now.wanted)

    def try_include(self, now: Standing) -> None:
        """Raises Unavailable if Slurm would not read its slurm.conf with the include."""
        with tempfile.TemporaryDirectory(prefix="tide-conf-") as place:
            draft = Path(place) / "slurm.conf"
            draft.write_text(now.conf.render(now.wanted))
            try:
                self.commands.checked(["scontrol", "--version"], conf=draft)
            except Unavailable as error:
                why = str(error).replace(str(draft), f"{self.conf} with our include")
                raise Unavailable(f"Slurm would not read it: {why}") from error

    # Partitions and their jobs

    def jobs(self) -> list[Job]:
        """The jobs that need our nodes: on them, or waiting in our partitions alone."""
        command = ("squeue", "--all", "--noheader", "-o", slurm_text.JOB_FORMAT)
        found = self._asked(slurm_text.parse_jobs, *command)
        ours, nodes = set(self._partitions()), frozenset(self._cluster.node_group)
        return [job for job in found if _is_on(job, nodes) or set(job.partition.split(",")) <= ours]

    def close(self) -> None:
        """Have our partitions start no more jobs, until `open`, or a start that begins after it."""
        self._closed.parent.mkdir(parents=True, exist_ok=True)
        write(self._closed, "")
        self._opening.unlink(missing_ok=True)
        self._set_partitions(dict.fromkeys(self._partitions(), "DOWN"))

    def open(self) -> None:
        self._set_partitions(self._partitions())
        for mark in (self._closed, self._opening):
            mark.unlink(missing_ok=True)

    def reopen(self) -> None:
        if self._opening.exists():
            self.open()

    def _set_partitions(self, states: Mapping[str, str]) -> None:
        """Those that slurmctld knows and shows otherwise."""
        said = self.commands.checked(["scontrol", "-a", "-o", "show", "partitions"]).stdout
        lines = slurm_existing.parse_lines(said)
        shown = {line.name: dict(line.pairs).get("state") for line in lines}
        for name, state in states.items():
            if shown.get(name, state) != state:
                change = [f"partitionname={name}", f"state={state}"]
                self.commands.checked(["scontrol", "update", *change])

    def _partitions(self) -> dict[str, str]:
        """Ours, and the states that they should be in."""
        lines = slurm_existing.parse_lines(read(self.include))
        ours = [line for line in lines if line.kind == "partitionname"]
        return {line.name: dict(line.pairs).get("state", "UP").upper() for line in ours}

    # Leaving

    def leave(self) -> "Needed":
        """Make the include harmless; says what of ours that Slurm still needs."""
        needed = self._needed()
        if needed.include:
            write(self.include, render_left(read(self.include), self.read_conf()))
        if needed.programs and not needed.former and self._drops_us():
            return replace(needed, programs=False)
        return needed

    def _needed(self) -> "Needed":
        """Of a slurmctld that does not answer nobody knows, so it may need all."""
        conf = self.read_conf() if self.conf.exists() else None
        included = conf is not None and conf.ours is not None
        former = conf is not None and not included and bool(lost(read(self.include), conf))
        try:
            return Needed(included, self.is_used(self.read_running()), former)
        except Unavailable:
            return Needed(included, included, former)

    def is_used(self, running: Running) -> bool:
        """Whether slurmctld runs our programs."""
        ours = f"{self._layout.programs}/"
        return any(value.startswith(ours) for value in running.settings.values())

    def _drops_us(self) -> bool:
        """Whether slurmctld has reread its files and runs without us."""
        try:
            if not Change.RELOADS_ALL.applies(self.read_running().release):
                return False
            self.commands.checked(["scontrol", "reconfigure"])
            end = time.monotonic() + REREAD_S
            while self.is_used(self.read_running()):
                if time.monotonic() > end:
                    return False
                time.sleep(LOOK_S)
        except Unavailable:
            return False
        return True


@dataclass(frozen=True, slots=True)
class Needed:
    """What of ours that Slurm needs, though we leave."""

    include: bool
    """Its slurm.conf includes it, and slurmctld would not start without it."""
    programs: bool
    """slurmctld runs them, above all before each job."""
    former: bool
    """Its slurm.conf has neither the include nor all that had to go for us: only we know that."""

    def __bool__(self) -> bool:
        return self.include or self.programs or self.former


ADVICE = "run `tide attach` to see what to do"
"""Ends what is said of waiting, and of nothing else."""


def _is_on(job: Job, nodes: frozenset[str]) -> bool:
    try:
        return not nodes.isdisjoint(expand(job.nodes)) if job.nodes else False
    except NodeNameError:
        return False


def _why(now: Standing) -> str:
    if now.missing:
        return f"does not know {fold(now.missing)}"
    differences = decide_differences(now.wanted, now.running)
    if differences:
        return f"runs with other values of {', '.join(differences)}"
    return "does not run with all of ours"
