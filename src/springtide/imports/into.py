"""Imported parts in a cluster file, which otherwise stays as a person wrote it.

An entry that an import made has a comment that says so. The next import of that kind changes
their sizes, takes those out that are no more, and leaves all else alone, also what a person
has written into them: see `change`. Line ends must be in the text as they are in the file.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from ruamel.yaml.nodes import MappingNode

from springtide.imports import change
from springtide.imports.parts import LIMITS, Entry, Parts, partition, render_entry
from springtide.spec import editing, source
from springtide.spec.cluster import DEFAULT_FLAVOR, Cluster
from springtide.spec.editing import Edit, NotEditable
from springtide.spec.problems import Problem, SpecError
from springtide.spec.read import build
from springtide.spec.source import is_null, own

DEFAULT = "default"
KINDS = {"flavors": "flavor", "groups": "group", "partitions": "partition"}


@dataclass(frozen=True, slots=True)
class Merged:
    """A cluster file with the parts in it."""

    text: str
    cluster: Cluster
    notes: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class _File:
    text: str
    document: source.Document
    parts: Parts

    def section(self, name: str) -> Mapping[str, Any]:
        found = self.document.data.get(name)
        return found if isinstance(found, dict) else {}

    def made(self, section: str) -> list[str]:
        """The entries of a section that an import of this kind made."""
        entries = change.entries(self.text, self.document.root, section)
        return [one.key.value for one in entries if change.is_marked(one, self.parts.source)]

    def ours(self, section: str, wanted: Mapping[str, Entry]) -> list[str]:
        """Those that this import may take out: a pool is one of several."""
        made = self.made(section)
        if self.parts.source != LIMITS:
            return [name for name in made if name in wanted]
        used = self._used if section == "flavors" else ()
        return [name for name in made if name in wanted or name not in used]

    @property
    def written(self) -> list[str]:
        """Groups that a person has written."""
        made = self.made("groups")
        return [group for group in self.section("groups") if group not in made]

    @property
    def _used(self) -> set[str]:
        """Flavors of those."""
        groups = [self.section("groups")[name] or {} for name in self.written]
        return {flavor for group in groups for flavor in group.get("flavors") or ()}

    @property
    def default(self) -> list[str]:
        """The flavor that is there as long as there is no other, for groups that have it.

        It is written as a person's own, for no import may take it out again.
        """
        groups = [group or {} for group in self.section("groups").values()]
        used = any(DEFAULT in (group.get("flavors") or (DEFAULT,)) for group in groups)
        if self.section("flavors") or DEFAULT in self.parts.flavors or not used:
            return []
        return [f"{DEFAULT}: {{cpus: {DEFAULT_FLAVOR.cpus}, memory: {DEFAULT_FLAVOR.memory}M}}"]

    @property
    def line_end(self) -> str:
        return "\r\n" if "\r\n" in self.text else "\n"


def merge(text: str, name: str, parts: Parts) -> Merged:
    """The file with these parts; SpecError if it cannot be, or would be wrong."""
    if not text.endswith(("\n", "\r")):
        text += "\n"
    document = source.read(text, name)
    build(document)
    file = _File(text, document, parts)
    wanted = {"flavors": parts.flavors, "groups": parts.groups, "partitions": _partition(file)}
    problems = [one for key in wanted for one in _taken(file, key, wanted[key])]
    if problems:
        raise SpecError(problems)
    edits = [edit for section in wanted for edit in _edits(file, section, wanted[section])]
    new = editing.apply(text, edits)
    return Merged(new, _read(new, name), tuple(_notes(file, wanted)))


def _read(text: str, name: str) -> Cluster:
    try:
        return build(source.read(text, name))
    except SpecError as error:
        what = f"with what is imported, {name} would be wrong; nothing was changed"
        raise SpecError([Problem(name, None, None, what), *error.problems]) from None


# --- partitions ------------------------------------------------------------------------------


def _partition(file: _File) -> Mapping[str, Entry]:
    """The one with the new groups: as it is called now, with what else a person put into it."""
    known, made = file.section("partitions"), file.made("partitions")
    name = made[0] if made and file.parts.source == LIMITS else file.parts.partition
    if not known and file.written:
        return {}  # without partitions all groups are in one
    elsewhere = {g for key in known if key != name for g in known[key].get("groups") or ()}
    old = known[name].get("groups") or () if name in made else ()
    gone = {*file.ours("groups", file.parts.groups)} - file.parts.groups.keys()
    groups = dict.fromkeys([*old, *(g for g in file.parts.groups if g not in elsewhere)])
    default = not any(one.get("default") == "true" for one in known.values())
    return partition(name, [group for group in groups if group not in gone], default=default)


# --- edits -----------------------------------------------------------------------------------


def _taken(file: _File, section: str, wanted: Mapping[str, Entry]) -> Iterator[Problem]:
    """Names that a person has used for something else; a flavor of a person is taken instead."""
    made = file.made(section)
    for name in wanted:
        if section != "flavors" and name in file.section(section) and name not in made:
            message = f"{KINDS[section]} {name!r} is there already, and no import made it"
            todo = "rename it, or take it out"
            yield file.document.key((section, name), f"{message}; {todo}")


def _edits(file: _File, section: str, wanted: Mapping[str, Entry]) -> list[Edit]:
    try:
        return list(_edits_of(file, section, wanted))
    except NotEditable:
        lines = "\n".join(_lines(file, wanted, "  "))
        message = f"{section} are written in a way that only a person can change; they should have"
        raise SpecError([file.document.key((section,), f"{message}\n{lines}")]) from None


def _edits_of(file: _File, section: str, wanted: Mapping[str, Entry]) -> Iterator[Edit]:
    top = editing.entry(file.text, file.document.root, section)
    if top is None:
        yield from _append(file, section, wanted)
    elif is_null(top.value) or not top.value.value:
        yield from _fill(file, section, top, wanted)
    elif not isinstance(top.value, MappingNode) or top.value.flow_style or top.is_alias:
        if wanted or file.made(section):
            raise NotEditable
    else:
        yield from _inside(file, section, top, wanted)


def _append(file: _File, section: str, wanted: Mapping[str, Entry]) -> Iterator[Edit]:
    if not wanted:
        return
    if file.document.root.flow_style:
        raise NotEditable
    lines = [f"{section}:", *_all_lines(file, section, wanted)]
    at = len(file.text)
    yield Edit(at, at, "".join(f"{line}{file.line_end}" for line in lines))


def _fill(
    file: _File, section: str, top: editing.Entry, wanted: Mapping[str, Entry]
) -> Iterator[Edit]:
    """Instead of nothing, or of `{}`."""
    if not wanted:
        return
    if top.is_alias or not top.first_on_line:
        raise NotEditable
    lines = "".join(f"{file.line_end}{line}" for line in _all_lines(file, section, wanted))
    start = top.end if top.is_missing else int(top.value.start_mark.index)
    yield Edit(start, top.end, "")
    at = change.line_rest(file.text, top.end)
    yield Edit(at, at, lines)


def _inside(
    file: _File, section: str, top: editing.Entry, wanted: Mapping[str, Entry]
) -> Iterator[Edit]:
    assert isinstance(top.value, MappingNode)
    there = change.entries(file.text, file.document.root, section)
    ours = file.ours(section, wanted)
    gone = [one for one in there if one.key.value in ours and one.key.value not in wanted]
    for one in there:
        name = one.key.value
        if one in gone:
            yield change.removal(one)
        elif name in ours:
            yield from change.edits(one, section, wanted[name])
    fresh = {n: e for n, e in wanted.items() if n not in file.section(section)}
    if fresh:
        at = change.line_rest(file.text, change.end_of(there[-1]))
        indent = " " * int(there[0].key.start_mark.column)
        lines = "".join(f"{file.line_end}{line}" for line in _lines(file, fresh, indent))
        # Behind a line that may go: its line end goes with it.
        yield from change.behind(there[-1], at, lines, gone=there[-1] in gone)
    elif len(gone) == len(own(top.value)):
        colon = change.colon(top)
        yield Edit(colon, colon, " {}")


def _all_lines(file: _File, section: str, wanted: Mapping[str, Entry]) -> list[str]:
    """Of a section that has nothing in it yet."""
    default = file.default if section == "flavors" else ()
    return [*(f"  {line}" for line in default), *_lines(file, wanted, "  ")]


def _lines(file: _File, wanted: Mapping[str, Entry], indent: str) -> list[str]:
    source = file.parts.source
    return [
        line for name, entry in wanted.items() for line in render_entry(name, entry, source, indent)
    ]


# --- what a person should know ---------------------------------------------------------------


def _notes(file: _File, wanted: Mapping[str, Mapping[str, Entry]]) -> Iterator[str]:
    yield from file.parts.notes
    for section, entries in wanted.items():
        yield from (
            f"{KINDS[section]} {name} is no more: its nodes leave"
            for name in file.ours(section, entries)
            if section == "groups" and name not in entries
        )
    made = file.made("flavors")
    for name in file.parts.flavors:
        if name in file.section("flavors") and name not in made:
            yield f"flavor {name} is a person's, and stays as it is"
    if file.parts.groups and not wanted["partitions"]:
        yield "its groups are in the partitions that there are"
