"""The account of jobs: what slurmdbd and its database are told, and what `tide check` looks for."""

import os
import socket
from pathlib import Path

import pytest

from springtide.batch import slurm_database
from springtide.batch.slurm_accounting import Accounting, render_slurmdbd
from springtide.batch.slurm_conf import render
from springtide.batch.slurm_conf_lines import needs_restart
from springtide.batch.slurm_database import greets, install, render_grants, render_mariadb
from springtide.batch.slurm_place import write
from springtide.batch.slurm_text import last_errors
from springtide.cli import accounting_checks, checks
from springtide.cli.subject import Check, subject
from springtide.layout import Layout
from springtide.ports import Site
from springtide.spec import Cluster, parse
from tests.ports import free_ports

LAYOUT = Layout(Path("/srv/kept"))
HEAD = "cluster: kept\ngroups: {general: {nodes: 'k[1-3]'}}\n"
root = pytest.mark.skipif(os.geteuid() != 0, reason="needs root")


def cluster(batch: str = "{host: control, accounting: {port: 7003}}", more: str = "") -> Cluster:
    return parse(f"{HEAD}batch: {batch}\n{more}", "cluster.yaml")


def looked(state: Path, batch: str) -> dict[str, Check]:
    kept = subject(cluster(batch, f"state: {state}\n"))
    return {check.name: check for check in accounting_checks.look_at_accounting(kept)}


# What they are told


def test_slurmdbd_is_told_where_to_listen_and_needs_no_password() -> None:
    text = render_slurmdbd(LAYOUT, "control", "10.77.0.1", 7003, "slurm")
    assert text.splitlines()[1:] == [
        "AuthType=auth/munge",
        "AuthInfo=socket=/srv/kept/munge/munge.socket",
        "CommunicationParameters=NoInAddrAny",
        "DbdHost=control",
        "DbdAddr=10.77.0.1",
        "DbdPort=7003",
        "SlurmUser=slurm",
        "LogFile=/srv/kept/log/slurmdbd.log",
        "PidFile=/srv/kept/slurmctld/slurmdbd.pid",
        "StorageType=accounting_storage/mysql",
        "StorageHost=localhost",
        "StorageUser=slurm",
        "StorageLoc=slurm_acct_db",
    ]


def test_the_database_is_a_socket_and_nothing_else() -> None:
    lines = render_mariadb(LAYOUT).splitlines()
    assert "skip-networking" in lines
    assert "datadir=/srv/kept/database/data" in lines
    assert "socket=/srv/kept/database/db.sock" in lines


def test_slurms_user_alone_is_let_in_by_its_unix_account_and_to_one_database() -> None:
    assert render_grants("slurm") == (
        "CREATE USER IF NOT EXISTS 'slurm'@'localhost' IDENTIFIED VIA unix_socket;\n"
        "GRANT ALL ON slurm_acct_db.* TO 'slurm'@'localhost';\n"
    )


def test_turning_it_on_or_off_restarts_slurmctld() -> None:
    def rendered(batch: str) -> str:
        site, state = Site("10.77.0.1"), Path("/srv/kept")
        return render(cluster(batch), site, state=state, version=(22, 5))

    without, kept = rendered("{host: control}"), rendered("{host: control, accounting: {}}")
    assert "AccountingStorage" not in without
    assert "AccountingStoragePort=6819\n" in kept
    assert "AccountingStorageEnforce" not in kept
    assert needs_restart(without, kept)
    assert needs_restart(kept, without)


def test_a_cluster_takes_its_files_with_it() -> None:
    assert {LAYOUT.accounting, LAYOUT.database} <= set(LAYOUT.entries)


def test_a_cluster_without_an_account_makes_nothing_for_it(tmp_path: Path) -> None:
    accounting = Accounting(cluster("{}", f"state: {tmp_path}\n"), tmp_path / "slurm.conf")
    accounting.prepare()
    assert accounting.start(tmp_path / "hosts", "127.0.0.1") == []
    accounting.stop()
    assert list(tmp_path.iterdir()) == []


@root
def test_a_file_is_its_users_alone_from_its_beginning(tmp_path: Path) -> None:
    path = tmp_path / "slurmdbd.conf"
    write(path, "secret", mode=0o600, user="nobody")
    assert (path.stat().st_mode & 0o777, path.owner()) == (0o600, "nobody")


# The database


def test_a_database_that_is_there_is_not_installed_again(tmp_path: Path) -> None:
    data = tmp_path / "data"
    data.mkdir()
    install(data, tmp_path / "mariadb.cnf")
    assert list(data.iterdir()) == []


def test_a_database_answers_only_when_it_speaks(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(slurm_database, "ANSWER_S", 0.05)
    path = tmp_path / "db.sock"
    assert not greets(path)
    with socket.socket(socket.AF_UNIX) as silent:
        silent.bind(str(path))
        assert not greets(path), "nobody listens"
        silent.listen()
        assert not greets(path), "nobody speaks"


def test_what_is_wrong_with_a_database_is_told_and_not_what_follows_from_it() -> None:
    log = """\
2026-11-16  0:13:00 0 [Note] InnoDB: Completed initialization of buffer pool
2026-11-16  0:13:00 0 [ERROR] InnoDB: The data file './ibdata1' is of a different size
2026-11-16  0:13:00 0 [ERROR] Plugin 'InnoDB' registration as a STORAGE ENGINE failed.
2026-11-16  0:13:00 0 [Note] Plugin 'FEEDBACK' is disabled.
2026-11-16  0:13:00 0 [ERROR] Unknown/unsupported storage engine: InnoDB
2026-11-16  0:13:00 0 [ERROR] Aborting
"""
    assert last_errors(log) == "InnoDB: The data file './ibdata1' is of a different size"


# What `tide check` looks for


def test_nothing_is_looked_for_without_an_account(tmp_path: Path) -> None:
    assert looked(tmp_path, "{}") == {}
    assert looked(tmp_path, "{kind: fake}") == {}


def test_deploy_and_check_look_for_what_an_account_needs() -> None:
    assert accounting_checks.look_at_accounting in checks.REQUIRED


def test_missing_programs_are_named_with_their_packages(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(accounting_checks, "search_path", lambda: str(tmp_path))
    line = looked(tmp_path, "{accounting: {}}")["accounting programs"]
    assert (line.ok, line.text) == (
        False,
        "mariadbd, mariadb-install-db, slurmdbd, sacctmgr not found",
    )
    packages = "mariadb-server slurmdbd slurm-client"
    assert line.todo == f"run `apt-get install {packages}`, or leave batch.accounting out"


def test_a_missing_account_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(accounting_checks, "DATABASE_USER", "nobody9")
    line = looked(tmp_path, "{accounting: {}}")["user nobody9"]
    assert (line.ok, line.text) == (False, "user nobody9 does not exist")


def test_a_port_that_another_program_has_is_found(tmp_path: Path) -> None:
    (port,) = free_ports(1)
    with socket.create_server(("127.0.0.1", port)):
        line = looked(tmp_path, f"{{accounting: {{port: {port}}}}}")[f"port {port}"]
    assert (line.ok, line.text) == (False, "taken by another program")
    assert "set batch.accounting.port to a free port" in line.todo
    free = looked(tmp_path, f"{{accounting: {{port: {port}}}}}")[f"port {port}"]
    assert (free.ok, free.text) == (True, "free")
