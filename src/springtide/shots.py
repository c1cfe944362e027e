"""An image of a node in service.

Of a container it is taken while the node stands still for a moment. Another machine has to forget
who it was, on its own disk: so it leaves service, does that, and is made anew after. It is told so
by the script of a reboot, or over ssh where a provider gives a machine that it reboots no new one.
`builds` calls it; the reconciler leaves the node alone meanwhile.
"""

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from functools import partial
from typing import Protocol

from springtide import service
from springtide.configure.anonymise import anonymise, decide_forgotten, done, failed
from springtide.engine import Refused
from springtide.model import DRAINS, MadeImage, Node
from springtide.people import People
from springtide.ports import (
    OURS,
    CloudError,
    CloudImage,
    Instance,
    Launch,
    Unavailable,
)
from springtide.spool import BadRequest
from springtide.steps import Parts
from springtide.steps.work import insist
from springtide.workshop import (
    LIMIT_S,
    UNSEEN_S,
    NotMadeError,
    Watch,
    Workshop,
    at_rest,
    looks,
    take,
)

AGAIN = {"via": "direct", "force": True}
"""How the node is made anew: it is drained already, and would not answer Slurm."""


class Login(Protocol):
    """How nodes are reached; see `configure.refreshing`."""

    async def ask(self, addresses: Mapping[str, str]) -> dict[str, str]: ...

    async def hand(self, name: str, address: str, script: str, last: Sequence[str]) -> str: ...


