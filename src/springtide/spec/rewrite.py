"""A cluster file with other sizes or images of some groups, and otherwise as a person wrote it.

`tide resize` and `tide rebuild --image` call it: there is one copy of what is wanted, the file,
and its comments are a person's. Line ends must be in the text as they are in the file (read it
with newline=""). Pure: nothing is written here.
"""

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from ruamel.yaml.nodes import MappingNode, Node

from springtide import nodeset
from springtide.spec import editing, environment, source
from springtide.spec.cluster import Cluster
from springtide.spec.editing import Edit, Entry, NotEditable, Value
from springtide.spec.growth import NoNumber, grown, invented
from springtide.spec.parts import Group, NoProvider
from springtide.spec.problems import Problem, SpecError, UnknownGroup, folded, short, suggest
from springtide.spec.read import build
from springtide.spec.values import shown

Settings = Mapping[str, Value]
"""Keys of a group, with their new values."""

MAX_SIZE = nodeset.MAX_RANGE  # of a group that grows
_ORDER = list(Group.model_fields)
_INDENT = 2
_ABSENT = object()


@dataclass(frozen=True, slots=True)
class _File:
    """A file that is to be changed."""

    text: str
    document: source.Document
    cluster: Cluster

    def refusal(self, group: str, key: str, message: str) -> SpecError:
        return SpecError([self.document.value(("groups", group, key), message)])


def resized(text: str, name: str, sizes: Mapping[str, int]) -> str:
    """The text with another `min` of these groups, and more names where they have too few."""
    file = _read(text, name, sizes)
    taken = dict(file.cluster.node_group)
    settings: dict[str, Settings] = {}
    for group, size in sizes.items():
        settings[group] = _size(file, group, size, taken)
        if nodes := settings[group].get("nodes"):
            taken |= dict.fromkeys(nodeset.expand(str(nodes)), group)
    return _rewritten(file, settings)


def reimaged(text: str, name: str, images: Mapping[str, str]) -> str:
    """The text with another `image` of these groups."""
    file = _read(text, name, images)
    return _rewritten(file, {group: _image(file, group, image) for group, image in images.items()})


def _read(text: str, name: str, groups: Collection[str]) -> _File:
    document = source.read(text, name)
    file = _File(text, document, build(document))
    known = file.cluster.groups
    for group in groups:
        if group not in known:
            hint = suggest(group, list(known), "groups")
            message = f"there is no group {shown(group)}; {hint}"
            raise UnknownGroup([Problem(name, None, None, message)])
        if isinstance(file.cluster.provider_of(group), NoProvider):
            raise file.refusal(group, "provider", _untouched(group))
    return file


def _untouched(group: str) -> str:
    never = "are never created, deleted or rebuilt, for their provider is 'none'"
    return f"the nodes of group {group!r} {never}; leave this group out"


# Sizes and images


def _size(file: _File, group: str, size: int, taken: Mapping[str, str]) -> Settings:
    members = file.cluster.names(group)
    most = max(MAX_SIZE, len(members))
    if not 0 <= size <= most:
        message = f"group {group!r} cannot have {size} nodes; choose a size from 0 to {most}"
        raise file.refusal(group, "min", message)
    if size == file.cluster.groups[group].min:
        return {}
    if size <= len(members):
        return {"min": size}
    return {"nodes": _more_names(file, group, size, taken), "min": size}


def _more_names(file: _File, group: str, size: int, taken: Mapping[str, str]) -> str:
    text = file.cluster.groups[group].nodes
    try:
        more = grown(text, size) if text else invented(file.cluster.cluster, group, size, taken)
    except NoNumber as fault:
        reason = f"its last name, {str(fault)!r}, has no number that could go on"
        raise _no_names(file, group, size, reason) from None
    except nodeset.NodeNameError:
        reason = "the names that it would get are longer than a name may be"
        raise _no_names(file, group, size, reason) from None
    if both := [name for name in nodeset.expand(more) if taken.get(name, group) != group]:
        owners = ", ".join(repr(owner) for owner in dict.fromkeys(taken[name] for name in both))
        raise _no_names(file, group, size, f"its next names, {folded(both)}, are in {owners}")
    return more


