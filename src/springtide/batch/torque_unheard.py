"""Nodes that joined and are not heard from: how long they are waited for. Called by `torque`."""

from collections.abc import Iterable, Mapping

from springtide.batch.torque_text import TorqueNode
from springtide.ports import Health

REPORT_S = 45.0
"""Between two reports of a pbs_mom; also until one that was refused tries again."""
UNHEARD_S = 60.0
"""A node that is not heard for so long after it joined may be at an address that Torque does not
trust. A slow machine may be the cause too, so each further wait is twice as long."""
assert UNHEARD_S > REPORT_S


class Unheard:
    """Since when each node is waited for, and how often it was created anew meanwhile."""

    def __init__(self) -> None:
        self._since: dict[str, float] = {}
        self._renewals: dict[str, int] = {}

    def late(self, nodes: Mapping[str, TorqueNode], now: float) -> list[str]:
        """Nodes of a look that are waited for too long. New ones are not waited for yet."""
        waits = [name for name, node in nodes.items() if _is_awaited(node)]
        self._since = {name: self._since.get(name, now) for name in waits}
        heard = (name for name in self._renewals if name in nodes and name not in waits)
        for name in [name for name in heard if not nodes[name].fresh]:
            del self._renewals[name]
        return [name for name in waits if now >= self._since[name] + self._patience_s(name)]

    def _patience_s(self, name: str) -> float:
        return UNHEARD_S * float(2 ** self._renewals.get(name, 0))

    def renewed(self, names: Iterable[str], now: float) -> None:
        for name in names:
            self._since[name] = now
            self._renewals[name] = self._renewals.get(name, 0) + 1

    def forget(self, names: Iterable[str]) -> None:
        """They join anew."""
        for name in names:
            self._since.pop(name, None)
            self._renewals.pop(name, None)


def _is_awaited(node: TorqueNode) -> bool:
    """It joined, its note says so, and nobody has drained it."""
    joins = node.shown.health is Health.JOINING and node.note.after is not None
    return node.ours and joins and not (node.fresh or node.shown.drained or node.shown.jobs)
