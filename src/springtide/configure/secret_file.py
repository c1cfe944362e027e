"""Files with secrets of the cluster's own, such as keys that it made."""

import os
from pathlib import Path

from springtide.file_errors import naming


def keep_secret(path: Path, secret: bytes, mode: int, owner: tuple[int, int] | None = None) -> None:
    """Whole or not at all, also when the power fails; never to be read by others."""
    fresh = path.with_name(f".{path.name}.new")
    fresh.unlink(missing_ok=True)
    descriptor = os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, mode)
    with naming(fresh), os.fdopen(descriptor, "wb") as file:
        file.write(secret)
        file.flush()
        os.fsync(descriptor)
    if owner:
        os.chown(fresh, *owner)
    fresh.replace(path)
