"""Runs of Ansible on hosts that are this machine, each ended early in its own way."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from springtide.configure import ansible_run
from springtide.configure.ansible_events import GIVEN_UP, Course
from springtide.configure.ansible_inventory import END, render_whole
from springtide.configure.ansible_run import Job

pytestmark = [pytest.mark.real, pytest.mark.timeout(400)]

HOSTS = ("n1", "n2", "n3")
HERE = {"ansible_connection": "local", "ansible_python_interpreter": "/usr/bin/python3"}
FAIL = {"name": "Fail on one", "ansible.builtin.fail": {}, "when": "inventory_hostname == 'n1'"}
HANG = {
    "name": "Hang on one",
    "ansible.builtin.command": {"argv": ["sleep", "600"]},
    "when": "inventory_hostname == 'n1'",
}


def play(task: dict[str, Any], **more: Any) -> dict[str, Any]:
    return {"hosts": "all", "gather_facts": False, "tasks": [task], **more}


def course(place: Path, plays: Sequence[dict[str, Any]], limit_s: float = 200.0) -> Course:
    """Of a run whose only playbook of the site has these plays."""
    hosts = dict.fromkeys(HOSTS, HERE)
    job = Job(place / "run-1", place / "i.json", place / "whole.yml", 5, limit_s)
    job.place.mkdir()
    job.inventory.write_text(json.dumps({"all": {"children": {"tide_nodes": {"hosts": hosts}}}}))
    (place / "site.yml").write_text(json.dumps(plays))
    job.playbook.write_text(json.dumps(render_whole([place / "site.yml"], [], [])))
    found = Course()
    ansible_run.run(job, found.feed, lambda: False)
    return found


def test_nodes_that_a_playbook_gave_up_for_another_are_not_configured(tmp_path: Path) -> None:
    done = course(tmp_path, [play(FAIL, any_errors_fatal=True), play({"meta": "noop"})])
    fallen = done.fallen(HOSTS, "")
    assert fallen.pop("n1").startswith("task Fail on one: ")
    assert fallen == {"n2": GIVEN_UP, "n3": GIVEN_UP}


def test_a_task_that_hangs_on_one_node_fails_there_and_nowhere_else(tmp_path: Path) -> None:
    done = course(tmp_path, [play(HANG)], limit_s=120.0)
    assert list(done.fallen(HOSTS, "")) == ["n1"]
    assert "Timed out after 60 second(s)" in done.failed["n1"]


def test_a_run_sees_and_keeps_little_of_our_environment(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CLOUD_PASSWORD", "hush-hush")
    look = {"name": "Look", "ansible.builtin.command": {"argv": ["printenv", "CLOUD_PASSWORD"]}}
    done = course(tmp_path, [play(look)])
    assert {host: "non-zero return code" in why for host, why in done.failed.items()} == (
        dict.fromkeys(HOSTS, True)
    )
    texts = [path.read_text(errors="replace") for path in tmp_path.rglob("*") if path.is_file()]
    assert any(END in text for text in texts)
    assert not [text for text in texts if "hush-hush" in text]
