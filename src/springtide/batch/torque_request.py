"""What a job of Torque asks for, from its Resource_List. Pure; called by `torque_text`.

vmem and pvmem limit addresses, not memory: a job may ask for more of them than any node has.
"""

import re
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from math import ceil

from springtide.ports import Chunk

_SIZE = re.compile(r"([0-9]{1,18})([kmgtp]?)([bw]?)", re.IGNORECASE)
_SCALE = {"": 1, "k": 2**10, "m": 2**20, "g": 2**30, "t": 2**40, "p": 2**50}
_MIB = 2**20
_COUNT = re.compile(r"[0-9]{1,9}")
_DEVICES = ("gpus", "mics")
_MODES = frozenset(
    (
        *("default", "exclusive", "exclusive_process", "exclusive_thread"),
        *("prohibited", "reseterr", "shared"),
    )
)
"""How GPUs are to be set up, in words beside their number; to Torque no properties of nodes."""
_ALONE = frozenset({"singlejob", "singletask"})


class RequestError(ValueError):
    """A job asks for something that cannot be read."""


@dataclass(frozen=True, slots=True)
class Request:
    """Chunks, and the names of nodes among them."""

    chunks: tuple[Chunk, ...]
    names: tuple[str, ...] = ()


def parse_request(
    resources: Mapping[str, str], nodes: Collection[str], alone: bool = False
) -> Request:
    """`nodes` are the names of all that there are: what is none of them is a property.

    Without chunks if it asks for no node.
    """
    spec, _, how = resources.get("nodes", "").partition("#")
    asked = [_part(text, nodes) for text in spec.split("+")] if spec else [_bare(resources)]
    parts = [part for part in asked if part.chunk.count]
    common = _required(resources, spec)
    alone = alone or how == "excl" or resources.get("naccesspolicy", "").lower() in _ALONE
    total = sum(part.chunk.count for part in parts) or 1
    whole = ceil(parse_size(resources.get("mem", "0")) / total)
    each = parse_size(resources.get("pmem", "0"))
    return Request(
        tuple(
            Chunk(
                count=part.chunk.count,
                cores=part.chunk.cores,
                memory=ceil(max(whole, each * part.chunk.cores) / _MIB),
                features=part.chunk.features | common,
                exclusive=alone,
                spread=part.chunk.spread,
            )
            for part in parts
        ),
        tuple(part.name for part in parts if part.name),
    )


@dataclass(frozen=True, slots=True)
class _Part:
    chunk: Chunk
    name: str = ""


def _bare(resources: Mapping[str, str]) -> _Part:
    """Without nodes, a job asks for processors wherever they are, or for one node."""
    if procs := resources.get("procs"):
        return _Part(Chunk(_number(procs), spread=False))
    return _Part(Chunk(cores=_number(resources.get("ncpus", "1"))))


def _part(text: str, nodes: Collection[str]) -> _Part:
    """One of `2:ppn=4:bigmem+tn1:ppn=1`."""
    first, *rest = text.split(":")
    count = int(first) if _COUNT.fullmatch(first) else 1
    words = rest if _COUNT.fullmatch(first) else [first, *rest]
    values = dict(word.split("=", 1) for word in words if "=" in word)
    plain = [word for word in words if word and "=" not in word]
    names = [word for word in plain if word in nodes]
    modes = _MODES if "gpus" in values else frozenset()
    features = {word for word in plain if word not in nodes and word.lower() not in modes}
    devices = {device for device in _DEVICES if device in values}
    cores = _number(values.get("ppn", "1"))
    return _Part(Chunk(count, cores, features=frozenset(features | devices)), "".join(names[:1]))


def _required(resources: Mapping[str, str], spec: str) -> frozenset[str]:
    """Properties that the queue demands of all nodes of its jobs."""
    wanted = resources.get("feature", "").split(",")
    needed = resources.get("neednodes", "")
    if needed != spec and "+" not in needed:
        wanted += [w for w in needed.split(":") if "=" not in w and not _COUNT.fullmatch(w)]
    return frozenset(_plain(wanted))


def _plain(words: Iterable[str]) -> Iterable[str]:
    """Moab's alternatives (`a|b`) and exclusions are left to it."""
    return (word for word in words if word and not set(word) & set("|!&"))


def parse_size(text: str) -> int:
    """Bytes of `512mb`, `1gb`, `100mw` (words of 8 bytes), or a plain number."""
    found = _SIZE.fullmatch(text.strip())
    if not found:
        raise RequestError(f"{text[:80]!r} is no size")
    number, scale, unit = found.groups()
    return int(number) * _SCALE[scale.lower()] * (8 if unit.lower() == "w" else 1)


def _number(text: str) -> int:
    if not _COUNT.fullmatch(text):
        raise RequestError(f"{text[:80]!r} is no number")
    return max(int(text), 1)
