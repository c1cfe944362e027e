"""The daemon's log: one line a message, which nobody outside can forge, and which never fails.

A disk that is full or gone must not stop the daemon, so what cannot be written is lost.
"""

import io
import logging
import os
from contextlib import suppress
from pathlib import Path
from typing import TextIO, cast

import structlog
from structlog.typing import EventDict, WrappedLogger

from springtide.daemon import DaemonError
from springtide.layout import Layout


class LogFile(io.TextIOBase):
    """A file to append to, without a buffer that could hold on to what failed."""

    _descriptor = -1
    """Until it is open; one that could not be opened is closed all the same."""

    def __init__(self, path: Path) -> None:
        self._descriptor = os.open(
            path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o644
        )

    def write(self, text: str) -> int:
        with suppress(OSError):
            os.write(self._descriptor, escaped(text, keep="\n\t").encode())
        return len(text)

    def close(self) -> None:
        if not self.closed and self._descriptor >= 0:
            os.close(self._descriptor)
        super().close()


def escaped(text: str, keep: str = "") -> str:
    """Control characters written out: a terminal that shows the log must not obey it."""
    if text.isprintable():
        return text
    return "".join(
        each if each.isprintable() or each in keep else each.encode("unicode_escape").decode()
        for each in text
    )


def escape_fields(logger: WrappedLogger, name: str, event: EventDict) -> EventDict:
    """A field with a line feed would look like two messages."""
    return {key: escaped(one) if isinstance(one, str) else one for key, one in event.items()}


def configure_log(layout: Layout) -> None:
    """To log/daemon.log, or the daemon does not start."""
    path = layout.log / "daemon.log"
    try:
        layout.log.mkdir(parents=True, exist_ok=True)
        stream = cast(TextIO, LogFile(path))
    except OSError as error:
        raise DaemonError(f"cannot write the log {path}: {error.strerror}") from error
    structlog.configure(
        processors=[
            structlog.processors.TimeStamper(fmt="iso", utc=True),
            structlog.processors.add_log_level,
            escape_fields,
            structlog.processors.LogfmtRenderer(key_order=["timestamp", "level", "event"]),
        ],
        logger_factory=structlog.WriteLoggerFactory(stream),
    )
    logging.basicConfig(stream=stream, level=logging.WARNING)
