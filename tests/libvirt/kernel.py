"""Debian's kernel for clouds, downloaded and unpacked, never installed. Called by `image`."""

import lzma
import re
import subprocess
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

NEWEST = "linux-image-cloud-amd64"
"""Depends on the kernel itself, whose name has its version."""


@dataclass(frozen=True, slots=True)
class Package:
    name: str
    version: str


@dataclass(frozen=True, slots=True)
class Unpacked:
    """The kernel and its modules, as they lie in a directory."""

    root: Path
    release: str

    @property
    def image(self) -> Path:
        return self.root / "boot" / f"vmlinuz-{self.release}"

    @property
    def modules(self) -> Path:
        return self.root / "lib" / "modules" / self.release

    def with_needed(self, names: Iterable[str]) -> list[str]:
        """Paths of modules below `modules`, each after those it needs, but for what is built in."""
        needs = parse_needs((self.modules / "modules.dep").read_text())
        paths = {_name(path): path for path in needs}
        built_in = {*map(_name, (self.modules / "modules.builtin").read_text().split())}
        ordered: dict[str, None] = {}
        for path in (paths[name] for name in map(_name, names) if name not in built_in):
            ordered |= dict.fromkeys([*reversed(needs[path]), path])
        return list(ordered)


def _name(path: str) -> str:
    return Path(path).stem.replace("-", "_")


def parse_needs(text: str) -> dict[str, list[str]]:
    """modules.dep: who needs whom; the last must be loaded first."""
    lines = (line.partition(":") for line in text.splitlines())
    return {path: needed.split() for path, _, needed in lines}


def newest() -> Package:
    """What the package lists of this machine offer; they are fetched if there are none."""
    try:
        return _offered()
    except LookupError:
        _run("apt-get", "-qq", "update")
        return _offered()


def _offered() -> Package:
    command = ["apt-cache", "show", "--no-all-versions", NEWEST]
    shown = subprocess.run(command, check=False, capture_output=True, text=True)
    found = re.search(r"^Depends: (linux-image-\S+) \(= (\S+)\)", shown.stdout, re.MULTILINE)
    if found is None:
        raise LookupError(f"apt knows no package {NEWEST}: run `apt-get update`")
    return Package(*found.groups())


def unpack(package: Package, work: Path) -> Unpacked:
    root = work / "kernel"
    root.mkdir()
    _download(package, root)
    (archive,) = root.glob("*.deb")
    _run("dpkg-deb", "-x", str(archive), str(root))
    _plain(root)
    (modules,) = (root / "lib" / "modules").iterdir()
    _run("/usr/sbin/depmod", "-b", str(root), modules.name)
    return Unpacked(root, modules.name)


def _plain(root: Path) -> None:
    """As Debian 12 has it: newer ones have modules below /usr, and compressed."""
    if not (root / "lib").exists():
        (root / "lib").symlink_to("usr/lib")
    for path in (root / "lib" / "modules").rglob("*.ko.xz"):
        path.with_suffix("").write_bytes(lzma.decompress(path.read_bytes()))
        path.unlink()


def _download(package: Package, to: Path) -> None:
    """As root, who alone may write there; apt would warn of that."""
    command = ["apt-get", "-qq", "-o", "APT::Sandbox::User=root", "download"]
    wanted = f"{package.name}={package.version}"
    if subprocess.run([*command, wanted], check=False, cwd=to).returncode:
        # The lists were older than the archive.
        _run("apt-get", "-qq", "update")
        subprocess.run([*command, package.name], check=True, cwd=to)


def _run(*command: str) -> None:
    subprocess.run(command, check=True)
