"""Runs the commands of a batch system; called in threads.

What keeps a command from running, or takes too long, is Unavailable: what it printed and how it
ended is for the adapter to judge.
"""

import os
import subprocess
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path

from springtide.ports import Unavailable

Output = subprocess.CompletedProcess[str]

TIMEOUT_S = 30.0
MOST = 300
"""Characters of what a command says that are passed on."""


class SlowError(Unavailable):
    """A command did not end in time; what it asked for may be done later all the same."""


def run(
    command: Sequence[str],
    environment: Mapping[str, str],
    *,
    bin: Path | None = None,
    timeout_s: float = TIMEOUT_S,
    system: str,
    server: str,
) -> Output:
    """Of `bin` and no other directory, if it is given: other systems have the same names."""
    program = str(bin / command[0]) if bin else command[0]
    try:
        return ran([program, *command[1:]], environment, timeout_s)
    except FileNotFoundError:
        raise Unavailable(
            f"{command[0]} not found; install the commands of {system} on this machine, or set "
            "batch.bin to their directory"
        ) from None
    except subprocess.TimeoutExpired:
        raise SlowError(
            f"`{shown(command)}` took longer than {timeout_s:g} s; look at {server}"
        ) from None
    except OSError as error:
        raise Unavailable(f"cannot run `{shown(command)}`: {error.strerror}") from error


def surroundings(places: str, **settings: str) -> dict[str, str]:
    """Nothing of the daemon's but where programs are, and these places; times in UTC."""
    path = f"{os.environ.get('PATH', '')}:{places}".lstrip(":")
    return {"PATH": path, "LC_ALL": "C", "TZ": "UTC", **settings}


def ran(
    command: Sequence[str],
    environment: Mapping[str, str],
    timeout_s: float,
    lines: Iterable[str] = (),
) -> Output:
    """With these lines as its input. Raises what `subprocess` does; nothing but a line's end is
    made one."""
    done = subprocess.run(
        command,
        env=environment,
        input="".join(f"{line}\n" for line in lines).encode(),
        capture_output=True,
        timeout=timeout_s,
        check=False,
    )
    out, err = (text.decode(errors="replace") for text in (done.stdout, done.stderr))
    return Output(done.args, done.returncode, out, err)


def printed(done: Output, failed: Callable[[Output], Unavailable]) -> str:
    """What it said, if it ended with 0; whatever else is a failure, which `failed` tells."""
    if done.returncode:
        raise failed(done)
    return done.stdout


def shown(command: Sequence[str]) -> str:
    return shortened(" ".join(command))


def shortened(text: str) -> str:
    """On one line, and not too long."""
    line = " ".join(text.split())
    return line if len(line) <= MOST else f"{line[:MOST]}…"
