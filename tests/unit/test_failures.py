"""Why a node did not come up: from what it said, its instance, and what Slurm knows of it."""

import subprocess
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from springtide import decide
from springtide.configure.programs import Programs
from springtide.configure.slurm_node import SlurmNode, render_boot
from springtide.failures import (
    LONGEST,
    NO_SSH,
    SIGNS,
    Trouble,
    classify,
    explain,
    is_failed_boot,
    is_telling,
)
from springtide.model import Kind, Node, NodeState, Operation
from springtide.ports import BatchNode, Instance, InstanceState, Power
from springtide.spec import parse
from springtide.steps import registration
from springtide.steps.work import Parts, Work
from springtide.story.voice import voice

RECORDED = Path(__file__).parents[1] / "recorded"
BEGAN_AT = 1794798641.25
"""When the recorded instances began: 2026-11-16 03:10:41 UTC."""
EARLIER = 1794774372.0
"""When this machine had booted: 2026-11-15 20:26:12 UTC."""
RUNNING, BROKEN = InstanceState.RUNNING, InstanceState.BROKEN

NODE = Node("c1", "general", NodeState.JOINING, 3, "blue.c1.3", "10.77.0.5")
INSTANCE = Instance(
    "blue.c1.3", "blue", "c1", 3, RUNNING, "10.77.0.5", created_at=BEGAN_AT, booted_at=BEGAN_AT
)
WAITED_FOR = BatchNode(
    "c1", "ALLOCATED", frozenset({"POWERING_UP"}), Power.GOING_UP, address="10.77.0.5"
)


def recorded(name: str) -> str:
    return (RECORDED / f"slurm-22.05.8__boot_{name}.log").read_text()


@pytest.mark.parametrize(
    ("name", "state", "words"),
    [
        ("no-user", RUNNING, "its boot script still waits: for the user slurm in /etc/passwd"),
        (
            "no-munged",
            RUNNING,
            "its boot script still waits: for munged to make "
            "/var/lib/springtide/blue/munge/munge.socket; munged: Error: Failed to find keyfile "
            '"/nowhere": No such file or directory (Did you run mungekey?)',
        ),
        (
            "no-slurmd",
            BROKEN,
            "its instance died while it booted: /run/tide/boot: 50: exec: slurmd: not found",
        ),
        (
            "exit",
            BROKEN,
            "its instance died while it booted: the boot script ended with status 3",
        ),
        (
            "bad-conf",
            BROKEN,
            "its slurmd ended: error: _parse_next_key: Parsing error at unrecognized key: "
            "Slurmctl; fatal: Unable to process configuration file",
        ),
        (
            "unknown-node",
            BROKEN,
            'its slurmd ended: error: _find_node_record: lookup failure for node "other"; '
            "error: slurmd initialization failed",
        ),
        ("killed", BROKEN, "its slurmd ended: killed by SIGKILL"),
        (
            "terminated",
            RUNNING,
            "its slurmd ended: error: Unable to register: Unable to contact slurm controller "
            "(connect failure)",
        ),
        (
            "wrong-port",
            RUNNING,
            "its slurmd does not reach slurmctld: error: Unable to register: Unable to contact "
            "slurm controller (connect failure)",
        ),
        (
            "wrong-key",
            RUNNING,
            "its slurmd does not reach slurmctld: error: Unable to register: Zero Bytes were "
            "transmitted or received; its munge key or its clock is not that of the cluster",
        ),
        (
            "unknown-host",
            RUNNING,
            'its slurmd cannot resolve a name: "nowhere"; put it into /etc/hosts of its image',
        ),
    ],
)
def test_a_boot_as_slurm_22_05_fails_it_is_told_in_a_line(
    name: str, state: InstanceState, words: str
) -> None:
    told = classify(NODE, replace(INSTANCE, state=state), WAITED_FOR, recorded(name))
    assert told.words == words
    assert words.startswith(told.kind)


@pytest.mark.accepts("B13")
def test_a_boot_time_before_the_instance_began_is_told() -> None:
    seen = replace(WAITED_FOR, boot_at=EARLIER)
    told = classify(NODE, INSTANCE, seen, recorded("early"))
    assert told.kind is Trouble.EARLY
    assert told.words == (
        "it seems to have booted before it was asked for: slurmd says 2026-11-15 20:26:12 UTC, "
        "its instance began 2026-11-16 03:10:41; run slurmd with -b"
    )


