"""Which nodes could not be let in, because this machine lacks something that they are to get."""

from springtide.model import STARTING, Node


class Lacking:
    """What was lacking when each node asked last. The daemon's `Joining` has one."""

    def __init__(self) -> None:
        self._known: dict[str, tuple[int, str]] = {}
        """By node: the generation, and what is lacking."""

    def of(self, node: Node) -> str:
        """Empty if nothing is."""
        generation, why = self._known.get(node.name, (0, ""))
        return why if generation == node.generation else ""

    def is_news(self, node: Node, why: str) -> bool:
        """Keeps it. Nodes ask every few seconds, and those in service do without."""
        if node.state not in STARTING or self.of(node) == why:
            return False
        self._known[node.name] = (node.generation, why)
        return True

    def is_over(self, node: Node) -> bool:
        """The node has got what it asked for; whether that was not so before."""
        return self._known.pop(node.name, None) is not None
