"""Slurm's output as real slurmctlds printed it, and in the shapes of newer versions."""

from datetime import UTC, datetime
from itertools import product
from pathlib import Path

import pytest

from springtide.batch.slurm_commands import Commands
from springtide.batch.slurm_reason import SLURM, SOMEBODY, read, write
from springtide.batch.slurm_text import (
    error_text,
    last_errors,
    one_line,
    parse_jobs,
    parse_nodes,
    parse_past_job,
    parse_state,
    parse_version,
    power_of,
    powered_down,
    release,
)
from springtide.batch.unread import UnreadableError
from springtide.ports import OURS, BatchNode, Job, Power, Unavailable

RECORDED = Path(__file__).parents[1] / "recorded"


def recorded(name: str) -> str:
    return (RECORDED / name).read_text()


@pytest.fixture(scope="module")
def nodes() -> dict[str, BatchNode]:
    return parse_nodes(recorded("slurm-22.05.8__scontrol-o-show-nodes.out"))


@pytest.fixture(scope="module")
def powered() -> dict[str, BatchNode]:
    return parse_nodes(recorded("slurm-22.05.8__scontrol-o-show-nodes_power.out"))


@pytest.fixture(scope="module")
def newer() -> dict[str, BatchNode]:
    return parse_nodes(recorded("slurm-24.11.5__scontrol-o-show-nodes_by-hand.out"))


# Nodes


def test_a_node_in_use_is_up_and_registered(nodes: dict[str, BatchNode]) -> None:
    assert nodes["sn1"] == BatchNode(
        "sn1",
        state="ALLOCATED",
        power=Power.UP,
        registered=True,
        address="sn1",
        boot_at=1794764171.0,
        busy=True,
        busy_at=1794768011.0,
    )


def test_a_node_that_never_reported_is_not_registered(nodes: dict[str, BatchNode]) -> None:
    assert nodes["sn2"].state == "UNKNOWN"
    assert not nodes["sn2"].registered
    assert nodes["sn2"].boot_at is None


def test_a_booting_node_with_a_job_is_going_up(nodes: dict[str, BatchNode]) -> None:
    assert nodes["sn3"].power is Power.GOING_UP
    assert nodes["sn3"].flags == {"CLOUD", "NOT_RESPONDING", "POWERING_UP"}
    assert not nodes["sn3"].registered


def test_power_is_read_from_the_flags(powered: dict[str, BatchNode]) -> None:
    assert {name: node.power for name, node in powered.items()} == {
        "c01": Power.GOING_UP,
        "c02": Power.GOING_UP,
        "c03": Power.DOWN,
        "c04": Power.GOING_UP,
        "c05": Power.GOING_DOWN,
        "c06": Power.DOWN,
        "c07": Power.GOING_UP,
        "c08": Power.GOING_UP,
        "c09": Power.GOING_DOWN,
        "c10": Power.DOWN,
        "c11": Power.GOING_UP,
        "c12": Power.DOWN,
    }
    assert not any(node.registered for node in powered.values())


def test_a_reason_is_read_without_who_set_it_and_when(powered: dict[str, BatchNode]) -> None:
    assert powered["c05"].reason == "springtide: the provider is full: no | host"
    assert powered["c06"].reason == "Not responding"
    assert powered["c10"].reason == ""


def test_a_reason_that_looks_like_a_field_is_only_a_reason(powered: dict[str, BatchNode]) -> None:
    assert powered["c03"].reason == "disk = broken; see [RT 42] State=DOWN"
    assert powered["c03"].state == "IDLE"


DATE = "2026-11-16T00:04:13"
STALE = "disk (by alice) : reboot issued"


