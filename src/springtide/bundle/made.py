"""Puts a bundle together from what the disk has and what the daemon said."""

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from springtide import __version__
from springtide.bundle import disk, past
from springtide.bundle.files import Reader, opened
from springtide.bundle.masks import Masks
from springtide.bundle.pack import Label, pack
from springtide.bundle.parts import Parts
from springtide.bundle.secrets import LARGEST, Sources, known_secrets
from springtide.layout import Layout
from springtide.spec import Cluster, SpecError, load


@dataclass(frozen=True, slots=True)
class Order:
    """What is wanted."""

    layout: Layout
    since: float
    alone: bool = False
    """Not all was had from a daemon, so that the record is read from the disk."""
    environments: Sequence[Mapping[str, str]] = ()
    """Of processes that have credentials."""


def make(order: Order, parts: Parts) -> bytes:
    """The file, with these parts and those of the disk."""
    file = _file(order.layout)
    spec = _spec(file, parts)
    disk.take_all(Reader(parts, order.since), order.layout, spec, file)
    record = order.layout.record
    parts.collect("record/facts.json", lambda: [past.facts(record)])
    if order.alone:
        parts.collect("record/", lambda: past.rows(record, order.since))
    sources = Sources(order.layout, spec, _text(file), order.environments)
    masks = Masks(known_secrets(sources, parts))
    name = spec.cluster if spec else order.layout.state.name
    return pack(Label(name, __version__, time.time(), order.since), parts, masks)


def _file(layout: Layout) -> Path:
    """A daemon that was started from people's own file has no copy of it."""
    stored = layout.stored_spec
    return stored if stored.exists() else past.file(layout.record) or stored


def _spec(file: Path, parts: Parts) -> Cluster | None:
    """A file that is wrong is one more reason for a bundle."""
    try:
        return load(file)
    except SpecError as error:
        parts.lack("what the cluster file names", str(error))
    except Exception as error:  # whatever it is, the rest can be had
        parts.lack("what the cluster file names", f"{type(error).__name__}: {error}")
    return None


def _text(file: Path) -> str:
    try:
        with opened(file) as stream:
            return stream.read(LARGEST).decode(errors="replace")
    except OSError:
        return ""
