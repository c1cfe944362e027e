"""What makes a layer anonymous: who the node was, and what it knew of its cluster, goes.

Called by `layers` on its own copy. What a layer below has of it is covered by a mark of its
deletion. Symbolic links are never followed: root of the node may have made them.
"""

import os
import shutil
import stat
from collections.abc import Iterator, Sequence
from contextlib import suppress
from fnmatch import fnmatchcase
from pathlib import Path

from springtide.node.system import BEGIN, END
from springtide.providers.containers.mounts import is_mark

PBS_HOMES = ("var/spool/torque", "var/lib/torque", "var/spool/pbs")
PBS_HELD = (
    *("server_name", "mom_priv/jobs/*", "spool/*", "undelivered/*", "aux/*", "checkpoint/*"),
    "mom_logs/*",
)
"""Whose a pbs_mom was, and scripts, environments and output of jobs."""
GONE = (
    "etc/hostname",
    "etc/hosts",
    "etc/nsswitch.conf",
    "etc/springtide.people",
    "etc/munge/munge.key",
    "etc/ssh/ssh_host_*",
    "etc/ssh/ssh_known_hosts",
    "etc/ssh/*springtide*",
    "etc/ssh/sshd_config.d/*springtide*",
    "etc/slurm/*",
    "etc/slurm-llnl/*",
    "etc/sssd/sssd.conf",
    "etc/krb5.keytab",
    "etc/pbs.conf",
    "etc/pki/ca-trust/source/anchors/springtide*",
    "etc/chrony/sources.d/springtide.sources",
    "etc/chrony.d/springtide.sources",
    "etc/systemd/timesyncd.conf.d/springtide.conf",
    "etc/profile.d/*springtide*",
    "usr/local/lib/springtide",
    "usr/local/share/ca-certificates/*springtide*",
    "var/lib/springtide/*",
    "var/lib/munge/*",
    "var/lib/extrausers",
    "var/lib/sss/db/*",
    "var/lib/sss/mc/*",
    "var/lib/sss/secrets/*",
    "var/lib/sss/secrets/.*",
    "var/lib/dbus/machine-id",
    "var/lib/systemd/random-seed",
    "var/lib/cloud/*",
    "var/lib/dhcp/*",
    "var/lib/slurm/*",
    "var/spool/slurmd/*",
    "var/spool/slurm/*",
    *(f"{home}/{name}" for home in PBS_HOMES for name in PBS_HELD),
    "var/spool/gridengine/*/*",
    "var/spool/sge/*/*",
    "var/lib/gridengine/*/spool/*/*",
    "opt/sge/*/spool/*/*",
    "opt/gridengine/*/spool/*/*",
    "root/.*_history",
    "home/*/.*_history",
    "root/.cache",
    "root/.ansible/pull",
    "root/.ansible/tmp",
    "root/.ansible/cp",
    "home/*/.cache",
)
"""Of the image: below it, too, nobody finds it again."""
KEPT_BELOW = frozenset(
    {
        *("etc/hosts", "etc/nsswitch.conf", "etc/hostname"),
        *("etc/sssd/sssd.conf", "etc/krb5.keytab"),
    }
)
"""Every node makes them anew, from what is there, or has them of this machine."""
MARKED = (
    *("root/.ssh/authorized_keys", "etc/ssh/sshd_config"),
    *("etc/chrony.conf", "etc/ntp.conf", "etc/ntpsec/ntp.conf"),
    *(f"{home}/mom_priv/config" for home in PBS_HOMES),
)
"""Files with lines of ours between marks."""
PEOPLE = "etc/springtide.people"
"""Which files of /etc have lines of people of the cluster, and of whom."""
ACCOUNTS = ("passwd", "group", "shadow")
WRITTEN = ("var/log", "var/tmp", "var/cache/ldconfig")
"""What the node wrote there goes; what the image below has is the image's."""
MACHINE_ID = "etc/machine-id"


