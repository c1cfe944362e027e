"""What jobs of a test wait at, so that they run for as long as it looks and no longer."""

from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True, slots=True)
class Gate:
    """A file that nodes see; while it is there, the gate is open."""

    path: Path

    @property
    def wait(self) -> str:
        """What waits at it, in a script."""
        return f"until [ -e {self.path} ]; do sleep 0.1; done"

    def open(self) -> None:
        self.path.touch()

    def close(self) -> None:
        self.path.unlink()
