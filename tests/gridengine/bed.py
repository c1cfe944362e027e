"""A real Grid Engine for tests, that knows nothing of the machine's own and leaves nothing behind.

`gridengine()` makes a cell below /var/tmp and starts its qmaster on ports of its own, with a
queue `cloud.q` over the hostgroup `@cloud`, another `all.q` over a host of the premises, and the
parallel environments of `conf`.

Grid Engine asks for names in both directions: it refuses a host whose name does not lead to an
address, and a connection from an address that does not lead back to the name. The machine's own
/etc/hosts stays as it is: qmaster and commands live in a mount namespace (see `init.sh`) whose
/etc/hosts is a link to `hosts`, which tests and Springtide change as they like. In `bin` are the
commands as anybody outside the namespace may call them who is root.

When the process of the test ends, even by SIGKILL, the namespace ends with its qmaster; the
directory is removed by the next run (`tests.leftovers`). Machines with an execd are the business
of a provider; `boot` is what they run.
"""

import os
import shutil
import socket
import subprocess
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from tests.gridengine import conf
from tests.leftovers import owned
from tests.ports import free_ports

PROGRAMS = Path("/usr/lib/gridengine")
PACKAGE = Path("/var/lib/gridengine")
SHARE = Path("/usr/share/gridengine")
COMMANDS = ("qacct", "qalter", "qconf", "qdel", "qhold", "qhost", "qmod", "qrls", "qstat", "qsub")
ADMIN = "sgeadmin"
USER = "nobody"
"""Whose jobs tests submit; root may not."""
STRANGER = "www-data"
"""Who may look, and change nothing."""
INIT = Path(__file__).with_name("init.sh")
LIMIT_S = 100.0
CACHES = {"RERESOLVE": "1", "UPDATE": "2", "LIFE": "3"}
"""Seconds for which qmaster remembers names; by itself it does so for minutes."""


