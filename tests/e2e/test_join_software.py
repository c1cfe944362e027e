"""Machines that set themselves up as they join, with the programs that read what they are given.

Like those of `test_join`; their image has ansible-pull, chrony and sssd as well.
"""

import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from contextlib import suppress
from functools import partial
from pathlib import Path

import pytest

from springtide.configure.anonymise import OFF, anonymise, done
from tests.e2e import bay
from tests.e2e.packages import unpack
from tests.e2e.real import RealCluster, cluster, until

pytestmark = [pytest.mark.real, pytest.mark.timeout(400)]

BRIDGE, CONTROL, PORT = "tidepull0", "10.98.0.1", 17162
NODE, BARE = "jm-1", "jm-2"
SOURCES, SSSD_CONF = "/etc/chrony/sources.d/springtide.sources", "/etc/sssd/sssd.conf"
LIMIT_S = 180.0
TEXT = f"""
cluster: jm
batch: {{kind: slurm, port: 17160, node_port: 17161}}
join: {{port: {PORT}}}
naming: {{kind: dns, forward: [192.0.2.53]}}
certificates: [SHARED/site-ca.pem]
time: [time.site.test, 192.0.2.7]
users: {{sssd: SHARED/sssd.conf}}
ansible: {{pull: {{url: "file://SHARED/site.git", playbook: site.yml, version: nodes}}}}
{bay.provider(BRIDGE, CONTROL)}
flavors: {{small: {{cpus: 1, memory: 256M}}}}
groups:
  small: {{nodes: "{NODE}", flavors: [small]}}
  bare: {{nodes: "{BARE}", flavors: [small], without: [certificates, time, users, ansible]}}
timing: {{idle: 10m, start: 5m, stop: 30s, reconcile: 2s, grace: 2s}}
"""
PLAY = """
- hosts: localhost
  gather_facts: false
  tasks:
    - name: Leave a mark
      ansible.builtin.copy: {content: "pulled\\n", dest: /etc/pulled, mode: "0644"}
    - name: Refuse whom the site names
      ansible.builtin.command: {argv: [sh, -c, "test ! -e SHARED/refuse-$(hostname)"]}
      changed_when: false
"""
PULL = f"""#!/bin/sh
exec {sys.prefix}/bin/ansible-pull "$@"
"""
SSSD = """\
# password-of-the-directory
[sssd]
services = nss
domains = site

[domain/site]
id_provider = files
passwd_files = /etc/people
group_files = /etc/people.groups
"""
PEOPLE = "ada:x:20815:20815:Ada:/home/ada:/bin/sh\n"


@pytest.fixture(scope="module")
def real() -> Iterator[RealCluster]:
    with bay.network(BRIDGE, CONTROL), cluster(TEXT, deployed=False) as made:
        make_image(made.root / "image")
        (made.root / "seen").write_text(sys.prefix)
        make_repository(made.shared / "site.git", made.shared)
        make_authority(made.shared)
        (made.shared / "sssd.conf").write_text(SSSD)
        with bay.deployed(made, BRIDGE, [NODE, BARE]):
            yield made


# --- what the site has ---------------------------------------------------------------------


def make_image(image: Path) -> None:
    """No chronyd starts in it: the clock is that of this machine."""
    image.mkdir()
    unpack(["chrony", "sssd-common", "sssd-tools"], image)
    (image / "etc/init.d/chrony").unlink()
    (image / "etc/init.d/sssd").unlink()
    (image / "etc/people").write_text(PEOPLE)
    (image / "etc/people.groups").write_text("ada:x:20815:\n")
    pull = image / "usr/local/bin/ansible-pull"
    pull.parent.mkdir(parents=True)
    pull.write_text(PULL)
    pull.chmod(0o755)


