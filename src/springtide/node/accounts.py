"""People of the cluster in the node's own files; the system's users and groups stay as they are,
but for members of the cluster that a group of the system gets.

What is ours is kept beside, so that those who left the cluster leave the node.
"""

import fcntl
import json
import os
from contextlib import contextmanager
from typing import IO, Callable, Dict, Iterator, List, Sequence, Set, Tuple

from springtide.node import given
from springtide.node.console import Failed, Waiting, holds_within
from springtide.node.given import Json
from springtide.node.system import has_systemd, pids_of, read, replace_file, restart, run

OURS = "/var/lib/springtide/users"
SSSD = "/etc/sssd/sssd.conf"
LOCK, LOCK_S = "/etc/.pwd.lock", 15.0
Merged = Tuple[List[str], List[str]]
Members = Dict[str, List[str]]
"""Of groups, by name."""


def apply_users(welcome: Json) -> None:
    part = welcome["users"]
    if part.get("sssd"):
        _start_sssd(given.text(part["sssd"]))
    users = [render_user(one) for one in part["users"]]
    groups = [render_group(one) for one in part["groups"]]
    with _locked():
        _merge_all(users, groups)


def render_user(one: Json) -> str:
    name, gecos = given.word(one["name"], given.ACCOUNT), given.field(one["gecos"])
    ids = [str(given.id(one[key])) for key in ("uid", "gid")]
    return ":".join([name, "x", *ids, gecos, _place(one["home"]), _place(one["shell"])])


def _place(value: object) -> str:
    return given.field(given.path(value))


def render_group(one: Json) -> str:
    members = ",".join(given.word(member, given.ACCOUNT) for member in one["members"])
    name = given.word(one["name"], given.ACCOUNT)
    return "{}:x:{}:{}".format(name, given.id(one["gid"]), members)


def merge(lines: Sequence[str], before: Set[str], wanted: Sequence[str], what: str) -> Merged:
    """The lines that stay, and those to add; what is the system's own is not touched."""
    _check_distinct(wanted, what)
    kept = [line for line in lines if line.split(":")[0] not in before]
    names = {line.split(":")[0]: line for line in kept}
    ids = {line.split(":")[2]: line for line in kept if line.count(":") > 2}
    added = []
    for line in wanted:
        name, _, number = line.split(":")[:3]
        known = names.get(name) or ids.get(number)
        if known is None:
            added.append(line)
        elif known.split(":")[0] != name or known.split(":")[2] != number:
            raise Failed(
                f"the image has a {what} of its own, {_short(known)}, and the cluster has "
                f"{_short(line)}: remove the image's, or give the cluster's another name or id"
            )
    return kept, added


def _check_distinct(wanted: Sequence[str], what: str) -> None:
    """Of two with one id, the second would own what is the first's."""
    seen: Dict[str, str] = {}
    for line in wanted:
        name, _, number = line.split(":")[:3]
        other = seen.get("name " + name) or seen.get(number)
        if other:
            raise Failed(
                f"the cluster has two {what}s with one name or id, {_short(other)} and "
                f"{_short(line)}: give one of them another"
            )
        seen.update({"name " + name: line, number: line})


def without(lines: Sequence[str], members: Members) -> List[str]:
    """The groups as they are without them."""
    return [_changed(line, lambda name, has: _less(has, members.get(name, ()))) for line in lines]


def including(lines: Sequence[str], wanted: Sequence[str]) -> Tuple[List[str], Members]:
    """The groups with the members that they are to have, and who of these is new there."""
    asked = {line.split(":")[0]: _members(line) for line in wanted}
    added = {
        name: _less(asked[name], _members(line))
        for line in lines
        for name in [line.split(":")[0]]
        if name in asked
    }
    full = [_changed(line, lambda name, has: has + added.get(name, [])) for line in lines]
    return full, {name: fresh for name, fresh in added.items() if fresh}


