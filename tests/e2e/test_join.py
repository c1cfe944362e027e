"""Machines that join by themselves: the real user data and agent, daemon and slurmctld.

The machines of `bay.sh` have a network and files of their own, and nothing of the cluster's but
what they get for their tokens.
"""

import http.client
import json
import os
import re
import shutil
import ssl
import subprocess
from collections.abc import Iterator
from contextlib import closing, contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest

from springtide.cli.endings import Exit
from springtide.joining.asked import Machine
from springtide.joining.machines import refused_by_slurm
from tests.e2e import bay
from tests.e2e.real import LIMIT_S, Json, RealCluster, cluster, until
from tests.e2e.test_refreshing import NO_ANSWER

pytestmark = [pytest.mark.real, pytest.mark.timeout(400)]

BRIDGE, CONTROL, PORT = "tidejoin0", "10.97.0.1", 17122
TEXT = f"""
cluster: tj
batch: {{kind: slurm, port: 17120, node_port: 17121}}
join: {{port: {PORT}}}
naming: {{kind: hosts}}
users: {{homes: SHARED/home, first: 28300}}
health: SHARED/health
{bay.provider(BRIDGE, CONTROL)}
flavors:
  small: {{cpus: 1, memory: 256M}}
  huge: {{cpus: 1, memory: 900G}}
groups:
  small: {{nodes: "tj-[1-4]", flavors: [small]}}
  large: {{nodes: "tj-[5-6]", flavors: [huge], weight: 100}}
  newer: {{nodes: "tj-7", flavors: [small], weight: 200}}
timing: {{idle: 30m, start: 240s, stop: 30s, reconcile: 2s, grace: 2s}}
"""
HEALTH = """\
#!/bin/sh
# A machine is ill as long as a file named after it says of what.
! cat "SHARED/ill-$TIDE_NODE" 2>/dev/null
"""


@contextmanager
def no_accounts(place: Path) -> Iterator[None]:
    """The daemon makes no account on this machine, of whose files the others have copies."""
    for name in ("useradd", "userdel", "usermod", "groupadd", "groupdel"):
        (place / name).write_text("#!/bin/sh\n")
        (place / name).chmod(0o755)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PATH", str(place), prepend=os.pathsep)
        yield


@pytest.fixture(scope="module")
def real(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RealCluster]:
    with (
        bay.network(BRIDGE, CONTROL),
        no_accounts(tmp_path_factory.mktemp("programs")),
        cluster(TEXT, deployed=False) as made,
    ):
        (made.shared / "home").mkdir()
        (made.shared / "health").write_text(HEALTH.replace("SHARED", str(made.shared)))
        (made.shared / "health").chmod(0o755)
        with bay.deployed(made, BRIDGE, [f"tj-{number}" for number in range(1, 8)]):
            yield made


def machine(real: RealCluster, name: str) -> Path:
    """The machine's directory in the bay."""
    return real.root / "bay" / name


def up(real: RealCluster, name: str) -> None:
    if real.states(name) != {"ready"}:
        done = real.tide("resume", name)
        assert done.returncode == 0, done.stderr


def post(path: str, body: Any) -> tuple[int, Json]:
    context = ssl.create_default_context()
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    with closing(http.client.HTTPSConnection(CONTROL, PORT, timeout=60, context=context)) as line:
        line.request("POST", path, json.dumps(body))
        answer = line.getresponse()
        return answer.status, json.loads(answer.read())


ABOUT = {"arch": "x", "cpus": 1, "memory": 256, "slurm": "", "boot": "mine", "clock": 1}


# --- joining -------------------------------------------------------------------------------


