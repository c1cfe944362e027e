"""The nodes of a Slurm: one command reads them all, one changes all that change alike.

`slurm` builds on it. Commands run in threads of its own, which takes less of the daemon's CPU
than asyncio's children; whatever goes wrong becomes Unavailable.

Nobody's drain is undone but by its owner. Slurm itself ends drains: when a node is powered down
by command, and when it was rebooted and told to resume. So the first keeps the owner's reason,
from which `release` makes the drain again; and the second is never told so.
"""

import asyncio
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from functools import partial
from typing import TypeVar

from springtide import threads
from springtide.batch import slurm_actions, slurm_reason, slurm_text
from springtide.batch.names import check_address
from springtide.batch.slurm_commands import Commands, failed
from springtide.batch.slurm_hidden import Hidden
from springtide.batch.slurm_reason import SLURM, SOMEBODY
from springtide.batch.unread import UnreadableError
from springtide.nodeset import expand, fold
from springtide.ports import CALENDAR, OURS, UNREADY, BatchNode, Power, Unavailable

T = TypeVar("T")

MOST_NODES = 2000  # in one command
LONGEST_LIST = 60_000  # characters of names in one command; the kernel's limit is 131,071
LONGEST_REASON = 200
THREADS = 4
BEGIN_S = 3.0
LOOK_S = 0.1