def forget_identity(layer: Path, below: Sequence[Path]) -> None:
    _forget_people(layer)
    for pattern in GONE:
        for path in list(matches(layer, pattern)):
            _remove(layer / path)
        if pattern not in KEPT_BELOW:
            for path in {each for root in below for each in matches(root, pattern)}:
                _cover(layer, below, path)
    for name in MARKED:
        _unmark(layer, Path(name))
    for name in WRITTEN:
        _empty_files(layer, name)
    if any(_lexists(root / MACHINE_ID) for root in (layer, *below)):
        _remove(layer / MACHINE_ID)
        _make_parents(layer, below, Path(MACHINE_ID).parent)
        if _is_real(layer, Path(MACHINE_ID).parent):
            (layer / MACHINE_ID).touch()


def matches(root: Path, pattern: str) -> Iterator[Path]:
    """Paths of the directory, through real directories only."""
    *folders, last = pattern.split("/")
    places = [Path()]
    for folder in folders:
        places = [p / n for p in places for n in _names(root / p, folder) if _is_real(root, p / n)]
    yield from (p / name for p in places for name in _names(root / p, last))


def _names(folder: Path, pattern: str) -> list[str]:
    """Hidden ones only if they are asked for; marks of deletion are nothing."""
    try:
        found = sorted(folder.iterdir())
    except OSError:
        return []
    hidden = pattern.startswith(".")
    return [
        one.name
        for one in found
        if fnmatchcase(one.name, pattern)
        and (hidden or not one.name.startswith("."))
        and not is_mark(one)
    ]


def _is_real(root: Path, folder: Path) -> bool:
    """A directory, and no link on the way to it."""
    ways = [root / each for each in (folder, *folder.parents)]
    return all(stat.S_ISDIR(one.lstat().st_mode) for one in ways if _lexists(one)) and _lexists(
        root / folder
    )


def _lexists(path: Path) -> bool:
    return os.path.lexists(path)


def _remove(path: Path) -> None:
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)


def _cover(layer: Path, below: Sequence[Path], path: Path) -> None:
    """As the kernel marks what was deleted in an upper layer."""
    _make_parents(layer, below, path.parent)
    if _is_real(layer, path.parent) and not _lexists(layer / path):
        os.mknod(layer / path, stat.S_IFCHR, 0)


def _make_parents(layer: Path, below: Sequence[Path], folder: Path) -> None:
    """As they are below: the uppermost says who owns a directory."""
    for each in reversed([folder, *folder.parents]):
        if _lexists(layer / each):
            continue
        model = next((root / each for root in below if _is_real(root, each)), None)
        if model is None:
            return
        about = model.stat()
        (layer / each).mkdir(mode=stat.S_IMODE(about.st_mode))
        os.chown(layer / each, about.st_uid, about.st_gid)
        (layer / each).chmod(stat.S_IMODE(about.st_mode))


def _forget_people(layer: Path) -> None:
    """Whom the boot script of the node added to the image's own, as it noted."""
    noted = {tuple(line.split()) for line in _lines(layer, Path(PEOPLE))}
    for name in ACCOUNTS:
        path = Path("etc", name)
        lines = _lines(layer, path)
        stays = [line for line in lines if (name.encode(), line.split(b":")[0]) not in noted]
        if stays != lines:
            (layer / path).write_bytes(b"".join(stays))


def _unmark(layer: Path, path: Path) -> None:
    """Without the lines that are between our marks."""
    stays, ours = list[bytes](), False
    lines = _lines(layer, path)
    for line in lines:
        ours = (ours or line.strip() == BEGIN.encode()) and line.strip() != END.encode()
        if not ours and line.strip() != END.encode():
            stays.append(line)
    if stays != lines:
        (layer / path).write_bytes(b"".join(stays))


def _lines(layer: Path, path: Path) -> list[bytes]:
    """Of a file of the layer; there are none if something else is there."""
    if not _is_real(layer, path.parent) or not _lexists(layer / path):
        return []
    if not stat.S_ISREG((layer / path).lstat().st_mode):
        return []
    return (layer / path).read_bytes().splitlines(keepends=True)


def _empty_files(layer: Path, name: str) -> None:
    """Directories stay: programs expect theirs."""
    if not _is_real(layer, Path(name)):
        return
    for folder, _, files in os.walk(layer / name):
        for file in files:
            path = Path(folder, file)
            with suppress(FileNotFoundError):
                if not is_mark(path):
                    path.unlink()