@dataclass(slots=True)
class Shot:
    """An image of one node."""

    parts: Parts
    people: People
    image: MadeImage
    say: Callable[[str], None]
    login: Login

    @property
    def node(self) -> Node:
        return self.parts.record.nodes[self.image.made_from]

    @property
    def shop(self) -> Workshop:
        return Workshop(self.parts, self.image, self.say)

    async def of_container(self) -> CloudImage:
        async with self._claimed():
            return await take(self.shop, await self._instance())

    async def of_remote(self) -> CloudImage:
        async with self._claimed():
            await self._reached()
            await self._out_of_service()
            try:
                image = await take(self.shop, await self._anonymous())
            except Exception:  # a daemon that stops leaves the node to the next one's reconciler
                await self._anew()
                raise
            await self._anew()
            return image

    @asynccontextmanager
    async def _claimed(self) -> AsyncIterator[None]:
        """Nobody repairs it meanwhile, and the engine refuses what people ask for it.

        A file that is being applied may have it leave: that operation has yet to be opened.
        """
        name, claimed = self.image.made_from, self.parts.gallery.claimed
        async with self.people.applying:
            if name in self.people.engine.at(*DRAINS):
                raise NotMadeError(f"an operation drains {name}: try again when it has ended")
            claimed.add(name)
        try:
            yield
        finally:
            claimed.discard(name)

    async def _instance(self) -> Instance:
        node, shop = self.node, self.shop
        listed = await insist(partial(shop.provider.list, shop.cluster), LIMIT_S)
        mine = (one for one in listed if (one.node, one.generation) == (node.name, node.generation))
        found = next(mine, None)
        if found is None:
            raise NotMadeError(f"{node.name} has no instance any more")
        return found

    @property
    def _is_renewed(self) -> bool:
        """Whether it gets a new script as it reboots."""
        return self.shop.provider.renews(self.parts.spec.groups[self.image.group].markets)

    async def _reached(self) -> None:
        """Before anything is done to it, if it has to be told over ssh."""
        if not self._is_renewed:
            name = self.node.name
            missed = await self.login.ask({name: self.node.address or ""})
            if why := missed.get(name):
                raise NotMadeError(f"{name} cannot be told over ssh to forget who it is: {why}")

    async def _out_of_service(self) -> None:
        """Given back if its jobs do not end in time, or it is not reached any more when they do."""
        end = asyncio.get_running_loop().time() + self.parts.spec.timing.drain
        self.say(f"waiting for the jobs of {self.image.made_from} to end")
        try:
            await self._drain()
            await self._drained(end)
            await self._reached()
            while await self._serves(end):  # somebody may undrain it while it is asked
                await self._drained(end)
                await self._reached()
        except NotMadeError:
            with suppress(Unavailable):
                await self.parts.batch.undrain([self.image.made_from], OURS)
            raise

    async def _drained(self, end: float) -> None:
        for pause_s in looks():
            if not await self._serves(end):
                return
            await asyncio.sleep(pause_s)

    async def _serves(self, end: float) -> bool:
        """Whether it has jobs, or takes some because a person or an operation undrained it."""
        name, nodes = self.image.made_from, partial(self.parts.batch.nodes, [self.image.made_from])
        seen = await insist(nodes, self.parts.spec.timing.lock)
        found = service.draining([self.node], seen)
        if found.free:
            return False
        if asyncio.get_running_loop().time() > end:
            jobs = f"the jobs of {name} did not end in time"
            why = f"{name} was undrained meanwhile" if found.undrained else jobs
            raise NotMadeError(f"{why}, so it was given back")
        if found.undrained:
            await self._drain()
        return True

    async def _drain(self) -> None:
        name, why = self.image.made_from, f"image {self.image.name}"
        await insist(partial(self.parts.batch.drain, [name], why), self.parts.spec.timing.lock)

    async def _anonymous(self) -> Instance:
        """It forgets who it was, and switches itself off then."""
        self.say(f"{self.node.name} forgets who it was")
        await (self._renew() if self._is_renewed else self._tell())
        found = await (self._forgotten() if self._is_renewed else self._instance())
        return await at_rest(self._instance, found)

    @property
    def _script(self) -> str:
        return anonymise(self.image.label, [one.path for one in self.parts.spec.shared])

    async def _tell(self) -> None:
        node, label = self.node, self.image.label
        last = (done(label), failed(label))
        try:
            said = await self.login.hand(node.name, node.address or "", self._script, last)
        except OSError as error:
            why = error.strerror or error
            raise NotMadeError(f"{node.name} was not told over ssh: {why}") from error
        outcome = decide_forgotten(label, said, None)
        if outcome != "":
            raise NotMadeError(f"{node.name} has not forgotten who it was: {outcome or _end(said)}")

    async def _renew(self) -> None:
        node, shop = self.node, self.shop
        launch = Launch(
            cluster=shop.cluster,
            node=node.name,
            generation=node.generation,
            group=node.group,
            image=node.image or "",
            flavor=node.flavor or "",
            zone=node.zone,
            user_data=self._script,
        )
        answer = (await shop.provider.reboot([launch]))[node.name]
        if isinstance(answer, CloudError):
            raise answer

    async def _forgotten(self) -> Instance:
        """Once it has said so; one of which nothing is ever heard, once it stays off."""
        loop, watch = asyncio.get_running_loop(), Watch(self.shop.provider)
        end = loop.time() + self.parts.spec.timing.start
        for pause_s in looks():
            found = await self._instance()
            off_s = await watch.look(found)
            why = decide_forgotten(self.image.label, watch.said, off_s)
            if why:
                raise NotMadeError(f"{found.node}: {why}")
            if why is not None and (watch.said.strip() or _stays(off_s)):
                return found
            if loop.time() > end and off_s is None:
                raise NotMadeError(f"{found.node} did not say in time that it forgot who it was")
            await asyncio.sleep(pause_s)
        raise AssertionError("looks never end")

    async def _anew(self) -> None:
        """Whatever became of the image, the node is nobody now. An image that was taken is good,
        though its node may have to be seen to."""
        name = self.image.made_from
        self.say(f"{name} is made anew")
        try:
            if not self._is_renewed:
                await self._delete()
            with self.parts.parting([name]):  # repaired by nobody else, but ours to rebuild
                self.parts.gallery.claimed.discard(name)
                await self.people.rebuild([name], self.image.made_by, AGAIN)
        except (CloudError, Unavailable, Refused, BadRequest) as error:
            why = f"{error}; rebuild it: it was made an image of, and has forgotten who it was"
            await self.parts.record.note("node not made anew", nodes={name: why})

    async def _delete(self) -> None:
        """A machine that has forgotten who it was cannot join again with the script that it has."""
        with suppress(NotMadeError):
            await insist(self._delete_once, self.parts.spec.timing.stop)

    async def _delete_once(self) -> None:
        found = await self._instance()
        if refused := (await self.shop.provider.delete([found])).get(found.id):
            raise refused


def _stays(off_s: float | None) -> bool:
    """A list that lags behind shows a machine off that was only so for its reboot."""
    return off_s is not None and off_s >= UNSEEN_S


def _end(said: str) -> str:
    return (said.strip().splitlines() or ["it said nothing"])[-1]
