"""What goes wrong in a random week, beside jobs that come and people who act. `week` lets it rage.

Each hazard has its own source of chance, so that any of them can be left out of a week and the
others stay as they were, until their effects differ.
"""

import asyncio
from collections.abc import Callable, Coroutine, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from math import inf
from random import Random
from typing import Any

from springtide.ports import CloudError, InstanceState, Launch
from tests.sim import admins
from tests.sim.scene import Scene

MINUTE, HOUR = 60.0, 3600.0
PRESENT = 0.75
"""How likely each hazard is to be part of a week; users are part of each."""

Hazard = Callable[[Scene, Random], Coroutine[Any, Any, None]]


async def rage(scene: Scene, length_s: float, without: Iterable[str]) -> None:
    """All at once, each by its own chance; then each undoes what it has done."""
    spared = frozenset(without)
    picked = scene.chance("hazards")
    present = {name for name in HAZARDS if picked.random() < PRESENT} | {"users"}
    scene.say(f"hazards: {' '.join(sorted(present - spared))}")
    tasks = [
        asyncio.create_task(hazard(scene, scene.chance(name)))
        for name, hazard in HAZARDS.items()
        if name in present - spared
    ]
    await asyncio.wait(tasks, timeout=length_s)
    for task in tasks:
        task.cancel()
    for ended in await asyncio.gather(*tasks, return_exceptions=True):
        if not isinstance(ended, asyncio.CancelledError):
            raise RuntimeError("a hazard broke") from ended


async def _wait(rng: Random, every_s: float) -> None:
    await asyncio.sleep(rng.expovariate(1 / every_s))


# --- what lasts for a while ----------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Spell:
    """Something that begins, lasts and ends, again and again."""

    every_s: float
    lasts_s: tuple[float, float]
    begin: Callable[[Scene, Random], str]
    end: Callable[[Scene], None]

    async def __call__(self, scene: Scene, rng: Random) -> None:
        while True:
            await _wait(rng, self.every_s)
            what = self.begin(scene, rng)
            scene.say(f"from now on: {what}")
            try:
                await asyncio.sleep(rng.uniform(*self.lasts_s))
            finally:
                self.end(scene)
                scene.say(f"no more: {what}")


def _fill(scene: Scene, rng: Random) -> str:
    """Some places, or all: each has room for no more than a few."""
    cloud, flavors = scene.world.cloud, ("small", "large", "huge")
    places = [(zone, flavor) for zone in cloud.zones for flavor in flavors]
    for place in rng.sample(places, rng.choice([2, 4, 6, 9])):
        cloud.capacity[place] = rng.choice([0, 0, 1, 3])
    full = ", ".join(f"{zone}/{flavor}:{n}" for (zone, flavor), n in cloud.capacity.items())
    return f"capacity of {full}"


def _empty(scene: Scene) -> None:
    scene.world.cloud.capacity.clear()


def _throttle(scene: Scene, rng: Random) -> str:
    faults = scene.world.cloud.faults
    if rng.random() < 0.5:
        faults.throttle_every = rng.choice([2, 3, 10])
    else:
        faults.throttled_until = inf
    return f"throttling, each {faults.throttle_every or 1}. call"


def _unthrottle(scene: Scene) -> None:
    scene.world.cloud.faults.throttle_every = 0
    scene.world.cloud.faults.throttled_until = -inf


def _cut_quota(scene: Scene, rng: Random) -> str:
    cloud = scene.world.cloud
    cloud.quota = max(0, len(cloud.alive()) + rng.choice([-3, 0, 1, 3]))
    return f"a quota of {cloud.quota}"


def _raise_quota(scene: Scene) -> None:
    scene.world.cloud.quota = None


def _number(
    name: str, values: Iterable[float], every_s: float, lasts_s: tuple[float, float]
) -> Spell:
    """A spell that is one number of the cloud's faults."""
    choices = list(values)

    def begin(scene: Scene, rng: Random) -> str:
        value = rng.choice(choices)
        setattr(scene.world.cloud.faults, name, value)
        return f"{name} {value}"

    def end(scene: Scene) -> None:
        setattr(scene.world.cloud.faults, name, 0)

    return Spell(every_s, lasts_s, begin, end)


def _switch(
    words: str, turn: Callable[[Scene, bool], None], every_s: float, lasts_s: tuple[float, float]
) -> Spell:
    """A spell that is on or off."""

    def begin(scene: Scene, rng: Random) -> str:
        turn(scene, True)
        return words

    return Spell(every_s, lasts_s, begin, lambda scene: turn(scene, False))


def _revoke(scene: Scene, on: bool) -> None:
    scene.world.cloud.faults.denied = on


def _silence(scene: Scene, on: bool) -> None:
    scene.world.batch.unavailable = on
    scene.able_since = scene.now()


def _lose_calls(scene: Scene, on: bool) -> None:
    scene.loses_calls = on
    scene.able_since = scene.now()


# --- what happens at once --------------------------------------------------------------------


