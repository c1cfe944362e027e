"""What looks wrong, who mends it and what keeps it from being mended: gathered for status and why.

From what the daemon knows: nobody in the world is asked but whether the batch system runs.
"""

from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime

from springtide import drift, maintenance, repairs, service
from springtide.daemon import Daemon
from springtide.model import Node, NodeState
from springtide.nodeset import fold
from springtide.ports import Instance
from springtide.repairs import Finding
from springtide.spec.fingerprint import fingerprint
from springtide.story import Rest, troubles, voice_of
from springtide.story.telling import Told
from springtide.triage import Repair

PERSON, KEPT, BRAKE, DRIFT = "needs a person", "not repaired", "brake", "drift"
CLOSED = "nodes cannot join"


async def shown(daemon: Daemon) -> dict[str, list[str]]:
    """What is not mended by itself, or not now: a line for all nodes alike."""
    found = repairs.due(daemon.reconciler.findings.values(), daemon.parts.record.now())
    people = found.pop(Repair.REPORT, [])
    rest = await resting(daemon)
    kept = [one for some in found.values() for one in some] if rest else []
    lines = {
        PERSON: [f"{line}; see `tide why`" for line in _lines(people)],
        KEPT: _lines(kept),
        BRAKE: [] if rest else _braked(daemon),
        DRIFT: await _drift(daemon),
        CLOSED: [daemon.joining.closed] if daemon.joining.closed else [],
        **{what: [said] for what, said in daemon.poller.troubles.items()},
        **{what: [said] for what, said in daemon.reconciler.troubles.items()},
    }
    voice = voice_of(daemon.spec)
    return {what: voice.say_all(some) for what, some in lines.items() if some}


def _lines(found: Iterable[Finding]) -> list[str]:
    return [f"{fold(names)}: {why}" for why, names in repairs.because(found).items()]


def _braked(daemon: Daemon) -> list[str]:
    kept = brakes(daemon)
    reasons = dict.fromkeys(kept.values())
    return [
        f"{fold(n for n, rest in kept.items() if rest == one)}: {one.why}"
        + (f"; {one.do}" if one.do else "; the rest follows")
        for one in reasons
    ]


def brakes(daemon: Daemon) -> dict[str, Rest]:
    """Why nodes that are due are not repaired."""
    known = daemon.reconciler.findings
    views = {name: known[name].view for name in daemon.reconciler.braked if name in known}
    return troubles.braked(views)


async def resting(daemon: Daemon) -> Rest | None:
    """Maintenance, if it is on."""
    record = daemon.parts.record
    found = await maintenance.read(record.store)
    if found is None:
        return None
    return troubles.maintained(found.by, found.reason, found.since, record.now())


async def outage(daemon: Daemon) -> Told:
    """What becomes of a batch system that did not answer."""
    return await _outage(daemon, await daemon.parts.batch.standing())


async def away(daemon: Daemon, error: str) -> str:
    """The same in a line; what does not run is known better than by what it answered."""
    missing = await daemon.parts.batch.standing()
    told = await _outage(daemon, missing)
    line = f"{told.now}; {told.next}; {told.do}" if missing else error
    return voice_of(daemon.spec).say(line)


async def lacking(daemon: Daemon) -> str:
    """What does not run of a batch system that answers all the same; empty if all does."""
    if not (missing := await daemon.parts.batch.standing()):
        return ""
    told = troubles.lacking(missing, await resting(daemon), daemon.spec.timing.reconcile)
    return voice_of(daemon.spec).say(f"{told.now}; {told.next}; {told.do}")


async def _outage(daemon: Daemon, missing: str) -> Told:
    return troubles.outage(missing, await resting(daemon), daemon.spec.timing.reconcile)


# --- nodes that are not as the file says -----------------------------------------------------


async def _drift(daemon: Daemon) -> list[str]:
    """By the record alone, and only if they are replaced by themselves."""
    ready = daemon.parts.record.of(daemon.spec.managed, NodeState.READY)
    found = await drifted(daemon, ready, ()) if daemon.spec.drift.replace else {}
    told: dict[str, list[str]] = {}
    for name, how in found.items():
        told.setdefault(f"{how.now}: {how.next}", []).append(name)
    return [f"{fold(names)}: {text}" for text, names in told.items()]


async def drifted(
    daemon: Daemon, nodes: Sequence[Node], instances: Sequence[Instance]
) -> dict[str, Told]:
    """In what nodes in service differ from the file, and what becomes of that."""
    parts, rules = daemon.parts, daemon.spec.drift
    configs = {group: parts.config_of(group) for group in {node.group for node in nodes}}
    stale = service.unconfigured(nodes, configs)
    found = stale | service.outdated(daemon.spec, nodes, instances, parts.wanted_images())
    if not found:
        return {}
    stopped = await parts.record.store.get(drift.FACT) == fingerprint(parts.wanted)
    clock = datetime.fromtimestamp(parts.record.now()).astimezone()
    hours = () if repairs.within(rules.hours, clock) else rules.hours
    return _told(found, hours if rules.replace else None, stopped)


def _told(found: Mapping[str, str], hours: Sequence[str] | None, stopped: bool) -> dict[str, Told]:
    return {name: troubles.drifted(what, name, hours, stopped) for name, what in found.items()}
