"""The agent of nodes that are up: what has changed since they booted, and what went wrong."""

import json

import pytest

from springtide.node import agent
from springtide.node.given import Json
from tests.unit.agent_control import Control, mount, person, team
from tests.unit.agent_world import Machine, failing, slow_is_fine

pytestmark = pytest.mark.real


@pytest.mark.accepts("A7")
def test_people_who_come_and_go_are_seen_by_a_refresh(machine: Machine, control: Control) -> None:
    before = machine.text("etc/passwd")
    machine.booted(control)
    control.welcome["users"] = {
        "users": [person("bob", 20001)],
        "sssd": "",
        "groups": [team("bob", 20001), team("lab", 20002, "bob")],
    }
    assert machine.ended(control, "refresh")[0] == 0
    assert (
        machine.text("etc/passwd")
        == f"{before}bob:x:20001:20001:bob of tests:/srv/shared/bob:/bin/sh\n"
    )
    assert machine.text("etc/group").endswith("bob:x:20001:\nlab:x:20002:bob\n")
    assert "ann" not in machine.text("etc/shadow")
    control.welcome["users"] = {"users": [], "groups": [], "sssd": ""}
    assert machine.ended(control, "refresh")[0] == 0
    assert machine.text("etc/passwd") == before


def test_members_of_a_group_that_the_image_has_come_and_go(
    machine: Machine, control: Control
) -> None:
    before = machine.text("etc/group")
    machine.write("etc/group", before + "lab:x:3000:daemon\n")
    both = [person("ann", 20000), person("bob", 20001)]
    groups = [team("lab", 3000, "ann", "bob"), team("ann", 20000), team("bob", 20001)]
    control.welcome["users"] = {"users": both, "groups": groups, "sssd": ""}
    machine.booted(control)
    assert "lab:x:3000:daemon,ann,bob\n" in machine.text("etc/group")
    groups[0]["members"] = ["bob"]
    machine.ended(control, "refresh")
    assert "lab:x:3000:daemon,bob\n" in machine.text("etc/group")
    control.welcome["users"] = {"users": [], "groups": [], "sssd": ""}
    machine.ended(control, "refresh")
    assert machine.text("etc/group") == before + "lab:x:3000:daemon\n"


def test_a_refresh_is_quiet_if_nothing_has_changed(machine: Machine, control: Control) -> None:
    machine.booted(control)
    machine.path("run/calls").unlink()
    control.welcome["mounts"] = []  # a namespace ago they were there
    assert machine.ended(control, "refresh") == (0, "")
    assert machine.calls == []


def test_a_refresh_mounts_what_is_new(machine: Machine, control: Control) -> None:
    machine.booted(control)
    machine.write("run/calls", "", 0o666)
    control.welcome["mounts"] = [mount("/srv/new")]
    assert machine.ended(control, "refresh") == (
        0,
        "springtide: mounted /srv/new from nas:/export\n",
    )
    assert machine.calls == ["mount -t nfs4 -o hard,nosuid nas:/export /srv/new"]


OLD_HOME = ("sh", "-c", 'mkdir /srv/home; mount -t tmpfs nas:/old /srv/home; exec "$@"', "sh")


def test_a_refresh_mounts_nothing_over_what_jobs_may_use_and_says_what_brings_it(
    machine: Machine, control: Control
) -> None:
    machine.booted(control)
    machine.write("run/calls", "", 0o666)
    control.welcome["mounts"] = [mount("/srv/home"), mount("/srv/new")]
    assert slow_is_fine(machine.agent(control, "refresh", first=OLD_HOME)) == 0, "nothing failed"
    assert machine.calls == ["mount -t nfs4 -o hard,nosuid nas:/export /srv/new"]
    assert control.reports()[-1]["phases"][0]["detail"] == (
        "failed: mounts: /srv/home is mounted from nas:/old, and is to be from nas:/export: "
        "`tide update n-7` starts the node afresh with it"
    )


def test_what_is_wrong_with_a_refresh_is_told_once_and_when_it_is_right_again(
    machine: Machine, control: Control
) -> None:
    machine.booted(control)
    control.asked.clear()
    control.welcome["mounts"] = []
    known = control.welcome["users"]
    control.welcome["users"] = {"users": [person("daemon", 20001)], "groups": [], "sssd": ""}
    for _ in range(2):
        assert machine.ended(control, "refresh")[0] == 1
    (told,) = control.reports()
    assert "failed" not in told, "the node is in service"
    assert told["phases"][0]["name"] == "refresh"
    assert told["phases"][0]["detail"].startswith("failed: users: the image has a user of its own")
    control.welcome["users"] = known
    assert machine.ended(control, "refresh")[0] == 0
    assert [one["detail"] for one in control.reports()[-1]["phases"]] == [""]


def test_a_refresh_asks_only_for_what_it_looks_at(machine: Machine, control: Control) -> None:
    machine.booted(control)
    control.asked.clear()
    machine.ended(control, "refresh")
    assert control.asked[0][1]["only"] == [*agent.REFRESH, "slurmd", "entry"]


def test_a_refresh_leaves_a_boot_alone_that_is_under_way(
    machine: Machine, control: Control
) -> None:
    machine.booted(control)
    machine.write("etc/unwell", "")
    failing(machine, control)
    control.welcome["users"] = {"users": [], "groups": [], "sssd": ""}
    assert slow_is_fine(machine.agent(control, "refresh")) == 0
    assert "ann" in machine.text("etc/passwd")


def test_a_failure_can_be_told_later(machine: Machine, control: Control) -> None:
    machine.booted(control)
    assert machine.ended(control, "report-failure", "the", "disk", "broke")[0] == 0
    assert control.failures() == ["the disk broke"]


def test_a_machine_that_never_joined_says_so(machine: Machine, control: Control) -> None:
    code, said = machine.ended(control, "refresh")
    assert (code, control.asked) == (1, [])
    assert "this machine has not joined a cluster" in said


WITH_PEOPLE = ("sh", "-c", 'exec "$@" </etc/people 2>/etc/refused', "sh")


def test_people_can_be_given_to_a_machine_that_never_joined(
    machine: Machine, control: Control
) -> None:
    before = machine.text("etc/passwd")

    def given(*people: Json) -> int:
        part = {"users": people, "groups": [team(one["name"], one["uid"]) for one in people]}
        machine.write("etc/people", json.dumps(part))
        return slow_is_fine(machine.agent(control, "users", first=WITH_PEOPLE))

    assert given(person("ann", 20000)) == 0
    assert "ann:x:20000:20000:" in machine.text("etc/passwd")
    assert given(person("daemon", 20001)) == 1
    assert "the image has a user of its own, daemon (1)" in machine.text("etc/refused")
    assert given() == 0
    assert machine.text("etc/passwd") == before
    assert control.asked == []
