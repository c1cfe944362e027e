"""The patience that every provider needs: `Guard` wraps one, and is what steps and engine call.

A cloud that throttles one call throttles them all, so all calls of a provider share one backoff.
What each provider's errors mean is said by their class (`ports.CloudError`): those that may pass
are tried again here, all others are answered at once and are for the caller to decide on.
"""

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from random import Random
from typing import TypeVar

from springtide.ports import (
    Check,
    CloudError,
    CloudFlavor,
    CloudImage,
    Instance,
    Launch,
    Need,
    Provider,
    Site,
    Throttled,
    Transient,
)

W = TypeVar("W")
A = TypeVar("A")

TRIES = 10
LIMIT_S = 600.0
"""A call gives up after so many tries or so long, whichever comes first."""
FIRST_PAUSE_S = 1.0
DOUBLINGS = 7
"""The longest pause is then 128 s: all pauses of ten tries stay below LIMIT_S."""

Tell = Callable[[str, str], object]
"""Told what happened, and more of it in words; must not fail."""


def decide_pause_s(tries: int, random: Random) -> float:
    """How long to wait after so many tries: exponential with full jitter."""
    return random.uniform(0.0, FIRST_PAUSE_S * 2 ** min(tries - 1, DOUBLINGS))


def decide_failure(error: Transient, tries: int, seconds: float) -> Transient:
    """The last error of a call that is given up, with how often and how long it was tried."""
    kind = Throttled if isinstance(error, Throttled) else Transient
    times = "once" if tries == 1 else f"{tries} times"
    tried = f"tried {times} in {seconds:.0f} s" if tries else f"waited {seconds:.0f} s to try it"
    failure = kind(f"{error} ({tried})")
    failure.__cause__ = error
    return failure


@dataclass(slots=True)
class Tally:
    """What one kind of call has cost since the start."""

    calls: int = 0
    tries: int = 0
    throttles: int = 0
    asked_s: float = 0.0
    """In the provider."""
    waited_s: float = 0.0
    """Between tries, and before the first for the backoff of others."""


@dataclass(slots=True)
class _Call:
    """A call under way."""

    kind: str
    began: float
    end: float
    tries: int = 0
    throttled: bool = False
    """Whether its last try was: it then waits with all others, not by itself."""


class Backoff:
    """What the calls of one provider share: until when none of them is made."""

    def __init__(self, random: Random, tell: Tell) -> None:
        self._random = random
        self._tell = tell
        self._until = 0.0
        self._pauses = 0
        self._since = 0.0
        self.error = Throttled("too many calls")
        """Why the calls wait."""

    async def over(self, limit: float) -> bool:
        """Wait until calls may be made; False at once when that is past the limit."""
        loop = asyncio.get_running_loop()
        while loop.time() < self._until <= limit:  # noqa: ASYNC110 - others may prolong it
            await asyncio.sleep(self._until - loop.time())
        return max(self._until, loop.time()) <= limit

    def refused(self, error: Throttled) -> None:
        """The cloud throttled a call. Others that were under way with it say nothing new."""
        now = asyncio.get_running_loop().time()
        if now < self._until:
            return
        self._pauses += 1
        self._until, self.error = now + decide_pause_s(self._pauses, self._random), error
        if self._pauses == 1:
            self._since = now
            self._tell("provider throttled", f"all calls to it wait: {error}")

    def passed(self, began: float) -> None:
        """The cloud answered a call made then; one made before the pause says nothing of now."""
        if not self._pauses or began < self._until:
            return
        lasted_s = asyncio.get_running_loop().time() - self._since
        detail = f"it took {lasted_s:.0f} s and {self._pauses} pauses"
        self._pauses = 0
        self._tell("provider throttled no more", detail)


