"""Lets nodes in for their tokens, and hears from them for their keys.

The daemon has one `Joining`; `api.joining` calls it. Whoever is refused is an event, but not each
time; why, only those are told who show what was once the node's.
"""

import asyncio
import secrets
from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import asdict, replace
from typing import Any

from springtide.configure.membership import Around, Membership, Newcomer
from springtide.configure.names import has_server
from springtide.joining import admission, machines
from springtide.joining.admission import Cause, Known, Verdict
from springtide.joining.asked import Asked, corrected, untold
from springtide.joining.given_up import GivenUp
from springtide.joining.lacking import Lacking
from springtide.joining.quiet import Quiet
from springtide.layout import Layout
from springtide.model import STARTING, Node, NodeState, Ticket
from springtide.node import PHASES
from springtide.node.fit import LAST
from springtide.ports import Site, Unavailable
from springtide.spec import Torque
from springtide.steps import Parts
from springtide.steps.bootlogs import forget_pushed, push

VERSION_S = 60.0
"""slurmctld's version is asked for again after this."""
FAILED_S = 5.0
"""And after this, if it did not answer."""
KEY_BYTES = 24
REACHED = (NodeState.JOINING, NodeState.READY, NodeState.DRAINING)


Users = Callable[[], Awaitable[dict[str, Any]]]
"""What nodes are told of users."""


class NotAdmitted(Exception):
    """Why a node is refused; if it is final, it need not ask again."""

    def __init__(self, words: str, *, final: bool = True) -> None:
        super().__init__(words)
        self.final = final


