"""A fake cloud and a fake batch system with the real daemon between them, on virtual time.

`Life` is one run of the daemon: it can be killed at any of its await points, after which none of
its tasks ever runs again and nothing it holds can reach the world.
"""

import asyncio
import collections.abc
import sqlite3
from collections.abc import AsyncIterator, Callable, Coroutine, Generator, Mapping, Sequence
from contextlib import asynccontextmanager
from contextvars import ContextVar
from pathlib import Path
from random import Random
from types import TracebackType
from typing import Any, cast

from springtide.batch.fake import FakeBatch, FakeJob, Timing
from springtide.configure.fake import FakeConfigurator
from springtide.daemon import Daemon
from springtide.guard import Guard
from springtide.layout import Layout
from springtide.model import Request
from springtide.ports import (
    BatchSystem,
    CloudError,
    Instance,
    InstanceState,
    Job,
    Site,
    Unavailable,
)
from springtide.providers.fake import FakeCloud, FakeProvider, Faults
from springtide.record import Record
from springtide.spec import Cluster, parse
from springtide.steps import Parts
from springtide.store import SqliteStore
from springtide.store.sqlite import connect

SPEC = """
cluster: sim
batch: {{kind: fake}}
provider: {{kind: fake}}
groups: {{general: {{nodes: "c[1-{nodes}]"}}}}
timing: {{start: 120s, stop: 120s, lock: {lock}, gather: 20ms}}
"""


class Life:
    """How many await points the daemon's tasks have passed, and at which one it dies."""

    def __init__(self, dies_at: int | None = None) -> None:
        self.dies_at = dies_at
        self.passed = 0
        self.over = asyncio.Event()
        self.fate: Callable[[], object] = self.over.set
        """What happens at that point."""
        self.buried = False
        """Nothing it holds can reach the world any more: its tasks may unwind."""
        self.tasks: dict[asyncio.Task[Any], None] = {}
        """Those that have not ended, in the order in which they began."""

    @property
    def frozen(self) -> bool:
        return self.over.is_set() and not self.buried

    def step(self) -> None:
        self.passed += 1
        if self.passed == self.dies_at:
            self.fate()


LIFE: ContextVar[Life | None] = ContextVar("life", default=None)


class Mortal(collections.abc.Coroutine[Any, Any, Any]):
    """A coroutine of the daemon: frozen for ever once its life is over."""

    def __init__(self, body: Coroutine[Any, Any, Any], life: Life) -> None:
        self._body = body
        self.life = life

    def send(self, value: Any) -> Any:
        self.life.step()
        if self.life.frozen:
            never = asyncio.get_running_loop().create_future()
            never._asyncio_future_blocking = True
            return never
        return self._body.send(value)

    def throw(
        self,
        kind: Any,
        value: BaseException | object = None,
        traceback: TracebackType | None = None,
    ) -> Any:
        return self._body.throw(kind)

    def close(self) -> None:
        self._body.close()

    def __await__(self) -> Generator[Any, Any, Any]:
        return self._body.__await__()


def _factory(loop: asyncio.AbstractEventLoop, body: Any, **options: Any) -> "asyncio.Task[Any]":
    life = LIFE.get()
    if life is None:
        return asyncio.Task(body, loop=loop, **options)
    task = asyncio.Task(Mortal(body, life), loop=loop, **options)
    life.tasks[task] = None
    task.add_done_callback(lambda done: life.tasks.pop(done, None))
    return task


class Line:
    """The daemon's line to the batch system, which is cut when it dies."""

    def __init__(self, batch: object) -> None:
        self._batch = batch
        self.cut = False

    def __getattr__(self, name: str) -> Any:
        if self.cut:
            raise Unavailable("the daemon is dead")
        return getattr(self._batch, name)


