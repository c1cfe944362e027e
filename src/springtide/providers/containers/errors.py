"""From the operating system's errors to the provider's; the one translator of this adapter."""

import os
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager

from springtide.ports import Denied, Transient


@contextmanager
def translated(what: str) -> Iterator[None]:
    try:
        yield
    except PermissionError as error:
        raise Denied(f"{what}: {error}") from error
    except (OSError, subprocess.SubprocessError) as error:
        raise Transient(f"{what}: {error}") from error


def require_root() -> None:
    if os.geteuid() != 0:
        raise Denied("containers are made by root only: run the daemon as root")
