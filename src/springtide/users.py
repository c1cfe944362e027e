"""People of a cluster: names, ids and keys, and what they look like in files. Pure.

The roster of the daemon keeps them; the command checks keys with it before it sends them. Who gets
which id is in `ids`.
"""

import base64
import binascii
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from hashlib import sha256
from typing import Any

LEAST = 1000
"""Ids below are the system's, and differ from image to image."""
NO_LOGIN = frozenset(
    f"{place}/{name}"
    for place in ("/usr/sbin", "/sbin", "/usr/bin", "/bin")
    for name in ("nologin", "false")
)
"""Shells of services, whatever their id."""
MOST = 2**31
"""Some programs count no further."""
MAX_KEYS = 64
MAX_KEY = 16_384
NO_PASSWORD = "*"  # noqa: S105 - nobody can log in by it; `!` would lock keys out as well
KEY_TYPES = {
    "ssh-ed25519": 2,
    "ssh-rsa": 3,
    "ecdsa-sha2-nistp256": 3,
    "ecdsa-sha2-nistp384": 3,
    "ecdsa-sha2-nistp521": 3,
    "sk-ssh-ed25519@openssh.com": 3,
    "sk-ecdsa-sha2-nistp256@openssh.com": 4,
}
"""With how many fields a key has, of which its type is the first."""
_NAME = re.compile(r"[a-z_][a-z0-9_-]{0,30}")
_SHELL = re.compile(r"/[A-Za-z0-9._+/-]{1,199}")
_MAX_GECOS = 200
_HOME = re.compile(r"/[^\x00-\x20\x7f\"'\\:]{1,199}")
_GROUP = re.compile(r"[a-z_][a-z0-9_.-]{0,31}\$?")
NO_SHELL = "/bin/sh"
"""What an account has that names none."""


class UserError(Exception):
    """Why somebody cannot be added or removed, in words for people."""


class NotAllowed(UserError):
    """Only root may."""


@dataclass(frozen=True, slots=True)
class Group:
    """A Unix group of the cluster."""

    name: str
    gid: int


@dataclass(frozen=True, slots=True)
class User:
    """Somebody who has, or had, an account on every node."""

    name: str
    uid: int
    gid: int
    gecos: str
    home: str
    shell: str
    groups: tuple[str, ...] = ()
    """Beyond their own."""
    keys: tuple[str, ...] = ()
    made: bool = True
    """Whether we made the account on the control host; False if it was there."""
    created_at: float = 0.0
    removed_at: float | None = None

    @property
    def present(self) -> bool:
        return self.removed_at is None


@dataclass(frozen=True, slots=True)
class Wish:
    """What was asked for a user; None is whatever fits."""

    name: str
    uid: int | None = None
    gid: int | None = None
    gecos: str | None = None
    shell: str | None = None
    groups: tuple[str, ...] = ()
    keys: tuple[str, ...] = ()
    gone_keys: tuple[str, ...] = ()
    """Fingerprints of those to be taken back."""


@dataclass(frozen=True, slots=True)
class Account:
    """One that the control host knows."""

    uid: int
    gid: int
    gecos: str
    home: str
    shell: str


@dataclass(frozen=True, slots=True)
class Host:
    """Accounts and groups of the control host, by name."""

    users: Mapping[str, Account]
    groups: Mapping[str, int]


# --- what people write -----------------------------------------------------------------


def parse_name(text: str, what: str = "user") -> str:
    if not _NAME.fullmatch(text):
        raise UserError(
            f"{text[:40]!r} is no name of a {what}: write at most 31 small letters, digits, _ and "
            "-, beginning with a letter or _"
        )
    return text


def parse_id(number: int, what: str) -> int:
    if not LEAST <= number <= MOST:
        raise UserError(f"{what} is a number from {LEAST} to {MOST}, not {number}")
    return number


def parse_gecos(text: str) -> str:
    if len(text) > _MAX_GECOS or not text.isprintable() or ":" in text:
        raise UserError(
            f"gecos is a text of at most {_MAX_GECOS} characters on one line, without colons"
        )
    return text


def parse_shell(text: str) -> str:
    if not _SHELL.fullmatch(text) or ".." in text.split("/"):
        raise UserError(f"shell is the path of a program such as /bin/bash, not {text[:40]!r}")
    return text


def parse_keys(text: str, origin: str = "the key") -> tuple[str, ...]:
    """The public keys of a file, one a line as ssh has them; each once."""
    if "PRIVATE KEY" in text or text.startswith("PuTTY-User-Key-File"):
        raise UserError(f"{origin} is a private key, which nobody else may have: give its .pub")
    lines = (line.strip() for line in text.splitlines())
    found = tuple(dict.fromkeys(_key(line, origin) for line in lines if line and line[0] != "#"))
    if not found:
        raise UserError(f"{origin} has no public key in it")
    if len(found) > MAX_KEYS:
        raise UserError(f"{origin} has {len(found)} keys; at most {MAX_KEYS} are taken")
    return found


