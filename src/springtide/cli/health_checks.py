"""Whether nodes find the site's health check, without which none would ever take a job.

For `file_checks`. Only what is wrong is a line, and what cannot be seen from here.
"""

import os
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

from springtide import images
from springtide.cli.family_checks import made_images
from springtide.cli.subject import Check, Subject
from springtide.model import MadeImage
from springtide.ports import Rejected
from springtide.providers.containers.layers import layers_of
from springtide.providers.containers.mounts import inside
from springtide.spec import Cluster, Containers

_OWN = ("/run", "/tmp")  # noqa: S108 - places that nodes have to themselves


def look_at_health(subject: Subject) -> Iterator[Check]:
    spec = subject.spec
    if (program := spec.health) is None:
        return
    groups = [key for key in spec.groups if isinstance(spec.provider_of(key), Containers)]
    yield from dict.fromkeys(one for key in groups for one in _of_group(subject, key, program))


def _of_group(subject: Subject, group: str, program: Path) -> Iterator[Check]:
    spec, image = subject.spec, subject.spec.image_of(group)
    if any(program.is_relative_to(path) for path in _shared(spec, group)):
        yield from _unfit(program, image)
    elif any(program.is_relative_to(place) for place in _OWN):
        text = f"nodes do not see {program}: they have a {_OWN[0]} and {_OWN[1]} of their own"
        yield Check("health", False, text, "put it elsewhere, and correct `health`")
    elif spec.images[image].build:
        yield from _of_family(subject, group, program)
    elif path := spec.images[image].path:
        yield from _unfit(inside([path], program), image)


def _shared(spec: Cluster, group: str) -> list[Path]:
    provider = spec.provider_of(group)
    mounts = provider.mounts if isinstance(provider, Containers) else ()
    return [*mounts, *(one.path for one in spec.shared if one.here)]


def _unfit(path: Path, image: str) -> Iterator[Check]:
    if not path.is_file():
        text = f"{path} is no file, so nodes of image {image} would fail the check"
        yield Check("health", False, text, "make it, or correct `health`")
    elif not os.access(path, os.X_OK):
        yield Check("health", False, f"{path} cannot be executed", f"run `chmod 755 {path}`")


def _of_family(subject: Subject, group: str, program: Path) -> Iterator[Check]:
    """In the image that nodes get; as long as there is none, in what it will be built from."""
    spec, family = subject.spec, subject.spec.image_of(group)
    made = made_images(subject) or ()
    newest = images.wanted(spec, made, group)
    try:
        if newest != family:
            path = inside(_layers(subject, made, newest), program)
            yield from () if _is_program(path) else (_missing(path, newest, family),)
        elif not _is_program(path := inside([_base(spec, family)], program)):
            text = f"{path} is no program, so images of {family} have none unless a build makes it"
            yield Check("health", None, text, "have a script of the build make it, or make it")
    except (OSError, Rejected) as error:
        text = f"whether nodes of {newest} have {program} cannot be seen: {error}"
        yield Check("health", None, text, "run it as root")


def _layers(subject: Subject, made: Iterable[MadeImage], name: str) -> Sequence[Path]:
    where = next(Path(one.id) for one in made if one.name == name)
    if where.parent != subject.daemon.layout.images:
        raise Rejected(f"{where} is not in {subject.daemon.layout.images}")
    return layers_of(where.parent, where)


def _is_program(path: Path) -> bool:
    return path.is_file() and os.access(path, os.X_OK)


def _missing(path: Path, image: str, family: str) -> Check:
    text = f"{path} is no program, so nodes of image {image} would fail the check"
    todo = f"make it, or have a script make it and run `tide image build {family}`"
    return Check("health", False, text, f"{todo}; or correct `health`")


def _base(spec: Cluster, family: str) -> Path:
    """Where the image is that a family begins with, in the end."""
    return spec.images[images.lineage(spec, family)[-1]].path or Path("/")
