"""The batch system of tests and the simulator: a FakeScheduler behind `ports.BatchSystem`.

Commands can be interrupted before their effect and between the effect and the reply.
"""

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Callable, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager

from springtide.batch.fake_records import FakeJob, FakeNode, Timing
from springtide.batch.fake_scheduler import FakeScheduler, loop_time
from springtide.ports import BatchNode, Job, Power, Site, Unavailable

__all__ = ["FakeBatch", "FakeJob", "Timing"]


class FakeBatch(FakeScheduler):
    """The world and, as with Slurm, one way in for all: it outlives the daemons that call it."""

    def __init__(
        self,
        nodes: Iterable[str],
        node_at: Callable[[str], str | None],
        timing: Timing | None = None,
        now: Callable[[], float] = loop_time,
    ) -> None:
        super().__init__(nodes, node_at, timing, now)
        self.unavailable = False  # questions and commands fail; nodes and jobs go on
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

    async def nodes(self, names: Iterable[str] | None = None) -> Mapping[str, BatchNode]:
        async with self._call("nodes"):
            wanted = self._nodes if names is None else [n for n in names if n in self._nodes]
            return {name: self._nodes[name].shown() for name in wanted}

    async def jobs(self) -> Sequence[Job]:
        async with self._call("jobs"):
            return [job.shown() for job in self._open.values()]

    async def set_addresses(self, addresses: Mapping[str, str]) -> None:
        async with self._call("set_addresses"):
            for node in self._named(addresses):
                node.address = addresses[node.name]
                self._try_start(node.job)

    async def give_back(self, nodes: Iterable[str], reason: str) -> None:
        async with self._call("give_back"):
            for node in self._named(nodes):
                self._give_back(node, reason)

    async def release(self, nodes: Iterable[str]) -> None:
        async with self._call("release"):
            for node in self._named(nodes):
                if node.power in (Power.DOWN, Power.GOING_DOWN):
                    self._powered_down(node)

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
                    self._power_down(node)

    async def tell(self, job: str, text: str) -> None:
        async with self._call("tell"):
            self.told.append((job, text))

    async def reload(self, site: Site) -> str:
        async with self._call("reload"):
            known, self.site = self.site, site
            return "" if known else "started"

    async def stop(self) -> None:
        async with self._call("stop"):
            self.site = None

    def _named(self, names: Iterable[str]) -> list[FakeNode]:
        """As with scontrol, one wrong name spoils the command."""
        names = list(names)
        if unknown := [name for name in names if name not in self._nodes]:
            raise Unavailable(f"invalid node name specified: {', '.join(unknown)}")
        return [self._nodes[name] for name in names]
