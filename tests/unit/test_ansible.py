"""What Ansible is told, and what is understood of what it says."""

import asyncio
import json
import subprocess
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from ruamel.yaml import YAML

from springtide.cli.checks import look_at_ansible
from springtide.cli.subject import subject
from springtide.configure import ansible_run, node_ssh
from springtide.configure.ansible import ansible_of
from springtide.configure.ansible_checks import complaint
from springtide.configure.ansible_events import GIVEN_UP, Course, message
from springtide.configure.ansible_inventory import (
    END,
    Facts,
    render,
    render_control,
    render_play,
    render_whole,
)
from springtide.configure.ansible_run import PLAYBOOK, ROLES, Job, environment
from springtide.configure.node_ssh import NodeSsh
from springtide.model import Kind, Node, Phase
from springtide.plans import make_plan
from springtide.ports import Site
from springtide.spec import Cluster, parse
from springtide.store import open_sqlite
from springtide.users import Group, User
from tests.ports import free_ports

HERE = Path(__file__).parents[1]
CASES = HERE / "cases" / "ansible"
EVENTS = HERE / "recorded" / "ansible-2.19.14__events.jsonl"
SITE = Site("10.77.0.1")
SPEC = """
cluster: blue
state: /var/lib/springtide/blue
time: [ntp.example.org]
groups:
  general: {nodes: "n[1-2]"}
  ungrouped: {nodes: "x1"}
  far: {nodes: "f1", provider: {kind: command, create: [on], delete: [off], list: [all]}}
  bare:
    nodes: b1
    without: [join]
    provider:
      {kind: command, control_address: 192.0.2.1, create: [on], delete: [off], list: [all]}
shared: [{path: /x, source: /srv/x, options: [ro]}, {path: /y, source: "nas:/y"}]
ansible: {before: [/p/first.yml], roles: [base, munge], after: [/p/last.yml], user: admin}
"""
FACTS = Facts(
    control="control",
    key=Path("/keys/id"),
    known_hosts=Path("/run 1/known_hosts"),
    munge_key=Path("/keys/munge.key"),
    hosts={"n2": "10.77.0.3", "n1": "10.77.0.2"},
    users=[{"name": "ada", "uid": 20000, "gid": 20000}],
    groups=[{"name": "staff", "gid": 20000, "members": ["ada"]}],
    agent=Path("/run 1/agent"),
)


def cluster(text: str = SPEC) -> Cluster:
    return parse(text, "cluster.yaml")


def nodes() -> list[Node]:
    groups = {"n1": "general", "n2": "general", "x1": "ungrouped", "f1": "far", "b1": "bare"}
    addresses = (f"10.77.0.{last}" for last in range(2, 9))
    return [Node(n, g, address=a) for (n, g), a in zip(groups.items(), addresses, strict=False)]


def course() -> Course:
    """A run that was recorded, fed as far as it came."""
    found = Course()
    for line in EVENTS.read_text().splitlines():
        found.feed(json.loads(line))
    found.feed({"event": "runner_on_ok", "event_data": {"task": END, "host": "n1"}})
    return found


@pytest.mark.parametrize("case", ["inventory", "control"])
def test_the_inventory_is_this(case: str) -> None:
    made = {
        "inventory": render(cluster(), nodes(), SITE, FACTS),
        "control": render_control(cluster(), SITE, FACTS),
    }
    assert made[case] == json.loads((CASES / f"{case}.json").read_text())


def test_the_control_host_is_in_no_inventory_of_nodes() -> None:
    """A playbook of the site for `all` must not change this machine."""
    groups = render(cluster(), nodes(), SITE, FACTS)["all"]["children"]["tide_nodes"]["children"]
    assert {host for group in groups.values() for host in group["hosts"]} == {
        node.name for node in nodes()
    }


def test_a_group_finds_the_control_host_where_its_provider_has_it() -> None:
    groups = render(cluster(), nodes(), SITE, FACTS)["all"]["children"]["tide_nodes"]["children"]
    own = {name: group["vars"] for name, group in groups.items()}
    assert own["bare"]["tide_control"]["address"] == "192.0.2.1"
    assert [one["source"] for one in own["bare"]["tide_mounts"]] == ["192.0.2.1:/srv/x", "nas:/y"]
    assert own["far"]["tide_control"]["address"] == SITE.control_address
    assert own["far"]["tide_mounts"][0]["source"] == f"{SITE.control_address}:/srv/x"


