"""Around the daemon: its log, and how many files it may open."""

import logging
import resource
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
import structlog

from springtide.api.log import configure_log, escaped
from springtide.api.server import allow_open_files
from springtide.daemon import DaemonError
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