class SlurmNodes:
    """Those of one Slurm."""

    reboots = True

    def __init__(
        self,
        commands: Commands,
        user: str,
        hidden: Hidden,
        fresh: Collection[str] = frozenset(),
    ) -> None:
        self._commands = commands
        self._user = user
        self._hidden = hidden
        self._fresh = fresh
        self._ended: dict[str, str] = {}
        """Reasons of drains that are over, of nodes that serve one job."""
        self._threads = ThreadPoolExecutor(THREADS, thread_name_prefix="slurm")

    # Reading

    async def nodes(self, names: Iterable[str] | None = None) -> Mapping[str, BatchNode]:
        if names is None:
            return await self._in_thread(lambda: self._shown("nodes"))
        wanted = frozenset(names)
        return await self._in_thread(lambda: self._some(wanted)) if wanted else {}

    def _some(self, wanted: frozenset[str]) -> dict[str, BatchNode]:
        """A list too long for one question is looked up in the answer to the general one."""
        text = fold(wanted)
        shown = self._shown("node", text) if len(text) <= LONGEST_LIST else self._shown("nodes")
        return {name: node for name, node in shown.items() if name in wanted}

    def _shown(self, *what: str) -> dict[str, BatchNode]:
        nodes = self._read(*what)
        return self._hidden.beside(
            {name: self._without_ended(node) for name, node in nodes.items()}
        )

    def _read(self, *what: str) -> dict[str, BatchNode]:
        """A name that Slurm does not know makes it fail; the answer is good all the same."""
        done = self._commands.run(["scontrol", "-o", "show", *what])
        if done.returncode and (done.stderr or what == ("nodes",)):
            raise failed(done)
        return slurm_text.parse_nodes(done.stdout, self._user, self._fresh)

    def _without_ended(self, node: BatchNode) -> BatchNode:
        """24.11 keeps the reason of a drain that somebody ended, which then means nothing."""
        if node.name in self._fresh and self._is_ended(node):
            node = replace(node, owner=None)
        return replace(node, reason="") if _is_without_cause(node) else node

    def _is_ended(self, node: BatchNode) -> bool:
        """Whether the reason of a node that has gone is of a drain that was over before, and not of
        one that went with the power."""
        up, off = node.power is Power.UP, node.power is Power.DOWN
        if (node.drained and not off) or (up and not node.reason):
            self._ended.pop(node.name, None)
        elif node.reason and (node.drained or up):
            # While a node is off it loses no drain, so if this one is gone then, it was ended.
            self._ended[node.name] = node.reason
        elif node.owner:
            return node.reason == self._ended.get(node.name)
        return False

    async def _look(self, names: Iterable[str]) -> list[BatchNode]:
        return [*(await self.nodes(names)).values()]

    # Where they are

    async def set_addresses(self, addresses: Mapping[str, str]) -> None:
        for name, address in addresses.items():
            check_address(name, address)
        for batch in fitting(addresses):
            names = fold(batch)
            # Slurm pairs two lists of the same length, whatever their order.
            listed = ",".join(addresses[name] for name in expand(names))
            await self._scontrol("update", f"nodename={names}", f"nodeaddr={listed}")

    # Power

    async def give_back(self, nodes: Iterable[str], reason: str) -> None:
        await self._update_with_reasons(await self._look(nodes), "power_down_force", reason)

    async def power_up(self, nodes: Iterable[str]) -> None:
        """Slurm takes this for a node that powers down, and forgets it; so it is refused here."""
        seen = await self._look(nodes)
        leaving = [node.name for node in seen if node.power is Power.GOING_DOWN]
        rest = [node for node in seen if node.power is not Power.GOING_DOWN]
        await self._update(_names(rest), "state=power_up")
        drained = [node for node in rest if node.drained]
        # When it begins it forgets why they are drained, but not that they are.
        await self._once(_names(drained), lambda node: "POWERED_DOWN" not in node.flags)
        for reason, names in _by_reason(drained):
            await self._update(names, f"reason={reason}")
        if leaving:
            raise Unavailable(f"{fold(leaving)}: still powering down; ask again when that is over")

    async def power_down(self, nodes: Iterable[str]) -> None:
        """At once where nothing runs or will run; the rest take no further jobs.

        Slurm would give the same reason, but not in place of one that it has kept.
        """
        seen = await self._look(nodes)
        booting = [node for node in seen if _is_booting(node)]
        await self._update_with_reasons(booting, "power_down_force", "not wanted any more")
        there = [n for n in seen if n.power in (Power.UP, Power.GOING_UP) and not _is_booting(n)]
        free = [node.name for node in there if not _is_persons(node)]
        await self._update(free, "state=power_down_asap", f"reason={slurm_reason.LEAVES}")
        for reason, names in _by_reason(filter(_is_persons, there), lost=True):
            await self._update(names, "state=power_down_asap", f"reason={reason}")

    async def release(self, nodes: Iterable[str]) -> None:
        """What powers down may power up again, unless somebody drained it or put it down."""
        seen = await self._once(nodes, lambda n: n.busy or "POWER_DOWN" not in n.flags)
        leaving = [node for node in seen if _is_leaving(node)]
        for reason, names in _by_reason(n for n in leaving if _has_lost_drain(n)):
            await self._update(names, "state=drain", f"reason={reason}")
        await self._let_start([n for n in leaving if _is_released(n)])

    async def _let_start(self, nodes: Collection[BatchNode]) -> None:
        """What is resumed while it is down counts as not responding, so it is made idle first.

        What counts so while it is off gets no job after slurmctld's next start; only to power
        down once more ends that.
        """
        await self._update([n.name for n in nodes if n.state == "DOWN"], "state=idle")
        unheard = [node.name for node in nodes if _is_unheard(node)]
        await self._update(unheard, "state=power_down")
        begun = await self._once(unheard, lambda n: n.busy or "POWERING_DOWN" in n.flags)
        await self._resume([n.name for n in (*nodes, *begun) if "POWERING_DOWN" in n.flags])

    async def _once(
        self, names: Iterable[str], begun: Callable[[BatchNode], bool]
    ) -> list[BatchNode]:
        """The nodes when Slurm has begun with what it was asked for, which takes it a second.

        From its first answer on: before that it may not have been able to do anything.
        """
        seen = await self._look(names)
        end = asyncio.get_running_loop().time() + BEGIN_S
        while not all(map(begun, seen)) and asyncio.get_running_loop().time() < end:
            await asyncio.sleep(LOOK_S)
            seen = await self._look(_names(seen))
        return seen

    async def _resume(self, names: Collection[str]) -> None:
        try:
            await self._update(names, "state=resume")
        except Unavailable:
            # Refused for a node whose time was just over, which is as good.
            if any(map(_is_leaving, await self._look(names))):
                raise

    # Drains

    async def drain(self, nodes: Iterable[str], reason: str, by: str = OURS) -> None:
        """For our sake not what Slurm hides or will hide: we could not see when to end it. But what
        is yet to be set up, whose drain also stays ours when Slurm has forgotten the reason.

        A drain of ours or of Slurm becomes that of a person who wants one, and so does one of
        which Slurm has forgotten the reason.
        """
        text = slurm_text.one_line(reason, LONGEST_REASON)
        seen = await self._look(nodes)
        if by == OURS and text.startswith(UNREADY):
            free = [n for n in seen if not (n.drained and n.reason)]
        elif by == OURS:
            able = (n for n in seen if not n.drained or _is_of_calendar(n, text))
            free = [n for n in able if not self._hidden.will_have(n)]
        else:
            free = [n for n in seen if not n.drained or _is_nobodys(n)]
        for lost in (False, True):
            names = [n.name for n in free if ("POWER_DOWN" in n.flags) is lost]
            words = slurm_reason.write(text, by, lost=lost)
            await self._update(names, "state=drain", f"reason={words}")
        self._hidden.drained(free, text, by)

    async def undrain(self, nodes: Iterable[str], by: str | None = OURS) -> None:
        """A reboot that was asked for and has not begun is asked for no more.

        Whose drain a hidden node has does not matter to somebody who ends anybody's. What a
        person has put down comes back, too.
        """
        looked = await self._look(nodes)
        seen = [n for n in looked if n.drained and by in (None, n.owner)]
        asked = [node.name for node in seen if "REBOOT_REQUESTED" in node.flags]
        for batch in fitting(asked):
            await self._scontrol("cancel_reboot", fold(batch))
        if asked:  # it may have ended their drains as well
            again = await self._look(_names(seen))
            seen = [node for node in again if node.drained and by in (None, node.owner)]
        unknown = [n for n in looked if by is None and not n.drained and self._hidden.has(n)]
        down = [n for n in looked if _is_put_down(n) and by in (None, n.owner)]
        await self._return([*seen, *unknown], "undrain")
        await self._return(down, "resume")
        self._hidden.undrained(seen)

    async def _return(self, nodes: Iterable[BatchNode], state: str) -> None:
        """What is off is made idle: it could not register, and Slurm would wait for that.

        A reason that stays (`_without_ended`) makes room for one that means no drain.
        """
        off, there = _split(nodes, _is_off)
        await self._update(off, "state=idle")
        await self._update(there, f"state={state}")
        for fresh in fitting(name for name in (*off, *there) if name in self._fresh):
            seen = await self._in_thread(partial(self._read, "node", fold(fresh)))
            left = [node.name for node in seen.values() if node.reason]
            await self._update(left, f"reason={slurm_reason.LEAVES}")

    # Fresh starts

    async def reboot(self, nodes: Iterable[str], reason: str) -> None:
        """They stay drained when they are back, by us if not by somebody else.

        To have Slurm resume them (ASAP, nextstate=RESUME) would undo whatever drain anybody
        makes before they are back. What `undrain` ends then is only ours.
        """
        seen = [n for n in await self._look(nodes) if n.power is Power.UP and not _is_asked(n)]
        free = [node.name for node in seen if not node.drained]
        text = _ours(reason)
        await self._update(free, "state=drain", f"reason={text}")
        await self._reboot([node.name for node in seen if not _is_persons(node)], text)
        for theirs, names in _by_reason(node for node in seen if _is_persons(node)):
            await self._reboot(names, theirs)

    async def _reboot(self, names: Iterable[str], reason: str) -> None:
        """By name where Slurm has one for it; a person's reason says nothing of a rebuild."""
        action = slurm_actions.chosen(await self._in_thread(self._configuration))
        for batch in fitting(names):
            await self._scontrol("reboot", f"reason={reason}", *action, fold(batch))

    def _configuration(self) -> str:
        """What of its configuration is ours, as far as it runs with that."""
        return ""

    async def expect(self, nodes: Iterable[str]) -> None:
        """Down until heard from; those that Slurm reboots or starts are so already.

        Not a node whose answer to a ping came just after the reboot was issued: Slurm takes it
        for back, and would not notice when it really is.
        """
        seen = [node for node in await self._look(nodes) if _counts_as_there(node)]
        for reason, names in _by_reason(node for node in seen if _keeps_its_reason(node)):
            await self._update(names, "state=down", f"reason={reason}")
        rest = [node.name for node in seen if not _keeps_its_reason(node)]
        await self._update(rest, "state=down", f"reason={_ours('starts afresh')}")

    async def fail(self, nodes: Iterable[str], reason: str) -> None:
        """A reboot that Slurm still waits for is over, or it would end a drain later on."""
        seen = await self._look(nodes)
        kept = [n for n in seen if _is_persons(n) and "REBOOT_ISSUED" in n.flags]
        await self._update(_names(kept), "state=resume")
        for theirs, names in _by_reason(kept):
            await self._update(names, "state=drain", f"reason={theirs}")
        await self._update_with_reasons(seen, "down", reason)

    # Commands

    async def _update_with_reasons(
        self, nodes: Collection[BatchNode], state: str, reason: str
    ) -> None:
        """With our reason, but for nodes that a person has drained: theirs must stay."""
        ours = [node.name for node in nodes if not _is_persons(node)]
        await self._update(ours, f"state={state}", f"reason={_ours(reason)}")
        lost = state.startswith("power_down")
        for theirs, names in _by_reason(filter(_is_persons, nodes), lost=lost):
            await self._update(names, f"state={state}", f"reason={theirs}")

    async def _update(self, names: Iterable[str], *changes: str) -> None:
        for batch in fitting(names):
            await self._scontrol("update", f"nodename={fold(batch)}", *changes)

    async def _scontrol(self, *arguments: str) -> None:
        await self._in_thread(lambda: self._commands.checked(["scontrol", *arguments]))

    async def _in_thread(self, work: Callable[[], T]) -> T:
        """Parsing too, so that a long answer does not hold up the daemon."""
        try:
            return await threads.run(self._threads, work)
        except UnreadableError as error:
            raise Unavailable(str(error)) from error


