"""The composition root: a spec becomes a daemon with real parts. Only `api.server` calls it."""

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from importlib import import_module
from pathlib import Path
from random import Random
from string import digits

from springtide.batch import slurm_existing
from springtide.batch.slurm import Slurm
from springtide.batch.slurm_attached import AttachedSlurm
from springtide.batch.slurm_attachment import Attachment
from springtide.batch.slurm_conf import control_host
from springtide.batch.slurm_existing import MUNGE_KEY, Places
from springtide.configure.attached_node import AttachedNode
from springtide.configure.cloud_node import ByGroup, CloudNode
from springtide.configure.programs import Programs
from springtide.configure.slurm_node import SlurmNode
from springtide.control import inside
from springtide.daemon import Daemon, DaemonError
from springtide.guard import LIMIT_S, Guard
from springtide.layout import Layout
from springtide.ports import BatchSystem, CloudError, Configurator, Provider, Unavailable
from springtide.providers.cloud.catalog import Catalog
from springtide.providers.containers import Containers, Mount
from springtide.providers.none import NoProvider
from springtide.providers.programs.notes import Note
from springtide.record import Record
from springtide.spec import Cluster
from springtide.spec import Containers as ContainersSpec
from springtide.spec import NoProvider as NoProviderSpec
from springtide.spec import Provider as ProviderSpec
from springtide.spec import Slurm as SlurmSpec
from springtide.spec.clouds import Programs as ProgramsSpec
from springtide.spec.clouds import Remote
from springtide.spec.cluster import STATE
from springtide.spec.fresh import is_fresh
from springtide.steps import Parts
from springtide.store import open_sqlite

RUN = Path("/run")
"""Every node has its own."""


def compose(spec: Cluster, file: Path | None = None) -> Daemon:
    """The daemon of a cluster on this machine, from its spec and, to be told, its file."""
    if not isinstance(spec.batch, SlurmSpec):
        raise DaemonError(f"batch.kind {spec.batch.kind} is for tests and simulation only")
    layout = Layout(spec.state)
    parts = _parts(spec, Record(open_sqlite(layout.record), time.time))
    if file is not None and file != layout.stored_spec:
        parts.file = str(file)
    return Daemon(parts, layout)


def _parts(spec: Cluster, record: Record) -> Parts:
    """All parts anew, over the record of before."""
    assert isinstance(spec.batch, SlurmSpec)
    layout = Layout(spec.state)
    guarded = partial(_guarded, record=record, limit_s=spec.timing.start)
    made_of = partial(_provider, spec=spec, layout=layout, record=record)
    home = guarded(made_of(spec.provider))
    batch, configurator = _batch(spec, spec.batch, layout)
    return Parts(
        spec=spec,
        record=record,
        providers=_by_group(spec, home, lambda kind: guarded(made_of(kind))),
        home=home,
        batch=batch,
        configurator=configurator,
        remade=lambda other: _parts(other, record),
    )


def _guarded(provider: Provider, record: Record, limit_s: float) -> Provider:
    """With patience; nodes that take longer than they may to start are not waited for."""
    return Guard(provider, Random(), record.log, min(limit_s, LIMIT_S))  # noqa: S311 - jitter


def _by_group(
    spec: Cluster, home: Provider, made_of: Callable[[ProviderSpec], Provider]
) -> dict[str, Provider]:
    """Groups that name the same provider share one."""
    made: list[tuple[ProviderSpec, Provider]] = [(spec.provider, home)]
    for group in spec.groups:
        wanted = spec.provider_of(group)
        if all(wanted != known for known, _ in made):
            made.append((wanted, made_of(wanted)))
    return {
        group: next(provider for known, provider in made if known == spec.provider_of(group))
        for group in spec.groups
    }


def _provider(wanted: ProviderSpec, spec: Cluster, layout: Layout, record: Record) -> Provider:
    match wanted:
        case ContainersSpec():
            return _containers(wanted, spec, layout)
        case NoProviderSpec():
            return NoProvider()
        case Remote():
            return remote(wanted, spec, partial(_noted, record))
        case _:
            raise DaemonError(f"provider.kind {wanted.kind} is for tests and simulation only")


async def _noted(record: Record, what: str, nodes: Mapping[str, str] | None, detail: str) -> None:
    await record.note(what, nodes=nodes, detail=detail)


