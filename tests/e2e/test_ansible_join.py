"""Ansible on machines that join by themselves: it waits until it is let in, and knows whom it sees.

Their own sshd answers as soon as they boot, as that of a cloud's image does.
"""

from collections.abc import Iterator

import pytest

from tests.e2e import bay
from tests.e2e.real import RealCluster, cluster

pytestmark = [pytest.mark.real, pytest.mark.timeout(400)]

BRIDGE, CONTROL, NODE = "tidelog0", "10.94.0.1", "al-1"
TEXT = f"""
cluster: al
batch: {{kind: slurm, port: 17170, node_port: 17171}}
join: {{port: 17172}}
naming: {{kind: hosts}}
{bay.provider(BRIDGE, CONTROL)}
flavors: {{small: {{cpus: 1, memory: 256M}}}}
groups: {{small: {{nodes: "{NODE}", min: 1, flavors: [small]}}}}
ansible: {{roles: [hosts], after: [SHARED/site.yml]}}
timing: {{idle: 1h, start: 4m, stop: 30s, grace: 1h}}
"""
PLAY = """
- hosts: tide_nodes
  gather_facts: false
  tasks:
    - name: Leave a mark
      ansible.builtin.copy: {content: "ready\\n", dest: /etc/mark, mode: "0644"}
"""


@pytest.fixture(scope="module")
def real() -> Iterator[RealCluster]:
    with bay.network(BRIDGE, CONTROL), cluster(TEXT, deployed=False) as made:
        (made.root / "early").touch()
        (made.shared / "site.yml").write_text(PLAY)
        with bay.deployed(made, BRIDGE, [NODE]):
            yield made


@pytest.mark.accepts("E3")
def test_ansible_waits_until_a_machine_that_answers_lets_it_in(real: RealCluster) -> None:
    told = [event["what"] for event in real.events(node=NODE)]
    assert told.count("instance created") == 1
    assert "not configured" not in told
    assert told.index("node joined") < told.index("configured") < told.index("node registered")
    assert (bay.inside(real, NODE) / "etc/mark").read_text() == "ready\n"


def test_what_was_set_up_is_there_for_jobs(real: RealCluster) -> None:
    job = real.sbatch("cat /etc/mark", "-w", NODE)
    real.finished(job)
    assert real.output(job) == ["ready"]
