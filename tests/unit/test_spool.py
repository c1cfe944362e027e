"""What the hook sends is from outside: every wrong message is refused with its reason."""

import json
import os
import resource
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from springtide.model import Request
from springtide.spool import (
    MAX_FILE,
    MAX_WIDE,
    BadRequest,
    Spool,
    parse_request,
    read_request,
    reason,
)

GOOD: dict[str, Any] = {"id": "ab", "at": 5, "nodes": "c[1-2]", "job": None, "resume_file": None}


def test_a_message_becomes_a_request() -> None:
    assert parse_request("resume", GOOD) == Request("ab", "resume", ("c1", "c2"), 5.0, ())


FILES = {
    "22.05": '{"jobs":[{"job_id":1,"nodes":"c[001-002]"}],"all_nodes":"c[001-002]"}',
    "24.11": '{"jobs":[{"extra":null,"job_id":1,"features":null,"nodes_alloc":"c[001-002]",'
    '"nodes_resume":"c001","oversubscribe":"NO","partition":"main","reservation":null}],'
    '"all_nodes_resume":"c001"}',
    "26.05": '{"jobs":[{"extra":null,"job_id":1,"exclusive":false,"features":null,"priority":7,'
    '"nodes_alloc":"c[001-002]","nodes_resume":"c[001-002]","oversubscribe":"NO",'
    '"partition":"main","reservation":null,"something_new":{}}],"all_nodes_resume":"c[001-002]"}',
}
"""Resume files as Slurm of these versions writes them."""


@pytest.mark.parametrize("version", FILES)
def test_the_resume_files_of_all_versions_name_their_jobs(version: str) -> None:
    request = parse_request("resume", {**GOOD, "resume_file": FILES[version]})
    assert request.jobs == ("1",)
    assert request.wide == {"1": "c[001-002]"}


def test_jobs_of_several_nodes_are_told_apart() -> None:
    lists = {"1": "c[1-3,2]", "2": "c4", "3": "c[4-4]", "4": "d5,c6,c6", "5": "c[1", "6": 7}
    listed = [{"job_id": int(id), "nodes": nodes} for id, nodes in lists.items()]
    listed += [{"job_id": 7}, {"job_id": 8, "nodes": None}, {"job_id": 9, "nodes_alloc": ["c1"]}]
    request = parse_request("resume", {**GOOD, "resume_file": json.dumps({"jobs": listed})})
    assert request.jobs == tuple("123456789")
    assert request.wide == {"1": "c[1-3]", "4": "c6,d5"}


def test_lists_that_stand_for_very_many_nodes_are_passed_over() -> None:
    lists = ["c[1-60000]"] * 4 + ["c[1-999999999]"] + ["d[1-2]"] * MAX_WIDE
    listed = [{"job_id": id, "nodes": nodes} for id, nodes in enumerate(lists, 1)]
    request = parse_request("resume", {**GOOD, "resume_file": json.dumps({"jobs": listed})})
    assert len(request.jobs) == len(lists)
    assert len(request.wide) == MAX_WIDE
    assert "4" not in request.wide, "three have all that is allowed together"
    assert "5" not in request.wide


@pytest.mark.parametrize("text", ["", "{", "[]", '{"jobs": 5}', '{"jobs": [{}]}', '{"jobs": [3]}'])
def test_a_strange_resume_file_costs_only_the_job_ids(text: str) -> None:
    request = parse_request("resume", {**GOOD, "resume_file": text})
    assert request.nodes == ("c1", "c2")
    assert request.jobs == ()


def test_a_reboot_job_is_known_by_its_id() -> None:
    assert parse_request("resume", {**GOOD, "job": "17"}).jobs == ("17",)


