"""What a cluster needs of this machine, one function a check. They look and change nothing.

`tide check` makes all of them; `tide deploy` makes REQUIRED before it starts a daemon, and
`tide demo` MACHINE.
"""

import errno
import grp
import os
import pwd
import shutil
import tempfile
from collections.abc import Iterable, Sequence
from pathlib import Path

from springtide import hook
from springtide.batch import slurm_text
from springtide.batch.gridengine_commands import advised
from springtide.batch.slurm_control import MUNGE_USER, Control
from springtide.batch.slurm_place import is_free
from springtide.batch.unread import UnreadableError
from springtide.cli import (
    accounting_checks,
    boot_checks,
    control_checks,
    family_checks,
    file_checks,
    gridengine_checks,
    machine_checks,
    openpbs_checks,
    polled_slurm_checks,
    provider_checks,
    queue_checks,
    torque_checks,
)
from springtide.cli.attach_checks import judge_version
from springtide.cli.endings import remedy
from springtide.cli.join_checks import look_at_join
from springtide.cli.served_checks import look_at_served
from springtide.cli.subject import Check, Look, Subject, run, search_path
from springtide.configure import ansible_checks
from springtide.configure.programs import problems
from springtide.ports import Unavailable
from springtide.spec import Slurm, SpecError, load
from springtide.spec.changes import ADVICE
from springtide.spec.fingerprint import fingerprint

PACKAGES = {
    "slurmctld": "slurmctld",
    "slurmd": "slurmd",
    "scontrol": "slurm-client",
    "squeue": "slurm-client",
    "munged": "munge",
    "ip": "iproute2",
    "unshare": "util-linux",
    "setpriv": "util-linux",
}
"""The programs we call, and the Debian packages that have them."""
LEAST_DISK = 500 << 20
HERE = "127.0.0.1"
"""Who listens on all addresses of a port is in the way here too; other clusters are not."""

TRY_KERNEL = """\
mount -t tmpfs tide "$1"
mkdir "$1/upper" "$1/work" "$1/merged"
mount -t overlay -o "lowerdir=/,upperdir=$1/upper,workdir=$1/work" tide "$1/merged"
ip link add tide0 type bridge
ip link add tide1 master tide0 type veth peer name tide2
"""
"""What a node is made of, in namespaces that end with the shell."""


# --- this machine ------------------------------------------------------------------------


def look_at_user(_: Subject) -> Iterable[Check]:
    root = os.geteuid() == 0
    text = "you are root" if root else "you are not root"
    todo = "run it as root: the daemon makes networks, and changes the batch system"
    yield Check("root", root, text, "" if root else todo)


def look_at_programs(subject: Subject) -> Iterable[Check]:
    if subject.spec.polled:
        yield from queue_checks.look_at_commands(subject)
        return
    if not isinstance(subject.spec.batch, Slurm):
        return
    missing = [name for name in PACKAGES if shutil.which(name, path=search_path()) is None]
    if missing and subject.spec.ansible and subject.spec.ansible.control:
        text = f"{', '.join(missing)} not found: Ansible's role control installs them"
        yield Check("programs", None, text)
    elif missing:
        packages = " ".join(dict.fromkeys(PACKAGES[name] for name in missing))
        text = f"{', '.join(missing)} not found"
        yield Check("programs", False, text, f"run `apt-get install {packages}`")
    else:
        yield Check("programs", True, f"{', '.join(PACKAGES)} are there")
    if "slurmctld" not in missing:
        yield _version()


def _version() -> Check:
    done = run(["slurmctld", "-V"])
    try:
        return judge_version(slurm_text.parse_version(done.stdout))
    except UnreadableError as error:
        return Check("Slurm's version", False, str(error), "run `slurmctld -V` to see why")


