"""One run of Ansible, from its beginning to its end, in the thread that calls it.

`configure.ansible` calls it. ansible-runner is an extra: nothing of it is imported before a run.
The run ends with the thread that began it, so a daemon that was killed leaves none behind.
"""

import fcntl
import math
import os
import shlex
import shutil
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any

ROLES = Path(__file__).parent.parent / "ansible" / "roles"
EXTRA = ("ansible", "ansible_runner")
KEPT = 10
"""So many runs can be read up on."""
SEEN = ("HOME", "LANG", "PATH", "SSH_AUTH_SOCK")
"""What Ansible sees of our own environment; what it sees is also kept with the run."""
LOOK_S = 1
"""Between two looks at whether a run is to end."""
OTHER_ROLES = ("~/.ansible/roles", "/usr/share/ansible/roles", "/etc/ansible/roles")
PLAYBOOK = (sys.executable, "-m", "ansible", "playbook")
"""The program of the Python that runs us, not one that happens to be on PATH."""


SHARED = "-C -o ControlMaster=auto -o ControlPersist=60s -o ControlPath=ssh-%C"
"""One connection to a node for all tasks; its socket is in the directory of the run, which may have
a longer name than sockets can."""
WITH_US = (
    *("setpriv", "--pdeathsig", "KILL", "--"),
    *("unshare", "--pid", "--fork", "--kill-child=KILL", "--"),
)
"""The kernel ends it with us, and with it all that it started, also its connections to nodes."""


@dataclass(frozen=True, slots=True)
class Job:
    """What is to be run, and on whom."""

    place: Path
    """A directory of its own, where all that it leaves is kept."""
    inventory: Path
    playbook: Path
    forks: int
    limit_s: float
    variables: Path | None = None


def missing() -> str:
    """The Python package that is missing for it, if one is."""
    return next((name for name in EXTRA if find_spec(name) is None), "")


def command(job: Job) -> list[str]:
    """As arguments."""
    more = ["--extra-vars", f"@{job.variables}"] if job.variables else []
    options = ["--inventory", str(job.inventory), "--forks", str(job.forks)]
    return [*WITH_US, *PLAYBOOK, *options, *more, str(job.playbook)]


def environment(home: Path, limit_s: float = 0.0) -> dict[str, str]:
    """Of Ansible. Host keys are always checked; connections end with the run.

    A task that hangs on one node fails there after half of what the run may take, so that the
    others have the rest.
    """
    return {
        "ANSIBLE_DEPRECATION_WARNINGS": "False",
        "ANSIBLE_HOME": str(home),
        "ANSIBLE_HOST_KEY_CHECKING": "True",
        "ANSIBLE_NOCOLOR": "True",
        "ANSIBLE_PIPELINING": "True",
        "ANSIBLE_ROLES_PATH": os.pathsep.join((str(ROLES), *OTHER_ROLES)),
        "ANSIBLE_SSH_ARGS": SHARED,
        "ANSIBLE_TASK_TIMEOUT": str(math.ceil(limit_s / 2)),
        "ANSIBLE_TRANSFORM_INVALID_GROUP_CHARS": "ignore",
        "LC_ALL": "C.UTF-8",
    }


def run(job: Job, hear: Callable[[Mapping[str, Any]], object], ends: Callable[[], bool]) -> str:
    """To its end, or until `ends` says so; `hear` gets each event. Answers how it ended."""
    from ansible_runner.interface import init_runner

    program, *options = command(job)

    def event_handler(event: Mapping[str, Any]) -> bool:
        hear(event)
        return False  # it would be written to a file of its own

    runner = init_runner(
        private_data_dir=str(job.place),
        ident="run",
        binary=program,
        cmdline=shlex.join(options),
        envvars=environment(job.place.parent / "home", job.limit_s),
        settings={"pexpect_timeout": LOOK_S},
        timeout=max(1, int(job.limit_s)),
        quiet=True,
        event_handler=event_handler,
        cancel_callback=ends,
    )
    runner.config.env = narrowed(runner.config.env, os.environ)
    with held(job.place):
        runner.run()
    return ending(runner.status, runner.rc, job)


def narrowed(wanted: Mapping[str, str], ours: Mapping[str, str]) -> dict[str, str]:
    """An environment without what it only has of our own: secrets of clouds may be in that."""
    return {key: one for key, one in wanted.items() if key in SEEN or ours.get(key) != one}


def ending(status: str, code: int, job: Job) -> str:
    """In words for people."""
    if status == "timeout":
        return f"it took longer than {job.limit_s:.0f} s (ansible.limit)"
    return f"{status}, exit code {code}; see {job.place / 'artifacts' / 'run' / 'stdout'}"


def prune(runs: Path) -> None:
    """Remove all but the newest and those that go on; names begin with the time they began."""
    for old in sorted(path for path in runs.glob("run-*") if path.is_dir())[:-KEPT]:
        with suppress(BlockingIOError), held(old):
            shutil.rmtree(old, ignore_errors=True)


@contextmanager
def held(place: Path) -> Iterator[None]:
    """The directory of a run, as long as it goes on; a run that was killed holds nothing."""
    directory = os.open(place, os.O_RDONLY | os.O_DIRECTORY)
    try:
        fcntl.flock(directory, fcntl.LOCK_EX | fcntl.LOCK_NB)
        yield
    finally:
        os.close(directory)
