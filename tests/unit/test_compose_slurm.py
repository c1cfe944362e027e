"""Clusters of Slurm, put together: what nodes are told of a Slurm that is there without us."""

from pathlib import Path

import pytest

from springtide.compose import compose
from springtide.configure.ansible import Ansible
from springtide.configure.ansible_inventory import render_variables
from springtide.model import Kind, Node, Operation
from springtide.ports import Site
from springtide.spec import Cluster, parse
from springtide.steps.instances import create_instances
from springtide.steps.work import Work

TEXT = """\
cluster: far
state: {place}/state
batch: {{attach: {place}/slurm.conf{more}}}
provider: {{kind: command, create: [on], delete: [off], list: [list]}}
groups:
  general: {{nodes: "c[1-2]"}}
  plain: {{nodes: "p1", without: [join]}}
ansible: {{}}
"""
CONF = "ClusterName=old\nSlurmctldHost=head\nNodeName=c[1-2],p1 CPUs=1\n"
SITE = Site("10.0.0.1")


def spec_of(place: Path, port: str, more: str) -> Cluster:
    (place / "state").mkdir()
    (place / "slurm.conf").write_text(CONF + port)
    return parse(TEXT.format(place=place, more=more), "cluster.yaml")


@pytest.mark.parametrize("more", ["", ", polling: {}"])
@pytest.mark.parametrize(
    ("line", "port"),
    [("SlurmctldPort=7002\n", 7002), ("slurmctldport=7010-7013\n", 7010), ("", 6817)],
)
async def test_nodes_find_slurmctld_at_the_port_that_its_own_slurm_conf_says(
    tmp_path: Path, line: str, port: int, more: str
) -> None:
    daemon = compose(spec := spec_of(tmp_path, line, more))
    parts = daemon.parts
    assert parts.membership is not None
    assert parts.membership.control.port == port
    booted = parts.configurator.user_data(Node("p1", "plain"), SITE)
    assert f" port={port} " in booted
    assert ("slurmd -b -N" in booted) == (not more), "who only watches is told of no boot"
    assert isinstance(parts.software, Ansible)
    told = render_variables(spec, SITE, parts.software.facts)
    assert told["tide_slurm"]["port"] == port
    await parts.record.store.close()


@pytest.mark.parametrize("more", ["", ", polling: {}"])
async def test_nodes_are_made_by_what_slurm_conf_says_when_they_are_made(
    tmp_path: Path, more: str
) -> None:
    daemon = compose(spec_of(tmp_path, "SlurmdSpoolDir=/var/one\n", more))
    parts = daemon.parts
    work = Work(parts, Operation(1, Kind.DEPLOY, ()), ())
    provider = parts.home
    await create_instances(work)
    assert parts.home is provider, "nothing has changed"
    (tmp_path / "slurm.conf").write_text(f"{CONF}SlurmdSpoolDir=/var/two\nSlurmctldPort=7003\n")
    await create_instances(work)
    assert parts.membership is not None
    assert parts.membership.control.directories == ("/var/two",)
    assert " port=7003 " in parts.configurator.user_data(Node("p1", "plain"), SITE)
    (tmp_path / "slurm.conf").unlink()
    await create_instances(work)
    assert parts.membership.control.port == 7003
    await parts.record.store.close()