async def _users(scene: Scene, rng: Random) -> None:
    """Bursts of jobs. All fit on the nodes that are left when people have drained their share."""
    room = len(scene.world.spec.managed) - admins.MOST_DRAINED
    while True:
        await _wait(rng, 4 * HOUR)
        jobs = [(_size(rng, room), _duration_s(rng)) for _ in range(rng.choice([1, 1, 2, 3, 8]))]
        for size, duration_s in jobs:
            scene.world.batch.submit(size, duration_s)
        scene.say("jobs: " + ", ".join(f"{size} for {for_s:.0f} s" for size, for_s in jobs))


def _size(rng: Random, room: int) -> int:
    return rng.choice(
        [1, 1, 1, 1, 1, 1, rng.randint(2, 4), rng.randint(2, 4), rng.randint(1, room)]
    )


def _duration_s(rng: Random) -> float:
    longest_s = rng.choice([10 * MINUTE, 10 * MINUTE, 10 * MINUTE, 3 * HOUR, 15 * HOUR])
    return rng.uniform(5, longest_s)


async def _deaths(scene: Scene, rng: Random) -> None:
    """Instances that vanish, stop or break, now and then many at once."""
    while True:
        await _wait(rng, 6 * HOUR)
        cloud = scene.world.cloud
        alive = [one for one in cloud.alive() if one.id not in scene.foreign]
        for one in rng.sample(alive, min(len(alive), rng.choice([1, 1, 1, 2, 9]))):
            leaves = rng.choice([None, InstanceState.STOPPED, InstanceState.BROKEN])
            cloud.die(one.id, leaves)
            scene.say(f"{one.id} of {one.node} dies: {leaves or 'vanished'}")


async def _strays(scene: Scene, rng: Random) -> None:
    """Instances that nobody asked for: twins, of any generation, of no node, of other clusters."""
    while True:
        await _wait(rng, 10 * HOUR)
        with suppress(CloudError):
            _plant(scene, rng)


def _plant(scene: Scene, rng: Random) -> None:
    cluster = rng.choice(["week", "week", "week", "other"])
    name = rng.choice([*scene.world.spec.managed, "x1", "s99"])
    generation = _generation(scene, name) + rng.choice([-1, 0, 0, 1, 7])
    launch = Launch(cluster, name, generation, "burst", "host", rng.choice(["small", "large"]))
    made = scene.world.cloud.start(launch)
    scene.say(f"planted {made.id} for {name} of {cluster}, generation {generation}")
    if cluster != "week":
        scene.foreign.add(made.id)


def _generation(scene: Scene, name: str) -> int:
    daemon = scene.world.daemon
    node = daemon.parts.record.nodes.get(name) if daemon else None
    return node.generation if node else 3


async def _kills(scene: Scene, rng: Random) -> None:
    """SIGKILL at any await point, or a clean stop; back within an hour."""
    while True:
        await _wait(rng, 8 * HOUR)
        scene.down_s = rng.choice(
            [rng.uniform(1, 60), rng.uniform(60, 1200), rng.uniform(60, HOUR)]
        )
        if rng.random() < 0.2:
            scene.stopping.set()
        elif life := scene.life:
            life.dies_at = life.passed + rng.randint(1, 300)
            try:
                await life.over.wait()
            finally:
                life.dies_at = None


HAZARDS: Mapping[str, Hazard] = {
    "users": _users,
    "people": admins.people,
    "deaths": _deaths,
    "strays": _strays,
    "kills": _kills,
    "full": Spell(14 * HOUR, (10 * MINUTE, 5 * HOUR), _fill, _empty),
    "throttling": Spell(10 * HOUR, (MINUTE, 30 * MINUTE), _throttle, _unthrottle),
    "quota": Spell(20 * HOUR, (10 * MINUTE, 6 * HOUR), _cut_quota, _raise_quota),
    "denied": _switch("credentials revoked", _revoke, 24 * HOUR, (5 * MINUTE, 2 * HOUR)),
    "replies": _number("lost_replies", [0.05, 0.3, 0.8], 8 * HOUR, (MINUTE, 4 * HOUR)),
    "stale": _number("stale_s", [5, 30, 55], 6 * HOUR, (MINUTE, 12 * HOUR)),
    "boots": _number("stuck_boots", [0.2, 0.5, 1.0], 10 * HOUR, (MINUTE, HOUR)),
    "refusals": _number("refused_deletes", [0.2, 0.5, 1.0], 10 * HOUR, (MINUTE, HOUR)),
    "deletes": _number("ignored_deletes", [0.2, 0.5, 1.0], 10 * HOUR, (MINUTE, HOUR)),
    "silence": _switch("no batch system", _silence, 10 * HOUR, (MINUTE, 40 * MINUTE)),
    "calls": _switch("calls of the batch system lost", _lose_calls, 12 * HOUR, (MINUTE, HOUR)),
}
"""All there are, by the names that `--without` knows."""
