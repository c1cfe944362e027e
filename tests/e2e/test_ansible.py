"""Ansible on container nodes over real ssh: playbooks of the site, our roles, one run a step."""

import json
import subprocess
from collections.abc import Iterator
from functools import partial

import pytest

from tests.e2e.real import Json, RealCluster, cluster, until

pytestmark = [pytest.mark.real, pytest.mark.timeout(400)]

LIMIT_S = 300.0

SPEC = """
cluster: ansible
batch: {kind: slurm, port: 17130, node_port: 17131}
provider: {kind: containers, mounts: [SHARED]}
groups: {general: {nodes: "a-[1-5]", min: 2}}
ansible:
  before: [SHARED/before.yml]
  ROLES
  after: [SHARED/after.yml]
  variables: SHARED/variables.yml
timing: {idle: 3600s, start: 2m, stop: 10s, grace: 3600s}
"""
ROLES = "roles: [base, hosts, mpi]"
BEFORE = """
- hosts: general
  gather_facts: false
  tasks:
    - name: Leave a mark
      ansible.builtin.copy: {content: "{{ mark }}", dest: /etc/before, mode: "0644"}
"""
AFTER = """
- hosts: all
  gather_facts: false
  tasks:
    - name: Wait for the one who looks
      ansible.builtin.command: {argv: [sh, -c, "while [ -e SHARED/hold ]; do sleep 0.1; done"]}
      changed_when: false
    - name: Refuse whom the test names
      ansible.builtin.command: {argv: [test, "!", -e, "SHARED/refuse-{{ inventory_hostname }}"]}
      changed_when: false
    - name: Copy what was before
      ansible.builtin.copy: {src: /etc/before, dest: /etc/after, remote_src: true, mode: "0644"}
"""
WAITING = "ansible: task Wait for the one who looks"


@pytest.fixture(scope="module")
def real() -> Iterator[RealCluster]:
    with cluster(SPEC.replace("ROLES", ROLES), deployed=False) as made:
        (made.shared / "before.yml").write_text(BEFORE)
        (made.shared / "after.yml").write_text(AFTER.replace("SHARED", str(made.shared)))
        mark(made, "first")
        done = made.ended(begin(made, "deploy"), LIMIT_S)
        assert done["state"] == "done", done
        yield made


def mark(real: RealCluster, text: str, **more: object) -> None:
    (real.shared / "variables.yml").write_text(json.dumps({"mark": text, **more}))


def use_roles(real: RealCluster, *roles: str) -> None:
    real.write(SPEC.replace("ROLES", f"roles: [{', '.join(roles)}]"))
    done = real.tide("apply", str(real.file), "--yes")
    assert done.returncode == 0, done.stderr


def on(real: RealCluster, node: str, *command: str) -> str:
    """What a command says on the node, without Slurm and ssh."""
    process = (real.state / "containers" / "instances" / node / "process").read_text().split()
    enter = ["nsenter", f"--target={process[1]}", "--mount", "--pid", "--root", "--net"]
    return subprocess.run([*enter, *command], text=True, capture_output=True, check=True).stdout


def marks(real: RealCluster, *nodes: str) -> list[str]:
    return [on(real, node, "cat", "/etc/after") for node in nodes]


def told(real: RealCluster, id: int, what: str) -> dict[str, str]:
    """What events of an operation say, by node."""
    events = [e for e in real.events() if e["operation"] == id and e["what"] == what]
    return {event["node"]: event["detail"] for event in events}


def said(real: RealCluster, id: int) -> list[str]:
    return [event["detail"] for event in real.events() if event["operation"] == id]


def begin(real: RealCluster, kind: str, **more: str) -> int:
    asked = real.client.post("/operations", {"operation": kind, **more})
    return int(asked["operations"][0]["id"])


def changes(real: RealCluster, node: str) -> str:
    """What an update of it says."""
    done = update(real, node)
    assert done["state"] == "done", done["fallen"]
    return told(real, done["id"], "configured")[node]


def update(real: RealCluster, nodes: str) -> Json:
    return real.ended(begin(real, "update", nodes=nodes), LIMIT_S)


