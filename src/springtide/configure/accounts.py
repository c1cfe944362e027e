"""Accounts of the control host: looked at, made and removed by the programs that it has for that.

The roster calls it. An account that was there before us is used as it is. In a control container
nothing is made: its root is read-only, and it reads the cluster's own files of users.
"""

import grp
import os
import pwd
import subprocess
from collections.abc import Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from springtide.users import NO_PASSWORD, Account, Group, Host, User, UserError

LIMIT_S = 30.0
"""Other programs may have locked the files for a while."""
ROOT = Path("/")


@dataclass(frozen=True, slots=True)
class Accounts:
    """Of the machine whose root is `root`."""

    changes: bool = False
    """Whether accounts are made and removed; otherwise they are only looked at."""
    root: Path = ROOT

    def read(self, name: str) -> Host:
        """Everybody, and `name` also if a directory service tells only of whom it is asked."""
        people = pwd.getpwall() if self.root == ROOT else list(_passwd(self.root))
        groups = grp.getgrall() if self.root == ROOT else list(_group(self.root))
        if self.root == ROOT:
            with suppress(KeyError):
                people.append(pwd.getpwnam(name))
        return _host(people, groups)

    def ask(self, user: User, groups: Iterable[Group]) -> Host:
        """Who has these ids and names: a directory service may tell of nobody unasked."""
        if self.root != ROOT:
            return Host({}, {})
        people, found = list[pwd.struct_passwd](), list[grp.struct_group]()
        with suppress(KeyError):
            people.append(pwd.getpwuid(user.uid))
        for gid in (user.gid, user.uid, *(group.gid for group in groups)):
            with suppress(KeyError):
                found.append(grp.getgrgid(gid))
        for group in groups:
            with suppress(KeyError):
                found.append(grp.getgrnam(group.name))
        return _host(people, found)

    def make(self, user: User, groups: Iterable[Group]) -> None:
        """The account with its groups; of one that was there before us only groups change."""
        if not self.changes:
            return
        host = self.read(user.name)
        for group in groups:
            if group.name not in host.groups:
                self._run("groupadd", "--gid", str(group.gid), group.name)
        if user.made:
            self._make_own(user, host.users.get(user.name))
        if user.groups:
            self._run("usermod", "--append", "--groups", ",".join(user.groups), user.name)

    def _make_own(self, user: User, here: Account | None) -> None:
        if here is None:
            self._run("useradd", *_words(user), user.name)
        elif (here.gecos, here.shell) != (user.gecos, user.shell):
            about = ["--comment", user.gecos, "--shell", user.shell]
            self._run("usermod", *about, user.name)

    def remove(self, user: User) -> None:
        """The account that we made, and the group of its name; never the home."""
        here = self.read(user.name).users.get(user.name)
        if not self.changes or not user.made or here is None or here.uid != user.uid:
            return
        self._run("userdel", user.name)
        host = self.read(user.name)
        others = any(one.gid == user.gid for one in host.users.values())
        if host.groups.get(user.name) == user.gid and not others:
            self._run("groupdel", user.name)

    def _run(self, program: str, *words: str) -> None:
        prefix = () if self.root == ROOT else ("--prefix", str(self.root))
        path = f"{os.environ.get('PATH', os.defpath)}:/usr/sbin:/sbin"
        try:
            done = subprocess.run(
                [program, *prefix, *words],
                env={"PATH": path, "LC_ALL": "C.UTF-8"},
                stdin=subprocess.DEVNULL,
                capture_output=True,
                text=True,
                timeout=LIMIT_S,
                check=False,
            )
        except (OSError, subprocess.TimeoutExpired) as error:
            raise UserError(f"{program} did not work on the control host: {error}") from error
        if done.returncode:
            said = " ".join(done.stderr.split())[:300]
            raise UserError(f"{program} failed on the control host, for {words[-1]}: {said}")


def _host(people: Iterable[pwd.struct_passwd], groups: Iterable[grp.struct_group]) -> Host:
    return Host(
        {
            one.pw_name: Account(one.pw_uid, one.pw_gid, one.pw_gecos, one.pw_dir, one.pw_shell)
            for one in people
        },
        {one.gr_name: one.gr_gid for one in groups},
    )


def _words(user: User) -> list[str]:
    ids = ["--uid", str(user.uid), "--gid", str(user.gid), "--no-user-group"]
    about = ["--comment", user.gecos, "--home-dir", user.home, "--shell", user.shell]
    return [*ids, *about, "--no-create-home", "--password", NO_PASSWORD]


# Files of another root, which this machine's functions do not read


def _passwd(root: Path) -> Iterator[pwd.struct_passwd]:
    for fields in _lines(root / "etc" / "passwd"):
        name, password, uid, gid, *rest = fields
        yield pwd.struct_passwd((name, password, int(uid), int(gid), *rest))


def _group(root: Path) -> Iterator[grp.struct_group]:
    for name, password, gid, members in _lines(root / "etc" / "group"):
        yield grp.struct_group((name, password, int(gid), members.split(",")))


def _lines(path: Path) -> Iterator[list[str]]:
    for line in path.read_text().splitlines():
        yield line.split(":")
