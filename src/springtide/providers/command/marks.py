"""Which machines are ours: a file for each node, written before its machine is switched on."""

import json
import os
import tempfile
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path

from springtide.ports import Transient


@dataclass(frozen=True, slots=True)
class Mark:
    """A machine that is, or is to be, on for a node."""

    cluster: str
    node: str
    generation: int
    image: str
    flavor: str
    zone: str | None
    maker: str
    """Which programs it was made with."""
    created_at: float
    booted_at: float
    made: bool = False
    """The program that makes it said so. Until then it is ours only if it is on."""
    going: bool = False
    """It was told to go."""
    address: str | None = None
    """As the program that made it said."""

    @property
    def id(self) -> str:
        return f"{self.cluster}.{self.node}.{self.generation}"


@dataclass(frozen=True, slots=True)
class Marks:
    """Those of one cluster."""

    directory: Path

    def all(self, cluster: str) -> Iterator[Mark]:
        for path in sorted(self.directory.glob("*.json")) if self.directory.is_dir() else ():
            with suppress(FileNotFoundError):
                mark = Mark(**json.loads(path.read_text()))
                if mark.cluster == cluster:
                    yield mark

    def find(self, node: str) -> Mark | None:
        try:
            return Mark(**json.loads(self._path(node).read_text()))
        except FileNotFoundError:
            return None

    def write(self, mark: Mark) -> None:
        """Whole or not at all, and on disk when this returns."""
        try:
            self.directory.mkdir(mode=0o700, parents=True, exist_ok=True)
            with tempfile.NamedTemporaryFile(
                "w", dir=self.directory, prefix=".", delete=False
            ) as file:
                json.dump(asdict(mark), file)
                file.flush()
                os.fsync(file.fileno())
            Path(file.name).replace(self._path(mark.node))
        except OSError as error:
            raise Transient(f"cannot write {self.directory}: {error.strerror}") from error

    def forget(self, mark: Mark) -> None:
        if self.find(mark.node) == mark:
            self._path(mark.node).unlink(missing_ok=True)

    def _path(self, node: str) -> Path:
        return self.directory / f"{node}.json"