def test_a_boot_time_of_a_former_life_is_not_taken_for_this_boot() -> None:
    seen = replace(WAITED_FOR, boot_at=EARLIER)
    for name in ("wrong-port", "wrong-key"):
        assert classify(NODE, INSTANCE, seen, recorded(name)).kind is Trouble.UNREACHED
    silent = "slurmd: slurmd version 24.11.5 started\n"
    assert classify(NODE, INSTANCE, WAITED_FOR, silent).kind is Trouble.UNHEARD


def test_a_boot_that_seems_a_second_early_is_told() -> None:
    """As when a second of the machine ends between slurmd's start and its registration."""
    console = recorded("early").replace("Uptime=24269", "Uptime=0")
    seen = replace(WAITED_FOR, boot_at=BEGAN_AT // 1 - 1)
    assert classify(NODE, INSTANCE, seen, console).kind is Trouble.EARLY
    assert classify(NODE, INSTANCE, replace(seen, boot_at=BEGAN_AT // 1), console).kind is (
        Trouble.UNHEARD
    )


NEW = Node("c1", "general", NodeState.REQUESTED, 3)


@pytest.mark.parametrize(
    ("node", "instance", "seen", "words"),
    [
        (
            replace(NEW, reason="the provider is full: no small left"),
            None,
            {},
            "no instance was made for it: the provider is full: no small left",
        ),
        (NEW, None, {}, "no instance was made for it: `tide events c1` tells what was done for it"),
        (NODE, None, {}, "its instance is gone: the provider does not list blue.c1.3 any more"),
        (
            NODE,
            {"state": InstanceState.DELETING},
            {},
            "its instance is gone: it is being deleted",
        ),
        (NODE, {"state": InstanceState.STOPPED}, {}, "its instance was stopped while it booted"),
        (NODE, {"state": InstanceState.PENDING}, {}, "its instance does not run yet"),
        (NODE, {"state": BROKEN}, {}, "its instance died while it booted"),
        (NODE, {}, {}, "its instance runs, but no slurmd of it has spoken"),
        (
            NODE,
            {},
            {"registered": True, "address": "10.0.0.9"},
            "slurmctld has another address of it: it registered from 10.0.0.9, "
            "its instance is at 10.77.0.5",
        ),
        (
            NODE,
            {},
            {"address": "10.0.0.9"},
            "slurmctld has another address of it: that is 10.0.0.9, its instance is at 10.77.0.5",
        ),
        (
            replace(NODE, state=NodeState.BOOTING),
            {},
            {"address": "10.0.0.9"},
            "its instance runs, but no slurmd of it has spoken",
        ),
        (NODE, {}, {"address": "c1"}, "its instance runs, but no slurmd of it has spoken"),
        (
            NODE,
            {},
            {"flags": frozenset({"INVALID_REG"}), "reason": "Low RealMemory"},
            "slurmctld refuses its registration: Low RealMemory",
        ),
    ],
)
def test_a_node_that_said_nothing_is_told_by_its_instance_and_by_slurm(
    node: Node, instance: dict[str, Any] | None, seen: dict[str, Any], words: str
) -> None:
    there = None if instance is None else replace(INSTANCE, **instance)
    assert classify(node, there, replace(WAITED_FOR, **seen), "").words == words


def test_an_instance_that_was_killed_whole_is_told_with_its_last_words() -> None:
    console = "slurmd: slurmd version 22.05.8 started\nslurmd: error: no more memory\n"
    told = classify(NODE, replace(INSTANCE, state=BROKEN), None, console)
    assert told.words == (
        "its instance died while it booted: killed, or its machine; it had said: "
        "error: no more memory"
    )


@pytest.mark.parametrize(
    ("said", "state", "words"),
    [
        (recorded("wrong-port"), RUNNING, "its instance runs"),
        (
            recorded("no-user"),
            RUNNING,
            "its instance runs: its boot script still waits for the user slurm in /etc/passwd",
        ),
        (
            f"sshd did not start: Ansible cannot log in\n{recorded('terminated')}",
            RUNNING,
            "its instance runs: sshd did not start",
        ),
        (recorded("killed"), BROKEN, "its slurmd ended: killed by SIGKILL"),
    ],
)
def test_a_node_that_nobody_could_log_in_to_is_not_blamed_on_its_slurmd(
    said: str, state: InstanceState, words: str
) -> None:
    told = classify(NODE, replace(INSTANCE, state=state), WAITED_FOR, said, shut_out=True).words
    assert told == words
    reason = f"{NO_SSH} 600 s (timing.start): port 22 of 10.77.0.5 is closed"
    assert explain(reason, told) == f"{reason}; {told}"


SECRET = "cloud-init: error: password of root is hunter2\n"
SEE = "see `tide log c1`"


@pytest.mark.parametrize(
    ("state", "more", "words"),
    [
        (RUNNING, "", f"its instance runs, but no slurmd of it has spoken: {SEE}"),
        (InstanceState.PENDING, "", f"its instance does not run yet: {SEE}"),
        (InstanceState.STOPPED, "", f"its instance was stopped while it booted: {SEE}"),
        (
            BROKEN,
            "",
            f"its instance died while it booted: killed, or its machine; {SEE}",
        ),
        (
            BROKEN,
            "the boot script ended with status 1\n",
            "its instance died while it booted: the boot script ended with status 1",
        ),
        (
            BROKEN,
            "health check failed: disk is full\nthe boot script ended with status 1\n",
            "its instance died while it booted: health check failed: disk is full",
        ),
        (
            BROKEN,
            "springtide: phase users up 3021.49\n"
            "mkdir: cannot create directory '/srv/slurm/spool/c1': Read-only file system\n"
            "the boot script ended with status 1\n",
            "its instance died while it booted: mkdir: cannot create directory "
            "'/srv/slurm/spool/c1': Read-only file system",
        ),
        (
            BROKEN,
            "chown: invalid user: 'munge'\nthe boot script ended with status 1\n",
            "its instance died while it booted: chown: invalid user: 'munge'",
        ),
        (
            BROKEN,
            "cp: cannot stat '/root/hunter2'\nall is well\nthe boot script ended with status 1\n",
            "its instance died while it booted: the boot script ended with status 1",
        ),
        (
            RUNNING,
            "Nov 16 03:10:42 c1 slurmd[12]: slurmd version 22.05.8 started\n",
            "its slurmd runs, but slurmctld has not heard from it",
        ),
        (
            RUNNING,
            "waiting for /shared to be mounted\n",
            "its boot script still waits: for /shared",
        ),
        (
            RUNNING,
            "waiting for /a\nmunged: Error: no key\n",
            "its boot script still waits: for /a; munged: Error: no key",
        ),
        (
            BROKEN,
            "slurmstepd: error: no cgroup\n",
            "its instance died while it booted: killed, or its machine; it had said: "
            "slurmstepd: error: no cgroup",
        ),
    ],
)
def test_what_other_programs_say_is_for_those_who_may_read_the_log(
    state: InstanceState, more: str, words: str
) -> None:
    """Reasons are shown to everybody: in `sinfo -R`, in events, in comments of jobs."""
    for console in (f"{SECRET}{more}", f"{more}{SECRET}"):
        told = classify(NODE, replace(INSTANCE, state=state), None, console).words
        assert told.startswith(words)
        assert "hunter2" not in told


@pytest.mark.parametrize("kind", Trouble)
def test_kinds_have_a_sign_and_no_colon_since_that_begins_what_is_particular(
    kind: Trouble,
) -> None:
    assert kind in SIGNS
    assert ":" not in kind


@pytest.mark.parametrize("state", InstanceState)
def test_whatever_it_said_the_words_are_one_printable_line_of_bearable_length(
    state: InstanceState,
) -> None:
    texts = (
        "",
        "\x00\x1b[31mslurmd: fatal:\x1b[0m \u2028 " + "x" * 5000,
        "waiting for " + "y" * 999,
    )
    for text in (*texts, "\ufffd\n" * 100, "the boot script ended with status 99999\n"):
        for seen in (None, replace(WAITED_FOR, boot_at=0.0)):
            words = classify(NODE, replace(INSTANCE, state=state), seen, text).words
            assert words.isprintable()
            assert len(words) <= LONGEST


# Reasons


def late() -> str:
    parts = SimpleNamespace(spec=parse("cluster: blue\ngroups: {g: {nodes: c1}}\n", "blue.yaml"))
    return registration._late(Work(cast(Parts, parts), Operation(1, Kind.RESUME, ("c1",)), ("c1",)))


def test_reasons_of_nodes_that_did_not_come_up_are_known_as_such() -> None:
    broken = replace(INSTANCE, state=BROKEN)
    (dead,) = decide.dead([NODE], [broken]).values()
    for reason in (late(), dead, "it did not register within ResumeTimeout"):
        assert is_failed_boot(reason)
    for reason in ("cancelled by root", "the batch system powers it down again", "the provider …"):
        assert not is_failed_boot(reason)


def test_a_deadline_is_told_with_the_cause_and_a_death_by_its_cause_alone() -> None:
    words = "its boot script still waits: for /shared to be mounted"
    assert explain(late(), words) == f"it did not register within 600 s (timing.start); {words}"
    words = "its slurmd ended: killed by SIGKILL"
    assert explain("its instance died while it booted", words) == words


def test_nodes_that_fail_alike_cost_one_call_though_each_has_its_own_particulars() -> None:
    consoles = {f"c{n}": f"waiting for /shared/{n} to be mounted\n" for n in range(3)}
    consoles["c3"] = recorded("wrong-port")
    reasons = {
        name: explain(late(), classify(NODE, INSTANCE, None, text).words)
        for name, text in consoles.items()
    }
    assert decide.alike(reasons, reasons) == [["c0", "c1", "c2"], ["c3"]]


@pytest.mark.parametrize(
    ("reason", "found", "telling"),
    [
        ("its instance died while it booted", "its instance died: disk is full", True),
        ("its instance died while it booted", "its instance died while it booted", False),
        ("it did not register within 60 s", "no slurmd spoke: see `tide log c1`", False),
        ("its boot failed: its slurmd is newer", "its instance runs, no slurmd spoke", False),
    ],
)
def test_what_was_found_takes_the_place_of_what_says_less(
    reason: str, found: str, telling: bool
) -> None:
    assert is_telling(reason, found) is telling


# The boot script


def test_the_boot_script_says_once_what_it_waits_for(tmp_path: Path) -> None:
    programs = Programs(tmp_path, tmp_path, tmp_path, "root", None, 1.0)
    conf, key = tmp_path / "slurm.conf", tmp_path / "key"
    node = SlurmNode(
        conf, tmp_path / "hosts", key, tmp_path / "socket", "control", (), "slurm", programs
    )
    with subprocess.Popen(
        ["sh", "-c", render_boot(node, "c1")], stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        try:
            assert process.stdout.readline().startswith("springtide: phase started up ")
            assert process.stdout.readline() == f"waiting for the configuration {conf}\n"
            conf.write_text("x")
            assert process.stdout.readline() == f"waiting for the munge key {key}\n"
        finally:
            process.kill()


EXECD = """\
error: can't resolve host name
error: can't get configuration from qmaster -- backgrounding
error: getting configuration: unable to send message to qmaster using port 6444 on host "head"
"""
"""Of a real one of Grid Engine 8.1.9."""
TOLD = {
    "gridengine": (
        EXECD,
        "its sge_execd runs, but sge_qmaster has not heard from it: can't get configuration from "
        "qmaster -- backgrounding; getting configuration: unable to send message to qmaster using "
        'port 6444 on host "head"',
    ),
    "gridengine's log": (
        "11/16/2026 16:41:43|  main|c1|I|starting up SGE 8.1.9 (lx-amd64)\n"
        "11/16/2026 16:41:44|  main|c1|E|there is no such host in this cell\n",
        "its sge_execd runs, but sge_qmaster has not heard from it: there is no such host in this "
        "cell",
    ),
    "gridengine's log of a host called e": (
        "11/16/2026 16:41:44|  main|e|C|abort qmaster registration\n"
        "11/16/2026 16:41:45|  main|e|I|controlled shutdown 8.1.9\n",
        "its sge_execd runs, but sge_qmaster has not heard from it: abort qmaster registration",
    ),
    "openpbs": (
        "11/16/2026 16:41:43.123456;0002;pbs_mom;Svr;Log;Log opened\n"
        "11/16/2026 16:41:44;0001;pbs_mom;Svr;pbs_mom;No such file or directory (2) in chk, x\n",
        "its pbs_mom runs, but pbs_server has not heard from it: No such file or directory (2) in "
        "chk, x",
    ),
    "torque": (
        "11/16/2026 16:41:44;0001;   pbs_mom.123;Svr;pbs_mom;LOG_ERROR::mom_server_add, head\n",
        "its pbs_mom runs, but pbs_server has not heard from it: LOG_ERROR::mom_server_add, head",
    ),
}


@pytest.mark.parametrize("kind", TOLD)
def test_what_the_daemons_of_other_batch_systems_said_is_quoted(kind: str) -> None:
    console, words = TOLD[kind]
    found = classify(NODE, INSTANCE, WAITED_FOR, f"error: password is hunter2\n{console}")
    assert found.kind is Trouble.UNHEARD
    assert voice(kind.partition("'")[0]).say(found.words) == words
