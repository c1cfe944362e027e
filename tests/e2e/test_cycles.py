"""A hundred times a node starts from nothing, and its job first of all reads a shared file.

The job is somebody's whom only the cluster knows: it says who it finds itself to be.
"""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.e2e.real import until
from tests.e2e.test_control import gone
from tests.e2e.test_users import People
from tests.leftovers import place

pytestmark = [pytest.mark.real, pytest.mark.timeout(600)]

NODES, ROUNDS = 20, 5
USER = "cyann"
SPEC = """
cluster: {name}
state: {state}
control: container
batch: {{port: 17160, node_port: 17161}}
shared: [{{path: {shared}}}]
users: {{homes: {shared}/home, first: 28500}}
groups: {{general: {{nodes: "y-[01-{nodes}]"}}}}
timing: {{idle: 1s, start: 2m, stop: 30s}}
"""


ALL_THERE = f"""\
began=began.$SLURM_ARRAY_JOB_ID
touch $began.$SLURM_ARRAY_TASK_ID
until [ $(ls $began.* | wc -l) -eq {NODES} ]; do sleep 0.3; done"""
"""So that no task finds the node of another free, however long the others take."""


class Cycles(People):
    """A cluster that has nodes only while there are jobs."""

    def write(self, mounts: tuple[Path, ...] = ()) -> None:
        (self.shared / "home").mkdir(exist_ok=True)
        (self.shared / "word").write_text("springtide\n")
        text = SPEC.format(name=self.name, state=self.state, shared=self.shared, nodes=NODES)
        self.file.write_text(text)

    def nodes(self) -> list[dict[str, Any]]:
        rows: list[dict[str, Any]] = json.loads(self.tide("nodes", "--json").stdout)["nodes"]
        return rows

    def all_off(self) -> None:
        until(lambda: {row["state"] for row in self.nodes()} == {"off"}, pause_s=0.5)

    def array(self, script: str, number: int) -> list[str]:
        """What a job with a task for each node printed, sorted."""
        options = ["-W", "-o", f"{number}.%a.out", "--exclusive", f"--array=1-{NODES}"]
        told = self.as_user(USER, "sbatch", *options, "--wrap", script)
        assert told.returncode == 0, told.stderr
        files = (self.shared / "home" / USER).glob(f"{number}.*.out")
        return sorted(line for file in files for line in file.read_text().splitlines())


@pytest.fixture(scope="module")
def lab() -> Iterator[Cycles]:
    with place() as home:
        cycles = Cycles(home)
        for _ in gone(cycles):
            cycles.deploy()
            cycles.add(USER, "--group", "proj")
            yield cycles


@pytest.mark.accepts("E10", "N7")
def test_a_hundred_times_the_first_act_of_a_job_reads_a_shared_file(lab: Cycles) -> None:
    read = f"read -r word <{lab.shared}/word && echo $word $(id -un) $(id -u) $(id -Gn) $(hostname)"
    read += f"; {ALL_THERE}"
    who = f"springtide {USER} 28500 {USER} proj"
    expected = [f"{who} y-{number:02}" for number in range(1, NODES + 1)]
    for number in range(ROUNDS):
        assert lab.array(read, number) == expected
        lab.all_off()
    assert [row["generation"] for row in lab.nodes()] == [ROUNDS] * NODES
    events = [json.loads(line) for line in lab.tide("events", "--json").stdout.splitlines()]
    assert not [e for e in events if e["what"] in ("node failed", "node given back")]


@pytest.mark.accepts("X16")
def test_where_the_time_of_a_boot_went_is_told_from_the_request_on(lab: Cycles) -> None:
    assert lab.job(USER, "hostname", "-w", "y-07") == "y-07"
    own = ["started", "configuration", "mounts", "users", "munge", "names", "health", "slurmd"]

    def boot() -> dict[str, Any] | None:
        """Once it is all kept: what the node said is asked for after it has registered."""
        told: dict[str, Any] = json.loads(lab.tide("timeline", "y-07", "--json").stdout)
        return told if {row["phase"] for row in told["phases"]}.issuperset(own) else None

    told = until(boot)
    assert told is not None
    names = [row["phase"] for row in told["phases"]]
    assert names[0] == "requested"
    assert names[-1] == "registered"
    assert [name for name in names if name in own] == own
    assert told["over"]
    shown = lab.tide("timeline", "y-07").stdout
    assert all(name in shown for name in own)
