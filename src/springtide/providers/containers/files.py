"""Writing files so that a kill leaves the old text or the new, never a part."""

import os
from pathlib import Path


def replace_text(path: Path, text: str) -> None:
    """For what must be found again, also after the power failed."""
    fresh = _fresh(path)
    with fresh.open("w") as file:
        file.write(text)
        file.flush()
        os.fsync(file.fileno())
    fresh.replace(path)


def replace_quickly(path: Path, text: str) -> None:
    """For what is written anew whenever it is needed."""
    fresh = _fresh(path)
    fresh.write_text(text)
    fresh.replace(path)


def _fresh(path: Path) -> Path:
    return path.with_name(f".{path.name}.new")
