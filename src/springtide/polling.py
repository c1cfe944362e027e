"""Looks at a polled batch system again and again, and has nodes come and go with its jobs.

The daemon runs one Poller beside the Reconciler. It does what slurmctld's power saving does: it
asks for nodes and lets them go, by the same requests as Slurm's programs, and leaves the rest to
operations and repairs. A look that fails decides nothing. In maintenance it goes on, as Slurm does,
but for what the calendar alone wants.
"""

import asyncio
import json
import traceback
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from uuid import uuid4

from springtide import maintenance, scaling
from springtide.batch.polled import Look, Polled
from springtide.batch.polled_look import Change, in_words, refusals
from springtide.calendar import limits
from springtide.engine import Engine, Refused
from springtide.lookout import Lookout
from springtide.model import SITE, Kind, Operation, Request
from springtide.nodeset import fold
from springtide.ports import Unavailable
from springtide.scaling import Decision, Memory
from springtide.scene import Scene
from springtide.steps import Parts, Work
from springtide.steps.telling import tell
from springtide.story.telling import jobs_named

FIRST_S = 2.0
AGAIN_S = 30.0
"""So long a request may take to become an operation before it is made again."""
LEAST_S = 1.0
"""Between two looks, however often it is told to look."""
MOST_JOBS = 100
"""Jobs that a request names."""
LETTER = 100
"""Jobs that are told something with one command."""
EXHAUSTED, NEVER = "pool exhausted", "jobs that can never start"
TOLD = "told that they can never start"
"""The fact that has the jobs of each reason."""
KEPT, REFUSES = "nodes not let go", "batch system refuses"
STUCK = "jobs that wait, but not for nodes"
VAIN = "nodes that take no jobs"
ADVICE = (
    "it answers, so see in its log why, and whether our user may change it; nodes that it keeps "
    "run on, and cost"
)
Receive = Callable[[Request], Awaitable[Sequence[str]]]


@dataclass(frozen=True, slots=True)
class Turn:
    """What was seen last, and what was decided then."""

    look: Look
    decision: Decision


