"""Torque as a batch system that is read: `ports.Queue`.

All nodes of ours are in Torque at all times, for qsub refuses jobs that ask for more nodes of a
property than there are. They carry the property `springtide`, and others are not touched. A node
that was on and is off is offline, with a note that says so: a machine that is about to go may still
report, and must get no job. New ones take no note for some seconds, and get theirs at a later look.
To join, a node is reset: it counts as down until its pbs_mom is heard.

Torque trusts a pbs_mom by the address that the node's name had when the node was created, or when
pbs_server started, whichever was later. So one that comes from elsewhere is created anew, and so
is one that is not heard for a minute: pbs_server may have started while its name led elsewhere.
Other nodes are deleted in `dismantle` alone, and busy ones never: Torque would wait for their jobs,
and purge them minutes later although nobody waits for the answer any more.
"""

import asyncio
import re
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace

from springtide.batch import torque_text
from springtide.batch.names import batches, node_names
from springtide.batch.pbs_common import merged, shared_of
from springtide.batch.running import SlowError
from springtide.batch.torque_commands import DENIED, RIGHTS, Commands, complaints, failed
from springtide.batch.torque_mom import pbs_mom
from springtide.batch.torque_notes import Note, plain
from springtide.batch.torque_rules import (
    all_hold,
    as_member,
    attributes,
    checked_jobs,
    checked_members,
    differs,
    expects,
    has_moved,
    is_open_though_off,
    refuse_busy,
    refuse_others,
    require_queues,
    staying,
)
from springtide.batch.torque_talk import AT_ONCE, Talk
from springtide.batch.torque_text import OFFLINE, TorqueNode
from springtide.nodeset import fold
from springtide.ports import Entry, Health, Member, Queue, Reading, Unavailable
from springtide.spec import Cluster, Torque

LOOK_S = 1.0
NOBODY = "springtide-no-such-node"
_IN_VAIN = ("Unknown Job Id", "Request invalid for state of job", "not rerun")
"""Of jobs that are over, wait again already, or may run but once."""


def queue(spec: Cluster) -> Queue:
    assert isinstance(spec.batch, Torque)
    commands = Commands(spec.batch.bin, spec.batch.server)
    return TorqueQueue(commands, spec.managed, shared=shared_of(spec))


