"""`tide demo`: a real cluster grows from nothing, runs jobs, shrinks to nothing, and is removed.

However it ends (an error, Ctrl-C, a closed terminal), what it made is removed first, and it then
looks for what might be left. Signals are only noted and asked for between two looks, so that
nothing is cut short in a place from which it could not be removed.
"""

import os
import secrets
import shutil
import signal
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from types import FrameType

from springtide.batch.slurm_place import is_free
from springtide.batch.slurm_service import read
from springtide.cli import detached, output
from springtide.cli.check import render_checks
from springtide.cli.checks import HERE, MACHINE, look_at_kernel
from springtide.cli.client import Client, Refused
from springtide.cli.course import follow
from springtide.cli.demo_remains import abandoned, hold, remains
from springtide.cli.demo_show import NODES, Show, Stage, Unseen
from springtide.cli.demo_timeline import render_latencies
from springtide.cli.endings import Complaint, Exit
from springtide.cli.progress import looks
from springtide.cli.subject import look, subject
from springtide.cli.whereabouts import CLUSTERS
from springtide.model import Kind, OperationState, Step
from springtide.nodeset import expand
from springtide.spec import parse

IDLE_S = 5
KEPT_IDLE_S = 20
"""Of a cluster that stays: long enough to look at a node before it goes."""
LEAVE_S = 30.0
"""How long what was removed may take to go."""
LAST_LINES = 8
PORTS: tuple[int, ...] = (6817, *range(16817, 16917))
PLACES = (Path("/var/tmp"), Path("/var/lib"))  # noqa: S108 - a directory of ours is made there
PREFIX = "tide-demo-"

ENDING = "\ntide: ending; what was made is removed first, which takes a few seconds\n"
STILL_ENDING = "\ntide: still removing what was made; please let it finish\n"


class Interrupted(Exception):
    """Somebody wants the demo to end."""

    def __init__(self, number: int) -> None:
        super().__init__(signal.Signals(number).name)
        self.number = number


class Signals:
    """Notes the signals that ask for an end, and says that they were heard."""

    NUMBERS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)

    def __init__(self) -> None:
        self.ending = False
        self._came: int | None = None

    @contextmanager
    def listening(self) -> Iterator[None]:
        """What is ignored (by nohup, say) stays so."""
        heeded = [n for n in self.NUMBERS if signal.getsignal(n) is not signal.SIG_IGN]
        before = {number: signal.signal(number, self._note) for number in heeded}
        try:
            yield
        finally:
            for number, former in before.items():
                signal.signal(number, former)

    def _note(self, number: int, frame: FrameType | None) -> None:
        """Written past Python's buffers, which may be in use where we were called."""
        text = STILL_ENDING if self.ending else ENDING
        self._came, self.ending = number, True
        with suppress(OSError):
            os.write(2, text.encode())

    def go_on(self) -> None:
        if self._came is not None:
            raise Interrupted(self._came)


def run(keep: bool, clusters: Path = CLUSTERS) -> int:
    """The whole demo; answers the exit code."""
    stage = _kept(clusters / "demo") if keep else _fleeting()
    _refuse(stage)
    signals = Signals()
    with signals.listening():
        output.put(render_intro(stage, keep))
        _mention_killed()
        _claim(stage)
        try:
            _play(stage, keep, signals)
        except BaseException as error:
            signals.ending = True
            _explain(error, stage)
            return _code(error) if _remove(stage) else Exit.FAILED
        signals.ending = True
        return Exit.DONE if keep or _remove(stage) else Exit.FAILED


def _code(error: BaseException) -> int:
    if isinstance(error, Interrupted):
        return 128 + error.number
    if isinstance(error, Complaint):
        return Exit.FAILED
    raise error


# --- before ------------------------------------------------------------------------------


def _kept(state: Path) -> Stage:
    """The stage of a cluster that stays."""
    stage = Stage("demo", state, KEPT_IDLE_S, _port())
    if stage.daemon.stored_spec.exists():
        raise Complaint(
            f"a demo cluster is there already, in {state}: use it, or remove it with "
            f"`{_tide(stage)} destroy --yes`"
        )
    if state.exists():
        raise Complaint(f"{state} is there already, and is no cluster: remove it first")
    return stage


def _fleeting() -> Stage:
    """The stage of one that goes; its name is its own, so that several can run side by side."""
    token = secrets.token_hex(2)
    return Stage(f"demo-{token}", _place() / f"{PREFIX}{token}", IDLE_S, _port())


def _port() -> int:
    """Slurm's own, or another if this machine has a Slurm already."""
    return next((port for port in PORTS if is_free(HERE, port)), PORTS[0])


def _place() -> Path:
    """Slurm's programs will be run from there."""
    able = (path for path in PLACES if path.is_dir() and not _is_noexec(path))
    return next(able, PLACES[0])


def _is_noexec(path: Path) -> bool:
    return bool(os.statvfs(path).f_flag & os.ST_NOEXEC)


def _refuse(stage: Stage) -> None:
    """Say what is missing before anything is made."""
    spec = parse(stage.render_spec(), "the demo's file")
    wrong = [each for each in look((*MACHINE, look_at_kernel), subject(spec)) if each.ok is False]
    if wrong:
        raise Complaint("\n".join(["the demo cannot run here:", *render_checks(wrong)]))


