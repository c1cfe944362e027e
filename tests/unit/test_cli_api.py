"""docs/api.md is what the daemon answers, and what --json prints."""

import json
import re
from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from springtide.cli.client import Client, Refused, UnixConnection
from springtide.decide import choices
from springtide.model import MadeImage, Ticket
from springtide.ports import NoCapacity, QuotaExceeded
from springtide.users import User
from tests.unit.cli_world import LIMIT_S, LONG_S, World, run, served, wait_until
from tests.unit.google_file import google_file
from tests.unit.test_users import KEY

REBUILD = {
    "operation": "rebuild",
    "nodes": "c1",
    "confirm": "sim",
    "options": {"via": "jobs"},
}
DOCUMENT = Path(__file__).parents[2] / "docs" / "api.md"


def documented() -> dict[str, list[str]]:
    """The fields of each shape, from the tables under their headings."""
    shapes = DOCUMENT.read_text().partition("## Shapes\n")[2]
    return {
        part.partition("\n")[0].strip(): re.findall(r"^\| `(\w+)` \|", part, re.MULTILINE)
        for part in shapes.split("\n### ")[1:]
    }


@pytest.fixture(scope="module")
def world() -> Iterator[World]:
    """With a node that is ready and one that fell out."""
    with served() as world:
        world.faults.refused_nodes = {"c2": NoCapacity("full")}
        assert world.run("resume", "c[1-2]").code == 3
        wait_until(lambda: "running" not in world.run("operations").out)
        yield world


def printed(world: World, *arguments: str) -> Any:
    done = world.run(*arguments, "--json")
    assert done.code == 0
    return json.loads(done.out)


@pytest.fixture(scope="module")
def answers(world: World) -> dict[str, Any]:
    """A real answer of each shape."""
    daemon = Client(world.layout.state)
    nodes, status = printed(world, "nodes"), printed(world, "status")
    operations = printed(world, "operations")
    world.submit(1, seconds=LONG_S)
    wait_until(lambda: printed(world, "plan", "stop")["jobs"] != [])
    checks = json.loads(run("check", "--json", str(_spec_file(world))).out)
    return {
        "Status": status,
        "Batch": status["batch"],
        "Boots": status["boots"][0],
        "Nodes": nodes,
        "Node": nodes["nodes"][0],
        "NodeInBatch": nodes["nodes"][0]["batch"],
        "NodeInstance": nodes["nodes"][0]["instances"][0],
        "BootLog": printed(world, "log", "c1"),
        "Timeline": printed(world, "timeline", "c1"),
        "BootMoment": printed(world, "timeline", "c1")["phases"][0],
        "Typical": printed(world, "timeline", "c[1-2]"),
        "TypicalMoment": printed(world, "timeline", "c[1-2]")["phases"][0],
        "Operations": operations,
        "Operation": operations["operations"][0],
        "Event": json.loads(world.run("events", "--json").out.splitlines()[0]),
        "Story": printed(world, "why", "c1"),
        "Moment": printed(world, "why", "c1")["past"][0],
        "Table": daemon.get("/plan"),
        "Plan": printed(world, "plan", "resume", "c[1-2]"),
        "PlannedJob": printed(world, "plan", "stop")["jobs"][0],
        "Changes": printed(world, "plan", "apply"),
        "RebuildJobs": daemon.post("/operations", REBUILD),
        "Rebuilds": daemon.get("/rebuilds"),
        "Request": REBUILD,
        "Answer": daemon.post("/operations", {"operation": "resume", "nodes": "c1"}),
        **_applied(world, daemon),
        **_drained(daemon),
        **_maintained(daemon),
        **_held(world, daemon),
        **_machines(world, daemon),
        **_people(world, daemon),
        **_images(world, daemon),
        "Cancelled": _cancelled(world, daemon),
        "Error": _error(daemon),
        "Checks": checks,
        "Check": checks["checks"][0],
        **_sizes(world.file.parent),
    }


def _sizes(place: Path) -> dict[str, Any]:
    with google_file(place) as file:
        sizes = json.loads(run("flavors", "--config", str(file), "--json").out)
    return {"Sizes": sizes, "Size": sizes["flavors"][0]}


