"""Edits of single entries that an import made; `into` calls it."""

import re
from collections.abc import Iterator, Mapping
from typing import Any

from ruamel.yaml.nodes import MappingNode, Node, SequenceNode

from springtide import nodeset
from springtide.imports.parts import Entry, mark, render_value, scalar
from springtide.spec import editing
from springtide.spec.editing import Edit, NotEditable
from springtide.spec.source import own

CHANGED: Mapping[str, tuple[str, ...]] = {
    "flavors": ("cpus", "memory", "sockets", "threads"),
    "groups": ("nodes", "addresses"),
    "partitions": ("groups",),
}
"""What an import changes of an entry that is there; the rest may be a person's by now."""
_REST = re.compile(r"[^\r\n]*")
_LINE_END = re.compile(r"\r\n|\r|\n|\Z")
_COLON = re.compile(r"[ \t]*:")


def entries(text: str, root: MappingNode, section: str) -> list[editing.Entry]:
    """Those of a section, in their order."""
    top = editing.entry(text, root, section)
    if top is None or not isinstance(top.value, MappingNode) or top.is_alias:
        return []
    return [editing.Entry(text, top.value, key, value) for key, value in own(top.value)]


def is_marked(one: editing.Entry, source: str) -> bool:
    """Whether the comment is on its first line."""
    start = int(one.key.start_mark.index)
    return mark(source) in one.text[start : line_rest(one.text, start)]


def line_rest(text: str, at: int) -> int:
    """The end of the line, without its line end."""
    found = _REST.match(text, at)
    assert found
    return found.end()


def colon(one: editing.Entry) -> int:
    """Behind the colon of a key."""
    found = _COLON.match(one.text, one.key_end)
    if found is None:
        raise NotEditable
    return found.end()


def end_of(one: editing.Entry) -> int:
    """Where the last of an entry is; the parser counts comments behind it as well."""
    return one.end if one.is_alias or one.is_missing else _last(one, one.value)


def _last(one: editing.Entry, value: Node) -> int:
    if isinstance(value, MappingNode) and not value.flow_style and own(value):
        return end_of(editing.Entry(one.text, value, *own(value)[-1]))
    if isinstance(value, SequenceNode) and not value.flow_style and value.value:
        return _last(one, value.value[-1])
    return int(value.end_mark.index)


# --- an entry that goes, and those that come -------------------------------------------------


def removal(one: editing.Entry) -> Edit:
    """All lines of an entry."""
    if not one.first_on_line:
        raise NotEditable
    start = int(one.key.start_mark.index) - int(one.key.start_mark.column)
    found = _LINE_END.match(one.text, line_rest(one.text, end_of(one)))
    assert found
    return Edit(start, found.end(), "")


def behind(last: editing.Entry, at: int, lines: str, *, gone: bool) -> Iterator[Edit]:
    """Lines behind the last entry, each of which begins with a line end."""
    if not gone:
        yield Edit(at, at, lines)
        return
    end = removal(last).end
    text = lines.lstrip("\r\n")
    tail = last.text[at:end]
    yield Edit(end, end, f"{text}{tail}")


# --- an entry that stays ---------------------------------------------------------------------


def edits(one: editing.Entry, section: str, wanted: Entry) -> Iterator[Edit]:
    """What is another in an entry that is there."""
    if not isinstance(one.value, MappingNode) or one.is_alias:
        raise NotEditable
    for key in CHANGED[section]:
        found = editing.entry(one.text, one.value, key)
        if found is None or key not in wanted:
            continue
        yield from _edit(found, wanted[key])
    if section == "groups":
        yield from _smaller(one, str(wanted["nodes"]))


def _edit(found: editing.Entry, value: Any) -> Iterator[Edit]:
    match value:
        case Mapping():
            yield from _addresses(found, value)
        case str() | int():
            if str(found.value.value) != str(value):
                yield editing.replace(found, value)
        case _:
            yield from _list(found, list(value))


def _list(found: editing.Entry, value: list[str]) -> Iterator[Edit]:
    node = found.value
    if not isinstance(node, SequenceNode) or found.is_alias:
        raise NotEditable
    if [item.value for item in node.value] == value:
        return
    if not node.flow_style:
        raise NotEditable
    yield Edit(int(node.start_mark.index), int(node.end_mark.index), render_value(value))


def _smaller(one: editing.Entry, nodes: str) -> Iterator[Edit]:
    """No more nodes can be always up than there are."""
    found = editing.entry(one.text, one.value, "min")
    count = len(nodeset.expand(nodes))
    if found and str(found.value.value).isdecimal() and int(found.value.value) > count:
        yield editing.replace(found, count)


def _addresses(found: editing.Entry, value: Mapping[str, str]) -> Iterator[Edit]:
    """Lines that stay keep their comments."""
    node = found.value
    if not isinstance(node, MappingNode) or found.is_alias:
        raise NotEditable
    if node.flow_style or not node.value:
        old = {key.value: each.value for key, each in own(node)}
        if old != dict(value):
            start, end = int(node.start_mark.index), int(node.end_mark.index)
            yield Edit(start, end, render_value(value))
        return
    yield from _address_lines([editing.Entry(found.text, node, *pair) for pair in own(node)], value)


def _address_lines(there: list[editing.Entry], value: Mapping[str, str]) -> Iterator[Edit]:
    for one in there:
        if one.key.value not in value:
            yield removal(one)
        elif one.value.value != value[one.key.value]:
            yield editing.replace(one, value[one.key.value])
    names = {one.key.value for one in there}
    last = there[-1]
    fresh = [f"{scalar(host)}: {at}" for host, at in value.items() if host not in names]
    if fresh:
        at = line_rest(last.text, end_of(last))
        indent = " " * int(last.key.start_mark.column)
        line_end = "\r\n" if "\r\n" in last.text else "\n"
        lines = "".join(f"{line_end}{indent}{line}" for line in fresh)
        yield from behind(last, at, lines, gone=last.key.value not in value)