def look_at_accounts(subject: Subject) -> Iterable[Check]:
    slurm = isinstance(subject.spec.batch, Slurm)
    for name in (subject.spec.batch.user, *([MUNGE_USER] if slurm else [])):
        yield _account(name)
    if group := subject.spec.admin_group:
        known = any(entry.gr_name == group for entry in grp.getgrall())
        text = f"group {group} {'exists' if known else 'does not exist'}"
        yield Check("admin group", known, text, "" if known else f"run `groupadd {group}`")


def _account(name: str) -> Check:
    try:
        pwd.getpwnam(name)
    except KeyError:
        todo = f"run `useradd --system {name}`, or install the batch system's packages"
        return Check(f"user {name}", False, f"user {name} does not exist", todo)
    return Check(f"user {name}", True, f"user {name} exists")


def look_at_port(subject: Subject) -> Iterable[Check]:
    """slurmctld's port; those of nodes are in networks of their own."""
    batch = subject.spec.batch
    if not isinstance(batch, Slurm) or batch.attach:
        return
    name, conf = f"port {batch.port}", subject.daemon.layout.conf / "slurm.conf"
    if subject.spec.control == "container":
        yield Check(name, True, "in a network of its own")
        return
    todo = "stop the program that has it (see `ss -ltnp`), or set batch.port to a free port"
    if Control(subject.spec.state, batch.user, conf).running:
        yield Check(name, True, "used by this cluster's slurmctld")
        return
    try:
        free = is_free(HERE, batch.port)
    except Unavailable as error:
        yield Check(name, False, str(error), todo)
        return
    text = "free" if free else "taken by another program"
    yield Check(name, free, text, "" if free else todo)


def look_at_kernel(subject: Subject) -> Iterable[Check]:
    """Namespaces, overlays, bridges: by trying, for no list of features tells."""
    if not file_checks.containers(subject.spec):
        return
    if os.geteuid() != 0:
        yield Check("kernel", None, "only root can try", "run it as root")
        return
    with tempfile.TemporaryDirectory() as place:
        command = ["unshare", "-n", "-m", "-u", "-p", "-i", "-f", "sh", "-ec", TRY_KERNEL, "sh"]
        done = run([*command, place])
    if done.returncode == 0:
        yield Check("kernel", True, "namespaces, overlays and bridges work")
    else:
        text = slurm_text.error_text(done.stderr) or f"exit code {done.returncode}"
        todo = "containers need a kernel (or an outer container) that allows this"
        yield Check("kernel", False, text, todo)


def look_at_nesting(subject: Subject) -> Iterable[Check]:
    return control_checks.try_container(subject, TRY_KERNEL)


def look_at_state(subject: Subject) -> Iterable[Check]:
    """Whether it can be written, and has room: one line, for they are one truth."""
    state = subject.spec.state
    there = next(path for path in (state, *state.parents) if path.exists())
    if number := _refusal(there):
        text = f"{there} cannot be written: {os.strerror(number)}"
        yield Check("state directory", False, text, remedy(number))
        return
    free = shutil.disk_usage(there).free
    room = f"{free >> 20} MiB free in {there}"
    if free < LEAST_DISK:
        todo = f"make room: {LEAST_DISK >> 20} MiB are needed"
        yield Check("state directory", False, room, todo)
    else:
        yield Check("state directory", True, f"can be written, {room}")


def _refusal(there: Path) -> int | None:
    """Why no file can be made in it, as an errno."""
    if not there.is_dir():
        return errno.ENOTDIR
    try:
        with tempfile.TemporaryFile(dir=there):
            return None
    except OSError as error:
        return error.errno


# --- the cluster, if there is one --------------------------------------------------------


def look_at_rights(subject: Subject) -> Iterable[Check]:
    """Slurm's programs: with wrong rights it switches power saving off and only logs it."""
    batch, directory = subject.spec.batch, subject.daemon.layout.programs
    if not isinstance(batch, Slurm) or subject.spec.polled:
        return
    if not directory.exists():
        yield Check("Slurm's programs", None, "not installed yet", subject.deploy)
        return
    paths = [directory / program for program in hook.PROGRAMS]
    found = list(dict.fromkeys(wrong for path in paths for wrong in problems(path, batch.user)))
    for wrong in found:
        what, _, todo = wrong.partition("; ")
        yield Check("Slurm's programs", False, what, todo)
    if not found:
        yield Check("Slurm's programs", True, f"all {len(paths)} have the right rights")


