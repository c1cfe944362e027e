"""A call of a program: by whom, and how it ends."""

import sys
from dataclasses import dataclass
from pathlib import Path

VERSION = "Version: 6.1.3.h5\nCommit: 4decc716daa73044648b5578ef68d89713d2f6a2\n"
UNREACHED = """
Unable to communicate with {name}(10.99.1.1)
Cannot connect to specified server host '{name}'.
"""
NOT_TOLD = (
    "The updated okclients list hasn't been sent out to the cluster yet. The node(s) will "
    "automatically update to free once this is done and the mom has reported in."
)
DENIED = "Unauthorized Request  MSG=error in permissions ({})"


@dataclass(frozen=True)
class Call:
    """One call of a program."""

    arguments: list[str]
    place: Path
    user: str

    @property
    def manager(self) -> bool:
        return self.user == "root"


class Failed(Exception):
    """A program ends with this code and these words on stderr."""

    def __init__(self, code: int, said: str) -> None:
        super().__init__(said)
        self.code = code
        self.said = said


def say(words: str) -> int:
    sys.stdout.write(words)
    return 0