def _changed(line: str, change: Callable[[str, List[str]], List[str]]) -> str:
    """A line that is as it is to be stays, to the last character."""
    head, _, _ = line.rpartition(":")
    has = _members(line)
    then = change(line.split(":")[0], has)
    return line if then == has else "{}:{}".format(head, ",".join(then))


def _members(line: str) -> List[str]:
    return [name for name in line.split(":")[3].split(",") if name] if line.count(":") > 2 else []


def _less(names: Sequence[str], others: Sequence[str]) -> List[str]:
    return [name for name in names if name not in others]


def _short(line: str) -> str:
    name, _, number = line.split(":")[:3]
    return f"{name} ({number})"


def _merge_all(users: Sequence[str], groups: Sequence[str]) -> None:
    """Who is ours is on disk before the lines are, and for as long as they are."""
    before: Json = json.loads(read(OURS) or "{}")
    members: Members = before.get("members", {})
    ours = (set(before.get("users", ())), set(before.get("groups", ())))
    passwd = merge(read("/etc/passwd").splitlines(), ours[0], users, "user")
    group = merge(without(read("/etc/group").splitlines(), members), ours[1], groups, "group")
    theirs, added = including(group[0], groups)
    now = (_names(passwd[1]), _names(group[1]))
    _keep(ours[0] | now[0], ours[1] | now[1], _either(members, added))
    _write("/etc/group", theirs + group[1], 0o644)
    _write("/etc/shadow", _shadow(ours[0], now[0]), 0o640)
    _write("/etc/passwd", passwd[0] + passwd[1], 0o644)
    _keep(now[0], now[1], added)


def _either(one: Members, other: Members) -> Members:
    return {name: sorted({*one.get(name, ()), *other.get(name, ())}) for name in {**one, **other}}


def _names(lines: Sequence[str]) -> Set[str]:
    return {line.split(":")[0] for line in lines}


def _shadow(before: Set[str], now: Set[str]) -> List[str]:
    """No password is right; a key is."""
    gone = before | now
    kept = [line for line in read("/etc/shadow").splitlines() if line.split(":")[0] not in gone]
    return kept + [f"{name}:*:::::::" for name in sorted(now)]


def _write(path: str, lines: Sequence[str], mode: int) -> None:
    """With the mode it has: systems differ in who reads shadow."""
    text = "".join(line + "\n" for line in lines)
    if text == read(path):
        return
    known = os.stat(path) if os.path.exists(path) else None
    replace_file(path, text, known.st_mode & 0o777 if known else mode)
    if known:
        os.chown(path, known.st_uid, known.st_gid)


def _keep(users: Set[str], groups: Set[str], members: Members) -> None:
    names = {"users": sorted(users), "groups": sorted(groups), "members": members}
    replace_file(OURS, json.dumps(names, sort_keys=True) + "\n", 0o600)


@contextmanager
def _locked() -> Iterator[None]:
    """As passwd and useradd lock these files; not waiting for long, for what holds it may hang.

    Whoever may read the file could lock it as well.
    """
    with os.fdopen(os.open(LOCK, os.O_WRONLY | os.O_CREAT, 0o600), "w") as file:
        if not holds_within(LOCK_S, lambda: _is_ours(file)):
            raise Waiting(
                f"another program has locked the users of this node for {LOCK_S:g} s: "
                f"end what holds {LOCK}, such as vipw or useradd"
            )
        yield


def _is_ours(file: IO[str]) -> bool:
    try:
        fcntl.lockf(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except (BlockingIOError, PermissionError):
        return False
    return True


def _start_sssd(text: str) -> None:
    changed = replace_file(SSSD, text, 0o600)
    if pids_of("sssd") and not changed:
        return
    if not restart("sssd") and not has_systemd():
        run(["sssd", "-D"])
    if not holds_within(30, lambda: bool(pids_of("sssd"))):
        raise Waiting("sssd does not run: is it in the image, and what does its log say?")
