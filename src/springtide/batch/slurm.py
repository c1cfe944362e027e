"""Slurm behind `ports.BatchSystem`: one command reads all nodes or jobs, one changes many nodes.

The daemon makes one Slurm per cluster. Commands run in threads of its own, which takes
less of the daemon's CPU than asyncio's children, in a clean environment; whatever goes wrong
becomes Unavailable.
"""

import asyncio
import os
import re
import subprocess
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from ipaddress import ip_address
from pathlib import Path
from threading import Lock
from typing import TypeVar

from springtide.batch import slurm_control, slurm_place, slurm_service, slurm_text
from springtide.batch.slurm_accounting import Accounting
from springtide.batch.slurm_conf import (
    TooOldError,
    control_host,
    hides_nodes,
    needs_restart,
    render,
    slurm_of,
)
from springtide.batch.slurm_control import Control
from springtide.layout import Layout
from springtide.nodeset import expand, fold
from springtide.ports import BatchNode, Job, Power, Site, Unavailable
from springtide.spec import Cluster

T = TypeVar("T")
Output = subprocess.CompletedProcess[str]

TIMEOUT_S = 30.0
MOST_NODES = 2000  # in one command
LONGEST_LIST = 60_000  # characters of names in one command; the kernel's limit is 131,071
LONGEST_REASON = 200
LONGEST_COMMENT = 500
THREADS = 4
PREFIX = "springtide: "

_JOB_ID = re.compile(r"[0-9]+(?:[_+][0-9]+)?")


