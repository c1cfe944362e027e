"""What slurmctld has of power saving, for batch systems that have none: `ports.BatchSystem`.

A Queue tells which nodes it hears from and which jobs it has. Which nodes are wanted up, and which
are to leave, is kept here as marks, on disk before anything follows from them; whoever decides
that (`polling`, or a person) calls `power_up`, `recall` and `retire`. So operations, repairs and
people find the same four powers as with Slurm.
"""

import asyncio
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

from springtide.batch.marks import Course, Drain, Mark, Marks, by_reason
from springtide.batch.polled_look import RESTART_S, Look, Watched, in_words, refusals
from springtide.batch.polled_view import SOMEBODY, is_persons, seen_of
from springtide.nodeset import fold
from springtide.ports import (
    OURS,
    BatchNode,
    Health,
    Member,
    NotTaken,
    Power,
    Site,
    Unavailable,
)

__all__ = ["RESTART_S", "SOMEBODY", "Look", "Polled"]

ROUNDS, PAUSE_S = 5, 1.0
"""Jobs that are requeued leave their nodes by and by."""


class Polled(Watched):
    """One batch system that is read."""

    reboots = False
    """It reboots no nodes by itself."""

    # --- nodes come ----------------------------------------------------------------------------

    async def set_addresses(self, addresses: Mapping[str, str]) -> None:
        """They join, from where they are; those that have joined from there already stay.

        One that has jobs has joined, though nobody lived to note it: it is not disturbed. One that
        is refused keeps no other from joining.
        """
        self._ours(addresses)
        async with self._book.moving:
            look = await self.look()
            staying = [n for n in addresses if look.marks.course(n) is not Course.LEAVING]
            fresh = {
                name: addresses[name]
                for name in staying
                if look.health(name) is Health.ABSENT or look.nodes[name].address != addresses[name]
            }
            persons = _somebodys(look, fresh)  # it may forget them when they join
            await self._book.change(lambda marks: marks.drained(persons))
            known, new = look.marks.nodes, Mark(Course.STARTING, self._now())
            busy = {name: at for name, at in fresh.items() if look.nodes[name].busy}
            await self._mark({n: replace(known.get(n, new), address=at) for n, at in busy.items()})
            if refused := await refusals(
                [name for name in fresh if name not in busy],
                lambda names: self._join({name: fresh[name] for name in names}),
                self.queue.version,
            ):
                raise NotTaken(in_words(refused), refused)

    async def _join(self, addresses: Mapping[str, str]) -> None:
        """A mark has the address only when that is done: what was heard before counts no more."""
        if not addresses:
            return
        starting = {name: Mark(Course.STARTING, self._now(), told=True) for name in addresses}
        await self._mark(starting)
        members = self.members
        await self.queue.join([replace(members[n], address=at) for n, at in addresses.items()])
        drains = (await self._book.read()).drains
        for reason, names in by_reason({n: drains[n] for n in addresses if n in drains}).items():
            await self.queue.drain(names, reason)  # before it is heard from, and gets a job
        await self._mark({n: replace(starting[n], address=at) for n, at in addresses.items()})

    async def joined(self) -> frozenset[str]:
        """Nodes that it expects, or hears from already, where they are."""
        marks = (await self._book.read()).nodes
        return frozenset(name for name, mark in marks.items() if mark.address)

    async def untold(self, nodes: Iterable[str]) -> list[str]:
        """Those that it was told nothing of since they were off: it has no jobs on them."""
        marks = (await self._book.read()).nodes
        known = {name: marks.get(name, _OFF) for name in nodes}
        return [name for name, mark in known.items() if _is_untold(mark)]

    async def power_up(self, nodes: Iterable[str]) -> None:
        """They are wanted: those that were leaving, by whose wish ever, and are there still stay.

        Not for nodes that an operation is at: it may be about to delete them.
        """
        names = self._ours(nodes)
        async with self._book.moving:
            look = await self.look()
            leaving = [n for n in names if look.marks.course(n) is Course.LEAVING]
            await self._stay(look, leaving)
            off = [
                name
                for name in names
                if look.nodes[name].power is Power.DOWN and name not in look.marks.nodes
            ]
            await self._mark({name: Mark(Course.STARTING, self._now()) for name in off})

    async def recall(self, nodes: Iterable[str]) -> list[str]:
        """Jobs want them: those stay, and are answered, that left because they were idle.

        What a person sent away meanwhile goes.
        """
        names = self._ours(nodes)
        async with self._book.moving:
            look = await self.look()
            return await self._stay(look, [name for name in names if _leaves_idle(look, name)])

    async def _stay(self, look: Look, leaving: Sequence[str]) -> list[str]:
        """Those that are there still."""
        courses = {Health.UP: Course.UP, Health.JOINING: Course.STARTING}
        staying = [name for name in leaving if look.health(name) in courses]
        free = [name for name in staying if name not in look.marks.drains]
        if ours := [n for n in free if not is_persons(seen_of(look.reading, n))]:
            await self.queue.undrain(ours)
            await self._wake()
        marks = {name: look.marks.nodes[name] for name in staying}
        await self._mark(
            {
                name: replace(mark, course=courses[look.health(name)], asked=False)
                for name, mark in marks.items()
            }
        )
        return staying

    async def expect(self, nodes: Iterable[str]) -> None:
        """They start afresh in place: they leave, and join again where they are."""
        names = self._ours(nodes)
        async with self._book.moving:
            look = await self.look()
            marks = {name: look.marks.nodes[name] for name in names if name in look.marks.nodes}
            _require(await self._abandon(look, list(marks), "starts afresh"))
            await self._join({name: mark.address for name, mark in marks.items() if mark.address})

    # --- nodes go ------------------------------------------------------------------------------

    async def power_down(self, nodes: Iterable[str]) -> None:
        """They leave when their jobs have ended, whatever else may wait."""
        await self._part(nodes, "is to leave", asked=True)

    async def retire(self, nodes: Iterable[str]) -> None:
        """They leave because they are idle or too many, and stay if they are needed before that.

        Jobs that they have, or got a moment ago, go on to their end.
        """
        await self._part(nodes, "idle, leaves", asked=False)

    async def _part(self, nodes: Iterable[str], why: str, asked: bool) -> None:
        names = self._ours(nodes)
        async with self._book.moving:
            look = await self.look()
            up = [name for name in names if look.nodes[name].power is not Power.DOWN]
            known = {name: look.marks.nodes.get(name, _OFF) for name in up}
            now = self._now()
            await self._mark(
                {
                    name: Mark(Course.LEAVING, now, mark.address, asked or mark.asked, told=True)
                    for name, mark in known.items()
                }
            )
            await self._close(look, up, why)
            if unheard := [name for name in up if look.health(name) is Health.JOINING]:
                await self.queue.leave(unheard)  # what stays all the same departs like others

    async def depart(self, nodes: Iterable[str]) -> Mapping[str, str]:
        """Have the batch system forget nodes that leave; answers those that it keeps, and why."""
        names = self._ours(nodes)
        async with self._book.moving:
            look = await self.look()
            leaving = [n for n in names if look.marks.course(n) is Course.LEAVING]
            kept = {name: "it is not to leave" for name in names if name not in leaving}
            await self._close(look, leaving, "leaves")
            there = look.there(leaving)
            return kept | dict(await self.queue.leave(there) if there else {})

    async def _close(self, look: Look, names: Iterable[str], why: str) -> None:
        """No new jobs for them; whose drain they had is known when they come back."""
        there = [seen_of(look.reading, name) for name in look.there(names)]
        persons = _somebodys(look, (one.name for one in there))
        lifted = [n.name for n in there if n.health is Health.UP and not n.drained]
        await self._book.change(lambda known: known.undrained(lifted).drained(persons))
        if taking := [one.name for one in there if not one.drained]:
            await self.queue.drain(taking, f"{OURS}: {why}")

    async def give_back(self, nodes: Iterable[str], reason: str) -> None:
        """They cannot start, or died: the jobs on them wait again, and they are off."""
        names = self._ours(nodes)
        async with self._book.moving:
            await self._let_go(await self.look(), names, reason)

    async def fail(self, nodes: Iterable[str], reason: str) -> None:
        """Out of service at once; they must join anew to be heard from again."""
        names = self._ours(nodes)
        async with self._book.moving:
            _require(await self._abandon(await self.look(), names, reason))

    async def release(self, nodes: Iterable[str]) -> None:
        """Their instances are gone: off, and free to be asked for."""
        names = self._ours_among(nodes)
        async with self._book.moving:
            look = await self.look()
            gone = [name for name in names if _is_let_go(look, name)]
            await self._let_go(look, gone, "its instance is gone")

    async def _let_go(self, look: Look, names: Sequence[str], reason: str) -> None:
        """What was closed for that is over with it; a person's drain is not."""
        kept = await self._abandon(look, names, reason)
        off = [name for name in names if name not in kept]
        await self._book.change(lambda known: known.without(off).undrained(_ours_of(known, off)))
        _require(kept)

    async def _abandon(self, look: Look, names: Sequence[str], reason: str) -> Mapping[str, str]:
        """Off with nodes, whatever is on them: no job may go on where nobody hears of it.

        Answers those that the batch system keeps, and why.
        """
        await self._close(look, names, reason)
        reading, kept = look.reading, dict.fromkeys(look.there(names), "")
        for turn in range(ROUNDS):
            if not kept:
                break
            if turn:
                await asyncio.sleep(PAUSE_S)
                reading = await self._read()
            if doomed := dict.fromkeys(j for n in kept for j in seen_of(reading, n).jobs):
                await self.queue.requeue(doomed)
            kept = dict(await self.queue.leave(list(kept)))
        return kept

    # --- drains ----------------------------------------------------------------------------------

    async def drain(self, nodes: Iterable[str], reason: str, by: str = OURS) -> None:
        """A person who drains a node that was idle and leaves wants it to stay as it is."""
        names = self._ours(nodes)
        words = f"{OURS}: {reason}" if by == OURS else reason
        async with self._book.moving:
            look = await self.look()
            wanted = [name for name in names if _may_drain(look.nodes[name], by)]
            drains = dict.fromkeys(wanted, Drain(by, words))
            leaving = {n: look.marks.nodes[n] for n in wanted if by != OURS and _was_idle(look, n)}
            kept = {name: replace(mark, course=Course.UP) for name, mark in leaving.items()}
            await self._book.change(lambda known: known.drained(drains).marked(kept))
            if there := look.there(wanted):
                await self.queue.drain(there, words)
                told = dict.fromkeys(there, Drain(by, words, self._now(), look.reading.started_at))
                await self._book.change(lambda known: known.drained(told))

    async def undrain(self, nodes: Iterable[str], by: str | None = OURS) -> None:
        names = self._ours_among(nodes)
        async with self._book.moving:
            look = await self.look()
            seen = [look.nodes[name] for name in names]
            ended = [one.name for one in seen if one.drained and by in (None, one.owner)]
            leaving = [n for n in ended if look.marks.course(n) is Course.LEAVING]
            if there := look.there(name for name in ended if name not in leaving):
                await self.queue.undrain(there)
                await self._wake()
            if there := look.there(leaving):
                await self.queue.drain(there, f"{OURS}: is to leave")
            await self._book.change(lambda known: known.undrained(ended))

    # --- what such batch systems do not do -------------------------------------------------------

    async def set_instances(self, instances: Mapping[str, tuple[str, str]]) -> None:
        """They have no place for it."""

    async def reboot(self, nodes: Iterable[str], reason: str) -> None:
        raise Unavailable("this batch system reboots no nodes; rebuild them with --direct")

    async def submit_rebuilds(self, nodes: Iterable[str], command: str | None) -> Mapping[str, str]:
        raise Unavailable("jobs of this batch system rebuild no nodes; leave --via jobs away")

    async def close(self) -> None:
        """Every node of ours is drained by whoever closes it; others are not ours to close."""

    async def open(self) -> None:
        """Nothing was closed."""

    async def reopen(self) -> None:
        """Nor then."""

    # --- the rest ----------------------------------------------------------------------------

    async def tell(self, job: str, text: str) -> None:
        await self.queue.tell(job.split(","), f"{OURS}: {text}")

    async def reload(self, site: Site) -> str:
        """Have it accept jobs for nodes that are off; its configuration is not ours to write.

        Nodes that are ours no more are forgotten, once nothing of them is there.
        """
        version = await self.queue.version()
        async with self._book.moving:
            look = await self.look()
            former = [n for n in look.marks.prepared if n not in self.members]
            gone = [name for name in former if name not in look.there(former)]
            changed = await self.queue.prepare(self._placed(site))
            if gone:
                await self.queue.dismantle(gone)
            known = tuple({*self.members, *former} - {*gone})
            await self._book.change(
                lambda marks: replace(marks.without(gone).undrained(gone), prepared=known)
            )
        return f"{version}: {changed}" if changed else ""

    def _placed(self, site: Site) -> list[Member]:
        """All nodes, with the addresses that they will have where these are known."""
        known = self._planned(site)
        return [replace(one, address=known.get(name, "")) for name, one in self.members.items()]

    async def stop(self, for_good: bool = True) -> None:
        """Have nothing run on our nodes, former ones too; what they had waits again.

        It runs on, and takes jobs for them unless it has to forget them for good. Who drained
        which is kept for the next start.
        """
        async with self._book.moving:
            look = await self.look()
            known = tuple({**self.members, **dict.fromkeys(look.marks.prepared)})
            _require(await self._abandon(look, known, "the cluster stops"))
            if for_good:
                await self.queue.dismantle(known)
            prepared = () if for_good else look.marks.prepared
            await self._book.change(lambda marks: replace(marks, nodes={}, prepared=prepared))

    async def _mark(self, marks: Mapping[str, Mark]) -> None:
        await self._book.change(lambda known: known.marked(marks))

    def _ours(self, nodes: Iterable[str]) -> list[str]:
        """As with scontrol, one wrong name spoils the command."""
        names = list(dict.fromkeys(nodes))
        if unknown := [name for name in names if name not in self.members]:
            raise Unavailable(f"{fold(unknown)}: no nodes of this cluster; `tide nodes` has them")
        return names

    def _ours_among(self, nodes: Iterable[str]) -> list[str]:
        """Those that are ours, for what must not fail for one that has left the cluster file
        meanwhile; refused if none is."""
        names = list(dict.fromkeys(nodes))
        return [name for name in names if name in self.members] or self._ours(names)


