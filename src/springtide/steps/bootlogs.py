"""Logs of failed boots, kept after their instances are gone, with why they failed.

`rescue` and the daemon's answer to ResumeFailProgram keep them before instances are removed; the
API shows them. Nothing here may stop a node from being given back: what cannot be had is done
without.
"""

import asyncio
import os
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from springtide.failures import classify
from springtide.layout import Layout
from springtide.model import Node
from springtide.nodeset import NodeNameError, validate_name
from springtide.ports import BatchNode, CloudError, Instance, Provider, Unavailable
from springtide.steps.work import Work, together

PATIENCE_S = 10.0
"""Jobs wait while a provider or the batch system is asked."""
KEPT = 200
"""The newest so many are kept."""


@dataclass(frozen=True, slots=True)
class Said:
    """A node's instance, if it has one, and the end of what that said."""

    instance: Instance | None
    console: str


async def keep_log(work: Work, names: Iterable[str]) -> dict[str, str]:
    """Keep what nodes said that did not come up; answers why each did not, where that is known."""
    asked = (_said(work, provider, some) for provider, some in work.by_provider(names))
    said = {name: one for some in await together(asked) for name, one in some.items()}
    seen = await _seen(work, list(said))
    failed = work.record.of(said)
    why = {node.name: _words(node, said[node.name], seen) for node in failed}
    texts = {node: f"{why[node.name]}\n\n{said[node.name].console}" for node in failed}
    keep(Layout(work.parts.spec.state).boots, texts)
    return why


def _words(node: Node, said: Said, seen: Mapping[str, BatchNode]) -> str:
    return classify(node, said.instance, seen.get(node.name), said.console).words


async def _said(work: Work, provider: Provider, names: Sequence[str]) -> dict[str, Said]:
    """Nothing if the provider does not list: then nothing is known of any instance."""
    wanted = {(node.name, node.generation) for node in work.record.of(names)}
    try:
        async with asyncio.timeout(PATIENCE_S):
            listed = await work.parts.census.instances(provider)
    except (CloudError, TimeoutError):
        return {}
    found = {one.node: one for one in listed if (one.node, one.generation) in wanted}
    consoles = await consoles_of(provider, list(found.values()))
    return {
        name: Said(one := found.get(name), consoles.get(one.id, "") if one else "")
        for name in names
    }


async def consoles_of(provider: Provider, instances: Sequence[Instance]) -> Mapping[str, str]:
    """By id, as far as the provider tells."""
    try:
        async with asyncio.timeout(PATIENCE_S):
            return await provider.console(instances) if instances else {}
    except (CloudError, TimeoutError):
        return {}


async def _seen(work: Work, names: Sequence[str]) -> Mapping[str, BatchNode]:
    try:
        async with asyncio.timeout(PATIENCE_S):
            return await work.parts.batch.nodes(names)
    except (Unavailable, TimeoutError):
        return {}


# Files


def keep(directory: Path, texts: Mapping[Node, str]) -> None:
    """Write them, and remove the oldest; a disk that is full or gone keeps none."""
    if not texts:
        return
    with suppress(OSError):
        directory.mkdir(mode=0o750, exist_ok=True)
    for node, text in list(texts.items())[-KEPT:]:
        with suppress(OSError, NodeNameError):
            _write(_path(directory, node.name, node.generation), text)
    with suppress(OSError):
        _prune(directory)


def _path(directory: Path, name: str, generation: int) -> Path:
    return directory / f"{validate_name(name)}.{generation}.log"


def _write(path: Path, text: str) -> None:
    """Whole or not at all: a part would end where no boot ended."""
    flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW | os.O_CLOEXEC
    try:
        with os.fdopen(os.open(path, flags, 0o640), "w", errors="replace") as file:
            file.write(text)
    except OSError:
        path.unlink(missing_ok=True)
        raise


def _prune(directory: Path) -> None:
    logs = sorted(directory.glob("*.log"), key=lambda path: path.stat().st_mtime_ns)
    for path in logs[:-KEPT]:
        path.unlink(missing_ok=True)


@dataclass(frozen=True, slots=True)
class Kept:
    """The log of a failed boot."""

    generation: int
    kept_at: float
    text: str


def read_kept(directory: Path, name: str, generation: int | None) -> Kept | None:
    """That of the node's last failed boot, or of the one with this generation."""
    try:
        found = max(_generations(directory, name), default=0) if generation is None else generation
        path = _path(directory, name, found)
        return Kept(found, path.stat().st_mtime, path.read_text(errors="replace"))
    except (NodeNameError, OSError):
        return None


def _generations(directory: Path, name: str) -> list[int]:
    """Of all logs of the node; one node's name may begin with another's and a dot."""
    logs = directory.glob(f"{validate_name(name)}.*.log")
    middles = (path.name[len(name) + 1 : -len(".log")] for path in logs)
    return [int(middle) for middle in middles if middle.isdecimal()]
