"""OpenPBS behind `ports.Queue`: its nodes are made and deleted while it runs.

Nothing of its queues and its server is changed. A queue gets nodes of its own by a resource that
each chunk of its jobs asks for (`default_chunk`), or else by the nodes' attribute `queue`.
"""

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from functools import partial
from itertools import groupby
from pathlib import Path
from typing import TypeVar

from springtide import threads
from springtide.batch import openpbs_text
from springtide.batch.names import batches, named, node_names
from springtide.batch.openpbs_commands import DENIED, Commands, failed
from springtide.batch.openpbs_jobs import parse_jobs
from springtide.batch.openpbs_members import attributes, checked, jobs_of, require_ties
from springtide.batch.openpbs_mom import pbs_mom
from springtide.batch.openpbs_text import (
    MARK,
    NO_NODES,
    PbsNode,
    PbsQueue,
    Server,
)
from springtide.batch.pbs_common import merged, renamed, shared_of
from springtide.batch.running import Output
from springtide.batch.unread import UnreadableError
from springtide.batch.wants import known_features
from springtide.nodeset import fold
from springtide.ports import OURS, Entry, Health, Member, Queue, Reading, Unavailable
from springtide.spec import Cluster, OpenPbs

T = TypeVar("T")

AT_ONCE = 100
"""Names in one command."""
GONE = re.compile(r"Unknown Job Id|invalid for state of job|not rerun|has finished", re.IGNORECASE)
"""What is said of jobs that ended meanwhile, or may not be run again."""


def queue(spec: Cluster) -> Queue:
    """The OpenPBS of a cluster file."""
    assert isinstance(spec.batch, OpenPbs)
    commands = Commands(spec.batch.bin, spec.batch.server)
    return OpenPbsQueue(commands, spec.managed, known_features(spec), shared_of(spec))


