"""Container nodes for a queue of Torque: the daemon, its operations and the nodes are real, server
and pbs_mom are the stand-in.
"""

import json
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.batch.torque_standin import install
from tests.batch.torque_standin.server import create, opened
from tests.e2e.gate import Gate
from tests.e2e.real import RealCluster, cluster, remains, until

pytestmark = pytest.mark.real

SPEC = """
cluster: torq
batch: {kind: torque, bin: SITE/root, polling: {every: 500ms}}
provider: {kind: containers, mounts: [SITE]}
flavors: {small: {cpus: 2, memory: 512M, features: [fast]}}
groups: {general: {nodes: "tq[1-3]", flavors: [small]}}
partitions: {cloud: {groups: [general]}}
timing: {idle: 2s, reconcile: 1s}
"""
OURS = "tq[1-3]"
HOSTS = {"hosts": "SITE/hosts"}
"""Names of nodes resolve as that file has them, and addresses count."""
LONG_S = 4.0
"""Eight looks, and twice timing.idle."""


@dataclass(frozen=True, slots=True)
class Site:
    """The cluster, and the batch system that was there before it."""

    real: RealCluster
    place: Path

    @property
    def state(self) -> Path:
        return self.place / "state"

    def run(self, *command: str, user: str = "root", script: str = "") -> str:
        program = self.place / user / command[0]
        done = subprocess.run(
            [program, *command[1:]], input=script, capture_output=True, text=True, check=False
        )
        assert (done.returncode, done.stderr) == (0, ""), command
        return done.stdout

    def submit(self, script: str, *arguments: str) -> str:
        said = self.run("qsub", "-q", "cloud", *arguments, user="tester", script=script)
        return said.strip()

    def state_of(self, id: str) -> str:
        with opened(self.state) as server:
            return str(server.jobs[id]["state"])

    def reaches(self, state: str, *ids: str) -> None:
        until(lambda: all(self.state_of(id) == state for id in ids), pause_s=0.2)

    def nodes(self) -> dict[str, list[str]]:
        """Names, words and notes, as an admin sees them."""
        lines = self.run("pbsnodes", "-l", "all", "-n").splitlines()
        return {line.split()[0]: line.split(maxsplit=2)[1:] for line in lines}

    def purged(self) -> list[str]:
        with opened(self.state) as server:
            return list(server.state.get("purged", []))


@contextmanager
def served(spec: str = SPEC, **state: object) -> Iterator[Site]:
    """With this of the server's state; SITE stands for the directory of it all."""
    with tempfile.TemporaryDirectory(prefix="torq-", dir="/var/tmp") as home:
        place = Path(home)
        place.chmod(0o755)
        create(place / "state")
        (place / "hosts").write_text("127.0.0.1 localhost\n")
        with opened(place / "state") as server:
            server.state.update(json.loads(json.dumps(state).replace("SITE", home)))
        for user in ("root", "tester"):
            install(place / user, place / "state", user)
        with cluster(spec.replace("SITE", str(place))) as real:
            site = Site(real, place)
            site.run("qmgr", "-c", "set queue cloud resources_default.neednodes = 1:cloud")
            yield site


@pytest.mark.accepts("N1", "N8", "N10", "N12")
@pytest.mark.timeout(600)
def test_from_zero_nodes_come_for_jobs_and_go_when_the_queue_is_empty() -> None:
    with served() as site:
        assert sorted(site.nodes()) == ["tq1", "tq2", "tq3"], "qsub counts them while they are off"
        words = site.place / "state" / "said"
        first, second = Gate(site.state / "first"), Gate(site.state / "second")
        script = f"hostname >{words}; {first.wait}"
        wide = site.submit(script, "-l", "nodes=2:ppn=2:fast,mem=128mb")
        site.reaches("R", wide)
        assert site.real.states("tq3") == {"off"}
        first.open()
        site.reaches("C", wide)
        assert words.read_text().strip() in ("tq1", "tq2")
        again = site.submit(second.wait, "-l", "nodes=1")
        site.reaches("R", again)
        second.open()
        site.reaches("C", again)
        site.real.all_off(OURS)
        until(lambda: _are_off(site, "tq1", "tq2"))
        assert site.purged() == []


def _are_off(site: Site, *names: str) -> bool:
    """Offline, with a note of where they were: those that come from there again need not be new."""
    shown = site.nodes()
    noted = all(shown[name][-1].startswith("springtide: off (at ") for name in names)
    return noted and all("offline" in shown[name][0] for name in names)


@pytest.mark.timeout(600)
def test_nodes_come_again_under_the_same_names() -> None:
    """Torque believes for a while that they were never gone."""
    with served() as site:
        for _ in range(3):
            job = site.submit("true", "-l", "nodes=3:ppn=2")
            site.reaches("C", job)
            site.real.all_off(OURS)
        assert site.purged() == []


@pytest.mark.accepts("N12")
@pytest.mark.timeout(600)
def test_nodes_that_were_off_when_the_server_started_come_at_once() -> None:
    """It resolves all names then, and trusts no other addresses; none was ever refused, for each
    name has one address, and pbs_mom starts when its node is expected there."""
    with served(
        SPEC.replace("{kind: torque,", "{kind: torque, hosts: SITE/hosts,"), **HOSTS
    ) as site:
        before = _named(site)
        assert sorted(before) == ["localhost", "tq1", "tq2", "tq3"]
        for _ in range(2):
            job = site.submit("true", "-l", "nodes=3:ppn=2:cloud")
            site.reaches("C", job)
            site.real.all_off(OURS)
            until(lambda: _are_off(site, "tq1", "tq2", "tq3"))
            assert _named(site) == before, "they have the same addresses on and off"
            with opened(site.state) as server:
                server.stop()
                server.start()
        with opened(site.state) as server:
            assert server.state.get("ever_refused", []) == []


def _named(site: Site) -> dict[str, str]:
    lines = (site.place / "hosts").read_text().splitlines()
    return {name: address for address, name in (one.split() for one in lines if one[0] != "#")}


@pytest.mark.timeout(600)
def test_while_the_server_is_away_no_node_is_touched() -> None:
    """rule 1, rule 5"""
    with served() as site:
        job = site.submit("sleep 600", "-l", "nodes=1")
        site.reaches("R", job)
        until(lambda: _is_calm(site) and "ready" in site.real.states(OURS))
        seen = len(site.real.events())
        with opened(site.state) as server:
            server.stop()
        until(lambda: _says(site, seen, "batch system away"))
        remains(lambda: not [e for e in site.real.events()[seen:] if e["node"]], LONG_S)
        (name,) = [n for n, row in site.real.record(OURS).items() if row["state"] != "off"]
        with opened(site.state) as server:
            server.start()
        until(lambda: site.nodes()[name][0] == "free")
        assert site.state_of(job) == "R"
        assert site.real.states(name) == {"ready"}
        site.run("qdel", job)
        site.real.all_off(OURS)


def _is_calm(site: Site) -> bool:
    return not site.real.client.get("/status")["operations"]


def _says(site: Site, seen: int, words: str) -> bool:
    return any(words in json.dumps(event) for event in site.real.events()[seen:])
