"""SQLite as the store: WAL, one thread that owns the connection, numbered migrations.

`open_sqlite` is called by the daemon; simulations pass `inline` so that no thread runs.
"""

import asyncio
import sqlite3
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from concurrent.futures import Executor, ThreadPoolExecutor
from contextlib import suppress
from importlib import resources
from pathlib import Path
from typing import Concatenate, Protocol, TypeVar

from springtide.model import Event, Hold, MadeImage, Move, Node, Operation, Phase, Request, Ticket
from springtide.ports import Pruned, StoreError
from springtide.store import images, joins, past, people, queries
from springtide.users import Group, User

T = TypeVar("T")
REMEMBER_REQUESTS_S = 86_400.0


class Runner(Protocol):
    """Runs a function of the database somewhere and answers its result."""

    def __call__(self, function: Callable[[], T], /) -> Awaitable[T]: ...


def in_executor(executor: Executor) -> Runner:
    async def run(function: Callable[[], T]) -> T:
        return await asyncio.get_running_loop().run_in_executor(executor, function)

    return run


async def inline(function: Callable[[], T]) -> T:
    """Run on the event loop, with a point where others run before and after."""
    await asyncio.sleep(0)
    result = function()
    await asyncio.sleep(0)
    return result


def migrations() -> list[tuple[int, str]]:
    """(number, SQL) of each schema file, in order."""
    folder = resources.files("springtide.store") / "schema"
    files = sorted(folder.iterdir(), key=lambda file: file.name)
    return [(int(f.name[:4]), f.read_text()) for f in files if f.name.endswith(".sql")]


def connect(path: Path | str) -> sqlite3.Connection:
    """Open the database and bring its schema up to date."""
    try:
        db = sqlite3.connect(path, isolation_level=None, check_same_thread=False, timeout=10)
        db.execute("PRAGMA journal_mode = WAL")
        db.execute("PRAGMA synchronous = FULL")
        db.execute("PRAGMA foreign_keys = ON")
        _migrate(db, path)
    except sqlite3.Error as error:
        raise StoreError(f"cannot open the record {path}: {error}") from error
    return db


def _migrate(db: sqlite3.Connection, path: Path | str) -> None:
    version = db.execute("PRAGMA user_version").fetchone()[0]
    known = migrations()
    if version > known[-1][0]:
        raise StoreError(
            f"{path} was written by a newer Springtide (schema {version}, this one knows "
            f"{known[-1][0]}); install that version again"
        )
    for number, sql in known:
        if number > version:
            db.executescript(f"BEGIN IMMEDIATE; {sql} PRAGMA user_version = {number}; COMMIT;")


def open_sqlite(path: Path) -> "SqliteStore":
    """The store of a daemon: its own thread, and nobody else's."""
    executor = ThreadPoolExecutor(1, thread_name_prefix="store")
    return SqliteStore(connect(path), in_executor(executor), executor)