class TorqueQueue(Talk):
    """One Torque server."""

    programs: Sequence[str] = ("pbsnodes", "qalter", "qmgr", "qrerun", "qstat")

    async def read(self) -> Reading:
        """New nodes that take notes by now get theirs by the way, and those that Torque seems not
        to trust are created anew."""
        nodes, jobs = await self._look()
        self._recall(nodes)
        if await self._pay(nodes) or await self._renew(nodes):
            nodes, jobs = await self._look()
        return merged({name: node.shown for name, node in nodes.items()}, jobs)

    async def _renew(self, nodes: Mapping[str, TorqueNode]) -> bool:
        """Whether any node was created anew because it joined and is not heard. What fails is tried
        again later, and keeps nobody from reading."""
        late = self._unheard.late(nodes, asyncio.get_running_loop().time())
        late = [name for name in late if name in self._names and name not in self._due]
        if not late or self._changing.locked():
            return False
        async with self._changing:
            self._unheard.renewed(late, asyncio.get_running_loop().time())
            with suppress(Unavailable):
                await self._remove(late)
                again = [as_member(nodes[name]) for name in late]
                await self._create(again, {name: nodes[name].note for name in late})
        return True

    # --- nodes come --------------------------------------------------------------------------

    async def require(self, members: Iterable[Member]) -> None:
        await self._require_rights()
        await self._require(checked_members(members))

    async def _require_rights(self) -> None:
        """Whoever may not change nodes learns it now. What is deleted is not there; rights are
        looked at first."""
        directive = f"delete node {NOBODY}"
        done = await self._in_thread(self._commands.run, "qmgr", "-c", directive)
        if DENIED in done.stderr:
            raise Unavailable(f"we are no manager of Torque, and cannot change its nodes; {RIGHTS}")

    async def _require(self, wanted: Mapping[str, Member]) -> dict[str, TorqueNode]:
        """All nodes."""
        said = await self._in_thread(self._commands.read, "qstat", "-Q", "-f")
        require_queues(torque_text.parse_queues(said), wanted.values())
        nodes = await self._nodes()
        refuse_others(nodes, wanted)
        return nodes

    async def prepare(self, members: Iterable[Member]) -> str:
        """An address of a member is what its name resolves to, before it is there too."""
        wanted = checked_members(members)
        async with self._changing:
            return await self._prepare(wanted)

    async def _prepare(self, wanted: Mapping[str, Member]) -> str:
        nodes = await self._require(wanted)
        fresh = [member for name, member in wanted.items() if name not in nodes]
        await self._create(fresh, dict.fromkeys((m.name for m in fresh), Note(off=True)))
        self._created_at |= {member.name: member.address for member in fresh}
        changed = [m for n, m in wanted.items() if n in nodes and differs(nodes[n], m)]
        for member in changed:
            await self._qmgr(f"set node {self._as_shown(member.name)} {attributes(member)}")
        await self._close(nodes, [n for n in wanted if n in nodes and is_open_though_off(nodes[n])])
        words = {"created": fresh, "changed": changed}
        said = [f"{word} {fold(m.name for m in which)}" for word, which in words.items() if which]
        return ", ".join(said)

    async def _create(self, members: Iterable[Member], notes: Mapping[str, Note]) -> None:
        for member in members:
            directive = f"create node {member.name} {attributes(member)}"
            done = await self._in_thread(self._commands.run, "qmgr", "-c", directive)
            if "Unknown node" in done.stderr:
                raise Unavailable(
                    f"Torque finds no address of {member.name}: have its name resolve on the "
                    "server's machine, with batch.hosts or a name server"
                )
            if done.returncode:
                raise failed(done)
            self._due[member.name] = notes[member.name]

    async def join(self, members: Iterable[Member]) -> None:
        """New nodes are not waited for: until they take a note, nothing was heard of them."""
        wanted = checked_members(members)
        if wanted:
            async with self._changing:
                self._unheard.forget(wanted)
                self._met = {n: at for n, at in self._met.items() if n not in wanted}
                await self._join(wanted)

    async def _join(self, wanted: Mapping[str, Member]) -> None:
        nodes = await self._nodes()
        refuse_others(nodes, wanted)
        known = self._created_at
        moved = [n for n, m in wanted.items() if n in nodes and has_moved(nodes[n], m, known)]
        await self._forgive(wanted)
        await self._remove(moved)
        kept = {name: nodes[name] for name in wanted if name in nodes and name not in moved}
        after = max((node.heard_at for node in kept.values()), default=0)
        notes = {name: Note(after=after, address=m.address) for name, m in wanted.items()}
        await self._create((m for name, m in wanted.items() if name not in kept), notes)
        self._due |= {name: notes[name] for name, node in kept.items() if node.fresh}
        old = [name for name, node in kept.items() if not node.fresh]
        for name in old:
            await self._mark("-r", [name], notes[name])
        seen = await self._nodes()
        all_hold(seen, old, lambda node: expects(node, after), "takes for present")
        all_hold(seen, wanted, lambda node: self._joins(node, after), "has not created")

    def _joins(self, node: TorqueNode, after: int) -> bool:
        """Its note says so, or is due: it may have been new a moment ago, and be heard already."""
        return node.note.after == after or node.shown.name in self._due

    async def _noted(self, names: Iterable[str]) -> None:
        """New nodes among these that joined have their notes."""
        joined = [name for name in names if name in self._due and not self._due[name].off]
        if joined:
            await self._settled(joined)
            await self._pay(await self._nodes())
        if left := [name for name in joined if name in self._due]:
            raise Unavailable(f"Torque takes no note of {fold(left)}; see in its log why")

    async def _settled(self, names: Sequence[str]) -> None:
        """New nodes take no changes for some seconds, until all others were told of them."""
        end = asyncio.get_running_loop().time() + self._settle_s
        while names:
            nodes = await self._nodes()
            names = [name for name in names if name in nodes and nodes[name].fresh]
            if names and asyncio.get_running_loop().time() >= end:
                raise Unavailable(
                    f"Torque has not told its nodes of {fold(names)} in {self._settle_s:g} s; does "
                    "it wait for a node that is shown as free and does not answer?"
                )
            await asyncio.sleep(min(LOOK_S, self._settle_s / 50) if names else 0)

    # --- nodes go ----------------------------------------------------------------------------

    async def leave(self, names: Iterable[str]) -> Mapping[str, str]:
        """Those that are off are offline from the moment on in which they are seen to be idle."""
        known = node_names(names)
        if not known:
            return {}
        async with self._changing:
            return await self._leave(known)

    async def _leave(self, known: Sequence[str]) -> Mapping[str, str]:
        await self._noted(known)
        before, jobs = await self._look()
        there = [name for name in known if name in before]
        stay = staying(before, there, jobs)
        going = [n for n in there if n not in stay and before[n].shown.health is not Health.ABSENT]
        if not going:
            return stay
        await self._close(before, going)
        after, jobs = await self._look()
        all_hold(after, going, lambda node: node.note.off, "has kept the note of")
        late = staying(after, going, jobs)
        await self._reopen(before, late)
        return stay | late

    async def _reopen(self, before: Mapping[str, TorqueNode], names: Iterable[str]) -> None:
        """A job was faster: nodes are again as they were."""
        for name in names:
            was = before[name]
            await self._mark("-o" if OFFLINE in was.shown.words else "-c", [name], was.note)

    async def _close(self, nodes: Mapping[str, TorqueNode], names: Iterable[str]) -> None:
        alike: defaultdict[str, list[str]] = defaultdict(list)
        for name in names:
            alike[nodes[name].note.address].append(name)
        for address, some in alike.items():
            await self._mark("-o", some, Note(off=True, address=address))

    async def dismantle(self, names: Iterable[str]) -> None:
        if known := node_names(names):
            async with self._changing:
                nodes = await self._nodes()
                await self._forgive(known)
                await self._remove([n for n in known if n in nodes and nodes[n].ours])

    async def _remove(self, names: Sequence[str]) -> None:
        """Nodes that are idle, and offline before they are seen to be so once more.

        New ones take no changes, and open by themselves: they are waited for.
        """
        if not names:
            return
        refuse_busy(*await self._look(), names)
        await self._settled(names)
        before = await self._nodes()
        await self._close(before, there := [name for name in names if name in before])
        nodes, jobs = await self._look()
        if staying(nodes, there, jobs):
            await self._reopen(before, there)
        refuse_busy(nodes, jobs, there)
        all_hold(nodes, there, lambda node: OFFLINE in node.shown.words, "keeps open")
        await asyncio.gather(*(self._delete(name) for name in there))
        if left := (await self._nodes()).keys() & set(names):
            raise Unavailable(
                f"Torque still has {fold(left)}: it may delete them later; look with pbsnodes, "
                "and try again"
            )

    async def _delete(self, name: str) -> None:
        """Of a node that is offline and has no jobs. Slow answers are looked after by the caller:
        it is done all the same."""
        try:
            directive = f"delete node {self._as_shown(name)}"
            done = await self._in_thread(self._commands.run, "qmgr", "-c", directive)
        except SlowError:
            return
        if done.returncode and "Unknown node" not in done.stderr:
            raise failed(done)

    # --- drains --------------------------------------------------------------------------------

    async def drain(self, names: Iterable[str], reason: str) -> None:
        """pbs_server looks again when it starts a job: what is seen as offline gets none."""
        await self._change("-o", names, plain(reason))

    async def undrain(self, names: Iterable[str]) -> None:
        await self._change("-c", names, "")

    async def _change(self, option: str, names: Iterable[str], reason: str) -> None:
        """Nodes that are off stay so."""
        if known := node_names(names):
            async with self._changing:
                await self._mark_all(option, known, reason)

    async def _mark_all(self, option: str, known: Sequence[str], reason: str) -> None:
        await self._noted(known)
        nodes = await self._nodes()
        if unknown := [name for name in known if name not in nodes]:
            raise Unavailable(f"Torque has no node {fold(unknown)}")
        refuse_others(nodes, known)
        there = [name for name in known if nodes[name].shown.health is not Health.ABSENT]
        alike: defaultdict[Note, list[str]] = defaultdict(list)
        for name in there:
            note = nodes[name].note
            alike[replace(note, reason=reason, after=note.after or 0, off=False)].append(name)
        for note, some in alike.items():
            await self._mark(option, some, note)
        closed = option == "-o"
        words = "keeps open" if closed else "keeps closed"
        all_hold(
            await self._nodes(),
            there,
            lambda node: (OFFLINE in node.shown.words) == closed,
            words,
        )

    # --- jobs ----------------------------------------------------------------------------------

    async def requeue(self, jobs: Iterable[str]) -> None:
        """By force: their pbs_mom does not answer. Those that may not be run again stay."""
        await self._on_jobs(checked_jobs(jobs), "qrerun", "-f")

    async def tell(self, jobs: Iterable[str], text: str) -> None:
        """As the job's comment, which Torque's own scheduler writes over in its time."""
        words = plain(re.sub(r"[=\"'\\,]+", " ", text))
        await self._on_jobs(checked_jobs(jobs), "qalter", "-W", f"comment={words}")

    async def _on_jobs(self, jobs: Sequence[str], *command: str) -> None:
        for some in batches(jobs, AT_ONCE):
            done = await self._in_thread(self._commands.run, *command, *some)
            said = complaints(done)
            serious = [line for line in said if not any(words in line for words in _IN_VAIN)]
            if serious or (done.returncode and not said):
                raise failed(done)

    async def wake(self) -> None:
        """If an admin has not stopped the scheduler."""
        said = await self._in_thread(self._commands.read, "qmgr", "-c", "list server scheduling")
        if torque_text.is_scheduling(said):
            await self._qmgr("set server scheduling = true")

    # --- the rest --------------------------------------------------------------------------------

    def entry(self, name: str) -> Entry:
        commands = self._commands
        return pbs_mom(commands.bin, commands.server, self._version, self._shared)