class OpenPbsQueue:
    """One OpenPBS, asked with its own commands.

    `names` are those of our nodes: it may show them with their domain. `features` are all that our
    groups have, `shared` filesystems that nodes have.
    """

    programs: Sequence[str] = ("qstat", "pbsnodes", "qmgr", "qrerun", "qalter")

    def __init__(
        self,
        commands: Commands,
        names: Iterable[str] = (),
        features: frozenset[str] = frozenset(),
        shared: Iterable[Path] = (),
    ) -> None:
        self._shared = tuple(shared)
        self._commands = commands
        self._names = frozenset(names)
        self._features = features
        self._called: Mapping[str, str] = {}
        """Nodes as they were last shown, and what we call them."""
        self._threads = ThreadPoolExecutor(2, "openpbs")
        self._version = ""

    # --- reading -----------------------------------------------------------------------------

    async def version(self) -> str:
        server = await self._in_thread(self._server)
        return f"OpenPBS {server.version}"

    async def read(self) -> Reading:
        return await self._in_thread(self._read)

    def _read(self) -> Reading:
        """Nodes last: a job that starts meanwhile shows on its node, one that ends does no harm."""
        queues = self._queues()
        said = self._commands.checked("qstat", "-f", "-t", "-F", "json")
        jobs = parse_jobs(said, queues, self._features)
        shown = {name: node.shown for name, node in self._nodes().items()}
        return merged(shown, [renamed(job, self._called) for job in jobs])

    def _server(self) -> Server:
        found = openpbs_text.parse_server(self._commands.checked("qstat", "-B", "-f", "-F", "json"))
        self._version = found.version
        return found

    def _queues(self) -> dict[str, PbsQueue]:
        return openpbs_text.parse_queues(self._commands.checked("qstat", "-Q", "-f", "-F", "json"))

    def _nodes(self) -> dict[str, PbsNode]:
        listed = self._listed()
        found = openpbs_text.parse_nodes(listed) if listed else {}
        self._called = called = named(found, self._names)
        return {
            called[name]: replace(node, shown=replace(node.shown, name=called[name]))
            for name, node in found.items()
        }

    def _listed(self) -> str:
        """No nodes at all is a failure to pbsnodes, but none to us, and an empty text."""
        done = self._commands.run("pbsnodes", "-a", "-F", "json")
        if not done.stdout.strip() and any(text in done.stderr for text in NO_NODES):
            return ""
        if done.returncode:
            raise failed(done)
        if not done.stdout.strip():
            raise UnreadableError("pbsnodes printed nothing")
        return done.stdout

    # --- nodes come and go -------------------------------------------------------------------

    async def prepare(self, members: Iterable[Member]) -> str:
        """It accepts jobs for nodes that it does not know; only its queues must be there."""
        listed = checked(members)
        return await self._in_thread(lambda: self._prepare(listed))

    async def require(self, members: Iterable[Member]) -> None:
        listed = checked(members)
        await self._in_thread(lambda: self._require(listed))

    def _require(self, members: Sequence[Member]) -> dict[str, PbsQueue]:
        """All queues."""
        queues = self._queues()
        for member in members:
            require_ties(member, queues)
        _refuse_others(self._nodes(), [member.name for member in members])
        return queues

    def _prepare(self, members: Sequence[Member]) -> str:
        queues = self._require(members)
        named = dict.fromkeys(name for member in members for name in member.queues)
        shut = [name for name in named if not (queues[name].started and queues[name].enabled)]
        return f"closed queues, until you enable and start them: {', '.join(shut)}" if shut else ""

    async def dismantle(self, names: Iterable[str]) -> None:
        listed = node_names(names)
        if listed:
            await self._in_thread(lambda: self._dismantle(listed))

    def _dismantle(self, names: Sequence[str]) -> None:
        """Nodes with jobs are refused, and stay as they are."""
        known = self._nodes()
        here = [name for name in names if name in known and known[name].ours]
        if busy := [name for name in here if known[name].shown.jobs]:
            raise Unavailable(f"OpenPBS keeps {fold(busy)}: jobs are on it; let them end first")
        taking = [name for name in here if not known[name].shown.drained]
        self._mark(taking, "-o", f"{OURS}: leaves for good")
        if stayed := self._leave(here):
            self._mark([name for name in taking if name in stayed], "-r", OURS)
            words = "; ".join(f"{name}: {why}" for name, why in stayed.items())
            raise Unavailable(f"OpenPBS keeps {fold(stayed)}: {words}")

    async def join(self, members: Iterable[Member]) -> None:
        listed = checked(members)
        if listed:
            await self._in_thread(lambda: self._join(listed))

    def _join(self, members: Sequence[Member]) -> None:
        """Those that are there are made anew: it would believe that it hears from them.

        One that has jobs stays as it is, if it is heard from: it was faster than we are.
        """
        queues, known = self._queues(), self._nodes()
        wanted = {member.name: attributes(member, queues) for member in members}
        _refuse_others(known, wanted)
        busy = [name for name in wanted if name in known and known[name].shown.jobs]
        fresh = {name: has for name, has in wanted.items() if name not in busy}
        said = self._delete([name for name in fresh if name in known])
        if kept := [name for name in self._nodes() if name in fresh]:
            raise Unavailable(f"{fold(kept)} cannot join anew: {_why(said, kept)}")
        said = ""
        for has, names in groupby(sorted(fresh, key=fresh.__getitem__), fresh.get):
            for some in batches(list(names), AT_ONCE):
                said += self._qmgr(f"create node {','.join(some)} {has}")
        there = self._nodes()
        if lost := [name for name in fresh if name not in there]:
            raise Unavailable(f"OpenPBS does not take {fold(lost)} as nodes: {_why(said, lost)}")
        if silent := [name for name in busy if known[name].shown.health is not Health.UP]:
            raise Unavailable(f"{fold(silent)} cannot join anew: jobs are on it")

    async def leave(self, names: Iterable[str]) -> Mapping[str, str]:
        listed = node_names(names)
        return await self._in_thread(lambda: self._leave(listed)) if listed else {}

    def _leave(self, names: Sequence[str]) -> dict[str, str]:
        """It refuses to delete a node with jobs, also with one that started this moment."""
        nodes = self._nodes()
        jobs = {name: node.jobs for name, node in self._read().nodes.items()}
        here = [name for name in names if name in nodes]
        theirs = {name: "it is not ours" for name in here if not nodes[name].ours}
        idle = [name for name in here if name not in theirs and not jobs.get(name)]
        said = openpbs_text.refusals(self._delete(idle))
        after = self._nodes() if idle else nodes
        stay = {
            name: after[name].shown.jobs or jobs.get(name, ()) for name in here if name in after
        }
        said = {self._called.get(name, name): why for name, why in said.items()}
        return theirs | {
            name: f"jobs are on it: {', '.join(on_it)}" if on_it else said.get(name, "it stays")
            for name, on_it in stay.items()
            if name not in theirs
        }

    def _delete(self, names: Sequence[str]) -> str:
        """What is said of those that are not deleted."""
        commands = [f"delete node {','.join(some)}" for some in self._batches(names)]
        return "".join(self._qmgr(command) for command in commands)

    def _batches(self, names: Sequence[str]) -> list[Sequence[str]]:
        """By the names that it shows."""
        shown = {ours: name for name, ours in self._called.items()}
        return batches([shown.get(name, name) for name in names], AT_ONCE)

    def _qmgr(self, command: str) -> str:
        """What it says of objects that it refuses; whoever may do nothing is told so."""
        done = self._commands.run("qmgr", "-c", command)
        if done.returncode and (DENIED in done.stderr or not openpbs_text.refusals(done.stderr)):
            raise failed(done)
        return done.stderr

    # --- drains ------------------------------------------------------------------------------

    async def drain(self, names: Iterable[str], reason: str) -> None:
        await self._in_thread(partial(self._mark, node_names(names), "-o", reason))

    async def undrain(self, names: Iterable[str]) -> None:
        await self._in_thread(partial(self._mark, node_names(names), "-r", OURS))

    def _mark(self, names: Sequence[str], way: str, reason: str) -> None:
        if not names:
            return
        known = self._nodes()
        if unknown := [name for name in names if name not in known]:
            raise Unavailable(f"OpenPBS has no node {fold(unknown)}")
        _refuse_others(known, names)
        for some in self._batches(names):
            self._commands.checked("pbsnodes", "-C", openpbs_text.comment_of(reason), way, *some)
        known, drained = self._nodes(), way == "-o"
        wrong = [n for n in names if n not in known or known[n].shown.drained != drained]
        if wrong:
            raise Unavailable(f"pbsnodes {way} did nothing to {fold(wrong)}")

    # --- jobs --------------------------------------------------------------------------------

    async def requeue(self, jobs: Iterable[str]) -> None:
        await self._alter(("qrerun", "-W", "force"), jobs_of(jobs))

    async def tell(self, jobs: Iterable[str], text: str) -> None:
        """As the job's comment, which the scheduler may replace at a later turn."""
        comment = f"comment={openpbs_text.value_of(text)}"
        await self._alter(("qalter", "-W", comment), jobs_of(jobs))

    async def _alter(self, command: Sequence[str], jobs: Sequence[str]) -> None:
        def work() -> None:
            for some in batches(jobs, AT_ONCE):
                done = self._commands.run(*command, *some)
                if done.returncode and not _only_gone(done):
                    raise failed(done)

        if jobs:
            await self._in_thread(work)

    async def wake(self) -> None:
        """If an admin has not stopped the scheduler."""

        def work() -> None:
            if self._server().scheduling:
                self._commands.checked("qmgr", "-c", "set server scheduling=true")

        await self._in_thread(work)

    # --- what a node needs -------------------------------------------------------------------

    def entry(self, name: str) -> Entry:
        """An image with OpenPBS's execution part; where that is, is taken from here."""
        node_names([name])
        return pbs_mom(name, self._commands.server, self._version, self._shared)

    async def _in_thread(self, work: Callable[[], T]) -> T:
        try:
            return await threads.run(self._threads, work)
        except UnreadableError as error:
            raise Unavailable(f"OpenPBS gave no sensible answer: {error}") from error


def _refuse_others(nodes: Mapping[str, PbsNode], names: Iterable[str]) -> None:
    """A node that somebody else made stays as it is, whatever the cluster file says."""
    if theirs := [name for name in names if name in nodes and not nodes[name].ours]:
        raise Unavailable(
            f"OpenPBS has {fold(theirs)} already, and it is not ours: choose other names in the "
            f"cluster file, or delete it with qmgr; nodes of ours have "
            f"resources_available.{MARK}={OURS}"
        )


def _why(said: str, names: Sequence[str]) -> str:
    """In qmgr's words, and what to do about the most frequent."""
    refusals = openpbs_text.refusals(said)
    why = next((refusals[name] for name in names if name in refusals), "")
    if why == "Unknown node":
        return (
            "pbs_server cannot resolve the name; if that lasts, batch.hosts must be set, or the "
            "name server know it"
        )
    return why or openpbs_text.error_text(said) or "it does not say why"


def _only_gone(done: Output) -> bool:
    lines = [line for line in done.stderr.splitlines() if line.strip()]
    return bool(lines) and all(GONE.search(line) for line in lines)
