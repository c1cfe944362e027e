"""The world of a random week, and those who act in it: the daemon's keeper, and people.

`hazards` and `admins` do things to it, `verdict` looks at it, `week` runs it.
"""

import asyncio
from collections.abc import Awaitable, Callable, Iterable
from dataclasses import dataclass, field
from pathlib import Path
from random import Random

from springtide.batch.fake import Timing
from springtide.daemon import Daemon
from springtide.engine import Refused
from springtide.model import Request
from springtide.nodeset import fold
from springtide.ports import CloudError, Unavailable
from springtide.providers.fake import Faults
from springtide.spool import BadRequest
from tests.sim.world import LIFE, Life, World, first

SPEC = """
cluster: week
batch: {{kind: fake}}
provider: {{kind: fake}}
flavors:
  small: {{cpus: 2, memory: 4G, price: 0.1}}
  large: {{cpus: 4, memory: 8G, price: 0.2}}
  huge: {{cpus: 8, memory: 16G, price: 0.4}}
groups:
  steady: {{nodes: "s[1-{steady}]", min: {min}, flavors: [small, large], zones: {zones}}}
  burst:
    nodes: "b[1-{burst}]"
    flavors: {flavors}
    zones: {zones}
    start: {start}
    choose: {choose}
timing:
  idle: {idle}
  start: 10m
  stop: 5m
  drain: 12h
  lock: 10m
  gather: 20ms
  reconcile: {reconcile}
  grace: 60s
"""


def random_spec(rng: Random) -> str:
    steady = rng.randint(3, 8)
    zones = rng.sample(["a", "b", "c"], rng.randint(1, 3))
    flavors = rng.sample(["small", "large", "huge"], rng.randint(1, 3))
    return SPEC.format(
        steady=steady,
        min=rng.randint(1, min(4, steady)),
        burst=rng.randint(5, 12),
        zones=f"[{', '.join(zones)}]",
        flavors=f"[{', '.join(flavors)}]",
        start=rng.choice(["whole", "any"]),
        choose=rng.choice(["order", "price"]),
        idle=rng.choice(["5m", "10m", "20m"]),
        reconcile=rng.choice(["2m", "5m", "10m"]),
    )


def random_world(rng: Random, path: Path, seed: int) -> World:
    """A cluster of 8 to 20 nodes, faster or slower, over a record that no disk holds."""
    faults = Faults(
        before_s=rng.choice([0.1, 0.5, 2.0]),
        after_s=rng.choice([0.1, 0.5]),
        boot_s=rng.choice([5, 15, 40, 90]),
        delete_s=rng.choice([3, 20, 60]),
        address_s=rng.choice([0, 0, 5]),
        seed=seed,
    )
    world = World(path, faults=faults, text=random_spec(rng))
    limits = world.spec.timing
    world.batch.timing = Timing(
        latency_s=rng.choice([0.2, 0.5]),
        join_s=5,
        idle_s=limits.idle,
        resume_timeout_s=limits.start + 30,
        suspend_timeout_s=limits.stop,
        slurmd_timeout_s=rng.choice([60, 300]),
    )
    world.batch.exempt = frozenset(world.spec.always_up)
    world.batch.on_reboot.append(lambda nodes: world._call("reboot", nodes, ()))
    world.cloud.zones = ("a", "b", "c")
    world.lonely, world.in_memory = False, True
    return world


