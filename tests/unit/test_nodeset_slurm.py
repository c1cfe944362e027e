"""Hostlists beside the real `scontrol show hostnames` and `scontrol show hostlist`.

scontrol does this without a slurmctld; it only wants a configuration file that it can read.
Given commands on its standard input it answers many in one process, and takes lines longer
than a command line may be.
"""

import os
import subprocess
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import TypeVar

import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from springtide.nodeset import NodeNameError, expand, fold
from tests.unit.test_nodeset import names, texts

pytestmark = pytest.mark.real

T = TypeVar("T")
Scontrol = Callable[[str, Iterable[str]], list[list[str]]]
# Without shrinking: the assertion names the one list of the batch that differs.
BATCHES = settings(
    max_examples=15,
    deadline=None,
    phases=[Phase.explicit, Phase.reuse, Phase.generate],
    suppress_health_check=[HealthCheck.too_slow],
)
PROMPT = "scontrol: "
MARK = "the-next-answer"


@pytest.fixture(scope="module")
def scontrol(tmp_path_factory: pytest.TempPathFactory) -> Scontrol:
    conf = tmp_path_factory.mktemp("slurm") / "slurm.conf"
    conf.write_text("ClusterName=test\nSlurmctldHost=localhost\n")

    def answers(what: str, arguments: Iterable[str]) -> list[list[str]]:
        return ask(conf, what, arguments)

    return answers


def ask(conf: Path, what: str, arguments: Iterable[str]) -> list[list[str]]:
    """One answer, as lines, for each argument; what it refuses it answers with no line."""
    commands = [f"show hostnames {MARK}\nshow {what} {a}\n" for a in arguments]
    done = subprocess.run(
        ["scontrol"],
        input="".join(commands).encode(),
        env={"PATH": os.environ["PATH"], "SLURM_CONF": str(conf)},
        capture_output=True,
        timeout=200,
        check=True,
    )
    # It echoes each command after its prompt, and redraws long ones with carriage returns.
    lines = done.stdout.decode().split("\n")
    said = "\n".join(line for line in lines if not line.startswith(PROMPT))
    found = [part.split() for part in said.split(MARK)[1:]]
    assert len(found) == len(commands), (done.stdout[:2000], done.stderr[:2000])
    return found


def differing(
    batch: list[T], theirs: list[list[str]], ours: Iterable[list[str]]
) -> list[tuple[T, list[str], list[str]]]:
    rows = zip(batch, theirs, ours, strict=True)
    return [row for row in rows if row[1] != row[2]]


@BATCHES
@given(batch=st.lists(texts(brackets=2, suffix=False), min_size=20, max_size=40))
def test_slurm_expands_a_text_to_the_same_names_in_the_same_order(
    scontrol: Scontrol, batch: list[str]
) -> None:
    theirs = scontrol("hostnames", batch)
    assert differing(batch, theirs, map(expand, batch)) == []


@BATCHES
@given(batch=st.lists(texts(brackets=4, suffix=False), min_size=20, max_size=40))
def test_slurm_gives_the_same_names_for_many_brackets(scontrol: Scontrol, batch: list[str]) -> None:
    theirs = [sorted(answer) for answer in scontrol("hostnames", batch)]
    assert differing(batch, theirs, (sorted(expand(text)) for text in batch)) == []


@BATCHES
@given(batch=st.lists(st.lists(names(), min_size=1, max_size=30), min_size=20, max_size=40))
def test_slurm_expands_what_we_fold_to_the_same_set(
    scontrol: Scontrol, batch: list[list[str]]
) -> None:
    theirs = [sorted(answer) for answer in scontrol("hostnames", map(fold, batch))]
    assert differing(batch, theirs, (sorted(set(given)) for given in batch)) == []


@BATCHES
@given(batch=st.lists(st.lists(names(), min_size=1, max_size=30), min_size=20, max_size=40))
def test_we_expand_what_slurm_folds_to_the_same_names(
    scontrol: Scontrol, batch: list[list[str]]
) -> None:
    answers = scontrol("hostlist", map(",".join, batch))
    assert differing(batch, [expand(text) for (text,) in answers], batch) == []


def test_slurm_takes_a_hundred_thousand_folded_names(scontrol: Scontrol) -> None:
    dense = expand("blue-[00000-99999]")
    sparse = [f"x{i}" for i in range(1, 200_000, 2)]
    racks = [f"r{i}n{j}" for i in range(65_536) for j in (1, 2)]
    theirs = scontrol("hostnames", map(fold, [dense, sparse, racks]))
    assert [set(answer) for answer in theirs] == [set(dense), set(sparse), set(racks)]


@pytest.mark.parametrize(
    "text", ["a[3-1]", "a[1-2-3]", "a[]", "a[1,,2]", "a[,1]", "a[1,]", "a[x]", "a[-1]"]
)
def test_we_refuse_what_slurm_refuses(scontrol: Scontrol, text: str) -> None:
    assert scontrol("hostnames", [text]) == [[]]
    with pytest.raises(NodeNameError):
        expand(text)
