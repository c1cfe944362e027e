"""What keeps nodes from starting, gathered for `why` from what the daemon knows."""

from collections.abc import Iterable, Sequence

from springtide.daemon import Daemon
from springtide.model import STARTING, Event, Kind, Node, Operation
from springtide.story.hindrance import hindrance, present_boot, shut_out
from springtide.story.telling import Told


async def hindered(
    daemon: Daemon, node: Node | None, events: Sequence[Event], operation: Operation | None = None
) -> Told | None:
    """Of a node that is on its way, and perhaps of the operation that has it."""
    if node is None or node.state not in STARTING:
        return None
    own = await _own(daemon, node, events) if _joins(daemon, node) else None
    return own or _shut_out(daemon, node, operation)


def _shut_out(daemon: Daemon, node: Node, operation: Operation | None) -> Told | None:
    until, why = daemon.parts.kept_out.get(node.name, (0.0, ""))
    updates = operation is not None and operation.kind is Kind.UPDATE
    return shut_out(node.name, why, until, daemon.parts.record.now(), updates) if why else None


async def _own(daemon: Daemon, node: Node, events: Sequence[Event]) -> Told | None:
    """What a node that joins told itself, or is refused."""
    told, joining = await daemon.parts.record.store.phases(node.name), daemon.joining
    phases = present_boot(told, events, node.generation)
    generation, why = daemon.parts.gave_up.get(node.name, (0, ""))
    gave_up = why if generation == node.generation else ""
    return hindrance(node.name, phases, gave_up, joining.lacking.of(node), joining.closed)


def _joins(daemon: Daemon, node: Node) -> bool:
    return node.group in daemon.spec.groups and bool(daemon.spec.gets(node.group))


def unbuilt(daemon: Daemon, groups: Iterable[str]) -> str:
    """The first family that one of these groups is to have, and that has no image for it yet."""
    spec, wanted = daemon.spec, daemon.parts.wanted_image
    found = [(group, spec.image_of(group)) for group in groups if group in spec.groups]
    families = [one for one in found if (image := spec.images.get(one[1])) and image.build]
    return next((name for group, name in families if wanted(group) == name), "")
