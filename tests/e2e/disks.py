"""What whoever has the disk of a machine, or an image of it, finds there: in files or not."""

import re
from collections.abc import Iterator
from mmap import ACCESS_READ, mmap
from pathlib import Path

from springtide.layout import Layout

TOKEN = rb"TIDE_TOKEN=([0-9]+\.[\w-]{22})"
KEY = rb'"generation": [0-9]+, "key": "([^"]{8,200})"'
"""What a node joined with, and what it got for that; as they lie on its disk, whole: a journal may
have them compressed, too, and broken off."""


def found(disk: Path, pattern: bytes) -> bytes:
    """The first that is like it, or its part in brackets."""
    with disk.open("rb") as file, mmap(file.fileno(), 0, access=ACCESS_READ) as all_of_it:
        match = re.search(pattern, all_of_it)
        return match[match.re.groups] if match else b""


def holds(disk: Path, content: bytes) -> bool:
    return bool(found(disk, re.escape(content)))


def secrets(state: Path) -> Iterator[tuple[str, bytes]]:
    """Files of the control host that are for nobody else, by a part of them that has no others."""
    private = [
        path for path in sorted(Layout(state).join.iterdir()) if path.stat().st_mode & 0o077 == 0
    ]
    assert {"secret", "ssh_ca", "tls.key", "id_ed25519"} <= {path.name for path in private}
    for path in private:
        content = path.read_bytes()
        lines = content.splitlines() if content.startswith(b"-----") else [content]
        yield path.name, max(lines, key=len) if len(lines) < 3 else lines[len(lines) // 2]