_CONCERNED = frozenset(
    {
        "FAIL",
        "MAINTENANCE",
        "POWERING_DOWN",
        "POWER_DOWN",
        "REBOOT_ISSUED",
        "REBOOT_REQUESTED",
    }
)
"""What a node's reason may be about, beside a drain and that it is down."""


# What to do with a node


def _is_persons(node: BatchNode) -> bool:
    """Whether somebody drained it who is neither we nor Slurm."""
    return _is_wished(node) and node.owner != OURS


def _is_nobodys(node: BatchNode) -> bool:
    """Whether no person drained it. What Slurm reboots keeps the reason that says what for."""
    if node.owner == SLURM:
        return node.flags.isdisjoint({"REBOOT_ISSUED", "REBOOT_REQUESTED"})
    return node.owner in (SOMEBODY, OURS)


def _is_of_calendar(node: BatchNode, reason: str) -> bool:
    """Whether this reason is the next one of a drain by the calendar."""
    ours = node.owner == OURS and node.reason.startswith(f"{slurm_reason.PREFIX}{CALENDAR}")
    return ours and reason.startswith(CALENDAR)


def _is_wished(node: BatchNode) -> bool:
    """Whether it is drained for another reason than its instance, as Slurm does."""
    return node.drained and node.owner != SLURM


