"""Slurm's programs (Resume, Suspend, ResumeFail, Reboot, PrologSlurmctld, power actions) in one.

slurmctld runs it under the name of the program, as SlurmUser, with closed descriptors, no PATH
and hardly any environment. It hands its arguments to the daemon and returns; with the daemon
away it spools them to disk, and the daemon picks them up. The prolog waits in the daemon until
the job's nodes have registered. Only the standard library, and little of that: a job waits for
it, and an array of a thousand jobs runs it a thousand times.

Installed by `configure.programs` as `bin/hook`, with links named after the programs and
`hook.conf` beside it.
"""

# Importing json and socket takes twice as long as starting Python; these are what they build on.
import os
import sys
import time
from _json import encode_basestring_ascii as quoted
from _socket import AF_UNIX, socket

Settings = dict[str, str]
Message = dict[str, str | float | None]

HAND_OVER_S = 2.0
"""How long a daemon may take to accept; then the request is spooled."""
AWAY_S = 5.0
"""How long a prolog waits for a daemon to come back: a restart, but not a whole absence."""
MAX_RESUME_FILE = 64 << 20
PROGRAMS = ("resume", "suspend", "resume-fail", "reboot", "rebuild", "reboot-only", "prolog")


class Away(Exception):
    """The daemon could not be reached, or did not answer."""


class Refused(Exception):
    """The daemon answered, and said no."""


def main(argv: list[str], environ: dict[str, str]) -> int:
    program = os.path.basename(argv[0])
    if program not in PROGRAMS:
        return complain(f"call me as one of {', '.join(PROGRAMS)}, not {program}", 2)
    try:
        settings = read_settings(os.path.join(os.path.dirname(argv[0]), "hook.conf"))
        if program == "prolog":
            return prolog(settings, environ)
        return hand_over(settings, program, argv[1:], environ)
    except (OSError, ValueError, Refused) as error:
        return complain(f"{program}: {error}", 1)


def read_settings(path: str) -> Settings:
    with open(path) as file:
        return dict(line.rstrip("\n").split("=", 1) for line in file)


def complain(text: str, code: int) -> int:
    """Say it where somebody may read it: on stderr if there is one, and in the system's log."""
    import syslog

    syslog.openlog("springtide-hook")
    syslog.syslog(syslog.LOG_ERR, text)
    if sys.stderr is not None:
        print(f"springtide hook: {text}", file=sys.stderr)
    return code


def hand_over(
    settings: Settings, program: str, arguments: list[str], environ: dict[str, str]
) -> int:
    if len(arguments) != 1 or not arguments[0].strip():
        return complain(f"{program}: give me one host list, such as c[001-004]", 2)
    message: Message = {
        "id": os.urandom(16).hex(),
        "at": time.time(),
        "nodes": arguments[0],
        "job": environ.get("SLURM_JOB_ID"),
        "resume_file": resume_file(environ.get("SLURM_RESUME_FILE")),
    }
    try:
        answer = post(settings["socket"], program, message, HAND_OVER_S)
    except Away:
        spool(settings["spool"], program, message)
        return 0
    unknown = answer.partition(b'"unknown":"')[2].partition(b'"')[0].decode("utf-8", "replace")
    if unknown:
        return complain(f"{program}: {unknown} passed over: not in the cluster file", 1)
    return 0


def resume_file(path: str | None) -> str | None:
    """Slurm keeps it for ten seconds only: read it at once. Unreadable is no reason to fail."""
    if not path:
        return None
    try:
        with open(path, encoding="utf-8", errors="replace") as file:
            return file.read(MAX_RESUME_FILE)
    except OSError:
        return None


def encode(message: Message) -> bytes:
    """As JSON."""
    pairs = (f"{quoted(key)}: {encode_value(value)}" for key, value in message.items())
    return f"{{{', '.join(pairs)}}}".encode()


def encode_value(value: str | float | None) -> str:
    if value is None:
        return "null"
    return quoted(value) if isinstance(value, str) else repr(value)


