"""Names of nodes in a hosts file of the control host, for a batch system that looks there.

The file is the site's. A part of it between two lines of ours has the nodes of one cluster; all
else stays as it is, byte for byte. Our part comes first: so nothing depends on how the file ends.
"""

import errno
import fcntl
import os
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path

from springtide.file_errors import naming
from springtide.ports import Site, Unavailable

TRIES = 5
"""Somebody may be writing the file as we do."""
LOCK_S = 15.0
PAUSE_S = 0.05


class HostsBlock:
    """The part of one cluster; does nothing without a file."""

    def __init__(
        self,
        file: Path | None,
        cluster: str,
        always: Mapping[str, str] | None = None,
        note: Path | None = None,
        planned: Callable[[Site], Mapping[str, str]] = lambda site: {},
    ) -> None:
        """`always` are names that are there as long as it serves, with addresses for those of them
        that never had another; `planned` are addresses that some of them will have. `note` is where
        it is kept which file has our part, for the cluster file may name another by and by."""
        self._file = file
        self._cluster = cluster
        self._always = always or {}
        self._note = note
        self._planned = planned

    def serve(self, site: Site, addresses: Mapping[str, str] | None) -> None:
        """These names and no others; None is for those of before."""
        if addresses is None:
            require(self._file)
            return
        self._leave_former()
        if self._file is not None:
            self._remember(self._file)
            self._have(self._file, self._named(self._file, addresses, self._planned(site)))

    def stop(self, for_good: bool = True) -> None:
        """Names that are always there go only for good. Of a file that is not there nothing has
        to go."""
        self._leave_former()
        if self._file is not None and self._file.exists():
            self._have(self._file, {} if for_good else self._named(self._file))

    def _named(self, file: Path, *known: Mapping[str, str]) -> dict[str, str]:
        """Names that are always there keep the address that they had last: a batch system may
        resolve them at any time, and believe for long what it was told. No two share one."""
        with suppress(OSError):
            former = parse(file.read_bytes(), self._cluster)
            known = (*known, {n: at for n, at in former.items() if self._is_former(n, at)})
        named = dict(known[0]) if known else {}
        for layer in (*known[1:], self._always):
            used = set(named.values())
            named |= {n: at for n, at in layer.items() if n not in named and at not in used}
        return named

    def _is_former(self, name: str, address: str) -> bool:
        return name in self._always and address not in self._always.values()

    def _leave_former(self) -> None:
        known = self._note.read_text() if self._note and self._note.exists() else ""
        former = Path(known) if known else None
        if former and former != self._file and former.exists():
            self._have(former, {})

    def _remember(self, file: Path) -> None:
        if self._note and not (self._note.exists() and self._note.read_text() == str(file)):
            self._note.parent.mkdir(parents=True, exist_ok=True)
            with naming(self._note):
                self._note.write_text(str(file))

    def _have(self, file: Path, addresses: Mapping[str, str]) -> None:
        try:
            change(file, self._cluster, addresses)
        except OSError as error:
            raise _useless(file, str(error.strerror)) from error


def require(file: Path | None) -> None:
    """Whether names of nodes could be kept in it, before any node is there. Raises Unavailable."""
    if file is None:
        return
    if not file.is_file():
        raise _useless(file, "it is no file" if file.exists() else os.strerror(errno.ENOENT))
    if not os.access(file, os.R_OK | os.W_OK):
        raise _useless(file, "it cannot be written")


def _useless(file: Path, why: str) -> Unavailable:
    return Unavailable(
        f"names of nodes are not in {file}: {why}; make it a file that root can write, or correct "
        "batch.hosts"
    )


def change(file: Path, cluster: str, addresses: Mapping[str, str]) -> bool:
    """Have the file name these nodes of the cluster; answers whether it had to be changed."""
    path = file.resolve()
    with _alone(path):
        for _ in range(TRIES):
            before = path.stat()
            text = path.read_bytes()
            wanted = render(text, cluster, addresses, str(file))
            if wanted == text:
                return False
            if _replaced(path, wanted, before):
                return True
    raise Unavailable(f"{file} is being written by somebody else all the time")


