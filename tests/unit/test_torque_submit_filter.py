"""The submit filter for Torque's qsub, run as qsub runs it: script on stdin, qsub's arguments."""

import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import pytest

from springtide.batch import torque_submit_filter
from springtide.batch.torque_submit_filter import QUEUES

FILTER = Path(torque_submit_filter.__file__)


@dataclass(frozen=True)
class Qsub:
    program: Path

    def run(self, *arguments: str, script: str = "hostname\n") -> tuple[int, str, str]:
        command = [sys.executable, "-I", str(self.program), *arguments]
        done = subprocess.run(command, input=script.encode(), capture_output=True, check=False)
        return done.returncode, done.stdout.decode(), done.stderr.decode()

    def passes(self, *arguments: str, script: str = "hostname\n") -> str:
        code, out, err = self.run(*arguments, script=script)
        assert (code, err) == (0, "")
        return out


@pytest.fixture
def qsub(tmp_path: Path) -> Qsub:
    """As it is installed, but for where its queues are."""
    queues = tmp_path / "queues"
    queues.write_text("# queue property\ncloud cloud\nbatch house default\n")
    program = tmp_path / "filter"
    program.write_text(FILTER.read_text().replace(QUEUES, str(queues)))
    return Qsub(program)


def test_it_is_installed_as_a_program() -> None:
    assert FILTER.stat().st_mode & 0o111
    assert FILTER.read_text().startswith("#!/usr/bin/python3")


@pytest.mark.parametrize(
    ("queue", "asked", "wanted"),
    [
        ("cloud", "nodes=2:ppn=4", "nodes=2:ppn=4:cloud"),
        ("cloud", "nodes=1", "nodes=1:cloud"),
        ("cloud", "mem=1gb,nodes=1:big+2:ppn=2,walltime=1:00", None),
        ("cloud", "nodes=2:ppn=4:cloud", "nodes=2:ppn=4:cloud"),
        ("cloud", "nodes=2:ppn=4#excl", "nodes=2:ppn=4:cloud#excl"),
        ("batch", "nodes=1", "nodes=1:house"),
        ("night", "nodes=1", "nodes=1"),
        ("cloud@server", "nodes=1", "nodes=1:cloud"),
        ("cloud", "procs=3", "procs=3"),
    ],
)
def test_lines_of_scripts_get_the_property_of_the_queue(
    qsub: Qsub, queue: str, asked: str, wanted: str | None
) -> None:
    wanted = wanted or "mem=1gb,nodes=1:big:cloud+2:ppn=2:cloud,walltime=1:00"
    script = "#!/bin/sh\n#PBS -q {}\n# words\n#PBS -N x -l {}\n\nhostname\n"
    told = qsub.passes("job.sh", script=script.format(queue, asked))
    assert told == script.format(queue, wanted)


@pytest.mark.parametrize(
    ("line", "wanted"),
    [
        ('-l "nodes=2:ppn=4"', "-l nodes=2:ppn=4:cloud"),
        ("-l'nodes=2'", "-l nodes=2:cloud"),
        ("-l nodes='2'", "-l nodes=2:cloud"),
        ('-l "mem=1gb, nodes = 2"', "-l mem=1gb,nodes=2:cloud"),
        ('-l "nodes=2, mem=1gb"', '-l "nodes=2:cloud, mem=1gb"'),
        ("""-v "A='b c',D=e" -l nodes=1""", """-v "A='b c',D=e" -l nodes=1:cloud"""),
        ("-N '-l nodes=1'", "-N '-l nodes=1'"),
        ('-l "nodes=2:cloud"', '-l "nodes=2:cloud"'),
        ("-l mem=1gb,\\\nnodes=1 -V", "-l mem=1gb,nodes=1:cloud -V"),
        ('-l "nodes=2', '-l "nodes=2'),
    ],
)
def test_lines_are_read_as_qsub_reads_them(qsub: Qsub, line: str, wanted: str) -> None:
    script = "  # words\n#PBS -q 'cloud'\n#PBS {}\nhostname\n"
    assert qsub.passes(script=script.format(line)) == script.format(wanted)


def test_an_empty_prefix_is_that_of_no_line(qsub: Qsub) -> None:
    script = "#PBS -l nodes=1\nsrun -l nodes=1\n"
    assert qsub.passes("-q", "cloud", "-C", "", script=script) == script


def test_the_queue_of_the_command_line_goes_before_that_of_the_script(qsub: Qsub) -> None:
    script = "#PBS -q batch -l nodes=1\nhostname\n"
    assert qsub.passes("-q", "cloud", script=script) == "#PBS -q batch -l nodes=1:cloud\nhostname\n"
    assert "nodes=1:cloud" in qsub.passes("-qcloud", "job.sh", script=script)


def test_jobs_that_name_no_queue_are_of_the_default_one(qsub: Qsub) -> None:
    script = "#PBS -l nodes=1\nhostname\n"
    assert qsub.passes(script=script) == "#PBS -l nodes=1:house\nhostname\n"


def test_what_comes_after_the_first_command_is_no_line_of_qsub(qsub: Qsub) -> None:
    script = "#PBS -q cloud\nhostname\n#PBS -l nodes=1\n"
    assert qsub.passes(script=script) == script
    other = "#PBS -q cloud\n#X -q cloud -l nodes=1\nhostname\n"
    assert qsub.passes("-C", "#X", script=other) == other.replace("nodes=1", "nodes=1:cloud")


def test_jobs_that_ask_for_no_nodes_are_left_to_their_queue(qsub: Qsub) -> None:
    assert qsub.passes("-q", "cloud", "-l", "walltime=1:00") == "hostname\n"


@pytest.mark.parametrize(
    ("arguments", "advice"),
    [
        (("-q", "cloud", "-l", "nodes=2:ppn=4"), "nodes=2:ppn=4:cloud"),
        (("-I", "-qcloud", "-lnodes=1"), "nodes=1:cloud"),
        (("job.sh", "-l", "mem=1gb,nodes=1"), "nodes=1:house"),
        (("-q", "cloud", "-l", "nodes=1:house"), "nodes=1:house:cloud"),
    ],
)
def test_a_command_line_without_the_property_is_refused_with_what_to_write(
    qsub: Qsub, arguments: tuple[str, ...], advice: str
) -> None:
    code, out, err = qsub.run(*arguments)
    assert (code, out) == (255, "")
    assert err.startswith("qsub: jobs of queue ")
    assert err.endswith(f": write -l {advice}\n")


def test_a_command_line_with_the_property_passes(qsub: Qsub) -> None:
    assert qsub.passes("-q", "cloud", "-l", "nodes=2:ppn=4:cloud,mem=1gb") == "hostname\n"


def test_scripts_are_not_touched_otherwise(qsub: Qsub) -> None:
    script = "#!/bin/sh\r\n#PBS -N grün\necho 'ÿ'  \n\tlast line"
    assert qsub.passes("-q", "cloud", script=script) == script


def test_without_its_file_jobs_pass_and_it_says_so(qsub: Qsub) -> None:
    (qsub.program.parent / "queues").unlink()
    code, out, err = qsub.run("-q", "cloud", "-l", "nodes=1")
    assert (code, out) == (0, "hostname\n")
    assert err.startswith("qsub: nodes of jobs are not checked: ")


def test_options_that_nobody_knows_are_left_to_qsub(qsub: Qsub) -> None:
    assert qsub.passes("-q", "cloud", "--no-such") == "hostname\n"
