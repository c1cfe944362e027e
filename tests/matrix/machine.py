"""A root as a machine of its own, for the length of one command."""

import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from tests.matrix.roots import TOP

ENTER = Path(__file__).with_name("enter.sh")
SPACES = ("--net", "--mount", "--pid", "--uts", "--ipc")
PREFIX = "springtide-matrix-"


@dataclass(frozen=True, slots=True)
class Machine:
    """Where commands run that see a root, this checkout as `/springtide`, and `/results`."""

    root: Path
    private: Path

    @property
    def results(self) -> Path:
        return self.private / "results"

    def run(self, *command: str) -> int:
        """The exit status. All that the command leaves running ends with it."""
        spaces = ["unshare", *SPACES, "--fork", "--kill-child", "--mount-proc"]
        enter = ["bash", "-eu", str(ENTER), str(self.root), str(self.private)]
        return subprocess.run([*spaces, *enter, *command], check=False).returncode

    def told(self, *command: str) -> str:
        """What a command prints."""
        self.run("sh", "-c", 'exec "$@" >/results/told', "sh", *command)
        return (self.results / "told").read_text().strip()


@contextmanager
def machine(root: Path) -> Iterator[Machine]:
    """A machine with a copy of this checkout; what it wrote goes with it."""
    with tempfile.TemporaryDirectory(prefix=PREFIX, dir="/var/tmp") as name:
        private = Path(name)
        private.chmod(0o755)
        (private / "results").mkdir()
        _copy(private / "springtide")
        yield Machine(root, private)


def _copy(to: Path) -> None:
    """Whatever git would commit, and no environment of this machine."""
    command = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
    listed = subprocess.run(command, cwd=TOP, check=True, capture_output=True, text=True).stdout
    for name in filter(None, listed.split("\0")):
        if (source := TOP / name).is_file():
            (to / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(source, to / name)
