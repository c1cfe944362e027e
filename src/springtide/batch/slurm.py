"""Slurm behind `ports.BatchSystem`. The daemon makes one for each cluster.

What it does with nodes is in `slurm_nodes`; here are jobs, and the control processes.
"""

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from threading import Lock

from springtide.batch import slurm_control, slurm_place, slurm_rebuild, slurm_text
from springtide.batch.running import TIMEOUT_S
from springtide.batch.slurm_accounting import Accounting
from springtide.batch.slurm_commands import Commands, past_job
from springtide.batch.slurm_conf import (
    control_host,
    hides_nodes,
    render,
    slurm_of,
)
from springtide.batch.slurm_conf_lines import needs_restart
from springtide.batch.slurm_control import Control
from springtide.batch.slurm_hidden import Hidden
from springtide.batch.slurm_instances import render_updates
from springtide.batch.slurm_nodes import SlurmNodes
from springtide.batch.slurm_reason import PREFIX
from springtide.batch.slurm_versions import OLDEST, Release, TooOldError
from springtide.batch.unread import UnreadableError
from springtide.layout import Layout
from springtide.ports import Job, Site, Unavailable
from springtide.spec import Cluster
from springtide.spec.fresh import fresh_nodes

LONGEST_COMMENT = 500

_JOB = r"[0-9]+(?:[_+][0-9]+)?"
_JOBS = re.compile(rf"{_JOB}(?:,{_JOB})*")

NODES = "nodes"
"""Beside slurm.conf."""


