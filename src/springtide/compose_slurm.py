"""The part of `compose` for Slurm: one of the cluster's own, or one that is there without us."""

from functools import partial
from pathlib import Path
from string import digits

from springtide.batch import slurm_existing
from springtide.batch.slurm import Slurm
from springtide.batch.slurm_attached import AttachedSlurm
from springtide.batch.slurm_attachment import Attachment
from springtide.batch.slurm_conf import control_host
from springtide.batch.slurm_existing import MUNGE_KEY, Places
from springtide.configure.attached_node import AttachedNode
from springtide.configure.cloud_node import ByGroup, CloudNode
from springtide.configure.membership import Membership
from springtide.configure.node_ssh import NodeSsh
from springtide.configure.programs import Programs
from springtide.configure.slurm_node import SlurmNode
from springtide.configure.welcome import Control
from springtide.daemon import DaemonError
from springtide.layout import Layout
from springtide.ports import BatchSystem, NodeConfigurator, Site, Unavailable
from springtide.spec import Cluster
from springtide.spec import Slurm as SlurmSpec
from springtide.spec.clouds import Remote
from springtide.spec.fresh import is_fresh
from springtide.spec.rebuilds import partition_names
from springtide.wiring import View, Wiring, mounts, pin

RUN = Path("/run")
"""Every node has its own."""


def wired(spec: Cluster, batch: SlurmSpec, polled: BatchSystem | None = None) -> Wiring:
    """`polled` stands for a Slurm that is read, and that stays as it is."""
    node, port = _node(spec, batch), _port(spec, batch)
    system, nodes = _system(spec, batch, node, polled)
    return Wiring(
        batch=system,
        nodes=_with_clouds(spec, port, node, nodes),
        control=control_host(spec),
        membership=_membership(spec, port, node),
        key=node.key,
        port=port,
        outdated=partial(_are_others, spec, attached_places(spec)) if batch.attach else None,
    )


def _are_others(spec: Cluster, known: Places) -> bool:
    """Whether nodes find things elsewhere by now; not while slurm.conf cannot be read."""
    try:
        return attached_places(spec) != known
    except DaemonError:
        return False


def _system(
    spec: Cluster, batch: SlurmSpec, node: SlurmNode, polled: BatchSystem | None
) -> tuple[BatchSystem, NodeConfigurator]:
    if polled is not None:
        return polled, AttachedNode(node, _as_it_is)
    if batch.attach is None:
        return Slurm(spec), node
    slurm = AttachedSlurm(spec)
    return slurm, AttachedNode(node, slurm.prepare)


async def _as_it_is(_: Site) -> None:
    """A Slurm that is read knows our nodes already."""


def _node(spec: Cluster, batch: SlurmSpec) -> SlurmNode:
    layout = Layout(spec.state)
    return _attached_node(spec, batch, layout) if batch.attach else _own_node(spec, batch, layout)


def view(spec: Cluster, batch: SlurmSpec) -> View:
    """The munge socket of an existing Slurm is this machine's; nodes have one of their own."""
    layout = Layout(spec.state)
    if not batch.attach:
        return View((layout.conf, layout.munge_key.parent))
    if spec.ansible:
        layout.munge_key.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    return attached_view(spec, batch, attached_places(spec))


def attached_view(spec: Cluster, batch: SlurmSpec, found: Places) -> View:
    """Of an existing Slurm; makes no directory."""
    layout = Layout(spec.state)
    paths = [layout.conf, munge_key(batch).parent, *(file.parent for file in found.files)]
    if spec.ansible:  # nodes have their host key there
        paths.append(layout.munge_key.parent)
    private = found.socket.is_relative_to(RUN)
    return View(tuple(dict.fromkeys(paths)), () if private else (found.socket.parent,))


def require_places(spec: Cluster) -> None:
    """A Slurm that is there without us must be readable, before anything is begun."""
    if isinstance(spec.batch, SlurmSpec) and spec.batch.attach:
        attached_places(spec)


def attached_places(spec: Cluster) -> Places:
    try:
        return slurm_existing.places(Attachment(spec).read_conf())
    except Unavailable as error:
        raise DaemonError(str(error)) from error


def _port(spec: Cluster, batch: SlurmSpec) -> int:
    """slurmctld's; of a Slurm that is there without us its slurm.conf knows best."""
    found = attached_places(spec).port if batch.attach else None
    return found or batch.port


def munge_key(batch: SlurmSpec) -> Path:
    return batch.munge_key or MUNGE_KEY


def _membership(spec: Cluster, port: int, node: SlurmNode) -> Membership:
    control = Control(
        names=tuple(node.control.split()),
        address="",
        port=port,
        socket=node.socket,
        directories=tuple(node.directories),
    )
    return Membership(spec, control, node.key)


def _with_clouds(
    spec: Cluster, port: int, node: SlurmNode, nodes: NodeConfigurator
) -> NodeConfigurator:
    known_by = pin(spec)
    clouds = {
        key: CloudNode(
            node.control,
            port,
            node.socket,
            provider.control_address,
            pin=known_by if spec.gets(key) else "",
            join_port=spec.join.port,
            tells_boot=not spec.polled,
        )
        for key in spec.remote
        if isinstance(provider := spec.provider_of(key), Remote)
    }
    return ByGroup(nodes, clouds) if clouds else nodes


def _own_node(spec: Cluster, batch: SlurmSpec, layout: Layout) -> SlurmNode:
    return SlurmNode(
        conf=layout.conf / "slurm.conf",
        hosts=layout.conf / "hosts",
        key=layout.munge_key,
        socket=layout.munge_socket,
        control=control_host(spec),
        mounts=mounts(spec),
        user=batch.user,
        programs=programs(spec),
        health=spec.health,
        ssh=NodeSsh.of(spec),
    )


def _attached_node(spec: Cluster, batch: SlurmSpec, layout: Layout) -> SlurmNode:
    found = attached_places(spec)
    return SlurmNode(
        conf=found.conf,
        hosts=layout.conf / "hosts",
        key=munge_key(batch),
        socket=found.socket,
        control=" ".join(found.hosts),
        mounts=mounts(spec),
        user=batch.user,
        programs=programs(spec) if spec.attached else None,
        directories=found.directories,
        health=spec.health,
        ssh=NodeSsh.of(spec),
    )


def programs(spec: Cluster) -> Programs:
    """The batch system's programs, which are ours."""
    assert isinstance(spec.batch, SlurmSpec)
    layout = Layout(spec.state)
    return Programs(
        directory=layout.programs,
        socket=layout.socket,
        spool=layout.spool,
        user=spec.batch.user,
        prolog=str(spec.batch.prolog) if spec.batch.prolog else None,
        wait_s=spec.timing.start + spec.timing.stop,
        heads=sorted({name.rstrip(digits) for name in spec.managed}) if spec.batch.attach else (),
        rebuilds=partition_names(spec.rebuild.partitions),
        fresh=[key for key, one in spec.partitions.items() if is_fresh(one, spec.groups)],
    )
