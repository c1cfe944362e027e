"""Our roles without nodes: how they are written, the control host's tried out, and ansible-pull."""

import json
import os
import shlex
import subprocess
import sys
from base64 import b64encode
from pathlib import Path
from typing import Any

import pytest

from springtide.configure import ansible_run, building_roles
from springtide.configure.ansible_inventory import Facts, render, render_control, render_play
from springtide.model import Node
from springtide.node import bundle
from springtide.node.system import render_block
from springtide.ports import Site
from springtide.spec import parse

pytestmark = [pytest.mark.real, pytest.mark.timeout(400)]

ROLES = sorted(path.name for path in ansible_run.ROLES.iterdir())
SPEC = "cluster: blue\ngroups: {g: {nodes: n1}}\nansible: {control: true}\n"
SHARES = f"{SPEC}shared: [{{path: /srv/data}}]\n"
PLAYBOOK = """
- hosts: localhost
  gather_facts: false
  tasks:
    - name: Leave a mark
      ansible.builtin.copy: {content: pulled, dest: MARK, mode: "0644"}
"""
ROOT = """
set -eu
mount -t tmpfs none "$1"
mkdir "$1/upper" "$1/work" "$1/root"
mount -t overlay -o "lowerdir=/,upperdir=$1/upper,workdir=$1/work" overlay "$1/root"
mount -t proc proc "$1/root/proc"
mount --rbind /dev "$1/root/dev"
mkdir -p "$1/root$2"
mount --rbind "$2" "$1/root$2"
rm -rf "$1"/root/etc/apt/sources.list*
cat >"$1/root/script"
exec chroot "$1/root" sh /script </dev/null
"""
"""A copy of this machine without a network; it is given a script, and sees the Python of ours."""
NEW = """
rm /usr/sbin/slurmctld
mkdir -p /run/systemd/system
printf '#!/bin/sh\necho "$*" >>/asked\n' >/usr/bin/systemctl
chmod 755 /usr/bin/systemctl
"""
"""Makes that copy look as if systemd ran and Slurm had never been there."""
PACKAGES = """
mkdir /packages
for name in NAMES; do
    place=/packages/$name
    mkdir -p $place/DEBIAN $place/usr/sbin $place/etc/$name
    printf 'Package: %s\nVersion: 9:1\nArchitecture: all\nMaintainer: nobody <nobody@localhost>\n' \
        $name >$place/DEBIAN/control
    echo 'Description: a stand-in' >>$place/DEBIAN/control
    printf '#!/bin/sh\nsystemctl start %s || true\n' $name >$place/DEBIAN/postinst
    chmod 755 $place/DEBIAN/postinst
    echo '#!/bin/sh' >$place/usr/sbin/$name
    dpkg-deb --build $place $place.deb >/dev/null
    cat $place/DEBIAN/control
    printf 'Filename: ./%s.deb\nSize: %s\n' $name $(wc -c <$place.deb)
    printf 'SHA256: %s\n\n' $(sha256sum $place.deb | cut -d' ' -f1)
done >/packages/Packages
echo 'deb [trusted=yes] file:/packages ./' >/etc/apt/sources.list
echo 'APT::Sandbox::User "root";' >/etc/apt/apt.conf.d/root
apt-get update >/dev/null
"""
"""Gives it packages; their services start as they are installed."""
BARE = """
rm -rf /var/lib/apt/lists/*
printf '#!/bin/sh\necho "called: apt-get $*"\n' >/usr/local/bin/apt-get
chmod 755 /usr/local/bin/apt-get
PATH=/usr/local/bin:$PATH
"""
"""Takes the package lists from it."""
PULL = """
import json, sys
from springtide.node.features import apply_ansible
apply_ansible({"ansible": json.loads(sys.argv[1])})
"""


def playbook(place: Path, roles: list[str], *options: str) -> subprocess.CompletedProcess[str]:
    """Our roles on this machine; only ever read, or tried out."""
    facts = Facts("here", Path("/nowhere"), Path("/nowhere"), Path("/nowhere"))
    inventory = place / "inventory.json"
    inventory.write_text(
        json.dumps(render_control(parse(SPEC, "c.yaml"), Site("127.0.0.1"), facts))
    )
    (place / "roles.yml").write_text(json.dumps(render_play("all", roles, "root")))
    command = [*ansible_run.PLAYBOOK, *options, "-i", str(inventory), str(place / "roles.yml")]
    env = {**os.environ, **ansible_run.environment(place)}
    return subprocess.run(
        command, env=env, text=True, capture_output=True, timeout=280, check=False
    )


