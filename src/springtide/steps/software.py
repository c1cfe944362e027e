"""Setting up the software of nodes that run, by Ansible, if the cluster file wants it.

Part of the steps `prepare site` and `configure software`. Nodes that jobs ask for come up without:
what they need is in their image, or they fetch it as they join.
"""

import asyncio
from collections.abc import Mapping, Sequence
from functools import partial

from springtide import decide
from springtide.failures import NO_SSH, UNCONFIGURED
from springtide.model import Kind, Node, NodeState
from springtide.steps import unready
from springtide.steps.work import Fallen, Work

PAUSE_S = 1.0


async def prepare_software(work: Work) -> str:
    """Keys, and the control host's own part; answers what went wrong."""
    parts = work.parts
    if parts.software is None:
        return ""
    assert parts.site is not None
    await parts.software.make_keys()
    return await parts.software.prepare(parts.site, partial(_tell, work))


async def set_up(work: Work) -> Fallen:
    """Nodes that this operation started, or has drained; those that run jobs are left alone."""
    nodes = _served(work)
    if nodes and work.parts.software:
        await work.parts.software.make_keys()
    starting = [node for node in nodes if node.state is NodeState.BOOTING]
    async with unready.watched(work.parts, [node.name for node in starting]):
        silent = await _wait_for_ssh(work, starting)
        await work.fell(silent)
        return silent | await _configure(work, [n for n in nodes if n.name not in silent])


def _served(work: Work) -> list[Node]:
    software, updates = work.parts.software, work.operation.kind is Kind.UPDATE
    drained = (NodeState.DRAINING,) if updates else ()
    found = work.record.of(work.names, NodeState.BOOTING, *drained)
    return [node for node in found if software is not None and software.serves(node.group)]


async def _configure(work: Work, nodes: Sequence[Node]) -> Fallen:
    parts = work.parts
    if not nodes or parts.software is None:
        return {}
    assert parts.site is not None
    known = {n.name: n.address for n in work.record.nodes.values() if n.address}
    done = await parts.software.configure(parts.site, nodes, known, partial(_tell, work))
    well = {n.name: _changes(done.changed, n.name) for n in nodes if n.name not in done.fallen}
    await work.record.note("configured", nodes=well, operation=work.operation.id)
    await work.record.note("not configured", nodes=done.fallen, operation=work.operation.id)
    return {name: f"{UNCONFIGURED}: {why}" for name, why in done.fallen.items()}


def _changes(changed: Mapping[str, int], name: str) -> str:
    count = changed.get(name, 0)
    return f"{count} changed" if count else "nothing to change"


async def _tell(work: Work, name: str, text: str) -> None:
    """Of a node at once what happened to it: the others may take long."""
    nodes = {name: text} if name in work.record.nodes else None
    await work.record.note("progress", nodes=nodes, operation=work.operation.id, detail=text)


# --- ssh --------------------------------------------------------------------------------------


async def _wait_for_ssh(work: Work, nodes: Sequence[Node]) -> Fallen:
    """Until they can be logged in to; those that never can be, or not in time, fall out."""
    found = await asyncio.gather(*(_kept_out(work, node) for node in nodes))
    return {node.name: why for node, why in zip(nodes, found, strict=True) if why}


async def _kept_out(work: Work, node: Node) -> str:
    """Why nobody can log in there; nothing as soon as somebody can."""
    parts, why = work.parts, "it was not reached"
    assert parts.software is not None
    limit_s = parts.spec.timing.start
    until = work.record.now() + limit_s
    try:
        async with asyncio.timeout(limit_s):
            while why := await parts.software.kept_out(node):
                parts.kept_out[node.name] = until, why
                if lost := decide.gave_up([node], parts.gave_up):
                    return lost[node.name]
                await asyncio.sleep(PAUSE_S)
    except TimeoutError:
        return f"{NO_SSH} {limit_s:.0f} s (timing.start): {why}"
    finally:
        parts.kept_out.pop(node.name, None)
    return ""
