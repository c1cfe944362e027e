"""The systemd units, as systemd itself reads them."""

import os
import shlex
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from springtide.cli.endings import Exit
from springtide.spec import environment

PACKAGING = Path(__file__).parents[2] / "packaging"
UNITS = sorted(PACKAGING.glob("*.service"))


def verified(unit: Path, place: Path) -> "subprocess.CompletedProcess[str]":
    """Of one cluster; `tide` need not be installed where units are verified."""
    name = unit.name.replace("@.", "@blue.")
    text = unit.read_text().replace("/usr/local/bin/tide", shutil.which("true") or "/bin/true")
    (place / name).write_text(text)
    command = ["systemd-analyze", "verify", "--man=no", str(place / name)]
    return subprocess.run(command, capture_output=True, text=True, timeout=200, check=False)


@pytest.mark.accepts("N14")
@pytest.mark.skipif(not shutil.which("systemd-analyze"), reason="there is no systemd-analyze")
@pytest.mark.parametrize("unit", UNITS, ids=lambda unit: unit.name)
def test_systemd_finds_nothing_wrong(unit: Path, tmp_path: Path) -> None:
    done = verified(unit, tmp_path)
    assert done.returncode == 0, done.stderr
    assert f"{unit.stem}" not in done.stderr, done.stderr


@pytest.mark.skipif(not shutil.which("systemd-analyze"), reason="there is no systemd-analyze")
def test_it_would_find_what_is_wrong(tmp_path: Path) -> None:
    broken = tmp_path / "springtide@.service"
    broken.write_text(UNITS[-1].read_text().replace("Restart=on-failure", "Restart=maybe"))
    place = tmp_path / "place"
    place.mkdir()
    done = verified(broken, place)
    assert "maybe" in done.stderr


def settings(key: str) -> list[str]:
    """What the daemon's unit has, for keys that it may have several times too."""
    lines = (PACKAGING / "springtide@.service").read_text().splitlines()
    return [line.partition("=")[2] for line in lines if line.startswith(f"{key}=")]


@pytest.mark.accepts("N14")
def test_the_daemon_is_started_again_and_its_nodes_go_on_without_it() -> None:
    assert settings("Restart") == ["on-failure"]
    assert settings("RestartPreventExitStatus") == [str(int(Exit.WRONG))]
    assert settings("KillMode") == ["process"]
    assert settings("StandardError") == ["journal"]


@pytest.mark.accepts("N15")
def test_secrets_have_a_file_of_their_own_that_no_command_reads() -> None:
    variables, secrets = settings("EnvironmentFile")
    assert variables == f"-{environment.PLACE}/%i.env"
    assert secrets == f"-{environment.PLACE}/%i.secret"


def waiting(place: Path, tide: str, main: "subprocess.Popen[bytes]") -> "subprocess.Popen[str]":
    """What systemd runs until the daemon answers, with such a `tide`."""
    program = place / "tide"
    program.write_text(f"#!/bin/sh\n{tide}\n")
    program.chmod(0o755)
    (line,) = settings("ExecStartPost")
    text = (
        line.replace("$$", "$").replace("%i", "blue").replace("/usr/local/bin/tide", str(program))
    )
    environ = {"PATH": os.defpath, "MAINPID": str(main.pid)}
    return subprocess.Popen(shlex.split(text), stderr=subprocess.PIPE, text=True, env=environ)


@pytest.fixture
def main() -> Iterator["subprocess.Popen[bytes]"]:
    with subprocess.Popen(["sleep", "600"]) as process:
        yield process
        process.kill()


@pytest.mark.accepts("N13", "N14")
def test_a_daemon_that_ends_at_once_is_not_waited_for(
    tmp_path: Path, main: "subprocess.Popen[bytes]"
) -> None:
    main.kill()
    main.wait()
    with waiting(tmp_path, "exit 4", main) as process:
        try:
            assert process.wait(200) == 1
        finally:
            process.kill()


@pytest.mark.accepts("N14")
def test_a_daemon_that_answers_later_is_waited_for(
    tmp_path: Path, main: "subprocess.Popen[bytes]"
) -> None:
    mark = tmp_path / "asked"
    tide = f'[ "$*" = "status --cluster blue" ] && [ -e {mark} ] || {{ touch {mark}; exit 4; }}'
    with waiting(tmp_path, tide, main) as process:
        try:
            assert process.wait(200) == 0
        finally:
            process.kill()
    assert mark.exists()
