"""Leaving a Slurm that was there before us, and that may go on calling us for a while.

Called when the cluster is destroyed, and by `tide attach --remove` until nothing is left.
"""

from pathlib import Path

from springtide.batch.slurm_attachment import Attachment
from springtide.compose_slurm import programs
from springtide.layout import Layout
from springtide.spec import Cluster


def leave(spec: Cluster) -> tuple[Path, ...]:
    """Make harmless what that Slurm still needs; answers what must stay in the state directory.

    Nothing, unless the cluster is attached. The file of the cluster stays beside the
    rest, so that it can be left once more.
    """
    if not spec.attached:
        return ()
    layout = Layout(spec.state)
    needed = Attachment(spec).leave()
    if needed.programs:
        programs(spec).retire()
    kept = [layout.include] if needed.include or needed.former else []
    kept += [layout.programs] if needed.programs else []
    return (*kept, layout.stored_spec) if kept else ()
