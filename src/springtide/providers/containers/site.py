"""The site of a cluster of containers: one bridge with a subnet of its own.

The provider prepares and removes it. Its record is on disk before the bridge is there and
goes after it, so that a kill in between is repaired by the next call.
"""

import json
from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from ipaddress import IPv4Address, IPv4Network
from pathlib import Path

from springtide.ports import Rejected, Site
from springtide.providers.containers import links
from springtide.providers.containers.files import replace_text
from springtide.providers.containers.links import Used
from springtide.providers.containers.locks import machine_lock

POOL = IPv4Network("10.77.0.0/16")
BLOCK_PREFIX = 20
SMALLEST_PREFIX = 30  # the bridge and one node
MARK = "springtide"
NEIGHBOURS = Path("/proc/sys/net/ipv4/neigh/default")
THRESHOLDS = {"gc_thresh1": 16384, "gc_thresh2": 32768, "gc_thresh3": 65536}
"""Neighbours of all namespaces count together: with less, a hundred nodes lose each other."""


@dataclass(frozen=True, slots=True)
class Ground:
    """Our record of a site."""

    cluster: str
    bridge: str
    subnet: IPv4Network
    thresholds: tuple[int, ...] = ()
    """The kernel's limits on neighbours before any cluster raised them."""

    @property
    def control_address(self) -> IPv4Address:
        return self.subnet[1]

    @property
    def site(self) -> Site:
        return Site(str(self.control_address), {"bridge": self.bridge, "subnet": str(self.subnet)})


def read_ground(directory: Path) -> Ground | None:
    try:
        data = json.loads(_record(directory).read_text())
        subnet, thresholds = IPv4Network(data["subnet"]), tuple(map(int, data["thresholds"]))
        return Ground(data["cluster"], data["bridge"], subnet, thresholds)
    except FileNotFoundError:
        return None
    except (ValueError, KeyError, TypeError) as error:
        raise Rejected(f"{_record(directory)} is damaged ({error}): restore or remove it") from None


def prepare(directory: Path, cluster: str, subnet: IPv4Network | None) -> Ground:
    """Make the bridge, or whatever part of it is missing."""
    with machine_lock():
        ground = claim(directory, cluster, subnet)
        _ensure_bridge(ground)
    return ground


def claim(directory: Path, cluster: str, subnet: IPv4Network | None) -> Ground:
    """The site on record, chosen now if it has not been; with the machine's lock held."""
    own = links.bridge_name(cluster)
    used = [one for one in links.used() if one.link != own]
    ground = read_ground(directory)
    if ground is None:
        ground = _choose(cluster, subnet, used)
        _write_ground(directory, ground)
    refuse_other(ground, cluster, subnet)
    if not links.exists(own):
        refuse_subnet(ground.subnet, used)
    return ground


def remove(directory: Path, cluster: str) -> None:
    """Remove the bridge and its record; instances must be gone."""
    with machine_lock():
        ground = read_ground(directory)
        if ground is None or ground.cluster != cluster:
            return
        for port in links.ports(ground.bridge):
            links.remove(port)
        if links.exists(ground.bridge):
            links.remove(ground.bridge)
        restore_thresholds(ground.thresholds)
        _record(directory).unlink()


def refuse_other(ground: Ground, cluster: str, subnet: IPv4Network | None) -> None:
    if ground.cluster != cluster:
        raise Rejected(
            f"this directory holds the containers of cluster {ground.cluster}, not of {cluster}: "
            "give each cluster a state directory of its own"
        )
    if subnet not in (None, ground.subnet):
        raise Rejected(
            f"cluster {cluster} stands on {ground.subnet}, not on {subnet}: "
            "destroy it first, or set the subnet back"
        )


