"""A node forgets who it was, but nothing that is not its own: in a root of its own."""

import json
import subprocess
from contextlib import ExitStack
from pathlib import Path

import pytest

from springtide.configure.anonymise import OFF, anonymise, done, failed
from tests.e2e.real import LIMIT_S

pytestmark = pytest.mark.real

ENTER = """
set -eu
mount --bind /usr "$1/usr"
mount -o remount,bind,ro "$1/usr"
mount -t proc proc "$1/proc"
"""
LABEL = "soft-1-x86-64"
DONE, FAILED = done(LABEL), failed(LABEL)
FOREVER = "while :; do sleep 3600; done"


@pytest.fixture
def root(tmp_path: Path) -> Path:
    return machine(tmp_path)


def machine(root: Path) -> Path:
    """As much of one as the script needs."""
    for name in ("usr", "proc", "dev", "tmp", "var/tmp", "var/log", "etc/slurm", "root", "run"):
        (root / name).mkdir(parents=True)
    for name in ("bin", "sbin", "lib", "lib64"):
        (root / name).symlink_to(f"usr/{name}")
    for name in ("dev/null", "dev/zero"):
        (root / name).touch()
    return root


def run(root: Path, script: str, enter: str = ENTER) -> str:
    """In namespaces of its own: nothing of it is seen by others."""
    inside = script.removesuffix(OFF).replace(FOREVER, "exit 0")
    inner = f'{enter}\nexec chroot "$1" /bin/sh -c "$2"'
    command = ["unshare", "--mount", "--pid", "--fork", "--kill-child"]
    command += ["sh", "-c", inner, "sh", str(root), inside]
    done = subprocess.run(command, capture_output=True, text=True, timeout=LIMIT_S, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_nothing_is_forgotten_before_those_who_write_it_have_ended(root: Path) -> None:
    """One of them takes its time, and the other will not end."""
    (root / "var/spool/slurmd").mkdir(parents=True)
    loop = "while :; do echo secret >/var/spool/slurmd/$$; sleep 0.1; done"
    for name, last in (
        ("slurmd", "sleep 2; echo secret >/var/spool/slurmd/last; exit"),
        ("munged", ""),
    ):
        program = root / "tmp" / name
        program.write_text(f"#!/bin/sh\ntrap '{last}' TERM\n{loop}\n")
        program.chmod(0o755)
    begin = "/tmp/slurmd & first=$!; /tmp/munged &\n"
    both = "[ -e /var/spool/slurmd/$first ] && [ -e /var/spool/slurmd/$! ]"
    until = f"until {both}; do sleep 0.1; done\n"
    assert DONE in run(root, begin + until + anonymise(LABEL))
    assert list((root / "var/spool/slurmd").iterdir()) == []


@pytest.mark.parametrize("starts", ["sh /run/springtide/entry", "/run/springtide/entry"])
@pytest.mark.parametrize("name", ["pbs_mom", "sge_execd"])
def test_a_program_that_takes_jobs_ends_though_it_is_started_again_and_again(
    root: Path, name: str, starts: str
) -> None:
    """By what a node joined with, as an agent or a boot script starts it."""
    jobs = "/var/spool/pbs/mom_priv/jobs"
    (root / f".{jobs}").mkdir(parents=True)
    (root / "run/springtide").mkdir()
    loop = f"while :; do echo secret >{jobs}/$$; sleep 0.1; done"
    for path, text in (
        (f"opt/{name}", f"trap 'exit 1' TERM\n{loop}\n"),
        ("run/springtide/entry", f"until /opt/{name}; do sleep 0.5; done\n"),
    ):
        (root / path).parent.mkdir(exist_ok=True)
        (root / path).write_text(f"#!/bin/sh\n{text}")
        (root / path).chmod(0o755)
    begin = f"setsid {starts} &\nuntil ls {jobs}/* >/dev/null 2>&1; do sleep 0.1; done\n"
    later = anonymise(LABEL).removesuffix(OFF) + "sleep 1\n"
    assert DONE in run(root, begin + later)
    assert list((root / f".{jobs}").iterdir()) == []


def test_programs_that_take_jobs_wait_until_a_node_has_joined(root: Path) -> None:
    """In the image they are not started at boot."""
    program = root / "opt/systemctl"
    program.parent.mkdir()
    program.write_text('#!/bin/sh\necho "$@" >>/opt/asked\n')
    program.chmod(0o755)
    assert DONE in run(root, f"PATH=/opt:$PATH\n{anonymise(LABEL)}")
    asked = (root / "opt/asked").read_text().splitlines()
    for name in ("slurmd", "pbs_mom", "pbs", "gridengine-exec", "sgeexecd"):
        assert asked.index(f"disable {name}") < asked.index(f"stop {name}")


def test_what_joining_and_our_roles_left_goes_and_the_rest_stays(root: Path) -> None:
    ours = root / "var/lib/springtide"
    ours.mkdir(parents=True)
    theirs = {"users": ["a.b"], "groups": ["a.b"], "members": {}}
    (ours / "users").write_text(json.dumps(theirs, sort_keys=True) + "\n")
    for name in ("passwd", "shadow", "group", "gshadow"):
        (root / "etc" / name).write_text("a.b:x\naxb:x\n")
    mount, own = "srv:/home /home nfs _netdev,ro 0 0\n", "srv:/x /x nfs ro,_netdev 0 0\n"
    (root / "etc/fstab").write_text(mount + own)
    (root / "etc/default").mkdir()
    (root / "etc/default/slurmd").write_text('A=1\nSLURMD_OPTIONS="-N n --conf-server c:1"\n')
    (root / "etc/chrony.d").mkdir()
    (root / "etc/chrony.d/springtide.sources").write_text("server c\n")
    (root / "etc/slurm/slurm.conf").write_text("ClusterName=blue\n")
    mom = root / "var/spool/torque/mom_priv/config"
    mom.parent.mkdir(parents=True)
    mom.write_text("# springtide: begin\n$pbsserver head\n# springtide: end\n$max_load 4\n")
    said = run(root, anonymise(LABEL))
    assert DONE in said
    for name in ("passwd", "shadow", "group", "gshadow"):
        assert (root / "etc" / name).read_text() == "axb:x\n"
    assert (root / "etc/fstab").read_text() == own
    assert (root / "etc/default/slurmd").read_text() == "A=1\n"
    assert list((root / "etc/chrony.d").iterdir()) == []
    assert mom.read_text() == "$max_load 4\n"
    assert list((root / "etc/slurm").iterdir()) == []


def test_groups_of_the_image_lose_the_members_that_the_cluster_gave_them(root: Path) -> None:
    (root / "var/lib/springtide").mkdir(parents=True)
    members = {"groups": ["ann", "b.c"], "users": ["b.c", "z"], "video": ["ann"], "bare": []}
    theirs = {"users": ["ann", "b.c", "z"], "groups": ["ann"], "members": members}
    text = json.dumps(theirs, sort_keys=True) + "\n"
    (root / "var/lib/springtide/users").write_text(text)
    before = (
        "groups:x:7:ann,bxc,b.c,joan\nusers:x:8:z\nvideo:x:9:joann,ann\nann:x:10:\nbare:x:11:ann\n"
    )
    after = "groups:x:7:bxc,joan\nusers:x:8:\nvideo:x:9:joann\nbare:x:11:ann\n"
    for name in ("group", "gshadow"):
        (root / "etc" / name).write_text(before)
    assert DONE in run(root, anonymise(LABEL))
    assert [(root / "etc" / name).read_text() for name in ("group", "gshadow")] == [after] * 2


SECRETS = (
    *("etc/munge/munge.key", "var/lib/springtide/key", "etc/ssh/ssh_host_ed25519_key"),
    *("etc/sssd/sssd.conf", "var/lib/sss/db/cache_site.ldb", "var/lib/sss/secrets/.secrets.mkey"),
    *("etc/krb5.keytab", "var/lib/cloud/instances/i-1/user-data.txt", "etc/slurm/slurm.key"),
    *("var/lib/cloud/instances/i-1/user-data.txt.i", "var/log/cloud-init-output.log"),
    *("var/spool/slurmd/conf-cache/slurm.key", "tmp/agent", "root/.bash_history"),
    *("var/lib/cloud/instances/i-1/obj.pkl", "var/lib/cloud/instances/i-1/scripts/part-001"),
    "root/.ansible/pull/n1/site.yml",
    *("var/spool/torque/mom_priv/jobs/1.head.SC", "var/spool/torque/spool/1.head.OU"),
    *("var/spool/torque/undelivered/1.head.ER", "var/spool/torque/aux/1.head"),
    *("var/spool/torque/server_name", "etc/pbs.conf"),
    *("var/spool/pbs/mom_priv/jobs/2.head.JB", "var/spool/pbs/spool/2.head.OU"),
    *("var/spool/pbs/undelivered/2.head.ER", "var/spool/pbs/aux/2.head"),
    *("var/spool/pbs/mom_logs/20300101", "var/spool/gridengine/execd/n1/job_scripts/3"),
    "var/lib/gridengine/default/spool/n1/active_jobs/3.1/environment",
)
OVERWRITTEN = (*SECRETS[:6], *(name for name in SECRETS if "cloud/instances" in name))
"""Where a node has what it joined with, or what a directory of people told it."""
SOFTWARE = (
    *("opt/soft", "root/.ansible/collections/x/meta.yml", "var/spool/torque/mom_priv/prologue"),
    "var/lib/gridengine/default/common/bootstrap",
)


def test_no_secret_of_a_node_stays(root: Path) -> None:
    for name in (*SECRETS, *SOFTWARE):
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(f"secret of {name}\n")
    assert found(root) == {*SECRETS, *SOFTWARE}
    assert DONE in run(root, anonymise(LABEL))
    assert found(root) == {*SOFTWARE}, "what the site installed stays, whatever it is"


def test_a_small_image_with_busybox_forgets_as_well(root: Path) -> None:
    for name in ("find", "sed", "rm", "rmdir"):
        (root / "opt").mkdir(exist_ok=True)
        (root / "opt" / name).symlink_to("/usr/bin/busybox")
    kept = root / "var/spool/slurmd/conf-cache/slurm.conf"
    kept.parent.mkdir(parents=True)
    kept.write_text("ClusterName=blue\n")
    assert DONE in run(root, f"PATH=/opt:$PATH\n{anonymise(LABEL)}")
    assert list((root / "var/spool/slurmd").iterdir()) == []


def found(root: Path) -> set[str]:
    """The files whose secret is anywhere in a file."""
    files = [path for path in root.rglob("*") if path.is_file() and not path.is_symlink()]
    texts = [path.read_bytes() for path in files]
    names = (*SECRETS, *SOFTWARE)
    return {one for one in names if any(f"secret of {one}\n".encode() in text for text in texts)}


def test_secrets_are_overwritten_before_they_are_deleted(root: Path) -> None:
    """Whoever has the file open still sees what is at its place on the disk."""
    keys = [root / name for name in OVERWRITTEN]
    for key in keys:
        key.parent.mkdir(parents=True, exist_ok=True)
        key.write_text("secret")
    with ExitStack() as opened:
        files = [opened.enter_context(key.open("rb")) for key in keys]
        assert DONE in run(root, anonymise(LABEL), f'{ENTER}mount --bind /dev/zero "$1/dev/zero"')
        assert not any(key.exists() for key in keys)
        assert [file.read() for file in files] == [bytes(6)] * len(files)


def test_cloud_init_runs_it_to_its_end(root: Path) -> None:
    """As one of the files that it deletes, by a link to their directory. A shell reads a longer
    one bit by bit, as behind scripts of a build."""
    script = root / "var/lib/cloud/instances/i-1/scripts/part-001"
    script.parent.mkdir(parents=True)
    (root / "var/lib/cloud/instance").symlink_to("/var/lib/cloud/instances/i-1")
    before = "#!/bin/sh\n" + ": a script of the site\n" * 500
    script.write_text(before + anonymise(LABEL).removesuffix(OFF))
    script.chmod(0o755)
    run_it = "exec /var/lib/cloud/instance/scripts/part-001"
    assert DONE in run(root, run_it, f'{ENTER}mount --bind /dev/zero "$1/dev/zero"')
    assert not script.exists()


TRUST = "#!/bin/sh\necho trusted: $(ls /etc/pki/ca-trust/source/anchors) >/opt/asked\n"


def test_authorities_of_the_cluster_are_trusted_no_more_on_a_red_hat(root: Path) -> None:
    anchors, program = root / "etc/pki/ca-trust/source/anchors", root / "opt/update-ca-trust"
    anchors.mkdir(parents=True)
    program.parent.mkdir()
    for name in ("springtide-site.crt", "own.crt"):
        (anchors / name).write_text("a certificate")
    program.write_text(TRUST)
    program.chmod(0o755)
    assert DONE in run(root, f"PATH=/opt:$PATH\n{anonymise(LABEL)}")
    assert (root / "opt/asked").read_text() == "trusted: own.crt\n"


def test_a_secret_behind_a_link_is_not_the_node_s_own(root: Path) -> None:
    (root / "srv").mkdir()
    (root / "srv/sssd.conf").write_text("of the site")
    (root / "etc/sssd").mkdir()
    (root / "etc/sssd/sssd.conf").symlink_to("/srv/sssd.conf")
    assert DONE in run(root, anonymise(LABEL))
    assert (root / "srv/sssd.conf").read_text() == "of the site"


def test_a_link_is_not_followed_to_what_it_leads_to(root: Path) -> None:
    (root / "etc/slurm").rmdir()
    (root / "srv/slurm").mkdir(parents=True)
    (root / "srv/slurm/slurm.conf").write_text("of the site")
    (root / "etc/slurm").symlink_to("/srv/slurm")
    assert DONE in run(root, anonymise(LABEL))
    assert (root / "srv/slurm/slurm.conf").read_text() == "of the site"


def test_shared_files_are_let_go_before_anything_is_deleted(root: Path) -> None:
    """Here a tmpfs is the shared one; who has it open sees what is left of it."""
    enter = f"""{ENTER}
    mount -t tmpfs shared "$1/var/tmp"
    echo of-all >"$1/var/tmp/file"
    exec 3<"$1/var/tmp/file" 4<"$1/var/tmp"
    chroot "$1" /bin/sh -c "$2"
    ls /proc/self/fd/4/
    exit
    """
    said = run(root, anonymise(LABEL).replace("case $kind in nfs|", "case $kind in tmpfs|"), enter)
    assert DONE in said
    assert said.splitlines()[-1] == "file"


def test_nothing_is_deleted_if_shared_files_stay_mounted(root: Path) -> None:
    (root / "var/tmp/file").write_text("perhaps of all")
    (root / "proc/mounts").write_text("x / ext4 rw 0 0\nsrv:/home /my\\\\040home nfs4 rw 0 0\n")
    said = run(root, anonymise(LABEL), ENTER.replace('mount -t proc proc "$1/proc"', ""))
    assert DONE not in said
    assert f"{FAILED}shared files stay mounted, so nothing was deleted: /my" in said
    assert (root / "var/tmp/file").exists()


@pytest.mark.parametrize("name", ["etc/munge/munge.key", "etc/slurm/slurm.key"])
def test_a_node_that_cannot_delete_a_secret_says_which_and_not_that_it_is_done(
    root: Path, name: str
) -> None:
    (root / name).parent.mkdir(parents=True, exist_ok=True)
    (root / name).write_text("secret")
    fixed = f'mount --bind "$1/{name}" "$1/{name}"; mount -o remount,bind,ro "$1/{name}"'
    said = run(root, anonymise(LABEL), f"{ENTER}{fixed}")
    assert DONE not in said
    assert f"{FAILED}files with secrets could not be wiped and deleted: /{name}" in said


def shares(root: Path, place: str) -> str:
    """A filesystem of a kind that nobody knows as a shared one, with somebody's file."""
    (root / place).mkdir(parents=True)
    return f"""{ENTER}
    mount -t tmpfs any "$1/{place}"
    mkdir "$1/{place}/ann"
    echo of-all >"$1/{place}/ann/.bash_history"
    exec 4<"$1/{place}/ann"
    chroot "$1" /bin/sh -c "$2"
    ls -A /proc/self/fd/4/
    exit
    """


def test_what_the_cluster_file_shares_is_let_go_whatever_its_kind(root: Path) -> None:
    said = run(root, anonymise(LABEL, [Path("/srv/my data"), Path("/home")]), shares(root, "home"))
    assert DONE in said
    assert said.splitlines()[-1] == ".bash_history"


def test_what_the_cluster_file_shares_is_known_behind_a_link(root: Path) -> None:
    (root / "home").symlink_to("/srv/my home")
    said = run(root, anonymise(LABEL, [Path("/home")]), shares(root, "srv/my home"))
    assert DONE in said
    assert said.splitlines()[-1] == ".bash_history"


def test_nothing_is_deleted_if_what_the_cluster_file_shares_stays_mounted(root: Path) -> None:
    (root / "var/tmp/file").write_text("perhaps of all")
    (root / "proc/mounts").write_text("x / ext4 rw 0 0\nwho /my\\040home/in wekafs rw 0 0\n")
    enter = ENTER.replace('mount -t proc proc "$1/proc"', "")
    said = run(root, anonymise(LABEL, [Path("/my home")]), enter)
    assert f"{FAILED}shared files stay mounted, so nothing was deleted: /my" in said
    assert (root / "var/tmp/file").exists()
    assert DONE in run(root, anonymise(LABEL, [Path("/my")]), enter), "another of its own is not"