@pytest.mark.accepts("A7", "B6", "X17")
def test_a_machine_becomes_a_node_by_itself_and_runs_a_job(real: RealCluster) -> None:
    id = real.sbatch("hostname; grep -c springtide /etc/hosts; cat /etc/hosts", "-w", "tj-1")
    real.finished(id)
    said = real.output(id)
    assert "tj-1" in said
    assert CONTROL in said
    events = [event["what"] for event in real.events(node="tj-1")]
    assert events.index("node joined") < events.index("node registered")
    (joined,) = [e for e in real.events(node="tj-1") if e["what"] == "node joined"]
    assert joined["detail"].startswith("from 10.97.0.11; slurmd ")
    key = bay.inside(real, "tj-1") / "etc/munge/munge.key"
    assert key.read_bytes() == (real.state / "key" / "munge.key").read_bytes()
    assert key.stat().st_mode & 0o777 == 0o400


def joins(real: RealCluster) -> int:
    return len([e for e in real.events(node="tj-1") if e["what"] == "node joined"])


def token_of(real: RealCluster, name: str) -> str:
    """As the machine's user data has it."""
    told = re.search(rf"\b{name}:\d+:([\w.-]+)", (machine(real, name) / "user-data").read_text())
    assert told is not None
    return told[1]


@pytest.mark.accepts("A7")
def test_a_machine_that_is_started_afresh_configures_itself_again(real: RealCluster) -> None:
    up(real, "tj-1")
    before, joined = token_of(real, "tj-1"), joins(real)
    done = real.tide("rebuild", "tj-1", "--force", "--direct", "--yes")
    assert done.returncode == 0, done.stderr
    assert token_of(real, "tj-1") != before
    assert joins(real) == joined + 1
    id = real.sbatch("hostname", "-w", "tj-1")
    real.finished(id)
    assert real.output(id) == ["tj-1"]


@pytest.mark.accepts("X16")
def test_its_timeline_is_told(real: RealCluster) -> None:
    up(real, "tj-1")
    lines = until(lambda: those_until_slurmd(real, "tj-1"))
    phases = [line.split()[0] for line in lines]
    for one in ("requested", "instance", "started", "joined", "munge", "slurmd", "registered"):
        assert one in phases, lines
    assert phases.index("joined") < phases.index("munge") < phases.index("slurmd")
    print(*lines, sep="\n")


def those_until_slurmd(real: RealCluster, name: str) -> list[str]:
    """Its timeline, once the last phase is told: slurmd may have registered before."""
    shown = real.tide("timeline", name)
    assert shown.returncode == 0, shown.stderr
    lines = shown.stdout.splitlines()[1:]
    return lines if "slurmd" in [line.split()[0] for line in lines] else []


@pytest.mark.accepts("X17")
def test_its_token_is_of_no_use_to_others(real: RealCluster) -> None:
    up(real, "tj-1")
    token = token_of(real, "tj-1")
    generation = real.record("tj-1")["tj-1"]["generation"]
    who = {"cluster": "tj", "node": "tj-1", "generation": generation, "token": token}
    status, said = post("/join", {**who, "machine": ABOUT, "phases": []})
    assert (status, said["final"]) == (403, True)
    assert "the token was used before" in said["error"]
    refused = [e for e in real.events(node="tj-1") if e["what"] == "join refused"]
    assert refused[-1]["detail"].startswith("the token was used before; asked from ")
    status, said = post("/join", {**who, "cluster": "red", "machine": ABOUT, "phases": []})
    assert (status, said["final"]) == (403, True)


# --- what a node holds ---------------------------------------------------------------------