def render(text: bytes, cluster: str, addresses: Mapping[str, str], file: str) -> bytes:
    """The file with the cluster's part anew; without nodes it has none. Pure."""
    begin, end = (f"# {word} springtide {cluster}\n".encode() for word in ("BEGIN", "END"))
    lines = [f"{address} {name}\n".encode() for name, address in sorted(addresses.items())]
    block = b"".join([begin, *lines, end]) if lines else b""
    kept = text.splitlines(keepends=True)
    begins, ends = _places(kept, begin), _places(kept, end)
    if not begins and not ends:
        return block + text
    if len(begins) != 1 or len(ends) != 1 or begins[0] > ends[0]:
        raise Unavailable(
            f"the part of cluster {cluster} in {file} has lost its first or last line, or is there "
            f"twice; delete it, with its lines `# BEGIN springtide {cluster}` and `# END …`"
        )
    return b"".join([*kept[: begins[0]], block, *kept[ends[0] + 1 :]])


def parse(text: bytes, cluster: str) -> dict[str, str]:
    """Names and addresses of the cluster's part. Pure."""
    part = text.partition(f"# BEGIN springtide {cluster}\n".encode())[2]
    part = part.partition(f"# END springtide {cluster}\n".encode())[0]
    words = (line.decode(errors="replace").split() for line in part.splitlines())
    return {name: address for address, name, *_ in (some for some in words if len(some) > 1)}


def _places(lines: list[bytes], wanted: bytes) -> list[int]:
    return [number for number, line in enumerate(lines) if line.rstrip() == wanted.rstrip()]


@contextmanager
def _alone(path: Path) -> Iterator[None]:
    """Other clusters have parts of the same file; nothing is left behind.

    A lock of our own, which nobody else may open: whoever may read a file or a directory can lock
    it for ever.
    """
    lock, end = path.with_name(f".{path.name}.springtide.lock"), time.monotonic() + LOCK_S
    while (descriptor := _locked(lock)) is None:
        if time.monotonic() > end:
            raise Unavailable(
                f"another program has locked {lock} for {LOCK_S:g} s, so names of nodes are not "
                f"written to {path}: find it with `lslocks`, and end it"
            )
        time.sleep(PAUSE_S)
    try:
        yield
    finally:
        lock.unlink(missing_ok=True)
        os.close(descriptor)


def _locked(lock: Path) -> int | None:
    """Its descriptor, if it is ours now: whoever had it before has removed the file."""
    flags = os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC
    descriptor = os.open(lock, flags, 0o600)
    if _is_locked(descriptor) and os.fstat(descriptor).st_nlink:
        return descriptor
    os.close(descriptor)
    return None


def _is_locked(descriptor: int) -> bool:
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def _replaced(path: Path, text: bytes, before: os.stat_result) -> bool:
    """Whole, with the same owner, mode and attributes; not if somebody has changed it since.

    Only one of us writes at a time, so one name is enough, and a kill leaves no second file.
    """
    fresh = path.with_name(f".{path.name}.springtide")
    fresh.unlink(missing_ok=True)
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
    descriptor = os.open(fresh, flags, 0o600)
    try:
        with os.fdopen(descriptor, "wb") as file:
            file.write(text)
            os.fchown(descriptor, before.st_uid, before.st_gid)
            os.fchmod(descriptor, before.st_mode & 0o7777)
            _copy_attributes(path, descriptor)
            file.flush()
            os.fsync(descriptor)
        now = path.stat()
        if (now.st_ino, now.st_mtime_ns, now.st_size) != _seen(before):
            return False
        _put(fresh, path, text)
        return True
    finally:
        fresh.unlink(missing_ok=True)


def _copy_attributes(path: Path, descriptor: int) -> None:
    """Access lists and labels; a filesystem that has none is done without."""
    with suppress(OSError):
        for name in os.listxattr(path):
            with suppress(OSError):
                os.setxattr(descriptor, name, os.getxattr(path, name))


def _seen(before: os.stat_result) -> tuple[int, int, int]:
    return before.st_ino, before.st_mtime_ns, before.st_size


def _put(fresh: Path, path: Path, text: bytes) -> None:
    """A file that is mounted, as in some containers, can only be written where it is."""
    try:
        fresh.replace(path)
    except OSError as error:
        if error.errno != errno.EBUSY:
            raise
        with path.open("r+b") as file:
            file.write(text)
            file.truncate()
