"""What is told of who asks: not each time, for nobody may fill the disk by asking."""

QUIET_S = 60.0
"""The same of the same node is told once in this."""
MOST = 20
"""So many refusals are told in that time: of strangers, and of those who have shown something."""


class Quiet:
    """What was told a moment ago. The daemon's `Joining` has one."""

    def __init__(self) -> None:
        self._told: dict[tuple[str, str, str], float] = {}

    def may_tell(self, what: str, node: str, cause: str, now: float) -> bool:
        self._told = {one: at for one, at in self._told.items() if 0 <= now - at < QUIET_S}
        if (what, node, cause) in self._told:
            return False
        self._told[what, node, cause] = now
        return True

    def may_refuse(self, kind: str, node: str, cause: str, now: float) -> bool:
        """The same, for refusals: those of one kind do not crowd out others."""
        recent = [at for (what, *_), at in self._told.items() if what == kind]
        if sum(0 <= now - at < QUIET_S for at in recent) >= MOST:
            return False
        return self.may_tell(kind, node, cause, now)
