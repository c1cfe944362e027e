"""Nodes that join a batch system other than Slurm: what the agent does with their entry."""

import os
import signal
import subprocess
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from springtide.node import entry
from springtide.node.bundle import PLACE
from tests.unit.agent_control import Control, open_control, welcome
from tests.unit.agent_world import DEADLINE_S, Machine, fresh_machine, slow_is_fine, until

MOM = """\
#!/bin/sh
[ "$1" != --version ] || { echo "Version: $(cat /etc/mom-version)"; exit; }
echo "pbs_mom $* for $PBS_SERVER" >>/run/calls
sleep 1000
"""
ENTRY: dict[str, Any] = {
    "command": ["pbs_mom", "-F", "it's n-7"],
    "environment": {"PBS_SERVER": "head"},
    "files": {"/var/spool/torque/server_name": "head\n"},
    "settings": {
        "/var/spool/torque/mom_priv/config": {
            "lines": ["$pbsserver head"],
            "defaults": ["$usecp *:/home /home"],
        }
    },
    "directories": ["/var/spool/torque/aux"],
    "versions": ["pbs_mom", "--version"],
    "agent": PLACE,
    "address": "10.0.0.7",
    "memory": 64,
    "cpus": 1,
    "version": "Torque 6.1.3.h5",
    "skew": 60.0,
}
STARTED = "pbs_mom -F it's n-7 for head"


@pytest.fixture
def control(tmp_path: Path) -> Iterator[Control]:
    with open_control(tmp_path) as one:
        told = welcome(entry=dict(ENTRY))
        for feature in ("munge", "slurmd"):
            del told[feature]
            told["features"].remove(feature)
        one.welcome = told
        yield one


@pytest.fixture
def machine(tmp_path: Path) -> Iterator[Machine]:
    with fresh_machine(tmp_path / "machine") as one:
        one.write("usr/local/sbin/pbs_mom", MOM, 0o755)
        one.write("etc/mom-version", "6.1.3.h5\n")
        yield one


def test_a_node_has_all_before_it_becomes_one(machine: Machine, control: Control) -> None:
    machine.write("var/spool/torque/mom_priv/config", "$max_load 4\n$pbsserver of-the-image\n")
    boot = ["sh", "-c", '"$@" && until grep -q "^pbs_mom" /run/calls; do sleep 0.1; done', "sh"]
    assert slow_is_fine(machine.boot(control, first=boot)) == 0, machine.console
    assert machine.calls[-1] == STARTED
    assert "health boot" in machine.calls
    assert machine.text("var/spool/torque/server_name") == "head\n"
    assert machine.text("var/spool/torque/mom_priv/config") == (
        "# springtide: begin\n$pbsserver head\n$usecp *:/home /home\n# springtide: end\n"
        "$max_load 4\n"
    )
    assert machine.path("var/spool/torque/aux").is_dir()
    assert "10.0.0.1 head" in machine.text("etc/hosts")
    assert control.told_phases()[-1] == "entry"
    assert not [call for call in machine.calls if call.startswith(("munge", "slurmd -b"))]


def test_a_node_that_is_not_expected_yet_has_all_but_its_program(
    machine: Machine, control: Control
) -> None:
    """However long that takes, it is no failure."""
    control.welcome["entry"]["early"] = "nobody knows where this machine is"
    boot = ["sh", "-c", '"$@" && until grep -q "^pbs_mom" /run/calls; do sleep 0.1; done', "sh"]
    process = machine.boot(control, first=boot)
    until(lambda: "waiting: nobody knows where this machine is" in machine.console)
    assert "ssh" in control.told_phases()
    assert not [call for call in machine.calls if call.startswith("pbs_mom")]
    del control.welcome["entry"]["early"]
    assert slow_is_fine(process) == 0, machine.console
    assert machine.calls[-1] == STARTED
    assert control.told_phases().count("entry") == 1
    assert control.failures() == []


def failing(machine: Machine, control: Control) -> str:
    machine.boot(control)
    until(control.failures, machine.console)
    assert not [call for call in machine.calls if call.startswith("pbs_mom")]
    return control.failures()[0]


@pytest.mark.accepts("N17")
def test_another_version_is_told_at_once_and_for_good(machine: Machine, control: Control) -> None:
    machine.write("etc/mom-version", "6.0.1\n")
    why = failing(machine, control)
    assert why == "it has version 6.0.1, and the batch system has 6.1.3.h5: use another image"
    assert control.reports()[1]["final"]


def test_an_image_without_the_program_is_told(machine: Machine, control: Control) -> None:
    machine.path("usr/local/sbin/pbs_mom").unlink()
    assert failing(machine, control) == "pbs_mom is not there: the image must have it"


@pytest.mark.accepts("N7")
def test_no_program_starts_before_the_filesystem_is_there(
    machine: Machine, control: Control
) -> None:
    machine.path("srv/.server-is-up").unlink()
    machine.boot(control)
    until(lambda: "/srv/shared is not mounted from nas:/export" in machine.console)
    assert not [call for call in machine.calls if call.startswith("pbs_mom")]


def test_a_program_that_lacks_a_library_is_told_as_that(machine: Machine, control: Control) -> None:
    """The library's number is no version of the program."""
    said = "pbs_mom: error while loading shared libraries: libtorque.so.2.0: cannot open it"
    machine.write("usr/local/sbin/pbs_mom", f"#!/bin/sh\necho '{said}' >&2\nexit 127\n", 0o755)
    assert f"pbs_mom does not run here: {said}" in failing(machine, control)


def test_a_machine_smaller_than_told_takes_no_jobs(machine: Machine, control: Control) -> None:
    control.welcome["entry"]["memory"] = 99_999_999
    assert "MiB, the batch system is told 99999999: correct the flavor" in failing(machine, control)


