"""From parts to one file: masked, with a page at the top that tells what is in it."""

import io
import signal
import tarfile
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

from springtide.bundle.files import stamp
from springtide.bundle.masks import LEFT_OUT, Masked, Masks
from springtide.bundle.parts import SEARCH, Lack, Part, Parts

MANIFEST = "MANIFEST.md"
PART_S = 60.0
"""To look for secrets in one part."""
NEVER = (
    "keys of munge, of TLS and of ssh, and the secret that join tokens are made with",
    "credentials of clouds, and the files and environments that hold them",
    "user data of nodes, and what they got when they joined",
    "users, their keys and their files; jobs' scripts and output",
    "images, and the database of the account of jobs",
)
MEANING = {
    "status.json": "`tide status --json`",
    "nodes.json": "`tide nodes --json`",
    "operations.json": "`tide operations --json`",
    "events.jsonl": "`tide events --json`",
    "holds.json": "`tide holds --json`",
    "images.json": "`tide image list --json`",
    "maintenance.json": "`tide maintenance --json`",
    "machines.json": "what machines said of themselves when they joined",
    "plan.json": "`tide plan --json`",
    "check.json": "`tide check --json`",
    "versions.txt": "of Springtide, Python, the system and the batch system",
    "state.txt": "names, rights and sizes of files in the state directory; room on its disk",
    "cluster.json": "the cluster file as it is read, without comments",
}
FOLDERS = {
    "boots": "what a node said that did not come up",
    "conf": "configuration of the batch system",
    "logs": "a log",
    "record": "of the record on disk",
    "timelines": "how long each phase of a node's boot took",
}


@dataclass(frozen=True, slots=True)
class Label:
    """What a bundle is of."""

    cluster: str
    version: str
    made_at: float
    since: float

    @property
    def name(self) -> str:
        return f"tide-bundle-{self.cluster}"


def pack(label: Label, parts: Parts, masks: Masks) -> bytes:
    """A tar.gz whose files are all in one directory. Call it in the main thread."""
    clean, found = [], {}
    for part in sorted(parts.had, key=lambda one: one.name):
        with parts.trying(part.name), limited(PART_S):
            masked = masks.clean(part)
            clean.append(Part(part.name, masked.content, part.about))
            found[part.name] = masked
            if masked.is_left_out:
                parts.lack(part.name, masked.content.decode(errors="replace").strip())
    text = manifest(label, clean, parts.lacking, found).encode(errors="backslashreplace")
    return _tar(label, [Part(MANIFEST, masks.apply(text).content), *clean])


@contextmanager
def limited(seconds: float) -> Iterator[None]:
    """TimeoutError after so long, also in the midst of a search."""

    def stop(number: int, frame: object) -> None:
        raise TimeoutError(f"to look for secrets in it took longer than {seconds:g} s")

    before = signal.signal(signal.SIGALRM, stop)
    signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


def _tar(label: Label, parts: Iterable[Part]) -> bytes:
    target = io.BytesIO()
    with tarfile.open(fileobj=target, mode="w:gz") as archive:
        for part in parts:
            name = f"{label.name}/{part.name}"
            entry = tarfile.TarInfo(name.encode(errors="backslashreplace").decode())
            entry.size, entry.mode, entry.mtime = len(part.content), 0o600, int(label.made_at)
            archive.addfile(entry, io.BytesIO(part.content))
    return target.getvalue()


def manifest(
    label: Label, parts: Sequence[Part], lacking: Sequence[Lack], found: dict[str, Masked]
) -> str:
    """The page that somebody reads first, who perhaps knows nothing of the cluster."""
    masked = {name: one for name, one in found.items() if one.found}
    lines = [
        f"# Bundle of cluster {label.cluster}",
        "",
        f"Made {stamp(label.made_at)} by `tide bundle` of Springtide {label.version}.",
        f"Logs and events are those since {stamp(label.since)}. Times that end in Z are UTC.",
        "",
        "Look through it before you pass it on: names of nodes, users and jobs are in it.",
        "",
        "## What is in it",
        "",
        *(_line(part) for part in parts),
        "",
        "## What could not be had",
        "",
        *([f"- `{one.name}`: {_flat(one.why)}" for one in lacking] or ["Nothing: all is there."]),
        "",
        "## What was masked",
        "",
        *(
            [_masked(name, one) for name, one in masked.items()]
            or ["Nothing: no secret was found."]
        ),
        *_unknown(lacking),
        "",
        "## What is never in it",
        "",
        *(f"- {one}" for one in NEVER),
        "",
    ]
    return "\n".join(lines)


def _line(part: Part) -> str:
    folder = part.name.partition("/")[0]
    meaning = MEANING.get(part.name) or FOLDERS.get(folder, "")
    left_out = part.content.startswith(LEFT_OUT)
    size = "left out whole" if left_out else f"{len(part.content)} bytes"
    words = ", ".join(filter(None, (meaning, size, "" if left_out else part.about)))
    return f"- `{part.name}`: {words}"


def _masked(name: str, one: Masked) -> str:
    what = ", ".join(f"{_flat(each)} ({times} ×)" for each, times in sorted(one.found.items()))
    return f"- `{name}`: {what}"


def _unknown(lacking: Sequence[Lack]) -> list[str]:
    """Secrets that were not looked for by their values."""
    names = [
        one.name.removeprefix("a search for ") for one in lacking if one.name.startswith(SEARCH)
    ]
    text = "**Not all secrets could be read, so that these were looked for by name and shape alone:"
    return ["", f"{text}** {'; '.join(names)}"] if names else []


def _flat(text: str) -> str:
    return " ".join(text.split())[:300]