def _choose(cluster: str, subnet: IPv4Network | None, used: Sequence[Used]) -> Ground:
    bridge = links.bridge_name(cluster)
    if links.exists(bridge):
        raise Rejected(
            f"link {bridge} is there already: a cluster named {cluster} with another state "
            f"directory runs on this machine, or left it behind (`ip link delete {bridge}`)"
        )
    return Ground(cluster, bridge, decide_subnet(subnet, used), _former_thresholds())


def decide_subnet(wanted: IPv4Network | None, used: Sequence[Used]) -> IPv4Network:
    """The wanted one, or the first block of the pool that no link is in."""
    if wanted is None:
        for block in POOL.subnets(new_prefix=BLOCK_PREFIX):
            if _overlapping(block, used) is None:
                return block
        raise Rejected(f"links of this machine are in every block of {POOL}: set provider.subnet")
    refuse_subnet(wanted, used)
    return wanted


def refuse_subnet(subnet: IPv4Network, used: Iterable[Used]) -> None:
    if subnet.prefixlen > SMALLEST_PREFIX:
        raise Rejected(f"subnet {subnet} is too small: at most /{SMALLEST_PREFIX} holds a node")
    if found := _overlapping(subnet, used):
        raise Rejected(
            f"subnet {subnet} overlaps {found.network} of link {found.link}: choose another"
        )


def _overlapping(block: IPv4Network, used: Iterable[Used]) -> Used | None:
    return next((one for one in used if one.network.overlaps(block)), None)


def _ensure_bridge(ground: Ground) -> None:
    if not links.exists(ground.bridge):
        links.change(render_bridge(ground))
    address = f"{ground.control_address}/{ground.subnet.prefixlen}"
    links.change([f"address replace {address} dev {ground.bridge}", f"link set {ground.bridge} up"])
    raise_thresholds()


def render_bridge(ground: Ground) -> list[str]:
    """For `ip`: the bridge, without its address."""
    mac = links.hardware_address(ground.control_address)
    return [
        f"link add {ground.bridge} address {mac} type bridge mcast_snooping 0",
        render_alias(ground),
    ]


def render_alias(ground: Ground) -> str:
    return f'link set {ground.bridge} alias "{render_remark(ground.cluster, ground.thresholds)}"'


# The record


def _record(directory: Path) -> Path:
    return directory / "site.json"


def _write_ground(directory: Path, ground: Ground) -> None:
    directory.mkdir(mode=0o700, parents=True, exist_ok=True)
    replace_text(_record(directory), json.dumps(asdict(ground) | {"subnet": str(ground.subnet)}))


# The kernel's limits on neighbours are the machine's. What they were is remarked on every
# bridge, and whoever removes the last bridge restores them.


def render_remark(cluster: str, thresholds: Sequence[int]) -> str:
    return " ".join((MARK, cluster, *map(str, thresholds)))


def parse_remark(remark: str) -> tuple[int, ...]:
    """The thresholds that were there before us, or none."""
    words = remark.split()
    if len(words) != 2 + len(THRESHOLDS) or words[0] != MARK:
        return ()
    return tuple(int(word) for word in words[2:] if word.isdecimal())


def _former_thresholds() -> tuple[int, ...]:
    known = (parse_remark(links.alias(bridge)) for bridge in links.bridges())
    try:
        return next(filter(None, known), ()) or tuple(map(_threshold, THRESHOLDS))
    except OSError:
        return ()


def _threshold(name: str) -> int:
    return int((NEIGHBOURS / name).read_text())


def raise_thresholds() -> None:
    """A kernel that does not let us still runs small clusters."""
    with suppress(OSError):
        for name, needed in THRESHOLDS.items():
            if _threshold(name) < needed:
                (NEIGHBOURS / name).write_text(str(needed))


def restore_thresholds(former: Sequence[int]) -> None:
    """With the last bridge, and only what is as we set it: the admin may have chosen since."""
    if links.bridges():
        return
    with suppress(OSError):
        for (name, ours), value in zip(THRESHOLDS.items(), former, strict=False):
            if _threshold(name) == ours:
                (NEIGHBOURS / name).write_text(str(value))