def test_people_are_there_before_slurmd_takes_their_jobs() -> None:
    roles = cluster("cluster: blue\ngroups: {g: {nodes: n1}}\nansible: {}\n").ansible
    assert roles is not None
    assert roles.roles.index("users") < roles.roles.index("slurm_node")


@pytest.mark.parametrize(("users", "names"), [("", ["ada"]), ("users: {sssd: /etc/s.conf}", [])])
async def test_where_a_directory_has_the_people_nodes_get_it_instead(
    tmp_path: Path, users: str, names: list[str]
) -> None:
    spec = cluster(f"{SPEC}{users}\n")
    store = open_sqlite(tmp_path / "record.db")
    ada = User("ada", 20000, 20000, "", "/home/ada", "/bin/sh", ("staff",))
    await store.keep_user(ada, [Group("ada", 20000), Group("staff", 20001)])
    made = ansible_of(spec, store, "control", tmp_path / "munge.key")
    assert made is not None
    facts = await made.current({})
    await store.close()
    assert [one["name"] for one in facts.users] == names
    assert [one["members"] for one in facts.groups] == [[], ["ada"]][: 2 * len(names)]
    told = render(spec, nodes(), SITE, facts)["all"]["vars"]
    assert told["tide_sssd"] == ("" if names else "/etc/s.conf")


async def test_where_ssh_turns_us_away_the_key_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    spec = cluster(SPEC.replace("/var/lib/springtide/blue", str(tmp_path / "s")))
    store = open_sqlite(tmp_path / "record.db")
    made = ansible_of(spec, store, "control", tmp_path / "munge.key")
    assert made is not None
    said = {"n1": "admin@10.77.0.2: Permission denied (publickey).", "n2": "Connection refused"}

    def run(job: Job, hear: Callable[[Mapping[str, Any]], object], ends: object) -> str:
        for host, text in said.items():
            data = {"host": host, "res": {"msg": text}}
            hear({"event": "runner_on_unreachable", "event_data": data})
        hear({"event": "playbook_on_stats", "event_data": {"dark": dict.fromkeys(said, 1)}})
        return "failed"

    async def tell(node: str, text: str) -> None: ...

    monkeypatch.setattr(ansible_run, "run", run)
    await made.make_keys()
    done = await made.configure(SITE, nodes()[:2], {}, tell)
    await store.close()
    key = tmp_path / "s" / "join" / "id_ed25519"
    assert done.fallen == {
        "n1": f"not reached over ssh: {said['n1']}; the key is {key}",
        "n2": f"not reached over ssh: {said['n2']}",
    }


