"""A real cluster under random orders from everybody at once: in the end all is as it should be.

TIDE_SEED repeats a run's choices (not its timing), TIDE_ACTIONS makes it longer or shorter,
TIDE_DRAINS=8 has an admin drain nodes as well.
"""

import os
import random
import re
import shutil
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from springtide.cli.client import Refused
from springtide.nodeset import expand
from tests.e2e.by_hand import tide
from tests.e2e.images import image
from tests.e2e.real import RealCluster, cluster, until

pytestmark = [pytest.mark.real, pytest.mark.timeout(900)]

ACTIONS = int(os.environ.get("TIDE_ACTIONS", "120"))
SEED = int(os.environ.get("TIDE_SEED", random.randrange(1 << 32)))
DRAINS = int(os.environ.get("TIDE_DRAINS", "0"))
"""How often, beside the rest, an admin drains and undrains. Slurm loses a drain that is made in
the second before it begins to power a node down, so a run with them may find one missing."""
ACT_S = 200.0
"""No action is begun later than this."""
CALM_S = 240.0
LONGEST_PAUSE_S = 0.4
MOST_DRAINED = 2
"""Jobs need three of the six nodes."""
SPEC = """
cluster: random
batch: {kind: slurm, port: 16977, node_port: 16978, parameters: {MinJobAge: 3600}}
provider: {kind: containers, mounts: [SHARED]}
images:
  one: {path: ROOT/one}
  two: {path: ROOT/two}
groups:
  a: {nodes: "a-[1-3]", min: 2, image: one}
  b: {nodes: "b-[1-3]", min: 1, image: one}
timing: {idle: 5s, start: 120s, stop: 10s}
"""
GROUPS = ("a", "b")
NODES = expand("a-[1-3],b-[1-3]")
Json = dict[str, Any]


@pytest.fixture
def real() -> Iterator[RealCluster]:
    root = Path(tempfile.mkdtemp(prefix="tide-random-", dir="/var/tmp"))
    root.chmod(0o755)
    try:
        with ExitStack() as stack:
            for name in ("one", "two"):
                stack.enter_context(image(root / name, {"/etc/image": f"{name}\n"}, {}))
            yield stack.enter_context(cluster(SPEC.replace("ROOT", str(root))))
    finally:
        shutil.rmtree(root)


class Weather:
    """Chooses what happens next, does it, and remembers what must hold in the end."""

    def __init__(self, real: RealCluster, chance: random.Random) -> None:
        self.real = real
        self.chance = chance
        self.began_at = time.monotonic()
        self.log: list[str] = []
        self.jobs: list[str] = []
        self.drained: set[str] = set()
        self.actions: dict[Callable[[], str], int] = {
            self.submit: 40,
            self.resize: 12,
            self.rebuild: 12,
            self.suspend: 12,
            self.drain: DRAINS,
            self.undrain: DRAINS,
            self.kill_daemon: 8,
        }

    def act(self) -> None:
        (action,) = self.chance.choices([*self.actions], [*self.actions.values()])
        at_s = time.monotonic() - self.began_at
        said = action()
        self.log.append(f"{at_s:6.1f} s {action.__name__} {said}")

    def node(self) -> str:
        return self.chance.choice(NODES)

    def submit(self) -> str:
        count, seconds = self.chance.randint(1, 3), self.chance.randint(0, 3)
        id = self.real.sbatch(f"sleep {seconds}; hostname", f"-N{count}")
        self.jobs.append(id)
        return f"job {id} of {count} nodes and {seconds} s"

    def resize(self) -> str:
        size = f"{self.chance.choice(GROUPS)}={self.chance.randint(0, 3)}"
        tide(self.real, "resize", size, "--yes", "--no-wait")
        return size

    def rebuild(self) -> str:
        """The file wants the other image of a group, and all nodes get what it wants."""
        group, text = self.chance.choice(GROUPS), self.real.file.read_text()
        line = re.compile(rf"(  {group}: .*image: )(\w+)")
        (_, now), *_ = line.findall(text)
        wanted = {"one": "two", "two": "one"}[now]
        self.real.file.write_text(line.sub(rf"\g<1>{wanted}", text))
        tide(self.real, "apply", "--yes", "--no-wait")
        options = {"via": self.chance.choice(("reboot", "direct")), "batch": 1}
        self.real.client.post("/operations", {"operation": "rebuild", "options": options})
        return f"{group} to image {wanted}, via {options['via']}"

    def suspend(self) -> str:
        name = self.node()
        self.real.client.post("/operations", {"operation": "suspend", "nodes": name})
        return name

    def drain(self) -> str:
        name = self.node()
        if len(self.drained | {name}) > MOST_DRAINED:
            return f"not {name}: enough are drained"
        if self.chance.random() < 0.5:
            self.real.client.post("/drain", {"nodes": name, "reason": "bad fan"})
        else:
            change = [f"nodename={name}", "state=drain", "reason=bad disk"]
            self.real.slurm("scontrol", "update", *change)
        self.drained.add(name)
        return name

    def undrain(self) -> str:
        if not self.drained:
            return "nobody"
        name = self.chance.choice(sorted(self.drained))
        try:
            self.real.client.post("/undrain", {"nodes": name, "force": True})
        except Refused as refusal:
            if "an operation drains" not in str(refusal):
                raise
            return f"not {name}: {refusal}"
        self.drained.discard(name)
        return name

    def kill_daemon(self) -> str:
        self.real.kill_daemon()
        asked = [self.submit() for _ in range(self.chance.randint(0, 2))]
        self.real.start_daemon()
        return "; meanwhile ".join(["", *asked])


