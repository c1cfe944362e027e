"""Grid Engine behind `ports.Queue`: hosts come to the hostgroup of a queue, and go.

A queue of ours has a hostgroup. A host that joins is made an execution host, gets slots of its
own in the queue and becomes a member of the hostgroup; when it leaves, all that is undone. So that
jobs are accepted while there is no host, a placeholder that exists nowhere is always a member.
"""

import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TypeVar

from springtide import threads
from springtide.batch import gridengine_entry, gridengine_text
from springtide.batch.gridengine_cell import AT_ONCE, THEIRS, Cell
from springtide.batch.gridengine_commands import Commands, require_done
from springtide.batch.gridengine_conf import parse_rule
from springtide.batch.gridengine_jobs import is_drained, jobs_of, needs_limits, node_of
from springtide.batch.gridengine_match import is_readable, matches
from springtide.batch.gridengine_members import (
    checked,
    context_of,
    group_of,
    require_queues,
)
from springtide.batch.gridengine_members import jobs_of as checked_jobs
from springtide.batch.gridengine_text import Limits, Listed
from springtide.batch.gridengine_where import Site, closed_queues, hosts_of_others
from springtide.batch.names import batches, node_names
from springtide.batch.unread import UnreadableError
from springtide.batch.wants import known_features
from springtide.nodeset import fold
from springtide.ports import Entry, Member, Queue, Reading, Unavailable
from springtide.spec import Cluster, GridEngine

T = TypeVar("T")

NO_JOB = "0"
"""Asked for when there is nothing to ask, so that a reading costs the same at all times."""
MOST_ASKED = 5000
"""Jobs in one command: the kernel takes no argument of more than 128 KiB."""
RULES_S = 300.0
"""Parallel environments are asked for again after this, or when a job has another."""
DELETED = "already in deleted state"
"""What is said of a job that is to be deleted once its node says that it has ended."""
STUCK = "its node is dead, and it may not run twice; ask an admin to delete it (qdel -f)"


def queue(spec: Cluster) -> Queue:
    """The Grid Engine of a cluster file."""
    assert isinstance(spec.batch, GridEngine)
    batch = spec.batch
    commands = Commands(batch.bin, batch.root, batch.cell)
    cell = Cell(commands, spec.cluster, batch.placeholder_of(spec.cluster), tuple(spec.managed))
    shared = [one.path for one in spec.shared]
    return GridEngineQueue(cell, tuple(spec.partitions), shared, known_features(spec))