def _no_names(file: _File, group: str, size: int, reason: str) -> SpecError:
    has = len(file.cluster.names(group))
    names = f"{has or 'no'} name{'s' * (has != 1)}"
    message = f"group {group!r} has {names} and cannot grow to {size} nodes: {reason}"
    return file.refusal(group, "nodes", f"{message}; add names to its `nodes` first")


def _image(file: _File, group: str, image: str) -> Settings:
    known = file.cluster.images
    if image not in known:
        message = f"there is no image {shown(image)}; {suggest(image, list(known), 'images')}"
        raise file.refusal(group, "image", message)
    if held := environment.applied(file.document.data).setting("groups", group, "image"):
        message = f"{held.variable.name} of the service's environment sets it; change it there"
        raise file.refusal(group, "image", message)
    return {} if image == file.cluster.image_of(group) else {"image": image}


# The text


def _rewritten(file: _File, settings: Mapping[str, Settings]) -> str:
    changed = {group: changes for group, changes in settings.items() if changes}
    edits = [edit for group, changes in changed.items() for edit in _edits(file, group, changes)]
    text = editing.apply(file.text, edits)
    _check(file, source.read(text, file.document.name), changed)
    return text


def _edits(file: _File, group: str, changes: Settings) -> Iterator[Edit]:
    try:
        yield from _edits_of(file, group, changes)
    except NotEditable:
        by_hand = ", ".join(f"`{key}: {value}`" for key, value in changes.items())
        message = f"group {group!r} is written in a way that only a person can change"
        problem = file.document.key(("groups", group), f"{message}; write {by_hand} there")
        raise SpecError([problem]) from None


def _edits_of(file: _File, group: str, changes: Settings) -> Iterator[Edit]:
    groups = _entry(file.text, file.document.root, "groups")
    parent = _entry(file.text, groups.value, group)
    if not isinstance(parent.value, MappingNode) or not parent.value.value:
        indent = parent.key.start_mark.column - groups.key.start_mark.column
        yield editing.fill(parent, changes, indent=indent if indent > 0 else _INDENT)
        return
    for key, value in changes.items():
        if found := editing.entry(file.text, parent.value, key):
            yield editing.replace(found, value)
        else:
            yield editing.insert(parent, key, value, _ORDER[: _ORDER.index(key)])


def _entry(text: str, parent: Node, key: str) -> Entry:
    if found := editing.entry(text, parent, key):
        return found
    raise NotEditable


# Whether the new text means what it should


def _check(file: _File, new: source.Document, settings: Mapping[str, Settings]) -> None:
    """Nothing else may have changed; what can have done so is what an anchor stands for."""
    before, after = _others(file.document.data, settings), _others(new.data, settings)
    if changed := list(_differences(before, after)):
        assert "&" in file.text, f"{changed} have changed too"
        raise _shared(file, settings, changed)
    groups = {key: group.but(**settings.get(key, {})) for key, group in file.cluster.groups.items()}
    assert build(new) == file.cluster.but(groups=groups), "the new text means something else"


def _others(data: Any, settings: Mapping[str, Settings]) -> Any:
    """The data of a file without what is to change."""
    groups = dict(data["groups"])
    for group, changes in settings.items():
        groups[group] = {k: v for k, v in (groups[group] or {}).items() if k not in changes}
    return {**data, "groups": groups}


def _differences(one: Any, other: Any, *path: str) -> Iterator[str]:
    if isinstance(one, dict) and isinstance(other, dict):
        for key in one | other:
            yield from _differences(one.get(key, _ABSENT), other.get(key, _ABSENT), *path, key)
    elif one != other:
        yield ".".join(path)


def _shared(file: _File, settings: Mapping[str, Settings], changed: list[str]) -> SpecError:
    group, changes = next(iter(settings.items()))
    key = next(iter(changes))
    message = f"{key} of group {group!r} cannot be changed here: {short(', '.join(changed))} would"
    why = "change with it, for an anchor stands for both; write them out"
    return file.refusal(group, key, f"{message} {why}")