class World:
    """What outlives the daemon: cloud, batch system, the record's file, and spooled requests."""

    def __init__(
        self,
        tmp_path: Path,
        nodes: int = 3,
        faults: Faults | None = None,
        timing: Timing | None = None,
        lock: str = "10m",
        text: str | None = None,
    ) -> None:
        self.spec: Cluster = parse(text or SPEC.format(nodes=nodes, lock=lock), "sim.yaml")
        tmp_path.mkdir(parents=True, exist_ok=True)
        self.layout = Layout(tmp_path)
        self.cloud = FakeCloud(faults or Faults(before_s=0.1, after_s=0.1, boot_s=5, delete_s=3))
        self.batch = FakeBatch(
            self.spec.managed,
            lambda address: self.cloud.node_at(address, self.spec.cluster),
            timing or Timing(latency_s=0.01, join_s=1, idle_s=5, suspend_timeout_s=30),
        )
        self.cloud.on_running.append(self._runs)
        self.cloud.on_stopped.append(self._stopped)
        self._by_hand = False
        self.batch.on_resume.append(self._resume)
        self.batch.on_suspend.append(lambda nodes: self._call("suspend", nodes, ()))
        self.batch.on_resume_fail.append(lambda nodes: self._call("resume-fail", nodes, ()))
        self.batch.on_prolog.append(self._prolog)
        self.spool: dict[str, Request] = {}
        self._prologs: dict[str, FakeJob] = {}
        self.daemon: Daemon | None = None
        self.life: Life | None = None
        """Its life, or that of the last one."""
        self._requests = 0
        self._hooks: set[asyncio.Task[None]] = set()
        self.is_lost: Callable[[Request], bool] = lambda request: False
        """Calls of Slurm's programs that reach neither the daemon nor the disk."""
        self.in_place = False
        """Whether the provider rebuilds instances in place."""
        self.in_memory = False
        """The record is on no disk, which is faster."""
        self._kept = b""
        self.lonely = True
        """No task lives on when the daemon is dead, whoever began it."""
        asyncio.get_running_loop().set_task_factory(_factory)

    def _system(self) -> object:
        """What the daemon has a line to."""
        return self.batch

    def _connected(self, line: Line, record: Record) -> BatchSystem:
        return cast(BatchSystem, line)

    def delete_by_hand(self, id: str) -> None:
        """A person deletes an instance in the cloud's console: jobs on it are not ours to mourn."""
        self._by_hand = True
        try:
            self.cloud.delete(id)
        except CloudError:
            pass
        finally:
            self._by_hand = False

    def _runs(self, instance: Instance) -> None:
        """Those of other clusters report elsewhere; those that are no nodes, nowhere."""
        if instance.cluster == self.spec.cluster and instance.node in self.spec.managed:
            self.batch.boot_seen(instance.node)

    def _stopped(self, instance: Instance) -> None:
        """Jobs run where the batch system reaches their node, not on a twin of it."""
        deleted = instance.state is InstanceState.DELETING and not self._by_hand
        if instance.node not in self.spec.managed:
            return
        jobs_there = self.batch.node(instance.node).address == instance.address
        self.batch.stop_seen(instance.node, deleted=deleted and jobs_there)

    def _resume(self, nodes: Sequence[str], jobs: Sequence[Job]) -> None:
        wide = {job.id: job.nodes for job in jobs if job.node_count > 1}
        self._call("resume", nodes, tuple(job.id for job in jobs), wide)

    def _call(
        self,
        program: str,
        nodes: Sequence[str],
        jobs: tuple[str, ...],
        wide: Mapping[str, str] | None = None,
    ) -> None:
        """As the hook does: the request is kept until a daemon has taken it."""
        self._requests += 1
        now = asyncio.get_running_loop().time()
        request = Request(f"r{self._requests:05}", program, tuple(nodes), now, jobs, wide or {})
        if self.is_lost(request):
            return
        self.spool[request.id] = request
        if self.daemon is not None:
            self._hand_over(self.daemon, request)

    def _hand_over(self, daemon: Daemon, request: Request) -> None:
        async def hook() -> None:
            await daemon.receive(request)
            self.spool.pop(request.id, None)

        self._begin(hook())

    def _prolog(self, job: FakeJob) -> None:
        """As the hook does: it asks whichever daemon there is until one has answered."""
        self._prologs[job.id] = job
        if self.daemon is not None:
            self._begin(self._wait_for_nodes(self.daemon, job))

    async def _wait_for_nodes(self, daemon: Daemon, job: FakeJob) -> None:
        await daemon.rebuild_for_job(job.id, job.nodes)
        self._prologs.pop(job.id, None)
        self.batch.prolog_ended(job, 0)

    def _begin(self, hook: Coroutine[Any, Any, None]) -> None:
        """It ends with the daemon that it talks to."""
        token = LIFE.set(self.life)
        task = asyncio.get_running_loop().create_task(hook)
        LIFE.reset(token)
        self._hooks.add(task)
        task.add_done_callback(self._hooks.discard)

    def _open_record(self) -> sqlite3.Connection:
        db = connect(":memory:" if self.in_memory else self.layout.record)
        db.execute("PRAGMA synchronous = OFF")
        if self._kept:
            db.deserialize(self._kept)
        return db

    def _close_record(self, db: sqlite3.Connection) -> None:
        if self.in_memory:
            self._kept = db.serialize()
        db.close()

    @asynccontextmanager
    async def living(self, life: Life) -> AsyncIterator[Daemon]:
        """One run of the daemon; the block ends with its death or with a clean stop."""
        db = self._open_record()
        provider = FakeProvider(self.cloud, in_place=self.in_place)
        line = Line(self._system())
        guard = Guard(provider, Random(0))
        record = Record(SqliteStore(db), asyncio.get_running_loop().time)
        parts = Parts(
            spec=self.spec,
            record=record,
            providers=dict.fromkeys(self.spec.groups, guard),
            home=guard,
            batch=self._connected(line, record),
            configurator=FakeConfigurator(),
            site=Site("127.64.0.1"),
        )
        await parts.record.store.put("site", '{"control_address": "127.64.0.1", "facts": {}}')
        self.life = life
        daemon = Daemon(parts, self.layout)
        runs, stop = asyncio.Event(), asyncio.Event()

        async def run() -> None:
            async with daemon.running():
                runs.set()
                await stop.wait()

        token = LIFE.set(life)
        task = asyncio.get_running_loop().create_task(run())
        LIFE.reset(token)
        await first(runs.wait(), life.over.wait())
        self.daemon = daemon
        for request in list(self.spool.values()):
            self._hand_over(daemon, request)
        for job in list(self._prologs.values()):
            self._begin(self._wait_for_nodes(daemon, job))
        try:
            yield daemon
        finally:
            self.daemon = None
            if not life.over.is_set():
                stop.set()
                await first(asyncio.wait([task]), life.over.wait())
            self._close_record(db)
            provider.sever()
            line.cut = life.buried = True
            await _bury(life, self.lonely)


async def _bury(life: Life, lonely: bool) -> None:
    """Unwind what is left of a life, in the order of its beginning; its world is out of reach."""
    while left := list(life.tasks) or (lonely and _others()):
        for task in left:
            task.cancel()
        await asyncio.wait(left, timeout=1)


def _others() -> list["asyncio.Task[Any]"]:
    return [task for task in asyncio.all_tasks() if task is not asyncio.current_task()]


async def first(*waits: Coroutine[Any, Any, Any]) -> None:
    """Until one of them is over; the others are waited for no more."""
    tasks = [asyncio.ensure_future(wait) for wait in waits]
    await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
    for task in tasks:
        task.cancel()