@pytest.mark.parametrize(
    ("state", "reason", "words", "owner"),
    [
        ("IDLE+DRAIN", f"disk [root@{DATE}]", "disk", "root"),
        ("IDLE+DRAIN", f"GPU: xid (79) [bob@{DATE}]", "GPU: xid (79)", "bob"),
        ("IDLE+DRAIN", f"disk (by alice) [root@{DATE}]", "disk", "alice"),
        ("IDLE+DRAIN", f"(by alice) [root@{DATE}]", "", "alice"),
        ("IDLE+DRAIN", f"springtide: rebuild (by x) [root@{DATE}]", "springtide: rebuild", OURS),
        ("IDLE+DRAIN", f"Kill task failed [root@{DATE}]", "Kill task failed", SLURM),
        ("IDLE+DRAIN", f"Low RealMemory [slurm@{DATE}]", "Low RealMemory", SLURM),
        ("DOWN", f"Not responding [slurm@{DATE}]", "Not responding", SLURM),
        ("ALLOCATED+DRAIN+POWER_DOWN", "", "", SLURM),
        ("IDLE+DRAIN", "", "", SOMEBODY),
        ("IDLE+DRAIN", f"disk (by bob) : reboot issued [slurm@{DATE}]", "disk", "bob"),
        ("IDLE+DRAIN", f"disk : reboot issued [slurm@{DATE}]", "disk", SOMEBODY),
        ("IDLE+DRAIN", f"springtide: r : reboot issued [slurm@{DATE}]", "springtide: r", OURS),
        (
            "DOWN",
            f"disk (by bob) : reboot issued : reboot timed out [slurm@{DATE}]",
            "disk : reboot timed out",
            "bob",
        ),
        ("IDLE+POWERING_DOWN", f"disk (by alice, drained) [root@{DATE}]", "disk", "alice"),
        # 24.11 keeps the reason of a drain that alice has ended.
        ("IDLE+POWERING_DOWN", f"disk (by alice) [root@{DATE}]", "disk (by alice)", None),
        ("IDLE", f"disk (by alice) : reboot issued [slurm@{DATE}]", STALE, None),
        ("IDLE+DRAIN", f"disk (by alice, drained) [root@{DATE}]", "disk", "alice"),
        ("IDLE+POWERING_DOWN", f"cleaning up [root@{DATE}]", "cleaning up", None),
        ("IDLE", "", "", None),
    ],
)
def test_the_reason_tells_whose_wish_it_is(
    state: str, reason: str, words: str, owner: str | None
) -> None:
    tail = f" Reason={reason}" if reason else ""
    node = parse_nodes(f"NodeName=a State={state}{tail}")["a"]
    assert (node.reason, node.owner) == (words, owner)


@pytest.mark.accepts("X9")
@pytest.mark.parametrize(
    ("reason", "user", "owner"),
    [
        ("Kill task failed, do not touch [alice@{}]", "slurm", "alice"),
        ("Kill task failed, do not touch [root@{}]", "slurm", "root"),
        ("Kill task failed [alice@{}]", "slurm", "alice"),
        ("Prolog error: looking into it (by alice) [root@{}]", "slurm", "alice"),
        ("Kill task failed (by alice) [root@{}]", "slurm", "alice"),
        ("disk (by alice), Low RealMemory [slurm@{}]", "slurm", "alice"),
        ("health check failed yesterday, keep for vendor (by bob) [root@{}]", "slurm", "bob"),
        ("health check failed yesterday, keep for vendor [root@{}]", "slurm", "root"),
        ("Low RealMemory, vendor is coming [root@{}]", "root", "root"),
        ("bad fan [root@{}]", "root", "root"),
        ("bad fan : reboot issued [root@{}]", "root", "root"),
    ],
)
def test_a_persons_drain_is_never_taken_for_slurms(reason: str, user: str, owner: str) -> None:
    line = f"NodeName=a State=IDLE+CLOUD+DRAIN Reason={reason.format(DATE)}"
    assert parse_nodes(line, user)["a"].owner == owner


