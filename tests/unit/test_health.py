"""The program that runs the site's health check on a node, as slurmd and a boot script run it."""

import subprocess
from dataclasses import dataclass
from pathlib import Path

import pytest

from springtide.batch import slurm_reason
from springtide.configure import health
from springtide.configure.programs import Programs
from springtide.configure.slurm_node import SlurmNode, render_boot

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
            [self.home / "health", *arguments], env=env, text=True, capture_output=True, timeout=20
        )


@pytest.fixture
def place(tmp_path: Path) -> Place:
    """Limits are a second here, and what would be in /run is not."""
    text = health.render_check(tmp_path / "site", tmp_path / "slurm.conf")
    text = text.replace("/run/springtide-health", str(tmp_path / "notes"))
    text = text.replace("PATH=/usr/local/sbin:", f"PATH={tmp_path}:")
    for limit_s in (health.BOOT_S, health.SERVICE_S):
        text = text.replace(f"check {limit_s}", "check 1")
    for name, content in {
        "health": text,
        "scontrol": SCONTROL.replace("HOME", str(tmp_path)),
    }.items():
        (tmp_path / name).write_text(content)
        (tmp_path / name).chmod(0o755)
    made = Place(tmp_path)
    made.slurm("IDLE+CLOUD")
    made.site("exit 0")
    return made


def test_a_node_that_fails_at_boot_says_why_in_its_last_line(place: Place) -> None:
    place.site("echo one fan; echo disk is full >&2; exit 3")
    done = place.check("boot")
    assert (done.returncode, done.stdout) == (1, "one fan\nhealth check failed: disk is full\n")
    assert place.asked == []


def test_a_check_that_says_nothing_or_hangs_fails_with_words_of_ours(place: Place) -> None:
    place.site("exit 7")
    assert place.check("boot").stdout == "health check failed: exit code 7\n"
    place.site("exec sleep 60")
    assert place.check("boot").stdout == "health check failed: it took more than 1 s\n"


def test_what_a_check_leaves_running_is_not_waited_for(place: Place) -> None:
    place.site("sleep 15 & exit 0")
    assert place.check("boot").returncode == 0


def test_a_program_that_is_missing_is_a_failure(place: Place) -> None:
    (place.home / "site").unlink()
    done = place.check("boot")
    assert done.returncode == 1
    assert "No such file or directory" in done.stdout


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
    assert "health" not in render_boot(node(tmp_path, None), "n1")
    subprocess.run(["sh", "-n"], input=text, text=True, check=True)


async def test_the_check_is_installed_where_nodes_see_it(tmp_path: Path) -> None:
    await node(tmp_path, Path("/opt/check it")).install()
    installed = tmp_path / "conf" / "health"
    assert "program='/opt/check it'" in installed.read_text()
    assert installed.stat().st_mode & 0o777 == 0o755