def _counts_as_there(node: BatchNode) -> bool:
    """Whether Slurm believes that it serves, or would if it were not about to be rebooted."""
    there = node.power is Power.UP or "REBOOT_ISSUED" in node.flags
    return there and node.state != "DOWN"


def _keeps_its_reason(node: BatchNode) -> bool:
    """Whether its reason is a drain's, or a reboot's, which may say what to rebuild it with."""
    return _is_wished(node) or ("REBOOT_ISSUED" in node.flags and bool(node.reason))


def _is_booting(node: BatchNode) -> bool:
    return node.power is Power.GOING_UP and node.state == "IDLE"


def _is_off(node: BatchNode) -> bool:
    return node.power in (Power.DOWN, Power.GOING_DOWN) and not node.busy


def _is_unheard(node: BatchNode) -> bool:
    """Whether Slurm waits to hear from it, which it cannot while it is powered down."""
    return node.power is Power.DOWN and "NOT_RESPONDING" in node.flags


def _is_put_down(node: BatchNode) -> bool:
    """Whether a person has said that it is down."""
    return node.state == "DOWN" and not node.drained and node.owner not in (None, OURS, SLURM)


def _is_leaving(node: BatchNode) -> bool:
    """Whether it powers down; or has done so, and its state says that it must not power up."""
    stuck = node.state == "DOWN" or _has_lost_drain(node) or _is_unheard(node)
    return "POWERING_DOWN" in node.flags or (stuck and "POWERED_DOWN" in node.flags)


