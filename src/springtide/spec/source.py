"""From the text of a YAML file to plain data, with the place of every key and value.

Values stay the text that stands in the file: node names like 007 keep their zeros, versions
like 1.10 their last one. `springtide.spec.values` knows what each text means. ruamel.yaml
reads the syntax; nothing in the file can make it build any object. Called by `read`.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from ruamel.yaml import YAML
from ruamel.yaml.error import MarkedYAMLError, YAMLError
from ruamel.yaml.nodes import MappingNode, Node, ScalarNode, SequenceNode

from springtide.spec.problems import Problem, SpecError
from springtide.spec.values import shown

MAX_SIZE = 500_000  # of a file in bytes; the parser may need some seconds for it
MAX_VALUES = 100_000  # aliases make many values from few characters
MAX_DEPTH = 20

Path = tuple[str | int, ...]

_MERGE = "tag:yaml.org,2002:merge"
_NULL = "tag:yaml.org,2002:null"
_TAG = re.compile("tag:yaml.org,2002:(map|seq|str|null|bool|int|float|timestamp|merge|value)")
# Escapes and directives that the parser trips over without saying where.
_ODD = re.compile(r"\\U(?!000|0010)|^%", re.MULTILINE)
_NO_TEXT = re.compile(r"[^\t\n\r\x20-\x7e\x85\xa0-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")


@dataclass(frozen=True, slots=True)
class Place:
    line: int
    column: int


@dataclass(slots=True)
class Document:
    """The data of a file, and where things stand in it."""

    name: str
    root: MappingNode
    data: Any = None
    keys: dict[Path, Place] = field(default_factory=dict)
    values: dict[Path, Place] = field(default_factory=dict)
    problems: list[Problem] = field(default_factory=list)

    def key(self, path: Path, message: str) -> Problem:
        """A problem with a key, or with what is nearest above it."""
        while path and path not in self.keys:
            path = path[:-1]
        return self.at(self.keys.get(path, self.values[()]), message)

    def value(self, path: Path, message: str) -> Problem:
        """A problem with a value, or with the key that it is missing from."""
        place = self.values.get(path)
        return self.at(place, message) if place else self.key(path, message)

    def at(self, place: Place, message: str) -> Problem:
        return Problem(self.name, place.line, place.column, message)


def read(text: str, name: str, first: str = "`cluster: NAME`") -> Document:
    """The data of the text; SpecError if it is no mapping in YAML. `first` is what it must have."""
    _refuse_no_text(text, name)
    root = _compose(text, name)
    if root is None:
        raise error(name, None, f"the file is empty; it needs at least {first}")
    if not isinstance(root, MappingNode):
        raise error(name, _place(root), f"the file must be a mapping of keys, {first} first")
    document = Document(name, root)
    document.data = _Reader(document).build(root, ())
    return document


def _refuse_no_text(text: str, name: str) -> None:
    if len(text) > MAX_SIZE:
        raise too_long(name)
    if bad := _NO_TEXT.search(text):
        place = place_of(text, bad.start())
        raise error(name, place, f"the character {bad[0]!a} is here; is this a text file?")


def place_of(text: str, offset: int) -> Place:
    line_start = text.rfind("\n", 0, offset) + 1
    return Place(text.count("\n", 0, offset) + 1, offset - line_start + 1)


def _compose(text: str, name: str) -> Node | None:
    yaml = YAML(typ="safe", pure=True)
    yaml.composer.warn_double_anchors = False  # YAML allows them, and the last one counts
    try:
        node: Node | None = yaml.compose(text)
    except MarkedYAMLError as fault:
        raise _syntax_error(fault, text, name) from None
    except RecursionError:
        raise _too_deep(name, None) from None
    except YAMLError as fault:
        raise error(name, None, f"not valid YAML: {' '.join(str(fault).split())}") from None
    except Exception:  # AssertionError, OverflowError and the like
        odd = _ODD.search(text)
        place = place_of(text, odd.start()) if odd else None
        raise error(name, place, "not valid YAML: the parser cannot read this") from None
    return node


def _syntax_error(fault: MarkedYAMLError, text: str, name: str) -> SpecError:
    mark = fault.problem_mark or fault.context_mark
    if mark is None:
        return error(name, None, f"not valid YAML: {fault.problem}")
    place = Place(mark.line + 1, mark.column + 1)
    before, at = text[: mark.index][-1:], text[mark.index :][:1]
    if at == "\t":
        return error(name, place, "a tab is here; YAML is indented with spaces")
    if at == "[" and before.strip():
        hint = 'inside { } or [ ] put host lists in quotes, as in {nodes: "a[1-9]"}'
        return error(name, place, f"not valid YAML: {hint}")
    problem = " ".join(f"{fault.context or ''} {fault.problem or ''}".split())
    return error(name, place, f"not valid YAML: {problem[:200]}")


def error(name: str, place: Place | None, message: str) -> SpecError:
    line, column = (place.line, place.column) if place else (None, None)
    return SpecError([Problem(name, line, column, message)])


def too_long(name: str) -> SpecError:
    return error(name, None, f"the file is longer than {MAX_SIZE // 1000} kB; is it the right one?")


def _too_deep(name: str, place: Place | None) -> SpecError:
    return error(name, place, "lists and mappings are nested too deeply for a cluster file")


def _place(node: Node) -> Place:
    return Place(node.start_mark.line + 1, node.start_mark.column + 1)


@dataclass(slots=True)
class _Reader:
    """Builds data from nodes and notes their places."""

    document: Document
    count: int = 0

    def build(self, node: Node, path: Path) -> Any:
        self._count(node, path)
        self.document.values[path] = _place(node)
        self._refuse_tag(node)
        if isinstance(node, MappingNode):
            return self._mapping(node, path)
        if isinstance(node, SequenceNode):
            return [self.build(item, (*path, i)) for i, item in enumerate(node.value)]
        return None if is_null(node) else node.value

    def _count(self, node: Node, path: Path) -> None:
        self.count += 1
        if len(path) > MAX_DEPTH:
            raise _too_deep(self.document.name, _place(node))
        if self.count > MAX_VALUES:
            message = f"the file holds more than {MAX_VALUES} values"
            raise error(self.document.name, _place(node), message)

    def _refuse_tag(self, node: Node) -> None:
        if not _TAG.fullmatch(str(node.tag)):
            self._note(node, f"the tag {shown(str(node.tag))} means nothing here; remove it")

    def _mapping(self, node: MappingNode, path: Path) -> dict[str, Any]:
        data: dict[str, Any] = {}
        for key, value in own(node):
            if not isinstance(key, ScalarNode):
                self._note(key, "a key must be a word, not a list or a mapping")
            elif key.value in data:
                first = self.document.keys[*path, key.value].line
                self._note(key, f"the key {key.value!r} is here twice, first in line {first}")
            else:
                self._entry(key, value, path, data)
        for key, value in self._merged(node, set()):
            if key.value not in data:
                self._entry(key, value, path, data)
        return data

    def _entry(self, key: Node, value: Node, path: Path, data: dict[str, Any]) -> None:
        self.document.keys[*path, key.value] = _place(key)
        data[key.value] = self.build(value, (*path, key.value))
        if value.start_mark.index == value.end_mark.index:  # nothing, placed where the next key is
            self.document.values[*path, key.value] = _place(key)

    def _merged(self, node: MappingNode, seen: set[int]) -> Iterator[tuple[Node, Node]]:
        """The entries that `<<: *other` brings in, from each other mapping once."""
        merges = [value for key, value in node.value if key.tag == _MERGE]
        for other in (o for m in merges for o in (m.value if _is_list(m) else [m])):
            if not isinstance(other, MappingNode):
                self._note(other, "after << must come a mapping, such as *name")
            elif id(other) not in seen:
                seen.add(id(other))
                yield from ((k, v) for k, v in own(other) if isinstance(k, ScalarNode))
                yield from self._merged(other, seen)

    def _note(self, node: Node, message: str) -> None:
        self.document.problems.append(self.document.at(_place(node), message))


def is_null(node: Node) -> bool:
    return bool(node.tag == _NULL)


def _is_list(node: Node) -> bool:
    return isinstance(node, SequenceNode)


def own(node: MappingNode) -> list[tuple[Node, Node]]:
    """The entries that stand in a mapping itself, without those that `<<` brings in."""
    return [(key, value) for key, value in node.value if key.tag != _MERGE]
