"""Flavors, groups and a partition from what was read: as plain data, and as text.

Names of nodes are those that Cluster in the Cloud gives: `vm-standard2-1-ad1-0001`.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from springtide.imports.hosts import Pool
from springtide.imports.limits import Limit, Limits
from springtide.imports.shapes import Shape, render_known
from springtide.nodeset import MAX_LABEL, fold
from springtide.providers.oci.shapes import FLEX
from springtide.spec.problems import Problem, SpecError

Value = str | int | Sequence[str] | Mapping[str, str]
Entry = Mapping[str, Value]

LIMITS, HOSTS = "limits", "hosts"
WITHOUT_ZONES = frozenset({"containers", "none"})
DIGITS = 4
"""Of the number in a node's name, at least."""
_DOMAIN = re.compile(r"(?:.*[:-])?AD-?([0-9]{1,3})", re.IGNORECASE)
_PLAIN = re.compile(r"[A-Za-z][A-Za-z0-9_./-]*")
_WORDS = frozenset({"null", "true", "false", "yes", "no", "on", "off", "y", "n"})


@dataclass(frozen=True, slots=True)
class Parts:
    """What an import puts into a cluster file."""

    source: str
    """What kind of file they are from."""
    flavors: Mapping[str, Entry] = field(default_factory=dict)
    groups: Mapping[str, Entry] = field(default_factory=dict)
    partition: str = ""
    """The one that has these groups."""
    notes: tuple[str, ...] = ()
    """What a person should know."""


@dataclass(frozen=True, slots=True)
class Wish:
    """What a person, or the cluster file, says of all groups that are made."""

    kind: str
    """Of the provider."""
    partition: str
    image: str | None = None
    provider: bool = False
    """Whether groups name it, for the cluster has another."""

    @property
    def settings(self) -> Entry:
        image = {"image": self.image} if self.image else {}
        return {**image, **({"provider": {"kind": self.kind}} if self.provider else {})}


# --- limits ----------------------------------------------------------------------------------


def of_limits(limits: Limits, shapes: Mapping[str, Shape], wish: Wish) -> Parts:
    """A group for each limit, and a flavor for each shape; SpecError names all that is wrong."""
    problems = [*limits.problems, *_unknown(limits, shapes), *_unnameable(limits)]
    if problems:
        raise SpecError(problems)
    some = [limit for limit in limits.limits if limit.count]
    return Parts(
        LIMITS,
        flavors={flavor_name(one.shape): _flavor(one.shape, shapes[one.shape]) for one in some},
        groups={group_name(one): {**_group(one, wish), **wish.settings} for one in some},
        partition=wish.partition,
        notes=tuple(_notes(limits)),
    )


def _notes(limits: Limits) -> Iterator[str]:
    yield from (f"{one}: none, so there is no group" for one in limits.limits if not one.count)
    if limits.mixed:
        yield limits.mixed


def _unknown(limits: Limits, shapes: Mapping[str, Shape]) -> Iterator[Problem]:
    for shape in limits.shapes:
        if shape not in shapes:
            hint = f"{_hint(shape, shapes)}; others can be told with --shapes FILE"
            yield limits.document.key((shape,), f"there is no shape {shape!r}; {hint}")


def _hint(shape: str, shapes: Mapping[str, Shape]) -> str:
    if shape.endswith(FLEX):
        return f"write its OCPUs and GB behind a flexible one, such as {shape}.4.64"
    return render_known(shape, shapes)


def _unnameable(limits: Limits) -> Iterator[Problem]:
    """Names that two limits would share, or that are too long."""
    names: dict[str, Limit] = {}
    for limit in limits.limits:
        name = group_name(limit)
        if name in names:
            message = f"nodes of {limit} and of {names[name]} would both be called {name}-0001"
            yield limits.document.key(limit.path, message)
        if len(name) + 1 + DIGITS + 1 > MAX_LABEL:
            message = f"{name}-0001 would be too long for the name of a node"
            yield limits.document.key(limit.path, message)
        names.setdefault(name, limit)
    flavors: dict[str, str] = {}
    for shape in limits.shapes:
        if (other := flavors.setdefault(flavor_name(shape), shape)) != shape:
            message = f"shapes {shape} and {other} would both be called {flavor_name(shape)}"
            yield limits.document.key((shape,), message)


def group_name(limit: Limit) -> str:
    shape = _dashed(limit.shape)
    return shape if limit.zone is None else f"{shape}-ad{_domain(limit.zone)}"


