"""Reads cluster.yaml into a Cluster, or says all that is wrong with it, and where."""

import stat
from pathlib import Path

from pydantic import ValidationError

from springtide.spec import source
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
        raise source.error(name, None, "there is no such file") from None
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
    try:
        cluster = Cluster.model_validate(document.data)
    except ValidationError as error:
        # Cluster checks what fits together only once all has the right shape.
        findings = [*explain(error), *check(document.data)]
        raise SpecError(document.problems + _placed(findings, document)) from None
    if document.problems:
        raise SpecError(document.problems)
    return cluster


def _placed(findings: list[Finding], document: source.Document) -> list[Problem]:
    return [
        (document.key if finding.place == KEY else document.value)(finding.loc, finding.message)
        for finding in findings
    ]