def test_random_orders_leave_a_cluster_that_is_as_its_file_says(real: RealCluster) -> None:
    print("seed", SEED)
    weather = Weather(real, random.Random(SEED))
    try:
        for _ in range(ACTIONS):
            if time.monotonic() - weather.began_at > ACT_S:
                break
            weather.act()
            time.sleep(weather.chance.uniform(0, LONGEST_PAUSE_S))  # the moment is what is tried
        settle(real)
        check_jobs(real, weather.jobs)
        check_nodes(real, weather.drained)
        check_leaks(real)
    except BaseException:
        print(f"TIDE_SEED={SEED} TIDE_ACTIONS={ACTIONS}", *weather.log, sep="\n")
        print(*scenery(real), sep="\n")
        raise


def scenery(real: RealCluster) -> Iterator[str]:
    """What there is to look at after a failure."""
    yield real.slurm("scontrol", "-o", "show", "nodes")
    yield real.slurm("squeue", "--all")
    for event in real.events():
        at = time.strftime("%H:%M:%S", time.gmtime(event["at"]))
        words = (event["operation"], event["node"], event["what"], event["detail"])
        yield f"{at} {' '.join(str(word) for word in words if word)}"
    for name in ("slurmctld.log", "daemon.log"):
        yield (real.state / "log" / name).read_text()
    yield (real.root / "daemon.out").read_text()


def settle(real: RealCluster) -> None:
    """Wait for the end of all that was asked; then have what people suspended, and new images.

    Not of nodes that Slurm lets go meanwhile: a rebuild would end without them, and say so.
    """
    until(lambda: is_calm(real), CALM_S, 0.5)
    assert real.deploy()["state"] == "done"
    until(lambda: is_calm(real) and not leaving(real), CALM_S, 0.5)
    tide(real, "rebuild", "--yes")
    until(lambda: is_calm(real) and not leaving(real), CALM_S, 0.5)


def is_calm(real: RealCluster) -> bool:
    operations = real.client.get("/status")["operations"]
    return not operations and not real.slurm("squeue", "-h", "--all").strip()


def leaving(real: RealCluster) -> list[str]:
    """Nodes that need not be up, and are not gone yet."""
    up, rows = expected(real), real.client.get("/nodes")["nodes"]
    gone = [r["name"] for r in rows if (r["state"], r["batch"]["power"]) == ("off", "powered down")]
    return [name for name in NODES if name not in (*up, *gone)]


def expected(real: RealCluster) -> list[str]:
    nodes = real.client.get("/plan", operation="deploy")["nodes"]
    return expand(nodes) if nodes else []


def check_jobs(real: RealCluster, ids: list[str]) -> None:
    shown = real.slurm("scontrol", "-o", "show", "jobs").splitlines()
    jobs = [dict(word.partition("=")[::2] for word in line.split()) for line in shown if line]
    states = {job["JobId"]: job["JobState"] for job in jobs}
    assert {id: states.get(id) for id in ids} == dict.fromkeys(ids, "COMPLETED")


def check_nodes(real: RealCluster, drained: set[str]) -> None:
    answer = real.client.get("/nodes")
    assert answer["problems"] == []
    up = expected(real)
    for row in answer["nodes"]:
        name, batch = row["name"], row["batch"]
        assert batch["state"] == "IDLE", row
        assert batch["drained"] == (name in drained), row
        if name in up:
            assert (row["state"], row["outdated"]) == ("ready", None), row
            assert [one["state"] for one in row["instances"]] == ["running"], row
            assert row["instances"][0]["generation"] == row["generation"], row
            assert (batch["registered"], batch["power"]) == (True, "up"), row
        else:
            assert row["instances"] == [], row


def check_leaks(real: RealCluster) -> None:
    """As many of everything as there are nodes; each life of a node ended before its next."""
    up = sorted(expected(real))
    containers = real.state / "containers"
    assert sorted(path.name for path in (containers / "instances").iterdir()) == up
    assert sorted(path.readlink().name for path in (containers / "addresses").iterdir()) == up
    hosts = (real.state / "conf" / "hosts").read_text()
    assert sorted(name for name in NODES if re.search(rf" {name}$", hosts, re.MULTILINE)) == up
    real.note_links()
    assert len(real.links) == 1 + len(up)
    until(lambda: not list((real.state / "spool").iterdir()))
    lives: dict[str, Counter[str]] = {name: Counter() for name in NODES}
    for event in real.events():
        if event["what"] in ("instance created", "instance gone"):
            lives[event["node"]][event["what"]] += 1
            alive = lives[event["node"]]["instance created"] - lives[event["node"]]["instance gone"]
            assert alive in (0, 1), event
    left = [n for n, c in lives.items() if c["instance created"] > c["instance gone"]]
    assert sorted(left) == up
