"""Container nodes for a queue of OpenPBS: the daemon, its operations and the nodes are real, server
and pbs_mom are the stand-in.
"""

import json
import shutil
import socket
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from tests.batch.openpbs_standin.server import Standin
from tests.e2e.real import RealCluster, cluster, remains, until
from tests.unit.test_openpbs_hook import PBS
from tests.unit.test_openpbs_hook import run as run_hook

pytestmark = pytest.mark.real

SPEC = """
cluster: opbs
batch: {kind: openpbs, bin: SITE/server/bin-root, polling: {every: 500ms}}
provider: {kind: containers, mounts: [SITE]}
flavors: {small: {cpus: 2, memory: 512M}}
groups: {general: {nodes: "op[1-3]", flavors: [small]}}
partitions: {cloud: {groups: [general]}}
timing: {idle: 2s, reconcile: 1s}
"""
OURS = "op[1-3]"
LONG_S = 4.0
"""Eight looks, and twice timing.idle."""
SETUP = (
    "create resource Qlist type=string_array,flag=h",
    "create queue cloud queue_type=execution,enabled=true,started=true",
    "set queue cloud default_chunk.Qlist=cloud",
)
CONF = "PBS_SERVER=pbssrv\nPBS_EXEC={site}/pbs\nPBS_HOME=/var/spool/pbs\n"


@dataclass(frozen=True, slots=True)
class Site:
    """The cluster, and the batch system that was there before it."""

    real: RealCluster
    standin: Standin

    def submit(self, *arguments: str) -> str:
        done = self.standin.run("qsub", "-q", "cloud", *arguments, user="tester")
        assert done.returncode == 0, done.stderr
        return done.stdout.strip()

    def end(self, id: str) -> None:
        assert self.standin.run("qdel", id).returncode == 0

    def jobs(self) -> dict[str, Any]:
        found: dict[str, Any] = json.loads(
            self.standin.run("qstat", "-f", "-t", "-F", "json").stdout
        ).get("Jobs", {})
        return found

    def runs(self, *ids: str) -> None:
        until(lambda: all(self.jobs()[id]["job_state"] == "R" for id in ids))

    def nodes(self) -> list[str]:
        shown = self.standin.run("pbsnodes", "-a", "-F", "json")
        return list(json.loads(shown.stdout)["nodes"]) if shown.returncode == 0 else []


@contextmanager
def served(
    monkeypatch: pytest.MonkeyPatch, spec: str = SPEC, conf: str = CONF, **state: object
) -> Iterator[Site]:
    with tempfile.TemporaryDirectory(prefix="opbs-", dir="/var/tmp") as home:
        place = Path(home)
        place.chmod(0o755)
        (place / "server").mkdir()
        standin = Standin(place / "server", _seen_by_nodes(place))
        mom = place / "pbs" / "sbin" / "pbs_mom"
        mom.parent.mkdir(parents=True)
        mom.symlink_to(standin.commands() / "pbs_mom")
        for command in SETUP:
            assert standin.run("qmgr", "-c", command).returncode == 0
        standin.change(**state)
        (place / "pbs.conf").write_text(conf.format(site=place))
        monkeypatch.setenv("PBS_CONF_FILE", str(place / "pbs.conf"))
        with cluster(spec.replace("SITE", str(place))) as real:
            yield Site(real, standin)


def _seen_by_nodes(place: Path) -> Path:
    """The stand-in's modules; a checkout in /tmp is not what nodes have there."""
    part = Path("tests", "batch", "openpbs_standin")
    shutil.copytree(Path(__file__).parents[2] / part, place / part)
    return place


@pytest.mark.accepts("N1", "N8", "N10", "N12")
@pytest.mark.timeout(600)
def test_from_zero_nodes_come_for_jobs_and_go_when_the_queue_is_empty(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with served(monkeypatch) as site:
        assert site.nodes() == []
        wide = site.submit("-l", "select=2:ncpus=2:mem=64mb", "-l", "place=scatter")
        site.runs(wide)
        assert sorted(site.nodes()) == ["op1", "op2"]
        again = site.submit("-l", "select=1:ncpus=1", "-W", f"depend=afterany:{wide}")
        site.end(wide)
        site.runs(again)
        until(lambda: len(site.nodes()) == 1)
        made = [e["node"] for e in site.real.events() if e["what"] == "instance created"]
        assert sorted(made) == ["op1", "op2"], "a node was there still"
        assert site.jobs()[again]["job_state"] == "R"
        site.end(again)
        site.real.all_off(OURS)
        assert site.nodes() == []


@pytest.mark.accepts("N12")
@pytest.mark.timeout(600)
def test_container_nodes_find_the_server_where_it_has_registered(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """They reach this machine over their bridge too, and the server never answers them there."""
    with socket.create_server((_own_address(), 0)) as listener:
        address, port = listener.getsockname()
        own = f"PBS_SERVER={socket.gethostname()}\nPBS_START_SERVER=1\nPBS_LEAF_NAME={address}\n"
        conf = CONF.replace("PBS_SERVER=pbssrv\n", own)
        with served(monkeypatch, conf=conf, registered=[address, port]) as site:
            job = site.submit("-l", "select=1:ncpus=1")
            site.runs(job)
            site.end(job)
            site.real.all_off(OURS)


def _own_address() -> str:
    """One of this machine in its network, as a server would have it."""
    command = ["ip", "-4", "-j", "addr", "show", "up", "scope", "global"]
    links = json.loads(subprocess.run(command, capture_output=True, check=True).stdout)
    own = [
        one for link in links if not link["ifname"].startswith("tide") for one in link["addr_info"]
    ]
    if not own:
        pytest.skip("this machine has no address in a network")
    return str(own[0]["local"])


@pytest.mark.timeout(600)
def test_while_the_server_is_away_no_node_is_touched(monkeypatch: pytest.MonkeyPatch) -> None:
    """rule 1: its document is that of an empty queue then."""
    with served(monkeypatch) as site:
        job = site.submit("-l", "select=1:ncpus=1")
        site.runs(job)
        until(lambda: _is_calm(site) and site.real.states("op1") == {"ready"})
        seen = len(site.real.events())
        site.standin.change(up=False)
        until(lambda: _says(site, seen, "batch system away"))
        remains(lambda: not [e for e in site.real.events()[seen:] if e["node"]], LONG_S)
        assert site.real.record("op1")["op1"]["state"] == "ready"
        site.standin.change(up=True)
        assert site.jobs()[job]["job_state"] == "R"
        site.end(job)
        site.real.all_off(OURS)


@pytest.mark.timeout(600)
def test_with_the_hook_nodes_start_at_once(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """rule 9"""
    (tmp_path / "pbs.py").write_text(PBS)
    with served(monkeypatch, SPEC.replace("500ms", "1h")) as site:
        site.real.kill_daemon()
        jobs = [site.submit("-l", "select=1:ncpus=2")]
        site.real.start_daemon()
        site.runs(*jobs)  # so its first look is over, and nobody looks again for an hour
        jobs += [site.submit("-l", "select=1:ncpus=2")]
        remains(lambda: site.real.states("op[2-3]") == {"off"}, 2.0)
        run_hook(tmp_path, site.real.state / "tide.sock", limit_s=30.0)
        site.runs(*jobs)
        assert sorted(site.nodes()) == ["op1", "op2"]
        for job in jobs:
            site.end(job)


def _is_calm(site: Site) -> bool:
    return not site.real.client.get("/status")["operations"]


def _says(site: Site, seen: int, words: str) -> bool:
    return any(words in json.dumps(event) for event in site.real.events()[seen:])