def life(real: RealCluster, node: str) -> tuple[str, str]:
    """What is another after a reboot: the instance, and its first process."""
    process = real.state / "containers" / "instances" / node / "process"
    return str(real.record(node)[node]["instance"]), process.read_text()


@pytest.mark.accepts("E3", "B15")
def test_playbooks_and_roles_run_at_deploy_before_nodes_register(real: RealCluster) -> None:
    assert marks(real, "a-1", "a-2") == ["first", "first"]
    assert told(real, 1, "configured") == {"a-1": "2 changed", "a-2": "2 changed"}
    events = [e for e in real.events() if e["operation"] == 1]
    said = [e["detail"] for e in events if e["what"] == "progress"]
    assert "ansible: role mpi, task Install Open MPI" in said
    order = [e["what"] for e in events]
    assert order.index("configured") < order.index("node registered")
    assert set(real.slurm("srun", "-N2", "hostname").split()) == {"a-1", "a-2"}


def test_roles_do_what_is_missing_once(real: RealCluster) -> None:
    use_roles(real, "nfs", "munge", "users", "slurm_node")
    disk = {"source": "tmpfs", "path": "/srv/disk", "type": "tmpfs", "options": ["size=1m"]}
    ada = {"name": "ada", "uid": 20815, "gid": 20815, "gecos": "", "home": "/h", "shell": "/bin/sh"}
    groups = [
        {"name": "ada", "gid": 20815, "members": []},
        {"name": "lab", "gid": 20816, "members": ["ada"]},
    ]
    more = {"tide_mounts": [disk], "tide_groups": groups, "tide_provided": ["names"]}
    mark(real, "roles", tide_users=[ada], **more)
    assert changes(real, "a-2") != "nothing to change"
    assert changes(real, "a-2") == "nothing to change"
    assert on(real, "a-2", "id", "-Gn", "ada") == "ada lab\n"
    assert "size=1024k" in on(real, "a-2", "findmnt", "--noheadings", "/srv/disk")
    assert f"--conf-server {control(real)}:17130" in on(real, "a-2", "cat", "/etc/default/slurmd")
    mark(real, "roles", tide_users=[], **{**more, "tide_groups": []})
    assert changes(real, "a-2") != "nothing to change"
    assert "ada" not in on(real, "a-2", "getent", "passwd")


def control(real: RealCluster) -> str:
    return str(real.client.get("/status")["control_address"])


@pytest.mark.accepts("C28")
def test_an_update_configures_nodes_again_without_a_reboot(real: RealCluster) -> None:
    use_roles(real, "hosts")
    before = life(real, "a-1")
    mark(real, "second")
    done = update(real, "a-1")
    assert done["state"] == "done", done
    assert told(real, done["id"], "configured") == {"a-1": "2 changed"}
    assert marks(real, "a-1", "a-2") == ["second", "roles"]
    assert life(real, "a-1") == before
    assert real.states("a-1") == {"ready"}
    assert real.slurm("srun", "-w", "a-1", "cat", "/etc/after") == "second"


def test_a_node_that_is_not_reached_falls_out_and_the_others_are_configured(
    real: RealCluster,
) -> None:
    mark(real, "third")
    # Until none is left: one that was only asked to end might let Ansible in once more.
    stop = "while pgrep -x sshd; do kill $(pgrep -x sshd); sleep 0.1; done"
    on(real, "a-2", "sh", "-c", stop)
    done = update(real, "a-[1-2]")
    assert done["state"] == "partly done"
    assert list(done["fallen"]) == ["a-2"]
    assert "not reached over ssh" in done["fallen"]["a-2"]
    assert "not reached over ssh" in told(real, done["id"], "not configured")["a-2"]
    assert marks(real, "a-1", "a-2") == ["third", "roles"]
    assert real.states("a-[1-2]") == {"ready"}


