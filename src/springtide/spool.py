"""Requests that the hook left on disk while the daemon was away, and requests as they come.

What the hook sends is from outside: sizes, types and names are checked here, for both ways in.
"""

import json
import os
import stat
import time
from collections.abc import Mapping
from contextlib import suppress
from math import isfinite
from pathlib import Path
from typing import Any

from springtide.model import Request
from springtide.nodeset import NodeNameError, expand, fold

MAX_FILE = 80 << 20
MAX_JOBS = 100_000
MAX_WIDE = 10_000
MAX_WIDE_NODES = 200_000
"""Jobs of several nodes that are told apart, and the nodes of all of them."""
MAX_JOB_DIGITS = 20
MAX_REASON = 500
REBOOTS = {"reboot": {}, "rebuild": {"action": "rebuild"}, "reboot-only": {"action": "reboot"}}
"""Programs that start nodes afresh, and what they tell of how; the first goes by the reason."""
PROGRAMS = frozenset({"resume", "suspend", "resume-fail", *REBOOTS})


class BadRequest(ValueError):
    """A request that makes no sense; the text says what is wrong with it."""


def parse_request(program: str, message: Mapping[str, Any]) -> Request:
    """A hook's message as a request."""
    if program not in PROGRAMS:
        known = ", ".join(sorted(PROGRAMS))
        raise BadRequest(f"there is no program {program[:40]!a}; known are {known}")
    id, nodes = message.get("id"), message.get("nodes")
    if not isinstance(id, str) or not 1 <= len(id) <= 64 or not id.isprintable():
        raise BadRequest("the request has no id")
    at = _time(message.get("at"))
    if not isinstance(nodes, str):
        raise BadRequest("the request names no nodes")
    try:
        names = expand(nodes)
    except NodeNameError as error:
        raise BadRequest(str(error)) from error
    jobs = _jobs(message)
    return Request(id, _meant(program, message), tuple(names), at, tuple(jobs), _wide(jobs))


def _meant(program: str, message: Mapping[str, Any]) -> str:
    """For a job that asked for a reboot Slurm calls ResumeProgram, with the job and no file."""
    by_job = isinstance(message.get("job"), str) and not message.get("resume_file")
    return "reboot" if program == "resume" and by_job else program


def _time(value: object) -> float:
    """JSON as Python reads it knows NaN, and numbers beyond all that a float holds."""
    with suppress(OverflowError):
        if isinstance(value, int | float) and isfinite(value):
            return float(value)
    raise BadRequest("the request has no time")


def _jobs(message: Mapping[str, Any]) -> dict[str, object]:
    """The jobs that wait for the nodes, and theirs; keys that a newer Slurm adds are passed over.

    A job may have nodes that are up already, of which newer ones tell under a key of its own.
    """
    if isinstance(job := message.get("job"), str) and _is_job(job):
        return {job: None}
    try:
        content = json.loads(message.get("resume_file") or "{}")
        listed = content["jobs"][:MAX_JOBS]
        jobs = {str(int(j["job_id"])): j.get("nodes_alloc") or j.get("nodes") for j in listed}
    except (ValueError, TypeError, KeyError, OverflowError, RecursionError):
        return {}
    return {id: nodes for id, nodes in jobs.items() if _is_job(id)}


def _wide(jobs: Mapping[str, object]) -> dict[str, str]:
    """Those of several nodes. One whose list makes no sense, or is too long, is as if of one."""
    wide: dict[str, str] = {}
    left = MAX_WIDE_NODES
    for id, text in jobs.items():
        names = _several(text, left)
        if names and len(wide) < MAX_WIDE:
            wide[id] = fold(names)
            left -= len(names)
    return wide


def _several(text: object, limit: int) -> set[str]:
    if not isinstance(text, str) or not ("[" in text or "," in text):
        return set()
    try:
        names = set(expand(text, limit=limit))
    except NodeNameError:
        return set()
    return names if len(names) > 1 else set()


def parse_job(value: object) -> str:
    """The id of a job, as a prolog tells it."""
    if isinstance(value, str) and _is_job(value):
        return value
    raise BadRequest("the request names no job")


def _is_job(text: str) -> bool:
    return len(text) <= MAX_JOB_DIGITS and text.isascii() and text.isdecimal()


def read_request(path: Path) -> Request:
    """A spooled request. BadRequest is the file's fault, OSError the machine's."""
    try:
        message = json.loads(_read(path).decode())
        if not isinstance(message, dict):
            raise BadRequest("it is no JSON object")
        return parse_request(str(message.get("program")), message)
    except (ValueError, RecursionError) as error:
        raise BadRequest(f"{path.name[:100]!a}: {error}") from error


def _read(path: Path) -> bytes:
    """Nothing is followed or waited for: links, pipes and devices are no requests."""
    flags = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC
    if not stat.S_ISREG(path.lstat().st_mode):
        raise BadRequest("it is no file")
    with os.fdopen(os.open(path, flags), "rb") as file:
        status = os.fstat(file.fileno())
        if not stat.S_ISREG(status.st_mode) or status.st_size > MAX_FILE:
            raise BadRequest("it is no file, or a very large one")
        return file.read(MAX_FILE)


def reason(error: Exception) -> str:
    """Why a request is refused or kept, as text that can be stored whatever a file is called."""
    text = str(error) or type(error).__name__
    return text[:MAX_REASON].encode(errors="backslashreplace").decode()


class Spool:
    """The directory. Each trouble with it is told once, and what cannot be removed is left."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._left: set[str] = set()
        self._told: dict[str, str] = {}

    def files(self) -> list[Path]:
        """What lies there, oldest first; half-written files have hidden names."""
        try:
            files = sorted(self._directory.iterdir())
        except FileNotFoundError:
            return []
        whole = (path for path in files if path.suffix == ".json" and path.name[0] != ".")
        return [path for path in whole if path.name not in self._left]

    def remove(self, path: Path) -> None:
        """Have it out of the way: gone, else hidden, else passed over from now on."""
        self._told.pop(path.name, None)
        try:
            path.unlink(missing_ok=True)
        except OSError:
            self._hide(path)

    def _hide(self, path: Path) -> None:
        try:
            path.rename(path.with_name(f".refused-{time.time_ns()}"))
        except OSError:
            self._left.add(path.name)

    def is_news(self, name: str, text: str) -> bool:
        """Whether this was not the last that was told about the file."""
        told = self._told.get(name)
        self._told[name] = text
        return told != text
