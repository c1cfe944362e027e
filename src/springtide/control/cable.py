"""This machine's cable to a cluster whose control is in a container.

A veth pair: one end on the cluster's bridge in the container's network, the other here, with the
last address of the subnet. It bears the name that the bridge would have here, so that clusters
see each other's subnets and names wherever their control is. It goes with the container.
"""

import json
import os
import subprocess
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from ipaddress import IPv4Address
from pathlib import Path
from shutil import rmtree

from springtide.layout import Layout
from springtide.ports import Rejected, Transient
from springtide.providers.containers import addresses, links, site
from springtide.providers.containers.instances import Process, homes, is_alive
from springtide.providers.containers.site import Ground
from springtide.spec import Cluster, Containers

PORT = "host"
"""Our end on the bridge."""
OWNER = ".host"
"""Who has our address; no node can be called so."""
GONE_S = 10.0
LOOK_S = 0.02
IP_S = 30.0


def host_address(ground: Ground) -> IPv4Address:
    return ground.subnet[-2]


def claim(spec: Cluster, connected: bool) -> Ground:
    """The site, chosen here where other networks are known; with the machine's lock held."""
    assert isinstance(spec.provider, Containers)
    directory = Layout(spec.state).instances
    if connected:
        _unplug_remains(directory, spec.cluster)
    if spec.provider.subnet is None and not (connected and _has_nodes(directory)):
        _forget_taken(directory)
    ground = site.claim(directory, spec.cluster, spec.provider.subnet)
    addresses.links_in(directory).mkdir(mode=0o700, exist_ok=True)
    if not addresses.take(directory, str(host_address(ground)), OWNER):
        raise Rejected(f"a node has {host_address(ground)}, which is to be this machine's address")
    return ground


def _unplug_remains(directory: Path, cluster: str) -> None:
    """The cable of a container that lives may have outlived the site, and then is in the way."""
    if site.read_ground(directory) is None:
        links.remove(links.bridge_name(cluster))


def _has_nodes(directory: Path) -> bool:
    nodes = homes(directory)
    return nodes.is_dir() and any(nodes.iterdir())


def _forget_taken(directory: Path) -> None:
    """The site of a container that is dead, or was not connected yet, is a mere record.

    Another cluster may have its subnet by now. Instances of a dead one have addresses of that
    subnet, and are as dead.
    """
    ground = site.read_ground(directory)
    if ground is None:
        return
    used = [one for one in links.used() if one.link != ground.bridge]
    if any(one.network.overlaps(ground.subnet) for one in used):
        rmtree(directory)


def connect(ground: Ground, process: Process) -> list[str]:
    """Plug this machine in, or whatever part of that is missing; answers what was done."""
    with namespace(process, "net") as network:
        made = _plug(ground, network)
    address = f"{host_address(ground)}/{ground.subnet.prefixlen}"
    links.change(
        [
            f"address replace {address} dev {ground.bridge}",
            f"link set {ground.bridge} up",
            site.render_alias(ground),
        ]
    )
    site.raise_thresholds()
    return ["this machine was connected to the cluster's network"] if made else []


def _plug(ground: Ground, network: int) -> bool:
    """Both ends of the cable come and go together."""
    there = _names(_ip(network, ["-json", "link", "show"]))
    if ground.bridge not in there:
        _ip(network, ["-batch", "-"], site.render_bridge(ground))
    if made := PORT not in there:
        _await_gone(ground)
        mac = links.hardware_address(host_address(ground))
        with Path("/proc/self/ns/net").open() as here:
            peer = f"peer name {ground.bridge} address {mac} netns /proc/self/fd/{here.fileno()}"
            _ip(network, ["-batch", "-"], [f"link add {PORT} type veth {peer}"], here.fileno())
    up = [f"link set {PORT} master {ground.bridge} up", f"link set {ground.bridge} up"]
    _ip(network, ["-batch", "-"], up)
    return made


def _await_gone(ground: Ground) -> None:
    """The kernel takes away the cable of a dead container soon after its last process."""
    end = time.monotonic() + GONE_S
    while links.exists(ground.bridge):
        if time.monotonic() > end:
            raise Rejected(
                f"link {ground.bridge} is there already: a cluster named {ground.cluster} with "
                "another state directory runs on this machine"
            )
        time.sleep(LOOK_S)


@contextmanager
def namespace(process: Process, kind: str) -> Iterator[int]:
    """A descriptor of a namespace of this process, and of no other that got its pid since."""
    descriptor = os.open(Path("/proc", str(process.pid), "ns", kind), os.O_RDONLY)
    try:
        if not is_alive(process):
            raise Transient("the control container ended")
        yield descriptor
    finally:
        os.close(descriptor)


def _ip(network: int, arguments: Sequence[str], commands: Sequence[str] = (), *passed: int) -> str:
    done = subprocess.run(
        ["nsenter", f"--net=/proc/self/fd/{network}", "ip", *arguments],
        input="".join(f"{command}\n" for command in commands),
        capture_output=True,
        text=True,
        timeout=IP_S,
        pass_fds=[network, *passed],
        check=False,
    )
    if done.returncode:
        raise Transient(f"ip in the control container: {done.stderr.strip()}")
    return done.stdout


def _names(text: str) -> set[str]:
    return {link["ifname"] for link in json.loads(text or "[]") if "ifname" in link}