@pytest.mark.accepts("E3")
def test_a_new_node_that_has_registered_takes_no_job_before_it_is_set_up(
    real: RealCluster,
) -> None:
    hold = real.shared / "hold"
    hold.touch()
    try:
        assert real.tide("resize", "general=3", "--yes", "--no-wait").returncode == 0
        until(lambda: is_there(real, "a-3"), LIMIT_S)
        id = real.sbatch("cat /etc/after", "-w", "a-3")
        until(lambda: real.job(id).get("Reason", "").startswith("ReqNodeNotAvail"))
        assert "DRAIN" in real.node("a-3")["State"]
        shown = partial(real.slurm, "scontrol", "show", "node", "a-3")
        until(lambda: "Reason=springtide: Ansible has yet to set it up" in shown())
    finally:
        hold.unlink()
    real.finished(id, LIMIT_S)
    assert real.output(id) == marks(real, "a-1")
    until(lambda: real.states("a-3") == {"ready"})
    until(lambda: real.node("a-3")["State"] == "IDLE+CLOUD")


def is_there(real: RealCluster, node: str) -> bool:
    """Whether slurmctld has heard from it; while it does not answer, nobody knows."""
    shown = real.node(node)
    return "POWERED_DOWN" not in shown["State"] and shown["CPULoad"] not in ("", "N/A")


def test_a_resize_that_is_cancelled_amid_ansible_ends_and_leaves_nothing(
    real: RealCluster,
) -> None:
    """The file wants the node still, so it may be made again, until a resize says otherwise."""
    hold = real.shared / "hold"
    hold.touch()
    try:
        assert real.tide("resize", "general=4", "--yes", "--no-wait").returncode == 0
        id = until(lambda: enlarging(real, "a-4"))
        until(lambda: WAITING in said(real, id), LIMIT_S)
        begun = runs(real)
        assert begun
        done = real.tide("operations", str(id), "--cancel")
        assert done.returncode == 0, done.stderr
        assert real.ended(id, LIMIT_S)["state"] == "cancelled"
        until(lambda: not set(begun).intersection(runs(real)))  # though nobody lets it go on
    finally:
        hold.unlink()
    told = [e["what"] for e in real.events(node="a-4") if e["operation"] == id]
    assert told[-1] == "instance gone"
    back = real.tide("resize", "general=3", "--yes")
    assert back.returncode == 0, back.stderr
    assert real.states("a-4") == {"off"}
    assert "DRAIN" not in real.node("a-4")["State"]


def enlarging(real: RealCluster, node: str) -> int:
    """The operation under way that makes the node; 0 if there is none."""
    found = real.client.get("/operations", limit=20)["operations"]
    ours = [one for one in found if (one["kind"], one["nodes"]) == ("enlarge", node)]
    return next((one["id"] for one in ours if one["ended_at"] is None), 0)


def test_a_new_node_that_fails_a_task_is_removed_and_another_is_set_up(real: RealCluster) -> None:
    (real.shared / "refuse-a-4").touch()
    done = real.tide("resize", "general=5", "--yes")
    assert done.returncode == 3, done.stderr
    assert "a-4: Ansible could not configure it: task Refuse whom the test names" in done.stderr
    assert marks(real, "a-3", "a-5") == ["third", "third"]
    assert real.states("a-5") == {"ready"}
    assert real.slurm("srun", "-w", "a-5", "cat", "/etc/after") == "third"
    until(lambda: "POWERED_DOWN" in real.node("a-4")["State"])
    failed = [e for e in real.events(node="a-4") if e["what"] == "node failed"]
    assert "Refuse whom the test names" in failed[-1]["detail"]


def test_a_run_ends_with_the_daemon_and_is_begun_again_by_the_next(real: RealCluster) -> None:
    hold = real.shared / "hold"
    hold.touch()
    mark(real, "last")
    id = begin(real, "update", nodes="a-1")
    until(lambda: WAITING in said(real, id), LIMIT_S)
    real.kill_daemon()
    until(lambda: not runs(real))
    real.start_daemon()
    hold.unlink()
    assert real.ended(id, LIMIT_S)["state"] == "done"
    assert marks(real, "a-1") == ["last"]


def runs(real: RealCluster) -> list[str]:
    """Processes of Ansible for this cluster, and its connections."""
    place = f"{real.state}/ansible/"
    return [line for line in real.left_behind() if line.startswith("process") and place in line]