class Poller:
    """Of one cluster; idle while its batch system asks for nodes itself."""

    def __init__(self, parts: Parts, engine: Engine, receive: Receive) -> None:
        self.parts = parts
        self.engine = engine
        self._receive = receive
        self._lookout = Lookout(parts, engine)
        self.last: Turn | None = None
        """For those who tell why; None before the first look."""
        self._memory = Memory()
        self._asked_at: dict[tuple[str, str], float] = {}
        """When what was requested for which node."""
        self._told: Mapping[str, str] | None = None
        """What jobs were told that can never start, as long as that is so; None if not yet read."""
        self._stuck_job: dict[str, str] = {}
        """A job of each user who has some that nodes would not help."""
        self._refused: dict[str, str] = {}
        """What the batch system did not let us do, in words."""
        self._woken = asyncio.Event()

    def wake(self) -> None:
        """Something changed in the batch system: look now."""
        self._woken.set()

    async def run(self) -> None:
        """For ever; whatever goes wrong, the next look comes."""
        await asyncio.sleep(min(FIRST_S, self._every_s))
        while True:
            self._woken.clear()  # whatever it was, this look sees it
            try:
                await self.once()
            except (Refused, Unavailable):
                pass  # whoever is away, the reconciler says so
            except Exception:
                self.parts.record.complain("polling broke", traceback.format_exc())
            await self._pause()

    @property
    def _every_s(self) -> float:
        return scaling.polling_of(self.parts.spec).every

    async def _pause(self) -> None:
        """Whoever calls in the first moment has a look at its end, and others have one at once."""
        least_s = min(LEAST_S, self._every_s)
        await asyncio.sleep(least_s)
        with suppress(TimeoutError):
            async with asyncio.timeout(self._every_s - least_s):
                await self._woken.wait()

    async def once(self) -> None:
        """One look, and what follows from it; raises Unavailable."""
        parts, batch = self.parts, self.parts.batch
        if parts.site is None or parts.stopped or SITE in self.engine.claimed():
            return
        if not isinstance(batch, Polled):
            return
        claimed = self.engine.claimed() | parts.taken
        resting = await maintenance.read(parts.record.store) is not None
        look = await batch.look()
        claimed |= self.engine.claimed() | parts.gallery.claimed | parts.taken
        if SITE in claimed or batch is not parts.batch:
            return
        await self._tell_renewed(batch)
        decision = scaling.decide(self._scene(batch, look, claimed, resting), self._memory)
        self._memory = decision.memory
        self.last = Turn(look, decision)
        await self._lookout.say(EXHAUSTED, "; ".join(decision.exhausted.values()))
        await self._lookout.say(VAIN, "; ".join(decision.vain.values()))
        await self._lookout.say(STUCK, self._stuck(self.last))
        before, self._refused = self._refused, {}
        await self._act(batch, decision)
        await self._tell(decision.demand.impossible)
        self._refused |= batch.refused
        await self._complain(before)

    async def _tell_renewed(self, batch: Polled) -> None:
        """Of drains that were set again, for whoever wonders why a node takes no jobs."""
        renewed, batch.renewed = batch.renewed, {}
        if renewed:
            await self.parts.record.note("drain set again", nodes=renewed)

    def _scene(self, batch: Polled, look: Look, claimed: frozenset[str], resting: bool) -> Scene:
        parts, spec, now = self.parts, self.parts.spec, self.parts.record.now()
        gone = (name for name in spec.managed if name not in parts.wanted.node_group)
        return Scene(
            spec=spec,
            polling=scaling.polling_of(spec),
            members=batch.members,
            look=look,
            record=parts.record.nodes,
            limits=limits(spec, datetime.fromtimestamp(now, UTC)),
            claimed=claimed,
            held=frozenset((*parts.holding.held_back(spec), *gone)),
            resting=resting,
            now=now,
        )

    # --- acting --------------------------------------------------------------------------------

    async def _act(self, batch: Polled, decision: Decision) -> None:
        """Marks are on disk before requests, which are made again as long as nothing follows.

        What is refused keeps nothing else from being done.
        """
        started = await self._have("start", decision.start, batch.power_up)
        await self._request("resume", (*started, *decision.resume), decision)
        kept: list[str] = []

        async def recall(names: Sequence[str]) -> None:
            kept.extend(await batch.recall(names))

        await self._have("keep", decision.recall, recall)
        await self._note("node needed again", kept, "it was leaving, and jobs wait")
        retired = await self._have("drain", decision.retire, batch.retire)
        await self._note("node retired", retired, "nothing for it to do, so it leaves")
        stayed: dict[str, str] = {}

        async def depart(names: Sequence[str]) -> None:
            stayed.update(await batch.depart(names))

        await self._have("let go", decision.depart, depart)
        await self._lookout.say(KEPT, in_words(stayed))
        await self._request("suspend", decision.suspend)
        await self._have("release", decision.release, batch.release)

    async def _have(self, what: str, names: Sequence[str], call: Change) -> list[str]:
        """Those for which the batch system did it."""
        refused = await refusals(names, call, self.parts.batch.version)
        if refused:
            self._refused[what] = f"{what} {in_words(refused)}"
        return [name for name in names if name not in refused]

    def _stuck(self, turn: Turn) -> str:
        """In words that stay the same while some of a user's wait so."""
        found: dict[str, list[str]] = {}
        for job in turn.look.reading.jobs:
            if turn.decision.memory.doubts.keep_out(job):
                found.setdefault(job.user, []).append(job.id)
        said = self._stuck_job
        named = {
            user: said[user] if said.get(user) in ids else ids[-1] for user, ids in found.items()
        }
        self._stuck_job = named
        if not named:
            return ""
        users = ", ".join(f"{user} (such as {job})" for user, job in sorted(named.items()))
        return (
            f"jobs of {users}: nodes that would hold them stood free, and they were not started; "
            "a quota, a limit or access may keep them, or the scheduler stands still, so no nodes "
            "start or stay for them for now; "
            "`tide why JOB` tells more"
        )

    async def _complain(self, before: Mapping[str, str]) -> None:
        """Of what was refused twice; a batch system that went away is told of by others."""
        lasting = [words for what, words in self._refused.items() if what in before]
        advice = f"; {ADVICE}" if lasting else ""
        await self._lookout.say(REFUSES, "; ".join(lasting) + advice)

    @property
    def troubles(self) -> dict[str, str]:
        """What was said of the last look, for whoever asks."""
        return self._lookout.standing(EXHAUSTED, NEVER, VAIN, STUCK, KEPT, REFUSES)

    async def _note(self, what: str, names: Sequence[str], why: str) -> None:
        if names:
            await self.parts.record.note(what, nodes=dict.fromkeys(names, why))

    async def _request(
        self, program: str, names: Iterable[str], decision: Decision | None = None
    ) -> None:
        """As the batch system's programs would, if it had any."""
        now = self.parts.record.now()
        asked = {key: at for key, at in self._asked_at.items() if 0 <= now - at < AGAIN_S}
        due = tuple(name for name in dict.fromkeys(names) if (program, name) not in asked)
        self._asked_at = asked | {(program, name): now for name in due}
        if not due:
            return
        needs = decision.demand if decision else None
        jobs = needs.jobs[:MOST_JOBS] if needs else ()
        wide = {job: fold(needs.wide[job]) for job in jobs if job in needs.wide} if needs else {}
        await self._receive(Request(f"poll-{uuid4().hex}", program, due, now, jobs, wide))

    async def _tell(self, impossible: Mapping[str, str]) -> None:
        """The owners, once, and whoever reads events."""
        letters = _by_reason(impossible)
        words = (f"{jobs_named(jobs)}: {why}" for why, jobs in letters.items())
        await self._lookout.say(NEVER, "; ".join(words))
        before = await self._known()
        told = {job: why for job, why in before.items() if impossible.get(job) == why}
        try:
            for why, jobs in letters.items():
                await self._write(why, [job for job in jobs if job not in told], told)
        except Unavailable as error:
            self._refused["tell"] = f"tell owners of jobs: {error}"
        if told != before:
            self._told = told
            await self.parts.record.store.put(TOLD, json.dumps(_by_reason(told)))

    async def _known(self) -> Mapping[str, str]:
        """What was told before, also by a daemon before this one."""
        if self._told is None:
            kept = json.loads(await self.parts.record.store.get(TOLD) or "{}")
            self._told = {job: why for why, jobs in kept.items() for job in jobs}
        return self._told

    async def _write(self, why: str, jobs: Sequence[str], told: dict[str, str]) -> None:
        """To their owners; whom it reaches is put into `told`."""
        work = Work(self.parts, Operation(0, Kind.RESUME, ()), ())
        for first in range(0, len(jobs), LETTER):
            some = jobs[first : first + LETTER]
            await tell(work, {why: some})
            told |= dict.fromkeys(some, why)


def _by_reason(jobs: Mapping[str, str]) -> dict[str, list[str]]:
    found: dict[str, list[str]] = {}
    for job, why in jobs.items():
        found.setdefault(why, []).append(job)
    return found
