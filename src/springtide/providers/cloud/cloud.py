"""`ports.Provider` over a cloud's `Driver`: its own threads, bulk launches, none made twice."""

import asyncio
from collections import defaultdict
from collections.abc import (
    AsyncIterator,
    Awaitable,
    Callable,
    Iterable,
    Mapping,
    MutableSequence,
    Sequence,
)
from concurrent.futures import ThreadPoolExecutor
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import replace
from typing import TypeVar

from springtide import threads
from springtide.ports import (
    Check,
    CloudError,
    CloudFlavor,
    CloudImage,
    Denied,
    Instance,
    InstanceState,
    Launch,
    Need,
    Rejected,
    Site,
    Throttled,
    Transient,
)
from springtide.providers.cloud.driver import Answers, Driver

CONSOLE_BYTES = 16 << 10
VISIBLE_S = 60.0
"""What was made is listed by then; until then we remember it."""
THREADS = 16
SLOW_THREADS = 8
"""For what may take minutes: launches and looks must not wait behind it."""

_T = TypeVar("_T")


class Cloud:
    """Implements `ports.Provider`."""

    def __init__(
        self,
        driver: Driver,
        threads: int = THREADS,
        after: Callable[[], Awaitable[None]] | None = None,
    ) -> None:
        """`after` is awaited after each call, to take from the threads what they have to tell."""
        self.driver = driver
        self._after = after
        self._pool = ThreadPoolExecutor(threads, thread_name_prefix="cloud")
        self._slow = ThreadPoolExecutor(min(threads, SLOW_THREADS), thread_name_prefix="cloud-slow")
        self._unseen: dict[str, tuple[Instance, float]] = {}
        self._locks: defaultdict[str, asyncio.Lock] = defaultdict(asyncio.Lock)

    @property
    def in_place(self) -> bool:
        return self.driver.in_place

    def renews(self, markets: Sequence[str]) -> bool:
        return self.driver.renews(markets)

    async def prepare(self, cluster: str) -> Site:
        return await self._do(self.driver.prepare, cluster)

    async def remove(self, cluster: str) -> None:
        """Asks once for the instances to go; who called asks again until they are gone."""
        if found := await self.list(cluster):
            for error in (await self.delete(found)).values():
                raise error
            if left := await self.list(cluster):
                raise Transient(f"{len(left)} instances of {cluster} are still going")
        await self._do(self.driver.remove, cluster)

    async def list(self, cluster: str) -> Sequence[Instance]:
        """With what was just made: lists of clouds lag behind."""
        listed = await self._ask(self.driver.list, cluster)
        now = asyncio.get_running_loop().time()
        for id in {one.id for one in listed} & self._unseen.keys():
            del self._unseen[id]
        self._unseen = {id: one for id, one in self._unseen.items() if one[1] > now}
        unseen = [one for one, _ in self._unseen.values() if one.cluster == cluster]
        return sorted([*listed, *unseen], key=lambda one: (one.node, one.generation, one.id))

    async def create(self, launches: Sequence[Launch]) -> Mapping[str, Instance | CloudError]:
        """Looks first: what exists is answered, and what is in the way is waited for."""
        answers: dict[str, Instance | CloudError] = {}
        async with self._alone(launches):
            for cluster, some in _by_cluster(launches).items():
                known, missing = decide_missing(some, await self._look(cluster))
                answers |= known
                throttled: MutableSequence[Throttled] = []
                batches = decide_batches(missing, self.driver.batch)
                made = await threads.together(self._launch(batch, throttled) for batch in batches)
                for each in made:
                    answers |= each
        return answers

    async def delete(self, instances: Sequence[Instance]) -> Mapping[str, CloudError]:
        if not instances:
            return {}
        refused = await self._do(self.driver.delete, instances)
        for instance in instances:
            if instance.id not in refused:
                self._unseen.pop(instance.id, None)
        return refused

    async def reboot(self, launches: Sequence[Launch]) -> Mapping[str, Instance | CloudError]:
        return await self._afresh(launches, self.driver.reboot)

    async def rebuild(self, launches: Sequence[Launch]) -> Mapping[str, Instance | CloudError]:
        if not self.driver.in_place:
            refusal = Rejected("here an instance with another image is another instance")
            return {launch.node: refusal for launch in launches}
        return await self._afresh(launches, self.driver.rebuild)

    async def snapshot(self, instance: Instance, name: str) -> CloudImage:
        return await self._do(self.driver.snapshot, instance, name, pool=self._slow)

    async def images(self, cluster: str) -> Sequence[CloudImage]:
        return await self._ask(self.driver.images, cluster)

    async def forget(self, image: CloudImage) -> None:
        await self._do(self.driver.forget, image)

    async def flavors(self) -> Mapping[str, CloudFlavor]:
        return await self._ask(self.driver.flavors)

    async def check(self, cluster: str, needs: Sequence[Need]) -> Sequence[Check]:
        try:
            return await self._ask(self.driver.check, cluster, needs)
        except CloudError as error:
            return [Check("cloud", False, str(error))]

    async def console(self, instances: Sequence[Instance]) -> Mapping[str, str]:
        """Of those that exist, as far as the cloud tells."""
        found: set[str] = set()
        for cluster in {instance.cluster for instance in instances}:
            found |= {one.id for one in await self.list(cluster)}
        there = [instance for instance in instances if instance.id in found]
        said = await asyncio.gather(*(self._console(one) for one in there))
        told = zip(there, said, strict=True)
        return {one.id: _end(text) for one, text in told if text is not None}

    async def _console(self, instance: Instance) -> str | None:
        try:
            return await self._ask(self.driver.console, instance)
        except CloudError:
            return None

    async def close(self) -> None:
        """What is running in threads ends first: a reboot under way takes its time."""
        await asyncio.to_thread(self._pool.shutdown)
        await asyncio.to_thread(self._slow.shutdown)
        await asyncio.to_thread(self.driver.close)

    async def _afresh(
        self, launches: Sequence[Launch], do: Callable[[Instance, Launch], Instance]
    ) -> Mapping[str, Instance | CloudError]:
        answers: dict[str, Instance | CloudError] = {}
        async with self._alone(launches):
            for cluster, some in _by_cluster(launches).items():
                found = decide_present(some, await self._look(cluster))
                answers |= {n: one for n, one in found.items() if isinstance(one, CloudError)}
                there = [launch for launch in some if launch.node not in answers]
                done = await threads.together(
                    self._attempt(do, found[launch.node], launch) for launch in there
                )
                answers |= {one.node: answer for one, answer in zip(there, done, strict=True)}
        return answers

    async def _attempt(
        self,
        do: Callable[[Instance, Launch], Instance],
        instance: Instance | CloudError,
        launch: Launch,
    ) -> Instance | CloudError:
        try:
            return await self._do(do, instance, launch, pool=self._slow)
        except CloudError as error:
            return error

    async def _launch(
        self, batch: Sequence[Launch], throttled: MutableSequence[Throttled]
    ) -> dict[str, Instance | CloudError]:
        try:
            made: Answers = await self._do(self._launch_calmly, batch, throttled)
        except CloudError as error:
            return {launch.node: error for launch in batch}
        until = asyncio.get_running_loop().time() + VISIBLE_S
        for one in made.values():
            if isinstance(one, Instance):
                self._unseen[one.id] = one, until
        silent = Transient("the cloud said nothing about it")
        return {launch.node: made.get(launch.node, silent) for launch in batch}

    def _launch_calmly(
        self, batch: Sequence[Launch], throttled: MutableSequence[Throttled]
    ) -> Answers:
        """Once the cloud throttles, the rest of a create is not asked for."""
        if throttled:
            raise throttled[0]
        try:
            return self.driver.launch(batch)
        except Throttled as error:
            throttled.append(error)
            raise

    @asynccontextmanager
    async def _alone(self, launches: Iterable[Launch]) -> AsyncIterator[None]:
        """Two calls for one node of ours follow each other: the second then finds the first's.

        Threads cannot be interrupted: a call that is cancelled keeps its nodes until they end.
        """
        nodes = sorted({f"{launch.cluster}/{launch.node}" for launch in launches})
        async with AsyncExitStack() as stack:
            for node in nodes:
                await stack.enter_async_context(self._locks[node])
            yield

    async def _look(self, cluster: str) -> Sequence[Instance]:
        """Before a launch. A look that fails says nothing about what is to be launched."""
        try:
            return await self.list(cluster)
        except (Denied, Transient):
            raise
        except CloudError as error:
            raise Transient(f"what is there cannot be listed: {error}") from error

    async def _ask(self, do: Callable[..., _T], *arguments: object) -> _T:
        """In a thread. It changes nothing, so one who is cancelled need not wait for it."""
        try:
            return await asyncio.get_running_loop().run_in_executor(self._pool, do, *arguments)
        finally:
            await self._tell()

    async def _do(
        self, do: Callable[..., _T], *arguments: object, pool: ThreadPoolExecutor | None = None
    ) -> _T:
        """In a thread. One who is cancelled meanwhile waits: its effect is then to be seen."""
        loop = asyncio.get_running_loop()
        try:
            return await _to_its_end(loop.run_in_executor(pool or self._pool, do, *arguments))
        finally:
            await self._tell()

    async def _tell(self) -> None:
        if self._after:
            await self._after()


