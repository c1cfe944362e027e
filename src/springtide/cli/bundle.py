"""`tide bundle`: one file for support, without secrets."""

import os
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated

import typer

from springtide.cli import output
from springtide.cli.client import Away, Client
from springtide.cli.endings import Complaint, Exit
from springtide.cli.parameters import parse_duration
from springtide.cli.place import Choice, ClusterOption, StateOption, client
from springtide.cli.whereabouts import option

SINCE = "2d"
CHECK_S = 180.0
"""Clouds are asked in it, and may be what is wrong."""
CHECK = "check.json"


def bundle(
    out: Annotated[
        str | None,
        typer.Option("--out", metavar="FILE", help="Where to; left out, a name with the time."),
    ] = None,
    since: Annotated[
        str,
        typer.Option(
            "--since", metavar="TIME", help="Logs and events of so long.", show_default=True
        ),
    ] = SINCE,
    cluster: ClusterOption = None,
    state: StateOption = None,
) -> None:
    """One file for support, without secrets.

    Configuration, states, events, logs and checks, with a page that tells what is in it, what
    could not be had, and what was masked. It works without the daemon. Only root can make it.
    """
    since_s = parse_duration(since) or 0.0
    if os.geteuid() != 0:
        raise Complaint("only root can make a bundle: who makes it must know what to leave out")
    daemon = client(Choice(cluster, state))
    if not daemon.layout.is_ours:
        raise Complaint(f"there is no cluster in {daemon.layout.state}", Exit.WRONG)
    with _target(Path(out or _name(daemon))) as (path, descriptor):
        output.note("tide: looking at the machine, the cluster and its providers …")
        content = _content(daemon, since_s)
        with os.fdopen(descriptor, "wb") as file:
            file.write(content)
    output.put(str(path))
    output.note(f"{len(content) >> 10} KiB; read its MANIFEST.md before you pass it on")


def _name(daemon: Client) -> str:
    at = time.strftime("%Y%m%dT%H%M%SZ", time.gmtime())
    return f"tide-bundle-{_cluster(daemon)}-{at}.tar.gz"


def _cluster(daemon: Client) -> str:
    """Its name, or that of its directory if the copy of its file is no more."""
    from springtide.spec import SpecError, load

    try:
        return load(daemon.stored_spec).cluster
    except SpecError:
        return daemon.layout.state.name


@contextmanager
def _target(file: Path) -> Iterator[tuple[Path, int]]:
    """A new file for its owner alone; it goes again if nothing comes of it."""
    path = file.absolute()
    try:
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    except FileExistsError:
        raise Complaint(f"{path} is there already; name another with --out", Exit.WRONG) from None
    except OSError as error:
        text = f"cannot write {path}: {error.strerror}; name another place with --out"
        raise Complaint(text, Exit.WRONG) from None
    try:
        yield path, descriptor
    except BaseException:
        path.unlink(missing_ok=True)
        raise


def _content(daemon: Client, since_s: float) -> bytes:
    """What the daemon answers, and what the disk has."""
    from springtide.bundle.made import Order, make
    from springtide.bundle.parts import SEARCH, Part, Parts
    from springtide.cli.bundle_asked import Asked

    parts, since = Parts(), max(time.time() - since_s, 0.0)
    asked = Asked(daemon, parts, since)
    asked.all()
    with parts.trying(CHECK):
        parts.add(Part(CHECK, _check(_which(daemon, asked.file))))
    environments: list[Mapping[str, str]] = [os.environ]
    with parts.trying(f"{SEARCH} the daemon's environment holds"):
        environments.append(_environment(daemon))
    return make(Order(daemon.layout, since, asked.lacks, environments), parts)


def _environment(daemon: Client) -> dict[str, str]:
    """Of the process behind the socket, which need not answer."""
    try:
        pid = daemon.daemon_pid()
    except Away:
        raise ProcessLookupError("no daemon runs; what systemd gives it was read") from None
    raw = Path(f"/proc/{pid}/environ").read_bytes()
    pairs = (os.fsdecode(one).partition("=") for one in raw.split(b"\0") if one)
    return {name: value for name, _, value in pairs}


def _which(daemon: Client, file: str | None) -> list[str]:
    """The cluster by its copy of the file; where there is none, by the file of its daemon."""
    if file and not daemon.stored_spec.exists():
        return [file]
    return option(daemon.layout.state).split(" ", 1)


def _check(which: list[str]) -> bytes:
    """`tide check`, as a process of its own: whatever becomes of it, the bundle goes on."""
    try:
        done = subprocess.run(
            [sys.executable, "-m", "springtide.cli.main", "check", "--json", *which],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=CHECK_S,
            check=False,
        )
    except subprocess.TimeoutExpired:
        raise TimeoutError(f"`tide check` took longer than {CHECK_S:g} s") from None
    if done.stdout.startswith(b"{"):
        return done.stdout
    said = done.stderr.decode(errors="replace").strip()
    raise OSError(said[-1000:] or f"`tide check` ended with {done.returncode}")
