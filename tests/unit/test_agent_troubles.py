"""Boots that fail or wait: what the agent of nodes tells, and that it starts no slurmd."""

import math
import re
import time
from typing import Any

import pytest

from springtide.node import agent
from springtide.node.console import Waiting
from tests.unit.agent_control import KEY, Control, mount, person
from tests.unit.agent_world import LAST, Machine, failing, slow_is_fine, until

pytestmark = pytest.mark.real


@pytest.mark.accepts("B15", "X16")
def test_a_node_without_its_filesystem_starts_no_slurmd_until_it_is_there(
    machine: Machine, control: Control
) -> None:
    machine.path("srv/.server-is-up").unlink()
    process = machine.boot(control)
    until(lambda: any(one["name"] == "mounts" for b in control.reports() for one in b["phases"]))
    assert "/srv/shared is not mounted from nas:/export: mount.nfs4: no answer" in machine.console
    assert control.failures() == []
    assert not [call for call in machine.calls if call.startswith("slurmd")]
    machine.write("srv/.server-is-up", "")
    assert slow_is_fine(process) == 0
    assert machine.calls.index("mount -t nfs4 -o hard,nosuid nas:/export /srv/shared") < (
        machine.calls.index(LAST)
    )


@pytest.mark.accepts("X16")
def test_what_a_node_waits_for_too_long_is_told_as_a_failure_once(
    control: Control, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By the parts of the agent, of which nothing is written to this machine."""
    monkeypatch.setattr(agent, "WAIT_S", math.inf)
    daemon = agent.parse_environment(control.environment)
    daemon.key = KEY
    causes = ["the server is away"] * 3

    def mount_it(welcome: Any) -> None:
        if len(causes) < 3:  # from the second time on it has waited for too long
            monkeypatch.setattr(agent, "WAIT_S", 0.0)
        if causes:
            raise Waiting(causes.pop())

    agent.achieve(daemon, "mounts", [mount_it], {}, time.monotonic())
    assert control.failures() == ["the server is away"]
    first, second = control.reports()[:2]
    assert [one["detail"] for one in first["phases"]] == ["failed: the server is away"]
    assert "failed" not in first, "it may be there in a moment"
    assert not second["final"]
    assert "the server is away" in second["log"]


@pytest.mark.accepts("B15", "X16")
def test_a_node_that_is_unwell_says_why_and_takes_no_jobs_until_it_is_well(
    machine: Machine, control: Control
) -> None:
    machine.write("etc/unwell", "")
    assert failing(machine, control) == "health check failed: the disk is full"
    report = next(body for body in control.reports() if body.get("failed"))
    assert "looking" in report["log"].splitlines()
    assert report["phases"][-1]["detail"] == "failed: health check failed: the disk is full"
    assert not report["final"]
    machine.path("etc/unwell").unlink()
    assert slow_is_fine(machine.running[-1]) == 0
    assert machine.calls[-1] == LAST


@pytest.mark.accepts("B15")
def test_a_user_of_the_image_is_never_changed(machine: Machine, control: Control) -> None:
    control.welcome["users"]["users"] = [person("daemon", 20001)]
    before = machine.text("etc/passwd")
    why = failing(machine, control)
    assert "the image has a user of its own, daemon (1), and the cluster has daemon (20001)" in why
    assert machine.text("etc/passwd") == before
    control.welcome["users"]["users"] = [person("ann", 20000)]
    assert slow_is_fine(machine.running[-1]) == 0


@pytest.mark.accepts("N17")
@pytest.mark.parametrize("version", ["23.02.1", "20.02.4"])
def test_a_slurmd_that_slurmctld_would_refuse_is_not_started(
    machine: Machine, control: Control, version: str
) -> None:
    machine.write("etc/slurm-version", f"{version}\n")
    why = failing(machine, control)
    assert f"it has slurmd {version}, and slurmctld 22.05.8 takes none" in why
    assert control.reports()[1]["final"]
    assert machine.calls == []


@pytest.mark.accepts("B15", "C6")
@pytest.mark.parametrize(("what", "unit"), [("memory", "MiB"), ("cpus", "CPUs")])
def test_a_machine_smaller_than_slurm_is_told_takes_no_jobs(
    machine: Machine, control: Control, what: str, unit: str
) -> None:
    control.welcome["slurmd"][what] = 99_999_999
    why = failing(machine, control)
    assert f" {unit}, Slurm is told 99999999: correct the flavor" in why
    assert control.reports()[1]["final"]


@pytest.mark.accepts("B15")
def test_a_clock_that_is_wrong_is_set_or_told(machine: Machine, control: Control) -> None:
    control.ahead_s = 600.0
    why = failing(machine, control)
    found = re.match(r"its clock is (\S+) s from the control host's, and 60 s are allowed", why)
    assert found
    assert float(found[1]) == pytest.approx(-600, abs=30)
    assert "chronyc makestep" in machine.calls
    assert float(machine.text("run/springtide/clock")) == pytest.approx(-600, abs=30)
    control.ahead_s = 0.0
    assert slow_is_fine(machine.running[-1]) == 0
    assert not machine.path("run/springtide/clock").exists()


def test_a_playbook_that_fails_fails_the_boot(machine: Machine, control: Control) -> None:
    machine.write("etc/broken-playbook", "")
    why = failing(machine, control)
    assert why == "ansible-pull of local.yml failed: ok=3 changed=1"
    assert machine.calls[-1].startswith("ansible-pull -U https://site/play.git -C main local.yml")


@pytest.mark.parametrize(
    ("feature", "part"),
    [
        ("munge", {"key": "bm9uZQ==", "socket": "/run/munge/s"}),
        ("mounts", [{**mount("/srv/../etc"), "source": "x"}]),
        ("mounts", [{**mount("/srv/shared"), "source": "-o"}]),
        ("users", {"users": [person("a:b", 20000)], "groups": [], "sssd": ""}),
        ("users", {"users": [person("toor", 0)], "groups": [], "sssd": ""}),
        ("names", {"nameserver": "", "search": [], "hosts": {"x y": "10.0.0.1"}}),
        ("certificates", {"files": {"../x.crt": "text"}}),
        ("ssh", {"certificates": {"../key": "x"}, "known_hosts": "", "authorized": []}),
        ("slurmd", {}),
    ],
)
def test_what_the_daemon_sends_is_looked_at_before_it_is_used(
    machine: Machine, control: Control, feature: str, part: Any
) -> None:
    control.welcome = {"features": [feature], feature: part}
    assert "the daemon" in failing(machine, control)
    assert machine.calls == []