def remote(wanted: Remote, spec: Cluster, note: Note) -> Provider:
    """A cloud's adapter is imported only if it is used: their SDKs are large."""
    catalog = Catalog(spec.images, spec.flavors)
    more = (note,) if isinstance(wanted, ProgramsSpec) else ()
    kind = wanted.kind
    try:
        adapter = import_module(f"springtide.providers.{kind}")
        provider: Provider = adapter.provider(wanted, catalog, spec.state, *more)
    except ModuleNotFoundError as error:
        raise DaemonError(
            f"provider.kind {kind} needs the Python package {error.name}: "
            f"install springtide with its extra, `pip install 'springtide[{kind}]'`"
        ) from error
    except CloudError as error:
        raise DaemonError(str(error)) from error
    return provider


def _containers(wanted: ContainersSpec, spec: Cluster, layout: Layout) -> Containers:
    inside.share(wanted.mounts)
    shared = [Mount(path, path, read_only=False) for path in wanted.mounts]
    view = _view(spec, layout)
    return Containers(
        layout.instances,
        images={name: image.path for name, image in spec.images.items() if image.path},
        mounts=[*(Mount(path, path, read_only=True) for path in view.seen), *shared],
        hidden=[layout.state, *([STATE] if STATE.is_dir() else []), *view.hidden],
        subnet=wanted.subnet,
    )


@dataclass(frozen=True, slots=True)
class View:
    """What container nodes see of the control host's configuration, and what they must not."""

    seen: tuple[Path, ...]
    hidden: tuple[Path, ...] = ()


def _view(spec: Cluster, layout: Layout) -> View:
    """The munge socket of an existing Slurm is this machine's; nodes have one of their own."""
    if not (isinstance(spec.batch, SlurmSpec) and spec.batch.attach):
        return View((layout.conf, layout.munge_key.parent))
    found = attached_places(spec)
    paths = [layout.conf, munge_key(spec.batch).parent, *(file.parent for file in found.files)]
    private = found.socket.is_relative_to(RUN)
    return View(tuple(dict.fromkeys(paths)), () if private else (found.socket.parent,))


def attached_places(spec: Cluster) -> Places:
    try:
        return slurm_existing.places(Attachment(spec).read_conf())
    except Unavailable as error:
        raise DaemonError(str(error)) from error


def munge_key(batch: SlurmSpec) -> Path:
    return batch.munge_key or MUNGE_KEY


def _batch(spec: Cluster, batch: SlurmSpec, layout: Layout) -> tuple[BatchSystem, Configurator]:
    if batch.attach is None:
        return Slurm(spec), _with_clouds(spec, batch, _own_node(spec, batch, layout))
    slurm, node = AttachedSlurm(spec), _attached_node(spec, batch, layout)
    return slurm, _with_clouds(spec, batch, node, AttachedNode(node, slurm.prepare))


def _with_clouds(
    spec: Cluster, batch: SlurmSpec, node: SlurmNode, attached: AttachedNode | None = None
) -> Configurator:
    clouds = {
        key: CloudNode(node.control, batch.port, node.socket, provider.control_address)
        for key in spec.remote
        if isinstance(provider := spec.provider_of(key), Remote)
    }
    return ByGroup(attached or node, clouds) if clouds else attached or node


def _own_node(spec: Cluster, batch: SlurmSpec, layout: Layout) -> SlurmNode:
    return SlurmNode(
        conf=layout.conf / "slurm.conf",
        hosts=layout.conf / "hosts",
        key=layout.munge_key,
        socket=layout.munge_socket,
        control=control_host(spec),
        mounts=_mounts(spec),
        user=batch.user,
        programs=programs(spec),
        health=spec.health,
    )


def _attached_node(spec: Cluster, batch: SlurmSpec, layout: Layout) -> SlurmNode:
    found = attached_places(spec)
    return SlurmNode(
        conf=found.conf,
        hosts=layout.conf / "hosts",
        key=munge_key(batch),
        socket=found.socket,
        control=" ".join(found.hosts),
        mounts=_mounts(spec),
        user=batch.user,
        programs=programs(spec),
        directories=found.directories,
        health=spec.health,
    )


def _mounts(spec: Cluster) -> tuple[Path, ...]:
    return spec.provider.mounts if isinstance(spec.provider, ContainersSpec) else ()


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
        fresh=[key for key, one in spec.partitions.items() if is_fresh(one, spec.groups)],
    )
