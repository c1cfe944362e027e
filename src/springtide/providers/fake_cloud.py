"""A cloud in memory, with what goes wrong in real ones. Tests and the simulator make it.

It is the world: it goes on when a daemon and its FakeProvider are killed. Time is the event
loop's, so a virtual clock lets hours pass at once.
"""

import asyncio
from collections import Counter, deque
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from ipaddress import IPv4Address
from math import inf

from springtide.ports import (
    CloudImage,
    Denied,
    Instance,
    InstanceState,
    Launch,
    NoCapacity,
    QuotaExceeded,
    Rejected,
    Site,
    Throttled,
    Transient,
)
from springtide.providers.fake_faults import Faults

CONTROL_ADDRESS = IPv4Address("127.64.0.1")  # loopback, so that nobody else can be meant

PENDING = InstanceState.PENDING  # each start begins with it
Listener = Callable[[Instance], object]


@dataclass(slots=True)
class _Record:
    """An instance with all it went through, since lists may show the past."""

    id: str
    launch: Launch
    zone: str
    address: str
    address_at: float
    changes: list[tuple[float, InstanceState]]
    gone_at: float = inf
    boots: int = 1

    @property
    def state(self) -> InstanceState:
        return self.changes[-1][1]

    def seen(self, at: float) -> Instance | None:
        """As it was at that time; None before it came and after it went."""
        states = [state for since, state in self.changes if since <= at < self.gone_at]
        return self.shown(states[-1], at) if states else None

    def shown(self, state: InstanceState, at: float) -> Instance:
        return Instance(
            id=self.id,
            cluster=self.launch.cluster,
            node=self.launch.node,
            generation=self.launch.generation,
            state=state,
            address=self.address if at >= self.address_at else None,
            image=self.launch.image,
            flavor=self.launch.flavor,
            zone=self.zone,
            created_at=self.changes[0][0],
            booted_at=max(since for since, was in self.changes if was is PENDING and since <= at),
        )


def loop_time() -> float:
    return asyncio.get_running_loop().time()