def _has_lost_drain(node: BatchNode) -> bool:
    """Whether it was powered down with a person's reason, and with it went the person's drain."""
    return not node.drained and node.state != "DOWN" and node.owner not in (None, OURS, SLURM)


def _is_released(node: BatchNode) -> bool:
    """Not what a person drained or put down, nor what an operation of ours has drained still."""
    return node.owner in (None, SLURM) or (node.owner == OURS and not node.drained)


def _is_without_cause(node: BatchNode) -> bool:
    """Whether nothing is the matter with it that its reason could be the reason for."""
    fine = not node.drained and node.state != "DOWN" and node.flags.isdisjoint(_CONCERNED)
    return fine and bool(node.reason) and node.owner is None


def _is_asked(node: BatchNode) -> bool:
    return "REBOOT_REQUESTED" in node.flags


def _names(nodes: Iterable[BatchNode]) -> list[str]:
    return [node.name for node in nodes]


def _split(
    nodes: Iterable[BatchNode], which: Callable[[BatchNode], bool]
) -> tuple[list[str], list[str]]:
    """The names of those that are so, and of the others."""
    found: dict[bool, list[str]] = {True: [], False: []}
    for node in nodes:
        found[which(node)].append(node.name)
    return found[True], found[False]


def _ours(reason: str) -> str:
    return slurm_reason.write(slurm_text.one_line(reason, LONGEST_REASON), OURS)


def _by_reason(
    nodes: Iterable[BatchNode], *, lost: bool = False
) -> Iterator[tuple[str, list[str]]]:
    """The nodes that have the same reason of the same owner, and that reason."""
    found: dict[str, list[str]] = {}
    for node in nodes:
        reason = slurm_reason.write(node.reason, node.owner or OURS, lost=lost)
        found.setdefault(reason, []).append(node.name)
    yield from found.items()


def fitting(names: Iterable[str]) -> Iterator[list[str]]:
    """Names in groups that fit into one command each."""
    batch: list[str] = []
    length = 0
    for name in names:
        if batch and (len(batch) == MOST_NODES or length + len(name) >= LONGEST_LIST):
            yield batch
            batch, length = [], 0
        batch.append(name)
        length += len(name) + 1
    if batch:
        yield batch