def _key(line: str, origin: str) -> str:
    """`TYPE BASE64 COMMENT`: the type is said within as well, and both must agree."""
    kind, _, rest = line.partition(" ")
    body, _, comment = rest.strip().partition(" ")
    if not _is_whole(kind, body) or len(line) > MAX_KEY:
        shown = kind[:40] if kind.isprintable() else "…"
        raise UserError(
            f"{origin} has a line that is no public key ({shown!r} …): write a key's type, its "
            f"text and a comment, as in a .pub file; types are {', '.join(KEY_TYPES)}"
        )
    comment = "".join(sign for sign in comment if sign.isprintable())
    return f"{kind} {body} {comment}".strip()


def _is_whole(kind: str, body: str) -> bool:
    """Not if it was cut off when somebody copied it: nobody could log in by that."""
    try:
        raw = base64.b64decode(body, validate=True)
    except (binascii.Error, ValueError):
        return False
    fields = []
    while raw:
        end = 4 + int.from_bytes(raw[:4], "big")
        if len(raw) < end:
            return False
        fields.append(raw[4:end])
        raw = raw[end:]
    return len(fields) == KEY_TYPES.get(kind) and fields[0] == kind.encode() and all(fields)


def fingerprint(key: str) -> str:
    """As `ssh-keygen -l` tells it."""
    raw = base64.b64decode(key.split(" ")[1])
    return "SHA256:" + base64.b64encode(sha256(raw).digest()).decode().rstrip("=")


def parse_fingerprint(text: str) -> str:
    if not re.fullmatch(r"SHA256:[A-Za-z0-9+/]{43}", text):
        raise UserError(f"{text[:60]!r} is no fingerprint such as `ssh-keygen -l` prints: SHA256:…")
    return text


# --- accounts of the control host ----------------------------------------------------------


def fit(name: str, here: Account) -> Account:
    """One that was there, as nodes can have it: they refuse all users if one is odd."""
    if here.gid < 1:
        raise UserError(_unfit(name, f"the group of root (gid {here.gid})", "usermod -g"))
    if not _HOME.fullmatch(here.home) or ".." in here.home.split("/"):
        raise UserError(_unfit(name, f"the home {here.home[:60]!r}", "usermod -d"))
    shell = parse_shell(here.shell or NO_SHELL)
    text = "".join(sign for sign in here.gecos if sign.isprintable() and sign != ":")
    return Account(here.uid, here.gid, text[:_MAX_GECOS], here.home, shell)


def fit_group(user: str, group: Group) -> Group:
    """A directory service may have names that no file of groups takes."""
    if not _GROUP.fullmatch(group.name):
        raise UserError(_unfit(user, f"the group {group.name[:60]!r}", "usermod -g"))
    return group


def _unfit(name: str, what: str, program: str) -> str:
    return (
        f"{name} has {what} on the control host, which nodes cannot have: change it there "
        f"({program}), or add another name"
    )


# --- files, and what nodes are told ------------------------------------------------------


def render_passwd(users: Iterable[User]) -> str:
    return "".join(
        f"{one.name}:x:{one.uid}:{one.gid}:{one.gecos}:{one.home}:{one.shell}\n" for one in users
    )


def render_group(users: Sequence[User], groups: Iterable[Group]) -> str:
    """Groups that somebody is in."""
    return "".join(
        f"{group.name}:x:{group.gid}:{','.join(members)}\n"
        for group, members in _inhabited(users, groups)
    )


def render_shadow(users: Iterable[User]) -> str:
    """Nobody has a password."""
    return "".join(f"{one.name}:{NO_PASSWORD}:::::::\n" for one in users)


def listed(users: Sequence[User], groups: Iterable[Group], sssd: str = "") -> dict[str, Any]:
    """The part `users` of what a node is told when it joins."""
    shown = ("name", "uid", "gid", "gecos", "home", "shell")
    return {
        "users": [{key: getattr(user, key) for key in shown} for user in users],
        "groups": [
            {"name": group.name, "gid": group.gid, "members": members}
            for group, members in _inhabited(users, groups)
        ],
        "sssd": sssd,
    }


def _inhabited(users: Sequence[User], groups: Iterable[Group]) -> list[tuple[Group, list[str]]]:
    gids = {user.gid for user in users}
    found = [(group, [u.name for u in users if group.name in u.groups]) for group in groups]
    return [(group, members) for group, members in found if members or group.gid in gids]


def changes(before: User, after: User) -> list[str]:
    """What became other of somebody, in words."""
    added = [key for key in after.keys if key not in before.keys]
    gone = [key for key in before.keys if key not in after.keys]
    groups = [name for name in after.groups if name not in before.groups]
    return [
        *(f"key {fingerprint(key)} added" for key in added),
        *(f"key {fingerprint(key)} taken back" for key in gone),
        *(f"group {name} added" for name in groups),
        *([f"shell {after.shell}"] if after.shell != before.shell else []),
        *([f"name {after.gecos!r}"] if after.gecos != before.gecos else []),
    ]