class Slurm(SlurmNodes):
    """The Slurm of one cluster."""

    def __init__(self, cluster: Cluster, *, timeout_s: float = TIMEOUT_S) -> None:
        batch = slurm_of(cluster)
        self._cluster = cluster
        self._port = batch.port
        self._conf = batch.attach or Layout(cluster.state).conf / "slurm.conf"
        absent = "is batch.attach right?" if batch.attach else "run `tide deploy` first"
        commands = Commands(self._conf, absent, timeout_s, self._silent)
        hides = hides_nodes(cluster, OLDEST) and hides_nodes(cluster, _release(commands))
        hidden = Hidden(cluster.managed if hides else ())
        super().__init__(commands, batch.user, hidden, fresh_nodes(cluster.groups))
        accounting = Accounting(cluster, self._conf)
        self._control = Control(cluster.state, batch.user, self._conf, cluster.managed, accounting)
        self._controlling = Lock()

    async def version(self) -> str:
        return await self._in_thread(self._version)

    async def standing(self) -> str:
        return await self._in_thread(lambda: self._not_running(self._control.missing))

    def _silent(self) -> str:
        """Why no command would be answered."""
        if not (silent := self._not_running(self._control.silent)):
            return ""
        return f"{silent}; run `tide deploy`, or see {self._control.log}"

    def _not_running(self, look: Callable[[], Sequence[str]]) -> str:
        """While they are started or stopped, it says nothing that one does not run."""
        if self._controlling.locked() or not (names := look()):
            return ""
        listed = " and ".join(filter(None, (", ".join(names[:-1]), names[-1])))
        return f"{listed} {'do' if len(names) > 1 else 'does'} not run"

    def _version(self) -> str:
        """slurmctld tells without a configuration, or with one that is broken."""
        return slurm_text.parse_version(self._commands.checked(["slurmctld", "-V"]).stdout)

    def _configuration(self) -> str:
        return self._control.loaded

    async def set_instances(self, instances: Mapping[str, tuple[str, str]]) -> None:
        updates = render_updates(instances, slurm_text.release(await self.version()))
        if updates:
            await self._in_thread(lambda: self._commands.tell(updates))

    # Jobs

    async def jobs(self) -> Sequence[Job]:
        command = ["squeue", "--all", "--noheader", "-o", slurm_text.JOB_FORMAT]
        return await self._in_thread(
            lambda: slurm_text.parse_jobs(self._commands.checked(command).stdout)
        )

    async def past_job(self, id: str) -> Job | None:
        return await self._in_thread(lambda: past_job(self._commands, id))

    async def tell(self, job: str, text: str) -> None:
        """Several, separated by commas, cost one command; one that is gone does not stop it."""
        if not _JOBS.fullmatch(job):
            raise Unavailable(f"{job!r} is no job id")
        comment = slurm_text.one_line(f"{PREFIX}{text}", LONGEST_COMMENT)
        await self._scontrol("update", f"jobid={job}", f"admincomment={comment}")

    async def submit_rebuilds(self, nodes: Iterable[str], command: str | None) -> Mapping[str, str]:
        """A job that waits or runs already is not submitted again."""
        partitions = slurm_rebuild.placed(self._cluster, nodes)
        queue = slurm_rebuild.queue_of(set(partitions.values()))
        said = await self._in_thread(lambda: self._commands.checked(queue).stdout)
        submitted = slurm_rebuild.parse_queue(said) if command is None else {}
        fresh = {
            name: await self._submit(slurm_rebuild.submission(name, partition, command))
            for name, partition in partitions.items()
            if name not in submitted
        }
        return {name: fresh.get(name) or submitted[name] for name in partitions}

    async def _submit(self, sbatch: Sequence[str]) -> str:
        said = await self._in_thread(lambda: self._commands.checked(sbatch).stdout)
        return slurm_rebuild.parse_submitted(said)

    async def close(self) -> None:
        for name in self._queues():
            await self._scontrol("update", f"partitionname={name}", "state=down")

    async def open(self) -> None:
        """To the states that they have after a start, for Slurm remembers no others."""
        for name, state in self._queues().items():
            await self._scontrol("update", f"partitionname={name}", f"state={state}")

    async def reopen(self) -> None:
        """It is open as soon as it runs."""

    def _queues(self) -> dict[str, str]:
        """The partitions, and how they are when nothing is closed."""
        own = {
            name: {key.lower(): value for key, value in partition.parameters.items()}
            for name, partition in self._cluster.partitions.items()
        }
        states = {name: settings.get("state", "up").lower() for name, settings in own.items()}
        return states | dict.fromkeys(slurm_rebuild.partitions(self._cluster), "up")

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
            self._commands.checked(["scontrol", "--version"], conf=draft)
        except Unavailable as error:
            why = str(error).replace(str(draft), str(self._conf))
            raise Unavailable(f"Slurm would not read its new configuration: {why}") from error
        finally:
            draft.unlink(missing_ok=True)
        if not self._conf.exists():
            self._list_nodes()
        slurm_place.write(self._conf, text)
        self._list_nodes()
        hosts = self._conf.with_name("hosts")
        known = hosts.read_text() if hosts.exists() else "127.0.0.1 localhost\n"
        host = control_host(self._cluster)
        slurm_place.write(hosts, slurm_control.render_hosts(known, host, site.control_address))

    def _list_nodes(self) -> None:
        """The names in slurm.conf, one a line: a node whose name is new waits until it is there."""
        listed = "".join(f"{name}\n" for name in self._cluster.managed)
        slurm_place.write(self._conf.with_name(NODES), listed)

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
            self._commands.checked(["scontrol", "reconfigure"])  # nodes reread it too
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
            if why := self._control.why_dead():
                raise Unavailable(why) from error
            raise Unavailable(
                f"slurmctld runs but does not answer; kill it and deploy again: {error}"
            ) from error

    async def stop(self, for_good: bool = True) -> None:
        await self._in_thread(self._stop)

    def _stop(self) -> None:
        with self._controlling:
            self._control.stop()


def _release(commands: Commands) -> Release:
    """What is installed here; where that is nothing, it does not matter."""
    try:
        said = commands.checked(["slurmctld", "-V"]).stdout
        return slurm_text.release(slurm_text.parse_version(said))
    except (Unavailable, UnreadableError):
        return OLDEST
