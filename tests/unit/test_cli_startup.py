"""The command starts fast, and no mistake of ours reaches people as a traceback."""

import pty
import subprocess
import sys
from pathlib import Path

import pytest

from springtide.cli.endings import Exit
from springtide.cli.main import app

SLOW = ("pydantic", "rich", "ruamel", "starlette", "structlog", "uvicorn", "asyncio")
TEXT = (str, bool, str | None, list[str], list[str] | None, None)
TIDE = "from springtide.cli.main import app\n"


def python(code: str, **environment: str) -> "subprocess.CompletedProcess[str]":
    return subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True,
        text=True,
        check=False,
        env={"PATH": "/usr/bin:/bin", **environment},
    )


@pytest.mark.parametrize(
    "command",
    [
        *("status", "nodes --images", "plan", "operations", "events", "plan rebuild", "resume c1"),
        *("drain c1 -r x", "undrain c1", "apply", "rebuild", "update", "stop", "kill --all"),
    ],
)
def test_commands_that_only_ask_the_daemon_import_nothing_slow(command: str) -> None:
    code = f"""
import sys
from springtide.cli.main import app
try:
    app(["--state", "/nowhere", *"{command}".split()])
except SystemExit as end:
    print(end.code, [name for name in {SLOW!r} if name in sys.modules])
"""
    done = python(code)
    expected = Exit.DONE if command == "plan" else Exit.AWAY
    assert done.stdout.splitlines()[-1] == f"{int(expected)} []"


def test_parameters_stay_text() -> None:
    """Else typer would have to convert them, with the slow way to do so."""
    for info in app.registered_commands:
        assert info.callback is not None
        for name, kind in info.callback.__annotations__.items():
            base = getattr(kind, "__origin__", kind)
            assert base in TEXT, (info.callback, name)


def test_a_defect_is_one_line_unless_one_wants_more() -> None:
    code = f"""
{TIDE}
from springtide.cli import output
output.put_table = None
app(["plan"])
"""
    done = python(code)
    assert done.returncode == Exit.FAILED
    assert "a defect of Springtide: TypeError" in done.stderr
    assert "Traceback" not in done.stderr
    assert "Traceback" in python(code, TIDE_DEBUG="1").stderr


@pytest.mark.parametrize("closed", [">&-", "| true"])
def test_an_output_that_nobody_reads_is_no_traceback(closed: str) -> None:
    command = f'"$0" -m springtide.cli.main plan {closed}'
    done = subprocess.run(
        ["sh", "-c", command, sys.executable], capture_output=True, text=True, check=False
    )
    assert "Traceback" not in done.stderr
    assert "Exception ignored" not in done.stderr


def test_a_terminal_without_utf_8_is_no_traceback(tmp_path: Path) -> None:
    file = tmp_path / "cluster.yaml"
    file.write_text("cluster: blue\nbatch: {kind: fake}\n")
    done = python(f"{TIDE}app(['check', {str(file)!r}])", PYTHONIOENCODING="latin-1")
    assert done.stdout.startswith(f"? file: {file} describes cluster blue")


def on_a_terminal(**environment: str) -> bytes:
    """What `tide plan` prints there."""
    ours, theirs = pty.openpty()
    with open(ours, "rb", buffering=0) as screen, open(theirs, "wb") as terminal:  # noqa: PTH123
        subprocess.run(
            [sys.executable, "-m", "springtide.cli.main", "plan"],
            stdout=terminal,
            check=True,
            env={"PATH": "/usr/bin:/bin", "TERM": "xterm", **environment},
        )
        return screen.read(65536)


def test_a_terminal_shows_styles_and_no_boxes() -> None:
    assert b"\x1b[1mstep" in on_a_terminal()
    assert b"\x1b" not in on_a_terminal(TERM="dumb")


def test_another_systems_file_is_read_without_the_sdk_of_its_cloud(tmp_path: Path) -> None:
    """Who imports one may have no cloud's SDK: none is needed to read a file."""
    (tmp_path / "limits.yaml").write_text("VM.Standard2.1:\n  1: 1\n")
    code = f"""
import sys
sys.modules["oci"] = None
{TIDE}
app(["import", "{tmp_path}/" + sys.argv[1]])
"""
    missing, there = (
        subprocess.run(
            [sys.executable, "-c", code, name],
            capture_output=True,
            text=True,
            check=False,
            cwd=tmp_path,
        )
        for name in ("none.yaml", "limits.yaml")
    )
    assert missing.returncode == Exit.WRONG, missing.stderr
    assert there.returncode == Exit.DONE, there.stderr
    assert "VM.Standard2.1: {cpus: 2, memory: 14489M" in there.stdout
