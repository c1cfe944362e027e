"""slurm.conf as it is rendered: a small cluster file each, and what comes of it."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from springtide.batch.slurm_conf import hides_nodes, render, render_include
from springtide.batch.slurm_conf_lines import needs_restart
from springtide.batch.slurm_control import render_hosts
from springtide.batch.slurm_versions import TooOldError
from springtide.ports import Site
from springtide.spec import Cluster, load, parse

CASES = Path(__file__).parents[1] / "cases" / "slurm_conf"
SITE = Site("10.77.0.1")
VERSION = (22, 5)


def rendered(cluster: Cluster) -> str:
    return render(cluster, SITE, state=cluster.state, version=VERSION)


def cluster_with(text: str = "") -> Cluster:
    head = "cluster: blue\nbatch: {host: control}\n"
    return parse(head + (text or "groups: {general: {nodes: 'n[1-9]'}}"), "cluster.yaml")


def settings(text: str) -> dict[str, str]:
    lines = [line for line in text.splitlines() if line and line[0] != "#"]
    return {key: value for key, _, value in (line.partition("=") for line in lines)}


@pytest.mark.parametrize("case", [path.stem for path in sorted(CASES.glob("*.yaml"))])
def test_a_cluster_file_becomes_this_slurm_conf(case: str) -> None:
    assert rendered(load(CASES / f"{case}.yaml")) == (CASES / f"{case}.conf").read_text()


@pytest.mark.parametrize("version", [(24, 11), (26, 5)])
def test_a_newer_slurm_gets_what_it_knows(version: tuple[int, int]) -> None:
    """From 26.05 on, an admin chooses between rebuild and reboot by the name of a power action."""
    cluster = load(CASES / "small.yaml")
    text = render(cluster, SITE, state=cluster.state, version=version)
    golden = CASES / f"small-{version[0]}.{version[1]:02d}.conf"
    assert text == golden.read_text()


def test_nodes_that_are_older_than_slurmctld_can_be_spared_what_they_cannot_read() -> None:
    cluster = parse("cluster: blue\nbatch: {actions: false}\n", "cluster.yaml")
    text = render(cluster, SITE, state=cluster.state, version=(26, 5))
    assert "PowerAction" not in text


def joining(batch: str, version: tuple[int, int], theirs: Sequence[str] = ()) -> str:
    text = f"cluster: blue\nbatch: {{attach: /etc/slurm/slurm.conf{batch}}}\n"
    cluster = parse(text, "cluster.yaml")
    return render_include(cluster, state=cluster.state, version=version, actions=theirs)


def test_an_existing_slurm_gets_power_actions_only_if_its_owner_wants_them() -> None:
    """A login node that is older could not run a command any more."""
    assert "PowerAction" not in joining("", (26, 5))
    assert "PowerAction" not in joining(", actions: true", (25, 11))
    wanted = joining(", actions: true", (26, 5), theirs=["Reboot"])
    program = "/var/lib/springtide/blue/bin/rebuild"
    assert f"\nPowerAction=rebuild Location=slurmctld Program={program}\n" in wanted
    assert "PowerAction=reboot " not in wanted


def test_power_actions_come_and_go_without_a_restart() -> None:
    before = rendered(cluster_with())
    assert not needs_restart(before, f"{before}PowerAction=rebuild Location=slurmctld Program=/x\n")


def test_an_existing_slurm_conf_includes_only_nodes_partitions_and_power_saving() -> None:
    cluster = load(CASES / "hybrid.yaml")
    existing = {
        "SlurmctldParameters": "enable_configless,power_save_interval=10",
        "PrivateData": "jobs",
        "SchedulerParameters": "bf_continue",
        "SlurmctldHost": "theirs",
    }
    text = render_include(
        cluster, state=cluster.state, version=VERSION, existing=existing, keep=["old1", "old2"]
    )
    assert text == (CASES / "hybrid.include").read_text()


def included(existing: dict[str, str], **options: Any) -> str:
    cluster = cluster_with()
    return render_include(
        cluster, state=cluster.state, version=VERSION, existing=existing, **options
    )


def test_an_existing_slurm_keeps_its_own_reboot_program_and_default_partition() -> None:
    text = included({"rebootprogram": "/sbin/reboot"}, default=False)
    assert "RebootProgram" not in settings(text)
    assert "reboot_from_controller" not in settings(text)["SlurmctldParameters"]
    assert "Default=NO" in text
    ours = included({})
    assert settings(ours)["RebootProgram"].endswith("/bin/reboot")
    assert "reboot_from_controller" in settings(ours)["SlurmctldParameters"]
    assert "Default=YES" in ours


@pytest.mark.accepts("A3")
def test_rebuild_jobs_of_an_existing_slurm_go_first_whatever_its_priorities() -> None:
    tier = "PriorityTier=65533"
    assert tier in included({})
    assert tier in included({"PriorityType": "priority/multifactor"})
    weighed = {"PriorityType": "priority/multifactor", "PriorityWeightPartition": "1000"}
    assert tier not in included(weighed)
    assert tier not in included({"PreemptType": "preempt/partition_prio"}), "no job is preempted"


def test_in_an_existing_slurm_only_nodes_of_our_partitions_are_ever_idle_for_too_long() -> None:
    text = included({})
    assert settings(text)["SuspendTime"] == "INFINITE"
    assert "SuspendTimeout" not in settings(text)
    assert "SuspendTime=600 SuspendTimeout=300 ResumeTimeout=630" in text


@pytest.mark.parametrize("count", [1, 60, 5000])
def test_slurmctld_speaks_to_each_node_itself(count: int) -> None:
    cluster = cluster_with(f"groups: {{general: {{nodes: 'n[1-{count}]'}}}}")
    assert int(settings(rendered(cluster))["TreeWidth"]) >= count


def test_a_version_that_lacks_what_we_need_is_refused() -> None:
    cluster = cluster_with()
    with pytest.raises(TooOldError, match=r"Slurm 21\.08 is too old; install Slurm 22\.05"):
        render(cluster, SITE, state=cluster.state, version=(21, 8))


def test_a_batch_system_of_another_kind_is_a_defect() -> None:
    cluster = parse("cluster: blue\nbatch: {kind: fake}\n", "cluster.yaml")
    with pytest.raises(TypeError, match="fake, not slurm"):
        rendered(cluster)


def test_nodes_are_hidden_only_if_private_data_says_so_and_slurm_is_old() -> None:
    hidden = load(CASES / "parameters.yaml")
    assert not hides_nodes(cluster_with(), VERSION)
    assert hides_nodes(hidden, VERSION)
    assert not hides_nodes(hidden, (24, 11))


def test_new_partitions_and_times_are_reread_but_new_nodes_need_a_restart() -> None:
    before = rendered(cluster_with())
    idle = rendered(
        cluster_with("groups: {general: {nodes: 'n[1-9]', min: 2}}\ntiming: {idle: 5s}")
    )
    more = rendered(cluster_with("groups: {general: {nodes: 'n[1-10]'}}"))
    assert idle != before
    assert not needs_restart(before, before)
    assert not needs_restart(before, idle)
    assert needs_restart(before, more)
    assert needs_restart("", before)


def test_the_control_host_gets_its_address_and_other_names_stay() -> None:
    hosts = "127.0.0.1 localhost vm # loop\n::1 vm\n# vm is ours\n\n10.0.0.9 other\n"
    assert render_hosts(hosts, "vm", "10.77.0.1") == (
        "10.77.0.1 vm\n127.0.0.1 localhost # loop\n# vm is ours\n10.0.0.9 other\n"
    )
    again = render_hosts(render_hosts(hosts, "vm", "10.77.0.1"), "vm", "10.77.0.1")
    assert again == render_hosts(hosts, "vm", "10.77.0.1")
