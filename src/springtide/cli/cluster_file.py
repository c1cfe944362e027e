"""The cluster file where people have it: found, read, and rewritten with the user's own rights."""

import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from springtide.cli import output
from springtide.cli.client import Away, Client, Json, Refused
from springtide.cli.endings import Complaint, Exit
from springtide.layout import STORED_SPEC

LONGEST = 500_000
"""Bytes of a cluster file; the daemon reads no more."""
NO_FILE = "there is no such file"


@dataclass(frozen=True, slots=True)
class ClusterFile:
    """A cluster file and what stands in it."""

    path: Path
    text: str
    ours: bool = False
    """It is the daemon's own copy, which the daemon itself writes."""


def find(daemon: Client, status: Json, given: str | None = None) -> ClusterFile:
    """The file that was given, else where people have it, else the daemon's copy."""
    stored = daemon.stored_spec
    known = Path(status["file"]) if status["file"] else stored
    path = known if given is None else Path(given).absolute()
    missing = "the cluster file is there no more; name it: `tide apply FILE`"
    text = read(path, missing if given is None else NO_FILE)
    return ClusterFile(path, text, ours=path == stored)


def edited(status: Json) -> str | None:
    """What to say if people have changed their file and not applied it.

    Only a file that is younger than the daemon's copy is read, for that takes a moment.
    """
    path, stored = Path(status["file"] or ""), Path(status["state_directory"], STORED_SPEC)
    try:
        if not status["file"] or path.stat().st_mtime <= stored.stat().st_mtime:
            return None
    except OSError:
        return None
    from springtide.spec import SpecError, load
    from springtide.spec.fingerprint import fingerprint

    try:
        if fingerprint(load(path)) == status["spec"]:
            return None
    except SpecError as error:
        return f"{path} was changed since it was applied, and is wrong now: {error.problems[0]}"
    command = f"tide attach {path}" if status["attached"] else "tide apply"
    return f"{path} was changed since it was applied: run `{command}`"


def mention_edits(daemon: Client) -> None:
    """Before an answer that is true only of the file as it was applied."""
    if news := edited(daemon.get("/status")):
        output.note(f"tide: {news}")


def read(path: Path, missing: str = NO_FILE) -> str:
    """Line ends stay as they are."""
    try:
        if path.exists() and not path.is_file():
            raise Complaint(f"{path} is not a regular file", Exit.WRONG)
        with path.open("rb") as stream:
            content = stream.read(LONGEST + 1)
        text = content.decode("utf-8-sig")
    except FileNotFoundError:
        raise Complaint(f"{path}: {missing}", Exit.WRONG) from None
    except OSError as error:
        raise Complaint(f"{path} cannot be read: {error.strerror}", Exit.WRONG) from None
    except UnicodeDecodeError:
        raise Complaint(f"{path} is no text in UTF-8; is it the right file?", Exit.WRONG) from None
    if len(content) > LONGEST:
        raise Complaint(f"{path} is longer than a cluster file may be", Exit.WRONG)
    return text


@contextmanager
def rewritten(file: ClusterFile, text: str) -> Iterator[None]:
    """The file with another text, while the daemon is asked; put back if it refuses."""
    if file.ours or text == file.text:
        yield
        return
    replace(file, text)
    try:
        yield
    except Refused:
        replace(ClusterFile(file.path, text), file.text)
        output.note(f"{file.path} is as it was before")
        raise
    except Away as error:
        todo = f"{file.path} is changed already: run `tide apply` to go on"
        raise Complaint(f"{error}; {todo}", Exit.AWAY) from error


def replace(file: ClusterFile, text: str) -> None:
    """At once, as its owner would have done it; what a link leads to is replaced, not the link."""
    path = file.path.resolve()
    if read(path) != file.text:
        raise Complaint(f"{file.path} was changed meanwhile and is left alone; try again")
    try:
        with tempfile.NamedTemporaryFile(
            dir=path.parent, prefix=f".{path.name}.", delete=False
        ) as fresh:
            _fill(Path(fresh.name), path, text)
    except OSError as error:
        raise Complaint(
            f"cannot write {file.path}: {error.strerror}; nothing was changed; run it as somebody "
            "who may, or change the file by hand and run `tide apply`"
        ) from None


def _fill(fresh: Path, path: Path, text: str) -> None:
    """Its mode, its owner, its times of now."""
    try:
        fresh.write_text(text, encoding="utf-8", newline="")
        owner = path.stat()
        if (owner.st_uid, owner.st_gid) != (fresh.stat().st_uid, fresh.stat().st_gid):
            os.chown(fresh, owner.st_uid, owner.st_gid)
        shutil.copystat(path, fresh)
        os.utime(fresh)
        with fresh.open("rb") as written:
            os.fsync(written.fileno())
        fresh.replace(path)
    except BaseException:
        fresh.unlink(missing_ok=True)
        raise


def render_edits(path: Path, before: str, after: str) -> str:
    """The lines that differ, each with its number."""
    from difflib import SequenceMatcher

    old, new = before.splitlines(), after.splitlines()
    lines = [str(path)]
    for kind, i, j, k, m in SequenceMatcher(None, old, new, autojunk=False).get_opcodes():
        if kind != "equal":
            lines += [f"{number:5} - {line}" for number, line in enumerate(old[i:j], i + 1)]
            lines += [f"{number:5} + {line}" for number, line in enumerate(new[k:m], k + 1)]
    return "\n".join(lines)
