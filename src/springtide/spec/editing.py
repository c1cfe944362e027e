"""Changes single values in the text of a YAML file and leaves every other character alone.

Called by `rewrite`. It works by the places that the parser gives, so that comments, quotes,
indentation and line ends stay what they are; whether all means what it should is for the
caller to look at.
"""

import re
from collections.abc import Mapping, Sequence
from itertools import takewhile
from typing import NamedTuple

from ruamel.yaml.nodes import CollectionNode, MappingNode, Node, ScalarNode

from springtide.spec.source import is_null, own

Value = str | int

_ALIAS = re.compile(r"\s*:\s*\*[^\s,\[\]{}]+")
_COLON = re.compile(r"[ \t]*:")
_LINE_END = re.compile(r"\r\n|\r|\n|\Z")
_REST_OF_LINE = re.compile(r"[ \t]*(?:#[^\r\n]*)?(?=[\r\n]|\Z)")
_PLAIN = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]*(?:[A-Za-z0-9_.,\[\] -]*[A-Za-z0-9_.\]-])?")
_PLAIN_IN_FLOW = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]*")
_PROPERTIES = re.compile(r"(?:[&!][^\s]*(?:\s+|\Z))*")


class NotEditable(Exception):
    """The text is written in a way that leaves no place for a value."""


class Edit(NamedTuple):
    start: int
    end: int
    text: str


def apply(text: str, edits: Sequence[Edit]) -> str:
    """The text with all edits; those at one place come in their order."""
    pieces, at = [], 0
    for edit in sorted(edits, key=lambda edit: edit.start):
        pieces += [text[at : edit.start], edit.text]
        at = edit.end
    return "".join([*pieces, text[at:]])


class Entry(NamedTuple):
    """A key and its value in a mapping of a text."""

    text: str
    parent: MappingNode
    key: Node
    value: Node

    @property
    def flow(self) -> bool:
        return bool(self.parent.flow_style)

    @property
    def key_end(self) -> int:
        return int(self.key.end_mark.index)

    @property
    def is_alias(self) -> bool:
        """An anchor stands before its aliases; the parser gives its place for all of them."""
        return int(self.value.start_mark.index) < self.key_end

    @property
    def is_missing(self) -> bool:
        return bool(self.value.start_mark.index == self.value.end_mark.index)

    @property
    def end(self) -> int:
        """Where the value ends, or would end."""
        if self.is_alias:
            return _match(_ALIAS, self.text, self.key_end).end()
        if self.is_missing:
            colon = _COLON.match(self.text, self.key_end)
            return colon.end() if colon else self.key_end
        return int(self.value.end_mark.index)

    @property
    def first_on_line(self) -> bool:
        before = self.text[: self.key.start_mark.index].rstrip(" ")
        return before[-1:] in ("", "\n", "\r", "\ufeff")


def entry(text: str, parent: Node, key: str) -> Entry | None:
    if not isinstance(parent, MappingNode):
        return None
    for found, value in own(parent):
        inside = parent.start_mark.index <= found.start_mark.index < parent.end_mark.index
        if found.value == key and inside:
            return Entry(text, parent, found, value)
    return None


def _match(pattern: re.Pattern[str], text: str, at: int) -> re.Match[str]:
    if found := pattern.match(text, at):
        return found
    raise NotEditable


# A key that is there


def replace(one: Entry, value: Value) -> Edit:
    """Another value for a key that is there."""
    if one.is_alias:
        start = one.text.rindex("*", one.key_end, one.end)
        return Edit(start, one.end, _scalar(value, flow=one.flow))
    if one.is_missing:
        return _fill(one, _scalar(value, flow=one.flow))
    if not isinstance(one.value, ScalarNode):
        raise NotEditable
    return _replace_end(one, one.value, str(value)) or _replace_all(one, one.value, value)


def _fill(one: Entry, text: str) -> Edit:
    if one.end > one.key_end:
        return Edit(one.end, one.end, f" {text}")
    if not one.flow:
        raise NotEditable
    return Edit(one.end, one.end, f": {text}")


def _replace_end(one: Entry, node: ScalarNode, new: str) -> Edit | None:
    """Only the end of the value, from where it changes: it may go over several lines."""
    raw = one.text[node.start_mark.index : one.end]
    old = node.value.rstrip()
    keeps_style = node.style or _is_plain(new, flow=one.flow)
    if is_null(node) or not old or not keeps_style or "\\" in raw:
        return None
    same = min(_common(old, new), len(old) - 1)
    at = node.start_mark.index + raw.rfind(old[same:])
    if at < node.start_mark.index:
        return None
    return Edit(at, at + len(old) - same, new[same:])


