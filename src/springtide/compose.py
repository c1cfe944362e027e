"""The composition root: a spec becomes a daemon with real parts. Only `api.server` calls it."""

import time
from collections import ChainMap
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from importlib import import_module
from pathlib import Path
from random import Random

from springtide import compose_queue, compose_slurm
from springtide.batch.marks import Book
from springtide.configure import ansible_run
from springtide.configure.accounts import Accounts
from springtide.configure.ansible import Ansible, ansible_of
from springtide.configure.mounts import bound_in
from springtide.control import inside
from springtide.daemon import Daemon, DaemonError
from springtide.guard import LIMIT_S, Guard
from springtide.layout import Layout
from springtide.ports import CloudError, Provider
from springtide.providers.cloud.catalog import Catalog
from springtide.providers.containers import Containers, Mount
from springtide.providers.none import NoProvider
from springtide.providers.programs.notes import Note
from springtide.record import Record
from springtide.served.configurator import Served
from springtide.served.kernel import KernelExports
from springtide.served.names import Names
from springtide.served.nfs import Ganesha
from springtide.spec import Cluster, FakeBatch
from springtide.spec import Containers as ContainersSpec
from springtide.spec import NoProvider as NoProviderSpec
from springtide.spec import Provider as ProviderSpec
from springtide.spec import Slurm as SlurmSpec
from springtide.spec.clouds import Programs as ProgramsSpec
from springtide.spec.clouds import Remote
from springtide.spec.cluster import STATE
from springtide.steps import Parts
from springtide.steps.gallery import Gallery
from springtide.store import open_sqlite
from springtide.wiring import View, Wiring, container_nodes


def compose(spec: Cluster, file: Path | None = None) -> Daemon:
    """The daemon of a cluster on this machine, from its spec and, to be told, its file."""
    if isinstance(spec.batch, FakeBatch):
        raise DaemonError(f"batch.kind {spec.batch.kind} is for tests and simulation only")
    compose_queue.require_programs(spec)
    compose_slurm.require_places(spec)
    layout = Layout(spec.state)
    record = Record(open_sqlite(layout.record), time.time)
    parts = _parts(spec, Kept(record, Gallery(), Book(record.store)))
    if file is not None and file != layout.stored_spec:
        parts.file = str(file)
    return Daemon(parts, layout, Accounts(changes=not inside.is_inside()))


@dataclass(frozen=True, slots=True)
class Kept:
    """What stays when all other parts are made anew."""

    record: Record
    gallery: Gallery
    book: Book
    """Which nodes of a batch system that is read are wanted."""


def _parts(spec: Cluster, kept: Kept) -> Parts:
    """All parts anew, over the record of before."""
    record = kept.record
    guarded = partial(_guarded, record=record, limit_s=spec.timing.start)
    made_of = partial(_provider, spec=spec, kept=kept)
    home = guarded(made_of(spec.provider))
    wiring = _wired(spec, kept)
    names = Names(spec, wiring.control)
    return Parts(
        spec=spec,
        record=record,
        providers=_by_group(spec, home, lambda kind: guarded(made_of(kind))),
        home=home,
        batch=wiring.batch,
        configurator=Served(
            wiring.nodes, (names, Ganesha(spec), KernelExports(spec), *wiring.served)
        ),
        software=_software(spec, wiring, record),
        remade=lambda other: _parts(other, kept),
        outdated=wiring.outdated,
        gallery=kept.gallery,
        membership=wiring.membership if wiring.membership.groups else None,
    )


def _wired(spec: Cluster, kept: Kept) -> Wiring:
    now, batch = kept.record.now, spec.batch
    if not isinstance(batch, SlurmSpec):
        return compose_queue.wired(spec, kept.book, now)
    polled = compose_queue.polled(spec, kept.book, now) if spec.polled else None
    return compose_slurm.wired(spec, batch, polled)


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


def _provider(wanted: ProviderSpec, spec: Cluster, kept: Kept) -> Provider:
    match wanted:
        case ContainersSpec():
            return _containers(wanted, spec, kept.gallery)
        case NoProviderSpec():
            return NoProvider()
        case Remote():
            return remote(wanted, spec, partial(_noted, kept.record), kept.gallery)
        case _:
            raise DaemonError(f"provider.kind {wanted.kind} is for tests and simulation only")


async def _noted(record: Record, what: str, nodes: Mapping[str, str] | None, detail: str) -> None:
    await record.note(what, nodes=nodes, detail=detail)


def remote(wanted: Remote, spec: Cluster, note: Note, gallery: Gallery | None = None) -> Provider:
    """A cloud's adapter is imported only if it is used: their SDKs are large."""
    built = gallery.known if gallery else {}
    catalog = Catalog(ChainMap(built, dict(spec.images)), spec.flavors)
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


def _containers(wanted: ContainersSpec, spec: Cluster, gallery: Gallery) -> Containers:
    layout, bound = Layout(spec.state), bound_in(spec)
    inside.share([*wanted.mounts, *(one.source for one in bound)])
    shared = [
        *(Mount(path, path, read_only=False) for path in wanted.mounts),
        *(Mount(one.source, one.path, one.read_only) for one in bound),
    ]
    view = _view(spec)
    return Containers(
        layout.instances,
        images=ChainMap(
            gallery.paths, {name: one.path for name, one in spec.images.items() if one.path}
        ),
        mounts=[*(Mount(path, path, read_only=True) for path in view.seen), *shared],
        hidden=[layout.state, *([STATE] if STATE.is_dir() else []), *view.hidden],
        subnet=wanted.subnet,
        made=layout.images,
        nodes=container_nodes(spec),
    )


def _view(spec: Cluster) -> View:
    if isinstance(spec.batch, SlurmSpec):
        return compose_slurm.view(spec, spec.batch)
    return compose_queue.view(spec)


def _software(spec: Cluster, wiring: Wiring, record: Record) -> Ansible | None:
    """Ansible is an extra, needed only by those whose file has it."""
    if spec.ansible and (name := ansible_run.missing()):
        raise DaemonError(
            f"ansible needs the Python package {name}: "
            "install springtide with its extra, `pip install 'springtide[ansible]'`"
        )
    return ansible_of(spec, record.store, wiring.control, wiring.key, wiring.port)
