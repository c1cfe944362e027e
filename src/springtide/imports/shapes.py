"""How big a shape is: from a table of ours, a person's shapes.yaml, or the provider's own answer.

A person's table has the keys of Cluster in the Cloud's: `memory` is what Slurm is told, in MiB.
Ours have `nominal` instead, the memory that a cloud names; nodes show less of it.
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from difflib import get_close_matches
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from springtide.ports import CloudFlavor, Rejected
from springtide.providers.cloud.memory import seen_by_linux
from springtide.providers.oci.shapes import decide_flavor, parse_shape
from springtide.spec import source
from springtide.spec.problems import Problem, SpecError, short
from springtide.spec.values import matching, parse_size, shown, whole

TABLES = Path(__file__).with_name("tables")
KINDS = tuple(sorted(path.stem for path in TABLES.glob("*.yaml")))
"""The providers that there is a table for."""
FIRST = "`SHAPE: {memory: …, cores_per_socket: …}`"
SEVERAL = 5
MOST = 2**40

_NUMBER = whole(1, MOST)
_GRES = matching(
    "[A-Za-z0-9_][A-Za-z0-9_.:/-]{0,127}(?:,[A-Za-z0-9_][A-Za-z0-9_.:/-]{0,127})*",
    "generic resources, such as gpu:2",
)
_READ: Mapping[str, Any] = {
    "memory": _NUMBER,
    "nominal": parse_size,
    "sockets": _NUMBER,
    "cores_per_socket": _NUMBER,
    "threads_per_core": _NUMBER,
    "gres": _GRES,
    "arch": matching("x86_64|aarch64", "x86_64 or aarch64"),
}
"""The keys of a shape, and how their values are read."""


@dataclass(frozen=True, slots=True)
class Shape:
    """What Slurm is told of a node; memory is MiB that it surely shows."""

    cpus: int
    memory: int
    sockets: int | None = None
    threads: int | None = None
    gres: tuple[str, ...] = ()
    arch: str = "x86_64"


def table(kind: str) -> dict[str, Shape]:
    """Our own of a provider; none of most."""
    if kind not in KINDS:
        return {}
    path = TABLES / f"{kind}.yaml"
    return parse_shapes(path.read_text(encoding="utf-8"), str(path))


def parse_shapes(text: str, name: str) -> dict[str, Shape]:
    """SpecError names every line that is wrong."""
    document = source.read(text, name, FIRST)
    problems = [*document.problems, *_problems(document)]
    if problems:
        raise SpecError(problems)
    return {shape: _shape(entry) for shape, entry in document.data.items()}


def _problems(document: source.Document) -> Iterator[Problem]:
    for shape, entry in document.data.items():
        if not isinstance(entry, dict):
            yield document.value((shape,), f"shape {shown(shape)} must be a mapping, as in {FIRST}")
            continue
        for key, value in entry.items():
            yield from _wrong(document, (shape, key), value)
        memory = "memory" in entry or "nominal" in entry
        if not memory or "cores_per_socket" not in entry:
            yield document.key((shape,), f"shape {shown(shape)} needs memory and cores_per_socket")


def _wrong(document: source.Document, path: tuple[str, str], value: Any) -> Iterator[Problem]:
    key = path[1]
    if key not in _READ:
        valid = ", ".join(_READ)
        yield document.key(path, f"unknown key {shown(key)} of a shape; valid keys are {valid}")
        return
    try:
        _READ[key](value)
    except ValueError as fault:
        yield document.value(path, f"{key} {fault}")


def _shape(entry: Mapping[str, Any]) -> Shape:
    read = {key: _READ[key](value) for key, value in entry.items()}
    sockets, threads = read.get("sockets"), read.get("threads_per_core", 1)
    arch = read.get("arch", "x86_64")
    return Shape(
        cpus=(sockets or 1) * read["cores_per_socket"] * threads,
        memory=read["memory"] if "memory" in read else seen_by_linux(read["nominal"], arch),
        sockets=sockets,
        threads=threads,
        gres=tuple(read["gres"].split(",")) if "gres" in read else (),
        arch=arch,
    )


def of_flavor(flavor: CloudFlavor) -> Shape:
    """What a provider said of a size of its own; one thread may mean that it does not tell."""
    threads = flavor.threads if flavor.threads > 1 and flavor.cpus % flavor.threads == 0 else None
    return Shape(
        flavor.cpus,
        seen_by_linux(flavor.memory, flavor.arch),
        threads=threads,
        gres=(f"gpu:{flavor.gpus}",) if flavor.gpus else (),
        arch=flavor.arch,
    )


def flexible(name: str) -> Shape | None:
    """Of Oracle's shapes whose name ends with their size, such as VM.Standard.E4.Flex.4.64."""
    try:
        shape = parse_shape(name)
    except Rejected:
        return None
    if shape.config is None:
        return None
    listed = SimpleNamespace(ocpus=shape.ocpus, memory_in_gbs=shape.memory, gpus=0)
    found = decide_flavor(name, {shape.name: listed})
    return of_flavor(found) if found else None


def render_known(wrong: str, known: Iterable[str]) -> str:
    """What there is instead of a shape that is not known, the nearest first."""
    names = {name.lower(): name for name in known}
    if near := get_close_matches(wrong[:60].lower(), names, n=SEVERAL, cutoff=0.3):
        return f"the nearest known ones are {', '.join(names[one] for one in near)}"
    return f"known ones are {short(', '.join(names.values()))}" if names else "none is known"
