"""The fake cloud behind a guard, with a list of what befalls its next calls; every kind of call."""

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from random import Random

from springtide.guard import Guard
from springtide.ports import CloudError, Instance, Launch, Throttled, Transient
from springtide.providers.fake import FakeCloud, FakeProvider, Faults

BUSY = Throttled("429: slow down")
BROKEN = Transient("connection reset")


@dataclass(slots=True)
class Cloud(FakeCloud):
    """Raises what is in `befalls` at its next calls, and notes when each came."""

    befalls: list[CloudError | None] = field(default_factory=list)
    seen: list[tuple[float, str]] = field(default_factory=list)

    def admit(self, kind: str) -> None:
        self.seen.append((self.now(), kind))
        if self.befalls and (error := self.befalls.pop(0)):
            raise error
        FakeCloud.admit(self, kind)


class Asked(FakeProvider):
    """Notes whom each call was about, and raises as some adapters do."""

    def __init__(self, cloud: FakeCloud, raises: Mapping[int, CloudError] | None = None) -> None:
        super().__init__(cloud)
        self.asked: list[list[str]] = []
        self._raises = raises or {}

    async def create(self, launches: Sequence[Launch]) -> Mapping[str, Instance | CloudError]:
        self._note(launch.node for launch in launches)
        return await super().create(launches)

    async def delete(self, instances: Sequence[Instance]) -> Mapping[str, CloudError]:
        self._note(instance.node for instance in instances)
        return await super().delete(instances)

    def _note(self, nodes: Iterable[str]) -> None:
        self.asked.append(list(nodes))
        if error := self._raises.get(len(self.asked)):
            raise error


def launches(*nodes: str, generation: int = 1) -> list[Launch]:
    return [Launch("blue", node, generation, "general", "base", "small") for node in nodes]


def guarded(cloud: FakeCloud, seed: int = 0) -> Guard:
    return Guard(FakeProvider(cloud), Random(seed))


def now() -> float:
    return asyncio.get_running_loop().time()


async def _listed(guard: Guard) -> object:
    return await guard.list("blue")


async def _created(guard: Guard) -> object:
    return _raised((await guard.create(launches("n1")))["n1"])


async def _deleted(guard: Guard) -> object:
    answers = await guard.delete(_instances(guard))
    return _raised(*answers.values())


async def _rebooted(guard: Guard) -> object:
    return _raised((await guard.reboot(launches("n0")))["n0"])


async def _prepared(guard: Guard) -> object:
    return await guard.prepare("blue")


async def _removed(guard: Guard) -> object:
    await guard.remove("blue")
    return None


async def _read(guard: Guard) -> object:
    return await guard.console(_instances(guard))


def _instances(guard: Guard) -> list[Instance]:
    assert isinstance(guard.provider, FakeProvider)
    return guard.provider.cloud.alive()


def _raised(*answers: object) -> object:
    for answer in answers:
        if isinstance(answer, CloudError):
            raise answer
    return answers


KINDS: Mapping[str, Callable[[Guard], Awaitable[object]]] = {
    "list": _listed,
    "create": _created,
    "delete": _deleted,
    "reboot": _rebooted,
    "prepare": _prepared,
    "remove": _removed,
    "console": _read,
}


def peopled(*befalls: CloudError | None) -> Cloud:
    """A cloud with an instance of n0."""
    cloud = Cloud(Faults(boot_s=0, delete_s=0), befalls=list(befalls))
    cloud.start(launches("n0")[0])
    return cloud


def throttled(until: float = 1e9) -> Faults:
    return Faults(throttled_until=until)
