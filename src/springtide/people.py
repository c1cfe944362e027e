"""What people may ask of a cluster. The API hands it on; operations go to the engine.

Where the batch system can do it, it is asked, and its programs call us in turn.
"""

import asyncio
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any

from springtide import decide, service
from springtide.batch.polled import Polled
from springtide.engine import Engine, Refused
from springtide.model import DRAINS, Kind, NodeState, Operation
from springtide.nodeset import fold
from springtide.planner import SERVING, Planner
from springtide.plans import Plan
from springtide.ports import BatchNode, Power, StoreError, Unavailable
from springtide.spec import Cluster
from springtide.spec.fingerprint import fingerprint
from springtide.spec.leaving import Changes, diff
from springtide.spool import BadRequest
from springtide.steps import Parts, unready


@dataclass(frozen=True, slots=True)
class Answer:
    """What became of a request by hand."""

    operations: tuple[Operation, ...] = ()
    asked: tuple[str, ...] = ()
    """Nodes that the batch system was asked for; its programs call us in turn."""
    settled: tuple[str, ...] = ()
    """Nodes that were so already."""


class People:
    """Requests by hand, each answered at once; what follows is the engine's."""

    def __init__(self, parts: Parts, engine: Engine) -> None:
        self.parts = parts
        self.engine = engine
        self.planner = Planner(parts)
        self.applying = asyncio.Lock()
        """Held by whoever looks at a file, and applies it."""

    async def resume(self, names: Iterable[str], by: str) -> Answer:
        """Have nodes up, through the batch system where it believes them to be off.

        Not what is held: it would be given back at once, and a person may know better. What is
        too many by the calendar is refused.
        """
        wanted = self.deployed(names)
        await self._refuse_away()
        nodes = self.parts.record.of(wanted)
        held = self.parts.holding.held_back(self.parts.spec)
        seen = await self.parts.batch.nodes(wanted)
        self._refuse_unknown(wanted, seen)
        self.planner.refuse_starts_against_calendar(wanted, seen)
        how = decide.resume_by_hand(nodes, seen, held)
        if self.parts.spec.polled and (going := decide.let_go(nodes, seen)):
            await self.engine.submit(Kind.SUSPEND, going, asked_by=by)
        return await self._by_hand(Kind.RESUME, how, by)

    async def suspend(self, names: Iterable[str], by: str) -> Answer:
        """Have nodes gone, through the batch system where jobs may run on them."""
        wanted = self.deployed(names)
        await self._refuse_away()
        nodes = self.parts.record.of(wanted)
        how = decide.suspend_by_hand(nodes, await self.parts.batch.nodes(wanted))
        return await self._by_hand(Kind.SUSPEND, how, by)

    def deployed(self, names: Iterable[str]) -> tuple[str, ...]:
        if self.parts.site is None:
            command = "attach" if self.parts.spec.attached else "deploy"
            raise Unavailable(
                f"{self.parts.spec.cluster} is not deployed yet; run `tide {command}` first"
            )
        if self.parts.stopped:
            raise Unavailable(f"{self.parts.spec.cluster} is stopped; run `tide start` first")
        return self.parts.spec.require(names)

    def _refuse_unknown(self, names: Iterable[str], seen: Mapping[str, BatchNode]) -> None:
        """The owner of a Slurm that is there without us has to let our nodes in first."""
        unknown = [name for name in names if name not in seen]
        if unknown and self.parts.spec.attached:
            raise Unavailable(
                f"Slurm does not know {fold(unknown)} yet; run `tide attach` to see what to do"
            )

    async def _refuse_away(self, todo: str = "try again when it does") -> None:
        """Before anything is begun of which a batch system that is read has to hear."""
        if isinstance(self.parts.batch, Polled):
            await self.parts.batch.require_answer(todo)

    async def _by_hand(self, kind: Kind, how: decide.ByHand, by: str) -> Answer:
        ask = self.parts.batch.power_up if kind is Kind.RESUME else self.parts.batch.power_down
        if how.through_batch:
            await ask(how.through_batch)
            what = f"{kind} asked of the batch system"
            await self._note(what, dict.fromkeys(how.through_batch, f"by {by}"))
        operations: Sequence[Operation] = ()
        if how.direct:
            operations = await self.engine.submit(kind, how.direct, asked_by=by)
        return Answer(tuple(operations), how.through_batch, how.settled)

    async def deploy(self, by: str) -> Answer:
        """The site, the batch system, the nodes that are always up, and others that died."""
        self.planner.refuse_strays()
        await self._refuse_unfit(self.parts.wanted)
        await self.planner.refuse_playbooks(self.parts.wanted)
        lost = await self.planner.lost()
        names = dict.fromkeys((*self.parts.kept_up(), *lost))
        options = {"lost": fold(lost)} if lost else None
        return await self._operate(Kind.DEPLOY, names, by, options)

    async def destroy(self, by: str, options: Mapping[str, Any] | None = None) -> Answer:
        """Everything that carries the cluster's tag; starts under way are cancelled.

        A batch system that is read has to forget the nodes, unless it never heard of them.
        """
        leaves = bool(options and options.get("leave_batch"))
        if leaves and not self.parts.spec.polled:
            raise BadRequest(
                "the batch system is the cluster's own and goes with it: leave --leave-batch away"
            )
        if self.parts.is_up and not leaves:
            await self._refuse_away(
                "start it, and run `tide destroy` again; if it is gone for good, run "
                "`tide destroy --leave-batch`"
            )
        answer = await self._operate(Kind.DESTROY, self.parts.spec.managed, by, options)
        self.engine.end_starts(f"{by}, who destroys the cluster")
        return answer

    async def stop(self, by: str, options: Mapping[str, Any]) -> Answer:
        """All nodes and the batch system, when their jobs have ended or, if told so, now."""
        self.deployed(())
        await self._refuse_away()
        return await self._operate(Kind.STOP, self.parts.spec.managed, by, options)

    async def kill(self, names: Iterable[str], by: str) -> Answer:
        """Instances away at once; their jobs go back to the queue, if there is one to ask.

        A node that serves without an instance is put out of service: whose slurmd that is, and
        on which machine, is for people to find out.
        """
        wanted = self.deployed(names)
        self.engine.refuse_imaged(wanted)
        with self.parts.parting(wanted):
            with suppress(Unavailable):
                await self._put_out(wanted, by)
            return await self._operate(Kind.SUSPEND, wanted, by, {"now": True})

    async def _put_out(self, names: Iterable[str], by: str) -> None:
        seen = await self.parts.batch.nodes(names)
        up = await self._not_starting(seen)
        off = self.parts.record.of(up, NodeState.OFF)
        strange = {n.name: seen[n.name] for n in off if seen[n.name].registered}
        # Down first: a job on a node that is merely given back ends with its slurmd's word.
        await self.parts.batch.fail(up, f"killed by {by}")
        await self.parts.batch.give_back(up, f"killed by {by}")
        told = {n: f"it answered at {one.address}; by {by}" for n, one in strange.items()}
        await self.parts.record.note("strange slurmd put out of service", nodes=told)

    async def _not_starting(self, seen: Mapping[str, BatchNode]) -> list[str]:
        """Nodes that the batch system has or waits for.

        One that is polled waits because we do: it is told not to, and whoever starts them lets go.
        """
        up = [name for name, node in seen.items() if node.power is Power.UP]
        starting = [name for name, node in seen.items() if node.power is Power.GOING_UP]
        if self.parts.spec.polled:
            await self.parts.batch.power_down(starting)
            return up
        return [*up, *starting]

    async def rebuild(self, names: Iterable[str], by: str, options: Mapping[str, Any]) -> Answer:
        """A fresh start for nodes in service that are not as the file says, or, with `force`, all.

        In batches, those without jobs first.
        """
        wanted = self.deployed(names)
        doomed = await self.planner.outdated(wanted, options)
        rest = tuple(name for name in wanted if name not in doomed)
        if not doomed:
            return Answer(settled=rest)
        settings = self.parts.spec.rebuild
        via = self.parts.rebuilds_via
        if via == "direct" and options.get("via") == "reboot":
            why = " for us, since RebootProgram is not ours" if self.parts.spec.attached else ""
            raise BadRequest(f"this batch system reboots no nodes{why}: leave --via reboot away")
        given = {"via": via, "batch": settings.batch, "pause": settings.pause, **options}
        return replace(await self._operate(Kind.REBUILD, doomed, by, given), settled=rest)

    async def rebuild_by_jobs(
        self, names: Iterable[str], command: str | None, options: Mapping[str, Any]
    ) -> Mapping[str, str]:
        """One job for each node, ahead of all others; answers their ids.

        With a command, which is tried on every node in service, nothing is rebuilt.
        """
        wanted = self.deployed(names)
        if options.get("image"):
            raise BadRequest(
                "jobs rebuild with the image of the cluster file: change that, apply it"
            )
        chosen = {**options, "force": True} if command else options
        doomed = await self.planner.outdated(wanted, chosen)
        if not doomed:
            return {}
        return await self.parts.batch.submit_rebuilds(doomed, command)

    async def update(self, names: Iterable[str], by: str, options: Mapping[str, Any]) -> Answer:
        """Configuration of now for nodes in service."""
        up = [node.name for node in self.parts.record.of(self.deployed(names), *SERVING)]
        await self.planner.refuse_playbooks(self.parts.spec)
        return await self._operate(Kind.UPDATE, up, by, options)

    async def drain(self, names: Iterable[str], reason: str, by: str) -> Answer:
        """No new jobs for nodes, by a person's wish, beyond the end of an operation's own drain."""
        wanted = self.deployed(names)
        await self._refuse_away()
        await self.parts.batch.drain(wanted, reason, by)
        await unready.heed(self.parts, wanted)
        await self._note("drain asked", dict.fromkeys(wanted, f"{by}: {reason}"), "drained")
        return Answer(asked=wanted)

    async def undrain(self, names: Iterable[str], by: str, force: bool = False) -> Answer:
        """Back to service what this person drained or put down, or with force whoever else."""
        wanted = self.deployed(names)
        await self._refuse_away()
        seen = await self.parts.batch.nodes(wanted)
        if held := set(wanted) & self.engine.at(*DRAINS):
            raise Refused(f"an operation drains {fold(held)}; see `tide operations`, cancel that")
        out = service.withheld(seen)
        others = service.withheld_by_others(out, by)
        if others and not force:
            raise Refused(
                "; ".join(f"{fold(names)} {what}" for what, names in others.items())
                + "; say --force to undrain all the same"
            )
        await self.parts.batch.undrain(wanted, None if force else by)
        for name in wanted:
            self.parts.drains.pop(name, None)
        await self._note("undrain asked", dict.fromkeys(out, f"by {by}"), "undrained")
        settled = tuple(name for name in wanted if name not in out)
        return Answer(asked=tuple(out), settled=settled)

    async def _note(self, what: str, nodes: Mapping[str, str], done: str = "") -> None:
        """What was done already; whoever asked hears that it was, though nobody else will."""
        try:
            await self.parts.record.note(what, nodes=nodes)
        except StoreError as error:
            told = f"{fold(nodes)}: {done or what}, as you wanted, but {error}"
            raise StoreError(f"{told}; make room in {self.parts.spec.state}") from error

    async def apply(
        self, wanted: Cluster, by: str, store: Callable[[], None], base: str = ""
    ) -> Answer:
        """Go on with another cluster file: nodes leave and join as it says.

        `base` is the fingerprint of the file that it was made from, if that is known. The file
        is kept before anything follows from it. Whatever is cut off after that is found again
        by whoever applies it once more. The caller holds `applying`.
        """
        if base not in ("", fingerprint(self.parts.wanted)):
            raise Refused("somebody applied another file meanwhile; look at it and try again")
        changes = self._allowed(wanted)
        self.planner.refuse_strays()
        if self.parts.is_up:
            await self._refuse_unfit(wanted)
            await self.planner.refuse_lost_jobs(wanted)
            self._refuse_imaged(wanted, changes)
        await self.parts.adopt(wanted, store)
        if not self.parts.is_up:
            return Answer()  # a deploy or start will do what follows
        await self._keep((*wanted.always_up, *self.parts.kept_up()), by)
        going, coming = self.engine.at(Kind.SHRINK), self.engine.at(Kind.ENLARGE)
        change = self.planner.resizing(wanted, changes, going=going, coming=coming)
        opened: list[Operation] = []
        for kind, names in change.operations():
            opened += await self.engine.submit(kind, names, asked_by=by)
        self.parts.holding.changed.set()  # what the former file held back need not wait
        return Answer(tuple(opened))

    async def foresee(self, wanted: Cluster) -> tuple[Changes, list[Plan]]:
        """What another file would change; refused if that cannot be now."""
        changes, plans = await self.planner.plan_apply(wanted)
        if self.parts.is_up and not changes.refusals and (changes.lines or plans):
            await self._refuse_unfit(wanted)
            await self.planner.refuse_lost_jobs(wanted)
            self._refuse_imaged(wanted, changes)
        return changes, plans

    def _refuse_imaged(self, wanted: Cluster, changes: Changes) -> None:
        """A node that would leave while an image is being made of it."""
        self.engine.refuse_imaged(self.planner.resizing(wanted, changes).leaving, "keep it")

    async def _refuse_unfit(self, wanted: Cluster) -> None:
        """A batch system that is read and not ours to write must know the nodes before we pay."""
        if not wanted.polled:
            return
        remade = self.parts.remade
        batch = (remade(wanted) if remade else self.parts).batch
        assert isinstance(batch, Polled)
        await batch.require()

    async def _keep(self, names: Iterable[str], by: str) -> None:
        """Nodes that are wanted again are not taken away, if that is not under way yet."""
        for id in self.engine.shrinking(names):
            with suppress(Refused):
                await self.engine.cancel(id, f"{by}, who wants nodes of it after all")

    def _allowed(self, wanted: Cluster) -> Changes:
        changes = diff(self.parts.wanted, wanted)
        if changes.refusals:
            raise Refused("; ".join(changes.refusals))
        return changes

    async def _operate(
        self, kind: Kind, names: Iterable[str], by: str, options: Mapping[str, Any] | None = None
    ) -> Answer:
        opened = await self.engine.submit(kind, names, asked_by=by, options=options)
        return Answer(tuple(opened))
