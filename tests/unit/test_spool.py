"""What the hook sends is from outside: every wrong message is refused with its reason."""

import json
from pathlib import Path
from typing import Any

import pytest

from springtide.model import Request
from springtide.spool import BadRequest, parse_request, read_spool

GOOD: dict[str, Any] = {"id": "ab", "at": 5, "nodes": "c[1-2]", "job": None, "resume_file": None}


def test_a_message_becomes_a_request() -> None:
    assert parse_request("resume", GOOD) == Request("ab", "resume", ("c1", "c2"), 5.0, ())


@pytest.mark.parametrize(
    "text",
    [
        '{"jobs":[{"job_id":1,"nodes":"c[001-002]"}],"all_nodes":"c[001-002]"}',
        '{"jobs":[{"extra":null,"job_id":1,"features":null,"nodes_alloc":"t1","nodes_resume":"t1",'
        '"oversubscribe":"NO","partition":"main","reservation":null}],"all_nodes_resume":"t1"}',
        '{"jobs":[{"job_id":1,"exclusive":false,"priority":7,"something_new":{}}],"x":[]}',
    ],
    ids=["22.05", "24.11", "26.05"],
)
def test_the_resume_files_of_all_versions_name_their_jobs(text: str) -> None:
    assert parse_request("resume", {**GOOD, "resume_file": text}).jobs == ("1",)


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
    (tmp_path / "4.json").write_text("[1]")
    read = [request for _, request in read_spool(tmp_path)]
    assert [r.id for r in read if isinstance(r, Request)] == ["first", "later"]
    assert [type(r) for r in read] == [Request, Request, BadRequest]


def test_a_link_in_the_spool_is_not_followed(tmp_path: Path) -> None:
    secret = tmp_path / "secret"
    secret.write_text(json.dumps({**GOOD, "program": "resume"}))
    spool = tmp_path / "spool"
    spool.mkdir()
    (spool / "1.json").symlink_to(secret)
    ((_, request),) = read_spool(spool)
    assert isinstance(request, BadRequest)


def test_a_spool_that_does_not_exist_yet_is_empty(tmp_path: Path) -> None:
    assert read_spool(tmp_path / "none") == []