async def test_a_machine_that_joins_is_reached_when_its_host_key_is_signed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its sshd answers before; of a container, or a machine that does not join, that is enough."""
    store = open_sqlite(tmp_path / "record.db")
    made = ansible_of(cluster(), store, "control", tmp_path / "munge.key")
    assert made is not None
    far = Node("f1", "far", generation=2, address="127.0.0.1")
    monkeypatch.setattr(node_ssh, "PORT", free_ports(1)[0])  # nobody else's when it is closed
    monkeypatch.setattr(node_ssh, "TRY_S", 200.0)
    async with await asyncio.start_server(greet, "127.0.0.1", node_ssh.PORT):
        assert not await made.kept_out(replace(far, name="n1", group="general"))
        assert not await made.kept_out(replace(far, name="b1", group="bare"))
        assert "it has not got our keys yet; `tide timeline f1`" in await made.kept_out(far)
        earlier, failed = Phase("f1", 1, "ssh", 1.0), Phase("f1", 2, "ssh", 2.0, detail="failed: x")
        await store.note_phases([earlier, failed, Phase("f1", 2, "users", 2.0)])
        assert "it has not got our keys yet (failed: x); " in await made.kept_out(far)
        await store.note_phases([Phase("f1", 2, "ssh", 3.0)])
        assert not await made.kept_out(far)
    closed = f"port {node_ssh.PORT} of 127.0.0.1 is closed: is sshd installed there, and running?"
    assert await made.kept_out(far) == closed
    assert await made.kept_out(replace(far, address=None)) == "its address is not known"
    await store.close()


async def greet(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    writer.write(b"SSH-2.0-test\r\n")
    writer.close()


def test_playbooks_of_the_site_are_around_our_roles() -> None:
    play = render_play("tide_nodes", ["base"], "admin")
    whole = render_whole([Path("/p/first.yml")], play, [Path("/p/last.yml")])
    imported = [one.get("import_playbook") for one in whole]
    assert imported == ["/p/first.yml", None, "/p/last.yml", None]
    assert (whole[1]["roles"], whole[1]["become"]) == (["base"], True)


def test_no_roles_make_no_play() -> None:
    assert render_whole([], render_play("tide_nodes", [], "root"), []) == []


def test_nodes_fall_out_one_by_one_with_the_task_that_failed() -> None:
    assert course().fallen(["n1", "n2", "n3", "n4"], "") == {
        "n2": "task Refuse one: no room left here",
        "n3": "not reached over ssh: Task failed: Data could not be sent to remote host "
        '"127.0.0.1". Make sure this host can be reached over ssh: ssh: connect to host 127.0.0.1 '
        "port 9: Connection refused",
        "n4": "task Fail in secret: its output is secret (no_log)",
    }
    assert course().changed == {"n1": 2, "n2": 1, "n4": 1}


def test_how_far_a_run_is_names_role_and_task() -> None:
    data = {"task": "Install munge", "role": "munge"}
    event = {"event": "playbook_on_task_start", "event_data": data}
    assert Course().feed(event) == ("", "role munge, task Install munge")


def test_a_node_that_fails_is_told_of_at_once() -> None:
    data = {"task": "Install munge", "role": "munge", "host": "n1", "res": {"msg": "no room"}}
    failed = {"event": "runner_on_failed", "event_data": data}
    assert Course().feed(failed) == ("n1", "failed: role munge, task Install munge: no room")
    away = {"event": "runner_on_unreachable", "event_data": data}
    assert Course().feed(away) == ("n1", "failed: not reached over ssh: no room")


def test_a_node_that_did_not_come_to_the_end_is_not_configured() -> None:
    ended = Course()
    ended.feed({"event": "runner_on_ok", "event_data": {"task": END, "host": "n1"}})
    ended.feed({"event": "playbook_on_stats", "event_data": {"ok": {"n1": 1, "n2": 1}}})
    assert ended.fallen(["n1", "n2"], "") == {"n2": GIVEN_UP}


def test_a_run_that_was_cut_off_configured_nobody() -> None:
    cut = Course()
    cut.feed({"event": "verbose", "stdout": "[ERROR]: the playbook: /p/x.yml could not be found"})
    assert cut.fallen(["n1"], "failed, exit code 1") == {
        "n1": "Ansible did not finish: [ERROR]: the playbook: /p/x.yml could not be found"
    }
    assert Course().fallen(["n1"], "it took longer") == {
        "n1": "Ansible did not finish: it took longer"
    }


@pytest.mark.parametrize(
    ("result", "text"),
    [
        ({"msg": "non-zero return code", "stderr": "no\nroom"}, "non-zero return code: no room"),
        (
            {"msg": "non-zero return code", "stderr": "warning\n" * 99 + "no room\n"},
            "non-zero return code: no room",
        ),
        (
            {"msg": "non-zero return code", "rc": 3, "stderr": "", "stdout": "no room\n"},
            "non-zero return code: no room",
        ),
        ({"msg": "", "stderr": ""}, "no message"),
        (None, "no message"),
    ],
)
def test_a_failed_task_is_told_in_a_line(result: object, text: str) -> None:
    assert message(result) == text


def test_the_command_is_words_and_ends_with_us(tmp_path: Path) -> None:
    job = Job(tmp_path, tmp_path / "i.json", tmp_path / "p.yml", 7, 60.0, Path("/my vars.yml"))
    words = ansible_run.command(job)
    assert words[:3] == ["setpriv", "--pdeathsig", "KILL"]
    assert "@/my vars.yml" in words
    assert words[-1] == str(tmp_path / "p.yml")


def test_only_the_newest_runs_are_kept(tmp_path: Path) -> None:
    for number in range(ansible_run.KEPT + 3):
        (tmp_path / f"run-{number:03}").mkdir()
    (tmp_path / "home").mkdir()
    ansible_run.prune(tmp_path)
    left = sorted(path.name for path in tmp_path.iterdir())
    assert left[:2] == ["home", "run-003"]
    assert len(left) == ansible_run.KEPT + 1


def test_a_run_that_goes_on_is_kept_though_it_is_old(tmp_path: Path) -> None:
    runs = [tmp_path / f"run-{number:03}" for number in range(ansible_run.KEPT + 2)]
    for run in runs:
        run.mkdir()
    with ansible_run.held(runs[0]):
        ansible_run.prune(tmp_path)
    assert (runs[0].exists(), runs[1].exists()) == (True, False)
    ansible_run.prune(tmp_path)
    assert not runs[0].exists()


def test_all_container_nodes_are_known_by_one_key_that_is_made_once(tmp_path: Path) -> None:
    client = tmp_path / "id"
    node_ssh.ensure_key(client, "client")
    ssh = NodeSsh(tmp_path / "key" / "host", tmp_path / "conf" / "authorized")
    ssh.ensure(client)
    line = ssh.known(["n1", "n2"])
    ssh.ensure(client)
    assert ssh.known(["n1", "n2"]) == line
    assert line.startswith("n1,n2 ssh-ed25519 ")
    assert ssh.authorized.read_text().startswith("ssh-ed25519 ")
    assert ssh.host_key.stat().st_mode & 0o777 == 0o600


def test_a_key_that_is_none_is_named(tmp_path: Path) -> None:
    path = tmp_path / "no-key"
    path.write_text("nothing\n")
    path.chmod(0o600)
    with pytest.raises(OSError, match="no-key") as failed:
        node_ssh.public_line(path)
    assert failed.value.filename == str(path)


# --- plans and checks ------------------------------------------------------------------------


def notes(kind: Kind) -> tuple[str, ...]:
    spec = cluster()
    return make_plan(kind, ["n1"], spec, {"n1": Node("n1", "general")}, []).notes


def test_a_plan_says_that_ansible_runs() -> None:
    told = "Ansible configures nodes that run: roles base, munge; playbooks first.yml, last.yml"
    assert notes(Kind.DEPLOY) == notes(Kind.ENLARGE) == notes(Kind.UPDATE) == (told,)
    assert notes(Kind.RESUME) == notes(Kind.REBUILD) == ()


def checks(tmp_path: Path, ansible: str) -> list[tuple[bool | None, str]]:
    text = f"cluster: blue\nstate: {tmp_path}/s\ngroups: {{g: {{nodes: n1}}}}\nansible: {ansible}\n"
    return [(one.ok, one.text) for one in look_at_ansible(subject(cluster(text)))]


def test_a_playbook_that_is_missing_is_complained_of(tmp_path: Path) -> None:
    path = tmp_path / "a.yml"
    found = checks(tmp_path, f"{{before: [{path}]}}")
    assert found == [(False, f"{path} cannot be read, or is not there")]


def test_a_playbook_that_ansible_cannot_read_is_complained_of(tmp_path: Path) -> None:
    path = tmp_path / "a.yml"
    path.write_text("- hosts: all\n  tusks: []\n")
    ((ok, text),) = checks(tmp_path, f"{{before: [{path}]}}")
    assert ok is False
    assert "'tusks' is not a valid attribute for a Play" in text
    path.write_text("- hosts: all\n  tasks: []\n")
    assert checks(tmp_path, f"{{after: [{path}]}}") == [
        (True, "installed; 1 playbooks can be read")
    ]


def test_a_missing_extra_is_complained_of(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def nothing(name: str) -> Any:
        return None

    monkeypatch.setattr(ansible_run, "find_spec", nothing)
    found = checks(tmp_path, "{}")
    assert found == [(False, "the Python package ansible is not installed")]


def test_warnings_are_no_complaint() -> None:
    assert complaint("[WARNING]: no hosts\n[ERROR]: bad\n") == "[ERROR]: bad"


# --- roles ---------------------------------------------------------------------------------------

GETENT = """\
#!/bin/sh
echo "$*" >>"$(dirname "$0")/asked"
exec /usr/bin/getent "$@"
"""


def play_users(place: Path, names: Sequence[str]) -> "subprocess.CompletedProcess[str]":
    """The role `users` on this machine, which has got its people otherwise."""
    told = {"tide_provided": ["users"], "tide_users": [{"name": name} for name in names]}
    local = {"hosts": "localhost", "connection": "local", "gather_facts": False}
    play = place / "play.yml"
    play.write_text(json.dumps([{**local, "vars": told, "roles": ["users"]}]))
    (place / "getent").write_text(GETENT)
    (place / "getent").chmod(0o755)
    seen = {**environment(place, 60.0), "PATH": f"{place}:/usr/bin:/bin", "HOME": str(place)}
    command = [*PLAYBOOK, "--inventory", "localhost,", str(play)]
    return subprocess.run(command, env=seen, capture_output=True, text=True, check=False)


def test_people_are_looked_for_at_once_however_many_they_are(tmp_path: Path) -> None:
    """Each look is a connection to each node."""
    done = play_users(tmp_path, ["root", "daemon", "nobody"])
    assert done.returncode == 0, done.stdout
    assert (tmp_path / "asked").read_text() == "passwd root daemon nobody\n"
    done = play_users(tmp_path, ["root", "no-such", "none"])
    assert done.returncode == 2
    assert "the node does not know no-such, none: see" in done.stdout
    assert play_users(tmp_path, []).returncode == 0


def play(place: Path, tasks: Sequence[Mapping[str, Any]], facts: Facts = FACTS) -> str:
    """What Ansible says of tasks on this machine."""
    inventory, path = place / "inventory.json", place / "play.yml"
    inventory.write_text(json.dumps(render_control(cluster(), SITE, facts)))
    path.write_text(json.dumps([{"hosts": "all", "gather_facts": False, "tasks": tasks}]))
    seen = {**environment(place, 60.0), "PATH": "/usr/bin:/bin", "HOME": str(place)}
    command = [*PLAYBOOK, "--inventory", str(inventory), str(path)]
    return subprocess.run(command, env=seen, capture_output=True, text=True, check=False).stdout


def test_what_people_say_of_themselves_is_not_run(tmp_path: Path) -> None:
    """Everybody may write almost anything into the comment of their own account."""
    gecos = "Eve,{{ lookup('pipe', 'touch " + str(tmp_path / "run") + "') }}"
    facts = replace(FACTS, users=[{"name": "eve", "uid": 20001, "gid": 20001, "gecos": gecos}])
    said = play(tmp_path, [{"ansible.builtin.debug": {"msg": "{{ tide_users | to_json }}"}}], facts)
    assert "Eve,{{ lookup(" in said
    assert not (tmp_path / "run").exists()


def test_a_node_cannot_choose_a_file_of_the_control_host_to_be_read(tmp_path: Path) -> None:
    """What it says of its distribution may be anything, if it is in wrong hands."""
    home = tmp_path / "home"
    home.mkdir()
    (home / "mine.yml").write_text("base_packages: [mine]\n")
    says = {"os_family": str(home / "mine"), "cacheable": True}
    role = {"ansible.builtin.import_role": {"name": "base"}, "check_mode": True}
    said = play(tmp_path, [{"ansible.builtin.set_fact": says}, role])
    assert "Could not find or access 'mine.yml'" in said


@pytest.mark.parametrize(
    "path", sorted(ROLES.glob("*/handlers/main.yml")), ids=lambda p: p.parts[-3]
)
def test_what_a_change_calls_for_is_done_by_the_end_of_its_role(path: Path) -> None:
    """A node that fails later has its handlers skipped, and the next run changes nothing."""
    tasks = YAML(typ="safe").load(path.parents[1] / "tasks" / "main.yml")
    assert tasks[-1]["ansible.builtin.meta"] == "flush_handlers"