@pytest.mark.parametrize(
    ("program", "change", "said"),
    [
        ("launch", {}, "no program 'launch'"),
        ("resume", {"id": None}, "no id"),
        ("resume", {"id": "x" * 65}, "no id"),
        ("resume", {"at": "now"}, "no time"),
        ("resume", {"nodes": None}, "names no nodes"),
        ("resume", {"nodes": ""}, "empty"),
        ("resume", {"nodes": "c[1-2"}, "c[1-2"),
        ("resume", {"nodes": "c1; reboot"}, "c1; reboot"),
        ("resume", {"nodes": "c[1-999999999]"}, "c[1-999999999]"),
    ],
)
def test_a_wrong_message_is_refused(program: str, change: dict[str, Any], said: str) -> None:
    with pytest.raises(BadRequest) as refused:
        parse_request(program, {**GOOD, **change})
    assert said in str(refused.value)


def test_the_spool_is_read_oldest_first_and_half_written_files_are_left(tmp_path: Path) -> None:
    (tmp_path / "2.json").write_text(json.dumps({**GOOD, "id": "later", "program": "suspend"}))
    (tmp_path / "1.json").write_text(json.dumps({**GOOD, "id": "first", "program": "resume"}))
    (tmp_path / ".3.json").write_text("{half")
    read = [read_request(path) for path in Spool(tmp_path).files()]
    assert [request.id for request in read] == ["first", "later"]


def link(path: Path) -> None:
    secret = path.with_name("secret")
    secret.write_text(json.dumps({**GOOD, "program": "resume"}))
    path.symlink_to(secret)


def large(path: Path) -> None:
    with path.open("wb") as file:
        file.truncate(MAX_FILE + 1)


def message(**change: Any) -> Callable[[Path], object]:
    text = json.dumps({**GOOD, "program": "resume", **change})
    return lambda path: path.write_text(text)


STRANGE: dict[str, Callable[[Path], object]] = {
    "a directory": Path.mkdir,
    "a full directory": lambda path: (path / "x").mkdir(parents=True),
    "a pipe": os.mkfifo,
    "a link": link,
    "a large file": large,
    "no text": lambda path: path.write_bytes(b"\xff\xfe"),
    "no object": lambda path: path.write_text("[1]"),
    "nested": lambda path: path.write_text("[" * 200_000),
    "surrogates as id": message(id="\ud800"),
    "control characters as id": message(id="\x1b[2J"),
    "no time": message(at=float("nan")),
    "no end": message(at=float("inf")),
    "a huge time": message(at=10**400),
    "a strange program": message(program="\ud800"),
}


@pytest.mark.parametrize("what", STRANGE)
def test_what_is_no_request_is_refused_and_out_of_the_way(tmp_path: Path, what: str) -> None:
    spool = Spool(tmp_path)
    STRANGE[what](tmp_path / "1.json")
    (path,) = spool.files()
    with pytest.raises(BadRequest, match=r"1\.json") as refused:
        read_request(path)
    reason(refused.value).encode()
    spool.remove(path)
    assert spool.files() == []


def test_a_file_whose_name_is_no_text_is_told_in_text(tmp_path: Path) -> None:
    (tmp_path / os.fsdecode(b"\xff.json")).write_text("")
    (path,) = Spool(tmp_path).files()
    with pytest.raises(BadRequest) as refused:
        read_request(path)
    assert r"\udcff.json" in reason(refused.value)


def test_a_machine_in_trouble_is_not_the_file_s_fault(tmp_path: Path) -> None:
    message()(tmp_path / "1.json")
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (3, hard))
    try:
        with pytest.raises(OSError, match="Too many open files"):
            read_request(tmp_path / "1.json")
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    assert read_request(tmp_path / "1.json").id == "ab"


def test_each_trouble_is_news_once(tmp_path: Path) -> None:
    spool = Spool(tmp_path)
    said = ["disk full", "disk full", "gone", "disk full"]
    assert [spool.is_news("1.json", text) for text in said] == [True, False, True, True]


def test_a_spool_that_does_not_exist_yet_is_empty(tmp_path: Path) -> None:
    assert Spool(tmp_path / "none").files() == []


@pytest.mark.parametrize(
    "text",
    ["[" * 200_000, '{"jobs": [{"job_id": 1e400}]}', f'{{"jobs": [{{"job_id": {10**40}}}]}}'],
)
def test_a_hostile_resume_file_costs_only_the_job_ids(text: str) -> None:
    assert parse_request("resume", {**GOOD, "resume_file": text}).jobs == ()
