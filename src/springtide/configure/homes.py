"""Home directories: made once, and the keys in them. The roster calls it.

A home is its user's own: what lies in it may lead anywhere. So root makes only the directory, and
the user does the rest. That also works where a file server does not trust root.
"""

import os
import signal
import stat
import subprocess
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

from springtide.users import User, UserError

LIMIT_S = 30.0
SKELETON = "/etc/skel"
SCRIPT = """\
set -eu
umask 077
cd "$1"
[ "$2" != fresh ] || [ ! -d "$3" ] || cp -R "$3/." .
mkdir -p .ssh
chmod 700 .ssh
cd .ssh
for each in authorized_keys id_ed25519 id_ed25519.pub; do
    [ ! -e "$each" ] || [ -f "$each" ] || { echo ".ssh/$each is no file" >&2; exit 1; }
done
if [ "$PRIVATE" ] && [ ! -e id_ed25519 ]; then
    printf '%s\\n' "$PUBLIC" >id_ed25519.pub
    printf '%s\\n' "$PRIVATE" >id_ed25519
fi
own=
[ ! -f id_ed25519.pub ] || own=$(cat id_ed25519.pub)
touch authorized_keys
chmod 600 authorized_keys
[ ! -s authorized_keys ] || [ -z "$(tail -c 1 authorized_keys)" ] || echo >>authorized_keys
{ cat; [ -z "$own" ] || printf '%s\\n' "$own"; } | while IFS= read -r line; do
    grep -qxF -e "$line" authorized_keys || printf '%s\\n' "$line" >>authorized_keys
done
"""
"""Run in the home by its user: HOME fresh|old SKELETON; keys come on stdin."""
FORGET = """\
set -eu
umask 077
[ -f "$1/.ssh/authorized_keys" ] || exit 0
cd "$1/.ssh"
cat >.gone
LC_ALL=C awk '
# As sshd reads a line: a type, or options and a type, then the key, of which the rest says nothing.
function body(line,    at, sign, quoted, words) {
    gsub(/\\r/, " ", line)
    sub(/^[ \\t]+/, "", line)
    for (at = 1; at <= length(line); at++) {
        sign = substr(line, at, 1)
        if (sign == "\\\\" && substr(line, at + 1, 1) == "\\"") at++
        else if (sign == "\\"") quoted = !quoted
        else if (!quoted && (sign == " " || sign == "\\t")) break
    }
    split(substr(line, at), words, " ")
    return words[1] ~ /^AAAA/ ? words[1] : words[2]
}
FILENAME == ".gone" { gone[$2]; next }
/^[ \\t]*#/ || !(body($0) in gone)
' .gone authorized_keys >.left
cat .left >authorized_keys
rm -f .gone .left
"""
"""Run in the home by its user, too: HOME; keys to be taken out come on stdin."""
NO_KEY = "there is no ssh-keygen here, so the home has no key of its own: install openssh-client"


def make(user: User, directory: Path, cluster: str) -> str:
    """The home at `directory`, with these keys; answers what is amiss, if anything is."""
    fresh = "fresh" if _make_directory(user, directory) else "old"
    private, public = _key_pair(f"{user.name}@{cluster}")
    own = {"PRIVATE": private, "PUBLIC": public}
    _as(user, [SCRIPT, "sh", str(directory), fresh, SKELETON], user.keys, own)
    return "" if private else NO_KEY


def forget(user: User, directory: Path, keys: Sequence[str]) -> None:
    """Have these keys let nobody into the home any more, if there is one."""
    if not keys or not os.path.lexists(directory):
        return
    require(user, directory)
    _as(user, [FORGET, "sh", str(directory)], keys, {})


def _key_pair(comment: str) -> tuple[str, str]:
    """For a home that has none. ssh-keygen makes none for whom this machine does not know."""
    with tempfile.TemporaryDirectory(prefix="tide-key-") as place:
        path = Path(place, "key")
        options = ["-q", "-t", "ed25519", "-N", "", "-C", comment, "-f", str(path)]
        try:
            subprocess.run(
                ["ssh-keygen", *options], stdin=subprocess.DEVNULL, timeout=LIMIT_S, check=True
            )
        except FileNotFoundError:
            return "", ""
        except subprocess.SubprocessError as error:
            raise UserError(f"ssh-keygen made no key for {comment}: {error}") from error
        return path.read_text().strip(), path.with_suffix(".pub").read_text().strip()