@dataclass(slots=True)
class Scene:
    """One week: its world, and what is known of what happened."""

    seed: int
    world: World
    began_at: float
    said: list[tuple[float, str]] = field(default_factory=list)
    complaints: list[str] = field(default_factory=list)
    """Defects that the daemon found in itself."""
    drains: dict[str, str] = field(default_factory=dict)
    """Nodes that people drained and did not undrain, and who."""
    powered_down: set[str] = field(default_factory=set)
    """Nodes that people powered down by hand: with that their drains go."""
    foreign: set[str] = field(default_factory=set)
    """Instances of others."""
    down_s: float = 5.0
    """How long the daemon stays away after its next death."""
    lives: int = 0
    able_since: float = 0.0
    """Since when neither the daemon nor the batch system was away."""
    loses_calls: bool = False
    stopping: asyncio.Event = field(default_factory=asyncio.Event)
    over: asyncio.Event = field(default_factory=asyncio.Event)

    def chance(self, of: str) -> Random:
        """A source of chance of its own for whoever asks."""
        return Random(f"{self.seed}/{of}")

    def now(self) -> float:
        return self.world.cloud.now()

    def say(self, text: str) -> None:
        self.said.append((self.now(), text))

    @property
    def life(self) -> Life | None:
        """The daemon's, while it lives."""
        life = self.world.life
        return life if self.world.daemon and life and not life.over.is_set() else None

    async def keep_alive(self) -> None:
        """As systemd does, but slower."""
        while not self.over.is_set():
            life = Life()
            self.lives += 1
            self.stopping.clear()
            async with self.world.living(life):
                self.able_since = self.now()
                await first(life.over.wait(), self.over.wait(), self.stopping.wait())
            if not self.over.is_set():
                self.say(f"daemon {'killed' if life.over.is_set() else 'stopped'}")
                await asyncio.sleep(self.down_s)
                self.say(f"daemon back after {self.down_s:.0f} s")

    async def alive(self) -> Daemon:
        """The daemon, once it is up."""
        while self.life is None:
            await asyncio.sleep(1)
        assert self.world.daemon is not None
        return self.world.daemon

    async def ask(self, words: str, call: Callable[[Daemon], Awaitable[object]]) -> None:
        """What a person asks of the daemon, as far as that lives long enough."""
        daemon, life = self.world.daemon, self.life
        if life is None or daemon is None:
            return
        token = LIFE.set(life)
        task = asyncio.get_running_loop().create_task(_answered(call, daemon))
        LIFE.reset(token)
        await first(asyncio.wait([task]), life.over.wait())
        self.say(f"{words}: {task.result() if task.done() else 'the daemon died meanwhile'}")

    async def by_hand(self, words: str, call: Awaitable[object]) -> None:
        """What a person does with the batch system's own commands."""
        try:
            await call
        except Unavailable as error:
            words = f"{words}: {error}"
        self.say(f"by hand: {words}")

    def look_at_drains(self, names: Iterable[str]) -> None:
        """Whose drains nodes have, after somebody has asked for one or ended it."""
        for name in names:
            node = self.world.batch.node(name)
            if not node.leaving:
                self.powered_down.discard(name)
            if node.is_persons:
                self.drains[name] = str(node.owner)
            else:
                self.drains.pop(name, None)

    def lose_drain(self, name: str, by: str) -> None:
        """The batch system ends drains, too; but what we let power down is ours to drain again."""
        if self.drains.pop(name, None):
            self.say(f"the batch system ended the drain of {name}: {by}")
            if by == "power up" and name not in self.powered_down and self.able():
                self.complaints.append(f"the drain of {name} was not made again")

    def able(self) -> bool:
        """Whether the daemon has been there, and heard, for long enough to make a drain again.

        A pass does that, unless jobs can get a node sooner than the next one comes.
        """
        now, timing = self.now(), self.world.batch.timing
        away = self.life is None or self.world.batch.unavailable or self.loses_calls
        seldom = self.world.spec.timing.reconcile >= timing.suspend_timeout_s - 60
        return not (away or seldom) and now > self.able_since + timing.suspend_timeout_s + 60

    def is_lost(self, request: Request) -> bool:
        if self.loses_calls:
            self.say(f"lost: {request.program} {fold(request.nodes)}")
        return self.loses_calls


async def _answered(call: Callable[[Daemon], Awaitable[object]], daemon: Daemon) -> str:
    try:
        await call(daemon)
    except (Refused, Unavailable, BadRequest, CloudError) as error:
        return f"refused, {error}"
    return "asked"
