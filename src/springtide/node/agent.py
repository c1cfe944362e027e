"""What a node does to become a member of its cluster: `agent boot | refresh | report-failure WHY`.

User data fetches it from the daemon at every boot and runs `boot`; the health check runs `refresh`
now and then. slurmd starts last, when all else has succeeded. Who the node is, boot finds in its
environment, and the others in the file that it left.

Ansible runs `agent users` where nodes do not get these as they join; it gives it that part of a
welcome.
"""

import fcntl
import json
import os
import sys
import time
from contextlib import contextmanager
from functools import partial
from typing import Callable, Dict, Iterator, List, Sequence, Set, Tuple, Union

from springtide.node import accounts, entry, features, fit, given, slurm
from springtide.node.console import Early, Failed, Later, Patience, Unfit, Waiting, say
from springtide.node.daemon import KEY, Away, Daemon, Refused
from springtide.node.given import Json
from springtide.node.system import read, replace_file

Step = Callable[[Json], None]

LOCK = "/var/lib/springtide/lock"
PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
APPLY: Dict[str, Step] = {
    "certificates": features.apply_certificates,
    "time": features.apply_time,
    "names": features.apply_names,
    "munge": slurm.apply_munge,
    "mounts": features.apply_mounts,
    "users": accounts.apply_users,
    "ssh": features.apply_ssh,
    "ansible": features.apply_ansible,
    "health": slurm.apply_health,
    "slurmd": slurm.apply_slurmd,
    "entry": entry.apply_entry,
}
AWAITED = ("ssh",)
"""Somebody waits for these: Ansible logs in as soon as they are done."""
REFRESH: Dict[str, Step] = {
    "certificates": features.apply_certificates,
    "time": features.apply_time,
    "names": features.apply_names,
    "mounts": features.refresh_mounts,
    "users": accounts.apply_users,
}
TOLD = "/run/springtide/refresh"
"""What the daemon was last told of refreshes."""
LAST_REPORTS = 5
WAIT_S = 30.0
"""What is waited for so long is told as a failure: somebody may have to do something."""
USAGE = "usage: agent boot | refresh | report-failure WHY | users"


def main(arguments: Sequence[str]) -> int:
    """Whatever is started from here sees no token."""
    token = os.environ.pop("TIDE_TOKEN", "")
    os.environ.update(PATH=PATH, HOME="/root", LC_ALL="C")
    os.umask(0o022)
    command = " ".join(arguments[:1])
    try:
        if command == "boot":
            with locked(wait=True):
                return boot(parse_environment(dict(os.environ)), token)
        if command in ("refresh", "report-failure"):
            return later(command, arguments[1:], parse_key(read(KEY)))
        if command == "users":
            return have_users(sys.stdin.read())
    except (Away, Failed, Refused, OSError) as error:
        say(str(error))
        return 1
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        say(f"the welcome of the daemon is not as agreed: {error!r}")
        return 1
    print(USAGE, file=sys.stderr)
    return 2


# --- who it is -----------------------------------------------------------------------------------


def parse_environment(environment: Dict[str, str]) -> Daemon:
    who = {
        "cluster": given.word(environment.get("TIDE_CLUSTER"), given.NAME),
        "node": given.word(environment.get("TIDE_NODE"), given.NAME),
        "generation": int(given.word(environment.get("TIDE_GENERATION"), "[0-9]{1,9}")),
    }
    address = given.word(environment.get("TIDE_CONTROL"), given.SERVER)
    return Daemon(who, address, given.word(environment.get("TIDE_PIN"), "[0-9a-f]{64}"))


def parse_key(text: str) -> Daemon:
    try:
        kept = json.loads(text)
        who = {name: kept[name] for name in ("cluster", "node", "generation")}
        return Daemon(who, kept["control"], kept["pin"], kept["key"])
    except (ValueError, KeyError, TypeError):
        raise Failed(f"this machine has not joined a cluster: {KEY} has no key") from None


# --- boot ----------------------------------------------------------------------------------------


def boot(daemon: Daemon, token: str) -> int:
    """If it ends before the node is complete, nobody tries again; that is told."""
    try:
        become_member(daemon, token)
    except Refused as error:
        say(str(error))
    except (Failed, OSError) as error:
        give_up(daemon, str(error))
    except Exception as error:
        give_up(daemon, f"the agent has failed: {error!r}")
    else:
        return 0
    return 1


def give_up(daemon: Daemon, why: str) -> None:
    say(why)
    try:
        finish(daemon, why)
    except Refused as error:
        say(f"could not report: {error}")


def become_member(daemon: Daemon, token: str) -> None:
    began = time.monotonic()
    daemon.key = kept_key(daemon)
    daemon.note("started", float(read("/proc/uptime").split()[0]))
    slurm.hold_back()
    features.name_host(daemon.who["node"])
    features.make_host_keys()
    welcome = admitted(daemon, token)
    entry.hold_back(welcome)
    for name, steps in steps_of(daemon, welcome):
        welcome = achieve(daemon, name, steps, welcome, began)
        began = time.monotonic()
    finish(daemon)


def kept_key(daemon: Daemon) -> str:
    """Of an earlier boot of the same instance: its token is used."""
    try:
        earlier = parse_key(read(KEY))
    except Failed:
        return ""
    return earlier.key if earlier.who == daemon.who else ""


def admitted(daemon: Daemon, token: str) -> Json:
    """The token is worthless once the key for it was used. So that comes before all else: later,
    somebody else may be on this machine."""
    first = ""
    if daemon.key:
        try:
            return answered(daemon.refresh)
        except Refused as error:
            say(f"the key of an earlier boot is not taken: {error}")
            daemon.key, first = "", f"{error}; "
    try:
        welcome = answered(partial(daemon.join, token))
    except Refused as error:
        raise Refused(f"this machine may not join: {first}{error}") from None
    answered(daemon.use_key)
    return welcome