class Guard:
    """`ports.Provider` around another one: retries, and one backoff for all its calls."""

    def __init__(
        self,
        provider: Provider,
        random: Random,
        tell: Tell = lambda what, detail: None,
        limit_s: float = LIMIT_S,
    ) -> None:
        self.provider = provider
        self.tallies: dict[str, Tally] = {}
        """By kind of call."""
        self._random = random
        self._limit_s = limit_s
        self._backoff = Backoff(random, tell)

    @property
    def in_place(self) -> bool:
        return self.provider.in_place

    def renews(self, markets: Sequence[str]) -> bool:
        return self.provider.renews(markets)

    async def prepare(self, cluster: str) -> Site:
        return await self._whole("prepare", lambda: self.provider.prepare(cluster))

    async def remove(self, cluster: str) -> None:
        await self._whole("remove", lambda: self.provider.remove(cluster))

    async def list(self, cluster: str) -> Sequence[Instance]:
        return await self._whole("list", lambda: self.provider.list(cluster))

    async def create(self, launches: Sequence[Launch]) -> Mapping[str, Instance | CloudError]:
        wanted = {launch.node: launch for launch in launches}
        return await self._each("create", wanted, self.provider.create)

    async def delete(self, instances: Sequence[Instance]) -> Mapping[str, CloudError]:
        wanted = {instance.id: instance for instance in instances}
        return await self._each("delete", wanted, self.provider.delete)

    async def reboot(self, launches: Sequence[Launch]) -> Mapping[str, Instance | CloudError]:
        wanted = {launch.node: launch for launch in launches}
        return await self._each("reboot", wanted, self.provider.reboot)

    async def rebuild(self, launches: Sequence[Launch]) -> Mapping[str, Instance | CloudError]:
        wanted = {launch.node: launch for launch in launches}
        return await self._each("rebuild", wanted, self.provider.rebuild)

    async def snapshot(self, instance: Instance, name: str) -> CloudImage:
        return await self._whole("snapshot", lambda: self.provider.snapshot(instance, name))

    async def images(self, cluster: str) -> Sequence[CloudImage]:
        return await self._whole("images", lambda: self.provider.images(cluster))

    async def forget(self, image: CloudImage) -> None:
        await self._whole("forget", lambda: self.provider.forget(image))

    async def flavors(self) -> Mapping[str, CloudFlavor]:
        return await self._whole("flavors", self.provider.flavors)

    async def check(self, cluster: str, needs: Sequence[Need]) -> Sequence[Check]:
        """Once: what fails now is what is to be told."""
        return await self.provider.check(cluster, needs)

    async def console(self, instances: Sequence[Instance]) -> Mapping[str, str]:
        return await self._whole("console", lambda: self.provider.console(instances))

    async def close(self) -> None:
        await self.provider.close()

    async def _whole(self, kind: str, ask: Callable[[], Awaitable[A]]) -> A:
        """A call with one answer, for all or nothing."""

        async def asked(_: Sequence[None]) -> dict[str, A | CloudError]:
            return {kind: await ask()}

        answer = (await self._each(kind, {kind: None}, asked))[kind]
        if isinstance(answer, CloudError):
            raise answer
        return answer

    async def _each(
        self,
        kind: str,
        wanted: Mapping[str, W],
        ask: Callable[[Sequence[W]], Awaitable[Mapping[str, A | CloudError]]],
    ) -> dict[str, A | CloudError]:
        """A call with an answer for each: if none of them is final, all are asked for again.

        Answers that are must not wait for others, nor be lost: who called asks again for the rest.
        """
        now = asyncio.get_running_loop().time()
        call = _Call(kind, now, now + self._limit_s)
        self._tally(call).calls += 1
        answers = dict[str, A | CloudError]()
        while wanted and await self._may_try(call):
            answers = await self._try(call, wanted, ask)
            if not all(isinstance(answers.get(key), Transient) for key in wanted):
                return answers
        return {**self._given_up(call, {key: answers.get(key) for key in wanted})}

    async def _may_try(self, call: _Call) -> bool:
        """Wait for the next try, by itself or with all; False when there is to be none."""
        loop = asyncio.get_running_loop()
        began = loop.time()
        try:
            return (
                call.tries < TRIES
                and await self._pause(call)
                and await self._backoff.over(call.end)
            )
        finally:
            self._tally(call).waited_s += loop.time() - began

    async def _pause(self, call: _Call) -> bool:
        """After a failure that is nobody else's; False when that would take too long."""
        if not call.tries or call.throttled:
            return True
        pause_s = decide_pause_s(call.tries, self._random)
        if asyncio.get_running_loop().time() + pause_s > call.end:
            return False
        await asyncio.sleep(pause_s)
        return True

    async def _try(
        self,
        call: _Call,
        wanted: Mapping[str, W],
        ask: Callable[[Sequence[W]], Awaitable[Mapping[str, A | CloudError]]],
    ) -> dict[str, A | CloudError]:
        loop = asyncio.get_running_loop()
        call.tries += 1
        self._tally(call).tries += 1
        began = loop.time()
        try:
            answers = dict(await ask([*wanted.values()]))
        except CloudError as error:
            answers = dict.fromkeys(wanted, error)
        finally:
            self._tally(call).asked_s += loop.time() - began
        self._heed(call, began, answers.values())
        return answers

    def _heed(self, call: _Call, began: float, answers: Iterable[object]) -> None:
        """What the answers say about how busy the cloud is; a broken connection says nothing."""
        failed = [answer for answer in answers if isinstance(answer, Transient)]
        throttled = next((error for error in failed if isinstance(error, Throttled)), None)
        call.throttled = throttled is not None
        if throttled:
            self._tally(call).throttles += 1
            self._backoff.refused(throttled)
        elif not failed:
            self._backoff.passed(began)

    def _given_up(self, call: _Call, last: Mapping[str, object]) -> dict[str, CloudError]:
        seconds = asyncio.get_running_loop().time() - call.began
        return {
            key: decide_failure(
                error if isinstance(error, Transient) else self._backoff.error, call.tries, seconds
            )
            for key, error in last.items()
        }

    def _tally(self, call: _Call) -> Tally:
        return self.tallies.setdefault(call.kind, Tally())