@dataclass
class GridEngine:
    """One that runs."""

    root: Path
    ports: tuple[int, int]
    """Of qmaster and of execds."""
    names: dict[str, str] = field(default_factory=dict)
    """Addresses of names, besides those of this machine."""
    init: subprocess.Popen[str] | None = None

    @property
    def hosts(self) -> Path:
        return self.root / "hosts"

    @property
    def bin(self) -> Path:
        return self.root / "commands"

    @property
    def shared(self) -> Path:
        """A directory for everybody, where jobs run and write."""
        return self.root / "shared"

    @property
    def common(self) -> Path:
        """What execds read."""
        return self.root / conf.CELL / "common"

    @property
    def environment(self) -> dict[str, str]:
        return conf.environment(self.root, self.ports)

    def name(self, names: Mapping[str, str]) -> None:
        """Have Grid Engine know the addresses of these names; one without an address is forgotten.

        Whole and at once: it may be reading.
        """
        self.names = {name: to for name, to in {**self.names, **names}.items() if to}
        lines = [f"127.0.0.1 {socket.gethostname()} localhost"]
        known = {**conf.NOWHERE, **self.names}
        lines += [f"{address} {name}" for name, address in known.items()]
        fresh = self.hosts.with_name("hosts.new")
        fresh.write_text("\n".join(lines) + "\n")
        fresh.replace(self.hosts)

    # --- commands

    def attempt(self, *command: str, user: str | None = None) -> subprocess.CompletedProcess[str]:
        program, *arguments = command
        switch = _as_user(user) if user else []
        return subprocess.run(
            [*self._inside(), *switch, str(PROGRAMS / program), *arguments],
            env={**os.environ, **self.environment},
            text=True,
            capture_output=True,
            timeout=60,
            check=False,
        )

    def run(self, *command: str, user: str | None = None) -> str:
        done = self.attempt(*command, user=user)
        assert done.returncode == 0, (command, done.stdout, done.stderr)
        return done.stdout

    def bin_of(self, user: str) -> Path:
        """The commands as this user has them."""
        directory = self.root / f"commands-{user}"
        if not directory.exists():
            _write_commands(self, directory, _as_user(user))
        return directory

    def configure(self, option: str, text: str) -> None:
        """Of qconf, for one that takes a file."""
        file = self.root / "given"
        file.write_text(text)
        self.run("qconf", option, str(file))

    def submit(self, script: str, *options: str) -> str:
        """The id of a job of an ordinary user; its output goes to shared/NAME.oID."""
        where = ("-wd", str(self.shared), "-j", "y", "-terse")
        answer = self.run(
            "qsub", *where, "-b", "y", *options, "/bin/sh", "-c", f"'{script}'", user=USER
        )
        return answer.strip().partition(".")[0]

    def is_over(self, job: str) -> bool:
        """A qmaster that does not answer says something else."""
        done = self.attempt("qstat", "-j", job)
        return done.returncode != 0 and "do not exist" in done.stdout + done.stderr

    def _inside(self) -> list[str]:
        assert self.init is not None
        return ["nsenter", f"--mount=/proc/{self.init.pid}/ns/mnt"]

    # --- the qmaster

    def start(self) -> None:
        self._tell("start")
        end = time.monotonic() + LIMIT_S
        while self.attempt("qconf", "-sh").returncode != 0:
            assert time.monotonic() < end, f"qmaster did not answer within {LIMIT_S} s"
            time.sleep(0.05)

    def stop(self) -> None:
        self._tell("stop")

    def kill(self) -> None:
        self._tell("kill")

    def _tell(self, word: str) -> None:
        assert self.init is not None
        assert self.init.stdin is not None
        assert self.init.stdout is not None
        self.init.stdin.write(f"{word}\n")
        self.init.stdin.flush()
        answer = self.init.stdout.readline()
        assert answer.startswith(word), answer

    # --- nodes

    def add(self, name: str, address: str, slots: int = 2) -> None:
        """Have it expect a node. Its name first, its machine's execd last: see `boot`."""
        self.name({name: address})
        self.configure("-Ae", conf.HOST.format(name=name))
        self.run("qconf", "-aattr", "queue", "slots", f"[{name}={slots}]", conf.QUEUE)
        self.run("qconf", "-aattr", "hostgroup", "hostlist", name, conf.GROUP)
        (self.root / "expected" / name).touch()

    def remove(self, name: str) -> None:
        """Have it forget a node, and end its execd if it ever had one."""
        self.run("qmod", "-d", f"{conf.QUEUE}@{name}")
        self.attempt("qconf", "-ke", name)
        self.run("qconf", "-purge", "queue", "slots", f"{conf.QUEUE}@{name}")
        self.run("qconf", "-dattr", "hostgroup", "hostlist", name, conf.GROUP)
        self.run("qconf", "-de", name)
        (self.root / "expected" / name).unlink()
        self.name({name: ""})

    def boot(self) -> str:
        """What makes a node of a machine that sees `root` and reaches us by our name.

        An execd that is refused once tries again only after a minute and a half, so it must not
        start before qmaster knows its name; and who merely asks for it too early has qmaster
        remember that there is no such name.
        """
        return BOOT.format(
            exported=_exported(self.environment),
            expected=self.root / "expected",
            programs=PROGRAMS,
            control=socket.gethostname(),
        )


BOOT = """\
set -eu
{exported}until [ -e {expected}/$TIDE_NODE ]; do sleep 0.05; done
until timeout 5 {programs}/qping -info {control} $SGE_QMASTER_PORT qmaster 1; do
    sleep 0.1
done >/dev/null 2>&1
SGE_ND=1 exec {programs}/sge_execd
"""


def _exported(environment: Mapping[str, str]) -> str:
    return "".join(f"export {name}={value}\n" for name, value in environment.items())


@contextmanager
def gridengine(
    *, placeholder: bool = True, names: Mapping[str, str] | None = None
) -> Iterator[GridEngine]:
    """A Grid Engine for the length of the block or of the process.

    With a placeholder its queues accept jobs though there is no node. It believes for long where
    a name leads to at first: so do `names`.
    """
    root = Path(tempfile.mkdtemp(prefix="tide-", dir="/var/tmp"))
    root.chmod(0o755)
    with ExitStack() as stack:
        stack.enter_context(owned(root))
        stack.callback(shutil.rmtree, root)
        qmaster, execd = free_ports(2)
        bed = GridEngine(root, (qmaster, execd), dict(names or {}))
        _write_cell(bed)
        stack.enter_context(_namespace(bed))
        try:
            bed.start()
            _define(bed, placeholder=placeholder)
            yield bed
        except BaseException:
            _show(bed)
            raise


