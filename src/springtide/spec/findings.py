"""Something in a cluster file that does not fit, and reading plain data that may be wrong.

`checks` and `rebuilds` look at the data of a file before anybody knows that its shape is right;
what they cannot read they skip, for others have said so. `messages` and `read` place what they
find.
"""

from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from pydantic_core import InitErrorDetails, PydanticCustomError

from springtide import nodeset
from springtide.spec.problems import suggest
from springtide.spec.values import shown

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


def section(data: Data, key: str) -> Mapping[str, Any]:
    """The entries of a section, wrong ones too: a name is defined even if its entry is wrong."""
    found = data.get(key)
    return found if isinstance(found, dict) else {}


def readable(data: Data, key: str) -> Mapping[str, Data]:
    """The entries of a section that are mappings; one with nothing in it is an empty mapping."""
    entries = {k: {} if v is None else v for k, v in section(data, key).items()}
    return {k: v for k, v in entries.items() if isinstance(v, dict)}


def words(value: object) -> list[tuple[int, str]]:
    """The texts of a list, with their places in it."""
    items = value if isinstance(value, list | tuple) else ()
    return [(i, item) for i, item in enumerate(items) if isinstance(item, str)]


def names_of(data: Data) -> dict[str, list[str]]:
    """The nodes of each group whose host list can be read."""
    names = {}
    for key, group in readable(data, "groups").items():
        text = group.get("nodes") or ""
        if isinstance(text, str):
            with suppress(nodeset.NodeNameError):
                names[key] = nodeset.expand(text.strip()) if text.strip() else []
    return names


def undefined(loc: Loc, who: str, kind: str, name: str, defined: list[str]) -> Iterator[Finding]:
    if name not in defined:
        hint = suggest(name, defined, f"defined {kind}s")
        yield Finding(loc, f"{who} uses the {kind} {shown(name)}, which is not defined; {hint}")


def reserved(kind: str, name: str) -> str:
    return f"a {kind} cannot be called {name!r}, a word with a meaning of its own in Slurm"