def test_ansible_can_read_every_role(tmp_path: Path) -> None:
    assert ROLES == ["base", "control", "hosts", "mpi", "munge", "nfs", "slurm_node", "users"]
    done = playbook(tmp_path, ROLES, "--syntax-check")
    assert done.returncode == 0, done.stderr


def test_roles_use_nothing_but_ansible_itself() -> None:
    """Collections would have to be installed apart."""
    files = [path for path in ansible_run.ROLES.rglob("*.yml") if path.parent.name != "vars"]
    words = {line.split(":")[0].strip() for path in files for line in path.read_text().splitlines()}
    modules = {word for word in words if word.count(".") == 2 and " " not in word}
    assert modules
    assert all(module.startswith("ansible.builtin.") for module in modules), modules


def test_the_control_host_is_tried_out_and_not_changed(tmp_path: Path) -> None:
    done = playbook(tmp_path, ["control"], "--check")
    assert done.returncode == 0, done.stdout + done.stderr
    assert "failed=0" in done.stdout


def in_a_copy(place: Path, script: str) -> subprocess.CompletedProcess[str]:
    alone = ["unshare", "--net", "--mount", "--pid", "--fork", "--kill-child=KILL"]
    return subprocess.run(
        [*alone, "sh", "-c", ROOT, "sh", str(place), sys.prefix],
        input=script,
        text=True,
        capture_output=True,
        timeout=280,
        check=False,
    )


def test_every_role_for_images_can_be_applied_where_there_is_no_cluster(tmp_path: Path) -> None:
    assert set(ROLES) - set(building_roles.known()) == {"control", "hosts", "users"}
    script = building_roles.roles_script("blue", building_roles.known())
    done = in_a_copy(tmp_path, script.text)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "failed=0" in done.stdout
    tasks = done.stdout.split("TASK [")
    (mounts,) = [text for text in tasks if text.startswith("nfs : Install what mounts NFS")]
    assert "ok: [localhost]" in mounts


def test_package_lists_are_fetched_where_there_are_none(tmp_path: Path) -> None:
    script = building_roles.roles_script("blue", ["base"]).text
    done = in_a_copy(tmp_path, BARE + script)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "called: apt-get update" in done.stdout
    (fetched,) = [t for t in done.stdout.split("TASK [") if t.startswith("base : Fetch")]
    assert "ok: [localhost]" in fetched


def test_services_of_slurm_are_kept_from_starting_before_it_is_installed(tmp_path: Path) -> None:
    script = building_roles.roles_script("blue", ["control"]).text
    done = in_a_copy(tmp_path, f"{NEW}{script}cat /asked\n")
    assert done.returncode == 0, done.stdout + done.stderr
    assert {"mask slurmctld", "mask slurmd"} <= set(done.stdout.splitlines())
    before, _, after = done.stdout.partition("Install Slurm and munge")
    assert "changed: [localhost] => (item=slurmctld)" in before
    assert "changed: [localhost]" not in after


@pytest.mark.accepts("E3")
def test_a_control_host_without_slurm_gets_it_and_no_service_beside_the_cluster_s(
    tmp_path: Path,
) -> None:
    """The whole role, twice; apt and dpkg are real, the packages stand-ins."""
    spec = parse(SHARES, "c.yaml")
    facts = Facts("here", Path("/nowhere"), Path("/nowhere"), Path("/nowhere"))
    inventory = render_control(spec, Site("127.0.0.1"), facts)
    run = applied("/inventory.json")
    script = (
        f"{NEW}apt-get purge --yes slurmctld >/dev/null\nmkdir -p /ansible\n"
        f"{PACKAGES.replace('NAMES', 'slurmctld nfs-kernel-server')}"
        f"{handed(inventory, '/inventory.json')}"
        f"{handed(render_play('all', ['control'], 'root'), '/roles.yml')}"
        f"{run}cat /asked\ndpkg-query -W slurmctld nfs-kernel-server\n{run}"
    )
    done = in_a_copy(tmp_path, script)
    assert done.returncode == 0, done.stdout + done.stderr
    first, _, second = done.stdout.partition("nfs-kernel-server\t9:1\nslurmctld\t9:1\n")
    asked = first.partition("PLAY RECAP")[2].splitlines()
    assert asked.index("mask slurmctld") < asked.index("start slurmctld")
    assert "start nfs-kernel-server" in asked
    assert "changed=3" in first
    assert "changed=0" in second
    assert "failed=0" in second


