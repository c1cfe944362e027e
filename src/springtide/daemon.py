"""One cluster, running: what may be asked of it, by the batch system and by people.

`compose` builds a Daemon from a spec and `api` serves it; simulations bring parts of their own.
"""

import asyncio
import fcntl
import os
from collections.abc import AsyncIterator, Coroutine, Iterable, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

from springtide import decide
from springtide.engine import Engine, Refused
from springtide.gather import Gather
from springtide.layout import Layout
from springtide.model import Kind, NodeState, Operation, OperationState, Request
from springtide.nodeset import fold
from springtide.ports import Unavailable
from springtide.prologs import Prologs
from springtide.spec import Cluster, UnknownNodes
from springtide.spool import BadRequest, Spool, read_request, reason
from springtide.steps import Parts
from springtide.steps.work import insist

SPOOL_S = 1.0
"""Between two looks into the spool."""


class DaemonError(Exception):
    """The daemon cannot start; the text says why and what to do."""


@dataclass(frozen=True, slots=True)
class Answer:
    """What became of a request by hand."""

    operations: tuple[Operation, ...] = ()
    asked: tuple[str, ...] = ()
    """Nodes that the batch system was asked for; its programs call us in turn."""
    settled: tuple[str, ...] = ()
    """Nodes that were so already."""


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

    def __init__(self, parts: Parts, layout: Layout) -> None:
        self.parts = parts
        self.layout = layout
        self.engine = Engine(parts, self._ended)
        self.prologs = Prologs(parts.record, parts.batch)
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
        await self.parts.record.store.forget_answered(self.parts.record.now())
        with self.parts.record.listening(self.prologs.changed):
            await self.engine.start()
            for request in await self.parts.record.store.waiting():
                self._gather.add(request)
            watching = asyncio.create_task(self._watch_spool())
            try:
                yield
            finally:
                watching.cancel()
                await asyncio.gather(watching, return_exceptions=True)
                await self._gather.stop()
                await self._chores.stop()
                await self.prologs.stop()
                await self.engine.stop()

    def _ended(self, operation: Operation) -> None:
        if operation.kind is Kind.DESTROY and operation.state is OperationState.DONE:
            self.destroyed.set()

    # --- asked by the batch system -------------------------------------------------

    async def receive(self, request: Request) -> None:
        """A call of one of Slurm's programs: on disk when this returns, done soon after.

        Names that left the cluster file must not keep it from the others.
        """
        ours = [name for name in request.nodes if name in self.parts.record.nodes]
        self._deployed(() if ours else request.nodes)
        if len(ours) < len(request.nodes):
            strange = [name for name in request.nodes if name not in self.parts.record.nodes]
            await self.parts.record.note("unknown nodes passed over", detail=fold(strange))
        known = replace(request, nodes=tuple(ours))
        if await self.parts.record.store.receive(known):
            self._gather.add(known)

    async def _submit(self, program: str, requests: Sequence[Request]) -> None:
        names = dict.fromkeys(name for request in requests for name in request.nodes)
        jobs = dict.fromkeys(job for request in requests for job in request.jobs)
        why = f"{program} by the batch system" + (f", for jobs {','.join(jobs)}" if jobs else "")
        ids = [request.id for request in requests]
        if program == "resume-fail":
            self._chores.start(self._resume_failed(tuple(names)))
        kind = Kind.RESUME if program in ("resume", "reboot") else Kind.SUSPEND
        await self.engine.submit(kind, names, asked_by="batch", reason=why, requests=ids)

    async def _resume_failed(self, names: tuple[str, ...]) -> None:
        """Slurm lost patience: without this the nodes would stay down for ever."""
        why = "it did not register within ResumeTimeout"
        await self.parts.record.note("resume failed", nodes=dict.fromkeys(names, why))
        with suppress(Unavailable):
            give_back = partial(self.parts.batch.give_back, names, why)
            await insist(give_back, self.spec.timing.lock)

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

    # --- asked by people -----------------------------------------------------------

    async def resume(self, names: Iterable[str], by: str) -> Answer:
        """Have nodes up, through the batch system where it believes them to be off."""
        wanted = self._deployed(names)
        nodes = self.parts.record.of(wanted)
        how = decide.resume_by_hand(nodes, await self.parts.batch.nodes(wanted))
        return await self._by_hand(Kind.RESUME, how, by)

    async def suspend(self, names: Iterable[str], by: str) -> Answer:
        """Have nodes gone, through the batch system where jobs may run on them."""
        wanted = self._deployed(names)
        nodes = self.parts.record.of(wanted)
        how = decide.suspend_by_hand(nodes, await self.parts.batch.nodes(wanted))
        return await self._by_hand(Kind.SUSPEND, how, by)

    def _deployed(self, names: Iterable[str]) -> tuple[str, ...]:
        if self.parts.site is None:
            raise Unavailable(f"{self.spec.cluster} is not deployed yet; run `tide deploy` first")
        return self.spec.require(names)

    async def _by_hand(self, kind: Kind, how: decide.ByHand, by: str) -> Answer:
        ask = self.parts.batch.power_up if kind is Kind.RESUME else self.parts.batch.power_down
        if how.through_batch:
            await ask(how.through_batch)
            told = dict.fromkeys(how.through_batch, f"by {by}")
            await self.parts.record.note(f"{kind} asked of the batch system", nodes=told)
        operations: Sequence[Operation] = ()
        if how.direct:
            operations = await self.engine.submit(kind, how.direct, asked_by=by)
        return Answer(tuple(operations), how.through_batch, how.settled)

    async def deploy(self, by: str) -> Answer:
        """The site, the batch system, and the nodes that are always up."""
        if strays := [name for name in self._up() if name not in self.spec.node_group]:
            raise Refused(
                f"{fold(strays)} left the cluster file but is still up, and its jobs would be "
                "lost; put it back into the file, deploy, `tide suspend` it, then take it out"
            )
        names = self.spec.always_up
        return Answer(tuple(await self.engine.submit(Kind.DEPLOY, names, asked_by=by)))

    async def destroy(self, by: str) -> Answer:
        """Everything that carries the cluster's tag."""
        names = self.spec.managed
        return Answer(tuple(await self.engine.submit(Kind.DESTROY, names, asked_by=by)))

    def _up(self) -> list[str]:
        nodes = self.parts.record.nodes.values()
        return [node.name for node in nodes if node.state is not NodeState.OFF]

    def plan(self, kind: Kind, names: Iterable[str]) -> tuple[str, ...]:
        """The nodes that an operation would be about."""
        if kind is Kind.DEPLOY:
            return self.spec.always_up
        return self.spec.managed if kind is Kind.DESTROY else self.spec.require(names)


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
