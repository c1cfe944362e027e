"""What instances said while they booted: the ends of their logs, as a console would show them.

The provider reads them in one of its threads.
"""

import os
from collections.abc import Iterable
from pathlib import Path

from springtide.ports import CloudError, Instance
from springtide.providers.containers.instances import homes, read_intent, refuse_name

LONGEST = 16 << 10
"""Bytes of one."""


def read_consoles(directory: Path, instances: Iterable[Instance]) -> dict[str, str]:
    """By id; instances that are not there, or cannot be read, are left out."""
    found = {instance.id: _console(directory, instance) for instance in instances}
    return {id: text for id, text in found.items() if text is not None}


def _console(directory: Path, instance: Instance) -> str | None:
    """Also of one that is dead, but not of another generation of its node."""
    try:
        refuse_name(instance.node)
        home = homes(directory) / instance.node
        intent = read_intent(home)
        if intent is None or intent.instance.id != instance.id:
            return None
        return _tail(home / "boot.log")
    except FileNotFoundError:
        return ""
    except (OSError, CloudError):
        return None


def _tail(path: Path) -> str:
    """The end of a file, from the beginning of a line."""
    with path.open("rb") as file:
        skipped = max(0, file.seek(0, os.SEEK_END) - LONGEST)
        file.seek(skipped)
        text = file.read(LONGEST).decode(errors="replace")
    return text.partition("\n")[2] if skipped and "\n" in text else text
