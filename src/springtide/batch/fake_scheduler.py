"""A scheduler in memory that treats nodes and jobs as Slurm does. Only FakeBatch builds on it.

It is the world: it goes on when a daemon is killed. It learns of instances through `boot_seen`
and `stop_seen`, and where an address leads through `node_at`, so it needs to know no cloud.
Time is the event loop's, so a virtual clock lets hours pass at once.
"""

import asyncio
from collections.abc import Callable, Iterable, Sequence

from springtide.batch.fake_records import FakeJob, FakeNode, Reboot, Timing
from springtide.nodeset import sort
from springtide.ports import OURS, Job, Power

NodesListener = Callable[[Sequence[str]], object]
ResumeListener = Callable[[Sequence[str], Sequence[Job]], object]


def loop_time() -> float:
    return asyncio.get_running_loop().time()


class FakeScheduler:
    """Nodes, jobs, and the programs it calls."""

    def __init__(
        self,
        nodes: Iterable[str],
        node_at: Callable[[str], str | None],
        timing: Timing | None = None,
        now: Callable[[], float] = loop_time,
    ) -> None:
        self.timing = timing or Timing()
        self.on_resume: list[ResumeListener] = []
        self.on_resume_fail: list[NodesListener] = []
        self.on_suspend: list[NodesListener] = []
        self.on_reboot: list[NodesListener] = []
        self.on_prolog: list[Callable[[FakeJob], object]] = []  # of rebuild jobs
        self.on_job: list[Callable[[FakeJob, str], object]] = []  # what befell it
        self.on_drain_lost: list[Callable[[str, str], object]] = []  # a person's, and by what
        self.exempt: frozenset[str] = frozenset()  # SuspendExcNodes
        self.closed = False  # jobs wait
        self.opening = False  # until the end of a start that has begun
        self.existing = False  # it runs without us, so a reload leaves it closed
        self.gateway: str | None = None  # where registrations come from, if not from nodes
        self.finished: list[FakeJob] = []
        self.killed_jobs: dict[str, str] = {}  # jobs that ran well until somebody's deed
        self._nodes = {name: FakeNode(name) for name in nodes}
        self._node_at = node_at
        self._now = now
        self._open: dict[str, FakeJob] = {}
        self._submitted = 0
        self._resuming: list[str] = []
        self._late: list[str] = []
        self._suspending: list[str] = []
        self._rebooting: list[str] = []
        self._tick_due = False

    # For assertions

    def node(self, name: str) -> FakeNode:
        return self._nodes[name]

    @property
    def open_jobs(self) -> list[FakeJob]:
        """Those that are not over."""
        return list(self._open.values())

    # What users and instances do

    def submit(self, size: int, duration_s: float) -> FakeJob:
        if not 0 < size <= len(self._nodes):
            raise ValueError(f"a job of {size} nodes never fits on {len(self._nodes)}")
        return self._queue(size, duration_s)

    def prolog_ended(self, job: FakeJob, status: int) -> None:
        """A job whose prolog fails goes back into the queue."""
        if not job.in_prolog:
            return
        job.in_prolog = False
        if status:
            self._requeue(job)
        else:
            self._try_start(job)

    def _queue(self, size: int, duration_s: float) -> FakeJob:
        self._submitted += 1
        job = FakeJob(str(self._submitted), size, duration_s, self._now())
        self._open[job.id] = job
        self._soon()
        return job

    def finish(self, id: str) -> None:
        """A job that runs ends well now, however long it was to last."""
        job = self._open[id]
        _stop(job.end)
        self._end(job)

    def cancel(self, id: str) -> None:
        """A job that waits or runs is no more."""
        job = self._open.pop(id)
        _stop(job.end)
        job.state, job.ended_at = "CANCELLED", self._now()
        self.finished.append(job)
        self._let_go(job.nodes)

    def boot_seen(self, name: str) -> None:
        """The instance of a node runs; in a moment its slurmd will report."""
        if node := self._nodes.get(name):
            _stop(node.joining)
            node.joining = _later(self.timing.join_s, self._register, node)

    def stop_seen(self, name: str, *, deleted: bool) -> None:
        """The instance of a node runs no more; nobody tells the batch system, so it waits."""
        node = self._nodes.get(name)
        if node is None or self._reachable(node):
            return
        _stop(node.joining)
        if node.power is not Power.UP or node.down:
            return
        if node.job and node.job.state == "RUNNING":
            _stop(node.job.end)
            if deleted:
                self._mourn(node.job, f"the instance of {name} was deleted")
        _later(self.timing.slurmd_timeout_s, self._miss, node, node.boot_at)

    # How a node lives

    def _power_up(self, node: FakeNode) -> None:
        node.power, node.down, node.registered = Power.GOING_UP, False, False
        if not node.drained:
            self._forget_drain(node, "power up")
            node.reason = ""
        self._limit(node, self.timing.resume_timeout_s, self._resume_failed)
        self._resuming.append(node.name)
        self._soon()

    def _register(self, node: FakeNode) -> None:
        """A slurmd reports: expected or not, it is heard unless its node is powering down."""
        if node.power is Power.GOING_DOWN:
            return
        node.registered = False
        if node.job and node.job.state == "RUNNING":
            self._requeue(node.job)
        node.power, node.down, node.registered, node.reboot = Power.UP, False, True, None
        if not node.drained:
            node.reason = ""
        node.boot_at = self._now()
        node.address = self.gateway or node.address
        self._settle(node)

    def _settle(self, node: FakeNode) -> None:
        """A registered node works, leaves, reboots, or waits for work until it may leave."""
        if node.job:
            self._try_start(node.job)
        elif node.leaving:
            self._dismiss(node)
        elif node.reboot is Reboot.REQUESTED:
            self._reboot(node)
        else:
            self._idle(node)
            self._soon()

    def _idle(self, node: FakeNode) -> None:
        _stop(node.limit)
        if node.name not in self.exempt:
            self._limit(node, self.timing.idle_s, self._power_down)

    def _forget_drain(self, node: FakeNode, by: str) -> None:
        """Slurm itself ends drains now and then, whosever they are."""
        persons, node.drained, node.owner = node.is_persons, False, None
        for lost in self.on_drain_lost if persons else ():
            lost(node.name, by)

    def _dismiss(self, node: FakeNode) -> None:
        """Power down by command: with it goes the drain, but not a person's reason for it."""
        if node.drained and not node.is_persons:
            node.owner = None
        node.drained = False
        self._power_down(node)

    def _power_down(self, node: FakeNode) -> None:
        node.power, node.registered, node.leaving = Power.GOING_DOWN, False, False
        node.reboot = None
        self._limit(node, self.timing.suspend_timeout_s, self._powered_down)
        self._suspending.append(node.name)
        self._soon()

    def _powered_down(self, node: FakeNode) -> None:
        """Its address stays, as in Slurm: whoever starts it again must tell the new one."""
        node.power = Power.DOWN
        _stop(node.limit)
        if node.wanted:
            node.wanted = False
            self._power_up(node)
        self._soon()

    def _release(self, node: FakeNode) -> None:
        if node.is_persons:
            node.drained = True
        if not node.drained:
            node.down, node.reason = False, ""
            self._powered_down(node)

    def _reboot(self, node: FakeNode) -> None:
        _stop(node.joining)  # what booted before does not count
        node.reboot, node.down, node.registered = Reboot.ISSUED, True, False
        self._limit(node, self.timing.resume_timeout_s, self._reboot_failed)
        self._rebooting.append(node.name)
        self._soon()

    def _reboot_failed(self, node: FakeNode) -> None:
        self._forget_drain(node, "late reboot")
        node.reboot = None
        node.reason += " : reboot timed out"

    def _expect(self, node: FakeNode, reason: str) -> None:
        """Down, and its job back to the queue, until it is heard from again."""
        self._blame(node, f"{node.name} was put down: {reason}")
        node.reboot = None
        if not node.drained:
            node.reason = reason
        self._put_down(node)

    def _give_back(self, node: FakeNode, reason: str) -> None:
        job = node.job
        self._blame(node, f"{node.name} was given back: {reason}")
        if not (node.drained and node.is_persons):
            node.reason = reason
        if node.power is not Power.GOING_DOWN:
            self._dismiss(node)
        if job:
            self._requeue(job)

    def _blame(self, node: FakeNode, why: str) -> None:
        if node.job and node.job.state == "RUNNING" and self._reachable(node):
            self._mourn(node.job, why)

    def _mourn(self, job: FakeJob, why: str) -> None:
        self.killed_jobs[job.id] = why
        self._tell(job, f"killed: {why}")

    def _resume_failed(self, node: FakeNode) -> None:
        self._forget_drain(node, "late resume")
        node.power = Power.DOWN
        self._late.append(node.name)
        self._soon()
        self._fail(node, "ResumeTimeout reached")

    def _miss(self, node: FakeNode, boot_at: float | None) -> None:
        """Whatever happened to it meanwhile, a slurmd that has not answered for so long is lost."""
        silent = node.registered and node.boot_at == boot_at and not self._reachable(node)
        if node.power is Power.UP and silent:
            self._lost(node)

    def _lost(self, node: FakeNode) -> None:
        self._fail(node, "Not responding")

    def _fail(self, node: FakeNode, reason: str) -> None:
        if not (node.drained and node.is_persons):
            node.reason = reason
        self._put_down(node)

    def _put_down(self, node: FakeNode) -> None:
        """A node that is down counts as idle."""
        node.down, node.registered = True, False
        if node.job:
            self._requeue(node.job)
        if node.leaving:
            self._dismiss(node)
        elif node.power is Power.UP:
            self._idle(node)

    def _reachable(self, node: FakeNode) -> bool:
        return node.address is not None and self._node_at(node.address) == node.name

    def _limit(self, node: FakeNode, seconds: float, do: Callable[[FakeNode], object]) -> None:
        _stop(node.limit)
        node.limit = _later(seconds, do, node)

    # How a job lives

    def _tick(self) -> None:
        """One pass, and one call of each program, for all that happened at one moment."""
        self._tick_due = False
        self._allocate()
        up, late, down = sort(self._resuming), sort(self._late), sort(self._suspending)
        again = sort(self._rebooting)
        self._resuming, self._late, self._suspending, self._rebooting = [], [], [], []
        for resume in self.on_resume if up else ():
            resume(up, self._jobs_on(up))
        for fail in self.on_resume_fail if late else ():
            fail(late)
        for suspend in self.on_suspend if down else ():
            suspend(down)
        for reboot in self.on_reboot if again else ():
            reboot(again)

    def _jobs_on(self, names: Iterable[str]) -> list[Job]:
        jobs = {job.id: job for name in names if (job := self._nodes[name].job)}
        return [job.shown() for job in jobs.values()]

    def _allocate(self) -> None:
        """Rebuilds first, then first come, first served; nodes that are up before others."""
        if self.closed:
            return
        waiting = [job for job in self._open.values() if job.state == "PENDING" and not job.held]
        for job in waiting:
            if job.only and self._nodes[job.only].free:
                self._assign(job, [self._nodes[job.only]])
        free = [node for node in self._nodes.values() if node.free]
        free.sort(key=lambda node: node.power is Power.DOWN)
        for job in waiting:
            if job.only:
                continue
            if job.size > len(free):
                break
            taken, free = free[: job.size], free[job.size :]
            self._assign(job, taken)

    def _assign(self, job: FakeJob, nodes: Sequence[FakeNode]) -> None:
        job.state, job.nodes = "CONFIGURING", tuple(node.name for node in nodes)
        for node in nodes:
            node.job = job
            if node.power is Power.DOWN:
                self._power_up(node)
        if job.rebuilds and self.on_prolog:
            job.in_prolog = True
            for prolog in self.on_prolog:
                prolog(job)
        self._try_start(job)

    def _ask_reboot(self, node: FakeNode, reason: str) -> None:
        if not (node.drained and node.is_persons):
            node.drained, node.owner, node.reason = True, OURS, f"{OURS}: {reason}"
        node.reboot = Reboot.REQUESTED
        if not node.job:
            self._reboot(node)

    def _try_start(self, job: FakeJob | None) -> None:
        """A job runs once all its nodes have registered and are reached where we were told."""
        if job is None or job.state != "CONFIGURING" or job.in_prolog:
            return
        nodes = [self._nodes[name] for name in job.nodes]
        for node in nodes:
            if node.registered and self._reachable(node):
                _stop(node.limit)
            elif node.registered:
                self._limit(node, self.timing.slurmd_timeout_s, self._lost)
        if all(node.registered and self._reachable(node) for node in nodes):
            job.state, job.started_at = "RUNNING", self._now()
            job.end = _later(job.duration_s, self._end, job)
            self._tell(job, f"runs on {','.join(job.nodes)}")

    def _end(self, job: FakeJob) -> None:
        job.state, job.ended_at = "COMPLETED", self._now()
        self.finished.append(self._open.pop(job.id))
        self._tell(job, "completed")
        self._let_go(job.nodes)

    def _requeue(self, job: FakeJob) -> None:
        _stop(job.end)
        nodes, job.nodes = job.nodes, ()
        job.in_prolog = False
        if job.only and not job.rebuilds:
            job.state, job.ended_at = "NODE_FAIL", self._now()
            self.finished.append(self._open.pop(job.id))
            self._let_go(nodes)
            return
        job.state, job.held, job.started_at = "PENDING", True, None
        job.requeues += 1
        self._tell(job, f"requeued from {','.join(nodes)}")
        _later(self.timing.requeue_s, self._unhold, job)
        self._let_go(nodes)

    def _tell(self, job: FakeJob, what: str) -> None:
        for listener in self.on_job:
            listener(job, what)

    def _unhold(self, job: FakeJob) -> None:
        job.held = False
        self._soon()

    def _let_go(self, names: Iterable[str]) -> None:
        for node in (self._nodes[name] for name in names):
            node.job, node.busy_at = None, self._now()
            if node.registered:
                self._settle(node)

    def _soon(self) -> None:
        if not self._tick_due:
            self._tick_due = True
            asyncio.get_running_loop().call_soon(self._tick)


def _later(seconds: float, do: Callable[..., object], *args: object) -> asyncio.TimerHandle:
    """By a timer, not a task: whoever cancels a daemon's tasks must not stop the world."""
    return asyncio.get_running_loop().call_later(seconds, do, *args)


def _stop(timer: asyncio.TimerHandle | None) -> None:
    if timer:
        timer.cancel()