WISH = {
    "name": "alice",
    "keys": [KEY],
    "gone_keys": [],
    "groups": ["proj"],
    "uid": 4000,
    "gid": 4000,
    "gecos": "Alice",
    "shell": "/bin/sh",
    "dry_run": True,
}


def _people(world: World, daemon: Client) -> dict[str, Any]:
    """Somebody in the record; a real home is for other tests."""
    bob = User("bob-of-test", 4001, 4001, "", "/home/bob", "/bin/sh", keys=(KEY,))
    world.call(lambda: world.daemon.parts.record.store.keep_user(bob))
    answer = daemon.get("/users")
    removal = {"name": bob.name, "force": False, "dry_run": True}
    assert daemon.post("/users/remove", removal).keys() == daemon.post("/users", WISH).keys()
    return {
        "Users": answer,
        "Kept": daemon.get("/users/kept"),
        "User": answer["users"][0],
        "UserKey": answer["users"][0]["keys"][0],
        "UserWish": WISH,
        "Removal": removal,
        "UserOutcome": daemon.post("/users", WISH),
    }


def _images(world: World, daemon: Client) -> dict[str, Any]:
    """One that was made; the file's family is not built here."""
    made = MadeImage("soft", 1, "x86_64", "general", "fake", "new", log="said")
    parts = world.daemon.parts
    world.call(lambda: parts.gallery.keep(parts.record.store, made))
    found, log = printed(world, "image", "list"), printed(world, "image", "log", "soft@1")
    script = {"name": "a", "text": "#!/bin/sh"}
    building = {"family": "hard", "scripts": [script], "dry_run": True}
    snapshot = {"node": "c1", "family": "hard", "dry_run": True}
    cleaning = {"family": "soft", "keep": 1, "dry_run": True}
    own = log["images"][0].keys() - found["images"][0].keys()
    return {
        "Images": found,
        "Family": found["families"][0],
        "MadeImage": found["images"][0],
        "MadeImages": daemon.post("/images/build", building),
        "Build": building,
        "BuildScript": script,
        "Snapshot": snapshot,
        "Snapshots": daemon.post("/images/snapshot", snapshot),
        "Clean": cleaning,
        "Cleaned": daemon.post("/images/clean", cleaning),
        "BuildLogs": log,
        "BuildLog": dict.fromkeys(own),
    }


def _machines(world: World, daemon: Client) -> dict[str, Any]:
    """A node that has joined."""

    async def join() -> None:
        record = world.daemon.parts.record
        ticket = Ticket("c1", record.nodes["c1"].generation, 0.0)
        await record.store.issue([ticket])
        machine = {"cpus": 1, "memory": 256}
        assert await record.store.admit(replace(ticket, used_at=1.0, key="k", machine=machine))

    world.call(join)
    answer = daemon.get("/machines")
    return {"Machines": answer, "Machine": answer["machines"][0]}


def _applied(world: World, daemon: Client) -> dict[str, Any]:
    body = {"spec": world.file.read_text(), "file": str(world.file), "confirm": "sim", "sizes": {}}
    return {"Apply": {**body, "dry_run": False}, "Applied": daemon.post("/apply", body)}


def _drained(daemon: Client) -> dict[str, Any]:
    drain, undrain = {"nodes": "c3", "reason": "a test"}, {"nodes": "c3", "force": False}
    answers = [daemon.post("/drain", drain), daemon.post("/undrain", undrain)]
    assert [sorted(answer) for answer in answers] == [sorted(documented()["Answer"])] * 2
    return {"Drain": drain, "Undrain": undrain}


def _maintained(daemon: Client) -> dict[str, Any]:
    wish = {"on": True, "reason": "a test"}
    answer = daemon.post("/maintenance", wish)
    assert daemon.get("/maintenance") == answer
    assert daemon.get("/status")["maintenance"] == answer["maintenance"]
    daemon.post("/maintenance", {"on": False})
    return {"Wish": wish, "Maintaining": answer, "Maintenance": answer["maintenance"]}


