"""Nodes of a real Slurm are drained by people and by operations, and configured again."""

import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from springtide.cli.endings import Exit
from tests.e2e.by_hand import instances, started, tide
from tests.e2e.gate import Gate
from tests.e2e.real import RealCluster, cluster, until

pytestmark = [pytest.mark.real, pytest.mark.timeout(400)]

STEADY = 20
"""So many looks in a row show what lasts."""
SPEC = """
cluster: service
admin_group: games
batch: {kind: slurm, port: 16997, node_port: 16998}
provider: {kind: containers, mounts: [SHARED]}
groups: {general: {nodes: "d-[1-4]", min: 3}}
timing: {idle: 3600s, start: 120s, stop: 12s}
"""


@pytest.fixture(scope="module")
def real() -> Iterator[RealCluster]:
    with cluster(SPEC) as deployed:
        yield deployed


def as_another(real: RealCluster, *arguments: str, code: Exit = Exit.DONE) -> str:
    """The command, of a person who is not root but may change the cluster."""
    done = real.tide(*arguments, user="games", stdin=subprocess.DEVNULL)
    said = done.stdout + done.stderr
    assert done.returncode == code, said
    return said


def batch(real: RealCluster, name: str) -> dict[str, Any]:
    (row,) = real.client.get("/nodes", names=name)["nodes"]
    found: dict[str, Any] = row["batch"]
    return found


def newest(real: RealCluster, kind: str) -> dict[str, Any]:
    """The operation that was just asked for; Slurm may have asked for others since."""
    found: list[dict[str, Any]] = real.client.get("/operations", limit=20)["operations"]
    return next(one for one in found if one["kind"] == kind)


def is_drained(real: RealCluster, name: str, owner: str) -> bool:
    seen = batch(real, name)
    return seen["drained"] and seen["owner"] == owner and "bad fan" in seen["reason"]


def stays_drained(real: RealCluster, name: str, owner: str) -> None:
    """Slurm ends the drain of a node when it begins to power it down, which it may do after the
    operation; the drain is made again then."""
    until(lambda: is_drained(real, name, owner))


@pytest.mark.accepts("X9")
def test_a_persons_drain_is_theirs_and_only_force_lets_another_undo_it(real: RealCluster) -> None:
    gate = Gate(real.shared / "drained")
    job = started(real, f"{gate.wait}; hostname", "-w", "d-1")
    as_another(real, "drain", "d-[1-2]", "--reason", "bad fan")
    tide(real, "drain", "d-[2-3]", "--reason", "bad fan")
    assert [batch(real, f"d-{n}")["owner"] for n in (1, 2, 3)] == ["games", "games", "root"]
    gate.open()
    assert real.finished(job)["Restarts"] == "0"
    assert "drain" in real.slurm("sinfo", "-h", "-n", "d-1", "-o", "%T")
    assert "bad fan" in real.slurm("sinfo", "-h", "-R", "-o", "%E %n")

    said = tide(real, "undrain", "d-[1-2]", code=Exit.FAILED)
    assert "d-[1-2] drained by games; say --force" in said
    assert "d-3 drained by root" in as_another(real, "undrain", "d-3", code=Exit.FAILED)
    assert is_drained(real, "d-1", "games")
    assert is_drained(real, "d-3", "root")
    as_another(real, "undrain", "d-2")
    until(lambda: real.node("d-2")["State"] == "IDLE+CLOUD")


@pytest.mark.accepts("X9")
@pytest.mark.parametrize(
    "words",
    [
        ["update", "d-[1-3]", "--yes"],
        ["rebuild", "d-[1-3]", "--force", "--yes"],
        ["rebuild", "d-[1-3]", "--force", "--direct", "--yes"],
        ["resize", "general=4", "--yes"],
        ["resize", "general=2", "--yes"],
        ["resize", "general=3", "--yes"],
        ["suspend", "d-1"],
        ["resume", "d-1"],
    ],
)
def test_no_operation_undoes_a_persons_drain(real: RealCluster, words: list[str]) -> None:
    """d-1 is drained by one person, d-3 by another, and d-2 by nobody."""
    tide(real, *words)
    stays_drained(real, "d-1", "games")
    stays_drained(real, "d-3", "root")
    assert not batch(real, "d-2")["drained"]


@pytest.mark.accepts("X9")
def test_a_drain_outlives_a_stop_and_force_ends_it(real: RealCluster) -> None:
    tide(real, "stop", "--yes")
    tide(real, "start")
    stays_drained(real, "d-1", "games")
    stays_drained(real, "d-3", "root")
    tide(real, "undrain", "d-[1-3]", "--force")
    until(lambda: all(real.node(f"d-{n}")["State"] == "IDLE+CLOUD" for n in (1, 2, 3)))
    before = real.events(node="d-1")
    assert tide(real, "undrain", "d-1") == "d-1: not drained\n"
    assert real.events(node="d-1") == before, "nothing was done, so nothing is told"


def put_down(real: RealCluster, *names: str) -> None:
    """By a person, for good: what a node that was just undrained answers to a ping of Slurm 24.11
    returns it to service, though it was put down since."""
    looks = dict.fromkeys(names, 0)

    def are_down() -> bool:
        for name in names:
            if real.node(name)["State"].startswith("DOWN"):
                looks[name] += 1
            else:
                looks[name] = 0
                down = (f"nodename={name}", "state=down", "reason=kernel panic")
                real.slurm("scontrol", "update", *down)
        return min(looks.values()) > STEADY

    until(are_down, pause_s=0.1)


