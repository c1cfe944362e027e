"""How Torque is asked and told: what it shows of nodes and jobs, and the notes of nodes."""

import asyncio
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TypeVar

from springtide import threads
from springtide.batch import torque_text
from springtide.batch.names import batches, named
from springtide.batch.pbs_common import renamed
from springtide.batch.polled_look import refusals
from springtide.batch.torque_commands import Commands, failed
from springtide.batch.torque_notes import Note
from springtide.batch.torque_rules import is_bare, is_open_though_off, sensible
from springtide.batch.torque_text import TorqueNode
from springtide.batch.torque_unheard import Unheard
from springtide.ports import Health, QueueJob

T = TypeVar("T")

AT_ONCE = 200  # nodes or jobs in one command
SETTLE_S = 120.0
THREADS = 4
NO_NODES = "No nodes found"


class Talk:
    """With one server. `names` are those of our nodes: it may show them with their domain."""

    def __init__(
        self,
        commands: Commands,
        names: Iterable[str] = (),
        settle_s: float = SETTLE_S,
        shared: Iterable[Path] = (),
    ) -> None:
        """`shared` are filesystems that nodes have."""
        self._commands = commands
        self._shared = tuple(shared)
        self._names = frozenset(names)
        self._called: Mapping[str, str] = {}
        """Nodes as they were last shown, and what we call them."""
        self._shown: Mapping[str, str] = {}
        """The other way round."""
        self._settle_s = settle_s
        self._threads = ThreadPoolExecutor(THREADS, thread_name_prefix="torque")
        self._version = ""
        self._met: dict[str, int] = {}
        """Nodes that were heard from since they joined, and when they did: after a restart
        Torque itself has forgotten."""
        self._due: dict[str, Note] = {}
        """What new nodes are to have as their notes once they take any."""
        self._created_at: dict[str, str] = {}
        """Where the names of new nodes led: a note with an address would take a command each."""
        self._paying = asyncio.Lock()
        self._changing = asyncio.Lock()
        """Held by whoever has nodes created, deleted or marked."""
        self._unheard = Unheard()
        self._has_recalled = False

    async def version(self) -> str:
        said = await self._in_thread(self._commands.read, "qmgr", "-c", "list server pbs_version")
        self._version = sensible(torque_text.parse_version, said)
        return f"Torque {self._version}"

    async def _look(self) -> tuple[dict[str, TorqueNode], list[QueueJob]]:
        """Nodes last: a job that starts meanwhile shows on its node, one that ends does no harm."""
        return await self._in_thread(self._seen)

    def _seen(self) -> tuple[dict[str, TorqueNode], list[QueueJob]]:
        text = self._commands.read("qstat", "-t", "-x")
        said = self._commands.read("qstat", "-Q", "-f")
        nodes = self._listed()
        names, queues = {*nodes, *self._called}, sensible(torque_text.parse_all_queues, said)
        parse = partial(torque_text.parse_jobs, nodes=names, queues=queues)
        return nodes, [renamed(job, self._called) for job in sensible(parse, text)]

    async def _nodes(self) -> dict[str, TorqueNode]:
        return await self._in_thread(self._listed)

    def _listed(self) -> dict[str, TorqueNode]:
        done = self._commands.run("pbsnodes", "-x")
        if done.returncode == 2 and NO_NODES in done.stderr:
            return {}
        if done.returncode:
            raise failed(done)
        found = sensible(torque_text.parse_nodes, done.stdout)
        self._called = called = named(found, self._names)
        self._shown = {ours: name for name, ours in called.items()}
        return {called[name]: self._remembered(called[name], one) for name, one in found.items()}

    def _remembered(self, name: str, node: TorqueNode) -> TorqueNode:
        node = self._awaited(replace(node, shown=replace(node.shown, name=name)))
        after = node.note.after
        if after is not None and node.heard_at > after:
            self._met[name] = after
        lost = node.shown.health is Health.JOINING and not node.heard_at
        if not lost or after is None or self._met.get(name) != after:
            return node
        return replace(node, shown=replace(node.shown, health=Health.DOWN))

    def _awaited(self, node: TorqueNode) -> TorqueNode:
        """It joins, though its note cannot say so yet."""
        note = self._due.get(node.shown.name)
        if note is None or note.after is None or node.shown.health is not Health.ABSENT:
            return node
        return replace(node, note=note, shown=replace(node.shown, health=Health.JOINING))

    def _recall(self, nodes: Mapping[str, TorqueNode]) -> None:
        """At the first look: new nodes that a daemon before this one had no time to mark are off,
        unless they are to join anew."""
        if not self._has_recalled:
            self._has_recalled = True
            left = (name for name, node in nodes.items() if name in self._names and is_bare(node))
            self._due = {**dict.fromkeys(left, Note(off=True)), **self._due}

    async def _pay(self, nodes: Mapping[str, TorqueNode]) -> bool:
        """Whether any node that was seen got the note that it was to have.

        One that is refused is tried again at the next look, and keeps no others.
        """
        async with self._paying:
            ready = [name for name in self._due if name in nodes and not nodes[name].fresh]
            due = {name: self._due[name] for name in ready}
            open_ = [n for n, note in due.items() if note.off and is_open_though_off(nodes[n])]
            joined = [name for name, note in due.items() if not note.off]
            alike: defaultdict[Note, list[str]] = defaultdict(list)
            for name in (*open_, *joined):
                alike[due[name]].append(name)
            refused: dict[str, str] = {}
            for note, some in alike.items():
                mark = partial(self._mark, "-o" if note.off else "-r", note=note)
                refused |= await refusals(some, mark, self.version)
            paid = [name for name in ready if name not in refused]
            for name in paid:
                del self._due[name]
            return bool(paid)

    async def _forgive(self, names: Iterable[str]) -> None:
        """They are to have other notes than they were."""
        async with self._paying:
            for name in names:
                self._due.pop(name, None)

    async def _qmgr(self, directive: str) -> None:
        await self._in_thread(self._commands.change, "qmgr", "-c", directive)

    async def _mark(self, option: str, names: Sequence[str], note: Note) -> None:
        """State and note of nodes."""
        change = partial(self._commands.change, "pbsnodes", option, "-N", str(note))
        for some in batches([self._as_shown(name) for name in names], AT_ONCE):
            await self._in_thread(change, *some)

    def _as_shown(self, name: str) -> str:
        """A node's name as Torque has it."""
        return self._shown.get(name, name)

    async def _in_thread(self, call: Callable[..., T], *arguments: str) -> T:
        return await threads.run(self._threads, call, *arguments)
