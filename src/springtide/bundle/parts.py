"""What a bundle is made of: parts, and what is lacking with the reason."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field

MOST = 32 << 20
"""Bytes of all parts together; what comes after that is left out."""

SEARCH = "a search for what"
"""How a lack begins that is of secrets, and not of a part."""


@dataclass(frozen=True, slots=True)
class Part:
    """One file of the bundle."""

    name: str
    content: bytes
    about: str = ""
    """What a reader must know of it, such as that it is the end of a longer one."""


@dataclass(frozen=True, slots=True)
class Lack:
    """What is not in the bundle, and why."""

    name: str
    why: str


@dataclass(slots=True)
class Parts:
    """All that was had so far, and all that was not."""

    had: list[Part] = field(default_factory=list)
    lacking: list[Lack] = field(default_factory=list)
    _size: int = 0

    def add(self, part: Part) -> None:
        if self._size + len(part.content) > MOST:
            self.lack(part.name, f"the bundle has {MOST >> 20} MiB without it, and holds no more")
            return
        self._size += len(part.content)
        self.had.append(part)

    def lack(self, name: str, why: str) -> None:
        self.lacking.append(Lack(name, why))

    @contextmanager
    def trying(self, name: str) -> Iterator[None]:
        """Whatever happens here costs this part alone."""
        try:
            yield
        except OSError as error:
            self.lack(name, error.strerror or str(error))
        except Exception as error:  # a defect of ours must not cost the rest
            self.lack(name, f"{type(error).__name__}: {error}")

    def collect(self, name: str, made: Callable[[], Sequence[Part]]) -> None:
        """What `made` answers, or why it did not."""
        with self.trying(name):
            for part in made():
                self.add(part)
