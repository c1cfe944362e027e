"""Commands name programs of the batch system that is there."""

from pathlib import Path
from typing import Any

import pytest

from springtide.cli import words
from springtide.cli.kill import render_strangers
from springtide.cli.nodes import render_rows
from springtide.cli.rising import queue_of, render_exports, render_left
from springtide.cli.watch import render_dead
from springtide.cli.whereabouts import CLUSTERS
from springtide.layout import Layout

KINDS = ["torque", "openpbs", "gridengine"]
NODE: dict[str, Any] = {
    "name": "c1",
    "group": "general",
    "state": "off",
    "address": None,
    "changed_at": 0.0,
    "reason": "the provider is full",
    "instances": [],
    "batch": {
        "state": "DOWN",
        "flags": [],
        "reason": "by hand",
        "address": "10.0.0.9",
        "registered": True,
    },
}


@pytest.mark.parametrize("kind", KINDS)
def test_no_word_of_slurm_where_there_is_none(kind: str) -> None:
    terms = words.terms(kind)
    status = {"control_address": "10.0.0.1", "batch": {"kind": kind, "problem": None}}
    said = [
        *words.try_out(kind),
        *words.try_out(kind, "cloud.q"),
        words.jobs_on(kind, "c1"),
        terms.show_closed,
        render_dead("c1", kind),
        render_left(status, Path("/state")),
        *render_strangers([NODE], terms.daemon),
        render_rows([NODE], True, 0.0, terms.system)[0][-1],
    ]
    assert all(said)
    for text in said:
        for word in ("slurm", "squeue", "sinfo", "sbatch", "scontrol"):
            assert word not in text.lower()


def test_a_job_to_try_it_out_goes_to_a_queue_of_ours() -> None:
    assert words.try_out("gridengine", "cloud.q")[1] == "echo hostname | qsub -q cloud.q"
    mine = {"state": "off", "partitions": ["cloud"]}
    theirs = {"state": None, "partitions": ["old"]}
    assert queue_of([theirs, mine]) == "cloud"
    assert queue_of([theirs]) == ""


def test_slurm_is_spoken_of_as_ever() -> None:
    up = {"control_address": "10.0.0.1", "batch": {"kind": "slurm", "problem": None}}
    assert words.try_out("slurm") == ("sinfo", "sbatch -N1 --wrap hostname")
    assert words.try_out("slurm", "cloud")[1] == "sbatch -p cloud -N1 --wrap hostname"
    assert "SlurmdTimeout" in render_dead("c1")
    assert ", slurmctld stay: " in render_left(up, Path("/state"))
    assert render_strangers([NODE])[0].startswith("c1: a slurmd at 10.0.0.9 had answered")
    assert words.kind_of({"nodes": []}) == "slurm"


def test_a_cluster_that_is_elsewhere_says_how_commands_find_it() -> None:
    usual, other = Layout(CLUSTERS / "blue"), Layout(Path("/data/blue"))
    assert render_exports(usual, own=False) == ""
    assert render_exports(usual, own=True) == f"  export SLURM_CONF={usual.conf}/slurm.conf\n"
    assert render_exports(other, own=False) == "  export TIDE_STATE=/data/blue\n"
    assert render_exports(other, own=True).splitlines() == [
        "  export TIDE_STATE=/data/blue",
        "  export SLURM_CONF=/data/blue/conf/slurm.conf",
    ]
