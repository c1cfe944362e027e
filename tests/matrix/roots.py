"""Roots of other releases of Debian, with their own Slurm and Python, made once and kept.

A root has what `scripts/install-packages` would install for these tests and an environment of
Python for them. It has nothing of this machine but where packages come from.
"""

import fcntl
import os
import re
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from tests.libvirt.kept import digest

TOP = Path(__file__).resolve().parents[2]
LOCKS = (TOP / "requirements" / "uv.txt", TOP / "requirements" / "dev.txt")
PACKAGES = (
    "ca-certificates", "dnsmasq-base", "iproute2", "libnss-extrausers", "make", "mariadb-server",
    "mount", "munge", "nfs-ganesha", "nfs-ganesha-vfs", "openmpi-bin", "openssh-client",
    "openssh-server", "openssl", "passwd", "procps", "python3", "python3-libvirt", "python3-mpi4py",
    "python3-venv", "slurm-client", "slurm-wlm", "slurmctld", "slurmd", "slurmdbd", "util-linux",
)  # fmt: skip
ENVIRONMENT = "/opt/env"
"""Where Python and the tests' packages are, in a root."""
PASSED_ON = ("PIP_", "UV_", "SSL_", "http_proxy", "https_proxy", "no_proxy")
"""Variables by which this machine says where Python's packages come from."""
LEFT_OUT = ("PIP_FIND_LINKS", "UV_CACHE_DIR")
INSTALL = Path(__file__).with_name("install.sh")


NO_RELEASE = re.compile(r"^E: (The repository '.*' (?:does not have|no longer has) a Release file)")
"""What apt says of a release that an archive which answers does not have."""


class NotGiven(Exception):
    """The archive that this machine uses does not have the release at all."""


class NotMade(Exception):
    """A root, or what was to be found in it, could not be made; the text says why."""


@dataclass(frozen=True, slots=True)
class Release:
    """A release of Debian."""

    suite: str
    packages: tuple[str, ...] = ()
    """What it needs beside those of all."""
    older: tuple[tuple[str, str], ...] = ()
    """Packages of another release that stand in for broken ones, each with that release."""
    broken: str = ""
    """What is wrong with those."""


RELEASES = {
    "bookworm": Release("bookworm"),
    "trixie": Release("trixie"),
    "sid": Release(
        "sid",
        ("util-linux-extra",),  # pivot_root
        (("libmariadb3", "trixie"),),
        "libmariadb 3.4.10 takes no answer that has columns, so slurmdbd dies at its start",
    ),
}


@contextmanager
def root_of(release: Release) -> Iterator[Path]:
    """Its root, made if need be; nobody else's while the block runs."""
    home = _home()
    home.mkdir(parents=True, exist_ok=True)
    key = digest([*LOCKS, INSTALL], [release.suite, *_packages(release)])
    root = home / f"{release.suite}-{key}"
    with root.with_suffix(".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not root.exists():
            _make(release, root)
        yield root


def _home() -> Path:
    cache = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(cache, "springtide", "roots")


def _packages(release: Release) -> list[str]:
    older = (f"{package}/{suite}" for package, suite in release.older)
    return sorted({*PACKAGES, *release.packages, *older})


def _make(release: Release, root: Path) -> None:
    """Beside its place, and moved there when it is whole; then older ones of the release go."""
    with tempfile.TemporaryDirectory(prefix=".making-", dir=root.parent) as name:
        new = Path(name, "root")
        _bootstrap(release, new)
        _install(new)
        new.rename(root)
    for old in root.parent.glob(f"{release.suite}-*"):
        if old.is_dir() and old != root:
            _forget(old)


def _forget(old: Path) -> None:
    """Unless somebody uses it. It goes from its place at once, so that no part of it is taken for
    the whole."""
    with (
        old.with_suffix(".lock").open("w") as lock,
        tempfile.TemporaryDirectory(prefix=".going-", dir=old.parent) as name,
    ):
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return
        old.rename(Path(name, "root"))


def _bootstrap(release: Release, root: Path) -> None:
    """The mirror may lag behind, as some do for weeks; its signature is checked all the same."""
    command = ["mmdebstrap", "--mode=root", "--variant=minbase", "--format=directory"]
    command += ["--aptopt=Acquire::Check-Valid-Until false", "--dpkgopt=force-unsafe-io"]
    command += [f"--include={','.join(_packages(release))}", release.suite, str(root)]
    suites = dict.fromkeys([release.suite, *(suite for _, suite in release.older)])
    sources = [f"deb {_archive()} {suite} main" for suite in suites]
    done = subprocess.run(
        [*command, *sources],
        capture_output=True,
        text=True,
        errors="replace",
        check=False,
        env={**os.environ, "LC_ALL": "C.UTF-8"},
    )
    if done.returncode:
        raise failure(done.stderr)


def failure(said: str) -> NotGiven | NotMade:
    """What it means that mmdebstrap failed, which is told without `--quiet` alone."""
    lines = [line.strip() for line in said.splitlines() if line.strip()]
    if lacks := next(filter(None, map(NO_RELEASE.match, lines)), None):
        return NotGiven(lacks[1])
    errors = [line for line in lines if line.startswith("E: ")] or lines[-5:]
    return NotMade("\n".join(errors) or "mmdebstrap gave no reason")


def _archive() -> str:
    """Where this machine has its own packages from."""
    command = ["apt-get", "indextargets", "--format", "$(REPO_URI) $(RELEASE) $(COMPONENT)"]
    shown = subprocess.run(
        [*command, "Created-By: Packages"], check=True, capture_output=True, text=True
    )
    places = sorted(
        line.split()[0]
        for line in shown.stdout.splitlines()
        if line.split()[1:] in (["bookworm", "main"], ["trixie", "main"], ["sid", "main"])
    )
    if not places:
        raise NotMade("apt knows no archive of Debian here: run `apt-get update`")
    return places[0]


def _install(root: Path) -> None:
    """Python's packages; for this the root has this machine's network."""
    for lock in LOCKS:
        shutil.copy(lock, root / "root")
    given = [
        f"{key}={value}"
        for key, value in os.environ.items()
        if key.startswith(PASSED_ON) and key not in LEFT_OUT
    ]
    spaces = ["unshare", "--mount", "--pid", "--fork", "--kill-child", "--mount-proc"]
    install = ["bash", "-eu", str(INSTALL), str(root), ENVIRONMENT, *given]
    if status := subprocess.run([*spaces, *install], check=False).returncode:
        raise NotMade(f"Python's packages were not installed: status {status}")
