"""A stand-in for OpenPBS, as tests use it."""

import os
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from tests.batch.openpbs_standin.main import COMMANDS, answer
from tests.batch.openpbs_standin.state import HARDWARE, changing

SCRIPT = """\
#!{python} -IS
import sys
sys.path.insert(0, {place!r})
from tests.batch.openpbs_standin.main import main
sys.exit(main({program!r}, sys.argv[1:], {state!r}, {user!r}))
"""


@dataclass(frozen=True, slots=True)
class Standin:
    """One server with its commands, in a directory of a test."""

    directory: Path
    sources: Path = Path(__file__).parents[3]
    """Where the executables import themselves from."""

    def commands(self, user: str = "root") -> Path:
        """A directory with the commands, as this user has them."""
        place = self.directory / f"bin-{user}"
        if place.exists():
            return place
        place.mkdir()
        for program in (*COMMANDS, "pbs_mom"):
            path = place / program
            text = SCRIPT.format(
                python=Path(sys.executable).resolve(),
                place=str(self.sources),
                program=program,
                state=str(self.directory),
                user=user,
            )
            path.write_text(text)
            path.chmod(0o755)
        return place

    def run(
        self, *command: str, user: str = "root", env: Mapping[str, str] | None = None
    ) -> subprocess.CompletedProcess[str]:
        program, *arguments = command
        return subprocess.run(
            [self.commands(user) / program, *arguments],
            env=dict(os.environ if env is None else env),
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            check=False,
            timeout=100,
        )

    def call(self, user: str, program: str, *arguments: str) -> subprocess.CompletedProcess[str]:
        """The same in this process, without the time that it takes to start a program."""
        code, out, errors = answer(program, list(arguments), self.directory, user)
        return subprocess.CompletedProcess([program, *arguments], code, out, errors)

    def is_own(self, program: Path) -> bool:
        """Whether no test has put another in its place."""
        return program.exists() and SCRIPT.rpartition("import main")[0][-40:] in program.read_text()

    def change(self, **values: object) -> None:
        with changing(self.directory) as state:
            state.update(values)

    def change_job(self, id: str, index: str = "", **values: object) -> None:
        """Or a task of an array."""
        with changing(self.directory) as state:
            job = state["jobs"][id]
            (job["array"]["subjobs"][index] if index else job).update(values)

    def boots(self, name: str, hardware: Mapping[str, object] = HARDWARE) -> None:
        with changing(self.directory) as state:
            state["moms"][name] = dict(hardware)

    def dies(self, name: str) -> None:
        with changing(self.directory) as state:
            state["moms"].pop(name, None)

    def calls(self) -> int:
        with changing(self.directory) as state:
            return int(state["calls"])

    @contextmanager
    def spoilt(self, text: str) -> Iterator[None]:
        self.change(spoil=text)
        try:
            yield
        finally:
            self.change(spoil=None)
