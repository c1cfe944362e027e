"""The script that installs Debian packages, with stand-ins for Debian's own programs."""

import subprocess
from collections.abc import Iterable
from pathlib import Path

import pytest

SCRIPT = Path(__file__).parents[2] / "scripts" / "install-packages"
HAS = "import sys\nfor name in sys.argv[1:]:\n    if name not in {missing!r}: print({line})\n"
NOT_USED = ("mariadb-server", "nfs-ganesha", "slurmdbd", "python3-libvirt", "qemu-utils")
DRIVERS = ("libvirt-daemon-driver-network", "libvirt-daemon-driver-storage")


class Debian:
    """What is installed, what could be, and who asks."""

    def __init__(self, place: Path) -> None:
        self.place = place
        self.is_missing(())
        self.has_not(())
        self._program("apt-get", "raise SystemExit('nothing is to be installed here')")
        self._program("id", "print(1000)")

    def is_missing(self, packages: Iterable[str], files: str = "") -> None:
        """The options before the names look installed; the script asks for at least its own.

        `files` are those of a package whose files are asked for.
        """
        known = ("-W", "-f", "${db:Status-Status}\\n", "${db:Status-Status}", *packages)
        text = HAS.format(missing=known, line="'installed'")
        self._program("dpkg-query", f"{text}if '-L' in sys.argv: print({files!r})\n")

    def has_not(self, packages: Iterable[str]) -> None:
        line = "f'{name:>20} | 1.0 | somewhere'"
        self._program("apt-cache", HAS.format(missing=("madison", *packages), line=line))

    def install(self, stage: str) -> "subprocess.CompletedProcess[str]":
        return subprocess.run(
            [SCRIPT, stage],
            env={"PATH": f"{self.place}:/usr/sbin:/usr/bin:/sbin:/bin"},
            capture_output=True,
            text=True,
            check=False,
        )

    def _program(self, name: str, text: str) -> None:
        path = self.place / name
        path.write_text(f"#!/usr/bin/python3 -I\n{text}\n")
        path.chmod(0o755)


@pytest.fixture
def debian(tmp_path: Path) -> Debian:
    return Debian(tmp_path)


@pytest.mark.parametrize("stage", ["run", "features", "tests"])
def test_nothing_is_said_or_done_when_all_is_there(debian: Debian, stage: str) -> None:
    done = debian.install(stage)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


def test_running_needs_neither_servers_nor_what_tests_use(debian: Debian) -> None:
    debian.is_missing(NOT_USED)
    assert debian.install("run").returncode == 0


@pytest.mark.parametrize(("stage", "package"), [("features", "slurmdbd"), ("tests", "slurmctld")])
def test_a_stage_needs_what_those_before_it_do(debian: Debian, stage: str, package: str) -> None:
    debian.is_missing([package])
    assert f"install them: {package}\n" in debian.install(stage).stderr


def test_who_is_not_root_is_told_what_root_has_to_run(debian: Debian) -> None:
    debian.is_missing(["munge", "slurmd"])
    done = debian.install("run")
    assert done.returncode == 1
    assert "only root can install them: munge slurmd\n" in done.stderr
    assert f"\n    {SCRIPT} run\n" in done.stderr


def test_tests_of_what_this_debian_does_not_have_are_skipped_with_a_word(debian: Debian) -> None:
    debian.is_missing(["gridengine-master"])
    debian.has_not(["gridengine-master"])
    done = debian.install("tests")
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout == (
        "This Debian has no package gridengine-master: tests of Grid Engine are skipped\n"
    )


def test_drivers_of_libvirt_are_installed_where_they_are_packages(debian: Debian) -> None:
    debian.is_missing(DRIVERS)
    assert f"install them: {' '.join(DRIVERS)}\n" in debian.install("tests").stderr


def test_nothing_is_said_of_drivers_that_come_with_libvirt_itself(debian: Debian) -> None:
    """As on Debian 12, while libvirt is still to be installed."""
    debian.is_missing(["libvirt-daemon", *DRIVERS])
    debian.has_not(DRIVERS)
    done = debian.install("tests")
    assert done.stdout == ""
    assert "install them: libvirt-daemon\n" in done.stderr


def test_drivers_that_came_with_libvirt_itself_are_not_asked_for(debian: Debian) -> None:
    debian.is_missing(DRIVERS, files="/usr/lib/libvirt/libvirt_driver_network.so")
    done = debian.install("tests")
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


def test_what_running_needs_is_never_left_out(debian: Debian) -> None:
    debian.is_missing(["slurmd"])
    debian.has_not(["slurmd"])
    assert debian.install("tests").returncode == 1


def test_nothing_is_left_out_while_there_are_no_package_lists(debian: Debian) -> None:
    """As on a machine where nobody has asked for them yet."""
    debian.is_missing(["gridengine-master"])
    debian.has_not(["apt", "gridengine-master"])
    assert "install them: gridengine-master\n" in debian.install("tests").stderr


def test_a_stage_that_is_not_one_is_refused(debian: Debian) -> None:
    done = debian.install("test")
    assert done.returncode == 2
    assert "run, features or tests" in done.stderr
