"""Errors that say which file they are about, for the person who has to make room or give rights."""

import errno
import os
import pwd
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


@contextmanager
def naming(path: Path) -> Iterator[None]:
    """The system names a file that it cannot open, but not one that it cannot write to."""
    try:
        yield
    except OSError as error:
        if error.filename is None:
            error.filename = os.fspath(path)
        raise


def closed_to(user: str, path: Path) -> Path | None:
    """The outermost directory above a file that keeps a user out of it."""
    entry = owner(user, path)
    groups = os.getgrouplist(user, entry.pw_gid)
    for parent in reversed(path.parents) if entry.pw_uid else ():
        info = parent.stat()
        bit = 0o100 if info.st_uid == entry.pw_uid else 0o010 if info.st_gid in groups else 0o001
        if not info.st_mode & bit:
            return parent
    return None


def owner(user: str, path: Path) -> pwd.struct_passwd:
    """The account that a file is for."""
    try:
        return pwd.getpwnam(user)
    except KeyError:
        what = f"there is no user {user}; install the package that makes it, or make it"
        raise FileNotFoundError(errno.ENOENT, what, os.fspath(path)) from None
