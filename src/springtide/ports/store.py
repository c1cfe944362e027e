"""The record, on disk."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from springtide.model import Event, Hold, MadeImage, Move, Node, Operation, Phase, Request, Ticket
from springtide.users import Group, User


class StoreError(Exception):
    """The record cannot be read or written: nothing may be done without it."""


@dataclass(frozen=True, slots=True)
class Pruned:
    """What became of a batch of old rows."""

    reached: int | None
    """The last id that was looked at; None if nothing old follows."""
    deleted: int


class Store(Protocol):
    """The record, on disk. Each call is one transaction."""

    problem: str
    """Why it could not be written last; empty once it was again."""

    async def define(self, nodes: Iterable[Node]) -> None:
        """Make sure each node has a record; existing records keep all but their group."""
        ...

    async def nodes(self, names: Iterable[str] | None = None) -> Mapping[str, Node]: ...

    async def move(self, moves: Sequence[Move], events: Sequence[Event]) -> Sequence[Node]:
        """Apply the moves whose `before` still holds, with their events; answers those moved."""
        ...

    async def receive(self, request: Request) -> bool:
        """Keep a request until operations answer it; False if it came before."""
        ...

    async def waiting(self) -> Sequence[Request]:
        """Requests that no operation has answered yet, oldest first."""
        ...

    async def open(
        self, operations: Sequence[Operation], requests: Iterable[str] = ()
    ) -> Sequence[Operation]:
        """Record new operations, give them ids, and mark the requests they answer."""
        ...

    async def progress(self, operation: Operation, events: Sequence[Event] = ()) -> None:
        """Save how far an operation is."""
        ...

    async def operations(
        self, *, unfinished: bool = False, limit: int = 100
    ) -> Sequence[Operation]: ...

    async def operation(self, id: int) -> Operation | None: ...

    async def lease(self, operation: int, nodes: Iterable[str]) -> Mapping[str, int]:
        """Lease all the nodes or none; answers who holds those that could not be had."""
        ...

    async def release(self, operation: int, nodes: Iterable[str] | None = None) -> None:
        """End its leases, of these nodes or all."""
        ...

    async def append(self, events: Sequence[Event]) -> Sequence[Event]: ...

    async def events(
        self,
        *,
        after: int = 0,
        node: str | None = None,
        operation: int | None = None,
        limit: int = 1000,
    ) -> Sequence[Event]: ...

    async def forget_answered(self, now: float) -> None:
        """Drop requests that were answered so long ago that no copy of them can come."""
        ...

    async def holds(self) -> Mapping[str, Hold]: ...

    async def hold(self, hold: Hold) -> None:
        """Keep a hold, in place of one with the same key."""
        ...

    async def lift(self, key: str) -> None:
        """Forget a hold; none is fine."""
        ...

    async def issue(self, tickets: Sequence[Ticket]) -> None:
        """Keep these in place of those that their nodes had."""
        ...

    async def tickets(self, names: Iterable[str] | None = None) -> Mapping[str, Ticket]:
        """The last ticket of each node that had one."""
        ...

    async def admit(self, ticket: Ticket) -> bool:
        """Mark it used, if it is the node's last one and was not used; False if not."""
        ...

    async def rekey(self, ticket: Ticket, former: str) -> bool:
        """Another key for a ticket that was used; False if its key is not `former` any more, or
        was used."""
        ...

    async def prove(self, ticket: Ticket) -> None:
        """The node has used the key of the ticket; with `used_at` its token is spent, too."""
        ...

    async def joined_from(self, address: str) -> Sequence[Ticket]:
        """Tickets of nodes that joined from there."""
        ...

    async def note_phases(self, phases: Sequence[Phase]) -> None:
        """Keep how boots went; of each node the last few."""
        ...

    async def phases(self, node: str) -> Sequence[Phase]:
        """Of the last boots of a node, oldest first."""
        ...

    async def users(self) -> Sequence[User]:
        """Everybody who has, or had, an account, by name."""
        ...

    async def user_groups(self) -> Sequence[Group]:
        """Groups that users are, or were, in."""
        ...

    async def keep_user(self, user: User, groups: Sequence[Group] = ()) -> None:
        """As they are now; ids stay as they were first kept, of users and of groups."""
        ...

    async def images(self) -> Sequence[MadeImage]:
        """Those that were made here, or are being made, in the order of their numbers."""
        ...

    async def keep_image(self, image: MadeImage) -> None:
        """Keep it in place of what was known of it."""
        ...

    async def drop_image(self, image: MadeImage) -> None: ...

    async def boot_times(self, limit: int) -> Sequence[tuple[str, float]]:
        """Group and seconds from request to registration of the last boots, newest first."""
        ...

    async def prune_events(self, before: float, after: int, limit: int) -> Pruned:
        """Delete what is older among so many events past the id `after`.

        The last events of each node stay, and those of operations that are not over.
        """
        ...

    async def prune_operations(self, before: float, after: int, limit: int) -> Pruned:
        """The same for operations that ended before."""
        ...

    async def prune_requests(self, before: float, limit: int) -> int:
        """Delete so many answered requests that are older; answers how many there were."""
        ...

    async def put(self, key: str, value: str) -> None:
        """Keep a fact about the cluster, such as its site."""
        ...

    async def get(self, key: str) -> str | None: ...

    async def close(self) -> None: ...
