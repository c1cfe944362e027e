"""Logs of failed boots, kept after their instances are gone, with why they failed.

`rescue` and the daemon's answer to ResumeFailProgram keep them before instances are removed; the
API shows them. Nothing here may stop a node from being given back: what cannot be had is done
without.
"""

import asyncio
import os
from collections.abc import Collection, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path

from springtide.failures import Trouble, classify
from springtide.layout import Layout
from springtide.model import Node
from springtide.nodeset import NodeNameError, validate_name
from springtide.ports import BatchNode, CloudError, Instance, Provider, Unavailable
from springtide.steps.console_phases import note_consoles
from springtide.steps.work import Work, together
from springtide.story import voice_of

PATIENCE_S = 10.0
"""Jobs wait while a provider or the batch system is asked."""
KEPT = 200
"""The newest so many are kept."""
LOG, PUSHED = ".log", ".said"
"""How the names of files end: logs of boots that failed, and what nodes sent themselves."""
GAVE_UP = "the node gave up: "
"""How the latter begin; `failures` knows it."""
UNHEARD = "nothing was heard from it; look at the console of its machine, if it has one"
"""What is kept of an instance that said no word."""


@dataclass(frozen=True, slots=True)
class Said:
    """A node's instance, if it has one, and the end of what that said."""

    instance: Instance | None
    console: str
    listed: bool = True
    """Whether the provider told of its instances at all."""

    @property
    def words(self) -> str:
        return self.console or (UNHEARD if self.instance else "")


UNKNOWN = Said(None, "", listed=False)


async def keep_log(
    work: Work, names: Iterable[str], shut_out: Collection[str] = ()
) -> dict[str, str]:
    """Keep what nodes said that did not come up; answers why each did not, where that is known.

    `shut_out` are those that nobody could log in to.
    """
    nodes, boots = work.record.of(names), Layout(work.parts.spec.state).boots
    given = work.by_provider(node.name for node in nodes)
    asked = (_said(work, provider, some) for provider, some in given)
    said = {name: one for some in await together(asked) for name, one in some.items()}
    await note_consoles(work, [(o.instance, o.console) for o in said.values() if o.instance])
    seen = await _seen(work, list(said))
    said = {n.name: _with_pushed(boots, n, said.get(n.name, UNKNOWN)) for n in nodes}
    failed = [node for node in nodes if said[node.name] != UNKNOWN]
    voice = voice_of(work.parts.spec)
    why = {n.name: voice.say(_words(n, said[n.name], seen, n.name in shut_out)) for n in failed}
    keep(boots, {node: f"{why[node.name]}\n\n{said[node.name].words}" for node in failed})
    return why


def _with_pushed(boots: Path, node: Node, said: Said) -> Said:
    """Few clouds show all that a machine says, and a node may have sent it itself."""
    pushed = _read(_path(boots, node.name, node.generation, PUSHED))
    return replace(said, console=f"{said.console}\n{pushed}".strip("\n")) if pushed else said


def _words(node: Node, said: Said, seen: Mapping[str, BatchNode], shut_out: bool) -> str:
    if not said.listed:
        first = said.console.partition("\n")[0]
        return f"{Trouble.GAVE_UP}: {first.removeprefix(GAVE_UP)}"
    return classify(node, said.instance, seen.get(node.name), said.console, shut_out).words


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


def push(directory: Path, node: Node, reason: str, log: str) -> None:
    """Keep what a node sent when its boot failed, until its end is known."""
    text = f"{GAVE_UP}{reason}\n{log}"
    with suppress(OSError, NodeNameError):
        directory.mkdir(mode=0o750, parents=True, exist_ok=True)
        _write(_path(directory, node.name, node.generation, PUSHED), text)
        _prune(directory)


def forget_pushed(directory: Path, node: Node) -> None:
    """It came up after all."""
    with suppress(OSError, NodeNameError):
        _path(directory, node.name, node.generation, PUSHED).unlink(missing_ok=True)


def _path(directory: Path, name: str, generation: int, ending: str = LOG) -> Path:
    return directory / f"{validate_name(name)}.{generation}{ending}"


def _read(path: Path) -> str:
    try:
        return path.read_text(errors="replace")
    except OSError:
        return ""


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
    for ending in (LOG, PUSHED):
        found = directory.glob(f"*{ending}")
        logs = sorted(found, key=lambda path: path.stat().st_mtime_ns)
        for path in logs[:-KEPT]:
            path.unlink(missing_ok=True)


@dataclass(frozen=True, slots=True)
class Kept:
    """The log of a failed boot."""

    generation: int
    kept_at: float
    text: str


def read_kept(directory: Path, name: str, generation: int | None) -> Kept | None:
    """That of the node's last failed boot, or of the one with this generation.

    Before its end is known, what the node sent itself.
    """
    try:
        found = max(_generations(directory, name), default=0) if generation is None else generation
        paths = [_path(directory, name, found, ending) for ending in (LOG, PUSHED)]
        path = next((path for path in paths if path.exists()), paths[0])
        return Kept(found, path.stat().st_mtime, path.read_text(errors="replace"))
    except (NodeNameError, OSError):
        return None


def _generations(directory: Path, name: str) -> list[int]:
    """Of all logs of the node; one node's name may begin with another's and a dot."""
    found = directory.glob(f"{validate_name(name)}.*")
    logs = [path for path in found if path.suffix in (LOG, PUSHED)]
    middles = (path.name[len(name) + 1 : -len(path.suffix)] for path in logs)
    return [int(middle) for middle in middles if middle.isdecimal()]