def _domain(zone: str) -> str:
    """`1` is 1, and so is `Uocm:PHX-AD-1`; others are themselves."""
    found = _DOMAIN.fullmatch(zone)
    return found[1] if found else _dashed(zone)


def _dashed(name: str) -> str:
    return re.sub("[^a-z0-9-]", "-", name.lower()).lstrip("-") or "x"


def flavor_name(shape: str) -> str:
    """What a cluster file can call a shape."""
    return re.sub("[^A-Za-z0-9_.-]", "-", shape).lstrip("_.-")[:MAX_LABEL] or "shape"


def _flavor(name: str, shape: Shape) -> Entry:
    return {
        **({} if flavor_name(name) == name else {"type": name}),
        "cpus": shape.cpus,
        "memory": f"{shape.memory}M",
        **({"sockets": shape.sockets} if shape.sockets else {}),
        **({"threads": shape.threads} if shape.threads else {}),
        **({"gres": shape.gres} if shape.gres else {}),
        **({} if shape.arch == "x86_64" else {"arch": shape.arch}),
        "features": (f"shape={name}",),
    }


def _group(limit: Limit, wish: Wish) -> Entry:
    names = [f"{group_name(limit)}-{n:0{DIGITS}d}" for n in range(1, limit.count + 1)]
    zones = limit.zone is not None and wish.kind not in WITHOUT_ZONES
    return {
        "nodes": fold(names),
        "flavors": (flavor_name(limit.shape),),
        **({"zones": (limit.zone or "",)} if zones else {}),
        **({"features": (f"ad={limit.zone}",)} if limit.zone is not None else {}),
    }


# --- hosts -----------------------------------------------------------------------------------


def of_pool(pool: Pool, group: str, flavor: str | None, wish: Wish) -> Parts:
    """One group, whose nodes are these hosts and no others."""
    flavors = {"flavors": (flavor,)} if flavor else {}
    settings = {"nodes": fold(pool.addresses), **flavors, **wish.settings}
    return Parts(
        HOSTS,
        groups={group: {**settings, "addresses": pool.addresses}},
        partition=wish.partition,
    )


# --- text ------------------------------------------------------------------------------------


def mark(source: str) -> str:
    """The comment of an entry that an import made, by which the next one knows it."""
    return f"# by tide import {source}"


def render(parts: Parts) -> str:
    """The parts alone, to be pasted."""
    both = partition(parts.partition, tuple(parts.groups), default=True)
    sections = {"flavors": parts.flavors, "groups": parts.groups, "partitions": both}
    lines: list[str] = []
    for name, entries in sections.items():
        if entries:
            lines += [f"{name}:", *_entries(entries, parts.source)]
    return "\n".join(lines)


def partition(name: str, groups: Sequence[str], *, default: bool) -> Mapping[str, Entry]:
    """Over these groups; none if there are none."""
    entry: Entry = {"groups": tuple(groups), **({"default": "true"} if default else {})}
    return {name: entry} if groups else {}


def _entries(entries: Mapping[str, Entry], source: str) -> Iterator[str]:
    for name, entry in entries.items():
        yield from render_entry(name, entry, source, "  ")


def render_entry(name: str, entry: Entry, source: str, indent: str) -> list[str]:
    """One line; addresses have one each, so that they can be read."""
    addresses = entry.get("addresses")
    if not isinstance(addresses, Mapping):
        return [f"{indent}{scalar(name)}: {render_value(entry)}  {mark(source)}"]
    rest = {key: value for key, value in entry.items() if key != "addresses"}
    return [
        f"{indent}{scalar(name)}:  {mark(source)}",
        *(f"{indent}  {key}: {render_value(value)}" for key, value in rest.items()),
        f"{indent}  addresses:",
        *(f"{indent}    {scalar(host)}: {at}" for host, at in addresses.items()),
    ]


def render_value(value: Value | Entry) -> str:
    match value:
        case Mapping():
            pairs = (f"{scalar(key)}: {render_value(each)}" for key, each in value.items())
            return f"{{{', '.join(pairs)}}}"
        case int():
            return str(value)
        case str():
            return "true" if value == "true" else scalar(value)
    return f"[{', '.join(scalar(each) for each in value)}]"


def scalar(text: str) -> str:
    """In quotes where YAML could take it for something else."""
    plain = _PLAIN.fullmatch(text) and text.lower() not in _WORDS
    return text if plain or re.fullmatch("[0-9]+M", text) else f'"{text}"'
