"""Around the daemon: its log, its lock, its state directory, and how many files it may open."""

import asyncio
import logging
import resource
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
import structlog

from springtide.api.log import configure_log, escaped
from springtide.api.server import allow_open_files, remove_state
from springtide.daemon import DaemonError, sole
from springtide.layout import Layout


@pytest.fixture
def layout(tmp_path: Path) -> Layout:
    return Layout(tmp_path / "state")


@contextmanager
def logging_to(layout: Layout) -> Iterator[None]:
    """As the daemon's process does, until the block ends."""
    before, logging.root.handlers = logging.root.handlers, []
    try:
        configure_log(layout)
        yield
        (handler,) = logging.root.handlers
        assert isinstance(handler, logging.StreamHandler)
        handler.stream.close()
    finally:
        logging.root.handlers = before
        structlog.reset_defaults()


# --- the log -----------------------------------------------------------------------------


def test_the_log_cannot_be_forged_and_a_terminal_does_not_obey_it(layout: Layout) -> None:
    with logging_to(layout):
        structlog.get_logger().info("node \x1b[2Jlost", detail="fire\nlevel=info \ud800")
        logging.getLogger("other").error("bell \x07, CSI \x9b2J")
    text = (layout.log / "daemon.log").read_text()
    first, second = text.splitlines()
    assert r"\x1b[2Jlost" in first
    assert r"\x07, CSI \x9b2J" in second
    assert not any(sign in text for sign in "\x1b\x07\x9b")


def test_printable_text_stays_as_it_is() -> None:
    assert escaped("Größe: 5 µm, “ok”") == "Größe: 5 µm, “ok”"


def test_a_log_that_is_full_does_not_stop_the_daemon(
    layout: Layout, capfd: pytest.CaptureFixture[str]
) -> None:
    layout.log.mkdir(parents=True)
    (layout.log / "daemon.log").symlink_to("/dev/full")
    with logging_to(layout):
        for _ in range(3):
            structlog.get_logger().error("spool not read", detail="x" * 100_000)
            logging.getLogger("other").error("unheard")
    assert capfd.readouterr().err == ""


def test_a_log_that_cannot_be_opened_is_told(layout: Layout) -> None:
    (layout.log / "daemon.log").mkdir(parents=True)
    with pytest.raises(DaemonError, match=r"cannot write the log .*daemon\.log: Is a directory"):
        configure_log(layout)


# --- the lock ----------------------------------------------------------------------------


async def test_a_second_daemon_is_told_who_serves(layout: Layout) -> None:
    async with sole(layout):
        with pytest.raises(DaemonError, match=r"already serves .*/state \(process \d+\)"):
            async with sole(layout):
                raise AssertionError("two daemons serve one directory")
    async with sole(layout):
        pass


async def test_a_call_that_would_block_is_not_taken_for_another_daemon(layout: Layout) -> None:
    with pytest.raises(BlockingIOError):
        async with sole(layout):
            raise BlockingIOError


# --- the state directory -----------------------------------------------------------------


def test_a_new_or_empty_directory_can_become_a_state_directory(layout: Layout) -> None:
    assert layout.refusal() is None
    layout.state.mkdir()
    assert layout.refusal() is None
    (layout.state / "lost+found").mkdir()
    assert layout.refusal() is None, "every new filesystem has it"


def test_a_deploy_that_begins_beside_another_is_not_refused_for_its_copy(
    layout: Layout, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The other one has written its copy of the cluster file, and not given it its name yet."""
    refusals: list[str | None] = []
    replace = Path.replace

    def looked_at(fresh: Path, target: Path) -> Path:
        refusals.append(layout.refusal())
        return replace(fresh, target)

    layout.state.mkdir()
    monkeypatch.setattr(Path, "replace", looked_at)
    layout.keep_spec(b"cluster: blue\n")
    assert refusals == [None]


def test_a_directory_with_other_files_cannot(layout: Layout) -> None:
    layout.state.mkdir()
    for number in range(7):
        (layout.state / f"home{number}").mkdir()
    with pytest.raises(DaemonError, match=r"\(home0, home1, home2, home3, home4, …\); set `state`"):
        asyncio.run(_serve_once(layout))
    assert not layout.lock.exists()


async def _serve_once(layout: Layout) -> None:
    async with sole(layout):
        pass


@pytest.mark.parametrize("mark", ["record.db", "cluster.yaml", "daemon.lock"])
def test_a_state_directory_is_known_again_whatever_was_added(layout: Layout, mark: str) -> None:
    layout.state.mkdir()
    for name in (mark, "notes.txt"):
        (layout.state / name).touch()
    assert layout.refusal() is None


def test_a_destroyed_cluster_takes_only_what_was_its_own(layout: Layout) -> None:
    for path in layout.entries:
        path.mkdir(parents=True)
        (path / "something").touch()
    (layout.state / "srv").mkdir()
    (layout.state / "srv" / "precious.txt").write_text("years of work")
    remove_state(layout)
    assert list(layout.found()) == ["srv"]
    assert (layout.state / "srv" / "precious.txt").read_text() == "years of work"


def test_links_in_a_state_directory_are_removed_and_not_followed(layout: Layout) -> None:
    elsewhere = layout.state.with_name("elsewhere")
    elsewhere.mkdir()
    (elsewhere / "precious.txt").touch()
    layout.state.mkdir()
    layout.log.symlink_to(elsewhere)
    remove_state(layout)
    assert not layout.state.exists()
    assert (elsewhere / "precious.txt").exists()


# --- open files --------------------------------------------------------------------------


def test_the_daemon_may_open_as_many_files_as_it_can_get() -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    try:
        resource.setrlimit(resource.RLIMIT_NOFILE, (256, hard))
        allow_open_files()
        assert resource.getrlimit(resource.RLIMIT_NOFILE) == (min(hard, 65_536), hard)
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
        allow_open_files()
        assert resource.getrlimit(resource.RLIMIT_NOFILE) == (hard, hard)
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
