"""Whether Ansible could run: its package, the site's playbooks, and how they are written.

`tide check` and `tide deploy` look so, and the daemon before it begins what ends in a run.
Playbooks are only read, never run.
"""

import json
import os
import subprocess
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path

from springtide.configure import ansible_run
from springtide.configure.ansible_inventory import render_whole
from springtide.ports import Check
from springtide.spec.joining import Ansible

EXTRA = "run `pip install 'springtide[ansible]'`"
NOISE = ("[WARNING]", "[DEPRECATION", "playbook:")
SYNTAX_S = 40.0
"""So long Ansible may take to read playbooks."""


def look(wanted: Ansible | None) -> Iterator[Check]:
    """At what the cluster file says of it."""
    if wanted is None:
        return
    if missing := ansible_run.missing():
        yield Check("Ansible", False, f"the Python package {missing} is not installed", EXTRA)
        return
    yield from (absent := list(_absent(wanted)))
    if not absent:
        yield _syntax([*wanted.before, *wanted.after])


def refusal(wanted: Ansible | None) -> str:
    """What a run would fail at, in a line; empty if nothing is wrong."""
    wrong = [check for check in look(wanted) if check.ok is False]
    return "; ".join(f"{check.name}: {check.text}; {check.todo}" for check in wrong)


def _absent(wanted: Ansible) -> Iterator[Check]:
    """Files that the cluster file names and that are not there."""
    more = [path for path in (wanted.variables, wanted.key) if path]
    for path in (*wanted.before, *wanted.after, *more):
        if not (path.is_file() and os.access(path, os.R_OK)):
            text = f"{path} cannot be read, or is not there"
            yield Check("Ansible", False, text, "write it, or leave it out of the cluster file")


def _syntax(playbooks: Sequence[Path]) -> Check:
    """As Ansible itself reads them."""
    if not playbooks:
        return Check("Ansible", True, "installed; no playbooks of the site")
    with tempfile.TemporaryDirectory() as place:
        whole = Path(place, "site.yml")
        whole.write_text(json.dumps(render_whole(playbooks, [], [])))
        done = _read(whole)
    if done.returncode == 0:
        return Check("Ansible", True, f"installed; {len(playbooks)} playbooks can be read")
    return Check("Ansible", False, complaint(done.stderr), "mend the playbook")


def _read(playbook: Path) -> "subprocess.CompletedProcess[str]":
    """A command that fails, if it cannot be run at all."""
    command = [*ansible_run.PLAYBOOK, "--syntax-check", "-i", "localhost,", str(playbook)]
    ours = {key: os.environ[key] for key in ansible_run.SEEN if key in os.environ}
    try:
        return subprocess.run(
            command,
            cwd=playbook.parent,
            env=ours | ansible_run.environment(playbook.parent),
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=SYNTAX_S,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        return subprocess.CompletedProcess(command, 1, "", str(error))


def complaint(text: str) -> str:
    """What Ansible complains of, in a line."""
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    heard = [line for line in lines if not line.startswith(NOISE)]
    return " ".join(heard)[:300] or "it did not say why"