BARE_NODE = """
cluster: blue
provider: {kind: command, control_address: 192.0.2.1, create: [on], delete: [off], list: [all]}
groups: {bare: {nodes: b1, without: [join]}}
ansible: {}
"""
PEOPLE = (
    {
        "name": "adaline",
        "uid": 20815,
        "gid": 20815,
        "gecos": "Ada",
        "home": "/h/adaline",
        "shell": "/bin/sh",
    },
    {
        "name": "bobbin",
        "uid": 20816,
        "gid": 20816,
        "gecos": "",
        "home": "/h/bobbin",
        "shell": "/bin/sh",
    },
)
GROUPS = (
    {"name": "adaline", "gid": 20815, "members": []},
    {"name": "bobbin", "gid": 20816, "members": []},
    {"name": "lab", "gid": 20817, "members": ["adaline"]},
    {"name": "sound", "gid": 20900, "members": ["adaline", "bobbin"]},
)
LEFT = (GROUPS[1], {"name": "sound", "gid": 20900, "members": ["bobbin"]})
BOB_OF_THE_IMAGE = """
echo 'bobbin:x:20816:20816:Bob of the image:/h/bobbin:/bin/false' >>/etc/passwd
printf 'bobbin:x:20816:\nsound:x:20900:\n' >>/etc/group
mkdir -p /ansible /h/adaline
echo 'a directory' >/site-sssd.conf
"""
LOOK = "id -Gn adaline; id -Gn bobbin; cat /etc/hosts\n"


def bare(more: str = "", **people: object) -> dict[str, Any]:
    """What Ansible is told of a node that gets nothing as it boots; it is the copy itself."""
    facts = Facts(
        control="control",
        key=Path("/nowhere"),
        known_hosts=Path("/nowhere"),
        munge_key=Path("/nowhere"),
        hosts={"b1": "10.77.0.2", "b2": "10.77.0.3"},
        agent=Path("/agent"),
        **people,  # type: ignore[arg-type]
    )
    nodes = [Node("b1", "bare", address="10.77.0.2")]
    told = render(parse(BARE_NODE + more, "c.yaml"), nodes, Site("127.0.0.1"), facts)
    told["all"]["vars"]["ansible_connection"] = "local"
    return told


def test_a_node_that_gets_nothing_as_it_boots_has_names_and_people_by_roles(
    tmp_path: Path,
) -> None:
    agent = b64encode(bundle.agent()).decode()
    script = (
        f"{PACKAGES.replace('NAMES', 'sssd')}{BOB_OF_THE_IMAGE}"
        f"base64 -d >/agent <<'END'\n{agent}\nEND\n"
        f"{handed(render_play('all', ['hosts', 'users'], 'root'), '/roles.yml')}"
        f"{handed(bare(users=PEOPLE, groups=GROUPS), '/here.json')}"
        f"{handed(bare(users=PEOPLE[1:], groups=LEFT), '/left.json')}"
        f"{handed(bare('users: {sssd: /site-sssd.conf}'), '/none.json')}"
        f"{applied('/here.json')}{LOOK}{applied('/here.json')}"
        f"{applied('/left.json')}! id adaline\nls /h\ngetent group lab; getent group sound\n"
        f"{applied('/none.json')}getent passwd bobbin\ngetent group sound\n"
        "cat /etc/sssd/sssd.conf\nstat -c %a /etc/sssd/sssd.conf\n"
    )
    done = in_a_copy(tmp_path, script)
    assert done.stdout.count("failed=0") == 4, done.stdout + done.stderr
    _, first, second, third, last = done.stdout.split("PLAY RECAP")
    assert {"adaline sound lab", "bobbin sound"} <= set(first.splitlines())
    assert {"192.0.2.1 control", "10.77.0.2 b1", "10.77.0.3 b2"} <= set(first.splitlines())
    assert "changed=0" in second
    left = third.partition("PLAY [")[0].splitlines()
    assert "adaline" in left, "the home stays"
    assert "sound:x:20900:bobbin" in left
    assert not [line for line in left if line.startswith(("uid=", "lab:"))]
    assert "bobbin:x:20816:20816:Bob of the image:/h/bobbin:/bin/false\nsound:x:20900:\n" in last
    assert last.endswith("a directory\n600\n")


def of_site(told: dict[str, Any], *certificates: str) -> dict[str, Any]:
    told["all"]["vars"] |= {"tide_certificates": certificates, "tide_time": ["ntp1", "ntp2"]}
    return told


