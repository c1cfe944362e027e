"""A Slurm that is there and stays as it is, behind `ports.Queue`: no line of its slurm.conf is
ours, and it calls no program of ours. Its slurm.conf has our nodes and partitions.

A node that is off is drained and down. Down alone would not do: with ReturnToService=2 its slurmd
would be given jobs as soon as it registers, before slurmctld knows where it is. What is drained
gets no job from the moment on that scontrol returns, so that a look which finds none stays true,
and the node can be put down, which would kill jobs.
"""

import re
import time
from collections.abc import Collection, Iterable, Mapping, Sequence

from springtide.batch import slurm_reason, slurm_text
from springtide.batch.names import check_address, matching, node_names
from springtide.batch.slurm_commands import Commands, past_job
from springtide.batch.slurm_conf import slurm_of
from springtide.batch.slurm_nodes import LONGEST_REASON, fitting
from springtide.batch.slurm_polled_nodes import KEPT, OFF, UNTOLD, Known, joined, shown
from springtide.batch.slurm_polled_talk import SlurmTalk
from springtide.nodeset import fold
from springtide.ports import (
    OURS,
    Entry,
    Health,
    Job,
    Member,
    Queue,
    QueueNode,
    Reading,
    Unavailable,
)
from springtide.spec import Cluster

LONGEST_COMMENT = 500
LEAVES = f"{slurm_reason.PREFIX}leaves"
"""Between being drained and being down."""
BEHIND_S = 0.1
DEAD = f"{slurm_reason.PREFIX}is dead, its jobs were requeued"

_JOB = re.compile(r"[0-9]+(?:_[0-9]+)?")


def queue(spec: Cluster) -> Queue:
    """The Slurm of a cluster file."""
    batch = slurm_of(spec)
    if batch.attach is None:
        raise Unavailable("batch.polling watches a Slurm that is there; set batch.attach")
    commands = Commands(batch.attach, "is batch.attach right?")
    return SlurmQueue(commands, spec.managed, batch.user)


