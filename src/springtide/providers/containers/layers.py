"""Images made of containers: what a node had written, as a layer over the image it was made from.

An image is a directory: `layer` has the files, `image.json` is written last and says whose it is
and what lies below. So an image costs no more than the changes. The provider calls this in its
threads. What is below an image must stay, so nothing is forgotten that something else stands on.
"""

import errno
import json
import os
import platform
import re
import shutil
import subprocess
import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass
from pathlib import Path

from springtide.ports import CloudImage, Instance, Rejected, Transient
from springtide.providers.containers.files import replace_text
from springtide.providers.containers.freeze import frozen, notes
from springtide.providers.containers.identity import forget_identity
from springtide.providers.containers.instances import (
    Intent,
    Process,
    homes,
    is_alive,
    observe_all,
    read_intent,
    read_process,
)
from springtide.providers.containers.locks import directory_lock

NAME = re.compile("[A-Za-z0-9][A-Za-z0-9_.-]{0,99}")
WRITTEN = "/up"
"""What a node has written, as the one descriptor of its first process shows it that leads there."""
COPY_LIMIT_S = 3600.0
NOT_ITS_OWN = ("proc", "sys", "dev", "run", "tmp")
"""What other filesystems cover in a node."""
C_LOCALE = {"PATH": os.defpath, "LC_ALL": "C"}
FULL = (errno.ENOSPC, errno.EDQUOT)


@dataclass(frozen=True, slots=True)
class Picture:
    """An image as its file tells it."""

    name: str
    cluster: str
    created_at: float
    arch: str
    below: tuple[str, ...]
    """Directories of images, the nearest first: the layers of all of them lie below its own."""

    def shown(self, home: Path) -> CloudImage:
        ours = (Path(each) for each in self.below)
        below = tuple(each.name for each in ours if each.parent == home.parent)
        return CloudImage(
            str(home), self.name, self.cluster, self.created_at, arch=self.arch, below=below
        )


def read_picture(home: Path) -> Picture | None:
    """None if it is no image of ours, or not whole."""
    try:
        said = json.loads((home / "image.json").read_text())
        return Picture(**said | {"below": tuple(map(str, said["below"]))})
    except (OSError, ValueError, KeyError, TypeError):
        return None


def layers_of(images: Path, image: Path) -> tuple[Path, ...]:
    """All directories that make up an image, uppermost first; of one that is none of ours, it."""
    if image.parent != images:
        return (image,)
    picture = read_picture(image)
    if picture is None:
        raise Rejected(f"image {image} is gone or not whole: build it again")
    return tuple(_directory(images, Path(each)) for each in (str(image), *picture.below))


def _directory(images: Path, image: Path) -> Path:
    return image / "layer" if image.parent == images else image


def found(images: Path, cluster: str) -> list[CloudImage]:
    with suppress(FileNotFoundError):
        pictures = [(home, read_picture(home)) for home in sorted(images.iterdir())]
        return [one.shown(home) for home, one in pictures if one and one.cluster == cluster]
    return []


def snapshot(directory: Path, images: Path, instance: Instance, name: str) -> CloudImage:
    """Of what the instance has written until now; it stands still meanwhile."""
    if not NAME.fullmatch(name):
        raise Rejected(f"an image cannot be called {name!r}: use letters, digits, '_', '.' and '-'")
    images.mkdir(mode=0o700, parents=True, exist_ok=True)
    home = images / name
    if known := read_picture(home):
        return known.shown(home)
    with directory_lock(images):
        _sweep(images)
        intent, process = _running(directory, instance)
        below = _below(images, intent)
        shutil.rmtree(home, ignore_errors=True)  # what is left of one that was not finished
        with _fresh(images / f".{name}.new") as fresh:
            _copy(process, notes(directory) / instance.node, fresh)
            forget_identity(fresh / "layer", [_directory(images, Path(each)) for each in below])
            made = Picture(name, instance.cluster, time.time(), platform.machine(), below)
            replace_text(fresh / "image.json", json.dumps(asdict(made)))
            os.sync()
            fresh.rename(home)
        return made.shown(home)


