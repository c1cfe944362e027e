"""Programs of Debian in the image of a machine, without an installation on this one."""

import os
import subprocess
from collections.abc import Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from tempfile import TemporaryDirectory

from tests.libvirt.kept import digest

SOON = ("-o", "Acquire::http::Timeout=20", "-o", "Acquire::Retries=3")


def unpack(packages: Sequence[str], root: Path) -> None:
    """These and what they need that is not here, unpacked and not configured."""
    for package in sorted(_kept(tuple(_missing(packages))).glob("*.deb")):
        _run("dpkg-deb", "--extract", str(package), str(root))


def _missing(packages: Sequence[str]) -> Iterator[str]:
    """Each with its version."""
    options = ("--simulate", "--no-install-recommends")
    for line in _run("apt-get", *options, "install", *packages).splitlines():
        match line.split():
            case ["Inst", name, version, *_]:
                yield f"{name}={version.lstrip('(')}"


def _kept(packages: Sequence[str]) -> Path:
    """A directory with these; downloaded once and kept outside the checkout."""
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache", "springtide")
    place = cache / f"packages-{digest((), packages)}"
    if not place.exists():
        cache.mkdir(parents=True, exist_ok=True)
        with TemporaryDirectory(dir=cache) as new:
            _run("apt-get", "-qq", *SOON, "download", *packages, cwd=new)
            with suppress(OSError):  # somebody else was faster
                Path(new).rename(place)
                Path(new).mkdir()
    return place


def _run(*command: str, cwd: str = "/") -> str:
    done = subprocess.run(
        command, cwd=cwd, text=True, capture_output=True, timeout=120, check=False
    )
    told = f"{' '.join(command)}: {done.stderr}"
    assert done.returncode == 0, f"{told} (is a mirror there? run `apt-get update`)"
    return done.stdout