def _write_cell(bed: GridEngine) -> None:
    for path in (
        bed.common,
        bed.root / "qmaster" / "job_scripts",
        bed.root / "etc",
        bed.root / "expected",
    ):
        path.mkdir(parents=True)
    for name in ("bin", "lib", "utilbin", "util"):
        (bed.root / name).symlink_to(PACKAGE / name)
    bed.shared.mkdir()
    bed.shared.chmod(0o1777)
    bed.name({})
    (bed.common / "bootstrap").write_text(conf.render_bootstrap(bed.root))
    (bed.common / "act_qmaster").write_text(f"{socket.gethostname()}\n")
    (bed.common / "settings.sh").write_text(conf.render_settings(bed.root, bed.ports))
    subprocess.run(
        ["chown", "-R", f"{ADMIN}:", bed.common.parent, bed.root / "qmaster"], check=True
    )
    _spool(bed)


def _spool(bed: GridEngine) -> None:
    """What qmaster finds at its first start."""
    settings = (SHARE / "default-configuration").read_text()
    given = bed.root / "given"
    given.write_text(conf.changed(settings, conf.GLOBAL))
    where = f"{bed.common};{bed.root / 'qmaster'}"
    resources = SHARE / "util" / "resources"
    for command in (
        ("spoolinit", "classic", "libspoolc", where, "init"),
        ("spooldefaults", "configuration", str(given)),
        ("spooldefaults", "complexes", str(resources / "centry")),
        ("spooldefaults", "usersets", str(resources / "usersets")),
        ("spooldefaults", "managers", ADMIN, "root"),
    ):
        program, *arguments = command
        subprocess.run(
            [*_as_user(ADMIN), str(PROGRAMS / program), *arguments],
            env={**os.environ, **bed.environment},
            check=True,
            capture_output=True,
        )


@contextmanager
def _namespace(bed: GridEngine) -> Iterator[None]:
    caches = {f"SGE_COMMLIB_HOST_LIST_{name}_TIME": value for name, value in CACHES.items()}
    init = subprocess.Popen(
        ["unshare", "--mount", "sh", str(INIT), str(bed.root), str(PROGRAMS / "sge_qmaster")],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        env={"PATH": "/usr/sbin:/usr/bin:/sbin:/bin", "SGE_ND": "1", **bed.environment, **caches},
    )
    with init:
        assert init.stdin is not None
        assert init.stdout is not None
        try:
            assert init.stdout.readline() == "ready\n", "Grid Engine's namespace was not made"
            bed.init = init
            _write_commands(bed, bed.bin)
            yield
        finally:
            init.stdin.close()
            init.wait(LIMIT_S)


def _write_commands(bed: GridEngine, directory: Path, switch: Sequence[str] = ()) -> None:
    directory.mkdir()
    exported = _exported(bed.environment)
    inside = " ".join([*bed._inside(), *switch])
    for name in COMMANDS:
        path = directory / name
        path.write_text(f'#!/bin/sh\n{exported}exec {inside} {PROGRAMS / name} "$@"\n')
        path.chmod(0o755)


def _define(bed: GridEngine, *, placeholder: bool) -> None:
    bed.configure("-Msconf", conf.changed(bed.run("qconf", "-ssconf"), conf.SCHEDULER))
    bed.run("qconf", "-as", socket.gethostname())
    bed.configure("-Mc", bed.run("qconf", "-sc") + conf.COMPLEX)
    bed.run("qconf", "-aattr", "exechost", "complex_values", f"{conf.LICENCE}=5", "global")
    for name, rule in conf.ENVIRONMENTS.items():
        bed.configure("-Ap", conf.PARALLEL.format(name=name, rule=rule))
    hosts = [conf.PREMISES, *([conf.PLACEHOLDER] if placeholder else [])]
    for name in hosts:
        bed.configure("-Ae", conf.HOST.format(name=name))
    members = conf.PLACEHOLDER if placeholder else "NONE"
    bed.configure("-Ahgrp", f"group_name {conf.GROUP}\nhostlist {members}\n")
    template = bed.run("qconf", "-sq")
    for queue, over in ((conf.QUEUE, conf.GROUP), (conf.ON_PREMISES, conf.PREMISES)):
        bed.configure("-Aq", conf.changed(template, conf.queue_changes(queue, over)))


def _as_user(user: str) -> list[str]:
    return ["setpriv", f"--reuid={user}", f"--regid={_group(user)}", "--clear-groups"]


def _group(user: str) -> str:
    return subprocess.run(
        ["id", "-g", user], check=True, capture_output=True, text=True
    ).stdout.strip()


def _show(bed: GridEngine) -> None:
    """What a failed test leaves to read."""
    for path in (bed.root / "qmaster.out", bed.root / "qmaster" / "messages"):
        if path.exists():
            print(f"=== {path.name}", *path.read_text().splitlines()[-40:], sep="\n")
