"""One cluster, running: what may be asked of it, by the batch system and by people.

`compose` builds a Daemon from a spec and `api` serves it; simulations bring parts of their own.
"""

import asyncio
import fcntl
import os
from collections.abc import AsyncIterator, Coroutine, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any
from uuid import uuid4

from springtide import decide, failures, prune, service
from springtide.builds import Builds
from springtide.configure.accounts import Accounts
from springtide.engine import Engine
from springtide.gather import Gather
from springtide.joining import Joining
from springtide.layout import Layout
from springtide.model import Kind, NodeState, Operation, OperationState, Request
from springtide.nodeset import fold
from springtide.people import People
from springtide.polling import Poller
from springtide.ports import Unavailable
from springtide.prologs import STARTS, Prologs, Together
from springtide.reconcile import Reconciler
from springtide.roster import Roster
from springtide.spec import Cluster, UnknownNodes
from springtide.spool import REBOOTS, BadRequest, Spool, read_request, reason
from springtide.steps import Parts
from springtide.steps.bootlogs import keep_log
from springtide.steps.giving_back import give_back_closed
from springtide.steps.work import Work, insist

BY_JOB = "rebuild-job"
"""The program of requests that prologs of rebuild jobs make."""
LATE = "it did not register within ResumeTimeout"
LOOKED_AT = Accounts(changes=False)
"""The control host's, if nobody says that they may be changed."""
NAMING = (Kind.DEPLOY, Kind.ENLARGE, Kind.SHRINK, Kind.UPDATE)
"""After these the cluster may have nodes of other names."""
SPOOL_S = 1.0
"""Between two looks into the spool."""


class DaemonError(Exception):
    """The daemon cannot start; the text says why and what to do."""


class WrongFile(DaemonError):
    """It cannot before somebody has corrected the cluster file, or the environment."""


class Chores:
    """Small tasks beside the operations, of which none is forgotten when the daemon stops."""

    def __init__(self) -> None:
        self._tasks: set[asyncio.Task[None]] = set()

    def start(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def stop(self) -> None:
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)


