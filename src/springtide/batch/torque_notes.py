"""The notes that Torque keeps of nodes: whether a node of ours is off, and why one is drained.

A node that joins keeps in its note what Torque had last heard from it before: only what comes
later tells that it is there. So beliefs about a machine of that name that is gone count no more.
The note also has the address that the node was created with, as Torque does not show it.
"""

import re
from dataclasses import dataclass
from typing import Self

from springtide.ports import OURS

OFF = f"{OURS}: off"
LONGEST = 150  # bytes of a reason; Torque cuts or refuses notes of more than 256
_OFF = re.compile(rf"{OFF}(?: \(at (?P<address>[0-9A-Fa-f.:]+)\))?")
_JOINED = re.compile(
    rf"(?:{OURS}: joined|(?P<reason>.*) \(joined) (?P<after>[0-9]{{1,18}})"
    r"(?: at (?P<address>[0-9A-Fa-f.:]+))?\)?"
)
_EMPTY = frozenset({"", "n", "n/a"})
"""What clears a note, and what admins write for none."""


@dataclass(frozen=True, slots=True)
class Note:
    """What a node's note says."""

    reason: str = ""
    """Why it is drained, if it is."""
    after: int | None = None
    """It has joined, and is there if it is heard from after this time; None if it has not."""
    off: bool = False
    address: str = ""
    """That which Torque knows; empty if it is not known."""

    @classmethod
    def read(cls, text: str) -> Self:
        if found := _OFF.fullmatch(text):
            return cls(off=True, address=found["address"] or "")
        if found := _JOINED.fullmatch(text):
            return cls(found["reason"] or "", int(found["after"]), address=found["address"] or "")
        return cls("" if text in _EMPTY else text)

    def __str__(self) -> str:
        if self.off:
            return f"{OFF} (at {self.address})" if self.address else OFF
        reason = plain(self.reason)
        if self.after is None:
            return "" if reason in _EMPTY else reason
        joined = f"joined {self.after}" + (f" at {self.address}" if self.address else "")
        return f"{reason} ({joined})" if reason else f"{OURS}: {joined}"


def plain(text: str) -> str:
    """On one line, and no longer than Torque keeps it."""
    line = " ".join("".join(c if c.isprintable() else " " for c in text).split())
    return line.encode()[:LONGEST].decode(errors="ignore").strip()