def render_intro(stage: Stage, keep: bool) -> str:
    stays = "It stays afterwards; Ctrl-C before its end removes it"
    goes = "All of it is removed at the end, also after Ctrl-C"
    return (
        "A real Slurm cluster grows from nothing on this machine, runs jobs, and shrinks again.\n"
        f"Its files are in {stage.state}. {stays if keep else goes}."
    )


def _mention_killed() -> None:
    found = (path for place in PLACES for path in place.glob(f"{PREFIX}*"))
    for path in abandoned(found):
        output.note(f"tide: a demo that was killed left {path}: {_how_to_remove(path)}")


def _claim(stage: Stage) -> None:
    """Make the state directory and hold it until this process ends. From here on it is ours."""
    os.umask(0o022)  # Slurm's user must be able to enter it
    try:
        stage.state.mkdir(parents=True)
        hold(stage.state)
    except OSError as error:
        raise Complaint(f"cannot make {stage.state}: {error.strerror}") from error


# --- the demo ----------------------------------------------------------------------------


def _play(stage: Stage, keep: bool, signals: Signals) -> None:
    _prepare(stage)
    show = Show(stage, signals.go_on)
    show.play()
    output.put("\nFrom the first node to the last, where they differ:")
    output.put_table(*render_latencies(show.bursts))
    signals.go_on()
    if keep:
        output.put(f"\n{render_use(stage, _tide(stage))}")


def _prepare(stage: Stage) -> None:
    stage.shared.mkdir()
    stage.shared.chmod(0o1777)
    stage.daemon.stored_spec.write_text(stage.render_spec())


def render_use(stage: Stage, tide: str) -> str:
    """How to go on with a cluster that stays."""
    return (
        f"The cluster stays. Use it, in any terminal of root:\n"
        f"  export SLURM_CONF={stage.daemon.layout.conf / 'slurm.conf'}\n"
        f"  cd {stage.shared}        # the nodes see this directory\n"
        "  sinfo\n"
        "  sbatch --nodes=4 --wrap 'srun hostname'\n"
        f"  {tide} nodes\n"
        f"  {tide} events --follow\n"
        "and remove it with\n"
        f"  {tide} destroy --yes"
    )


def _tide(stage: Stage) -> str:
    """The command, as it can be typed here for this cluster."""
    known = stage.state == CLUSTERS / stage.cluster
    return f"{_program()} --cluster {stage.cluster}" if known else _by_state(stage.state)


def _by_state(state: Path) -> str:
    return f"{_program()} --state {state}"


def _program() -> str:
    return "tide" if shutil.which("tide") else str(Path(sys.argv[0]).absolute())


# --- the end -----------------------------------------------------------------------------


def _explain(error: BaseException, stage: Stage) -> None:
    """What went wrong, with the last lines of logs that are about to go."""
    if isinstance(error, Interrupted | BrokenPipeError):
        return
    _say(f"\ntide: {str(error) or repr(error)}")
    for name in ("daemon.out", "daemon.log", "slurmctld.log"):
        path = stage.daemon.layout.log / name
        if lines := read(path).splitlines()[-LAST_LINES:]:
            _say("\n".join([f"{path} ends with:", *(f"  {line}" for line in lines)]))


def _remove(stage: Stage) -> bool:
    """Remove all, look for what is left, and tell; True if there is nothing."""
    began = time.monotonic()
    try:
        _destroy(stage)
    except (Complaint, OSError) as error:
        _say(f"\ntide: the cluster could not be removed: {error}")
    left = _what_stays(stage)
    if stage.state.parent not in PLACES:
        with suppress(OSError):  # other clusters are in it
            stage.state.parent.rmdir()
    if left:
        _say("\n".join(["\ntide: left behind:", *left, _how_to_remove(stage.state)]))
    else:
        took = f"{time.monotonic() - began:.1f} s"
        _say(f"\nNothing left behind: no process, link, mount or file; removed in {took}.")
    return not left


def _destroy(stage: Stage) -> None:
    daemon = stage.daemon
    if not daemon.layout.record.exists():
        shutil.rmtree(stage.state, ignore_errors=True)
        return
    if not detached.answers(daemon):
        detached.start(daemon, daemon.stored_spec)
    _stop_waiting(daemon)
    answer = daemon.post("/operations", {"operation": Kind.DESTROY.value})
    operation = follow(daemon, answer["operations"][0]["id"], Unseen())
    if operation is not None and operation["state"] != OperationState.DONE:
        raise Complaint(operation["reason"])


def _stop_waiting(daemon: Client) -> None:
    """Removal would have to wait for nodes that were to join."""
    for operation in daemon.get("/status")["operations"]:
        if operation["kind"] == Kind.RESUME and operation["step"] == Step.WAIT_REGISTERED:
            with suppress(Refused):  # it has just ended by itself
                daemon.post(f"/operations/{operation['id']}/cancel", {})


def _what_stays(stage: Stage) -> list[str]:
    """What is left once all had time to go."""
    left: list[str] = []
    for _ in looks(LEAVE_S):
        left = remains(stage.state, stage.cluster, expand(NODES))
        if not left:
            break
    return left


def _how_to_remove(state: Path) -> str:
    return f"remove it with `{_by_state(state)} destroy --yes`"


def _say(text: str) -> None:
    """Perhaps nobody listens any more; that must not keep us from removing."""
    with suppress(OSError):
        output.put(text)