class SlurmQueue(SlurmTalk):
    """One Slurm, for the daemon."""

    programs: Sequence[str] = ("scontrol", "squeue")

    # --- reading -----------------------------------------------------------------------------

    async def version(self) -> str:
        running = await self._in_thread(self._running)
        return f"Slurm {running.version}"

    async def read(self) -> Reading:
        """Nodes that slurmctld looks for in the wrong place are found again by the way."""
        return await self._in_thread(self._read)

    def _read(self) -> Reading:
        """Jobs last: one that starts meanwhile has its nodes, and is no demand any more; one that
        ends leaves its node busy until the next look."""
        known = self._known()
        jobs = self._jobs(excluding=True)
        if moved := {name: one.joined for name, one in known.items() if one.moved}:
            self._place(moved)
        return Reading(shown(known, jobs), jobs, self._started_at)

    # --- nodes come ----------------------------------------------------------------------------

    async def require(self, members: Iterable[Member]) -> None:
        listed = list(members)
        node_names(member.name for member in listed)
        await self._in_thread(lambda: self._require(listed))

    def _require(self, members: Sequence[Member]) -> list[Known]:
        known = self._required([member.name for member in members])
        for member, one in zip(members, known, strict=True):
            if lacking := [name for name in member.queues if name not in one.partitions]:
                raise Unavailable(
                    f"{member.name} is not in partition {lacking[0]} of Slurm; add it to the Nodes="
                    f" of `PartitionName={lacking[0]}` in {self._commands.conf} and restart "
                    "slurmctld, or correct `partitions`"
                )
        return known

    async def prepare(self, members: Iterable[Member]) -> str:
        """It accepts jobs for nodes that are down. Those that have not joined are made so, or they
        would get jobs before it is known where they are."""
        listed = list(members)
        node_names(member.name for member in listed)
        return await self._in_thread(lambda: self._prepare(listed)) if listed else ""

    def _prepare(self, members: Sequence[Member]) -> str:
        known = self._require(members)
        free = [one for one in known if one.is_loose and not one.is_persons]
        self._put_down(free)
        self._comment((one, KEPT) for one in known if not one.marked)
        return f"{fold(one.node.name for one in free)} down until they join" if free else ""

    async def join(self, members: Iterable[Member]) -> None:
        """Who is off stays so until it is heard from. Who is not is put down first."""
        addresses = {member.name: member.address for member in members}
        node_names(addresses)
        for name, address in addresses.items():
            check_address(name, address)
        if addresses:
            await self._in_thread(lambda: self._join(addresses))

    def _join(self, addresses: Mapping[str, str]) -> None:
        self._required([*addresses])
        known, nodes = self._look(addresses)
        there = [one for one in known if not one.is_off]
        if busy := [one.node.name for one in there if nodes[one.node.name].jobs]:
            raise Unavailable(f"{fold(busy)} cannot join anew: jobs are on it")
        if stay := self._put_down(there):
            raise Unavailable(f"{fold(stay)} cannot join anew: {'; '.join(stay.values())}")
        self._place(addresses)
        known = self._required([*addresses])
        self._comment((one, joined(addresses[one.node.name], one.reason_at)) for one in known)

    # --- nodes go ------------------------------------------------------------------------------

    async def leave(self, names: Iterable[str]) -> Mapping[str, str]:
        """Also nodes on which jobs are being cleaned up after stay."""
        listed = node_names(names)
        return await self._in_thread(lambda: self._leave(listed)) if listed else {}

    def _leave(self, names: Sequence[str]) -> dict[str, str]:
        known, _ = self._look(names)
        here = [one for one in known if one.joined or not one.is_off]
        stay = self._put_down(here)
        listed = [one.node.name for one in here if one.node.name not in stay]
        self._comment((one, KEPT) for one in here if one.node.name not in stay)
        _, nodes = self._look(())
        kept = [name for name in listed if nodes[name].health is not Health.ABSENT]
        return stay | dict.fromkeys(kept, "slurmctld shows it still")

    def _put_down(self, nodes: Collection[Known]) -> dict[str, str]:
        """Drained first, and then down; answers those that have jobs and stay drained, and why.

        A person's reason stays. Ours is a new one each time, because it has the time.
        """
        names = [one.node.name for one in nodes]
        theirs = {one.node.name: _persons(one) for one in nodes if one.is_persons}
        self._close(names, theirs, "drain", LEAVES)
        known, seen = self._look(names)
        gone = [one for one in known if not seen[one.node.name].jobs]
        _outlast([one.started_at for one in gone if one.started_at])
        self._close([one.node.name for one in gone], theirs, "down", OFF)
        return {name: _on_it(seen[name]) for name in names if seen[name].jobs}

    def _close(
        self, names: Sequence[str], theirs: Mapping[str, str], state: str, reason: str
    ) -> None:
        ours = [name for name in names if name not in theirs]
        self._update(ours, f"state={state}", f"reason={reason}")
        for name in names:
            if name in theirs:
                self._update([name], f"state={state}", f"reason={theirs[name]}")

    async def dismantle(self, names: Iterable[str]) -> None:
        """They stay in slurm.conf, and down, until somebody resumes them."""
        listed = node_names(names)
        if stay := await self.leave(listed):
            said = "; ".join(f"{name}: {why}" for name, why in stay.items())
            raise Unavailable(f"{fold(stay)} cannot go yet: {said}")
        await self._in_thread(lambda: self._forget(listed))

    def _forget(self, names: Sequence[str]) -> None:
        known, _ = self._look(names)
        self._comment((one, "") for one in known if one.marked)

    # --- drains ----------------------------------------------------------------------------------

    async def drain(self, names: Iterable[str], reason: str) -> None:
        """Those that are off, or were and have not been put into service since, are drained."""
        listed = node_names(names)
        words = slurm_text.one_line(reason, LONGEST_REASON)
        if listed:
            await self._in_thread(lambda: self._drain(listed, words))

    def _drain(self, names: Sequence[str], reason: str) -> None:
        known = self._required(names)
        there = [one.node.name for one in known if not one.is_off]
        self._update(there, "state=drain", f"reason={reason}")

    async def undrain(self, names: Iterable[str]) -> None:
        """Who was put down and has been heard from is idle at once; to resume it would have
        slurmctld wait until it has heard from it once more. Also if a person drained it then.
        What happens to it afterwards has nothing to do with its being off before."""
        listed = node_names(names)
        if listed:
            await self._in_thread(lambda: self._undrain(listed))

    def _undrain(self, names: Sequence[str]) -> None:
        known = self._required(names)
        left = [one.node.name for one in known if one.is_left_down]
        back = [one.node.name for one in known if one.is_off and one.health is Health.UP]
        open_ = [one.node.name for one in known if not one.is_off and one.node.drained]
        self._update([*back, *left], "state=idle")
        open_ = [name for name in open_ if name not in left]
        self._update(open_, "state=undrain")
        self._comment((one, joined(one.joined)) for one in known if one.off_at)

    # --- jobs ------------------------------------------------------------------------------------

    async def requeue(self, jobs: Iterable[str]) -> None:
        """Nodes that we have drained, and that have no other jobs, are taken for dead: their jobs
        would be cleaned up after until slurmctld gives those nodes up. Those that may not run again
        end with them (NODE_FAIL)."""
        wanted = frozenset(_jobs_of(job for job in jobs if job != UNTOLD))
        if wanted:
            await self._in_thread(lambda: self._requeue(wanted))

    def _requeue(self, wanted: frozenset[str]) -> None:
        """Not what is over and merely cleaned up after: Slurm would run it once more."""
        _, nodes = self._look(())
        there = {job for node in nodes.values() for job in node.jobs} & wanted
        if not there:
            return
        for some in fitting(sorted(there - self._ending())):
            self._forgiving("requeue", ",".join(some))
        dead = [
            node.name
            for node in nodes.values()
            if node.name in self._ours and node.jobs and wanted.issuperset(node.jobs)
            if node.drained and node.reason.startswith(OURS)
        ]
        self._update(dead, "state=down", f"reason={DEAD}")
        # A job that was requeued would wait for as long as its credential is good.
        for some in fitting(sorted(there)):
            self._forgiving("update", f"jobid={','.join(some)}", "starttime=now")

    async def tell(self, jobs: Iterable[str], text: str) -> None:
        listed = ",".join(_jobs_of(jobs))
        comment = slurm_text.one_line(text, LONGEST_COMMENT)
        if listed:
            await self._in_thread(
                lambda: self._forgiving("update", f"jobid={listed}", f"admincomment={comment}")
            )

    async def past_job(self, id: str) -> Job | None:
        return await self._in_thread(lambda: past_job(self._commands, id))

    async def wake(self) -> None:
        """Every change of a node has slurmctld look for jobs at once."""

    # --- the rest --------------------------------------------------------------------------------

    def entry(self, name: str) -> Entry:
        """Without -b: who just booted by its own account and speaks late is taken for rebooted."""
        conf = str(self._commands.conf)
        return Entry(
            command=("slurmd", "-D", "-N", name, "-f", conf),
            environment={"SLURM_CONF": conf},
            version=self._version,
            versions=("slurmd", "-V"),
        )


def _jobs_of(jobs: Iterable[str]) -> list[str]:
    return matching(_JOB, jobs, "a job of Slurm")


def _persons(one: Known) -> str:
    return slurm_reason.write(one.node.reason, one.node.owner or OURS)


def _on_it(node: QueueNode) -> str:
    return f"jobs are on it: {', '.join(node.jobs)}"


def _outlast(started: Sequence[float]) -> None:
    """Into the next second: a slurmd that started in this one would seem to have started since.

    slurmctld's clock of whole seconds may be a little behind.
    """
    left = max(started, default=0.0) + 1.0 + BEHIND_S - time.time()
    if 0.0 < left <= 1.0 + BEHIND_S:
        time.sleep(left)
