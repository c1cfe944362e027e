"""A cluster with nodes elsewhere: its names and files are served as long as it is there.

The machines are only on paper, so they never join; where they are is known all the same.
"""

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.e2e import ask
from tests.e2e.real import RealCluster, cluster, until

pytestmark = [pytest.mark.real, pytest.mark.timeout(300)]

HERE = "127.0.8.30"
PAPER = """\
#!/bin/sh
# Machines that are files: `on` and `off` read nodes, `list` tells them.
cd "$2"
case $1 in
on)
    while read -r node _; do
        echo "127.66.8.${node#*-}" >"$node"
        echo "$node ok $(cat "$node")"
    done
    ;;
off) while read -r node _; do rm -f "$node"; done ;;
list) for node in *; do [ ! -f "$node" ] || echo "$node on $(cat "$node")"; done ;;
esac
"""
SPEC = f"""
cluster: paper
batch:
  kind: slurm
  port: 17128
  node_port: 17125
  parameters: {{CommunicationParameters: NoInAddrAny}}
provider:
  kind: command
  control_address: {HERE}
  create: [SHARED/switch, "on", SHARED/machines]
  delete: [SHARED/switch, "off", SHARED/machines]
  list: [SHARED/switch, list, SHARED/machines]
join: {{port: 17129}}
shared: [{{path: SHARED}}]
nfs: {{server: ganesha, port: 17127}}
groups: {{general: {{nodes: "pp-[1-9]"}}}}
timing: {{idle: 60s, start: 240s, stop: 30s, reconcile: 1s}}
"""


@pytest.fixture(scope="module")
def real() -> Iterator[RealCluster]:
    with cluster(SPEC, deployed=False) as made:
        (made.shared / "machines").mkdir()
        (made.shared / "switch").write_text(PAPER)
        (made.shared / "switch").chmod(0o755)
        done = made.deploy()
        assert done["state"] == "done", done
        yield made


def served_to(real: RealCluster) -> str:
    text = (real.state / "nfs" / "ganesha.conf").read_text()
    return text.partition("Clients = ")[2].partition(";")[0]


def process(real: RealCluster, name: str) -> int:
    return int((real.state / "run" / f"{name}.pid").read_text())


@pytest.mark.accepts("C14", "N16")
def test_nodes_are_known_by_name_and_served_as_long_as_they_are_there(real: RealCluster) -> None:
    assert ask.addresses(HERE, "pp-3") == []
    assert served_to(real) == ""
    real.client.post("/operations", {"operation": "resume", "nodes": "pp-[3-4]"})
    until(lambda: ask.addresses(HERE, "pp-4.paper") == ["127.66.8.4"])
    until(lambda: ask.addresses(HERE, "pp-3") == ["127.66.8.3"])
    until(lambda: served_to(real) == "127.66.8.3, 127.66.8.4")
    assert ask.names(HERE, "127.66.8.3") == ["pp-3"]

    real.client.post("/operations", {"operation": "suspend", "nodes": "pp-3", "force": True})
    until(lambda: ask.addresses(HERE, "pp-3") == [])
    until(lambda: served_to(real) == "127.66.8.4")
    assert ask.addresses(HERE, "pp-4") == ["127.66.8.4"]
    real.client.post("/operations", {"operation": "suspend", "nodes": "pp-4", "force": True})
    real.all_off("pp-[3-4]")


def test_servers_that_die_are_back_after_the_next_look(real: RealCluster) -> None:
    before = {name: process(real, name) for name in ("dnsmasq", "ganesha")}
    for pid in before.values():
        os.kill(pid, 9)
    until(lambda: all(_started_anew(real, name, pid) for name, pid in before.items()))


def _started_anew(real: RealCluster, name: str, pid: int) -> bool:
    try:
        return (real.state / "run" / f"{name}.pid").read_text().strip() not in ("", str(pid))
    except OSError:
        return False


def test_they_run_on_without_the_daemon_and_end_with_the_cluster(real: RealCluster) -> None:
    pids = [process(real, name) for name in ("dnsmasq", "ganesha")]
    real.kill_daemon()
    assert ask.addresses(HERE, "head-of-nothing") == []
    real.start_daemon()
    assert [process(real, name) for name in ("dnsmasq", "ganesha")] == pids
    done = real.tide("destroy", "--yes")
    assert done.returncode == 0, done.stderr
    assert not [pid for pid in pids if _runs(pid)]


def _runs(pid: int) -> bool:
    """A zombie has no command."""
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes() != b""
    except OSError:
        return False