def _common(one: str, other: str) -> int:
    """How many characters are the same from the start."""
    pairs = zip(one, other, strict=False)
    return sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], pairs))


def _replace_all(one: Entry, node: ScalarNode, value: Value) -> Edit:
    if node.style in ("|", ">"):
        raise NotEditable
    return _behind_properties(one, _scalar(value, flow=one.flow, quote=node.style or ""))


def _behind_properties(one: Entry, text: str) -> Edit:
    """In place of a value, but for its anchor and its tag, which must fit the new value too."""
    start = one.value.start_mark.index
    properties = _match(_PROPERTIES, one.text[start : one.end], 0)
    if one.is_alias or (is_null(one.value) and "!" in properties[0]):
        raise NotEditable
    space = " " if properties[0][-1:].strip() else ""
    return Edit(start + properties.end(), one.end, f"{space}{text}")


def _scalar(value: Value, *, flow: bool, quote: str = "") -> str:
    text = str(value)
    if quote or not (isinstance(value, int) or _is_plain(text, flow=flow)):
        quote = quote or '"'
    return f"{quote}{text}{quote}"


def _is_plain(text: str, *, flow: bool) -> bool:
    pattern = _PLAIN_IN_FLOW if flow else _PLAIN
    return pattern.fullmatch(text) is not None and text.lower() != "null"


# A key that is not there


def insert(parent: Entry, key: str, value: Value, after: Sequence[str]) -> Edit:
    """A new key in a mapping: behind the last of these keys that it has, else in front."""
    mapping = parent.value
    assert isinstance(mapping, MappingNode)
    first = Entry(parent.text, mapping, *mapping.value[0])
    written = _pair(first, key, value, flow=first.flow)
    for other in reversed(after):
        found = entry(parent.text, mapping, other)
        if found and (at := _behind(found)) is not None:
            return Edit(at, at, f"{_between(first, at)}{written}")
    at = first.key.start_mark.index
    if not (first.flow or first.first_on_line):
        raise NotEditable
    return Edit(at, at, f"{written}{_between(first, at)}")


def fill(parent: Entry, values: Mapping[str, Value], *, indent: int) -> Edit:
    """The first keys of a mapping that has none, or of a key with nothing behind it."""
    if parent.is_missing and not parent.flow:
        return _fill_block(parent, values, indent)
    pairs = ", ".join(_pair(parent, key, value, flow=True) for key, value in values.items())
    if isinstance(parent.value, MappingNode):
        at = parent.text.index("{", parent.value.start_mark.index) + 1
        return Edit(at, at, pairs)
    if parent.is_missing:
        return _fill(parent, f"{{{pairs}}}")
    return _behind_properties(parent, f"{{{pairs}}}")


def _fill_block(parent: Entry, values: Mapping[str, Value], indent: int) -> Edit:
    if not parent.first_on_line:
        raise NotEditable
    at = _match(_REST_OF_LINE, parent.text, parent.end).end()
    line = _line_end(parent.text, at) + " " * (parent.key.start_mark.column + indent)
    pairs = [_pair(parent, key, value, flow=False) for key, value in values.items()]
    return Edit(at, at, "".join(f"{line}{pair}" for pair in pairs))


def _behind(one: Entry) -> int | None:
    """Where another key can come behind this one."""
    if one.flow:
        return None if one.is_missing else one.end
    if not one.first_on_line or (_has_lines(one.value) and not one.is_alias):
        return None
    rest = _REST_OF_LINE.match(one.text, one.end)
    return rest.end() if rest else None


def _has_lines(value: Node) -> bool:
    """Whether it goes on to the next key, and its end cannot be told from a comment's."""
    if isinstance(value, ScalarNode):
        return value.style in ("|", ">")
    return isinstance(value, CollectionNode) and not value.flow_style


def _pair(like: Entry, key: str, value: Value, *, flow: bool) -> str:
    """A key and its value, in quotes where the other key is."""
    quote = like.text[like.key.start_mark.index]
    quote = quote if quote in ("'", '"') else ""
    quoted = "" if isinstance(value, int) else quote
    return f"{quote}{key}{quote}: {_scalar(value, flow=flow, quote=quoted)}"


def _between(first: Entry, at: int) -> str:
    if first.flow:
        return ", "
    return _line_end(first.text, at) + " " * int(first.key.start_mark.column)


def _line_end(text: str, at: int) -> str:
    """The line end that is used here, or at least in this file."""
    found = _LINE_END.search(text, at)
    if found and found[0]:
        return found[0]
    return next((end[0] for end in _LINE_END.finditer(text) if end[0]), "\n")
