"""Why a process of Slurm's died, as far as its log tells."""

from pathlib import Path

from springtide.batch.slurm_service import Service, obituary


def service(tmp_path: Path) -> Service:
    log = tmp_path / "slurmctld.log"
    return Service("slurmctld", "slurm", ("slurmctld", "-D"), tmp_path / "pid", log, log)


def test_the_last_errors_of_its_log_are_told(tmp_path: Path) -> None:
    (tmp_path / "slurmctld.log").write_text("slurmctld: fatal: No such plugin\n")
    said = obituary(service(tmp_path))
    assert said.startswith("slurmctld died at its start: No such plugin (log: ")


def test_without_a_log_it_is_told_how_to_find_out(tmp_path: Path) -> None:
    said = obituary(service(tmp_path))
    assert "run `slurmctld -D` as slurm to see why" in said
