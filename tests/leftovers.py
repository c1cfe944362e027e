"""What a test run that was killed has left on this machine: found by the next one, and removed."""

import json
import shutil
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

PLACES = Path("/var/tmp")
SETTLED_S = 60.0
"""A run beside this one may just have made its directory, and have no process in it yet."""


def remove_leftovers() -> None:
    """Clusters of which no process is left: their links and their directories."""
    commands = list(_commands())
    for root in PLACES.glob("tide-*"):
        recent = time.time() - root.stat().st_mtime < SETTLED_S
        if recent or any(str(root) in command for command in commands):
            continue
        site = root / "s" / "containers" / "site.json"
        if site.exists():
            bridge = json.loads(site.read_text())["bridge"]
            subprocess.run(["ip", "link", "delete", bridge], check=False, capture_output=True)
        shutil.rmtree(root, ignore_errors=True)


def _commands() -> Iterator[str]:
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            yield path.read_bytes().replace(b"\0", b" ").decode(errors="replace")
        except OSError:
            continue
