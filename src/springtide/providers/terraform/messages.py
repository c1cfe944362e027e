"""What Terraform says, as errors of ours and in words. Pure."""

import json
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from typing import Any

from springtide.ports import (
    CloudError,
    Denied,
    NoCapacity,
    QuotaExceeded,
    Rejected,
    Throttled,
    Transient,
)
from springtide.providers.programs.run import Done

_CLASSES: tuple[tuple[str, type[CloudError]], ...] = (
    (r"throttl|rate ?limit|too many requests|RequestLimitExceeded|\b429\b", Throttled),
    (
        r"insufficient.{0,20}capacity|no valid host|out of host capacity|allocationfailed"
        r"|skunotavailable|resource_pool_exhausted|stockout",
        NoCapacity,
    ),
    (r"quota|limit ?exceeded|vcpulimit|exceeds? .{0,30}limit", QuotaExceeded),
    (
        r"unauthori[sz]ed|forbidden|access ?denied|authfailure|invalidclienttokenid"
        r"|credentials|\b40[13]\b",
        Denied,
    ),
    (
        r"unsupported argument|invalid (reference|value|expression|index|function)|undeclared"
        r"|missing required|unsupported attribute|no configuration files|not found in registry",
        Rejected,
    ),
)
"""Providers of Terraform have no classes of errors but their words; what fits none may pass."""


def classify(text: str) -> CloudError:
    for pattern, kind in _CLASSES:
        if re.search(pattern, text, re.IGNORECASE):
            return kind(text)
    return Transient(text)


def failure(done: Done) -> CloudError:
    """A run that failed as a whole."""
    said = [_text(line["diagnostic"]) for line in _diagnostics(done.output)]
    text = said[0] if said else _plain(done.errors or done.output)
    return classify(f"{done.name} failed: {text or done.end}")


def addresses(module: Mapping[str, Any]) -> Iterator[str]:
    """Of all resources in a module of the state, and in those below it."""
    for resource in module.get("resources", ()):
        yield str(resource.get("address", ""))
    for child in module.get("child_modules", ()):
        yield from addresses(child)


def parse_nodes(addresses: Iterable[str], resource: str) -> set[str]:
    """The nodes that these are parts of."""
    found = (_of_node(resource).match(address) for address in addresses)
    return {match[1] for match in found if match}


def _of_node(resource: str) -> re.Pattern[str]:
    return re.compile(re.escape(resource) + r'\["([^"]+)"\]')


def parse_failures(output: str, resource: str) -> dict[str, str]:
    """What failed, by node: a diagnostic tells the address it is about."""
    of_node = _of_node(resource)
    failed: dict[str, str] = {}
    for line in _diagnostics(output):
        diagnostic = line["diagnostic"]
        if match := of_node.match(str(diagnostic.get("address", ""))):
            failed.setdefault(match[1], _text(diagnostic))
    return failed


def readable(done: Done) -> Done:
    """For an event: Terraform's own sentences, without the data around them."""
    sentences = [str(line.get("@message", "")) for line in _lines(done.output)]
    return replace(done, output="\n".join(filter(None, sentences)))


def _text(diagnostic: Mapping[str, Any]) -> str:
    parts = (str(diagnostic.get("summary", "")), str(diagnostic.get("detail", "")))
    return " ".join(": ".join(filter(None, parts)).split())


def _plain(text: str) -> str:
    """What it prints for people, without its frames and colours."""
    bare = re.sub(r"\x1b\[[0-9;]*m|[╷│╵]", "", text)
    _, error, said = bare.partition("Error: ")
    return " ".join((said if error else bare).split())[:500]


def _diagnostics(output: str) -> Iterator[dict[str, Any]]:
    for line in _lines(output):
        diagnostic = line.get("diagnostic")
        if isinstance(diagnostic, dict) and diagnostic.get("severity") == "error":
            yield line


def _lines(output: str) -> Iterator[dict[str, Any]]:
    for line in output.splitlines():
        try:
            found = json.loads(line)
        except ValueError:
            continue
        if isinstance(found, dict):
            yield found
