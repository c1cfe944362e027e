"""Slurm 26.05's power actions, from recordings: what it calls, what it shows, what we tell it.

The Slurm of the machine that runs the tests may be older and not know them.
"""

import json
from pathlib import Path
from typing import Any

import pytest

from springtide import service
from springtide.batch import slurm_actions
from springtide.batch.slurm import Slurm
from springtide.batch.slurm_control import Control
from springtide.batch.slurm_reason import SLURM
from springtide.batch.slurm_text import parse_nodes
from springtide.configure.programs import Programs
from springtide.hook import PROGRAMS
from springtide.layout import Layout
from springtide.spec import parse
from springtide.spool import REBOOTS, read_request
from tests.unit.test_hook import run

RECORDED = Path(__file__).parents[1] / "recorded"
CALLS: list[dict[str, Any]] = json.loads(
    (RECORDED / "slurm-26.05.5__power-actions.json").read_text()
)
NODES = (RECORDED / "slurm-26.05.5__scontrol-o-show-nodes_reboot.out").read_text()
UP = "NodeName=c1 State=IDLE+CLOUD\nNodeName=c2 State=IDLE+CLOUD+DRAIN Reason=fan (by alice)\n"
SCONTROL = """\
#!/bin/sh
case $* in
*show*) cat {home}/nodes ;;
*) echo "$*" >>{home}/calls ;;
esac
"""


@pytest.mark.accepts("E14")
@pytest.mark.parametrize("call", CALLS, ids=[call["command"] for call in CALLS])
def test_the_hook_passes_on_which_action_was_chosen(call: dict[str, Any], tmp_path: Path) -> None:
    made = Programs(tmp_path / "bin", tmp_path / "sock", tmp_path / "spool", "root", None, 20.0)
    made.install()
    program = Path(call["argv"][0]).name
    assert run(made.directory / program, *call["argv"][1:], **call["environ"]) == 0
    request = read_request(next(made.spool.iterdir()))
    assert request.program == program
    assert REBOOTS[program].get("action") == _action(call["command"])


def _action(command: str) -> str | None:
    words = (word.partition("=") for word in command.split())
    return next((value for key, _, value in words if key == "action"), None)


def test_every_action_has_a_program_that_is_installed() -> None:
    assert set(slurm_actions.PROGRAMS.values()) <= {*PROGRAMS} & {*REBOOTS}
    assert {REBOOTS[p]["action"]: p for p in slurm_actions.PROGRAMS.values()} == (
        slurm_actions.PROGRAMS
    )


def test_a_node_that_26_05_reboots_tells_whose_wish_it_was() -> None:
    nodes = parse_nodes(NODES)
    found = {name: (node.reason, node.owner) for name, node in nodes.items()}
    assert found == {
        "c1": ("disk", "alice"),
        "c2": ("kernel", SLURM),
        "c3": ("reboot requested", SLURM),
    }
    assert not any(node.registered for node in nodes.values())


@pytest.mark.accepts("E14")
@pytest.mark.parametrize(
    ("reason", "action", "reboots", "image"),
    [
        ("", None, False, None),
        ("reboot requested : reboot issued", None, False, None),
        ("Reboot ASAP : reboot issued", None, False, None),
        ("reboot issued", None, False, None),
        ("kernel hangs", None, True, None),
        ("rebuild image:two", None, False, "two"),
        ("kernel hangs", "rebuild", False, None),
        ("kernel hangs, take image:two", "rebuild", False, "two"),
        ("rebuild image:two", "rebuild", False, "two"),
        ("", "reboot", True, None),
        ("rebuild", "reboot", True, None),
    ],
)
def test_an_action_counts_before_the_reason(
    reason: str, action: str | None, reboots: bool, image: str | None
) -> None:
    assert service.only_reboot(reason, action) is reboots
    if not reboots:
        assert service.image_asked(reason, action) == image


@pytest.mark.accepts("E14")
@pytest.mark.parametrize("actions", [True, False])
async def test_our_own_reboots_name_the_action_if_slurm_runs_with_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, actions: bool
) -> None:
    """A person's reason, which stays, does not say that the node is rebuilt."""
    slurm = _slurm(tmp_path, monkeypatch, actions)
    await slurm.reboot(["c1", "c2"], "rebuild by root")
    rebooted = [c for c in (tmp_path / "calls").read_text().splitlines() if "reboot " in c]
    action = "action=rebuild " if actions else ""
    assert rebooted == [
        f"reboot reason=springtide: rebuild by root {action}c1",
        f"reboot reason=fan (by alice) {action}c2",
    ]


def _slurm(home: Path, monkeypatch: pytest.MonkeyPatch, actions: bool) -> Slurm:
    """With a scontrol that shows two nodes and keeps a list of what it is told."""
    cluster = parse(f"cluster: blue\nstate: {home}/state\n", "cluster.yaml")
    layout = Layout(cluster.state)
    lines = slurm_actions.lines(layout.programs) if actions else []
    for path in (layout.conf / "slurm.conf", layout.run / "slurm.conf"):
        path.parent.mkdir(parents=True)
        path.write_text("\n".join(["ClusterName=blue", *lines]))
    (home / "nodes").write_text(UP)
    (home / "scontrol").write_text(SCONTROL.format(home=home))
    (home / "scontrol").chmod(0o755)
    monkeypatch.setenv("PATH", f"{home}:/usr/bin:/bin")
    monkeypatch.setattr(Control, "silent", lambda self: [])
    return Slurm(cluster)