@pytest.mark.accepts("X9")
def test_what_a_person_put_down_comes_back_by_their_undrain(real: RealCluster) -> None:
    """One node in service, and one that is off."""
    put_down(real, "d-1", "d-4")
    said = as_another(real, "undrain", "d-1,d-4", code=Exit.FAILED)
    assert "d-[1,4] put down by root; say --force" in said
    said = tide(real, "undrain", "d-[1,4]", "--dry-run")
    assert "d-[1,4]: put down by root: kernel panic; would take jobs again" in said
    assert real.node("d-1")["State"].startswith("DOWN+CLOUD")

    assert tide(real, "undrain", "d-1,d-4") == "d-[1,4]: takes jobs again\n"
    until(lambda: real.node("d-1")["State"] == "IDLE+CLOUD")
    until(lambda: real.node("d-4")["State"] == "IDLE+CLOUD+POWERED_DOWN")
    assert [e["what"] for e in real.events(node="d-4")][-1] == "undrain asked"
    put_down(real, "d-1")
    as_another(real, "undrain", "d-1", "--force")
    until(lambda: real.node("d-1")["State"] == "IDLE+CLOUD")


def test_a_drain_that_ends_while_its_node_comes_back_has_ended(real: RealCluster) -> None:
    tide(real, "drain", "d-3", "--reason", "bad fan")
    tide(real, "resize", "general=2", "--yes")
    tide(real, "resize", "general=3", "--yes", "--no-wait")
    operation = newest(real, "enlarge")
    tide(real, "undrain", "d-3")
    assert real.ended(operation["id"])["state"] == "done"
    until(lambda: real.node("d-3")["State"] == "IDLE+CLOUD")


@pytest.mark.accepts("X9")
@pytest.mark.parametrize("words", [["update"], ["rebuild", "--force"]])
def test_the_drain_of_an_operation_ends_with_it_and_not_by_hand(
    real: RealCluster, words: list[str]
) -> None:
    job = started(real, "sleep 300", "-w", "d-1")
    tide(real, words[0], "d-1", *words[1:], "--no-wait", "--yes")
    operation = newest(real, words[0])
    until(lambda: batch(real, "d-1")["drained"])
    assert batch(real, "d-1")["owner"] == "springtide"
    for more in ([], ["--force"]):
        said = tide(real, "undrain", "d-1", *more, code=Exit.FAILED)
        assert "an operation drains d-1" in said
    tide(real, "operations", str(operation["id"]), "--cancel")
    until(lambda: not batch(real, "d-1")["drained"])
    assert real.job(job)["JobState"] == "RUNNING"
    until(lambda: real.states("d-1") == {"ready"})
    real.slurm("scancel", job)
    until(lambda: real.node("d-1")["State"] == "IDLE+CLOUD")


@pytest.mark.accepts("X9")
def test_a_person_may_take_over_the_drain_of_an_operation(real: RealCluster) -> None:
    job = started(real, "sleep 300", "-w", "d-1")
    tide(real, "rebuild", "d-1", "--force", "--no-wait", "--yes")
    operation = newest(real, "rebuild")
    until(lambda: batch(real, "d-1")["drained"])
    tide(real, "drain", "d-1", "--reason", "bad fan")
    real.slurm("scancel", job)
    assert real.ended(operation["id"])["state"] == "done"
    assert is_drained(real, "d-1", "root")
    tide(real, "undrain", "d-1")
    until(lambda: real.node("d-1")["State"] == "IDLE+CLOUD")


def test_a_busy_node_that_is_suspended_twice_takes_jobs_again(real: RealCluster) -> None:
    """Slurm drains it meanwhile, for a reason of its own that is nobody's wish."""
    gate = Gate(real.shared / "gate")
    job = started(real, f"{gate.wait}; hostname", "-w", "d-4")
    for _ in range(2):
        tide(real, "suspend", "d-4", "--no-wait")
    gate.open()
    assert real.finished(job)["Restarts"] == "0"
    real.all_off("d-4")
    again = real.sbatch("hostname", "-w", "d-4")
    assert real.finished(again)["NodeList"] == "d-4"


@pytest.mark.accepts("C28")
def test_configuration_reaches_running_nodes_with_their_image_kept_and_their_jobs_awaited(
    real: RealCluster,
) -> None:
    data = real.root / "data"
    data.mkdir(mode=0o777)
    before, images = instances(real), {n: r["image"] for n, r in real.record("d-[1-3]").items()}
    gate = Gate(real.shared / "updated")
    job = started(real, f"{gate.wait}; hostname", "-w", "d-2")
    real.file.write_text(real.file.read_text().replace("mounts: [", f"mounts: [{data}, "))
    assert "mounts" in tide(real, "apply", "--yes")
    assert write(real, data, "d-1", "d-3") == []

    tide(real, "update", "--yes", "--no-wait")
    operation = newest(real, "update")
    until(lambda: batch(real, "d-2")["drained"])
    gate.open()
    assert real.ended(operation["id"], 240)["state"] == "done"
    assert real.finished(job)["Restarts"] == "0"
    assert real.output(job) == ["d-2"]
    assert write(real, data, "d-1", "d-2", "d-3") == ["d-1", "d-2", "d-3"]
    assert instances(real) == before
    assert {n: r["image"] for n, r in real.record("d-[1-3]").items()} == images
    assert write(real, data, "d-4") == ["d-1", "d-2", "d-3", "d-4"]


def write(real: RealCluster, data: Path, *names: str) -> list[str]:
    """Have nodes write to a directory; without its mount that goes to a place of their own."""
    script = f"srun sh -c 'mkdir -p {data} && touch {data}/$(hostname)'"
    real.finished(real.sbatch(script, "-w", ",".join(names), f"-N{len(names)}"))
    return sorted(path.name for path in data.iterdir())
