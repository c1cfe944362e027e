"""How a command is told which cluster it is about; `place`, messages and advice go by it."""

from pathlib import Path

from springtide.layout import Layout

CLUSTERS = Path("/var/lib/springtide")
"""Where clusters have their state directories, unless their files say otherwise."""


def option(state: Path) -> str:
    """What chooses the cluster with this state directory."""
    return f"--cluster {state.name}" if state.parent == CLUSTERS else f"--state {state}"


def deploying(state: Path, file: Path, command: str = "deploy") -> str:
    """The command that deploys from this file; the stored one need not be named."""
    return f"tide {command} {option(state) if file.parent == state else file}"


def starting(layout: Layout) -> str:
    """Advice: what starts the daemon of a cluster, by its stored file."""
    if not layout.stored_spec.exists():
        return "start it with `tide deploy FILE`"
    chosen = option(layout.state)
    if not _is_attached(layout):
        return f"start it with `tide deploy {chosen}`"
    if not layout.record.exists() and (layout.include.exists() or layout.programs.exists()):
        return f"the cluster has left its Slurm; `tide attach --remove {chosen}` removes the rest"
    return f"start it with `tide attach {chosen}`"


def _is_attached(layout: Layout) -> bool:
    """Not all may read the stored file."""
    from springtide.spec import SpecError, load

    if layout.include.exists():
        return True
    try:
        return load(layout.stored_spec).attached
    except SpecError:
        return False