def make_repository(place: Path, shared: Path) -> None:
    """Its play is on a branch; what is checked out by itself fails."""
    place.mkdir()
    git(place, "init", "--quiet", "--initial-branch=main")
    commit(place, "- hosts: nobody, or is this a play?\n")
    git(place, "checkout", "--quiet", "-b", "nodes")
    commit(place, PLAY.replace("SHARED", str(shared)))
    git(place, "checkout", "--quiet", "main")


def commit(place: Path, play: str) -> None:
    (place / "site.yml").write_text(play)
    git(place, "add", "site.yml")
    git(place, "commit", "--quiet", "-m", "Play")


def git(place: Path, *words: str) -> None:
    who = {f"GIT_{one}_{what}": "ada" for one in ("AUTHOR", "COMMITTER") for what in NAMED}
    env = {**os.environ, **who, "GIT_CONFIG_GLOBAL": "/dev/null", "GIT_CONFIG_SYSTEM": "/dev/null"}
    subprocess.run(["git", "-C", str(place), *words], env=env, check=True, capture_output=True)


NAMED = ("NAME", "EMAIL")


def make_authority(place: Path) -> None:
    """`site-ca.pem` with two, and the certificate of a server that the second vouches for."""
    new = ("openssl", "req", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes")
    other = ("-x509", "-subj", "/CN=Other CA", "-keyout", "other.key", "-out", "other.pem")
    ca = ("-x509", "-subj", "/CN=Site CA", "-keyout", "ca.key", "-out", "ca.pem")
    server = ("-subj", "/CN=server.site.test", "-keyout", "server.key", "-out", "server.csr")
    sign = ("openssl", "x509", "-req", "-in", "server.csr", "-CA", "ca.pem")
    by = ("-CAkey", "ca.key", "-CAcreateserial", "-out", "server.pem")
    for command in ((*new, *other), (*new, *ca), (*new, *server), (*sign, *by)):
        subprocess.run(command, cwd=place, check=True, capture_output=True)
    both = ((place / name).read_text() for name in ("other.pem", "ca.pem"))
    (place / "site-ca.pem").write_text("".join(both))


# --- machines ------------------------------------------------------------------------------


def on(real: RealCluster, *command: str, node: str = NODE) -> subprocess.CompletedProcess[str]:
    """A command there, without Slurm and ssh."""
    inner = (real.root / "bay" / node / "inner").read_text().strip()
    enter = ["nsenter", "-t", inner, "--mount", "--pid", "--net", "--root", "--wd"]
    return subprocess.run([*enter, *command], text=True, capture_output=True, check=False)


def up(real: RealCluster) -> None:
    if real.states(NODE) != {"ready"}:
        done = real.tide("resume", NODE)
        assert done.returncode == 0, done.stderr


def timeline(real: RealCluster, node: str = NODE) -> str:
    said = real.tide("timeline", node)
    assert said.returncode == 0, said.stderr
    return said.stdout


def those_until_slurmd(real: RealCluster, node: str = NODE) -> list[str]:
    """The phases of its boot, once the last is told: the job may be over before."""
    phases = [line.split()[0] for line in timeline(real, node).splitlines()[1:]]
    return phases if "slurmd" in phases else []


@pytest.mark.accepts("E3", "X16")
def test_a_machine_pulls_its_play_before_slurmd_starts_and_says_so_while_it_fails(
    real: RealCluster,
) -> None:
    refuse = real.shared / f"refuse-{NODE}"
    refuse.touch()
    id = real.sbatch("cat /etc/pulled", "-w", NODE)
    task = "ansible-pull of site.yml failed: task Refuse whom the site names: "
    try:
        (why,) = until(lambda: told(real, "boot failed"), LIMIT_S)
        assert why.startswith(task)
        assert "non-zero return code" in why, "in the words of any Ansible"
        until(lambda: f"failed: {why}" in timeline(real))
        story = real.tide("why", NODE).stdout
        assert f"ansible has failed so far: {why}" in " ".join(story.split()), story
        assert real.states(NODE) == {"joining"}
        assert on(real, "pgrep", "-x", "slurmd").stdout == ""
        assert until(lambda: real.job(id)["JobState"]) in ("PENDING", "CONFIGURING")
    finally:
        refuse.unlink()
    real.finished(id, LIMIT_S)
    assert real.output(id) == ["pulled"]
    phases = until(lambda: those_until_slurmd(real))
    assert phases.index("joined") < phases.index("ansible") < phases.index("slurmd")


def told(real: RealCluster, what: str) -> list[str]:
    return [event["detail"] for event in real.events(node=NODE) if event["what"] == what]


VERIFY = ("openssl", "verify", "-no-CAfile", "-no-CAstore")
"""By nothing else than what it is told."""


def verify(real: RealCluster) -> list[str]:
    return [*VERIFY, "-CApath", "/etc/ssl/certs", f"{real.shared}/server.pem"]


@pytest.mark.accepts("A7")
def test_jobs_trust_all_authorities_of_the_site(real: RealCluster) -> None:
    id = real.sbatch(" ".join(verify(real)), "-w", NODE)
    real.finished(id, LIMIT_S)
    assert real.output(id) == [f"{real.shared}/server.pem:", "OK"]
    here = subprocess.run(verify(real), text=True, capture_output=True, check=False)
    assert here.returncode != 0, "this machine does not"


@pytest.mark.accepts("A7")
def test_chrony_takes_the_time_servers_of_the_site(real: RealCluster) -> None:
    up(real)
    assert mode(real, SOURCES) == "644 root:root"
    said = on(real, "chronyd", "-p", "-f", SOURCES)
    assert said.returncode == 0, said.stderr
    assert said.stdout == "server time.site.test iburst\nserver 192.0.2.7 iburst\n"
    wrong = on(real, "chronyd", "-p", "serve time.site.test")
    assert wrong.returncode != 0, "it reads what it is given"


def mode(real: RealCluster, path: str) -> str:
    """And the owner."""
    return on(real, "stat", "-c", "%a %U:%G", path).stdout.strip()


@pytest.mark.accepts("C22")
def test_sssd_runs_with_what_the_site_says_of_people(real: RealCluster) -> None:
    up(real)
    assert mode(real, SSSD_CONF) == "600 root:root"
    assert on(real, "cat", SSSD_CONF).stdout == SSSD
    checked = on(real, "sssctl", "config-check")
    assert checked.returncode == 0, checked.stdout + checked.stderr
    look = ("getent", "-s", "sss", "passwd", "ada")
    assert until(lambda: on(real, *look).stdout).startswith("ada:x:20815:20815:")


def test_a_machine_of_a_group_that_does_without_gets_none_of_it(real: RealCluster) -> None:
    id = real.sbatch("hostname", "-w", BARE)
    real.finished(id, LIMIT_S)
    phases = until(lambda: those_until_slurmd(real, BARE))
    assert not {"certificates", "time", "users", "ansible"} & set(phases)
    given = f"{SOURCES} {SSSD_CONF} /etc/pulled /usr/local/share/ca-certificates/springtide-*"
    assert on(real, "sh", "-c", f"ls -d {given}", node=BARE).stdout == ""
    assert len(on(real, "sh", "-c", f"ls -d {given}").stdout.splitlines()) == 5
    assert on(real, *verify(real), node=BARE).returncode != 0


@pytest.mark.accepts("E9", "C14", "N16")
def test_machines_know_each_other_by_name_as_long_as_they_are_there(real: RealCluster) -> None:
    """By the cluster's own DNS: nothing is written on one of them for another."""
    up(real)
    real.finished(real.sbatch("true", "-w", BARE), LIMIT_S)
    for node, other in ((NODE, BARE), (BARE, NODE)):
        until(partial(knows, real, node, other))
        assert other not in on(real, "cat", "/etc/hosts", node=node).stdout
    assert real.tide("suspend", BARE).returncode == 0
    until(lambda: resolved(real, NODE, BARE) == [])


def knows(real: RealCluster, node: str, other: str) -> bool:
    address = (real.root / "bay" / other / "address").read_text().strip()
    return resolved(real, node, other) == [address]


def resolved(real: RealCluster, node: str, name: str) -> list[str]:
    """What a program on one machine gets for a name."""
    lines = on(real, "getent", "ahostsv4", name, node=node).stdout.splitlines()
    return sorted({line.split()[0] for line in lines})


def test_what_is_to_be_known_of_people_is_kept_to_sssd(real: RealCluster) -> None:
    added = real.tide("user", "add", "zoe")
    assert added.returncode != 0
    assert "sssd" in added.stderr
    assert json.loads(real.tide("user", "list", "--json").stdout)["users"] == []


# --- its image -----------------------------------------------------------------------------


@pytest.mark.accepts("E22", "E31")
def test_an_image_of_a_machine_that_joined_holds_no_secret(real: RealCluster) -> None:
    """What is found before it forgets shows that the scan finds."""
    up(real)
    upper = real.root / "bay" / NODE / "upper"
    user_data = (real.root / "bay" / NODE / "user-data").read_text()
    root = bay.inside(real, NODE)
    (root / "var/lib/cloud/instances/i-1").mkdir(parents=True)
    (root / "var/lib/cloud/instances/i-1/user-data.txt").write_text(user_data)
    (root / "var/lib/sss/db/cache_hashes.ldb").write_text("hash-of-a-password\n")
    theirs = of_node(upper, user_data)
    sought = {**theirs, **of_control(real)}
    assert found(upper, sought) == {"munge key", *theirs}
    said = on(real, "unshare", "--mount", "sh", "-c", ALONE + forgets(), "sh", str(real.root))
    assert done(IMAGE) in said.stdout, said.stdout + said.stderr
    assert found(upper, sought) == set()
    assert (upper / "etc/pulled").read_text() == "pulled\n"


ALONE = """
umount -l "$1/shared" "$1"
mount -t tmpfs none /var/tmp
"""
"""What of this machine is to be seen on the other is not its own to delete."""


IMAGE = "soft-1-x86-64"


def forgets() -> str:
    return anonymise(IMAGE).removesuffix(OFF)


def of_node(upper: Path, user_data: str) -> dict[str, bytes]:
    """What the machine was given or made for itself."""
    token = re.search(rf"\b{NODE}:\d+:([\w.-]+)", user_data)
    assert token is not None
    key = json.loads((upper / "var/lib/springtide/key").read_text())["key"]
    return {
        "token": token[1].encode(),
        "key": key.encode(),
        "host key": middle(upper / "etc/ssh/ssh_host_ed25519_key"),
        "sssd": b"password-of-the-directory",
        "hash": b"hash-of-a-password",
    }


def of_control(real: RealCluster) -> dict[str, bytes]:
    """All of the control host's that nobody else may read."""
    files = [
        *(real.state / "join").iterdir(),
        *(path for path in real.state.iterdir() if path.is_file()),
    ]
    private = [path for path in files if path.is_file() and not path.stat().st_mode & 0o077]
    sought = {path.name: middle(path) for path in private if path.stat().st_size >= 16}
    assert {"secret", "tls.key", "ssh_ca", "id_ed25519"} <= sought.keys()
    return {**sought, "munge key": middle(real.state / "key" / "munge.key")}


def middle(path: Path) -> bytes:
    """A part of it that no other file has."""
    content = path.read_bytes()
    lines = content.splitlines()
    return lines[len(lines) // 2] if content.startswith(b"-----") else content[:64]


def found(place: Path, sought: dict[str, bytes]) -> set[str]:
    """Those that are anywhere in its files."""
    contents = []
    for folder, _, files in os.walk(place):
        for path in (Path(folder, file) for file in files):
            with suppress(FileNotFoundError):  # the machine runs, and deletes some
                if path.is_file() and not path.is_symlink():
                    contents.append(path.read_bytes())
    return {name for name, secret in sought.items() if any(secret in one for one in contents)}