@pytest.mark.parametrize("user", ["slurm", "root"])
@pytest.mark.parametrize(
    "reason",
    [
        "Duplicate jobid",
        "Epilog error",
        "Kill task failed",
        "Kill task failed : reboot issued",
        "Low CPUs",
        "Low RealMemory (reported:400 < 100.00% of configured:512)",
        "Low socket*core*thread count, Low CPUs",
        "Low TmpDisk, Low RealMemory (reported:1 < 100.00% of configured:5)",
        "Not responding",
        "gres/gpu count reported lower than configured (0 < 8)",
        "gres/gpu:a100 count too low (0 < 8)",
        "health check failed: too hot",
    ],
)
def test_what_slurm_says_as_root_or_as_itself_is_slurms(reason: str, user: str) -> None:
    for setter in {"root", user}:
        line = f"NodeName=a State=IDLE+CLOUD+DRAIN Reason={reason} [{setter}@{DATE}]"
        assert parse_nodes(line, user)["a"].owner == SLURM


@pytest.mark.parametrize("owner", [OURS, SLURM, "alice", "j.doe@site"])
def test_a_reason_that_is_written_is_read_again(owner: str) -> None:
    words, found = read(write("disk: broken (twice)", owner), "slurm")
    assert (words.removeprefix("springtide: "), found) == ("disk: broken (twice)", owner)


def test_nobody_has_a_name_that_could_not_be_read_again() -> None:
    with pytest.raises(Unavailable, match="is no name of somebody"):
        write("disk", "a) (by b")


def test_the_drain_of_a_reboot_that_slurm_ends_itself_is_slurms() -> None:
    """24.11 calls it UNDRAIN."""
    line = "NodeName=a State={} NextState={} Reason={} [root@2026-11-16T00:04:13]"
    states = ("IDLE+DRAIN+REBOOT_REQUESTED", "DOWN+DRAIN+REBOOT_ISSUED")
    for state, then in product(states, ("RESUME", "UNDRAIN")):
        shown = parse_nodes(line.format(state, then, "new kernel : reboot issued"))["a"]
        assert (shown.owner, shown.reason) == (SLURM, "new kernel")
        assert parse_nodes(line.format(state, then, "springtide: r"))["a"].owner == OURS


def test_another_user_than_slurm_may_be_slurm() -> None:
    line = f"NodeName=a State=IDLE+DRAIN Reason=Low RealMemory [batch@{DATE}]"
    assert parse_nodes(line)["a"].owner == "batch"
    assert parse_nodes(line, "batch")["a"].owner == SLURM


@pytest.mark.parametrize(
    ("state", "busy", "drained"),
    [
        ("IDLE+CLOUD", False, False),
        ("ALLOCATED+CLOUD+DRAIN", True, True),
        ("MIXED+CLOUD", True, False),
        ("IDLE+CLOUD+COMPLETING+DRAIN", True, True),
        ("IDLE+CLOUD+DRAIN+POWERED_DOWN", False, True),
    ],
)
def test_busy_and_drained_are_read_from_the_state(state: str, busy: bool, drained: bool) -> None:
    node = parse_nodes(f"NodeName=a State={state}")["a"]
    assert (node.busy, node.drained) == (busy, drained)


def test_fields_and_flags_of_newer_versions_are_tolerated(newer: dict[str, BatchNode]) -> None:
    assert newer["t001"].registered
    assert newer["t001"].address == "10.77.1.2"
    assert newer["t002"].power is Power.GOING_UP
    assert "SOMETHING_NEW" in newer["t002"].flags
    assert newer["t003"].state == "DOWN"
    assert newer["t003"].reason == "Low RealMemory (reported:400 < 100.00% of configured:512)"


def test_a_reason_without_a_date_ends_at_the_next_field() -> None:
    line = "NodeName=a State=DOWN Reason=bad [one] thing Comment=none of it"
    assert parse_nodes(line)["a"].reason == "bad [one] thing"


@pytest.mark.parametrize("odd", ["\r", "\x0b", "\x0c", "\x1e", "\x85", "\u2028"])
def test_a_reason_may_hold_whatever_ends_a_line_elsewhere(odd: str) -> None:
    """Or one word that an admin pasted would hide all nodes."""
    line = f"NodeName=a State=IDLE+DRAIN Reason=disk{odd}broken [root@{DATE}]"
    shown = parse_nodes(f"{line}\nNodeName=b State=IDLE\n")
    assert shown.keys() == {"a", "b"}
    assert shown["a"].reason == f"disk{odd}broken"


