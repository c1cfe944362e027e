"""Ansible for a cluster that was made without: its nodes know neither sshd nor keys yet."""

from collections.abc import Iterator

import pytest

from springtide.configure.node_ssh import HOST_KEY, ensure_key
from springtide.layout import Layout
from tests.e2e.real import RealCluster, cluster, until

pytestmark = [pytest.mark.real, pytest.mark.timeout(400)]

SPEC = """
cluster: later
batch: {kind: slurm, port: 17364, node_port: 17365}
provider: {kind: containers, mounts: [SHARED]}
groups: {general: {nodes: "l-[1-2]", min: 2}}
timing: {idle: 3600s, start: 2m, stop: 10s, grace: 3600s}
"""
ANSIBLE = "ansible: {roles: [], after: [SHARED/after.yml]}\n"
AFTER = """
- hosts: all
  gather_facts: false
  tasks:
    - ansible.builtin.copy: {content: "set up", dest: /etc/after, mode: "0644"}
"""


@pytest.fixture
def real() -> Iterator[RealCluster]:
    with cluster(SPEC) as deployed:
        yield deployed


@pytest.mark.accepts("C28")
def test_the_first_update_with_ansible_configures_nodes_in_service(real: RealCluster) -> None:
    """They boot anew, and wait for the keys that are made then; the host key is there already
    where somebody has an account."""
    ensure_key(Layout(real.state).munge_key.with_name(HOST_KEY), "nodes")
    (real.shared / "after.yml").write_text(AFTER)
    real.write(SPEC + ANSIBLE)
    applied = real.tide("apply", str(real.file), "--yes")
    assert applied.returncode == 0, applied.stderr
    updated = real.tide("update", "--yes")
    assert updated.returncode == 0, updated.stderr
    assert real.states("l-[1-2]") == {"ready"}
    said = real.slurm("srun", "-N2", "cat", "/etc/after")
    assert said == "set upset up"


@pytest.mark.accepts("C28")
def test_nodes_that_the_first_update_with_ansible_fails_on_stay_in_service(
    real: RealCluster,
) -> None:
    """They booted anew, and lack only what Ansible was to give them."""
    (real.shared / "after.yml").write_text(AFTER.replace("dest: /etc/after", "dest: /nowhere/x"))
    real.write(SPEC + ANSIBLE)
    applied = real.tide("apply", str(real.file), "--yes")
    assert applied.returncode == 0, applied.stderr
    before = instances(real)
    updated = real.tide("update", "--yes")
    assert updated.returncode == 1, updated.stderr
    assert "Ansible could not configure it" in updated.stderr + updated.stdout
    assert real.states("l-[1-2]") == {"ready"}
    assert instances(real) == before
    until(lambda: "but not as it should be: Ansible could not" in real.tide("why", "l-1").stdout)
    assert real.slurm("srun", "-N2", "echo", "-n", "well") == "wellwell"


def instances(real: RealCluster) -> dict[str, str]:
    return {name: row["instance"] for name, row in real.record("l-[1-2]").items()}
