"""The file tree of a node: an overlay of its image, and what is mounted into it.

Written as an fstab, so that one `mount` in the node does it all. Nothing here changes a
file. Symbolic links of an image are followed as the node will see them, never out of it.
"""

import os
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from springtide.ports import Rejected

SEED = Path("/run/tide")
"""Where a node finds its boot script."""

MOST_LINKS = 40  # as the kernel follows
_NOT_IN_OPTIONS = re.compile(r"[,:\\\s\"']")
_TO_ESCAPE = re.compile(r"[\\\s]")


@dataclass(frozen=True, slots=True)
class Mount:
    """A directory of the host in every node, without what is mounted below it."""

    source: Path
    target: Path
    read_only: bool


class Entry(NamedTuple):
    """A line of an fstab."""

    source: str | Path
    target: Path
    kind: str
    options: str = "defaults"


@dataclass(frozen=True, slots=True)
class Tree:
    """What the file tree of a node is made of."""

    image: Path
    mounts: Sequence[Mount] = ()
    hidden: Sequence[Path] = ()


def refuse_tree(tree: Tree) -> None:
    """Say what is missing for such a node."""
    if not tree.image.is_dir():
        raise Rejected(f"image directory {tree.image} does not exist: make it or correct its path")
    refuse_option(tree.image)
    for program in ("/bin/sh", "/bin/umount", "/bin/sleep"):
        if not inside(tree.image, Path(program)).is_file():
            raise Rejected(f"image directory {tree.image} holds no {program}: nodes need it")
    for mount in tree.mounts:
        if not mount.source.is_dir():
            raise Rejected(f"{mount.source} is no directory: it cannot be mounted into nodes")
    for path in tree.hidden:
        if (seen := _seen(tree, path)).exists() and not seen.is_dir():
            raise Rejected(f"{seen} is no directory: only directories can be hidden from nodes")


def refuse_option(path: Path) -> None:
    if found := _NOT_IN_OPTIONS.search(str(path)):
        raise Rejected(f"path {path}: {found[0]!r} cannot be in the path of an image or the state")


def render_fstab(entries: Iterator[Entry]) -> str:
    return "".join(f"{_fields(entry)}\n" for entry in entries)


def entries(home: Path, tree: Tree) -> Iterator[Entry]:
    """In the order of mounting: the overlay, the kernel's, what is hidden and what is shared."""
    root = home / "rw" / "root"
    yield from _overlay(home, tree.image)
    yield from (entry._replace(target=root / entry.target) for entry in _kernel(home, tree.image))
    yield from (entry._replace(target=root / entry.target) for entry in _added(tree))


def _overlay(home: Path, image: Path) -> Iterator[Entry]:
    """X-mount.mkdir makes directories, so the two below /proc spare us a `mkdir`."""
    rw = home / "rw"
    yield Entry("tmpfs", rw, "tmpfs", "mode=755")
    yield Entry("proc", rw / "up" / "proc", "proc", _made())
    yield Entry("proc", rw / "work" / "proc", "proc", _made())
    layers = f"lowerdir={image},upperdir={rw}/up,workdir={rw}/work"
    yield Entry("overlay", rw / "root", "overlay", _made(layers))


def _kernel(home: Path, image: Path) -> Iterator[Entry]:
    """With targets relative to the node's root."""
    dev = _below(image, Path("/dev"))
    yield Entry("/dev", dev, "none", _made("rbind"))
    if Path("/dev/shm").is_dir():  # noqa: S108 - a mount point
        yield Entry("tmpfs", dev / "shm", "tmpfs", "mode=1777")
    yield Entry("/sys", _below(image, Path("/sys")), "none", _made("rbind"))
    yield Entry("proc", _below(image, Path("/proc")), "proc", _made())
    yield Entry("tmpfs", _below(image, Path("/run")), "tmpfs", _made("mode=755"))
    yield Entry("tmpfs", _below(image, Path("/tmp")), "tmpfs", _made("mode=1777"))  # noqa: S108
    yield Entry(home / "seed", _below(image, SEED), "none", _made("bind,ro"))


def _added(tree: Tree) -> Iterator[Entry]:
    """Parents first: a mount within a hidden directory shows, one around it does not bare it."""
    added: list[tuple[Path, Mount | None]] = [(path, None) for path in tree.hidden]
    added += [(mount.target, mount) for mount in tree.mounts]
    for path, mount in sorted(added, key=lambda pair: (pair[0], pair[1] is not None)):
        target = _below(tree.image, path)
        if mount is not None:
            options = "bind,ro" if mount.read_only else "bind"
            yield Entry(mount.source, target, "none", _made(options))
        elif _seen(tree, path).is_dir():
            yield Entry("tmpfs", target, "tmpfs", _made("mode=755"))


def _seen(tree: Tree, path: Path) -> Path:
    """What of the host a node would see at a path if nothing were hidden."""
    around = [mount for mount in tree.mounts if path.is_relative_to(mount.target)]
    if not around:
        return inside(tree.image, path)
    nearest = max(around, key=lambda mount: mount.target)
    return nearest.source / path.relative_to(nearest.target)


def inside(image: Path, path: Path) -> Path:
    """Where on the host a path of the image leads."""
    return image / _below(image, path)


def _below(image: Path, path: Path) -> Path:
    """Where a path leads for a process whose root is the image, relative to that root."""
    done: list[str] = []
    todo = [*reversed(path.parts)]
    followed = 0
    while todo:
        part = todo.pop()
        if part == "/":
            done = []
        elif part == "..":
            done = done[:-1]
        elif link := _link("/".join((str(image), *done, part))):
            todo.extend(reversed(Path(link).parts))
            followed += 1
        else:
            done.append(part)
        if followed > MOST_LINKS:
            raise Rejected(f"image directory {image}: too many symbolic links in {path}")
    return Path(*done)


def _link(path: str) -> str | None:
    """Where a symbolic link points; plain strings, as this is most of the work of a launch."""
    try:
        return os.readlink(path)  # noqa: PTH115
    except OSError:
        return None


def _made(options: str = "") -> str:
    return f"{options},X-mount.mkdir" if options else "X-mount.mkdir"


def _fields(entry: Entry) -> str:
    return " ".join(_TO_ESCAPE.sub(_escaped, str(field)) for field in entry)


def _escaped(found: re.Match[str]) -> str:
    return f"\\{ord(found[0]):03o}"