def test_nothing_that_slurm_prints_is_taken_for_another_line(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (tmp_path / "scontrol").write_text("#!/bin/sh\nprintf 'disk\\rbroken\\r\\n'\n")
    (tmp_path / "scontrol").chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    assert Commands(tmp_path, "").checked(["scontrol"]).stdout == "disk\rbroken\r\n"


def test_no_nodes_is_an_answer() -> None:
    assert parse_nodes("No nodes in the system\n") == {}
    assert parse_nodes("") == {}


def test_nodes_that_slurm_does_not_know_are_left_out() -> None:
    assert parse_nodes("Node x not found\nNodeName=a State=IDLE\n").keys() == {"a"}


@pytest.mark.parametrize("text", ["garbage", "NodeName=a Arch=x86_64", "NodeName= State=IDLE"])
def test_garbage_is_no_answer(text: str) -> None:
    with pytest.raises(UnreadableError, match="scontrol printed"):
        parse_nodes(text)


@pytest.mark.parametrize(
    ("text", "base", "flags"),
    [
        ("IDLE+CLOUD+POWERED_DOWN", "IDLE", {"CLOUD", "POWERED_DOWN"}),
        ("DOWN*+DRAIN", "DOWN", {"DRAIN"}),
        ("IDLE~", "IDLE", set()),
        ("allocated#", "ALLOCATED", set()),
        ("MIXED-", "MIXED", set()),
        ("IDLE@+CLOUD$", "IDLE", {"CLOUD"}),
    ],
)
def test_states_are_read_with_any_marks_behind_them(text: str, base: str, flags: set[str]) -> None:
    assert parse_state(text) == (base, frozenset(flags))


@pytest.mark.parametrize(
    ("text", "power"),
    [
        ("IDLE", Power.UP),
        ("IDLE+CLOUD", Power.UP),
        ("DOWN+CLOUD+NOT_RESPONDING", Power.UP),
        ("IDLE+CLOUD+POWERED_DOWN", Power.DOWN),
        ("DOWN+CLOUD+POWERED_DOWN", Power.DOWN),
        ("IDLE+CLOUD+POWER_UP+POWERED_DOWN", Power.GOING_UP),
        ("ALLOCATED+CLOUD+POWERED_DOWN+NOT_RESPONDING", Power.GOING_UP),
        ("IDLE+CLOUD+POWER_DOWN+NOT_RESPONDING+POWERING_UP", Power.GOING_UP),
        ("IDLE+CLOUD+POWER_DOWN", Power.GOING_DOWN),
        ("IDLE+CLOUD+POWER_DOWN+NOT_RESPONDING", Power.GOING_DOWN),
        ("ALLOCATED+CLOUD+DRAIN+POWER_DOWN", Power.UP),
        ("IDLE+CLOUD+COMPLETING+DRAIN+POWER_DOWN", Power.UP),
        ("IDLE+CLOUD+POWERING_DOWN", Power.GOING_DOWN),
    ],
)
def test_what_has_begun_counts_before_what_was_asked_for(text: str, power: Power) -> None:
    assert power_of(*parse_state(text)) is power


@pytest.mark.parametrize(
    ("state", "registered"),
    [
        ("IDLE+CLOUD", True),
        ("MIXED+CLOUD+PLANNED", True),
        ("IDLE+CLOUD+DRAIN", True),
        ("IDLE+CLOUD+REBOOT_REQUESTED", True),
        ("IDLE+CLOUD+REBOOT_ISSUED", False),
        ("IDLE+CLOUD+NOT_RESPONDING", False),
        ("IDLE*+CLOUD+NOT_RESPONDING", False),
        ("DOWN+CLOUD", False),
        ("UNKNOWN", False),
        ("FUTURE", False),
        ("IDLE+CLOUD+INVALID_REG", False),
        ("IDLE+CLOUD+POWERED_DOWN", False),
    ],
)
def test_only_a_node_that_can_work_now_counts_as_registered(state: str, registered: bool) -> None:
    assert parse_nodes(f"NodeName=a State={state}")["a"].registered is registered


def test_hidden_nodes_are_shown_as_slurm_would(powered: dict[str, BatchNode]) -> None:
    hidden = powered_down(["c10"])["c10"]
    assert (hidden.state, hidden.flags) == (powered["c10"].state, powered["c10"].flags)
    assert hidden.power is powered["c10"].power


# Jobs


def test_jobs_have_their_own_ids_and_nothing_is_cut() -> None:
    jobs = {job.id: job for job in parse_jobs(recorded("slurm-22.05.8__squeue-springtide.out"))}
    assert jobs["1"].configuring
    assert (jobs["1"].nodes, jobs["1"].node_count, jobs["1"].user) == ("c[01-02]", 2, "nobody")
    assert jobs["6"].configuring, "a task of an array that has started"
    assert (jobs["3"].state, jobs["3"].reason) == ("PENDING", "Resources")
    assert jobs["5"].reason.endswith("reserved for jobs in higher priority partitions")
    assert jobs["5"].nodes == ""
    assert jobs["1"].reason == ""


def test_an_empty_queue_is_an_answer() -> None:
    assert parse_jobs("") == []


def test_a_job_that_is_over_tells_when_it_ended() -> None:
    rows = (
        "2026-11-15T12:00:01|8|COMPLETED|ann|p|1|c1|None",
        "N/A|7|PENDING|ann|p|1||Resources",
        "2026-11-15T12:00:05|9|FAILED|ann|p|1|c2|NonZero|ExitCode",
    )
    text = "\n".join(rows)
    end = datetime(2026, 11, 15, 12, 0, 5, tzinfo=UTC).timestamp()
    assert parse_past_job(text, "9") == Job(
        "9", "FAILED", "ann", "p", "c2", 1, "NonZero|ExitCode", ended_at=end
    )
    assert parse_past_job(text, "7") == Job("7", "PENDING", "ann", "p", "", 1, "Resources")
    assert parse_past_job(text, "6") is None


@pytest.mark.parametrize(
    "text", ["error: no", "1|PENDING", "x|RUNNING|u|p|1|a|None", "1|R|u|p||a|"]
)
def test_garbage_is_no_queue(text: str) -> None:
    with pytest.raises(UnreadableError, match="squeue printed"):
        parse_jobs(text)


# Versions, errors and free text


def test_versions_are_read_from_what_commands_print() -> None:
    assert parse_version(recorded("slurm-22.05.8__slurm-version.out")) == "22.05.8"
    assert parse_version("slurm 24.11.5-1\n") == "24.11.5-1"
    assert release("22.05.8") == (22, 5)
    assert release("26.05") == (26, 5)
    with pytest.raises(UnreadableError, match="no version"):
        parse_version("command not found")


def test_an_error_is_one_line_without_the_name_of_the_program() -> None:
    text = "scontrol: error: Parse error in line 28\nscontrol: fatal: Unable to process\n"
    assert error_text(text) == "Parse error in line 28; Unable to process"


def test_the_last_errors_of_a_log_say_why_it_died() -> None:
    log = (
        "[2026-11-15T20:51:11.142] error: Configured MailProg is invalid\n"
        "[2026-11-15T20:51:11.142] slurmctld version 22.05.8 started\n"
        "[2026-11-15T20:51:11.143] error: cannot find plugin\n"
        "[2026-11-15T20:51:11.143] fatal: No PartitionName information available!\n"
    )
    found = "error: cannot find plugin; fatal: No PartitionName information available!"
    assert last_errors(log, 2) == found
    assert last_errors("munged: Error: Failed to check keyfile\n") == "Failed to check keyfile"
    assert last_errors("it said\ngood bye\n") == "it said; good bye"
    assert last_errors("") == ""


def test_free_text_becomes_one_short_line() -> None:
    assert one_line("full:\n\tno \x1b[31mhost\x00", 100) == "full: no [31mhost"
    assert len(one_line("x" * 1000, 200)) == 200