def test_authorities_of_one_name_are_all_trusted_and_those_that_left_are_not(
    tmp_path: Path,
) -> None:
    both = of_site(bare(), "/a/site.pem", "/b/site.crt", "/a/other.pem")
    script = (
        f"{PACKAGES.replace('NAMES', 'chrony')}mkdir -p /ansible /a /b /etc/chrony/sources.d\n"
        f"{PEM}pem a >/a/site.pem; pem b d >/b/site.crt; pem c >/a/other.pem\n"
        "printf '#!/bin/sh\\necho trusted anew >>/asked\\n' >/usr/sbin/update-ca-certificates\n"
        f"{handed(render_play('all', ['base'], 'root'), '/roles.yml')}"
        f"{handed(both, '/both.json')}{handed(of_site(bare(), '/a/other.pem'), '/one.json')}"
        f"{applied('/both.json')}{TRUSTED}{applied('/both.json')}{applied('/one.json')}{TRUSTED}"
        "cat /asked /etc/chrony/sources.d/springtide.sources\n"
    )
    done = in_a_copy(tmp_path, script)
    assert done.stdout.count("failed=0") == 3, done.stdout + done.stderr
    _, first, second, last = done.stdout.split("PLAY RECAP")
    shown = [line for line in first.splitlines() if line.startswith("springtide-")]
    of_sites = [f"springtide-site-{number}.crt:{text}" for number, text in enumerate("abd", 1)]
    assert shown == ["springtide-other.crt:c", *of_sites], "each in a file of its own"
    assert "changed=0" in second
    assert last.partition("\n\n")[2].splitlines() == [
        "springtide-other.crt:c",
        *["trusted anew"] * 2,
        *["server ntp1 iburst", "server ntp2 iburst"],
    ]


PEM = """\
pem() { printf -- '-----BEGIN CERTIFICATE-----\\n%s\\n-----END CERTIFICATE-----\\n' "$@"; }
"""
TRUSTED = "cd /usr/local/share/ca-certificates; grep -Hv -e ----- springtide-*; cd /\n"
RED_HAT = {"name": "red", "hosts": "all", "gather_facts": True}
SEEM = {"ansible.builtin.set_fact": {"os_family": "RedHat", "cacheable": True}}


def test_chrony_of_a_red_hat_gets_the_time_servers_where_it_reads_them(tmp_path: Path) -> None:
    """In the file, between marks that a node which joins puts there as well."""
    told = of_site(bare())
    play = [{**RED_HAT, "pre_tasks": [SEEM], "roles": ["base"]}]
    run = applied("/red.json").rstrip() + " -e '{\"base_packages\": []}'\n"
    script = (
        f"{PACKAGES.replace('NAMES', 'chrony')}mkdir -p /ansible\n"
        "echo 'pool site.pool' >/etc/chrony.conf\n"
        f"{handed(play, '/roles.yml')}{handed(told, '/red.json')}{run}{run}cat /etc/chrony.conf\n"
    )
    done = in_a_copy(tmp_path, script)
    assert done.stdout.count("failed=0") == 2, done.stdout + done.stderr
    _, _, last = done.stdout.split("PLAY RECAP")
    servers = ["server ntp1 iburst", "server ntp2 iburst"]
    ours = render_block("pool site.pool\n", servers)
    assert last.partition("\n\n")[2] == ours
    assert "changed=0" in last


def applied(inventory: str) -> str:
    command = [*ansible_run.PLAYBOOK, "-i", inventory, "/roles.yml"]
    return f"env {assigned(ansible_run.environment(Path('/ansible')))} {shlex.join(command)}\n"


def assigned(environment: dict[str, str]) -> str:
    return shlex.join(f"{key}={value}" for key, value in environment.items())


def handed(value: object, path: str) -> str:
    return f"cat >{path} <<'END'\n{json.dumps(value)}\nEND\n"


def test_a_node_fetches_a_playbook_and_runs_it_on_itself(tmp_path: Path) -> None:
    mark, site = tmp_path / "mark", tmp_path / "site"
    site.mkdir()
    (site / "local.yml").write_text(PLAYBOOK.replace("MARK", str(mark)))
    name = ["-c", "user.name=a", "-c", "user.email=a@example.org"]
    for words in (["init", "-q", "-b", "main"], ["add", "."], [*name, "commit", "-qm", "x"]):
        subprocess.run(["git", *words], cwd=site, check=True)
    part = {"url": f"file://{site}", "playbook": "local.yml", "version": "main"}
    alone = ["unshare", "--net", "--mount", "--pid", "--fork", "--kill-child=KILL", "--mount-proc"]
    path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    done = subprocess.run(
        [*alone, sys.executable, "-c", PULL, json.dumps(part)],
        env={"PATH": path, "HOME": str(tmp_path), "LC_ALL": "C.UTF-8"},
        text=True,
        capture_output=True,
        timeout=280,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert mark.read_text() == "pulled"
