"""Requests that the hook left on disk while the daemon was away, and requests as they come.

What the hook sends is from outside: sizes, types and names are checked here, for both ways in.
"""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from springtide.model import Request
from springtide.nodeset import NodeNameError, expand

MAX_FILE = 80 << 20
MAX_JOBS = 100_000
PROGRAMS = frozenset({"resume", "suspend", "resume-fail", "reboot"})


class BadRequest(ValueError):
    """A request that makes no sense; the text says what is wrong with it."""


def parse_request(program: str, message: Mapping[str, Any]) -> Request:
    """A hook's message as a request."""
    if program not in PROGRAMS:
        known = ", ".join(sorted(PROGRAMS))
        raise BadRequest(f"there is no program {program[:40]!r}; known are {known}")
    id, nodes, at = message.get("id"), message.get("nodes"), message.get("at")
    if not isinstance(id, str) or not 1 <= len(id) <= 64:
        raise BadRequest("the request has no id")
    if not isinstance(at, int | float):
        raise BadRequest("the request has no time")
    if not isinstance(nodes, str):
        raise BadRequest("the request names no nodes")
    try:
        names = expand(nodes)
    except NodeNameError as error:
        raise BadRequest(str(error)) from error
    return Request(id, program, tuple(names), float(at), _jobs(message))


def _jobs(message: Mapping[str, Any]) -> tuple[str, ...]:
    """The jobs that wait for the nodes; keys that a newer Slurm adds are passed over."""
    if isinstance(job := message.get("job"), str) and job.isdigit():
        return (job,)
    try:
        content = json.loads(message.get("resume_file") or "{}")
        jobs = content["jobs"][:MAX_JOBS]
        return tuple(str(int(job["job_id"])) for job in jobs)
    except (ValueError, TypeError, KeyError):
        return ()


def read_spool(directory: Path) -> list[tuple[Path, Request | BadRequest]]:
    """What lies there, oldest first. A file that makes no sense is answered with its error."""
    try:
        files = sorted(p for p in directory.iterdir() if p.suffix == ".json" and p.name[0] != ".")
    except FileNotFoundError:
        return []
    return [(path, _read(path)) for path in files]


def _read(path: Path) -> Request | BadRequest:
    try:
        if path.is_symlink() or path.stat().st_size > MAX_FILE:
            return BadRequest(f"{path.name} is no request of ours")
        message = json.loads(path.read_text())
        return parse_request(str(message.get("program")), message)
    except BadRequest as error:
        return error
    except (OSError, ValueError, AttributeError) as error:
        return BadRequest(f"{path.name} cannot be read: {error}")