_OFF = Mark(Course.STARTING, 0.0)


def _is_untold(mark: Mark) -> bool:
    return mark.course is Course.STARTING and not mark.told and not mark.address


def _ours_of(known: Marks, names: Iterable[str]) -> list[str]:
    return [n for n in names if n in known.drains and known.drains[n].owner == OURS]


def _require(kept: Mapping[str, str]) -> None:
    if kept:
        words = "; ".join(f"{name}: {why}" for name, why in kept.items())
        raise NotTaken(f"the batch system keeps {fold(kept)}: {words}", kept)


def _is_let_go(look: Look, name: str) -> bool:
    """Off, or on its way there, even if a job got hold of it at the last moment."""
    let_go = look.nodes[name].power in (Power.DOWN, Power.GOING_DOWN)
    return let_go or look.marks.course(name) is Course.LEAVING


def _somebodys(look: Look, names: Iterable[str]) -> dict[str, Drain]:
    """Drains in the batch system itself that nobody keeps yet, or one of ours in their place."""
    known = {name for name, drain in look.marks.drains.items() if drain.owner != OURS}
    seen = (look.nodes[name] for name in names if name in look.nodes)
    new = (one for one in seen if one.owner == SOMEBODY and one.name not in known)
    return {one.name: Drain(SOMEBODY, one.reason) for one in new}


def _leaves_idle(look: Look, name: str) -> bool:
    """By nobody's wish."""
    mark = look.marks.nodes.get(name)
    return mark is not None and mark.course is Course.LEAVING and not mark.asked


def _was_idle(look: Look, name: str) -> bool:
    """It leaves by nobody's wish, and is there still."""
    return _leaves_idle(look, name) and look.health(name) is Health.UP


def _may_drain(node: BatchNode, by: str) -> bool:
    return not node.drained or (node.owner == OURS and by != OURS)
