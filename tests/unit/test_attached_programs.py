"""The programs in a Slurm that has other nodes too, and after we have left it."""

from pathlib import Path

from springtide.configure.programs import Programs
from springtide.hook import AWAY_S
from tests.unit.test_hook import LIMIT_S, daemon, run


def programs(place: Path, prolog: str | None = None) -> Programs:
    made = Programs(
        directory=place / "bin",
        socket=place / "sock",
        spool=place / "spool",
        user="root",
        prolog=prolog,
        wait_s=LIMIT_S,
        heads=["c-", "gpu"],
    )
    made.install()
    return made


def test_jobs_on_nodes_of_others_do_not_wait_for_a_daemon_that_is_away(tmp_path: Path) -> None:
    directory = programs(tmp_path).directory
    text = (directory / "hook").read_text()
    assert f"AWAY_S = {AWAY_S}" in text
    (directory / "hook").write_text(text.replace(f"AWAY_S = {AWAY_S}", "AWAY_S = 3600.0"))
    assert run(directory / "prolog", SLURM_JOB_ID="5", SLURM_JOB_NODELIST="static[1-3],big") == 0


def test_jobs_on_our_nodes_are_told_of(tmp_path: Path) -> None:
    made = programs(tmp_path)
    with daemon(made.socket, b"200 OK", calls=2) as heard:
        for nodes in ("static1,c-[1-2]", "gpu7"):
            assert run(made.directory / "prolog", SLURM_JOB_ID="5", SLURM_JOB_NODELIST=nodes) == 0
    assert [message["nodes"] for _, message in heard] == ["static1,c-[1-2]", "gpu7"]


def test_programs_that_are_called_after_we_left_do_nothing_but_run_the_sites_prolog(
    tmp_path: Path,
) -> None:
    theirs, mark = tmp_path / "their prolog", tmp_path / "mark"
    theirs.write_text(f"#!/bin/sh\necho $SLURM_JOB_ID >{mark}\nexit 3\n")
    theirs.chmod(0o755)
    made = programs(tmp_path, str(theirs))
    made.retire()
    assert run(made.directory / "resume", "c-1") == 0
    assert list(made.spool.iterdir()) == []
    assert run(made.directory / "prolog", SLURM_JOB_ID="5", SLURM_JOB_NODELIST="c-1") == 3
    assert mark.read_text() == "5\n"


def test_without_a_prolog_of_the_site_ours_lets_jobs_start_after_we_left(tmp_path: Path) -> None:
    made = programs(tmp_path)
    made.retire()
    assert run(made.directory / "prolog", SLURM_JOB_ID="5", SLURM_JOB_NODELIST="c-1") == 0
    made.install()
    assert "springtide" in (made.directory / "hook").read_text()