async def _to_its_end(done: Awaitable[_T]) -> _T:
    future = asyncio.ensure_future(done)
    try:
        return await asyncio.shield(future)
    except asyncio.CancelledError:
        await asyncio.wait([future])
        if not future.cancelled():
            future.exception()  # has nobody to be told to any more
        raise


def decide_missing(
    launches: Sequence[Launch], found: Sequence[Instance]
) -> tuple[dict[str, Instance | CloudError], list[Launch]]:
    """Answers for nodes that have an instance, and the launches of those that have none."""
    of_node: dict[str, list[Instance]] = defaultdict(list)
    for instance in found:
        of_node[instance.node].append(instance)
    answers: dict[str, Instance | CloudError] = {}
    for launch in launches:
        if others := of_node[launch.node]:
            answers[launch.node] = _standing(launch, others)
    return answers, [launch for launch in launches if launch.node not in answers]


def _standing(launch: Launch, others: Sequence[Instance]) -> Instance | CloudError:
    """An instance of this generation is the answer; any other is in the way until it is gone."""
    for one in others:
        if one.generation == launch.generation and one.state is not InstanceState.DELETING:
            return one
    old = others[0]
    return Transient(f"{launch.node}: {old.id}, generation {old.generation}, is still {old.state}")


def decide_present(
    launches: Sequence[Launch], found: Sequence[Instance]
) -> dict[str, Instance | CloudError]:
    """The instance of each node that is to start afresh."""
    there = {(one.node, one.generation): one for one in found}
    return {
        launch.node: _present(launch, there.get((launch.node, launch.generation)))
        for launch in launches
    }


def _present(launch: Launch, instance: Instance | None) -> Instance | CloudError:
    if instance is None:
        return Rejected(
            f"{launch.node} has no instance of generation {launch.generation}: create one instead"
        )
    if instance.state is InstanceState.DELETING:
        return Transient(f"{launch.node}: {instance.id} is being deleted")
    return instance


def decide_batches(launches: Sequence[Launch], size: int) -> list[list[Launch]]:
    """Launches that one call can make: they differ in node, generation and token alone."""
    alike: dict[Launch, list[Launch]] = defaultdict(list)
    for launch in launches:
        alike[replace(launch, node="", generation=0, token="")].append(launch)
    return [some[at : at + size] for some in alike.values() for at in range(0, len(some), size)]


def _by_cluster(launches: Iterable[Launch]) -> dict[str, list[Launch]]:
    clusters: dict[str, list[Launch]] = defaultdict(list)
    for launch in launches:
        clusters[launch.cluster].append(launch)
    return clusters


def _end(text: str) -> str:
    return text.encode()[-CONSOLE_BYTES:].decode(errors="ignore")
