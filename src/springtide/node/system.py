"""Files and programs of the node, as features need them."""

import glob
import os
import pwd
import signal
import subprocess
import tempfile
from contextlib import suppress
from typing import List, Optional, Sequence, Tuple, Union

from springtide.node.console import Failed, holds_within, say

BEGIN, END = "# springtide: begin", "# springtide: end"
TIMED_OUT = 124
END_S = 30.0
"""For a program that was told to end."""


# --- files ---------------------------------------------------------------------------------------


def read(path: str) -> str:
    """Nothing if it is not there."""
    try:
        with open(path, encoding="utf-8", errors="surrogateescape") as file:
            return file.read()
    except (FileNotFoundError, ProcessLookupError):
        return ""


def replace_file(
    path: str, content: Union[str, bytes], mode: int = 0o644, owner: str = "root"
) -> bool:
    """Whole or not at all, and only if it is another; a link is replaced, not followed."""
    data = content if isinstance(content, bytes) else content.encode("utf-8", "surrogateescape")
    account = account_of(owner)
    if _is_same(path, data, mode, account.pw_uid):
        return False
    os.makedirs(os.path.dirname(path), exist_ok=True)
    fresh = path + ".springtide-new"
    remove(fresh)
    with os.fdopen(os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as file:
        file.write(data)
        file.flush()
        os.fchown(file.fileno(), account.pw_uid, account.pw_gid)
        os.fchmod(file.fileno(), mode)
        os.fsync(file.fileno())
    os.replace(fresh, path)
    say("wrote " + path)
    return True


def account_of(owner: str) -> pwd.struct_passwd:
    try:
        return pwd.getpwnam(owner)
    except KeyError:
        raise Failed(f"the image has no user {owner}: install {owner} in it") from None


def _is_same(path: str, data: bytes, mode: int, uid: int) -> bool:
    if os.path.islink(path) or not os.path.isfile(path):
        return False
    known = os.stat(path)
    with open(path, "rb") as file:
        return (known.st_mode & 0o7777, known.st_uid) == (mode, uid) and file.read() == data


def remove(path: str) -> bool:
    if not os.path.lexists(path):
        return False
    os.unlink(path)
    return True


def replace_block(path: str, lines: Sequence[str], mode: int = 0o644) -> bool:
    """Our lines come first in a file that has others, too."""
    if not lines and not os.path.exists(path):
        return False
    return replace_file(path, render_block(read(path), lines), mode)


def render_block(text: str, lines: Sequence[str]) -> str:
    kept = []
    ours = False
    for line in text.splitlines():
        if line in (BEGIN, END):
            ours = line == BEGIN
        elif not ours:
            kept.append(line)
    block = [BEGIN, *lines, END] if lines else []
    return "".join(line + "\n" for line in block + kept)


def render_settings(text: str, lines: Sequence[str], defaults: Sequence[str]) -> str:
    """With our lines in place of all that begin with the same words, and with defaults for which
    it has no such line of its own."""
    ours = {_word(line) for line in lines}
    kept = [line for line in render_block(text, []).splitlines() if _word(line) not in ours]
    theirs = {_word(line) for line in kept}
    more = [line for line in defaults if _word(line) not in theirs]
    return render_block("".join(line + "\n" for line in kept), [*lines, *more])


def _word(line: str) -> str:
    return line.split()[0] if line.strip() else ""


# --- programs ------------------------------------------------------------------------------------


def run(
    command: Sequence[str], limit_s: float = 120.0, given: Optional[str] = None
) -> Tuple[int, str]:
    """Its exit code, and all it said. What it leaves running is not waited for: no pipes."""
    with tempfile.TemporaryFile() as said, tempfile.TemporaryFile() as told:
        told.write((given or "").encode())
        told.seek(0)
        try:
            code = subprocess.run(
                command, stdin=told, stdout=said, stderr=subprocess.STDOUT, timeout=limit_s
            ).returncode
        except subprocess.TimeoutExpired:
            return TIMED_OUT, f"{command[0]} took more than {limit_s:g} s"
        except OSError as error:
            return 127, str(error)
        said.seek(0)
        return code, said.read().decode("utf-8", "replace")


def last_line(said: str) -> str:
    lines = [line.strip() for line in said.splitlines() if line.strip()]
    return lines[-1][:300] if lines else "it said nothing"


def has_systemd() -> bool:
    return os.path.isdir("/run/systemd/system")


def restart(*names: str) -> bool:
    """The first of these services that is there."""
    for name in names:
        script = "/etc/init.d/" + name
        if has_systemd():
            done = run(["systemctl", "restart", name])[0] == 0
        else:
            done = os.access(script, os.X_OK) and run([script, "restart"])[0] == 0
        if done:
            return True
    return False


def pids_of(program: str) -> List[int]:
    """Those that run: who has ended, and waits for its parent to notice, has no command line."""
    found = [path for path in glob.glob("/proc/[0-9]*") if read(path + "/comm").strip() == program]
    return [int(path.split("/")[2]) for path in found if read(path + "/cmdline")]


def stop(program: str) -> None:
    for pid in pids_of(program):
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGTERM)
    if not holds_within(END_S, lambda: not pids_of(program)):
        raise Failed(f"{program} runs already and does not end: kill it")
