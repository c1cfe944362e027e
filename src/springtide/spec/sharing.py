"""Whether the filesystems of `shared` can be where the file puts them; called by `checks`.

Mounted over a directory that a node's system needs, one would take it away; inside another, it
would depend on the order of mounting.
"""

from collections.abc import Iterable, Iterator
from pathlib import Path

from springtide.spec.findings import Data, Finding, Loc, readable, section
from springtide.spec.joining import Shared, is_here

ROOT = Path("/")
NFS = Shared.model_fields["type"].default
_WHOLLY = "bin boot dev etc lib lib32 lib64 proc sbin sys usr/bin usr/lib usr/sbin"
WHOLLY = tuple(Path("/", name) for name in _WHOLLY.split())
"""Directories of the system, with all that is in them."""
_ITSELF = "root run tmp usr usr/share var var/cache var/lib var/log var/run var/spool var/tmp"
ITSELF = tuple(Path("/", name) for name in _ITSELF.split())
"""Of these, others may be in them."""


def check_shared(data: Data) -> Iterator[Finding]:
    state = _path(data.get("state"))
    others = list(_mounts(data))
    for loc, path in _paths(data):
        if why := _refusal(path, state) or _overlap(path, others):
            yield Finding(loc, why)
        else:
            others.append(path)
    for i, entry in _entries(data):
        if why := _source_refusal(entry.get("source"), entry.get("type", NFS), state):
            yield Finding(("shared", i, "source" if entry.get("source") else "type"), why)


def _source_refusal(source: object, kind: object, state: Path | None) -> str:
    if not isinstance(kind, str) or not isinstance(source, str | None):
        return ""
    nfs = kind.startswith("nfs")
    if source is None:
        return "" if nfs else f"a filesystem of type {kind} needs a source, such as /dev/vdb"
    if nfs and source.startswith("//"):
        return f"{source} is no source of {kind}: write one slash, or set `type`, such as cifs"
    path = _path(source) if is_here(source, kind) else None
    if path and ".." in path.parts:
        return f"{path} must be a path without '..'"
    return _refusal(path, state) if path else ""


def _refusal(path: Path, state: Path | None) -> str:
    if path == ROOT or path in ITSELF or any(path.is_relative_to(one) for one in WHOLLY):
        return f"{path} is the system's own on every node; share another directory"
    if state and path.is_relative_to(state):
        return f"{path} is in the cluster's state {state}; share another directory"
    return _holds(path, state) if state and state.is_relative_to(path) else ""


def _holds(path: Path, state: Path) -> str:
    what = f"the cluster's state {state}, with its keys"
    return f"{path} holds {what}, which nodes must not see; set `state` elsewhere"


def _overlap(path: Path, others: Iterable[Path]) -> str:
    for other in others:
        if path == other:
            return f"{path} is mounted already; name it once in `shared` or provider.mounts"
        if path.is_relative_to(other) or other.is_relative_to(path):
            inner, outer = sorted((path, other), reverse=True)
            return f"{inner} is in {outer}, and both are mounted; share one of them"
    return ""


# Reading


def _paths(data: Data) -> Iterator[tuple[Loc, Path]]:
    """Of what cannot be read, and of the root, others have said so."""
    for i, entry in _entries(data):
        path = _path(entry.get("path"))
        if path and path != ROOT:
            yield ("shared", i, "path"), path


def _entries(data: Data) -> Iterator[tuple[int, Data]]:
    found = data.get("shared")
    for i, entry in enumerate(found if isinstance(found, list | tuple) else ()):
        if isinstance(entry, dict):
            yield i, entry


def _mounts(data: Data) -> Iterator[Path]:
    """Of containers."""
    blocks = [section(data, "provider")]
    blocks += [section(group, "provider") for group in readable(data, "groups").values()]
    for block in blocks:
        found = block.get("mounts")
        yield from filter(None, map(_path, found if isinstance(found, list | tuple) else ()))


def _path(value: object) -> Path | None:
    if isinstance(value, Path):
        return value
    return Path(value) if isinstance(value, str) and value.startswith("/") else None