def secrets(real: RealCluster) -> dict[str, bytes]:
    """What would let its holder act for the control host."""
    join = real.state / "join"
    found = {"token secret": (join / "secret").read_bytes()}
    for name in ("tls.key", "ssh_ca", "id_ed25519"):
        lines = (join / name).read_bytes().splitlines()
        found[name] = lines[len(lines) // 2]
    return found


def held(real: RealCluster, name: str) -> Iterator[tuple[Path, bytes]]:
    """All files that the machine wrote or was given, with their contents."""
    root = bay.inside(real, name)
    for place in (machine(real, name) / "upper", root / "run", root / "tmp", in_root(root, real)):
        for directory, _, files in os.walk(place):
            for file in files:
                path, content = Path(directory, file), None
                with suppress(FileNotFoundError):  # the machine runs, and deletes some
                    if path.is_file() and not path.is_symlink():
                        content = path.read_bytes()
                if content is not None:
                    yield path, content


def in_root(root: Path, real: RealCluster) -> Path:
    return root / str(real.state).lstrip("/")


@pytest.mark.accepts("E31", "N15")
def test_a_node_holds_nothing_that_acts_on_the_control_host_or_the_cloud(
    real: RealCluster,
) -> None:
    up(real, "tj-1")
    sought = {**secrets(real), "token": token_of(real, "tj-1").encode()}
    root = bay.inside(real, "tj-1")
    assert not (in_root(root, real) / "join").exists()
    assert not (in_root(root, real) / "record.db").exists()
    found = {
        (what, str(path))
        for path, content in held(real, "tj-1")
        for what, secret in sought.items()
        if secret in content
    }
    assert found == set()
    modes = [path.stat().st_mode & 0o077 for path, _ in held(real, "tj-1") if path.name == "key"]
    assert modes == [0], "only root reads the node's own key"


@pytest.mark.accepts("E31", "N15")
def test_its_key_speaks_for_itself_alone(real: RealCluster) -> None:
    up(real, "tj-1")
    up(real, "tj-2")
    kept = json.loads((bay.inside(real, "tj-1") / "var/lib/springtide/key").read_text())
    other = real.record("tj-2")["tj-2"]["generation"]
    for node, generation in (("tj-2", other), ("tj-1", kept["generation"] + 1), ("tj-4", 0)):
        who = {"cluster": "tj", "node": node, "generation": generation, "key": kept["key"]}
        for path in ("/refresh", "/report"):
            status, said = post(path, {**who, "machine": ABOUT, "phases": []})
            assert (status, said["final"]) == (403, True), (path, node)
    for path in ("/operations", "/hook/resume", "/apply", "/drain"):
        assert post(path, {"operation": "destroy", "key": kept["key"]})[0] == 404
    log = (real.state / "log" / "daemon.log").read_text()
    token = token_of(real, "tj-1")
    assert kept["key"] not in log
    assert token not in log


# --- ssh -----------------------------------------------------------------------------------


def ssh(real: RealCluster, name: str, *command: str) -> str:
    """What it says; once more while the daemon is slower than the agent waits for it."""
    (said,) = until(lambda: heard(real, name, *command))
    return said


def heard(real: RealCluster, name: str, *command: str) -> list[str]:
    options = {
        "StrictHostKeyChecking": "yes",
        "UserKnownHostsFile": str(real.state / "conf" / "ssh_known_hosts"),
        "GlobalKnownHostsFile": "/dev/null",
        "HostKeyAlias": name,
        "IdentitiesOnly": "yes",
        "BatchMode": "yes",
        "ConnectTimeout": "60",
    }
    words = [word for key, value in options.items() for word in ("-o", f"{key}={value}")]
    address = (machine(real, name) / "address").read_text().strip()
    login = ["ssh", "-F", "/dev/null", "-i", str(real.state / "join" / "id_ed25519"), *words]
    done = subprocess.run(
        [*login, f"root@{address}", *command], text=True, capture_output=True, check=False
    )
    if done.returncode and f"{CONTROL}:{PORT} does not answer" in done.stdout:
        return []
    assert done.returncode == 0, done.stdout + done.stderr
    return [done.stdout.strip()]


def listens(real: RealCluster, name: str) -> bool:
    tables = (bay.inside(real, name).parent / "net" / "tcp").read_text()
    return ":0016 00000000:0000 0A" in tables


def host_key(real: RealCluster, name: str) -> str:
    return (bay.inside(real, name) / "etc/ssh/ssh_host_ed25519_key.pub").read_text()


@pytest.mark.accepts("E26")
def test_ssh_trusts_a_node_that_was_made_anew_under_its_old_name(real: RealCluster) -> None:
    up(real, "tj-3")
    until(lambda: listens(real, "tj-3"))
    assert ssh(real, "tj-3", "hostname") == "tj-3"
    before = host_key(real, "tj-3")
    assert real.tide("suspend", "tj-3").returncode == 0
    until(lambda: real.states("tj-3") == {"off"})
    up(real, "tj-3")
    until(lambda: listens(real, "tj-3"))
    assert host_key(real, "tj-3") != before
    assert ssh(real, "tj-3", "hostname") == "tj-3"


@pytest.mark.accepts("X16")
def test_on_the_node_the_agent_does_what_its_page_says(real: RealCluster) -> None:
    up(real, "tj-1")
    until(lambda: listens(real, "tj-1"))
    agent = "/usr/local/lib/springtide/agent"
    until(lambda: ssh(real, "tj-1", agent, "refresh") == "")  # names of others may be new
    said = ssh(real, "tj-1", agent, "report-failure", "the", "fan", "stands", "still")
    assert said == "springtide: the fan stands still"
    failed = [e["detail"] for e in real.events(node="tj-1") if e["what"] == "boot failed"]
    assert failed[-1] == "the fan stands still"  # on a busy machine its boot may have failed first
    assert real.states("tj-1") == {"ready"}


# --- people --------------------------------------------------------------------------------


def known(real: RealCluster, name: str, user: str) -> str:
    """What the machine says of a user."""
    enter = ["nsenter", "-t", (machine(real, name) / "inner").read_text().strip(), "-m", "-r"]
    done = subprocess.run(
        [*enter, "getent", "passwd", user], text=True, capture_output=True, check=False
    )
    assert done.returncode in (0, 2), done.stderr
    return done.stdout.strip()


def of_people(real: RealCluster, *words: str) -> subprocess.CompletedProcess[str]:
    """`tide user`, once more if a node did not answer ssh in time: it is done already then, and
    nodes are told again."""

    def answered() -> list[subprocess.CompletedProcess[str]]:
        done = real.tide("user", *words)
        late = done.returncode == Exit.PARTLY and NO_ANSWER.search(done.stdout)
        return [] if late else [done]

    (done,) = until(answered)
    return done


@pytest.mark.accepts("C22")
def test_who_is_added_is_known_on_nodes_that_joined_before_and_after_until_removed(
    real: RealCluster,
) -> None:
    up(real, "tj-1")
    until(lambda: listens(real, "tj-1"))
    added = of_people(real, "add", "zoe", "--gecos", "Zoe Z")
    assert added.returncode == 0, added.stderr
    assert re.search(r"known on (\d+) of \1 nodes that are up", added.stdout), added.stdout
    line = f"zoe:x:28300:28300:Zoe Z:{real.shared}/home/zoe:/bin/bash"
    assert known(real, "tj-1", "zoe") == line
    up(real, "tj-2")
    assert known(real, "tj-2", "zoe") == line
    until(lambda: listens(real, "tj-2"))
    gone = of_people(real, "remove", "zoe", "--yes")
    assert gone.returncode == 0, gone.stderr
    assert [known(real, name, "zoe") for name in ("tj-1", "tj-2")] == ["", ""]


# --- when it does not go well --------------------------------------------------------------


@pytest.mark.accepts("A8")
def test_a_machine_that_boots_while_the_daemon_is_away_waits_for_it(real: RealCluster) -> None:
    hold = real.root / "bay" / "hold"
    hold.touch()
    id = real.sbatch("hostname", "-w", "tj-4")
    log = machine(real, "tj-4") / "log"
    until(lambda: real.states("tj-4") == {"joining"})
    assert real.daemon is not None
    real.daemon.terminate()
    real.daemon.wait(timeout=LIMIT_S)
    hold.unlink()
    until(lambda: "waiting for the control host" in log.read_text())
    root = bay.inside(real, "tj-4")
    assert not (root / "etc/munge/munge.key").exists()
    assert not (root / "run/munge").exists()
    real.start_daemon()
    real.finished(id)
    assert real.output(id) == ["tj-4"]


@pytest.mark.accepts("X16", "B6")
def test_a_boot_that_fails_is_given_up_at_once_and_explains_itself(real: RealCluster) -> None:
    done = real.tide("resume", "tj-5")
    assert done.returncode != 0
    assert "its boot failed: " in done.stdout + done.stderr
    assert "did not register" not in done.stdout + done.stderr, "nobody waited for timing.start"
    story = real.tide("why", "tj-5")
    assert "Slurm is told" in story.stdout, story.stdout
    kept = real.tide("log", "tj-5")
    assert "the node gave up: " in kept.stdout, kept.stdout + kept.stderr
    events = [event["what"] for event in real.events(node="tj-5")]
    assert "boot failed" in events
    assert "node smaller than told" in events
    assert "node registered" not in events


@pytest.mark.accepts("A27")
def test_a_machine_that_fails_the_health_check_takes_no_job_until_it_is_well(
    real: RealCluster,
) -> None:
    if real.states("tj-2") != {"off"}:
        assert real.tide("suspend", "tj-2").returncode == 0
    ill = real.shared / "ill-tj-2"
    ill.write_text("disk is full\n")
    id = real.sbatch("hostname", "-w", "tj-2")
    until(lambda: "health check failed: disk is full" in log_of(real, "tj-2"))
    story = until(lambda: told_of_health(real, "tj-2"))
    assert "health check failed: disk is full" in story
    assert real.job(id)["JobState"] in ("CONFIGURING", "PENDING")
    ill.unlink()
    real.finished(id, 240)
    assert real.output(id) == ["tj-2"]


def log_of(real: RealCluster, name: str) -> str:
    """That of the machine before goes when the next is switched on."""
    with suppress(FileNotFoundError):
        return (machine(real, name) / "log").read_text()
    return ""


def told_of_health(real: RealCluster, name: str) -> str:
    """Its story, once that is in it."""
    story = " ".join(real.tide("why", name).stdout.split())
    return story if "health check" in story else ""


NEWER = """#!/bin/sh
[ "$1" = -V ] || exit 1
echo 'slurm-wlm 99.11.1'
"""
"""A slurmd of a release that slurmctld does not know yet."""


@contextmanager
def image_with(real: RealCluster, path: str, text: str) -> Iterator[None]:
    """A program that machines have which boot meanwhile."""
    image = real.root / "image"
    program = image / path
    program.parent.mkdir(parents=True)
    program.write_text(text)
    program.chmod(0o755)
    try:
        yield
    finally:
        shutil.rmtree(image)


@pytest.mark.accepts("N17")
def test_a_machine_whose_slurm_is_refused_is_given_up_at_once_with_the_version_to_use(
    real: RealCluster,
) -> None:
    control = real.slurm("scontrol", "--version").split()[-1]
    why = refused_by_slurm(Machine("", 1, 256, "99.11.1", "", 0.0, ()), control)
    assert f"is newer than slurmctld {control}: use an image with Slurm {control}" in why
    with image_with(real, "usr/local/sbin/slurmd", NEWER):
        done = real.tide("resume", "tj-7")
    assert done.returncode != 0
    assert why in done.stdout + done.stderr
    assert "did not register" not in done.stdout + done.stderr, "nobody waited for timing.start"
    log = (machine(real, "tj-7") / "log").read_text().splitlines()
    # It may be switched off before it says a word.
    assert all(why in line for line in log if "may not join" in line), log
    events = {event["what"]: event["detail"] for event in real.events(node="tj-7")}
    assert events["join refused"] == why
    assert "node joined" not in events
    assert "node registered" not in events
    until(lambda: real.states("tj-7") == {"off"})
