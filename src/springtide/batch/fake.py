"""The batch system of tests and the simulator: a FakeScheduler behind `ports.BatchSystem`.

Commands can be interrupted before their effect and between the effect and the reply.
"""

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Callable, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace

from springtide.batch.fake_records import FakeJob, FakeNode, Reboot, Timing
from springtide.batch.fake_scheduler import FakeScheduler, loop_time
from springtide.ports import CALENDAR, OURS, UNREADY, BatchNode, Job, Power, Site, Unavailable

__all__ = ["FakeBatch", "FakeJob", "Timing"]


class FakeBatch(FakeScheduler):
    """The world and, as with Slurm, one way in for all: it outlives the daemons that call it."""

    reboots = True

    def __init__(
        self,
        nodes: Iterable[str],
        node_at: Callable[[str], str | None],
        timing: Timing | None = None,
        now: Callable[[], float] = loop_time,
    ) -> None:
        super().__init__(nodes, node_at, timing, now)
        self.unavailable = False  # questions and commands fail; nodes and jobs go on
        self.lacks = ""  # what does not run of it, though it answers
        self.calls: Counter[str] = Counter()
        self.told: list[tuple[str, str]] = []
        self.site: Site | None = None

    @asynccontextmanager
    async def _call(self, kind: str) -> AsyncIterator[None]:
        """Time passes, or at least others run, before the effect and after."""
        await asyncio.sleep(self.timing.latency_s)
        self.calls[kind] += 1
        if self.unavailable:
            raise Unavailable("the fake batch system was told not to answer")
        yield
        await asyncio.sleep(self.timing.latency_s)

    async def version(self) -> str:
        async with self._call("version"):
            return "fake"

    async def standing(self) -> str:
        return self.lacks

    async def nodes(self, names: Iterable[str] | None = None) -> Mapping[str, BatchNode]:
        async with self._call("nodes"):
            wanted = self._nodes if names is None else [n for n in names if n in self._nodes]
            return {name: self._nodes[name].shown() for name in wanted}

    async def jobs(self) -> Sequence[Job]:
        async with self._call("jobs"):
            return [job.shown() for job in self._open.values()]

    async def past_job(self, id: str) -> Job | None:
        async with self._call("past_job"):
            job = next((job for job in self.finished if job.id == id), None)
            return replace(job.shown(), ended_at=job.ended_at) if job else None

    async def set_addresses(self, addresses: Mapping[str, str]) -> None:
        async with self._call("set_addresses"):
            for node in self._named(addresses):
                node.address = addresses[node.name]
                self._try_start(node.job)

    async def set_instances(self, instances: Mapping[str, tuple[str, str]]) -> None:
        """It keeps nothing of it."""

    async def give_back(self, nodes: Iterable[str], reason: str) -> None:
        async with self._call("give_back"):
            for node in self._named(nodes):
                self._give_back(node, reason)

    async def release(self, nodes: Iterable[str]) -> None:
        async with self._call("release"):
            for node in self._named(nodes):
                if node.power in (Power.DOWN, Power.GOING_DOWN):
                    self._release(node)

    async def power_up(self, nodes: Iterable[str]) -> None:
        async with self._call("power_up"):
            for node in self._named(nodes):
                if node.power is Power.DOWN:
                    self._power_up(node)
                node.wanted = node.power is Power.GOING_DOWN

    async def power_down(self, nodes: Iterable[str]) -> None:
        async with self._call("power_down"):
            for node in self._named(nodes):
                node.wanted = False
                if node.job:
                    node.leaving = True
                elif node.power in (Power.UP, Power.GOING_UP):
                    self._dismiss(node)

    async def drain(self, nodes: Iterable[str], reason: str, by: str = OURS) -> None:
        async with self._call("drain"):
            for node in self._named(nodes):
                again = reason.startswith(CALENDAR) and node.reason.startswith(_words(CALENDAR))
                ours = node.owner == OURS and (by != OURS or again)
                if not node.drained or ours or (reason.startswith(UNREADY) and not node.reason):
                    node.drained, node.owner, node.reason = True, by, _words(reason, by)

    async def undrain(self, nodes: Iterable[str], by: str | None = OURS) -> None:
        async with self._call("undrain"):
            for node in self._named(nodes):
                if (node.drained or node.is_persons) and by in (None, node.owner):
                    self._undrain(node)

    def _undrain(self, node: FakeNode) -> None:
        node.drained, node.owner, node.reason = False, None, ""
        if node.reboot is Reboot.REQUESTED:
            node.reboot = None
        if node.registered:
            self._settle(node)
        self._soon()

    async def reboot(self, nodes: Iterable[str], reason: str) -> None:
        async with self._call("reboot"):
            for node in self._named(nodes):
                if node.power is Power.UP and not node.reboot:
                    self._ask_reboot(node, reason)

    async def expect(self, nodes: Iterable[str]) -> None:
        async with self._call("expect"):
            for node in self._named(nodes):
                if node.power is Power.UP and not node.down:
                    self._expect(node, _words("starts afresh"))

    async def fail(self, nodes: Iterable[str], reason: str) -> None:
        async with self._call("fail"):
            for node in self._named(nodes):
                if not (node.drained and node.is_persons):
                    node.reason = _words(reason)
                self._expect(node, _words(reason))

    async def submit_rebuilds(self, nodes: Iterable[str], command: str | None) -> Mapping[str, str]:
        async with self._call("submit_rebuilds"):
            waiting = {job.only: job for job in self._open.values() if job.only}
            named = [node.name for node in self._named(nodes)]
            jobs = {name: waiting.get(name) or self._rebuild(name, command) for name in named}
            return {name: job.id for name, job in jobs.items()}

    def _rebuild(self, node: str, command: str | None) -> FakeJob:
        job = self._queue(1, 0.0)
        job.only, job.rebuilds = node, command is None
        return job

    async def close(self) -> None:
        async with self._call("close"):
            self.closed, self.opening = True, False

    async def open(self) -> None:
        async with self._call("open"):
            self.closed = self.opening = False
            self._soon()

    async def reopen(self) -> None:
        if self.opening:
            await self.open()

    async def tell(self, job: str, text: str) -> None:
        async with self._call("tell"):
            self.told.append((job, text))

    async def reload(self, site: Site) -> str:
        async with self._call("reload"):
            known, self.site = self.site, site
            self.opening = self.closed and self.existing
            if known is None and not self.existing:
                self.closed = False
                self._soon()
            return "" if known else "started"

    async def stop(self, for_good: bool = True) -> None:
        async with self._call("stop"):
            self.site = None

    def _named(self, names: Iterable[str]) -> list[FakeNode]:
        """As with scontrol, one wrong name spoils the command."""
        names = list(names)
        if unknown := [name for name in names if name not in self._nodes]:
            raise Unavailable(f"invalid node name specified: {', '.join(unknown)}")
        return [self._nodes[name] for name in names]


def _words(reason: str, by: str = OURS) -> str:
    return f"{OURS}: {reason}" if by == OURS else reason