class GridEngineQueue:
    """One cell, asked with its own commands."""

    programs: Sequence[str] = ("qconf", "qhost", "qmod", "qstat", "qalter")

    def __init__(
        self,
        cell: Cell,
        queues: Sequence[str],
        shared: Sequence[Path] = (),
        features: frozenset[str] = frozenset(),
    ) -> None:
        """`queues` are those that nodes start for; `shared` are filesystems that nodes mount, and
        `features` all that our groups have."""
        self._cell = cell
        self._commands = cell.commands
        self._names = frozenset(cell.names)
        self._queues = tuple(queues)
        self._shared = shared
        self._features = features
        self._threads = ThreadPoolExecutor(2, "gridengine")
        self._version = ""
        self._rules: dict[str, str] = {}
        self._rules_at = -RULES_S

    # --- reading -----------------------------------------------------------------------------

    async def version(self) -> str:
        def work() -> str:
            self._cell.queue_names()
            self._version = gridengine_text.parse_version(self._commands.checked("qstat", "-help"))
            return f"Grid Engine {self._version}"

        return await self._in_thread(work)

    async def read(self) -> Reading:
        return await self._in_thread(self._read)

    def _read(self) -> Reading:
        """Hosts last: a job that starts meanwhile shows on its host, one that ends does no harm."""
        queues = self._cell.queues()
        require_queues(queues, self._queues)
        complexes, shared = self._cell.complexes(), self._cell.shared()
        jobs = gridengine_text.parse_jobs(self._commands.checked("qstat", "-u", "*", "-r", "-xml"))
        limits, rules = self._limits(jobs), self._rules_for(jobs)
        hosts = self._cell.shown()
        placeholder = hosts.pop(self._cell.placeholder, None)
        site = Site(
            queues,
            complexes,
            rules,
            names=self._names,
            ours=self._queues,
            others=hosts_of_others(hosts.values(), self._names),
            features=self._features,
            shared=shared.union(*(one.resources for one in queues.values())),
            limits=limits,
            closed=closed_queues(placeholder.queues if placeholder else {}),
            now=time.time(),
        )
        nodes = {name: node_of(host, site.closed) for name, host in hosts.items()}
        return Reading(nodes, jobs_of(jobs, hosts.values(), site))

    def _limits(self, jobs: Iterable[Listed]) -> Mapping[str, Limits]:
        asked = list(dict.fromkeys(job.number for job in jobs if needs_limits(job))) or [NO_JOB]
        limits: dict[str, Limits] = {}
        for some in batches(asked, MOST_ASKED):
            shown = self._commands.checked("qstat", "-j", ",".join(some), "-xml")
            limits |= gridengine_text.parse_limits(shown)
        return limits

    def _rules_for(self, jobs: Iterable[Listed]) -> Mapping[str, str]:
        """How parallel environments place slots; asked for only if a job needs to know.

        What is no pattern holds its own job, later.
        """
        named = {job.environment for job in jobs if job.environment}
        wanted = set(filter(is_readable, named))
        if not wanted:
            return {}
        known = all(any(matches(name, one) for name in self._rules) for one in wanted)
        if not known or time.monotonic() - self._rules_at > RULES_S:
            names = self._commands.checked("qconf", "-spl").split()
            texts = {name: self._commands.checked("qconf", "-sp", name) for name in names}
            self._rules = {name: parse_rule(text) for name, text in texts.items()}
            self._rules_at = time.monotonic()
        return self._rules

    # --- nodes come and go -------------------------------------------------------------------

    async def require(self, members: Iterable[Member]) -> None:
        listed = checked(members)
        await self._in_thread(lambda: self._require(listed))

    def _require(self, members: Sequence[Member]) -> list[str]:
        """The queues, each with a hostgroup."""
        self._cell.refuse_strangers([member.name for member in members])
        queues = list(dict.fromkeys(name for member in members for name in member.queues))
        shown = self._cell.queues()
        for name in queues:
            group_of(shown, name)
        return queues

    async def prepare(self, members: Iterable[Member]) -> str:
        listed = checked(members)
        groups = await self._in_thread(lambda: self._cell.keep_open(self._require(listed)))
        return f"{self._cell.placeholder} is a member of {', '.join(groups)}" if groups else ""

    async def dismantle(self, names: Iterable[str]) -> None:
        """The placeholder goes with the last of our nodes. Hosts of others are left alone."""
        listed = node_names(names)
        left = await self.leave(listed)
        if stayed := {name: why for name, why in left.items() if why != THEIRS}:
            words = "; ".join(f"{name}: {why}" for name, why in stayed.items())
            raise Unavailable(f"Grid Engine keeps {fold(stayed)}: {words}")
        if listed and not self._names - set(listed):
            await self._in_thread(self._cell.let_close)

    async def join(self, members: Iterable[Member]) -> None:
        listed = checked(members)
        if listed:
            await self._in_thread(lambda: self._cell.join(listed))

    async def leave(self, names: Iterable[str]) -> Mapping[str, str]:
        listed = node_names(names)
        return await self._in_thread(lambda: self._cell.leave(listed)) if listed else {}

    # --- drains ------------------------------------------------------------------------------

    async def drain(self, names: Iterable[str], reason: str) -> None:
        """It keeps no reasons."""
        await self._turn(node_names(names), "-d", drained=True)

    async def undrain(self, names: Iterable[str]) -> None:
        await self._turn(node_names(names), "-e", drained=False)

    async def _turn(self, names: Sequence[str], way: str, *, drained: bool) -> None:
        def work() -> None:
            self._cell.refuse_strangers(names)
            said = self._cell.mark(names, way)
            hosts = self._cell.hosts()
            wrong = [n for n in names if n not in hosts or is_drained(hosts[n]) != drained]
            if wrong:
                raise Unavailable(f"qmod {way} did nothing to {fold(wrong)}: {said or 'no word'}")

        if names:
            await self._in_thread(work)

    # --- jobs --------------------------------------------------------------------------------

    async def requeue(self, jobs: Iterable[str]) -> None:
        """Those that may not run twice stay where they are, and their owners are told."""
        listed = checked_jobs(jobs)

        def work() -> list[str]:
            return [job for job in listed if "not restartable" in self._rescheduled(job)]

        if stuck := await self._in_thread(work) if listed else []:
            await self.tell(stuck, STUCK)

    def _rescheduled(self, job: str) -> str:
        """What is said of it. One that its owner has deleted ends by force, and does not wait."""
        done = self._commands.run("qmod", "-rj", job)
        if DELETED in done.stdout + done.stderr:
            done = self._commands.run("qmod", "-f", "-rj", job)
        require_done(done)
        return done.stdout + done.stderr

    async def tell(self, jobs: Iterable[str], text: str) -> None:
        """In the job's context, which qstat -j shows."""
        numbers = list(dict.fromkeys(job.partition(".")[0] for job in checked_jobs(jobs)))

        def work() -> None:
            for some in batches(numbers, AT_ONCE):
                require_done(self._commands.run("qalter", "-ac", context_of(text), ",".join(some)))

        if numbers:
            await self._in_thread(work)

    async def wake(self) -> None:
        """The scheduler's next turn is now; it also writes a trace of it."""
        await self._in_thread(lambda: self._commands.checked("qconf", "-tsm"))

    # --- what a node needs -------------------------------------------------------------------

    def entry(self, name: str) -> Entry:
        node_names([name])
        commands = self._commands
        return gridengine_entry.entry(commands.root, commands.cell, self._shared, self._version)

    async def _in_thread(self, work: Callable[[], T]) -> T:
        """Parsing too, so that a long answer does not hold up the daemon."""
        try:
            return await threads.run(self._threads, work)
        except UnreadableError as error:
            raise Unavailable(f"Grid Engine gave no sensible answer: {error}") from error