def require(user: User, directory: Path) -> None:
    """See that a home can be made there, or is theirs; changes nothing."""
    with _parent(directory) as place:
        _is_there(user, directory, place)


def owning(place: Path) -> frozenset[int]:
    """The uids and gids of all that lies in it. Whose they are may be known to nobody any more.

    Empty if it cannot be read: whoever makes a home in it is told why.
    """
    found = set[int]()
    with suppress(OSError), os.scandir(place) as entries:
        for entry in entries:
            with suppress(OSError):
                status = entry.stat(follow_symlinks=False)
                found |= {status.st_uid, status.st_gid}
    return frozenset(found)


def _make_directory(user: User, directory: Path) -> bool:
    """True if it was not there; one that is somebody else's is left alone."""
    with _parent(directory) as place:
        if _is_there(user, directory, place):
            return False
        try:
            with suppress(FileExistsError):
                os.mkdir(directory.name, 0o700, dir_fd=place)
            os.chown(directory.name, user.uid, user.gid, dir_fd=place, follow_symlinks=False)
        except OSError as error:
            raise UserError(f"cannot make {directory}: {error.strerror}") from error
    return True


@contextmanager
def _parent(directory: Path) -> Iterator[int]:
    """A descriptor of the directory above, in which nobody but root exchanges anything."""
    try:
        place = os.open(directory.parent, os.O_DIRECTORY | os.O_CLOEXEC)
    except OSError as error:
        raise UserError(
            f"cannot make {directory}: {directory.parent}: {error.strerror}; "
            "make it, or set `users.homes`"
        ) from error
    try:
        _require_safe(directory.parent, os.fstat(place))
        yield place
    finally:
        os.close(place)


def _require_safe(path: Path, status: os.stat_result) -> None:
    if status.st_uid != 0 or status.st_mode & 0o022:
        raise UserError(
            f"{path} can be written by others than root, so no homes are made there: "
            f"run `chown root {path}; chmod go-w {path}`, or set `users.homes`"
        )


def _is_there(user: User, directory: Path, place: int) -> bool:
    """False also if an attempt ended between its making and its giving away."""
    try:
        status = os.stat(directory.name, dir_fd=place, follow_symlinks=False)
    except FileNotFoundError:
        return False
    if not stat.S_ISDIR(status.st_mode):
        raise UserError(f"{directory} is no directory: move it away, and add {user.name} again")
    if status.st_uid == 0 and not any(directory.iterdir()):
        return False
    if status.st_uid != user.uid:
        raise UserError(
            f"{directory} belongs to uid {status.st_uid}, not to {user.name} ({user.uid}): add "
            f"somebody new with --uid {status.st_uid}, move it away, or give it to them with "
            f"`chown -R {user.uid}:{user.gid} {directory}`"
        )
    return True


def _as(user: User, script: Sequence[str], lines: Sequence[str], own: Mapping[str, str]) -> None:
    """A script with its arguments, the first of which is the home, run as its user."""
    home = script[2]
    try:
        code, said = _run(user, script, "".join(f"{line}\n" for line in lines), own)
    except subprocess.TimeoutExpired:
        said = f"it took more than {LIMIT_S:.0f} s; does its file server answer?"
        raise UserError(f"{user.name} cannot keep keys in {home}: {said}") from None
    except OSError as error:
        raise UserError(f"{user.name} cannot keep keys in {home}: {error}") from error
    if code:
        short = " ".join(said.split())[:300]
        raise UserError(f"{user.name} cannot keep keys in {home}: {short}")


def _run(user: User, script: Sequence[str], given: str, own: Mapping[str, str]) -> tuple[int, str]:
    """Its exit code and complaints; nothing that it started is left behind."""
    with subprocess.Popen(
        ["/bin/sh", "-c", *script],
        user=user.uid,
        group=user.gid,
        extra_groups=[],
        cwd="/",
        env={"PATH": "/usr/bin:/bin", "HOME": script[2], "LC_ALL": "C.UTF-8", **own},
        stdin=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
        errors="replace",
        start_new_session=True,
    ) as process:
        try:
            _, said = process.communicate(given, timeout=LIMIT_S)
        except subprocess.TimeoutExpired:
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            raise
        return process.returncode, said
