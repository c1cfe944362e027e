"""The composition root: a spec becomes a daemon with real parts. Only `api.server` calls it."""

import time
from pathlib import Path

from springtide.batch.slurm import Slurm
from springtide.batch.slurm_conf import control_host
from springtide.configure.programs import Programs
from springtide.configure.slurm_node import SlurmNode
from springtide.daemon import Daemon, DaemonError
from springtide.layout import Layout
from springtide.ports import Provider
from springtide.providers.containers import Containers, Mount
from springtide.providers.none import NoProvider
from springtide.record import Record
from springtide.spec import Cluster
from springtide.spec import Containers as ContainersSpec
from springtide.spec import NoProvider as NoProviderSpec
from springtide.spec import Provider as ProviderSpec
from springtide.spec import Slurm as SlurmSpec
from springtide.spec.cluster import STATE
from springtide.steps import Parts
from springtide.store import open_sqlite


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
    home = _provider(spec.provider, spec, layout)
    return Parts(
        spec=spec,
        record=record,
        providers=_by_group(spec, home, layout),
        home=home,
        batch=Slurm(spec),
        configurator=_configurator(spec, spec.batch, layout),
        remade=lambda other: _parts(other, record),
    )


def _by_group(spec: Cluster, home: Provider, layout: Layout) -> dict[str, Provider]:
    """Groups that name the same provider share one."""
    made: list[tuple[ProviderSpec, Provider]] = [(spec.provider, home)]
    for group in spec.groups:
        wanted = spec.provider_of(group)
        if all(wanted != known for known, _ in made):
            made.append((wanted, _provider(wanted, spec, layout)))
    return {
        group: next(provider for known, provider in made if known == spec.provider_of(group))
        for group in spec.groups
    }


def _provider(wanted: ProviderSpec, spec: Cluster, layout: Layout) -> Provider:
    match wanted:
        case ContainersSpec():
            return _containers(wanted, spec, layout)
        case NoProviderSpec():
            return NoProvider()
        case _:
            raise DaemonError(f"provider.kind {wanted.kind} is for tests and simulation only")


def _containers(wanted: ContainersSpec, spec: Cluster, layout: Layout) -> Containers:
    shared = [Mount(path, path, read_only=False) for path in wanted.mounts]
    ours = [Mount(path, path, read_only=True) for path in (layout.conf, layout.munge_key.parent)]
    return Containers(
        layout.instances,
        images={name: image.path for name, image in spec.images.items()},
        mounts=[*ours, *shared],
        hidden=[layout.state, *([STATE] if STATE.is_dir() else [])],
        subnet=wanted.subnet,
    )


def _configurator(spec: Cluster, batch: SlurmSpec, layout: Layout) -> SlurmNode:
    programs = Programs(
        directory=layout.programs,
        socket=layout.socket,
        spool=layout.spool,
        user=batch.user,
        prolog=str(batch.prolog) if batch.prolog else None,
        wait_s=spec.timing.start + spec.timing.stop,
    )
    return SlurmNode(
        conf=layout.conf / "slurm.conf",
        hosts=layout.conf / "hosts",
        key=layout.munge_key,
        socket=layout.munge_socket,
        control=control_host(spec),
        mounts=spec.provider.mounts if isinstance(spec.provider, ContainersSpec) else (),
        user=batch.user,
        programs=programs,
    )