def post(path: str, program: str, message: Message, timeout: float) -> bytes:
    """One HTTP request over the daemon's socket."""
    body = encode(message)
    head = (
        f"POST /hook/{program} HTTP/1.1\r\nHost: tide\r\nContent-Type: application/json\r\n"
        f"Content-Length: {len(body)}\r\nConnection: close\r\n\r\n"
    )
    connection = socket(AF_UNIX)
    try:
        connection.settimeout(timeout)
        connection.connect(path)
        connection.sendall(head.encode() + body)
        answer = read_all(connection)
    except OSError as error:
        raise Away(str(error)) from error
    finally:
        connection.close()
    return check(answer)


def read_all(connection: socket) -> bytes:
    parts = []
    while part := connection.recv(65536):
        parts.append(part)
    return b"".join(parts)


def check(answer: bytes) -> bytes:
    head, _, body = answer.partition(b"\r\n\r\n")
    words = head.split(b" ", 2)
    if len(words) < 2 or not words[1].isdigit() or words[1] >= b"500":
        raise Away("the daemon answered " + repr(head[:80]))
    if words[1] >= b"400":
        raise Refused("the daemon refused: " + body.decode("utf-8", "replace")[:500])
    return body


def spool(directory: str, program: str, message: Message) -> None:
    """A file appears whole or not at all, and its name sorts by time."""
    name = f"{time.time_ns():020d}-{message['id']}.json"
    hidden = os.path.join(directory, "." + name)
    descriptor = os.open(hidden, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    with os.fdopen(descriptor, "wb") as file:
        file.write(encode({**message, "program": program}))
        file.flush()
        os.fsync(file.fileno())
    os.rename(hidden, os.path.join(directory, name))


def prolog(settings: Settings, environ: dict[str, str]) -> int:
    """Return when the job's nodes have registered; then the site's own prolog has its turn.

    With a rebuild job it is the other way round: Slurm puts a job back whose prolog fails, and its
    nodes would be rebuilt each time.
    """
    theirs, partition = settings.get("prolog"), environ.get("SLURM_JOB_PARTITION", "")
    if theirs and partition and partition in settings.get("rebuilds", "").split(","):
        status = os.spawnve(os.P_WAIT, theirs, [theirs], environ)
        if status:
            job = environ.get("SLURM_JOB_ID")
            return complain(f"prolog: job {job} put back: {theirs} ended with {status}", 1)
        theirs = None
    message: Message = {
        "job": environ.get("SLURM_JOB_ID"),
        "name": environ.get("SLURM_JOB_NAME"),
        "nodes": environ.get("SLURM_JOB_NODELIST"),
        "partition": environ.get("SLURM_JOB_PARTITION") or None,
        "uid": environ.get("SLURM_JOB_UID"),
    }
    needed = is_needed(settings, partition)
    if message["job"] and concerns(settings, environ.get("SLURM_JOB_NODELIST", "")):
        patience = float(settings["wait_s"]) if needed else AWAY_S
        if not wait_for_nodes(settings, message, patience) and needed:
            text = f"{needed}, and the daemon is away or refused"
            return complain(f"prolog: job {message['job']} put back: {text}", 1)
    if theirs:
        os.execve(theirs, [theirs], environ)
    return 0


def is_needed(settings: Settings, partition: str) -> str:
    """Why a job of this partition must not start without the daemon; empty if it may."""
    if not partition:
        return ""
    if partition in settings.get("fresh", "").split(","):
        return "its nodes may be used ones"
    if partition in settings.get("rebuilds", "").split(","):
        return "only the daemon rebuilds its nodes"
    return ""


def concerns(settings: Settings, nodes: str) -> bool:
    """Whether a node of ours may be among them: else nobody has to be asked, or to be there."""
    heads = settings.get("heads", "").split(",")
    return bool(nodes) and any(head in nodes for head in heads)


def wait_for_nodes(settings: Settings, message: Message, patience: float) -> bool:
    """Wait in the daemon. If it is away for long, let Slurm launch by itself.

    A job that needs the daemon waits longer. It is asked at least once, however long this
    machine stood still before.
    """
    away_since = time.monotonic()
    while True:
        connected_at = time.monotonic()
        try:
            post(settings["socket"], "prolog", message, float(settings["wait_s"]))
            return True
        except Refused as error:
            complain(f"prolog: {error}", 0)
            return False
        except Away:
            if time.monotonic() - connected_at > 1:
                away_since = time.monotonic()
            if time.monotonic() - away_since >= patience:
                return False
            time.sleep(0.2)


if __name__ == "__main__":
    sys.exit(main(sys.argv, dict(os.environ)))
