"""Nodes that Slurm hides while they are powered down, as it would show them. `slurm_nodes` asks.

A drain outlives the power, but nobody can look: so each node is taken to be drained as it was
when Slurm showed it last, or as we have drained it since. What a person does to a hidden node
with Slurm's own commands stays unseen until the node is up again.
"""

from collections.abc import Iterable, Mapping
from dataclasses import replace

from springtide.batch import slurm_text
from springtide.ports import BatchNode, Power


class Hidden:
    """Those of one Slurm: `names` are all that it might hide, none if it shows all nodes."""

    def __init__(self, names: Iterable[str] = ()) -> None:
        self._off = slurm_text.powered_down(names)
        self._drained: dict[str, BatchNode] = {}

    def beside(self, shown: Mapping[str, BatchNode]) -> dict[str, BatchNode]:
        """These, and all that are not among them."""
        for node in shown.values():
            self.learn(node)
        return {**self._off, **self._drained, **shown}

    def learn(self, node: BatchNode) -> None:
        """How it is now, which it will be when it is hidden."""
        if node.drained and (off := self._off.get(node.name)):
            flags = off.flags | {"DRAIN"}
            self._drained[node.name] = replace(
                off, flags=flags, reason=node.reason, drained=True, owner=node.owner
            )
        else:
            self._drained.pop(node.name, None)

    def drained(self, nodes: Iterable[BatchNode], reason: str, owner: str) -> None:
        for node in nodes:
            self.learn(replace(node, drained=True, reason=reason, owner=owner))

    def undrained(self, nodes: Iterable[BatchNode]) -> None:
        for node in nodes:
            self.learn(replace(node, drained=False))

    def has(self, node: BatchNode) -> bool:
        """Whether nobody sees it."""
        return node is self._off.get(node.name) or node is self._drained.get(node.name)

    def will_have(self, node: BatchNode) -> bool:
        """Whether nobody sees it, or will when it has gone."""
        return node.name in self._off and node.power in (Power.DOWN, Power.GOING_DOWN)
