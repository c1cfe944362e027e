"""What `tide check` says of Grid Engine's queues."""

from pathlib import Path

import pytest

from springtide.batch.gridengine import GridEngineQueue
from springtide.batch.gridengine_conf import parse_queues, parse_settings
from springtide.cli.checks import ALL
from springtide.cli.gridengine_checks import (
    decide_checks,
    decide_reports,
    decide_unheard,
    look_at_queues,
    look_at_unheard,
)
from springtide.cli.subject import Check, subject
from springtide.spec import parse

QUEUE = """\
qname                 {name}
hostlist              @cloud
load_thresholds       {limit}
pe_list               NONE
slots                 1
qtype                 BATCH
"""
TEXT = """\
cluster: hy
state: {place}/state
batch: {{kind: gridengine, bin: {place}}}
groups: {{g: {{nodes: "c[1-2]"}}}}
partitions: {{cloud.q: {{groups: [g]}}}}
"""


def queues(**limits: str) -> str:
    return "\n".join(QUEUE.format(name=f"{name}.q", limit=limit) for name, limit in limits.items())


@pytest.mark.parametrize("limit", ["np_load_avg=1.75", "NONE,[n1=np_load_avg=1.75]"])
def test_queues_that_keep_jobs_from_loaded_nodes_are_told(limit: str) -> None:
    """rule 10"""
    shown = parse_queues(queues(cloud=limit, all="np_load_avg=1.75"))
    (check,) = decide_checks(shown, ["cloud.q"])
    assert check.ok is None, "a warning"
    assert check.text.startswith(
        f"cloud.q gives no jobs to a node that is loaded (load_thresholds {limit})"
    )
    assert check.todo == "run `qconf -rattr queue load_thresholds NONE cloud.q`"


def test_queues_of_others_and_those_in_order_are_not_told() -> None:
    shown = parse_queues(queues(cloud="NONE", all="np_load_avg=1.75"))
    assert list(decide_checks(shown, ["cloud.q", "missing.q"])) == []


def test_qmaster_is_asked(tmp_path: Path) -> None:
    (tmp_path / "said").write_text(queues(cloud="NONE"))
    for name in GridEngineQueue.programs:
        (tmp_path / name).write_text(f'#!/bin/sh\n[ "$*" = "-sq *" ] && cat {tmp_path}/said\n')
        (tmp_path / name).chmod(0o755)
    asked = subject(parse(TEXT.format(place=tmp_path), "cluster.yaml"))
    (done,) = look_at_queues(asked)
    assert done == Check("Grid Engine's queues", True, "nodes take jobs however loaded: cloud.q")
    assert look_at_queues in ALL
    other = TEXT.format(place=tmp_path).replace("cloud.q", "clod.q")
    assert list(look_at_queues(subject(parse(other, "cluster.yaml")))) == []
    (tmp_path / "qconf").write_text("#!/bin/sh\nexit 1\n")
    assert list(look_at_queues(asked)) == []


CONF = """\
#global:
execd_spool_dir              /var/spool/gridengine/execd
load_report_time             00:00:40
max_unheard                  {max_unheard}
loglevel                     log_warning
"""


@pytest.mark.parametrize(
    ("value", "ok"),
    [("00:05:00", None), ("600", None), ("00:02:00", True), ("00:01:00", True), ("90", True)],
)
def test_a_cell_that_notices_dead_nodes_late_is_told(value: str, ok: bool | None) -> None:
    """rule 10"""
    (check,) = decide_unheard(parse_settings(CONF.format(max_unheard=value)))
    assert (check.name, check.ok, value in check.text) == ("max_unheard", ok, True)
    assert ("`qconf -mconf`" in check.todo) is (ok is None)


def test_a_cell_that_does_not_say_it_is_not_told() -> None:
    assert list(decide_unheard(parse_settings("#global:\nloglevel log_info\n"))) == []
    assert list(decide_unheard([])) == []
    assert list(decide_reports([])) == []


@pytest.mark.parametrize(
    ("value", "told"),
    [("00:00:01", True), ("10", True), ("00:00:12", False), ("00:00:40", False)],
)
def test_a_cell_whose_nodes_may_miss_that_jobs_are_deleted_is_told(value: str, told: bool) -> None:
    checks = list(decide_reports(parse_settings(f"#global:\nload_report_time {value}\n")))
    assert [(one.name, one.ok, value in one.text) for one in checks] == (
        [("load_report_time", None, True)] if told else []
    )


def test_qmaster_is_asked_for_it(tmp_path: Path) -> None:
    (tmp_path / "said").write_text(CONF.format(max_unheard="00:05:00"))
    for name in GridEngineQueue.programs:
        (tmp_path / name).write_text(f'#!/bin/sh\n[ "$*" = -sconf ] && cat {tmp_path}/said\n')
        (tmp_path / name).chmod(0o755)
    asked = subject(parse(TEXT.format(place=tmp_path), "cluster.yaml"))
    (told,) = look_at_unheard(asked)
    assert told.ok is None
    assert look_at_unheard in ALL
    (tmp_path / "qconf").write_text("#!/bin/sh\nexit 1\n")
    assert list(look_at_unheard(asked)) == []
    assert list(look_at_unheard(subject(parse("cluster: c\n", "cluster.yaml")))) == []
