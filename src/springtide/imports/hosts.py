"""hosts.json of the hybrid service: a pool of machines, `{address: name}`, which is the most."""

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from ipaddress import IPv4Address
from typing import Any

from springtide.nodeset import NodeNameError, validate_name
from springtide.spec import source
from springtide.spec.problems import Problem, SpecError
from springtide.spec.values import shown

EXAMPLE = '{"10.0.0.5": "node5"}'
_WORD = re.compile(r'"(?:[^"\\]|\\.)*"|[{}\[\],:]|[^\s{}\[\],:"]+')


@dataclass(frozen=True, slots=True)
class Pool:
    """The addresses of nodes by their names, in the order of the file."""

    addresses: dict[str, str]


class _Pairs(list[tuple[str, Any]]):
    """The entries of a JSON object, also those whose key is there twice."""


def parse_hosts(text: str, name: str) -> Pool:
    """SpecError names every entry that is wrong."""
    pairs = _pairs(text, name)
    if problems := list(_problems(pairs, _Text(text, name))):
        raise SpecError(problems)
    return Pool({host: str(IPv4Address(address)) for address, host in pairs})


def _pairs(text: str, name: str) -> _Pairs:
    try:
        data = json.loads(text, object_pairs_hook=_Pairs)
    except json.JSONDecodeError as fault:
        place = source.Place(fault.lineno, fault.colno)
        raise source.error(name, place, f"not valid JSON: {fault.msg}") from None
    except RecursionError:
        raise source.error(name, None, "lists are nested too deeply for a pool") from None
    if not isinstance(data, _Pairs):
        raise source.error(name, None, f"the file must be an object such as {EXAMPLE}")
    if not data:
        raise source.error(name, None, f"the pool is empty; it needs at least {EXAMPLE}")
    return data


class _Text:
    """Where the keys and values of an object are."""

    def __init__(self, text: str, name: str) -> None:
        self._text, self._name = text, name
        self._starts = list(_starts(text))

    def problem(self, index: int, message: str) -> Problem:
        place = source.place_of(self._text, self._starts[index])
        return Problem(self._name, place.line, place.column, message)


def _starts(text: str) -> Iterator[int]:
    """Of its keys and values, in turn; what is within a value is passed over."""
    depth, before = 0, ""
    for found in _WORD.finditer(text):
        word = found[0]
        if depth == 1 and before in ("{", ",", ":") and word != "}":
            yield found.start()
        depth += (word in "{[") - (word in "}]")
        before = word if depth == 1 else ""


def _problems(pairs: _Pairs, text: _Text) -> Iterator[Problem]:
    addresses: dict[str, int] = {}
    names: dict[str, int] = {}
    for i, (address, host) in enumerate(pairs):
        for message in (_wrong_address(address), _twice(address, addresses, "address")):
            if message:
                yield text.problem(2 * i, message)
        for message in (_wrong_name(host), _twice(host, names, "name")):
            if message:
                yield text.problem(2 * i + 1, message)


def _wrong_address(address: str) -> str:
    try:
        IPv4Address(address)
    except ValueError:
        return f"{shown(address)} is no IPv4 address, such as 10.0.0.5"
    return ""


def _wrong_name(host: Any) -> str:
    if not isinstance(host, str):
        return f"the name of a host is a text, not {shown(host)}; write {EXAMPLE}"
    try:
        validate_name(host)
    except NodeNameError as fault:
        return str(fault)
    return ""


def _twice(word: Any, seen: dict[str, int], what: str) -> str:
    if not isinstance(word, str):
        return ""
    seen[word] = seen.get(word, 0) + 1
    return f"the {what} {shown(word)} is here twice; each host has one" if seen[word] > 1 else ""