@dataclass(slots=True)
class FakeCloud:
    """Instances, their limits, a count of calls. What it does, it does at once and whole."""

    faults: Faults = field(default_factory=Faults)
    zones: Sequence[str] = ("zone-1",)  # tried in this order for launches that name none
    capacity: dict[tuple[str, str], int] = field(default_factory=dict)  # zone, flavor: else endless
    quota: int | None = None
    renews: bool = True  # a reboot gives an instance new user data
    now: Callable[[], float] = loop_time
    calls: Counter[str] = field(default_factory=Counter)
    sites: dict[str, Site] = field(default_factory=dict)
    snapshots: dict[str, CloudImage] = field(default_factory=dict)
    said: dict[str, str] = field(default_factory=dict)  # by node, on the console of its instance
    on_running: list[Listener] = field(default_factory=list)
    on_stopped: list[Listener] = field(
        default_factory=list
    )  # deleting, dead or rebooted, by its state
    on_gone: list[Listener] = field(default_factory=list)
    _here: dict[str, _Record] = field(default_factory=dict)
    _gone: deque[_Record] = field(default_factory=deque)
    _of_node: dict[tuple[str, str], list[_Record]] = field(default_factory=dict)
    _at_address: dict[str, _Record] = field(default_factory=dict)
    _free_addresses: list[str] = field(default_factory=list)
    _used: Counter[tuple[str, str]] = field(default_factory=Counter)
    _twins: list[Instance] = field(default_factory=list)
    _made: int = 0

    # For assertions

    def alive(self, cluster: str | None = None) -> list[Instance]:
        """All that exists now, pending and deleting ones too, whatever lists show."""
        return self._view(self._here.values(), cluster, self.now())

    def duplicates(self) -> list[Instance]:
        """Every instance that was ever made while its node had another."""
        return list(self._twins)

    @property
    def made(self) -> int:
        """How many instances there have ever been."""
        return self._made

    def node_at(self, address: str, cluster: str | None = None) -> str | None:
        """The node (of this cluster) whose running instance answers at the address."""
        record = self._at_address.get(address)
        if record is None or record.state is not InstanceState.RUNNING:
            return None
        return record.launch.node if cluster in (None, record.launch.cluster) else None

    def user_data(self, id: str) -> str:
        """What an instance that exists was last started with."""
        return self._here[id].launch.user_data

    # For clients

    def admit(self, kind: str) -> None:
        """Count a call and refuse it if it must be."""
        self.calls[kind] += 1
        if self.faults.denied:
            raise Denied("the fake cloud does not know these credentials: they were revoked")
        every = self.faults.throttle_every
        if (every and self.calls.total() % every == 0) or self.now() < self.faults.throttled_until:
            raise Throttled(f"the fake cloud throttled {kind}: too many calls, try again later")

    def reply(self, kind: str) -> None:
        """Lose the reply to a call whose effect is done."""
        if self.faults.chance(self.faults.lost_replies):
            raise Transient(f"the connection to the fake cloud broke before {kind} was answered")

    def launch(self, launch: Launch) -> Instance:
        """Make an instance or find it again by its key, as with a client token."""
        for other in self._of_node.get((launch.cluster, launch.node), ()):
            going = other.state is InstanceState.DELETING
            if not going and other.launch.generation == launch.generation:
                return other.shown(other.state, self.now())
            state = "terminating" if going else other.state
            raise Transient(
                f"{launch.node}: {other.id}, generation {other.launch.generation}, is still {state}"
            )
        self._refuse(launch)
        return self.start(launch)

    def reboot(self, launch: Launch) -> Instance:
        """Start an instance again in place; all but its user data stays."""
        return self._start_again(launch, self._find(launch).launch.image)

    def rebuild(self, launch: Launch) -> Instance:
        """The same, with another image."""
        return self._start_again(launch, launch.image)

    def _start_again(self, launch: Launch, image: str) -> Instance:
        record = self._find(launch)
        if error := self.faults.refused_nodes.get(launch.node):
            raise error
        if self.faults.chance(self.faults.refused_reboots):
            raise Transient(f"the fake cloud could not reboot {record.id} now, try again later")
        record.launch = replace(record.launch, user_data=launch.user_data, image=image)
        record.boots += 1
        self._change(record, PENDING, self.on_stopped)
        self._boot(record)
        return record.shown(record.state, self.now())

    def snapshot(self, instance: Instance, name: str) -> CloudImage:
        """An image of an instance that exists, or the one of that name."""
        if instance.id not in self._here:
            raise Rejected(f"{instance.node} has no instance {instance.id} to make an image of")
        known = (
            i for i in self.snapshots.values() if (i.cluster, i.name) == (instance.cluster, name)
        )
        image = next(known, None) or CloudImage(f"image-{name}", name, instance.cluster, self.now())
        return self._shown(self.snapshots.setdefault(image.id, image))

    def images(self, cluster: str) -> list[CloudImage]:
        """What a list shows, which may be the past."""
        at = self.now() - self.faults.stale_s
        ours = (image for image in self.snapshots.values() if image.cluster == cluster)
        return [self._shown(image) for image in ours if image.created_at <= at]

    def _shown(self, image: CloudImage) -> CloudImage:
        over = self.now() >= image.created_at + self.faults.image_s
        failed = over and self.faults.failed_images
        return replace(image, ready=over and not failed, failed=failed)

    def delete(self, id: str) -> None:
        """Begin to delete an instance. One that is gone or going is left to it."""
        record = self._here.get(id)
        if record is None or record.state is InstanceState.DELETING:
            return
        if self.faults.chance(self.faults.refused_deletes):
            raise Transient(f"the fake cloud could not delete {id} now, try again later")
        if not self.faults.chance(self.faults.ignored_deletes):
            self._change(record, InstanceState.DELETING, self.on_stopped)
            self._later(self.faults.delete_s, self._vanish, record)

    def listed(self, cluster: str) -> list[Instance]:
        """What a list shows, which may be the past."""
        at = self.now() - self.faults.stale_s
        while self._gone and self._gone[0].gone_at <= at:
            self._gone.popleft()
        return self._view([*self._gone, *self._here.values()], cluster, at)

    # For those who make things happen in the world

    def start(self, launch: Launch) -> Instance:
        """Make an instance whatever its node has: how tests plant strays and twins."""
        record = self._make(launch, self._place(launch))
        instance = record.shown(record.state, self.now())
        others = self._of_node.setdefault((launch.cluster, launch.node), [])
        if others:
            self._twins.append(instance)
        others.append(record)
        self._here[record.id] = self._at_address[record.address] = record
        self._used[record.zone, launch.flavor] += 1
        self._boot(record)
        return instance

    def boot(self) -> None:
        """All that is pending runs now, however long it was to last."""
        for record in list(self._here.values()):
            self._run(record, record.boots)

    def die(self, id: str, leaves: InstanceState | None = None) -> None:
        """An instance dies by itself: it vanishes, or is listed as broken or stopped."""
        record = self._here.get(id)
        if record is None or record.state is InstanceState.DELETING:
            return
        self._change(record, leaves or InstanceState.BROKEN, self.on_stopped)
        if leaves is None:
            self._vanish(record)

    # How an instance lives

    def _refuse(self, launch: Launch) -> None:
        if error := self.faults.refused_nodes.get(launch.node):
            raise error
        for kind, chance in self.faults.refusals.items():
            if self.faults.chance(chance):
                raise kind(f"{launch.node}: the fake cloud was told to refuse some launches")

    def _place(self, launch: Launch) -> str:
        if self.quota is not None and len(self._here) >= self.quota:
            raise QuotaExceeded(f"{launch.node}: the quota of {self.quota} instances is used up")
        zones = (launch.zone,) if launch.zone else self.zones
        for zone in zones:
            place = zone, launch.flavor
            if self._used[place] < self.capacity.get(place, inf):
                return zone
        raise NoCapacity(f"{launch.node}: no {launch.flavor} left in {', '.join(zones)}")

    def _make(self, launch: Launch, zone: str) -> _Record:
        """Addresses are used again, the last freed first: what others remember may mislead."""
        self._made += 1
        now, free = self.now(), self._free_addresses
        address = free.pop() if free else str(CONTROL_ADDRESS + self._made)
        address_at, changes = now + self.faults.address_s, [(now, PENDING)]
        return _Record(f"i-{self._made:06}", launch, zone, address, address_at, changes)

    def _find(self, launch: Launch) -> _Record:
        for record in self._of_node.get((launch.cluster, launch.node), ()):
            if record.launch.generation == launch.generation:
                if record.state is InstanceState.DELETING:
                    raise Transient(f"{launch.node}: {record.id} is being deleted")
                return record
        raise Rejected(
            f"{launch.node} has no instance of generation {launch.generation} to reboot: "
            "create one instead"
        )

    def _boot(self, record: _Record) -> None:
        if not self.faults.chance(self.faults.stuck_boots):
            self._later(self.faults.boot_s, self._run, record, record.boots)

    def _run(self, record: _Record, boots: int) -> None:
        if record.state is not PENDING or record.boots != boots:
            return
        self._change(record, InstanceState.RUNNING, self.on_running)
        if self.faults.chance(self.faults.deaths):
            leaves = self.faults.dies_as
            self._later(self.faults.death_after_s, self._perish, record, boots, leaves)

    def _perish(self, record: _Record, boots: int, leaves: InstanceState | None) -> None:
        """A reboot saves from the death that awaited the boot before it."""
        if record.boots == boots:
            self.die(record.id, leaves)

    def _vanish(self, record: _Record) -> None:
        record.gone_at = self.now()
        self._gone.append(self._here.pop(record.id))
        self._of_node[record.launch.cluster, record.launch.node].remove(record)
        self._free_addresses.append(self._at_address.pop(record.address).address)
        self._used[record.zone, record.launch.flavor] -= 1
        self._tell(self.on_gone, record)

    def _change(self, record: _Record, state: InstanceState, listeners: list[Listener]) -> None:
        record.changes.append((self.now(), state))
        self._tell(listeners, record)

    def _tell(self, listeners: Iterable[Listener], record: _Record) -> None:
        instance = record.shown(record.state, self.now())
        for listener in listeners:
            listener(instance)

    def _view(self, records: Iterable[_Record], cluster: str | None, at: float) -> list[Instance]:
        seen = (r.seen(at) for r in records if cluster in (None, r.launch.cluster))
        return [instance for instance in seen if instance]

    def _later(self, seconds: float, do: Callable[..., object], *args: object) -> None:
        """By a timer, not a task: whoever cancels a daemon's tasks must not stop the world."""
        if seconds < inf:
            asyncio.get_running_loop().call_later(seconds, do, *args)
