"""Reads cluster.yaml into a Cluster, or says all that is wrong with it, and where."""

import stat
from pathlib import Path

from pydantic import ValidationError

from springtide.spec import environment, source
from springtide.spec.checks import check
from springtide.spec.cluster import Cluster
from springtide.spec.findings import KEY, Finding
from springtide.spec.messages import explain
from springtide.spec.problems import Problem, SpecError


def load(path: Path) -> Cluster:
    """The cluster that a file describes; SpecError says what is wrong with the file."""
    name = str(path)
    try:
        content = _bytes(path)
    except FileNotFoundError:
        raise source.error(
            name, None, "there is no such file; `tide init FILE` writes one to begin with"
        ) from None
    except (OSError, ValueError) as fault:
        why = fault.strerror if isinstance(fault, OSError) else str(fault)
        raise source.error(name, None, f"the file cannot be read: {why}") from None
    if len(content) > source.MAX_SIZE:
        raise source.too_long(name)
    return parse(_text(content, name), name)


def _bytes(path: Path) -> bytes:
    mode = path.stat().st_mode
    if stat.S_ISDIR(mode):
        raise ValueError("it is a directory; name the file in it")
    if not stat.S_ISREG(mode):
        raise ValueError("it is not a regular file")
    with path.open("rb") as file:
        return file.read(source.MAX_SIZE + 1)


def _text(content: bytes, name: str) -> str:
    try:
        return content.decode("utf-8-sig")
    except UnicodeDecodeError as fault:
        before = content[: fault.start].decode("utf-8-sig")
        place = source.place_of(before, len(before))
        byte = f"the byte 0x{content[fault.start]:02x}"
        raise source.error(name, place, f"{byte} is no UTF-8; is this a text file?") from None


def parse(text: str, name: str) -> Cluster:
    """The cluster that a text describes; `name` is what problems call its file."""
    return build(source.read(text, name))


def build(document: source.Document) -> Cluster:
    """With what the environment of its service sets."""
    applied = environment.applied(document.data)
    problems = document.problems + applied.problems
    try:
        cluster = Cluster.model_validate(applied.data)
    except ValidationError as error:
        # Cluster checks what fits together only once all has the right shape.
        findings = [*explain(error), *check(applied.data)]
        theirs = [applied.placed(one) for one in findings]
        hint = [] if all(theirs) else environment.hints(applied)
        pairs = zip(theirs, findings, strict=True)
        placed = [problem or _placed(one, document) for problem, one in pairs]
        raise SpecError(problems + placed + hint) from None
    if problems:
        raise SpecError(problems)
    return cluster


def _placed(finding: Finding, document: source.Document) -> Problem:
    place = document.key if finding.place == KEY else document.value
    return place(finding.loc, finding.message)