def answered(ask: Callable[[], Json]) -> Json:
    patience = Patience()
    while True:
        try:
            return ask()
        except Away as error:  # noqa: PERF203 - this is what it waits for
            patience.wait(f"waiting for the control host: {error}")


def steps_of(daemon: Daemon, welcome: Json) -> List[Tuple[str, List[Step]]]:
    """The phases to come, each with what is done in it; the clock is looked at as soon as it may
    be right."""
    wanted = [given.word(name, "[a-z]{1,40}") for name in welcome["features"]]
    unknown = [name for name in wanted if name not in APPLY]
    if unknown:
        names = ", ".join(unknown)
        raise Failed(f"this agent knows nothing of {names}: it is too old")
    clock = partial(fit.check_clock, refresh=daemon.refresh)
    first: List[Step] = [fit.check_machine, *([] if "time" in wanted else [clock])]
    later = [(name, [APPLY[name]] + [clock] * (name == "time")) for name in wanted]
    return [("joined", first), *later]


def achieve(daemon: Daemon, name: str, steps: Sequence[Step], welcome: Json, began: float) -> Json:
    """Do it until it is done; with the newest welcome, since that may be what was wrong."""
    patience, since, noted = Patience(), time.monotonic(), ""
    told: Set[str] = set()
    while True:
        error = tried(steps, welcome)
        if error is None:
            daemon.note(name, time.monotonic() - began)
            daemon.report(at_once=name in AWAITED)
            return welcome
        if isinstance(error, Early):
            patience.wait(f"waiting: {error}")
            welcome = newest(daemon, welcome)
            continue
        why, before = str(error), noted
        if why != before:
            noted = why
            daemon.note(name, time.monotonic() - began, why)
        if why not in told and (isinstance(error, Failed) or time.monotonic() >= since + WAIT_S):
            if daemon.report(why, isinstance(error, Unfit)):
                told.add(why)
        elif why != before:
            daemon.report()
        patience.wait(f"trying again until {name} succeeds")
        welcome = newest(daemon, welcome)


def tried(steps: Sequence[Step], welcome: Json) -> Union[Failed, Waiting, None]:
    """Why it is not done, if it is not: has somebody to do something, or only to wait?"""
    try:
        for step in steps:
            step(welcome)
    except (Failed, Waiting) as error:
        return error
    except Away as error:
        return Waiting(str(error))
    except (Refused, OSError) as error:
        return Failed(str(error))
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        return Failed(f"the welcome of the daemon is not as agreed: {error!r}")
    return None


def newest(daemon: Daemon, welcome: Json) -> Json:
    """Who is refused now is not the node any more."""
    try:
        return daemon.refresh()
    except (Away, Failed):
        return welcome


def finish(daemon: Daemon, failed: str = "") -> None:
    """The boot is over; that nobody hears of it must not keep it."""
    patience = Patience()
    for _ in range(LAST_REPORTS):
        if daemon.report(failed, final=bool(failed)):
            return
        patience.wait("trying to report again")


# --- later ---------------------------------------------------------------------------------------


def later(command: str, words: Sequence[str], daemon: Daemon) -> int:
    if command == "report-failure":
        return tell(daemon, words)
    with locked(wait=False) as is_ours:
        return refresh(daemon) if is_ours else 0


def refresh(daemon: Daemon) -> int:
    """What may have changed since; quiet if nothing has."""
    began = time.monotonic()
    welcome = daemon.refresh([*REFRESH, *fit.LAST])
    wanted = [name for name in REFRESH if name in welcome["features"]]
    tries = [(name, tried([REFRESH[name]], welcome)) for name in wanted]
    troubles = [f"{name}: {error}" for name, error in tries if error]
    for text in troubles:
        say(text)
    fit.note_skew(welcome["ahead"], fit.allowed_s(welcome))
    tell_once(daemon, time.monotonic() - began, " ".join("; ".join(troubles).split()))
    return 1 if any(error and not isinstance(error, Later) for _, error in tries) else 0


def tell_once(daemon: Daemon, took_s: float, troubles: str) -> None:
    """What is wrong, or that it is right again; not each time while it is the same."""
    if troubles == read(TOLD):
        return
    daemon.note("refresh", took_s, troubles)
    if daemon.report():
        replace_file(TOLD, troubles, 0o600)


def tell(daemon: Daemon, words: Sequence[str]) -> int:
    why = " ".join(words) or "no reason was given"
    say(why)
    return 0 if daemon.report(why) else 1


def have_users(text: str) -> int:
    """As Ansible hears it: why it failed is no part of what was done."""
    try:
        accounts.apply_users({"users": json.loads(text)})
    except (Failed, Waiting, OSError) as error:
        print(error, file=sys.stderr)
        return 1
    except (KeyError, TypeError, ValueError) as error:
        print(repr(error), file=sys.stderr)
        return 1
    return 0


@contextmanager
def locked(wait: bool) -> Iterator[bool]:
    """One at a time; a boot has precedence. Whether it is this one's turn.

    The directory is open to all, for munge's socket may be in it; the lock is root's alone.
    """
    os.makedirs(os.path.dirname(LOCK), exist_ok=True)
    with os.fdopen(os.open(LOCK, os.O_RDWR | os.O_CREAT, 0o600), "r+") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | (0 if wait else fcntl.LOCK_NB))
        except BlockingIOError:
            yield False
        else:
            yield True