@pytest.mark.parametrize(
    "wrong",
    [
        {"files": {"/etc/../root/x": "text"}},
        {"directories": ["relative"]},
        {"command": ["pbs_mom", "two\nlines"]},
        {"environment": {"A B": "text"}},
    ],
)
def test_what_makes_no_sense_is_not_done(
    machine: Machine, control: Control, wrong: dict[str, Any]
) -> None:
    control.welcome["entry"].update(wrong)
    assert "the daemon sent" in failing(machine, control)


@pytest.fixture
def script(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """What the agent has run, with a program and an agent that write down what they do."""
    monkeypatch.setattr(entry, "TRIES", 3)
    monkeypatch.setattr(entry, "PAUSE_S", 0.05)
    monkeypatch.setattr(entry, "REFRESH_S", 0.1)
    program, agent = tmp_path / "pbs_mom", tmp_path / "tide's agent"
    program.write_text(f'#!/bin/sh\necho "$1 $$" >>{tmp_path}/moms\n. {tmp_path}/does\n')
    agent.write_text(f'#!/bin/sh\necho "$@" >>{tmp_path}/told\n')
    for path in (program, agent):
        path.chmod(0o755)
        (tmp_path / "does").write_text("exit 7\n")
    found = tmp_path / "entry"
    found.write_text(entry.render_service({**ENTRY, "command": [str(program), "it's"]}, str(agent)))
    found.chmod(0o755)
    return found


def lines(script: Path, name: str) -> list[str]:
    path = script.with_name(name)
    return path.read_text().splitlines() if path.exists() else []


def test_who_is_refused_again_and_again_tells_the_daemon(script: Path) -> None:
    done = subprocess.run([script], capture_output=True, timeout=DEADLINE_S, check=False)
    assert done.returncode == 1, done.stderr
    assert [line.split()[0] for line in lines(script, "moms")] == ["it's"] * 3
    (told,) = [line for line in lines(script, "told") if line != "refresh"]
    program = script.with_name("pbs_mom")
    words = f"{program} ended again and again, at last with status 7"
    assert told == f"report-failure cannot join: {words}"


def test_one_that_ran_for_long_may_end_as_often_as_it_likes(script: Path) -> None:
    text = script.read_text()
    script.write_text(text.replace(f"-lt {entry.LONG_S} ", "-lt 0 "))
    script.with_name("does").write_text(f'[ "$(wc -l <{script.parent}/moms)" = 6 ]; exit\n')
    done = subprocess.run([script], capture_output=True, timeout=DEADLINE_S, check=False)
    assert done.returncode == 0, done.stderr
    assert len(lines(script, "moms")) == 6
    assert "report-failure" not in str(lines(script, "told"))


def test_while_the_batch_system_is_away_nobody_is_refused(script: Path, tmp_path: Path) -> None:
    """It ends with its server, and starts when that is there again: no try is lost meanwhile."""
    moms, asked = tmp_path / "moms", tmp_path / "asked"
    program, agent = tmp_path / "pbs_mom", tmp_path / "tide's agent"
    known = tmp_path / "known"
    known.write_text(f"#!/bin/sh\necho >>{asked}\n[ $(($(wc -l <{asked}) % 9)) = 0 ]\n")
    known.chmod(0o755)
    part = {**ENTRY, "command": [str(program)], "ready": [str(known)]}
    script.write_text(entry.render_service(part, str(agent)))
    script.with_name("does").write_text(f'[ "$(wc -l <{moms})" = 3 ]; exit\n')
    done = subprocess.run([script], capture_output=True, timeout=DEADLINE_S, check=False)
    assert done.returncode == 0, done.stderr
    assert (len(lines(script, "moms")), len(lines(script, "asked"))) == (3, 27)
    assert done.stdout.count(b"waiting for the batch system") == 3
    assert "report-failure" not in str(lines(script, "told"))


def test_the_service_that_is_stopped_takes_its_program_along(script: Path) -> None:
    """A second one would be started beside it."""
    script.with_name("does").write_text("exec sleep 600\n")
    with subprocess.Popen([script], start_new_session=True) as service:
        try:
            until(lambda: bool(lines(script, "moms")) and "refresh" in lines(script, "told"))
            mom = int(lines(script, "moms")[0].split()[1])
            os.kill(mom, 0)
            service.terminate()
            assert slow_is_fine(service) == 143
            with pytest.raises(ProcessLookupError):
                os.kill(mom, 0)
            told = len(lines(script, "told"))
            time.sleep(0.5)  # several times as long as between two
            assert len(lines(script, "told")) <= told + 1, "nor is anything refreshed any more"
        finally:
            with suppress(ProcessLookupError):
                os.killpg(service.pid, signal.SIGKILL)


@pytest.mark.parametrize("what", ["refresh", "program"])
def test_the_service_that_is_stopped_while_something_begins_takes_it_along(
    script: Path, what: str
) -> None:
    """What it left would keep its output open, and be waited for."""
    told = script.read_text().replace(f"{what}=$!\n", f"kill $$; {what}=$!\n")
    assert "kill $$" in told
    script.write_text(told)
    script.with_name("does").write_text("exec sleep 600\n")
    done = subprocess.run([script], capture_output=True, timeout=DEADLINE_S, check=False)
    assert done.returncode == 143, done.stderr
    assert (what == "program") or not lines(script, "moms")


@pytest.mark.parametrize(
    ("text", "version"),
    [("GE 8.1.9", "8.1.9"), ("Version: 6.1.3.h5\nCommit: 1.2", "6.1.3.h5"), ("none", "")],
)
def test_a_version_is_the_first_number_with_dots(text: str, version: str) -> None:
    assert entry.first_version(text) == version