class Daemon:
    """One cluster, running."""

    def __init__(self, parts: Parts, layout: Layout, accounts: Accounts = LOOKED_AT) -> None:
        self.parts = parts
        self.layout = layout
        self.engine = Engine(parts, self._ended)
        self.people = People(parts, self.engine)
        self.roster = Roster(parts, layout, accounts)
        self.builds = Builds(parts, self.people, self.roster.refreshing)
        self.joining = Joining(parts, layout, self.roster.listed)
        self.reconciler = Reconciler(parts, self.engine)
        self.poller = Poller(parts, self.engine, self.receive)
        self.prologs = Prologs(parts.record, lambda: parts.batch)
        self._rebuilding = Together(self._have_rebuilt)
        self._gather = Gather(parts.spec.timing.gather, self._submit)
        self._chores = Chores()
        self.destroyed = asyncio.Event()

    @property
    def spec(self) -> Cluster:
        return self.parts.spec

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """Everything the daemon does by itself, for the length of the block."""
        await self.parts.load()
        if refusals := await self.parts.refusals():
            raise WrongFile("\n".join(refusals))
        await self.parts.record.store.forget_answered(self.parts.record.now())
        await self.joining.load()
        await self._install()
        await self._publish()
        with self.parts.record.listening(self.prologs.changed):
            await self.engine.start()
            await self.builds.start()
            for request in await self.parts.record.store.waiting():
                self._gather.add(request)
            loops = (self.reconciler.run(), self.poller.run())
            works = (self._watch_spool(), *loops, self._prune())
            beside = [asyncio.create_task(work) for work in works]
            try:
                yield
            finally:
                for task in beside:
                    task.cancel()
                await asyncio.gather(*beside, return_exceptions=True)
                await self._gather.stop()
                await self._chores.stop()
                await self.prologs.stop()
                await self._rebuilding.stop()
                await self.builds.stop()
                await self.engine.stop()

    async def _install(self) -> None:
        """The programs of a cluster that lives may be those of an older Springtide."""
        if self.parts.site is None:
            return
        try:
            await self.parts.configurator.install()
        except OSError as error:
            self.parts.record.complain("programs not written", reason(error))

    async def _publish(self) -> None:
        """Who the people are, and which nodes they know."""
        if self.parts.site is None:
            return
        try:
            await self.roster.publish()
        except OSError as error:
            self.parts.record.complain("users not written", reason(error))

    def _ended(self, operation: Operation) -> None:
        self._chores.start(self.reconciler.ended(operation))
        if operation.kind in NAMING:
            self._chores.start(self._publish())
        if operation.kind is Kind.DESTROY and operation.state is OperationState.DONE:
            self.destroyed.set()

    # --- asked by the batch system -------------------------------------------------

    async def receive(self, request: Request) -> Sequence[str]:
        """A call of one of Slurm's programs: on disk when this returns, done soon after.

        Names that left the cluster file must not keep it from the others; they are answered.
        """
        known = self.parts.record.nodes
        ours = [name for name in request.nodes if name in known]
        strange = [name for name in request.nodes if name not in known]
        self.people.deployed(() if ours else request.nodes)
        if strange:
            await self.parts.record.note("unknown nodes passed over", detail=fold(strange))
        kept = replace(request, nodes=tuple(ours))
        if await self.parts.record.store.receive(kept):
            self._gather.add(kept)
        return strange

    async def prolog(self, job: str, names: Sequence[str], afresh: bool = False) -> str:
        """Returns when a job may start on these nodes (or need not be waited for), with why."""
        limit_s = self.spec.timing.start + self.spec.timing.stop
        return await self.prologs.wait(job, names, limit_s, afresh)

    async def rebuild_for_job(self, job: str, names: Sequence[str]) -> str:
        """The prolog of a rebuild job: its nodes take no other job before they are rebuilt, which
        begins when this one is over.

        A node that is still on its way up may have been launched before the file named another
        image: that is looked at when it is there.
        """
        up = tuple(node.name for node in self.parts.record.of(names, NodeState.READY))
        if up:
            await self._rebuilding.ask((job, up))
        why = await self.prolog(job, names)
        came = self.parts.record.of(set(names).difference(up), NodeState.READY)
        late = service.outdated(self.spec, came, (), self.parts.wanted_images())
        if late and why in STARTS:
            await self._rebuilding.ask((job, tuple(late)))
        return why

    async def _have_rebuilt(self, asked: Sequence[tuple[str, Sequence[str]]]) -> None:
        """One request for all jobs that begin together, so that one operation has their nodes."""
        jobs = dict.fromkeys(job for job, _ in asked)
        names = dict.fromkeys(name for _, some in asked for name in some)
        await self.parts.batch.drain(names, "its rebuild job runs, and it is rebuilt after that")
        now = self.parts.record.now()
        await self.receive(Request(uuid4().hex, BY_JOB, tuple(names), now, tuple(jobs)))

    async def _submit(self, program: str, requests: Sequence[Request]) -> None:
        names = dict.fromkeys(name for request in requests for name in request.nodes)
        jobs = dict.fromkeys(job for request in requests for job in request.jobs)
        what = "rebuild by jobs" if program == BY_JOB else f"{program} by the batch system"
        why = what + (f", for jobs {','.join(jobs)}" if jobs else "")
        ids = [request.id for request in requests]
        if program == "resume-fail":
            self._chores.start(self._resume_failed(tuple(names)))
        if program == BY_JOB:
            await self._rebuild(names, why, ids)
            return
        if program in REBOOTS:
            await self._rebooted(names, why, ids, REBOOTS[program])
            return
        kind = Kind.RESUME if program == "resume" else Kind.SUSPEND
        wide = {job: nodes for request in requests for job, nodes in request.wide.items()}
        options = {"wide": wide} if wide and kind is Kind.RESUME else {}
        submit = partial(self.engine.submit, requests=ids, options=options)
        await submit(kind, names, asked_by="batch", reason=why)

    async def _rebuild(self, names: Iterable[str], why: str, ids: Sequence[str]) -> None:
        """Nodes that a rebuild is to begin with, or is at, are in good hands; not those that it
        has brought back, though it may not have ended."""
        ready = {node.name for node in self.parts.record.of(names, NodeState.READY)}
        back = ready - self.engine.queued(Kind.REBUILD)
        held = self.engine.at(Kind.REBUILD) - back
        rest = [name for name in names if name not in held]
        submit = partial(self.engine.submit, asked_by="batch", reason=why)
        options = {"via": self.parts.rebuilds_via, "by_jobs": True}
        await submit(Kind.REBUILD, rest, requests=ids, options=options)

    async def _rebooted(
        self, names: Iterable[str], why: str, ids: Sequence[str], chosen: Mapping[str, str]
    ) -> None:
        """The batch system has drained nodes and waits for them to boot.

        Those that a rebuild of ours had rebooted are in good hands; those that are off start.
        """
        rebuilt = self.engine.at(Kind.REBUILD)
        rest = [name for name in names if name not in rebuilt]
        up = dict.fromkeys(node.name for node in self.parts.record.of(rest, NodeState.READY))
        off = [name for name in rest if name not in up]
        submit = partial(self.engine.submit, asked_by="batch", reason=why)
        if off:
            await submit(Kind.RESUME, off)
        await submit(Kind.REBUILD, up, requests=ids, options={"via": "batch", **chosen})

    async def _resume_failed(self, names: tuple[str, ...]) -> None:
        """Slurm lost patience: without this the nodes would stay down for ever."""
        work = Work(self.parts, Operation(0, Kind.RESUME, names), names)
        causes = await keep_log(work, names)
        why = {name: failures.explain(LATE, causes.get(name, "")) for name in names}
        told = why
        with suppress(Unavailable):
            down = await insist(partial(self._given_up, why), self.spec.timing.lock)
            told = {name: why[name] for name in down}
        await self.parts.record.note("resume failed", nodes=told)
        with suppress(Unavailable):
            await insist(partial(self._give_back, told), self.spec.timing.lock)

    async def _give_back(self, why: Mapping[str, str]) -> None:
        await give_back_closed(self.parts.batch, why, self._given_up)

    async def _given_up(self, names: Iterable[str]) -> list[str]:
        """Looked at each time: Slurm's word may have waited, and the nodes may have jobs by now."""
        return decide.given_up(names, await self.parts.batch.nodes(names))

    async def _watch_spool(self) -> None:
        spool = Spool(self.layout.spool)
        while True:
            try:
                for path in spool.files():
                    await self._take_from_spool(spool, path)
            except Exception as error:  # whatever it was, requests to come must be taken
                if spool.is_news("", reason(error)):
                    self.parts.record.complain("spool not read", reason(error))
            await asyncio.sleep(SPOOL_S)

    async def _prune(self) -> None:
        await prune.daily(self.parts.record, lambda: self.spec.timing.keep)

    async def _take_from_spool(self, spool: Spool, path: Path) -> None:
        """One request. Its file goes when it was taken or refused, and stays if we have trouble."""
        try:
            try:
                await self.receive(read_request(path))
            except FileNotFoundError:
                return
            except (BadRequest, UnknownNodes) as error:
                await self.parts.record.note("spooled request refused", detail=reason(error))
        except Exception as error:  # the record, the machine or a defect: others may fare better
            if spool.is_news(path.name, reason(error)):
                self.parts.record.complain("spooled request kept", reason(error))
            return
        spool.remove(path)


@asynccontextmanager
async def sole(layout: Layout) -> AsyncIterator[None]:
    """Make sure that no other daemon serves this state directory."""
    try:
        if refusal := layout.refusal():
            raise DaemonError(refusal)
        layout.state.mkdir(parents=True, exist_ok=True)
        descriptor = os.open(layout.lock, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
    except OSError as error:
        raise DaemonError(
            f"cannot write to the state directory {layout.state}: {error.strerror}; "
            "run as root, or set `state:` to a directory that can be written"
        ) from error
    try:
        _claim(descriptor, layout)
        yield
    finally:
        os.close(descriptor)


def _claim(descriptor: int, layout: Layout) -> None:
    """Lock, and tell others in the file who has the lock."""
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        holder = layout.lock.read_text(errors="replace").strip()
        raise DaemonError(f"a daemon already serves {layout.state} (process {holder})") from None
    os.ftruncate(descriptor, 0)
    os.write(descriptor, f"{os.getpid()}\n".encode())
