"""Image directories for tests: this machine's root with a few files changed."""

import shutil
import subprocess
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path


@contextmanager
def image(path: Path, texts: Mapping[str, str], copies: Mapping[str, str]) -> Iterator[Path]:
    """A root directory at `path` in which some files are others: texts, or copies of ours."""
    changed = path.with_name(f"{path.name}.changed")
    changed.mkdir()
    path.mkdir()
    # On a filesystem of its own, for layers of an overlay must not lie in each other.
    with mounted("tmpfs", "mode=755", changed):
        for name, text in texts.items():
            _file(changed, name).write_text(text)
            _file(changed, name).chmod(0o755)
        for name, source in copies.items():
            shutil.copy2(source, _file(changed, name))
        with mounted("overlay", f"lowerdir={changed}:/", path):
            yield path


def _file(root: Path, name: str) -> Path:
    file = root / name.lstrip("/")
    file.parent.mkdir(parents=True, exist_ok=True)
    return file


@contextmanager
def mounted(kind: str, options: str, path: Path) -> Iterator[None]:
    subprocess.run(["mount", "-t", kind, "-o", options, kind, str(path)], check=True)
    try:
        yield
    finally:
        subprocess.run(["umount", str(path)], check=True)
