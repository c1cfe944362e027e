"""What people do in a random week: through the daemon, in the batch system, in the cloud's console.

`hazards` lets them. None of them ever ends a job on purpose.
"""

import asyncio
from collections.abc import Callable, Coroutine, Sequence
from functools import partial
from random import Random
from typing import Any

from springtide.daemon import Daemon
from springtide.nodeset import fold
from springtide.ports import InstanceState
from tests.sim.scene import Scene

HOUR = 3600.0
MOST_DRAINED = 3
"""So many nodes people keep to themselves at a time, so that every job fits on the others."""
WHO = ("alice", "bob")

Deed = Callable[[Scene, Random], Coroutine[Any, Any, None]]


async def people(scene: Scene, rng: Random) -> None:
    """One thing after another."""
    while True:
        await asyncio.sleep(rng.expovariate(1 / (2 * HOUR)))
        await rng.choice(DEEDS)(scene, rng)


def _some(names: Sequence[str], rng: Random, most: int = 3) -> list[str]:
    return sorted(rng.sample(names, min(len(names), rng.randint(1, most))))


def _any(scene: Scene, rng: Random) -> list[str]:
    return _some(scene.world.spec.managed, rng)


def _undrained(scene: Scene, rng: Random) -> list[str]:
    left = MOST_DRAINED - len(scene.drains)
    free = [name for name in scene.world.spec.managed if name not in scene.drains]
    return _some(free, rng, left) if left > 0 else []


async def _drain(scene: Scene, rng: Random) -> None:
    if names := _undrained(scene, rng):
        who = rng.choice(WHO)
        await scene.ask(
            f"{who} drains {fold(names)}",
            lambda daemon: daemon.people.drain(names, "loud fan", who),
        )
        scene.look_at_drains(names)


async def _drain_by_hand(scene: Scene, rng: Random) -> None:
    if names := _undrained(scene, rng):
        who = rng.choice(WHO)
        drain = scene.world.batch.drain(names, "bad disk", who)
        await scene.by_hand(f"{who} drains {fold(names)}", drain)
        scene.look_at_drains(names)


async def _undrain(scene: Scene, rng: Random) -> None:
    for name, who in _drained(scene, rng):
        await scene.ask(f"{who} undrains {name}", partial(_undrained_by, name, who))
        scene.look_at_drains([name])


async def _undrained_by(name: str, who: str, daemon: Daemon) -> object:
    return await daemon.people.undrain([name], who)


async def _undrain_by_hand(scene: Scene, rng: Random) -> None:
    for name, who in _drained(scene, rng):
        await scene.by_hand(f"{who} undrains {name}", scene.world.batch.undrain([name], who))
        scene.look_at_drains([name])


def _drained(scene: Scene, rng: Random) -> list[tuple[str, str]]:
    known = sorted(scene.drains.items())
    return rng.sample(known, min(len(known), rng.randint(1, 2)))


async def _resume(scene: Scene, rng: Random) -> None:
    names = _any(scene, rng)
    await scene.ask(f"resume {fold(names)}", lambda daemon: daemon.people.resume(names, "alice"))


async def _suspend(scene: Scene, rng: Random) -> None:
    names = _any(scene, rng)
    await scene.ask(f"suspend {fold(names)}", lambda daemon: daemon.people.suspend(names, "alice"))


async def _kill(scene: Scene, rng: Random) -> None:
    """A job may get the node in this very moment; then it is the person who ends it.

    And so it is if nobody can be told that the node goes: people who end no job do not do that.
    """
    names = [name for name in _any(scene, rng) if not scene.world.batch.node(name).job]
    if names and not scene.world.batch.unavailable:
        await scene.ask(f"kill {fold(names)}", lambda daemon: daemon.people.kill(names, "alice"))


async def _rebuild(scene: Scene, rng: Random) -> None:
    names, via = _any(scene, rng), rng.choice(["direct", "reboot"])
    options = {"via": via, "force": True, "batch": rng.choice([0, 1]), "limit": HOUR}
    await scene.ask(
        f"rebuild {fold(names)} {via}",
        lambda daemon: daemon.people.rebuild(names, "alice", options),
    )


async def _power_down(scene: Scene, rng: Random) -> None:
    names = _any(scene, rng)
    await scene.by_hand(f"power_down {fold(names)}", scene.world.batch.power_down(names))
    scene.powered_down.update(names)


async def _power_up(scene: Scene, rng: Random) -> None:
    names = _any(scene, rng)
    await scene.by_hand(f"power_up {fold(names)}", scene.world.batch.power_up(names))


async def _console(scene: Scene, rng: Random) -> None:
    """Deletes or stops an instance of ours behind everybody's back."""
    cloud = scene.world.cloud
    ours = [one for one in cloud.alive() if one.id not in scene.foreign]
    for one in ours and [rng.choice(ours)]:
        stop = rng.random() < 0.3
        scene.say(f"by hand: {one.id} of {one.node} {'stopped' if stop else 'deleted'}")
        if stop:
            cloud.die(one.id, InstanceState.STOPPED)
        else:
            scene.world.delete_by_hand(one.id)


DEEDS: Sequence[Deed] = (
    _drain,
    _drain,
    _drain_by_hand,
    _undrain,
    _undrain_by_hand,
    _resume,
    _suspend,
    _kill,
    _rebuild,
    _power_down,
    _power_up,
    _console,
)
