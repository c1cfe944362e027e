"""What must fit together in a cluster file, beyond the shape of its values.

`check` takes the plain data of a file, also one whose shape is wrong in places: it skips what
it cannot read, so that a person sees all mistakes at once. Called by Cluster and by `read`.
"""

from collections import Counter, defaultdict
from collections.abc import Collection, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from pydantic_core import InitErrorDetails, PydanticCustomError

from springtide import nodeset
from springtide.spec import rendered
from springtide.spec.problems import folded, suggest
from springtide.spec.values import parse_number, shown

Loc = tuple[str | int, ...]
Data = Mapping[str, Any]

KEY = "key"
VALUE = "value"
RESERVED = frozenset({"ALL", "DEFAULT", "NONE"})


@dataclass(frozen=True, slots=True)
class Finding:
    """Something that does not fit, and whether its place is a key or the key's value."""

    loc: Loc
    message: str
    place: str = VALUE

    @property
    def detail(self) -> InitErrorDetails:
        error = PydanticCustomError("inconsistent", "{message}", self._context)
        return InitErrorDetails(type=error, loc=self.loc, input=None)

    @property
    def _context(self) -> dict[str, Any]:
        return {"message": self.message, "place": self.place}


def check(data: Data) -> list[Finding]:
    names = _names(data)
    return [
        *_undefined_names(data),
        *_reserved_names(data),
        *_reserved_nodes(names),
        *_repeated_nodes(names),
        *_shared_nodes(names),
        *_too_many_up(data, names),
        *_second_defaults(data),
        *_rendered_parameters(data),
        *_changed_host_image(data),
    ]


# Reading what can be read


def _all(data: Data, key: str) -> Mapping[str, Any]:
    """The entries of a section, wrong ones too: a name is defined even if its entry is wrong."""
    section = data.get(key)
    return section if isinstance(section, dict) else {}


def _readable(data: Data, key: str) -> Mapping[str, Data]:
    """The entries of a section that are mappings; one with nothing in it is an empty mapping."""
    entries = {k: {} if v is None else v for k, v in _all(data, key).items()}
    return {k: v for k, v in entries.items() if isinstance(v, dict)}


def _words(value: object) -> list[tuple[int, str]]:
    """The texts of a list, with their places in it."""
    items = value if isinstance(value, list | tuple) else ()
    return [(i, item) for i, item in enumerate(items) if isinstance(item, str)]


def _names(data: Data) -> dict[str, list[str]]:
    """The nodes of each group whose host list can be read."""
    names = {}
    for key, group in _readable(data, "groups").items():
        text = group.get("nodes") or ""
        if isinstance(text, str):
            with suppress(nodeset.NodeNameError):
                names[key] = nodeset.expand(text.strip()) if text.strip() else []
    return names


# What is defined, and what it may be called


def _undefined_names(data: Data) -> Iterator[Finding]:
    flavors = list(_all(data, "flavors")) or ["default"]
    images = list({"host": None, **_all(data, "images")})
    for key, group in _readable(data, "groups").items():
        who, loc = f"group {key!r}", ("groups", key)
        for i, name in _words(group.get("flavors") or ["default"]):
            yield from _undefined((*loc, "flavors", i), who, "flavor", name, flavors)
        for _, name in _words([group.get("image")]):
            yield from _undefined((*loc, "image"), who, "image", name, images)
    groups = list(_all(data, "groups"))
    for key, partition in _readable(data, "partitions").items():
        for i, name in _words(partition.get("groups")):
            loc_of_name = ("partitions", key, "groups", i)
            yield from _undefined(loc_of_name, f"partition {key!r}", "group", name, groups)


def _undefined(loc: Loc, who: str, kind: str, name: str, defined: list[str]) -> Iterator[Finding]:
    if name not in defined:
        hint = suggest(name, defined, f"defined {kind}s")
        yield Finding(loc, f"{who} uses the {kind} {shown(name)}, which is not defined; {hint}")


def _reserved_names(data: Data) -> Iterator[Finding]:
    for section in ("groups", "partitions"):
        for key in _all(data, section):
            if key.upper() in RESERVED:
                yield Finding((section, key), _reserved(section[:-1], key), KEY)


def _reserved_nodes(names: Mapping[str, list[str]]) -> Iterator[Finding]:
    for key, members in names.items():
        for name in members:
            if name.upper() in RESERVED:
                yield Finding(("groups", key, "nodes"), _reserved("node", name))


def _reserved(kind: str, name: str) -> str:
    return f"a {kind} cannot be called {name!r}, a word with a meaning of its own in Slurm"


def _changed_host_image(data: Data) -> Iterator[Finding]:
    image = _readable(data, "images").get("host", {})
    if str(image.get("path", "/")) != "/":
        message = "the image 'host' is always this machine's own root; choose another name"
        yield Finding(("images", "host"), message, KEY)


# Nodes and their groups


def _repeated_nodes(names: Mapping[str, list[str]]) -> Iterator[Finding]:
    for key, members in names.items():
        if len(set(members)) < len(members):
            twice = [name for name, count in Counter(members).items() if count > 1]
            message = f"{_nodes(twice)} named twice in group {key!r}; name each once"
            yield Finding(("groups", key, "nodes"), message)


def _shared_nodes(names: Mapping[str, list[str]]) -> Iterator[Finding]:
    owner: dict[str, str] = {}
    for key, members in names.items():
        shared = defaultdict(list)
        for name in members:
            if name in owner:
                shared[owner[name]].append(name)
        for other, both in shared.items():
            where = f"in group {other!r} and in group {key!r}"
            message = f"{_nodes(both)} {where}; a node belongs to one group"
            yield Finding(("groups", key, "nodes"), message)
        owner = dict.fromkeys(members, key) | owner


def _nodes(names: Collection[str]) -> str:
    return f"node {folded(names)} is" if len(names) == 1 else f"nodes {folded(names)} are"


def _too_many_up(data: Data, names: Mapping[str, list[str]]) -> Iterator[Finding]:
    groups = _readable(data, "groups")
    for key, members in names.items():
        wanted = parse_number(groups[key].get("min")) or 0
        if wanted > len(members):
            has = f"group {key!r} has {len(members) or 'no'} node{'s' * (len(members) != 1)}"
            yield Finding(("groups", key, "min"), f"min is {wanted:g}, but {has}")


# Slurm


def _second_defaults(data: Data) -> Iterator[Finding]:
    partitions = _readable(data, "partitions")
    first, *others = [k for k, p in partitions.items() if p.get("default") in (True, "true")] or [
        ""
    ]
    for key in others:
        message = f"partitions {first!r} and {key!r} are both the default; only one can be"
        yield Finding(("partitions", key, "default"), message)


def _rendered_parameters(data: Data) -> Iterator[Finding]:
    batch = data.get("batch")
    parameters = _all(batch, "parameters") if isinstance(batch, dict) else {}
    yield from _rendered(("batch", "parameters"), parameters, rendered.SLURM)
    for key, partition in _readable(data, "partitions").items():
        loc = ("partitions", key, "parameters")
        yield from _rendered(loc, _all(partition, "parameters"), rendered.PARTITION)


def _rendered(loc: Loc, parameters: Data, reasons: Mapping[str, str]) -> Iterator[Finding]:
    written: dict[str, str] = {}
    for key in parameters:
        name = key.lower()
        if name in reasons:
            message = f"{key} is written by Springtide: {reasons[name]}"
            yield Finding((*loc, key), message, KEY)
        elif name in written:
            message = f"{key} and {written[name]} are the same parameter; give it once"
            yield Finding((*loc, key), message, KEY)
        written.setdefault(name, key)
