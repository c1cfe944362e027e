"""How a command ends: its exit codes, and complaints that reach people without a traceback."""

import errno
import os
import sys
from enum import IntEnum
from typing import Any

import typer
from typer.core import TyperGroup

from springtide.cli.text import TextParameters


class Exit(IntEnum):
    """The promise to scripts."""

    DONE = 0
    FAILED = 1
    WRONG = 2
    """Wrong usage, or a wrong file."""
    PARTLY = 3
    AWAY = 4
    """The daemon cannot be reached."""
    INTERRUPTED = 130
    PIPE_CLOSED = 141


class Complaint(Exception):
    """Ends the command with a text for people: what happened, to what, what to do now."""

    def __init__(self, text: str, code: Exit = Exit.FAILED) -> None:
        super().__init__(text)
        self.code = code


def cannot_write(what: str, error: OSError) -> Complaint:
    """For a file in the state directory."""
    return Complaint(f"cannot write {what}: {error.strerror}; {remedy(error.errno)}")


def remedy(number: int | None) -> str:
    """What to do about a state directory that cannot be written."""
    if number in (errno.ENOSPC, errno.EDQUOT):
        return "make room in the state directory"
    elsewhere = "set `state` to a directory that can be written"
    if number == errno.EROFS:
        return f"mount it to be written, or {elsewhere}"
    return elsewhere if os.geteuid() == 0 else f"run it as root, or {elsewhere}"


class Commands(TextParameters, TyperGroup):
    """The group of all commands. Whatever a command raises ends here."""

    def invoke(self, ctx: Any) -> Any:
        try:
            result = super().invoke(ctx)
            sys.stdout.flush()
        except Complaint as complaint:
            typer.echo(f"tide: {complaint}", err=True)
            raise typer.Exit(complaint.code) from None
        except KeyboardInterrupt:
            raise typer.Exit(Exit.INTERRUPTED) from None
        except BrokenPipeError:
            _close_stdout()
            raise typer.Exit(Exit.PIPE_CLOSED) from None
        except OSError as error:
            typer.echo(f"tide: {error}", err=True)
            raise typer.Exit(Exit.FAILED) from None
        except Exception as error:
            raise typer.Exit(_defect(error)) from None
        return result


def _close_stdout() -> None:
    """Nobody reads on: what is still buffered must not complain when Python ends."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _defect(error: Exception) -> Exit:
    """A mistake of ours. typer's own exceptions are no mistakes and go their way."""
    if isinstance(error, typer.Exit | typer.Abort | typer.TyperException):
        raise error
    if os.environ.get("TIDE_DEBUG"):
        raise error
    text = f"a defect of Springtide: {error!r}; please report it with what TIDE_DEBUG=1 shows"
    typer.echo(f"tide: {text}", err=True)
    return Exit.FAILED