def look_at_original(subject: Subject) -> Iterable[Check]:
    """The file that people have, if its copy is looked at: `tide apply` goes by that file."""
    file = subject.status.get("file") if subject.status else None
    if subject.file != subject.daemon.stored_spec or not file or not os.access(file, os.R_OK):
        return
    try:
        same = fingerprint(load(Path(file))) == fingerprint(subject.spec)
    except SpecError:
        same = False
    if not same:
        text = f"that is the copy of the last deploy or apply; {file} has changed since"
        yield Check("file", None, text, f"run `tide check {file}`")


def look_at_daemon(subject: Subject) -> Iterable[Check]:
    socket = subject.daemon.layout.socket
    if subject.status is not None:
        same = subject.status["spec"] == fingerprint(subject.spec)
        text = "with this file" if same else "with the file of the last deploy, not yet this one"
        todo = "" if same else subject.deploy
        yield Check("daemon", True if same else None, f"answers on {socket}, {text}", todo)
    elif subject.daemon.layout.record.exists():
        yield Check("daemon", False, f"does not answer on {socket}", subject.deploy)
    else:
        yield Check("daemon", None, "not started yet", subject.deploy)


def look_at_batch(subject: Subject) -> Iterable[Check]:
    if subject.status is None or subject.status["control_address"] is None:
        yield Check("batch system", None, "not deployed, or no daemon to ask", subject.deploy)
        return
    batch, log = subject.status["batch"], subject.daemon.layout.log
    if batch["kind"] != subject.spec.batch.kind:
        refused = f"batch.kind cannot change to {subject.spec.batch.kind}"
        text = f"the cluster lives with {batch['kind']}: {refused}"
        yield Check("batch system", False, text, ADVICE)
    elif batch["problem"] and subject.spec.polled:
        text, todo = advised(batch["problem"], "start it; all goes on by itself then")
        yield Check("batch system", None, text, todo)
    elif batch["problem"]:
        yield Check("batch system", False, batch["problem"], f"see {log}; {subject.deploy}")
    elif lacks := batch.get("lacks"):
        text = f"{batch['kind']} {batch['version']} answers, but {lacks}"
        yield Check("batch system", False, text, f"see {log}; {subject.deploy}")
    else:
        yield Check("batch system", True, f"{batch['kind']} {batch['version']} answers")


def look_at_ansible(subject: Subject) -> Iterable[Check]:
    return ansible_checks.look(subject.spec.ansible)


MACHINE: Sequence[Look] = (
    look_at_user,
    look_at_programs,
    look_at_accounts,
    look_at_port,
    accounting_checks.look_at_accounting,
    look_at_state,
)
REQUIRED: Sequence[Look] = (
    *MACHINE,
    *file_checks.REQUIRED,
    polled_slurm_checks.look_at_attach,
    queue_checks.look_at_hosts,
    look_at_served,
    look_at_join,
    look_at_ansible,
)
ALL: Sequence[Look] = (
    look_at_original,
    *REQUIRED,
    queue_checks.look_at_environment,
    file_checks.look_at_names,
    *provider_checks.ALL,
    look_at_kernel,
    look_at_nesting,
    queue_checks.look_at_server,
    torque_checks.look_at_queues,
    openpbs_checks.look_at_address,
    gridengine_checks.look_at_queues,
    gridengine_checks.look_at_unheard,
    polled_slurm_checks.look_at_slurm_conf,
    look_at_rights,
    control_checks.look_at_control,
    look_at_daemon,
    look_at_batch,
    boot_checks.look_at_boots,
    machine_checks.look_at_machines,
    family_checks.look_at_families,
)