class Slurm:
    """The Slurm of one cluster, on this machine."""

    def __init__(self, cluster: Cluster, *, timeout_s: float = TIMEOUT_S) -> None:
        batch = slurm_of(cluster)
        layout = Layout(cluster.state)
        self._cluster = cluster
        self._port = batch.port
        self._conf = layout.conf / "slurm.conf"
        accounting = Accounting(cluster, self._conf)
        self._control = Control(cluster.state, batch.user, self._conf, cluster.managed, accounting)
        self._unseen = slurm_text.powered_down(cluster.managed) if hides_nodes(cluster) else {}
        self._timeout_s = timeout_s
        self._controlling = Lock()
        self._threads = ThreadPoolExecutor(THREADS, thread_name_prefix="slurm")

    # Reading

    async def version(self) -> str:
        return await self._in_thread(self._version)

    def _version(self) -> str:
        """slurmctld tells without a configuration, or with one that is broken."""
        return slurm_text.parse_version(self._checked(["slurmctld", "-V"]).stdout)

    async def nodes(self, names: Iterable[str] | None = None) -> Mapping[str, BatchNode]:
        if names is None:
            return await self._in_thread(lambda: self._shown("nodes"))
        wanted = frozenset(names)
        return await self._in_thread(lambda: self._some(wanted)) if wanted else {}

    def _some(self, wanted: frozenset[str]) -> dict[str, BatchNode]:
        """A list too long for one question is looked up in the answer to the general one."""
        text = fold(wanted)
        shown = self._shown("node", text) if len(text) <= LONGEST_LIST else self._shown("nodes")
        return {name: node for name, node in shown.items() if name in wanted}

    def _shown(self, *what: str) -> dict[str, BatchNode]:
        """A name that Slurm does not know makes it fail; the answer is good all the same."""
        done = self._run(["scontrol", "-o", "show", *what])
        if done.returncode and (done.stderr or what == ("nodes",)):
            raise _failed(done)
        return self._unseen | slurm_text.parse_nodes(done.stdout)

    async def jobs(self) -> Sequence[Job]:
        command = ["squeue", "--all", "--noheader", "-o", slurm_text.JOB_FORMAT]
        return await self._in_thread(lambda: slurm_text.parse_jobs(self._checked(command).stdout))

    # Changing

    async def set_addresses(self, addresses: Mapping[str, str]) -> None:
        for name, address in addresses.items():
            _check_address(name, address)
        for batch in _batches(addresses):
            names = fold(batch)
            # Slurm pairs two lists of the same length, whatever their order.
            listed = ",".join(addresses[name] for name in expand(names))
            await self._scontrol("update", f"nodename={names}", f"nodeaddr={listed}")

    async def give_back(self, nodes: Iterable[str], reason: str) -> None:
        text = slurm_text.one_line(f"{PREFIX}{reason}", LONGEST_REASON)
        await self._update(nodes, "state=power_down_force", f"reason={text}")

    async def release(self, nodes: Iterable[str]) -> None:
        """Only what powers down: elsewhere it is refused, and would undo an admin's drain."""
        leaving = await self._leaving(nodes)
        try:
            await self._update(leaving, "state=resume")
        except Unavailable:
            if await self._leaving(leaving):  # else their time was just over, which is as good
                raise

    async def _leaving(self, nodes: Iterable[str]) -> list[str]:
        seen = (await self.nodes(nodes)).values()
        return [n.name for n in seen if "POWERING_DOWN" in n.flags and "DRAIN" not in n.flags]

    async def power_up(self, nodes: Iterable[str]) -> None:
        """Slurm takes this for a node that powers down, and forgets it; so it is refused here."""
        names = frozenset(nodes)
        seen = (await self.nodes(names)).values()
        leaving = {node.name for node in seen if node.power is Power.GOING_DOWN}
        await self._update(names - leaving, "state=power_up")
        if leaving:
            raise Unavailable(f"{fold(leaving)}: still powering down; ask again when that is over")

    async def power_down(self, nodes: Iterable[str]) -> None:
        """At once where nothing runs or will run; the rest take no further jobs."""
        seen = (await self.nodes(nodes)).values()
        booting = {n.name for n in seen if n.power is Power.GOING_UP and n.state == "IDLE"}
        there = {n.name for n in seen if n.power in (Power.UP, Power.GOING_UP)} - booting
        await self._update(booting, "state=power_down_force", f"reason={PREFIX}not wanted any more")
        await self._update(there, "state=power_down_asap")

    async def tell(self, job: str, text: str) -> None:
        if not _JOB_ID.fullmatch(job):
            raise Unavailable(f"{job!r} is no job id")
        comment = slurm_text.one_line(f"{PREFIX}{text}", LONGEST_COMMENT)
        await self._scontrol("update", f"jobid={job}", f"admincomment={comment}")

    async def _update(self, names: Iterable[str], *changes: str) -> None:
        for batch in _batches(names):
            await self._scontrol("update", f"nodename={fold(batch)}", *changes)

    async def _scontrol(self, *arguments: str) -> None:
        await self._in_thread(lambda: self._checked(["scontrol", *arguments]))

    # Control

    async def reload(self, site: Site) -> str:
        return await self._in_thread(lambda: self._reload(site))

    def _reload(self, site: Site) -> str:
        try:
            release = slurm_text.release(self._version())
            text = render(self._cluster, site, state=self._cluster.state, version=release)
            with self._controlling:
                self._control.prepare()
                self._install(text, site)
                return self._load(text, site)
        except TooOldError as error:
            raise Unavailable(str(error)) from error
        except OSError as error:
            where = error.filename or self._cluster.state
            raise Unavailable(f"cannot write {where}: {error.strerror}") from error

    def _install(self, text: str, site: Site) -> None:
        """A file that Slurm would not read never takes the place of one that it does."""
        draft = self._conf.with_name("slurm.conf.draft")
        slurm_place.write(draft, text)
        try:
            self._checked(["scontrol", "--version"], conf=draft)
        except Unavailable as error:
            why = str(error).replace(str(draft), str(self._conf))
            raise Unavailable(f"Slurm would not read its new configuration: {why}") from error
        finally:
            draft.unlink(missing_ok=True)
        slurm_place.write(self._conf, text)
        hosts = self._conf.with_name("hosts")
        known = hosts.read_text() if hosts.exists() else "127.0.0.1 localhost\n"
        host = control_host(self._cluster)
        slurm_place.write(hosts, slurm_control.render_hosts(known, host, site.control_address))

    def _load(self, text: str, site: Site) -> str:
        """Have slurmctld run with this text, which is in place already; says what changed."""
        control, loaded, place = self._control, self._control.loaded, self._place(site)
        started = []
        if control.running and needs_restart(loaded, text):
            self._check_move(loaded, site)
            started = control.start_others(*place)
            control.stop_slurmctld()
        started += control.start(*place, self._port)
        if loaded and loaded != text:
            self._checked(["scontrol", "reconfigure"])  # nodes reread it too
        control.loaded = text
        self._answers()
        changes = [f"{name} started" for name in started]
        if loaded != text and "slurmctld" not in started:
            changes.append("slurmctld reconfigured")
        return ", ".join(changes)

    def _place(self, site: Site) -> tuple[str, str]:
        return control_host(self._cluster), site.control_address

    def _check_move(self, loaded: str, site: Site) -> None:
        """A port that is taken must not cost the slurmctld that runs on another."""
        if f"SlurmctldPort={self._port}\n" not in loaded:
            slurm_place.check_port(site.control_address, self._port)

    def _answers(self) -> None:
        try:
            self._shown("nodes")
        except Unavailable as error:
            raise Unavailable(
                f"slurmctld runs but does not answer; kill it and deploy again: {error}"
            ) from error

    async def stop(self) -> None:
        await self._in_thread(self._stop)

    def _stop(self) -> None:
        with self._controlling:
            self._control.stop()

    # Commands

    async def _in_thread(self, work: Callable[[], T]) -> T:
        """Parsing too, so that a long answer does not hold up the daemon."""
        try:
            return await asyncio.get_running_loop().run_in_executor(self._threads, work)
        except slurm_text.UnreadableError as error:
            raise Unavailable(str(error)) from error

    def _checked(self, command: Sequence[str], conf: Path | None = None) -> Output:
        done = self._run(command, conf)
        if done.returncode:
            raise _failed(done)
        return done

    def _run(self, command: Sequence[str], conf: Path | None = None) -> Output:
        conf = conf or self._conf
        if command[0] != "slurmctld" and not conf.exists():
            raise Unavailable(f"{conf} does not exist; run `tide deploy` first")
        try:
            return subprocess.run(
                command,
                env=_environment(conf),
                stdin=subprocess.DEVNULL,
                capture_output=True,
                encoding="utf-8",
                errors="replace",
                timeout=self._timeout_s,
                check=False,
            )
        except FileNotFoundError:
            package = "slurmctld" if command[0] == "slurmctld" else "slurm-client"
            raise Unavailable(f"{command[0]} not found; install the package {package}") from None
        except subprocess.TimeoutExpired:
            raise Unavailable(
                f"`{_shown(command)}` took longer than {self._timeout_s:g} s; "
                "is slurmctld overloaded?"
            ) from None
        except OSError as error:
            raise Unavailable(f"cannot run `{_shown(command)}`: {error.strerror}") from error


def _environment(conf: Path) -> dict[str, str]:
    """Nothing of the daemon's but where programs are; times are printed in UTC."""
    path = f"{os.environ.get('PATH', '')}:{slurm_service.PATH}".lstrip(":")
    return {"PATH": path, "SLURM_CONF": str(conf), "LC_ALL": "C", "TZ": "UTC"}


def _failed(done: Output) -> Unavailable:
    said = slurm_text.error_text(done.stderr or done.stdout)
    return Unavailable(f"`{_shown(done.args)}` failed: {said or f'exit code {done.returncode}'}")


def _shown(command: Sequence[str]) -> str:
    return slurm_text.shorten(" ".join(command))


def _check_address(name: str, address: str) -> None:
    try:
        ip_address(address)
    except ValueError:
        raise Unavailable(f"{address!r} is no address for node {name}") from None


def _batches(names: Iterable[str]) -> Iterator[list[str]]:
    """Names in groups that fit into one command each."""
    batch: list[str] = []
    length = 0
    for name in names:
        if batch and (len(batch) == MOST_NODES or length + len(name) >= LONGEST_LIST):
            yield batch
            batch, length = [], 0
        batch.append(name)
        length += len(name) + 1
    if batch:
        yield batch