class Joining:
    """The daemon's side of nodes that join."""

    def __init__(self, parts: Parts, layout: Layout, users: Users) -> None:
        self.parts = parts
        self.layout = layout
        self._users = users
        self.closed = ""
        """Why nobody can join now; empty if nodes can, or none should."""
        self.lacking = Lacking()
        self.given_up = GivenUp(parts)
        self._quiet = Quiet()
        self._control = ""
        """slurmctld's version, as it was told last."""
        self._control_at = 0.0
        """When it is asked for again."""
        self._asking = asyncio.Lock()
        self._boots: dict[str, tuple[int, str]] = {}
        """Generation and id of the last boot that each node was heard from."""

    async def load(self) -> None:
        """What an earlier run of the daemon was told, and nobody tells again."""
        self._boots |= await self.given_up.load()

    @property
    def membership(self) -> Membership | None:
        return self.parts.membership

    # --- asked by nodes

    async def join(self, asked: Asked, peer: str) -> dict[str, Any]:
        """A welcome and a key, for a token."""
        node, ticket, verdict = await self._let_in(asked, peer)
        version = await self._accepted(asked, node)
        answer = await self._welcome(asked, node, peer, version)
        while (key := await self._admit(asked, ticket, verdict, peer)) is None:
            # Somebody was quicker: perhaps the node itself, that did not wait for its answer.
            node, ticket, verdict = await self._let_in(asked, peer)
        if verdict is Verdict.FIRST:
            await self._tell_joined(asked, node, peer, version)
        await self._note(asked)
        self._boots[asked.node] = (asked.generation, asked.machine.boot)
        forget_pushed(self.layout.boots, node)
        await self.given_up.forget(asked.node)
        return {**answer, "key": key}

    async def refresh(self, asked: Asked, peer: str) -> dict[str, Any]:
        """The same without a key: what has changed, or all of it after a reboot."""
        node = await self._own(asked, peer)
        version = await self._accepted(asked, node)
        answer = await self._welcome(asked, node, peer, version)
        await self._note(asked)
        await self._heard(asked)
        return answer

    async def report(self, asked: Asked, peer: str) -> dict[str, Any]:
        """How its boot goes, or why it came to an end."""
        node = await self._own(asked, peer)
        await self._note(asked)
        if asked.failed:
            await self._failed(asked, node)
        elif any(phase.name in LAST and not phase.detail for phase in asked.phases):
            forget_pushed(self.layout.boots, node)
            await self.given_up.forget(node.name)
        return {}

    # --- who they are

    async def _known(self, asked: Asked) -> Known:
        tickets = self.parts.tickets
        cluster = self.parts.spec.cluster
        node = self.parts.record.nodes.get(asked.node)
        found = await self.parts.record.store.tickets([node.name]) if node else {}
        ticket = found.get(asked.node)
        token = tickets.token(cluster, ticket) if ticket else ""
        genuine = admission.is_key(asked.secret, ticket) or tickets.is_token(
            asked.secret, cluster, asked.node, asked.generation
        )
        return Known(cluster, node, ticket, token, genuine)

    async def _let_in(self, asked: Asked, peer: str) -> tuple[Node, Ticket, Verdict]:
        """The node that the token is of, and how it is let in."""
        known, record = await self._known(asked), self.parts.record
        if known.node and known.genuine:
            joined = await record.store.joined_from(peer)
            other = admission.decide_other(known.node, record.nodes.values(), joined, peer)
            known = replace(known, other=other)
        verdict = admission.decide_join(asked, known, peer, record.now())
        if isinstance(verdict, Cause):
            raise await self._refused(asked, known, verdict, peer)
        assert known.node is not None
        assert known.ticket is not None
        return known.node, known.ticket, verdict

    async def _own(self, asked: Asked, peer: str) -> Node:
        """The node that the key is of."""
        known = await self._known(asked)
        if cause := admission.decide_key(asked, known):
            raise await self._refused(asked, known, cause, peer)
        assert known.node is not None
        assert known.ticket is not None
        await self._prove(asked, known.ticket)
        return known.node

    async def _prove(self, asked: Asked, ticket: Ticket) -> None:
        """A node that uses its key has its answer, and if it boots with it, no use for a token."""
        spent = ticket.used_at is None and any(one.name == PHASES[0] for one in asked.phases)
        used_at = self.parts.record.now() if spent else ticket.used_at
        if spent or not ticket.proven:
            await self.parts.record.store.prove(replace(ticket, used_at=used_at))

    async def _refused(self, asked: Asked, known: Known, cause: Cause, peer: str) -> NotAdmitted:
        """Never with what it showed: a token that fails here may be good elsewhere.

        An address may be another node's that is just leaving: then it helps to ask again.
        """
        name = known.node.name if known.node and cause is not Cause.CLUSTER else ""
        kind = "refused" if known.genuine else "stranger refused"
        if self._quiet.may_refuse(kind, name, cause, self.parts.record.now()):
            whose = f", {known.other}" if cause is Cause.ADDRESS else ""
            await self._tell("join refused", name, f"{cause}{whose}; asked from {peer}")
        if known.node and (peer == known.node.address or cause is Cause.EXPIRED):
            await self._shut_out(known.node, f"{cause}; asked from {peer}")
        why = cause if known.genuine else "`tide events` on the control host says why"
        return NotAdmitted(f"{asked.node} is not let in: {why}", final=cause is not Cause.ADDRESS)

    async def _shut_out(self, node: Node, why: str) -> None:
        """Kept as what the node would say itself: its own machine was refused, as its address or
        a token that nobody has used shows."""
        if node.state in STARTING:
            await asyncio.to_thread(push, self.layout.boots, node, f"it was not let in: {why}", "")

    async def _tell_once(self, what: str, node: str, cause: str, detail: str) -> None:
        if self._quiet.may_tell(what, node, cause, self.parts.record.now()):
            await self._tell(what, node, detail)

    async def _tell(self, what: str, node: str, detail: str) -> None:
        if node:
            await self.parts.record.note(what, nodes={node: detail})
        else:
            await self.parts.record.note(what, detail=detail)

    async def _admit(self, asked: Asked, ticket: Ticket, verdict: Verdict, peer: str) -> str | None:
        """A fresh key, of which only the digest stays; None if somebody was quicker."""
        key, store = secrets.token_urlsafe(KEY_BYTES), self.parts.record.store
        digest = admission.digest(key)
        if verdict is Verdict.AGAIN:
            done = await store.rekey(replace(ticket, key=digest), ticket.key)
        else:
            about = {**asdict(asked.machine), "address": peer}
            now = self.parts.record.now()
            done = await store.admit(replace(ticket, used_at=now, key=digest, machine=about))
        return key if done else None

    # --- what they are, and what they get

    async def _accepted(self, asked: Asked, node: Node) -> str:
        """The version of slurmctld; a node whose slurmd that would refuse need not go on."""
        if node.group not in self.parts.spec.groups:
            why = f"its group {node.group} is not in the cluster file any more"
            raise NotAdmitted(f"{asked.node} is not let in: {why}")
        version = await self._version()
        if self.membership and "slurmd" in self.parts.spec.gets(node.group):
            why = machines.refused_by_slurm(asked.machine, version)
            if why:
                await self._tell_once("join refused", node.name, "version", why)
                await self.given_up.keep(node, asked.machine.boot, why)
                raise NotAdmitted(f"{asked.node} is not let in: {why}")
        return version

    def _too_early(self, node: Node) -> str:
        """Why the node's program has to wait, if it has: a pbs_mom that Torque does not expect yet
        is refused by it, and tries again only after 45 s; the node asks us again sooner. All else
        it gets meanwhile: Torque may be told only after Ansible was there, which needs that."""
        expected = node.state not in (NodeState.REQUESTED, NodeState.BOOTING)
        if expected or not isinstance(self.parts.spec.batch, Torque):
            return ""
        return "Torque is not told yet where this machine is"

    async def _version(self) -> str:
        """Asked now and then: a thousand nodes may come at once, and one asks for all of them."""
        async with self._asking:
            now = self.parts.record.now()
            if not 0 < self._control_at - now <= VERSION_S:
                self._control_at = now + FAILED_S
                with suppress(Unavailable):
                    self._control = await self.parts.batch.version()
                    self._control_at = now + VERSION_S
            return self._control

    async def _welcome(self, asked: Asked, node: Node, peer: str, version: str) -> dict[str, Any]:
        membership, site = self._able()
        newcomer = Newcomer(node, node.address or peer, asked.machine.host_keys)
        wanted = membership.wanted(node.group, asked.only)
        addresses = self._addresses() if "names" in wanted else {}
        try:
            users = await self._users() if "users" in wanted else {}
            around = Around(site, version, self.parts.record.now(), addresses, users)
            answer = await asyncio.to_thread(membership.welcome, newcomer, around, wanted)
        except OSError as error:
            why = f"{error.filename}: {error.strerror}"
            await self._tell_once("nodes cannot join", "", why, why)
            if self.lacking.is_news(node, why):
                await self._lack(node, why)
            raise NotAdmitted(f"the control host lacks something: {why}", final=False) from error

        if self.lacking.is_over(node):
            forget_pushed(self.layout.boots, node)
        if "entry" in wanted and (early := self._too_early(node)):
            answer["entry"]["early"] = early
        return answer

    async def _lack(self, node: Node, why: str) -> None:
        """Kept as what the node would say itself, if it could: it may be given up for it."""
        await self.parts.record.note("cannot join", nodes={node.name: why})
        words = f"the control host lacks something: {why}"
        await asyncio.to_thread(push, self.layout.boots, node, words, "")

    def _addresses(self) -> dict[str, str]:
        """Of nodes that are there; where a name server tells them nobody else need."""
        if has_server(self.parts.spec):
            return {}
        known = self.parts.record.of(self.parts.spec.managed, *REACHED)
        return {one.name: one.address for one in known if one.address}

    def _able(self) -> tuple[Membership, Site]:
        if self.membership is None or self.parts.site is None:
            raise NotAdmitted("the cluster is not deployed yet", final=False)
        return self.membership, self.parts.site

    async def _tell_joined(self, asked: Asked, node: Node, peer: str, version: str) -> None:
        record, spec = self.parts.record, self.parts.spec
        await record.note("node joined", nodes={node.name: f"from {peer}; {asked.machine.words}"})
        found = machines.remarks(spec, node.group, asked.machine, version)
        for what, detail in found.items():
            await record.note(what, nodes={node.name: detail})

    # --- how it went

    async def _note(self, asked: Asked) -> None:
        """What was told before is not told twice, though answers may get lost."""
        clock = asked.clock or asked.machine.clock or None
        phases = corrected(asked.phases, clock, self.parts.record.now())
        if not phases:
            return
        store = self.parts.record.store
        if fresh := untold(phases, await store.phases(asked.node)):
            await store.note_phases(fresh)

    async def _heard(self, asked: Asked) -> None:
        """A boot that begins anew has not given up; one that has asks again all the same."""
        boot = (asked.generation, asked.machine.boot)
        if self._boots.setdefault(asked.node, boot) != boot:
            self._boots[asked.node] = boot
            await self.given_up.forget(asked.node)

    async def _failed(self, asked: Asked, node: Node) -> None:
        await asyncio.to_thread(push, self.layout.boots, node, asked.failed, asked.log)
        await self._tell_once("boot failed", node.name, str(node.generation), asked.failed)
        if asked.final:
            _, boot = self._boots.get(node.name, (0, ""))
            await self.given_up.keep(node, boot, asked.failed)
