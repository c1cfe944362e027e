"""How a command is told which cluster it is about; `place`, messages and advice go by it."""

from pathlib import Path

CLUSTERS = Path("/var/lib/springtide")
"""Where clusters have their state directories, unless their files say otherwise."""


def option(state: Path) -> str:
    """What chooses the cluster with this state directory."""
    return f"--cluster {state.name}" if state.parent == CLUSTERS else f"--state {state}"


def deploying(state: Path, file: Path, command: str = "deploy") -> str:
    """The command that deploys from this file; the stored one need not be named."""
    return f"tide {command} {option(state) if file.parent == state else file}"
