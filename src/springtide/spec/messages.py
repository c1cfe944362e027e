"""Turns pydantic's errors into sentences for people; called by `read`."""

from collections.abc import Iterator, Mapping
from typing import Any, get_args

from pydantic import ValidationError
from pydantic_core import ErrorDetails

from springtide.nodeset import NodeNameError
from springtide.spec import clouds
from springtide.spec.cluster import Cluster
from springtide.spec.findings import KEY, Finding, Loc
from springtide.spec.parts import (
    Containers,
    FakeBatch,
    FakeProvider,
    Flavor,
    Group,
    Image,
    NoProvider,
    Partition,
    Slurm,
)
from springtide.spec.problems import suggest
from springtide.spec.queues import GridEngine, OpenPbs, Torque
from springtide.spec.strict import Strict
from springtide.spec.values import MAX_SHOWN, shown

_ENTRIES: Mapping[str, tuple[str, type[Strict]]] = {
    "images": ("image", Image),
    "flavors": ("flavor", Flavor),
    "groups": ("group", Group),
    "partitions": ("partition", Partition),
}
_KINDS: Mapping[str, Mapping[str, type[Strict]]] = {
    "batch": {
        "slurm": Slurm,
        "torque": Torque,
        "openpbs": OpenPbs,
        "gridengine": GridEngine,
        "fake": FakeBatch,
    },
    "provider": {
        "containers": Containers,
        "openstack": clouds.OpenStack,
        "aws": clouds.Aws,
        "oci": clouds.Oci,
        "azure": clouds.Azure,
        "google": clouds.Google,
        "libvirt": clouds.Libvirt,
        "terraform": clouds.Terraform,
        "command": clouds.Command,
        "none": NoProvider,
        "fake": FakeProvider,
    },
}
_IN_KEY = "[key]"
_IGNORED = "default_factory_not_called"  # only says that there is another error
_MAPPING = "a mapping of keys to values"
_EXPECTED = {
    "dict_type": _MAPPING,
    "model_type": _MAPPING,
    "model_attributes_type": "a mapping, as in {kind: …}",
    "tuple_type": "a list, such as [a, b]",
    "too_short": "a list with something in it",
}


def explain(error: ValidationError) -> list[Finding]:
    """A sentence for each error, with its place in the file."""
    return [_explain(detail) for detail in error.errors() if detail["type"] != _IGNORED]


def _explain(error: ErrorDetails) -> Finding:
    loc = error["loc"]
    if error["type"] == "inconsistent":
        return Finding(loc, error["ctx"]["message"], error["ctx"]["place"])
    path = _path(loc)
    match error["type"]:
        case "extra_forbidden":
            return Finding(path, _unknown_key(loc, path), KEY)
        case "missing":
            return Finding(path[:-1], f"{_owner(path[:-1])} needs the key {path[-1]!r}", KEY)
        case "union_tag_invalid":
            return _wrong_kind(path, error)
    if loc[-1] == _IN_KEY:
        return Finding(path, f"the name of a {_named(path)}{_complaint(error)}", KEY)
    return Finding(path, f"{_subject(path)}{_complaint(error)}")


def _path(loc: Loc) -> Loc:
    """The path in the file: without the kinds and key marks that pydantic puts in."""
    if loc[0] in _KINDS:
        loc = (*loc[:1], *loc[2:])
    elif loc[0] == "groups" and loc[2:3] == ("provider",):
        loc = (*loc[:3], *loc[4:])
    return loc[:-1] if loc[-1] == _IN_KEY else loc


def _named(path: Loc) -> str:
    match path:
        case (str(section), _) if section in _ENTRIES:
            return _ENTRIES[section][0]
        case ("rebuild", *_):
            return "rebuild partition"
    return "parameter"


def _unknown_key(loc: Loc, path: Loc) -> str:
    key, owner = str(path[-1]), path[:-1]
    hint = suggest(key, list(_model(loc[:-1]).model_fields), "valid keys")
    where = f" in {_owner(owner)}" if owner else ""
    return f"unknown key {shown(key)}{where}; {hint}"


def _model(loc: Loc) -> type[Strict]:
    """The model that an error's keys belong to."""
    match loc:
        case (*_, "batch" | "provider" as part, str(kind)):
            return _KINDS[part][kind]
        case ("batch", str(kind), *rest):
            return _below(_KINDS["batch"][kind], tuple(rest))
    return _below(Cluster, loc)


def _below(model: type[Strict], loc: Loc) -> type[Strict]:
    """The model at the end of this way; names of entries and places in lists are passed over."""
    for part in loc:
        field = model.model_fields.get(str(part))
        model = next(_parts(field.annotation), model) if field else model
    return model


def _parts(annotation: Any) -> Iterator[type[Strict]]:
    if isinstance(annotation, type) and issubclass(annotation, Strict):
        yield annotation
    for part in get_args(annotation):
        yield from _parts(part)


def _wrong_kind(path: Loc, error: ErrorDetails) -> Finding:
    kinds = [kind for kind in _KINDS[str(path[-1])] if kind != "fake"]  # which is for tests
    kind = error["input"]["kind"]
    hint = suggest(str(kind), kinds, "valid kinds")
    message = f"kind of {_owner(path)} cannot be {shown(kind)}; {hint}"
    return Finding((*path, "kind"), message)


def _complaint(error: ErrorDetails) -> str:
    """What is wrong, to follow the name of the key."""
    if expected := _EXPECTED.get(error["type"]):
        return f" must be {expected}, not {shown(error['input'])}"
    if error["type"] == "literal_error":
        return f" must be {error['ctx']['expected']}, not {shown(error['input'])}"
    if error["type"] != "value_error":
        return f" is wrong: {error['msg']}"
    reason = error["ctx"]["error"]
    return f"{':' if isinstance(reason, NodeNameError) else ''} {reason}"


def _subject(path: Loc) -> str:
    if isinstance(path[-1], int):
        return f"item {path[-1] + 1} of {path[-2]}"
    return _owner(path) if len(path) == 2 and path[0] in _ENTRIES else _plain(path[-1])


def _owner(path: Loc) -> str:
    match path:
        case ():
            return "the file"
        case (str(section), str(name)) if section in _ENTRIES:
            return f"{_ENTRIES[section][0]} {name[:MAX_SHOWN]!r}"
        case ("groups", str(name), "provider"):
            return f"the provider of group {name[:MAX_SHOWN]!r}"
        case (*_, key, int(place)):
            return f"item {place + 1} of {key}"
    return _plain(path[-1])


def _plain(key: str | int) -> str:
    return str(key) if str(key).isidentifier() else shown(key)
