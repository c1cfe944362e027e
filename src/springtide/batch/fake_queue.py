"""A batch system in memory that is read, for tests and simulations: `ports.Queue`.

It is the world: it goes on when a daemon is killed. As FakeBatch does, it learns of instances
through `boot_seen` and `stop_seen`, and where an address leads through `node_at`. Its scheduler
looks for jobs to start now and then, or when it is woken. Time is the event loop's.

It is no kinder than real ones: nodes with jobs do not join anew, leave, nor are they forgotten.
"""

import asyncio
import re
from collections import Counter
from collections.abc import AsyncIterator, Callable, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager

from springtide.batch.fake_queue_records import Host, QueueTiming, Share, Wish, Work
from springtide.batch.fake_scheduler import loop_time
from springtide.nodeset import NodeNameError, fold, validate_name
from springtide.ports import Chunk, Entry, JobState, Member, Reading, Unavailable

_JOB = re.compile(r"[0-9]{1,18}(\[[0-9]{1,18}\])?")

__all__ = ["FakeQueue", "QueueTiming", "Work"]


class FakeQueue:
    """Nodes, jobs, and a scheduler: one way in for all that outlives the daemons that call it."""

    programs: Sequence[str] = ()

    def __init__(
        self,
        node_at: Callable[[str], str | None],
        timing: QueueTiming | None = None,
        premises: Iterable[Member] = (),
        now: Callable[[], float] = loop_time,
    ) -> None:
        self.timing = timing or QueueTiming()
        self.unavailable = False  # questions and commands fail; nodes and jobs go on
        self.forbidden = False  # it answers, but takes no commands from us
        self.spoils = False  # nodes that are heard from go into error with their first job
        self.quotas: dict[str, int] = {}  # of users: how many jobs of theirs may run at once
        self.calls: Counter[str] = Counter()
        self.told: list[tuple[str, str]] = []
        self.finished: list[Work] = []
        self.killed_jobs: dict[str, str] = {}  # jobs that ran well until somebody's deed
        self._hosts = {one.name: Host(one, expected=True, heard=True) for one in premises}
        self._premises = frozenset(self._hosts)
        self._node_at = node_at
        self._now = now
        self._open: dict[str, Work] = {}
        self._submitted = 0
        self._turn_due: asyncio.TimerHandle | None = None
        self._deaf_until = 0.0
        self._started_at: float | None = None

    # For assertions

    def node(self, name: str) -> Host:
        return self._hosts[name]

    @property
    def open_jobs(self) -> list[Work]:
        """Those that are not over."""
        return list(self._open.values())

    # What users, people, instances and mishap do

    def submit(
        self,
        *chunks: Chunk,
        queues: Sequence[str] = ("cloud",),
        tasks: int = 1,
        duration_s: float | None = None,
        user: str = "ann",
        names: Sequence[str] = (),
        held: bool = False,
        after: str | None = None,
    ) -> Work:
        """Without a duration it runs until `finish`; queues without any nodes are refused."""
        if not any(set(queues) & set(host.member.queues) for host in self._hosts.values()):
            raise ValueError(f"no queue of {', '.join(queues)} has nodes")
        self._submitted += 1
        work = Work(str(self._submitted), chunks or (Chunk(),), tuple(queues), self._now())
        work.tasks, work.duration_s, work.user = tasks, duration_s, user
        work.names, work.held, work.after = tuple(names), held, after
        self._open[work.id] = work
        self._soon()
        return work

    def finish(self, id: str) -> None:
        """It ends well, or is deleted by its owner."""
        work = self._open.pop(id)
        self._vacate(work)
        work.ended_at = self._now()
        self.finished.append(work)
        self._soon()

    def boot_seen(self, name: str) -> None:
        """The instance of a node runs; in a moment it will be heard from, if it is expected."""
        if host := self._hosts.get(name):
            asyncio.get_running_loop().call_later(self.timing.join_s, self._hear, host, host.joins)

    def stop_seen(self, name: str, *, deleted: bool) -> None:
        """The instance of a node runs no more; nobody tells the batch system, so it believes."""
        host = self._hosts.get(name)
        if host is None or self._reachable(host):
            return
        for work in self._on(host):
            self._die(work)
            if deleted:
                self.killed_jobs[work.id] = f"the instance of {name} was deleted"
        asyncio.get_running_loop().call_later(self.timing.silence_s, self._miss, host, host.joins)

    def restart(self, forgets_s: float = 0.0) -> None:
        """Jobs go on, but for a while no node has been heard from.

        One that is killed has forgotten the drains of the last seconds.
        """
        self._started_at = self._now()
        for host in self._hosts.values():
            if host.drained and host.drained_at > self._now() - forgets_s:
                host.drained, host.reason = False, ""
        self._deaf_until = self._now() + self.timing.deaf_s
        asyncio.get_running_loop().call_later(self.timing.deaf_s, self._soon)

    # --- ports.Queue ---------------------------------------------------------------------------

    @asynccontextmanager
    async def _call(self, kind: str, changes: bool = True) -> AsyncIterator[None]:
        """Time passes, or at least others run, before the effect and after."""
        await asyncio.sleep(self.timing.latency_s)
        self.calls[kind] += 1
        if self.unavailable:
            raise Unavailable("the fake batch system was told not to answer")
        if self.forbidden and changes:
            raise Unavailable(f"the fake batch system does not let us {kind}: we have no rights")
        yield
        await asyncio.sleep(self.timing.latency_s)

    async def version(self) -> str:
        async with self._call("version", changes=False):
            return "fake"

    async def read(self) -> Reading:
        async with self._call("read", changes=False):
            deaf = self._deaf()
            nodes = {name: host.shown(deaf) for name, host in self._hosts.items()}
            jobs = [work.shown(self._state(work)) for work in self._open.values()]
            return Reading(nodes, jobs, self._started_at)

    async def require(self, members: Iterable[Member]) -> None:
        names = _valid(member.name for member in members)
        async with self._call("require", changes=False):
            self._refuse_premises(names)

    def _refuse_premises(self, names: Iterable[str]) -> None:
        if others := [name for name in names if name in self._premises]:
            raise Unavailable(f"{fold(others)} are nodes of the premises; choose other names")

    async def prepare(self, members: Iterable[Member]) -> str:
        members = list(members)
        names = _valid(member.name for member in members)
        async with self._call("prepare"):
            self._refuse_premises(names)
            new = [member for member in members if member.name not in self._hosts]
            self._hosts |= {member.name: Host(member) for member in new}
            return f"knows {fold(member.name for member in new)}" if new else ""

    async def dismantle(self, names: Iterable[str]) -> None:
        names = _valid(names)
        async with self._call("dismantle"):
            self._refuse_busy(self._ours(names))
            for name in self._ours(names):
                del self._hosts[name]

    async def join(self, members: Iterable[Member]) -> None:
        members = list(members)
        _valid(member.name for member in members)
        async with self._call("join"):
            if taken := [member.name for member in members if member.name in self._premises]:
                raise Unavailable(f"{fold(taken)}: nodes of the premises")
            self._refuse_busy(member.name for member in members)
            for member in members:
                host = self._hosts.setdefault(member.name, Host(member))
                host.member, host.expected, host.heard, host.down = member, True, False, False
                host.joins, host.shut = host.joins + 1, False
                if self._reachable(host):
                    self.boot_seen(member.name)

    async def leave(self, names: Iterable[str]) -> Mapping[str, str]:
        names = _valid(names)
        async with self._call("leave"):
            there = [self._hosts[name] for name in self._ours(names) if self._hosts[name].expected]
            stay = {host.member.name: why for host in there if (why := host.why_it_stays())}
            for host in there:
                if host.member.name not in stay:
                    host.expected = host.heard = host.down = host.drained = False
                    host.reason = ""
            return stay

    async def drain(self, names: Iterable[str], reason: str) -> None:
        names = _valid(names)
        async with self._call("drain"):
            for host in self._named(names):
                host.drained, host.reason, host.drained_at = True, reason, self._now()

    async def undrain(self, names: Iterable[str]) -> None:
        names = _valid(names)
        async with self._call("undrain"):
            for host in self._named(names):
                host.drained, host.reason = False, ""
            self._soon()

    async def requeue(self, jobs: Iterable[str]) -> None:
        jobs = _valid_jobs(jobs)
        async with self._call("requeue"):
            for work in [self._open[id] for id in jobs if id in self._open]:
                if work.nodes:
                    self._mourn(work, "it was requeued")
                    self._requeue(work)

    async def tell(self, jobs: Iterable[str], text: str) -> None:
        jobs = _valid_jobs(jobs)
        async with self._call("tell"):
            self.told += [(job, text) for job in jobs]

    async def wake(self) -> None:
        async with self._call("wake"):
            self._turn()

    def entry(self, name: str) -> Entry:
        return Entry(("sleep", "infinity"), version="fake")

    def _ours(self, names: Iterable[str]) -> list[str]:
        return [name for name in names if name in self._hosts and name not in self._premises]

    def _refuse_busy(self, names: Iterable[str]) -> None:
        """As real ones do, or their adapters: jobs are on nodes that would be forgotten."""
        if busy := [n for n in names if n in self._hosts and self._hosts[n].shares]:
            raise Unavailable(f"{fold(busy)}: jobs are on it")

    def _named(self, names: Sequence[str]) -> list[Host]:
        """One wrong name spoils the command."""
        if unknown := [name for name in names if name not in self._hosts]:
            raise Unavailable(f"{fold(unknown)}: no such nodes")
        return [self._hosts[name] for name in names]

    # --- nodes -----------------------------------------------------------------------------------

    def _hear(self, host: Host, joins: int) -> None:
        """Of a node that is expected; what was on it before it booted starts again elsewhere."""
        if host.joins != joins or not host.expected or not self._reachable(host):
            return
        host.heard, host.down = True, False
        for work in self._on(host):
            if work.dead:
                self._requeue(work)
        self._soon()

    def _miss(self, host: Host, joins: int) -> None:
        if host.joins == joins and host.heard and not self._reachable(host):
            host.down = True

    def _reachable(self, host: Host) -> bool:
        name = host.member.name
        return name in self._premises or self._node_at(host.member.address) == name

    def _deaf(self) -> bool:
        return self._now() < self._deaf_until

    # --- jobs ------------------------------------------------------------------------------------

    def _state(self, work: Work) -> JobState:
        if work.nodes:
            return JobState.RUNNING
        return JobState.HELD if work.held or work.after in self._open else JobState.WAITING

    def _on(self, host: Host) -> list[Work]:
        return [self._open[id] for id in host.shares]

    def _soon(self) -> None:
        if self._turn_due is None:
            loop = asyncio.get_running_loop()
            self._turn_due = loop.call_later(self.timing.turn_s, self._turn)

    def _turn(self) -> None:
        """First come, first served; whoever does not fit lets others by."""
        if self._turn_due is not None:
            self._turn_due.cancel()
            self._turn_due = None
        if self._deaf():
            return
        room = {name: host for name, host in self._hosts.items() if host.open}
        waiting = [w for w in self._open.values() if self._state(w) is JobState.WAITING]
        vain: set[Wish] = set()
        for work in waiting:
            while work.tasks and not work.nodes and work.wish not in vain:
                if self._is_over_quota(work.user):
                    break
                places = work.places(room.values())
                if places is None:
                    vain.add(work.wish)
                    continue
                self._start(work, places)
                for name in places:
                    if not room[name].open:
                        del room[name]

    def _is_over_quota(self, user: str) -> bool:
        """Nobody is told: its jobs wait like others."""
        quota = self.quotas.get(user)
        return quota is not None and quota <= sum(
            bool(work.nodes) for work in self._open.values() if work.user == user
        )

    def _start(self, waiting: Work, places: Mapping[str, Share]) -> None:
        """A job, or the next task of an array; on a node that died it does nothing for ever."""
        if self.spoils:
            for name in places:
                self._hosts[name].shut = True
            return
        work = waiting.next_task()
        self._open[work.id] = work
        if waiting is not work and not waiting.tasks:
            del self._open[waiting.id]
        work.nodes, work.started_at = tuple(places), self._now()
        for name, share in places.items():
            self._hosts[name].shares[work.id] = share
        work.dead = not all(self._reachable(self._hosts[name]) for name in places)
        if work.duration_s is not None and not work.dead:
            loop = asyncio.get_running_loop()
            work.end = loop.call_later(work.duration_s, self.finish, work.id)

    def _die(self, work: Work) -> None:
        work.dead = True
        if work.end:
            work.end.cancel()

    def _vacate(self, work: Work) -> None:
        self._die(work)
        for name in work.nodes:
            self._hosts[name].shares.pop(work.id, None)

    def _mourn(self, work: Work, why: str) -> None:
        if not work.dead:
            self.killed_jobs[work.id] = why

    def _requeue(self, work: Work) -> None:
        self._vacate(work)
        work.nodes, work.tasks, work.dead = (), 1, False
        work.requeues += 1
        self._soon()


def _valid(names: Iterable[str]) -> list[str]:
    """Names from outside, before anything is done with them."""
    try:
        return [validate_name(name) for name in names]
    except NodeNameError as error:
        raise Unavailable(str(error)) from error


def _valid_jobs(ids: Iterable[str]) -> list[str]:
    ids = list(ids)
    if wrong := [id for id in ids if not _JOB.fullmatch(id)]:
        raise Unavailable(f"{wrong[0][:40]!r} is no job")
    return ids
