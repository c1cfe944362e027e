"""Reads files for a bundle: their ends, and of logs what is young enough. Follows no link."""

import os
import re
import stat
import time
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

from springtide.bundle.parts import Part, Parts

TAIL = 1 << 20
"""Bytes of a log; its end is what matters."""
FEW = 50
"""One byte in so many may be no letter."""
_STAMP = re.compile(rb"(?:timestamp=)?\[?(\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d)(?:\.\d+)?(Z?)")


@dataclass(frozen=True, slots=True)
class Reader:
    """Who reads, and from when on."""

    parts: Parts
    since: float = 0.0
    """Logs are of interest from then on."""

    def take(
        self,
        path: Path,
        name: str,
        *,
        most: int = TAIL,
        log: bool = False,
        needed: bool = False,
    ) -> None:
        """The file, if it may be read; else it is told why not, also of one that must be there."""
        with self.parts.trying(name):
            try:
                part = self._read(path, name, most, log)
            except FileNotFoundError:
                if needed:
                    self.parts.lack(name, f"there is no {path}")
                return
            if part is not None:
                self.parts.add(part)

    def _read(self, path: Path, name: str, most: int, log: bool) -> Part | None:
        with opened(path, os.O_NOFOLLOW) as file:
            about = os.fstat(file.fileno())
            start = max(about.st_size - most, 0)
            file.seek(start)
            content = file.read(most)
        if log and about.st_mtime < self.since:
            self.parts.lack(name, f"nothing was written to it since {stamp(self.since)}")
            return None
        if not is_text(content):
            self.parts.lack(name, "it is no plain text, so that it cannot be searched for secrets")
            return None
        note = f"the last {most >> 10} KiB of {about.st_size >> 10} KiB" if start else ""
        return Part(name, younger(content, self.since) if log else content, note)


def opened(path: Path, flags: int = 0) -> BinaryIO:
    """To read it; a pipe or a device is an OSError, and nothing is waited for."""
    descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC | flags)
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise OSError("it is no regular file")
    return os.fdopen(descriptor, "rb")


def is_text(content: bytes) -> bool:
    """Few bytes of what is packed or compiled are letters; a log may have some of another code."""
    strange = content.decode(errors="replace").count("\ufffd")
    return b"\0" not in content and strange * FEW <= len(content)


def stamp(at: float) -> str:
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(at))


def younger(content: bytes, since: float) -> bytes:
    """From the first line on that says it is young enough; all of it, if no line tells a time.

    Our log tells UTC, others the machine's time.
    """
    utc, local = (
        time.strftime("%Y-%m-%dT%H:%M:%S", at(since)).encode()
        for at in (time.gmtime, time.localtime)
    )
    place, dated = 0, False
    for line in content.splitlines(keepends=True):
        if found := _STAMP.match(line):
            dated = True
            if found[1] >= (utc if found[2] else local):
                return content[place:]
        place += len(line)
    return b"" if dated else content
