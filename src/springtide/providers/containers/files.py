"""Writing files so that a kill leaves the old text or the new, never a part."""

from pathlib import Path


def replace_text(path: Path, text: str) -> None:
    fresh = path.with_name(f".{path.name}.new")
    fresh.write_text(text)
    fresh.replace(path)