class SqliteStore:
    """`ports.Store` over one SQLite connection."""

    def __init__(
        self, db: sqlite3.Connection, run: Runner = inline, executor: Executor | None = None
    ) -> None:
        self._db = db
        self._run = run
        self._executor = executor
        self.problem = ""

    async def _do(
        self,
        query: "Callable[Concatenate[sqlite3.Connection, ...], T]",
        *arguments: object,
    ) -> T:
        return await self._run(lambda: self._transaction(lambda: query(self._db, *arguments)))

    def _transaction(self, body: Callable[[], T]) -> T:
        written = self._db.total_changes
        try:
            self._db.execute("BEGIN IMMEDIATE")
            result = body()
            self._db.execute("COMMIT")
        except BaseException as error:
            with suppress(sqlite3.Error):
                self._db.execute("ROLLBACK")
            if isinstance(error, sqlite3.Error):
                self.problem = f"the record could not be written: {error}"
                raise StoreError(self.problem) from error
            raise
        if self._db.total_changes != written:
            self.problem = ""
        return result

    async def define(self, nodes: Iterable[Node]) -> None:
        await self._do(queries.define, list(nodes))

    async def nodes(self, names: Iterable[str] | None = None) -> Mapping[str, Node]:
        return await self._do(queries.nodes, None if names is None else list(names))

    async def move(self, moves: Sequence[Move], events: Sequence[Event]) -> Sequence[Node]:
        return await self._do(_move_with_events, moves, events)

    async def receive(self, request: Request) -> bool:
        return await self._do(queries.receive, request)

    async def waiting(self) -> Sequence[Request]:
        return await self._do(queries.waiting)

    async def open(
        self, operations: Sequence[Operation], requests: Iterable[str] = ()
    ) -> Sequence[Operation]:
        return await self._do(queries.open_operations, operations, list(requests))

    async def progress(self, operation: Operation, events: Sequence[Event] = ()) -> None:
        await self._do(_progress_with_events, operation, events)

    async def operations(
        self, *, unfinished: bool = False, limit: int = 100
    ) -> Sequence[Operation]:
        return await self._do(queries.operations, unfinished, limit)

    async def operation(self, id: int) -> Operation | None:
        return await self._do(queries.operation, id)

    async def lease(self, operation: int, nodes: Iterable[str]) -> Mapping[str, int]:
        return await self._do(queries.lease, operation, list(nodes))

    async def release(self, operation: int, nodes: Iterable[str] | None = None) -> None:
        await self._do(queries.release, operation, None if nodes is None else list(nodes))

    async def append(self, events: Sequence[Event]) -> Sequence[Event]:
        return await self._do(queries.append, events)

    async def events(
        self,
        *,
        after: int = 0,
        node: str | None = None,
        operation: int | None = None,
        limit: int = 1000,
    ) -> Sequence[Event]:
        return await self._do(queries.events, after, node, operation, limit)

    async def forget_answered(self, now: float) -> None:
        """Drop answered requests that no late copy can follow any more."""
        await self._do(queries.forget_answered, now - REMEMBER_REQUESTS_S)

    async def holds(self) -> Mapping[str, Hold]:
        return await self._do(queries.holds)

    async def hold(self, hold: Hold) -> None:
        await self._do(queries.hold, hold)

    async def lift(self, key: str) -> None:
        await self._do(queries.lift, key)

    async def put(self, key: str, value: str) -> None:
        await self._do(queries.put, key, value)

    async def get(self, key: str) -> str | None:
        return await self._do(queries.get, key)

    async def issue(self, tickets: Sequence[Ticket]) -> None:
        await self._do(joins.issue, tickets)

    async def tickets(self, names: Iterable[str] | None = None) -> Mapping[str, Ticket]:
        return await self._do(joins.tickets, None if names is None else list(names))

    async def admit(self, ticket: Ticket) -> bool:
        return await self._do(joins.admit, ticket)

    async def rekey(self, ticket: Ticket, former: str) -> bool:
        return await self._do(joins.rekey, ticket, former)

    async def prove(self, ticket: Ticket) -> None:
        await self._do(joins.prove, ticket)

    async def joined_from(self, address: str) -> Sequence[Ticket]:
        return await self._do(joins.joined_from, address)

    async def note_phases(self, phases: Sequence[Phase]) -> None:
        await self._do(joins.note_phases, phases)

    async def phases(self, node: str) -> Sequence[Phase]:
        return await self._do(joins.phases, node)

    async def users(self) -> Sequence[User]:
        return await self._do(people.users)

    async def user_groups(self) -> Sequence[Group]:
        return await self._do(people.groups)

    async def keep_user(self, user: User, groups: Sequence[Group] = ()) -> None:
        await self._do(people.keep_user, user, groups)

    async def images(self) -> Sequence[MadeImage]:
        return await self._do(images.images)

    async def keep_image(self, image: MadeImage) -> None:
        await self._do(images.keep_image, image)

    async def drop_image(self, image: MadeImage) -> None:
        await self._do(images.drop_image, image)

    async def boot_times(self, limit: int) -> Sequence[tuple[str, float]]:
        return await self._do(past.boot_times, limit)

    async def prune_events(self, before: float, after: int, limit: int) -> Pruned:
        return await self._do(past.prune_events, before, after, limit)

    async def prune_operations(self, before: float, after: int, limit: int) -> Pruned:
        return await self._do(past.prune_operations, before, after, limit)

    async def prune_requests(self, before: float, limit: int) -> int:
        return await self._do(past.prune_requests, before, limit)

    async def close(self) -> None:
        await self._run(self._db.close)
        if self._executor is not None:
            self._executor.shutdown(wait=False)


def _move_with_events(
    db: sqlite3.Connection, moves: Sequence[Move], events: Sequence[Event]
) -> list[Node]:
    """Events of nodes that did not move (somebody else moved them first) are not kept."""
    moved = queries.move(db, moves)
    names = {node.name for node in moved}
    queries.append(db, [e for e in events if e.node is None or e.node in names])
    return moved


def _progress_with_events(
    db: sqlite3.Connection, operation: Operation, events: Sequence[Event]
) -> None:
    queries.progress(db, operation)
    queries.append(db, events)