def _held(world: World, daemon: Client) -> dict[str, Any]:
    holding, lift = world.daemon.parts.holding, {"key": "general"}
    choice = choices(world.spec, "general")[0]
    world.call(lambda: holding.refused(world.spec, "general", choice, QuotaExceeded("16 cores")))
    found = printed(world, "holds")
    return {
        "Holds": found,
        "Hold": found["holds"][0],
        "Lift": lift,
        "Lifted": daemon.post("/holds/lift", lift),
    }


def _spec_file(world: World) -> Path:
    path = world.file.with_name("other.yaml")
    path.write_text("cluster: sim\nbatch: {kind: fake}\nprovider: {kind: fake}\n")
    return path


def _cancelled(world: World, daemon: Client) -> Any:
    world.faults.boot_s = LONG_S
    world.run("resume", "c4", "--no-wait")

    def begun() -> list[int]:
        """It may wait for others to end first."""
        found = printed(world, "status")["operations"]
        return [one["id"] for one in found if one["nodes"] == "c4" and one["state"] == "running"]

    wait_until(lambda: bool(begun()))
    return daemon.post(f"/operations/{begun()[0]}/cancel", {})


def _error(daemon: Client) -> Any:
    with pytest.raises(Refused) as caught:
        daemon.get("/operations/99")
    return {"error": str(caught.value)}


@pytest.mark.parametrize("shape", sorted(documented()))
def test_the_document_names_the_fields_of_real_answers(answers: dict[str, Any], shape: str) -> None:
    assert sorted(answers[shape]) == sorted(documented()[shape])


def test_no_answer_is_undocumented(answers: dict[str, Any]) -> None:
    assert answers.keys() == documented().keys()


def test_the_table_is_the_same_with_and_without_a_daemon(world: World) -> None:
    assert printed(world, "plan") == Client(world.layout.state).get("/plan")


def test_machines_that_we_never_touch_have_no_state(answers: dict[str, Any]) -> None:
    bare = [node for node in answers["Nodes"]["nodes"] if node["group"] == "bare"]
    assert [(node["name"], node["state"]) for node in bare] == [("metal1", None), ("metal2", None)]
    assert sorted(bare[0]) == sorted(documented()["Node"])


def test_a_protected_cluster_is_not_destroyed_without_its_name() -> None:
    with served(
        "cluster: sim\nprotected: true\nbatch: {kind: fake}\nprovider: {kind: fake}\n"
    ) as w:
        daemon = Client(w.layout.state)
        for body in ({}, {"confirm": "other"}):
            with pytest.raises(Refused, match="sim is protected: confirm with its name"):
                daemon.post("/operations", {"operation": "destroy", **body})
        assert daemon.post("/operations", {"operation": "destroy", "confirm": "sim"})["operations"]


@pytest.mark.parametrize("id", ["9" * 18, "9" * 19, "9" * 30, "9" * 5000, "-1", "x"])
def test_an_operation_that_cannot_be_is_not_found(world: World, id: str) -> None:
    daemon = Client(world.layout.state)
    for _ in range(2):
        with pytest.raises(Refused) as refused:
            daemon.get(f"/operations/{id}")
        assert refused.value.status == 404
    assert daemon.get("/status")["cluster"] == "sim"


@pytest.mark.parametrize("path", ["/events", "/operations"])
def test_nobody_can_ask_for_more_than_fits_into_memory(world: World, path: str) -> None:
    with pytest.raises(Refused, match="limit must be at most 100000") as refused:
        Client(world.layout.state).get(path, limit=100_001)
    assert refused.value.status == 400


@pytest.mark.parametrize(
    ("path", "key"), [("/nodes", "names"), ("/plan?operation=resume", "nodes")]
)
def test_names_that_no_cluster_has_are_refused_before_they_are_written_out(
    world: World, path: str, key: str
) -> None:
    target = f"{path}{'&' if '?' in path else '?'}{key}=x[1-900000]"
    with pytest.raises(Refused, match="it stands for 900000 names; at most 1006 are allowed"):
        Client(world.layout.state).get(target)


def test_a_body_that_is_nested_too_deeply_is_refused(world: World) -> None:
    with closing(UnixConnection(world.layout.socket, LIMIT_S)) as connection:
        connection.request("POST", "/operations", b"[" * 200_000)
        assert connection.getresponse().status == 400