@contextmanager
def _fresh(path: Path) -> Iterator[Path]:
    """Half an image takes room for nothing. A full disk does not get empty by trying again."""
    try:
        yield path
    except OSError as error:
        if error.errno not in FULL:
            raise
        raise Rejected(f"there is no room for it in {path.parent}: {error}") from error
    finally:
        shutil.rmtree(path, ignore_errors=True)


def sweep(images: Path) -> None:
    """What killed daemons left, unless somebody is at work there now."""
    with suppress(FileNotFoundError, Transient), directory_lock(images, wait_s=0):
        _sweep(images)


def _sweep(images: Path) -> None:
    for path in [*images.glob(".*.new"), *images.glob(".*.gone")]:
        shutil.rmtree(path, ignore_errors=True)


def _running(directory: Path, instance: Instance) -> tuple[Intent, Process]:
    home = homes(directory) / instance.node
    intent, process = read_intent(home), read_process(home)
    if intent is None or intent.instance.id != instance.id or process is None:
        raise Rejected(f"{instance.node} has no instance {instance.id} to make an image of")
    if not is_alive(process):
        raise Rejected(f"{instance.id} runs no more, and what it had written went with it")
    return intent, process


def _below(images: Path, intent: Intent) -> tuple[str, ...]:
    image = intent.image_path
    if image is None:
        raise Rejected(f"{intent.instance.id} is too old to be made an image of: rebuild it first")
    if image.parent != images:
        return (str(image),)
    picture = read_picture(image)
    if picture is None:
        raise Rejected(f"image {image} is gone or not whole, so nothing can be built on it")
    return (str(image), *picture.below)


def _copy(process: Process, note: Path, fresh: Path) -> None:
    """With owners, times, attributes and the marks of what was deleted."""
    fresh.mkdir(mode=0o700)
    (fresh / "layer").mkdir(mode=0o755)
    with frozen(process, note):
        command = ["cp", "-ax", "--reflink=auto", f"{_written(process)}/.", f"{fresh}/layer/"]
        done = subprocess.run(
            command, capture_output=True, text=True, timeout=COPY_LIMIT_S, check=False, env=C_LOCALE
        )
    if done.returncode:
        text = f"what it wrote could not be copied: {done.stderr.strip()[-300:]}"
        full = any(os.strerror(code) in done.stderr for code in FULL)
        raise Rejected(f"{text}; make room for it") if full else Transient(text)
    for name in NOT_ITS_OWN:
        shutil.rmtree(fresh / "layer" / name, ignore_errors=True)


def _written(process: Process) -> Path:
    """A shell moves descriptors about, so it is looked for."""
    for path in Path(f"/proc/{process.pid}/fd").iterdir():
        if os.readlink(path) == WRITTEN:  # noqa: PTH115 - no file of this machine
            return path
    raise Rejected("it was started by an older Springtide: rebuild it first")


def forget(directory: Path, images: Path, image: CloudImage) -> None:
    home = images / image.name
    if not NAME.fullmatch(image.name) or not home.is_dir():
        return
    with directory_lock(images):
        intents = observe_all(directory, image.cluster, time.time())
        _refuse_used(home, users(images, home, intents))
        _sweep(images)
        gone = images / f".{image.name}.gone"
        home.rename(gone)
        shutil.rmtree(gone)


def users(images: Path, home: Path, intents: Iterable[Intent]) -> list[str]:
    """Nodes and images that stand on this one."""
    others = [(one.name, read_picture(one)) for one in sorted(images.iterdir())]
    above = [f"image {name}" for name, one in others if one and str(home) in one.below]
    nodes = [f"node {one.instance.node}" for one in intents if _uses(images, one, home)]
    return [*nodes, *above]


def _uses(images: Path, intent: Intent, home: Path) -> bool:
    image = intent.image_path
    if image is None or image == home:
        return image == home
    picture = read_picture(image) if image.parent == images else None
    return picture is not None and str(home) in picture.below


def _refuse_used(home: Path, found: Sequence[str]) -> None:
    if found:
        more = f" and {len(found) - 1} more" if len(found) > 1 else ""
        raise Rejected(f"image {home.name} is below {found[0]}{more}: delete or rebuild them first")
