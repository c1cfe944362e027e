"""Where benchmarks keep their clusters: one directory that goes at the end, come what may."""

import asyncio
import json
import os
import shutil
import signal
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from bench.queue import SETTINGS
from springtide.steps import Parts

NODES = 64
STOPS = (signal.SIGINT, signal.SIGTERM)


@contextmanager
def place() -> Iterator[Path]:
    """A short path that the batch system's user can reach."""
    directory = Path(tempfile.mkdtemp(prefix="tide-bench-"))
    directory.chmod(0o755)
    try:
        yield directory
    finally:
        with undisturbed():
            shutil.rmtree(directory)


@contextmanager
def undisturbed() -> Iterator[None]:
    """Cleaning up is not interrupted by an impatient second Ctrl-C."""
    former = {number: signal.signal(number, signal.SIG_IGN) for number in STOPS}
    try:
        yield
    finally:
        for number, handler in former.items():
            signal.signal(number, handler)


def remove(parts: Parts) -> None:
    """Everything of a cluster on this machine, whatever became of those who made it."""

    async def all_of_it() -> None:
        await parts.batch.stop()
        await parts.home.remove(parts.spec.cluster)
        await parts.home.close()
        await parts.record.store.close()

    with undisturbed():
        asyncio.run(all_of_it())


def describe(name: str, state: Path, out: Path) -> dict[str, Any]:
    """A cluster file, the same for all systems."""
    return {
        "cluster": f"bench-{name}-{os.getpid()}",
        "state": str(state),
        "batch": {"parameters": SETTINGS},
        "provider": {"kind": "containers", "mounts": [str(out)]},
        "groups": {"g": {"nodes": f"n-[000-{NODES - 1:03}]"}},
        "timing": {"idle": "1h", "start": "60s", "stop": "60s"},
    }


def write(path: Path, spec: Mapping[str, Any]) -> Path:
    """JSON is YAML too."""
    path.write_text(json.dumps(spec))
    return path
