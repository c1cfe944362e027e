"""The file tree of a node: an overlay of its image, and what is mounted into it.

Written as an fstab, so that one `mount` in the node does it all. Nothing here changes a
file. Symbolic links of an image are followed as the node will see them, never out of it.
"""

import errno
import os
import re
import stat
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
    layers: tuple[Path, ...] = ()
    """What the image is made of, uppermost first, if it is more than one directory."""

    @property
    def roots(self) -> tuple[Path, ...]:
        return self.layers or (self.image,)


def refuse_tree(tree: Tree) -> None:
    """Say what is missing for such a node."""
    for root in (tree.image, *tree.layers):
        if not root.is_dir():
            raise Rejected(f"image directory {root} does not exist: make it or correct its path")
        refuse_option(root)
    for program in ("/bin/sh", "/bin/umount", "/bin/sleep"):
        if not inside(tree.roots, Path(program)).is_file():
            raise Rejected(f"image directory {tree.image} holds no {program}: nodes need it")
    for mount in tree.mounts:
        if not mount.source.is_dir():
            raise Rejected(f"{mount.source} is no directory: it cannot be mounted into nodes")
    for path in tree.hidden:
        if (seen := _seen(tree, path)).exists() and not (seen.is_dir() or is_mark(seen)):
            raise Rejected(f"{seen} is no directory: only directories can be hidden from nodes")


def refuse_option(path: Path) -> None:
    if found := _NOT_IN_OPTIONS.search(str(path)):
        raise Rejected(f"path {path}: {found[0]!r} cannot be in the path of an image or the state")


def render_fstab(entries: Iterator[Entry]) -> str:
    return "".join(f"{_fields(entry)}\n" for entry in entries)


def entries(home: Path, tree: Tree) -> Iterator[Entry]:
    """In the order of mounting: the overlay, the kernel's, what is hidden and what is shared."""
    root = home / "rw" / "root"
    yield from _overlay(home, tree.roots)
    yield from (entry._replace(target=root / entry.target) for entry in _kernel(home, tree.roots))
    yield from (entry._replace(target=root / entry.target) for entry in _added(tree))


def _overlay(home: Path, roots: Sequence[Path]) -> Iterator[Entry]:
    """X-mount.mkdir makes directories, so the two below /proc spare us a `mkdir`."""
    rw = home / "rw"
    yield Entry("tmpfs", rw, "tmpfs", "mode=755")
    yield Entry("proc", rw / "up" / "proc", "proc", _made())
    yield Entry("proc", rw / "work" / "proc", "proc", _made())
    *upper, base = roots
    if any(lies_in(layer, base) for layer in upper):
        # Layers of one overlay must not lie in each other, so the base gets one of its own.
        yield Entry("proc", rw / "none" / "proc", "proc", _made())
        yield Entry("overlay", rw / "base", "overlay", _made(f"lowerdir={rw}/none:{base}"))
        base = rw / "base"
    lower = ":".join(map(str, (*upper, base)))
    layers = f"lowerdir={lower},upperdir={rw}/up,workdir={rw}/work"
    yield Entry("overlay", rw / "root", "overlay", _made(layers))


def lies_in(layer: Path, base: Path) -> bool:
    """Whether the base, as one directory of one filesystem, holds the layer."""
    return layer.is_relative_to(base) and layer.stat().st_dev == base.stat().st_dev


def _kernel(home: Path, image: Sequence[Path]) -> Iterator[Entry]:
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
        target = _below(tree.roots, path)
        if mount is not None:
            options = "bind,ro" if mount.read_only else "bind"
            yield Entry(mount.source, target, "none", _made(options))
        elif _seen(tree, path).is_dir():
            yield Entry("tmpfs", target, "tmpfs", _made("mode=755"))


def _seen(tree: Tree, path: Path) -> Path:
    """What of the host a node would see at a path if nothing were hidden."""
    around = [mount for mount in tree.mounts if path.is_relative_to(mount.target)]
    if not around:
        return inside(tree.roots, path)
    nearest = max(around, key=lambda mount: mount.target)
    return nearest.source / path.relative_to(nearest.target)


def inside(roots: Sequence[Path], path: Path) -> Path:
    """Where on the host a path of the image leads: in the uppermost of its layers that has it.

    Or that covers it: images forget what their base has of clusters.
    """
    below = _below(roots, path)
    return next((r / below for r in roots if _decides(r / below)), roots[-1] / below)


def _decides(path: Path) -> bool:
    """Whether layers below do not count: it is there, or a mark or a file is on the way to it."""
    try:
        path.lstat()
    except OSError as error:
        return error.errno == errno.ENOTDIR
    return True


def is_mark(path: Path) -> bool:
    """Whether it says that something was deleted, in the kernel's way."""
    about = path.lstat()
    return stat.S_ISCHR(about.st_mode) and about.st_rdev == 0


def _below(roots: Sequence[Path], path: Path) -> Path:
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
        elif link := _link(roots, "/".join((*done, part))):
            todo.extend(reversed(Path(link).parts))
            followed += 1
        else:
            done.append(part)
        if followed > MOST_LINKS:
            raise Rejected(f"image directory {roots[0]}: too many symbolic links in {path}")
    return Path(*done)


def _link(roots: Sequence[Path], below: str) -> str | None:
    """Where a symbolic link points; plain strings, as this is most of the work of a launch."""
    for root in roots:
        try:
            return os.readlink(f"{root}/{below}")  # noqa: PTH115
        except OSError as error:
            if error.errno in (errno.EINVAL, errno.ENOTDIR):
                return None  # something else is there, and hides what lies below it
    return None


def _made(options: str = "") -> str:
    return f"{options},X-mount.mkdir" if options else "X-mount.mkdir"


def _fields(entry: Entry) -> str:
    return " ".join(_TO_ESCAPE.sub(_escaped, str(field)) for field in entry)


def _escaped(found: re.Match[str]) -> str:
    return f"\\{ord(found[0]):03o}"
