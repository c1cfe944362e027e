"""The MariaDB below slurmdbd: its files, its first installation, and whether it answers.

Called by `slurm_accounting` alone.
"""

import os
import shutil
import socket
import subprocess
from pathlib import Path

from springtide.batch import slurm_text
from springtide.batch.slurm_service import PATH, as_user
from springtide.layout import Layout
from springtide.ports import Unavailable

DATABASE = "slurm_acct_db"
DATABASE_USER = "mysql"
INSTALL_S = 120.0
ANSWER_S = 5.0


def render_mariadb(layout: Layout) -> str:
    """Its options. slurmdbd complains of less; what is not used takes no memory."""
    return "\n".join(
        [
            "# Written by Springtide.",
            "[mariadbd]",
            f"datadir={layout.database_files}",
            f"socket={layout.database_socket}",
            f"tmpdir={layout.database}",  # two that start in namespaces of their own share no names
            "skip-networking",
            "innodb_buffer_pool_size=512M",
            "innodb_log_file_size=64M",
            "innodb_lock_wait_timeout=900",
            "loose-innodb_snapshot_isolation=OFF",  # new ones have it, and slurmdbd cannot
            "log_warnings=1",  # not of callers that hang up, as we do when we look
            "",
        ]
    )


def render_grants(user: str) -> str:
    """Run at each start: the one account beside the database's own, and all that it may do."""
    return (
        f"CREATE USER IF NOT EXISTS '{user}'@'localhost' IDENTIFIED VIA unix_socket;\n"
        f"GRANT ALL ON {DATABASE}.* TO '{user}'@'localhost';\n"
    )


def install(files: Path, options: Path) -> None:
    """Make an empty database, unless there is one: elsewhere, so that it is there whole or not."""
    if files.exists():
        return
    draft = files.with_name(f"{files.name}.new")
    if draft.exists():
        shutil.rmtree(draft)
    _fill(draft, options)
    os.sync()
    draft.rename(files)


def _fill(draft: Path, options: Path) -> None:
    command = [
        "mariadb-install-db",
        f"--defaults-file={options}",
        f"--datadir={draft}",
        "--skip-test-db",
        "--skip-name-resolve",
        "--auth-root-authentication-method=socket",
        f"--auth-root-socket-user={DATABASE_USER}",
    ]
    try:
        done = subprocess.run(
            [*MORTAL, *as_user(DATABASE_USER), *command],
            env={"PATH": PATH, "LC_ALL": "C"},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            encoding="utf-8",
            errors="replace",
            cwd="/",
            timeout=INSTALL_S,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise Unavailable(f"cannot install a database in {draft.parent}: {error}") from error
    if done.returncode:
        said = slurm_text.last_errors(done.stderr or done.stdout)
        raise Unavailable(f"cannot install a database in {draft.parent}: {said}")


MORTAL = ("setpriv", "--pdeathsig=KILL", "unshare", "--pid", "--fork", "--kill-child=KILL")
"""With its children it ends when we do: nobody writes into what the next of us removes."""


def greets(path: Path) -> bool:
    """Whether a MariaDB takes callers there: it speaks first."""
    with socket.socket(socket.AF_UNIX) as caller:
        caller.settimeout(ANSWER_S)
        try:
            caller.connect(str(path))
            return bool(caller.recv(1))
        except OSError:
            return False
