"""Who may join, and who may speak for a node. Pure.

A token is good once, for one instance of one node, for a while. One exception: a node whose
answer got lost asks again, from the same boot and the same address. Once it has used its key it
has had its answer, and the token is worth nothing.
"""

import hmac
from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum
from hashlib import sha256

from springtide.joining.asked import Asked
from springtide.model import STARTING, Node, NodeState, Ticket

UP = STARTING | {NodeState.READY, NodeState.DRAINING}
"""States of nodes whose instance is to live."""


class Cause(StrEnum):
    """Why a node was refused."""

    CLUSTER = "it is of another cluster"
    NODE = "there is no such node"
    GENERATION = "it is another instance than the node has now"
    STATE = "the node is to have no instance now"
    TOKEN = "the token is not this node's"  # noqa: S105 - words
    ADDRESS = "it asks from the address of another node"
    USED = "the token was used before"
    EXPIRED = "the token has expired"
    KEY = "the key is not this instance's"


class Verdict(StrEnum):
    """How a node is let in."""

    FIRST = "first"
    AGAIN = "again"
    """Its answer got lost."""


@dataclass(frozen=True, slots=True)
class Known:
    """What the daemon knows of who asks."""

    cluster: str
    node: Node | None
    ticket: Ticket | None
    token: str = ""
    """What the node's ticket says."""
    genuine: bool = False
    """Whether what it shows was ever given to that node; to others nothing is told."""
    other: str = ""
    """The node whose address it asks from, if that is not its own."""


def decide_join(asked: Asked, known: Known, peer: str, now: float) -> Verdict | Cause:
    ticket = known.ticket
    if cause := _stranger(asked, known):
        return cause
    if ticket is None or not _same(asked.secret, known.token):
        return Cause.TOKEN
    if known.other:
        return Cause.ADDRESS
    if ticket.used_at is not None:
        return Verdict.AGAIN if _lost(asked, ticket, peer, now) else Cause.USED
    return Verdict.FIRST if now < ticket.expires_at else Cause.EXPIRED


def decide_key(asked: Asked, known: Known) -> Cause | None:
    """Why a node may not speak for itself; None if it may."""
    if cause := _stranger(asked, known):
        return cause
    return None if is_key(asked.secret, known.ticket) else Cause.KEY


def is_key(secret: str, ticket: Ticket | None) -> bool:
    """Of the node's instance."""
    return ticket is not None and _same(digest(secret), ticket.key)


def decide_other(node: Node, others: Iterable[Node], joined: Iterable[Ticket], peer: str) -> str:
    """The other node whose address `peer` is; empty if it is none's.

    Who shows the token of one node from the address of another has read it there. Where a node
    joined from counts only while its address is not known: many may come through one gateway.
    """
    if peer == node.address:
        return ""
    unknown = {}
    for one in others:
        if one.address == peer and one.name != node.name:
            return one.name
        if not one.address and one.state in UP:
            unknown[one.name] = one.generation
    found = (t.node for t in joined if unknown.get(t.node) == t.generation)
    return next((name for name in found if name != node.name), "")


def digest(key: str) -> str:
    """What the record keeps of a key."""
    return sha256(key.encode()).hexdigest()


def _stranger(asked: Asked, known: Known) -> Cause | None:
    node, ticket = known.node, known.ticket
    if asked.cluster != known.cluster:
        return Cause.CLUSTER
    if node is None:
        return Cause.NODE
    if asked.generation != node.generation or (ticket and ticket.generation != node.generation):
        return Cause.GENERATION
    return None if node.state in UP else Cause.STATE


def _lost(asked: Asked, ticket: Ticket, peer: str, now: float) -> bool:
    boot = ticket.machine.get("boot")
    same = boot and boot == asked.machine.boot and ticket.machine.get("address") == peer
    return bool(same) and not ticket.proven and now < ticket.expires_at


def _same(one: str, other: str) -> bool:
    """In a time that tells nothing of where they differ."""
    return bool(other) and hmac.compare_digest(one.encode(), other.encode())
