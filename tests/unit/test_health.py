"""The program that runs the site's health check on a node, as slurmd and a boot script run it."""

import os
import signal
import subprocess
from dataclasses import dataclass, replace
from pathlib import Path

import pytest

from springtide.batch import slurm_reason
from springtide.configure import health
from springtide.configure.health import Checks
from springtide.configure.programs import Programs
from springtide.configure.slurm_node import SlurmNode, render_boot
from springtide.node import second

SCONTROL = """\
#!/bin/sh
case $* in
-o*) cat HOME/shown ;;
*) echo "$*" >>HOME/asked ;;
esac
"""


@dataclass(frozen=True)
class Place:
    """A node whose Slurm is a file that says how it is, and another with what it was asked."""

    home: Path

    def site(self, script: str) -> None:
        program = self.home / "site"
        program.write_text(f"#!/bin/sh\n{script}\n")
        program.chmod(0o755)

    def slurm(self, state: str, reason: str = "") -> None:
        why = f" Reason={reason} [root@2026-11-16T00:54:20]" if reason else ""
        (self.home / "shown").write_text(f"NodeName=n1 Arch=x State={state} CPUTot=1{why}\n")

    @property
    def asked(self) -> list[str]:
        path = self.home / "asked"
        return path.read_text().splitlines() if path.exists() else []

    def check(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        env = {"SLURMD_NODENAME": "n1"}
        return subprocess.run(
            [self.home / "health", *arguments], env=env, text=True, capture_output=True, timeout=200
        )


@pytest.fixture(autouse=True)
def patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Filesystems of this machine answer, though it may stand still for a while."""
    monkeypatch.setattr(health, "MOUNT_S", 200)


@pytest.fixture
def place(tmp_path: Path) -> Place:
    """What would be in /run is here. It is in service."""
    return placed(tmp_path, Checks(tmp_path / "site", tmp_path / "slurm.conf"))


def placed(tmp_path: Path, checks: Checks) -> Place:
    text = health.render_check(checks)
    text = text.replace("/run/springtide-health", str(tmp_path / "notes"))
    text = text.replace("PATH=/usr/local/sbin:", f"PATH={tmp_path}:")
    for name, content in {
        "health": text,
        "scontrol": SCONTROL.replace("HOME", str(tmp_path)),
    }.items():
        (tmp_path / name).write_text(content)
        (tmp_path / name).chmod(0o755)
    made = Place(tmp_path)
    made.slurm("IDLE+CLOUD")
    made.site("exit 0")
    made.check("boot")
    made.check()  # by slurmd, when it starts
    return made


def test_a_node_in_service_asks_every_few_minutes_what_has_changed(tmp_path: Path) -> None:
    """Users, names and certificates of nodes that joined come so; the check waits for none."""
    agent, calls = tmp_path / "agent", tmp_path / "calls"
    os.mkfifo(calls)
    agent.write_text(f'#!/bin/sh\necho "$*" >{calls}\n')
    agent.chmod(0o755)
    place = placed(tmp_path, Checks(tmp_path / "site", agent=agent))
    asked = tmp_path / "notes" / "asked"
    for _ in range(2):
        asked_at = asked.stat().st_mtime
        place.check()
        assert asked.stat().st_mtime == asked_at, "it asked a moment ago"
        long_ago = asked_at - 60 * (health.REFRESH_MIN + 1)
        os.utime(asked, (long_ago, long_ago))
        place.check()
        assert calls.read_text() == "refresh\n"
        assert asked.stat().st_mtime > long_ago


def test_a_node_that_fails_at_boot_says_why_in_its_last_line(place: Place) -> None:
    place.site("echo one fan; echo disk is full >&2; exit 3")
    done = place.check("boot")
    assert (done.returncode, done.stdout) == (1, "one fan\nhealth check failed: disk is full\n")
    assert place.asked == []


def test_a_check_that_says_nothing_or_hangs_fails_with_words_of_ours(place: Place) -> None:
    place.site("exit 7")
    assert place.check("boot").stdout == "health check failed: exit code 7\n"
    place.site("exec sleep 600")
    check = place.home / "health"
    check.write_text(check.read_text().replace(f"check {health.BOOT_S}", "check 1"))
    assert place.check("boot").stdout == "health check failed: it took more than 1 s\n"


def test_what_a_check_leaves_running_is_not_waited_for(place: Place) -> None:
    place.site(f"sleep 600 & echo $! >{place.home}/left; exit 0")
    assert place.check("boot").returncode == 0
    os.kill(int((place.home / "left").read_text()), signal.SIGTERM)


def test_a_program_that_is_missing_is_a_failure(place: Place) -> None:
    (place.home / "site").unlink()
    done = place.check("boot")
    assert done.returncode == 1
    assert "No such file or directory" in done.stdout


def test_a_machine_that_did_not_boot_by_us_is_left_alone(place: Place) -> None:
    """One of the site's, in the same Slurm: it has nothing of what nodes of ours need."""
    place.site("exit 1")
    (place.home / "notes" / "verdict").unlink()
    assert place.check().returncode == 0
    assert place.asked == []


def test_a_node_in_service_that_fails_is_drained_once_and_undrained_when_well(
    place: Place,
) -> None:
    place.site("printf 'too\\thot, \\033[31mvery=hot'; exit 1")
    assert place.check().returncode == 0
    reason = "health check failed: toohot, [31mvery=hot"
    assert place.asked == [f"update nodename=n1 state=drain reason={reason}"]
    place.slurm("IDLE+CLOUD+DRAIN", reason)
    place.check()
    assert len(place.asked) == 1
    place.site("exit 0")
    place.check()
    assert place.asked[1:] == ["update nodename=n1 state=undrain"]


@pytest.mark.parametrize(
    "reason",
    [
        "bad fan, health check failed: no",
        "health check failed yesterday, keep for vendor",
        "health check failed: no (by bob)",
    ],
)
def test_drains_of_others_are_neither_taken_over_nor_ended(place: Place, reason: str) -> None:
    place.slurm("IDLE+CLOUD+DRAIN", reason)
    for script in ("exit 1", "exit 0"):
        place.site(script)
        place.check()
    assert place.asked == []


def test_after_a_boot_the_drain_of_a_former_instance_ends_and_then_slurm_is_left_in_peace(
    place: Place,
) -> None:
    place.slurm("IDLE+CLOUD+DRAIN", "health check failed: too hot")
    place.check("boot")
    place.check()  # by slurmd, when it starts
    assert place.asked == []
    place.check()
    assert place.asked == ["update nodename=n1 state=undrain"]
    (place.home / "shown").unlink()
    assert place.check().stderr == ""


def test_the_drain_of_a_health_check_is_nobodys() -> None:
    """So a fresh start ends it, and a person can take it over."""
    assert slurm_reason.read(f"{health.FAILED}: too hot", "root")[1] == slurm_reason.SLURM
    assert slurm_reason.UNHEALTHY == health.FAILED


def node(state: Path, program: Path | None) -> SlurmNode:
    conf = state / "conf"
    return SlurmNode(
        conf=conf / "slurm.conf",
        hosts=conf / "hosts",
        key=state / "key",
        socket=state / "socket",
        control="control",
        mounts=[],
        user="root",
        programs=Programs(state / "bin", state / "sock", state / "spool", "root", None, 60.0),
        health=program,
    )


def test_slurmd_starts_only_after_the_check(tmp_path: Path) -> None:
    text = render_boot(node(tmp_path, Path("/opt/check")), "n1")
    assert text.index("munged --foreground") < text.index("conf/health boot")
    assert text.index("conf/health boot") < text.index("exec slurmd")
    assert "conf/health boot" in render_boot(node(tmp_path, None), "n1")
    subprocess.run(["sh", "-n"], input=text, text=True, check=True)


def test_slurmd_tells_of_its_boot_only_a_slurmctld_that_asked_for_it(tmp_path: Path) -> None:
    asked = node(tmp_path, None)
    assert "exec slurmd -D -b -N " in render_boot(asked, "n1")
    assert "exec slurmd -D -N " in render_boot(replace(asked, programs=None), "n1")


def test_a_node_knows_in_which_second_it_was_asked_for(tmp_path: Path) -> None:
    """And does not start in that one: it would seem to be of before."""
    asked = node(tmp_path, None)
    text = render_boot(asked, "n1", 1731.9)
    assert text.index(second.render_wait(1731.9)) < text.index("exec slurmd")
    assert "date +%s" not in render_boot(replace(asked, programs=None), "n1", 1731.9)


async def test_the_check_is_installed_where_nodes_see_it(tmp_path: Path) -> None:
    await node(tmp_path, Path("/opt/check it")).install()
    installed = tmp_path / "conf" / "health"
    assert "program='/opt/check it'" in installed.read_text()
    assert installed.stat().st_mode & 0o777 == 0o755


# --- what every node needs ---------------------------------------------------------------------


def looked(tmp_path: Path, checks: Checks, **changed: str) -> subprocess.CompletedProcess[str]:
    """The check at boot of a node that has no program of the site's."""
    text = health.render_check(checks)
    text = text.replace("/run/springtide-health", str(tmp_path / "notes"))
    for old, new in changed.items():
        text = text.replace({"skew": str(health.SKEW), "proc": "/proc/meminfo"}[old], new)
    return subprocess.run(["sh", "-s", "boot"], input=text, text=True, capture_output=True)


def test_a_node_that_has_all_it_needs_passes(tmp_path: Path) -> None:
    done = looked(tmp_path, Checks(mounts=[Path("/proc")], memory=1))
    assert (done.returncode, done.stdout) == (0, "")


@pytest.mark.accepts("B15")
def test_a_node_without_its_filesystem_does_not_pass(tmp_path: Path) -> None:
    directory = tmp_path / "home"
    directory.mkdir()
    done = looked(tmp_path, Checks(mounts=[Path("/proc"), directory]))
    why = f"health check failed: {directory} is not mounted, or does not answer\n"
    assert (done.returncode, done.stdout) == (1, why)


@pytest.mark.accepts("B15")
def test_a_node_with_less_memory_than_slurm_is_told_does_not_pass(tmp_path: Path) -> None:
    shown = tmp_path / "meminfo"
    shown.write_text("MemTotal:        2048000 kB\nMemFree:          1024 kB\n")
    done = looked(tmp_path, Checks(memory=2001), proc=str(shown))
    why = "health check failed: it has 2000 MiB of memory, and Slurm is told 2001\n"
    assert (done.returncode, done.stdout) == (1, why)
    assert looked(tmp_path, Checks(memory=2000), proc=str(shown)).returncode == 0


@pytest.mark.accepts("B15")
def test_a_node_whose_munge_does_not_answer_does_not_pass(tmp_path: Path) -> None:
    done = looked(tmp_path, Checks(socket=tmp_path / "socket"))
    assert done.returncode == 1
    assert done.stdout.endswith(
        f"health check failed: munge does not answer at {tmp_path}/socket\n"
    )


@pytest.mark.accepts("B15")
def test_a_node_whose_clock_is_wrong_does_not_pass(tmp_path: Path) -> None:
    clock = tmp_path / "clock"
    clock.write_text("312\n")
    done = looked(tmp_path, Checks(), skew=str(clock))
    why = "health check failed: its clock is 312 s from the control host's\n"
    assert (done.returncode, done.stdout) == (1, why)
