"""The submit filter for Torque's qsub, run as qsub runs it: script on stdin, through /bin/sh."""

import re
import shlex
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import pytest

from springtide.batch import torque_submit_filter
from springtide.batch.torque_submit_filter import QUEUES, parse_queues

ROOT = Path(__file__).parents[2]
FILTER = Path(torque_submit_filter.__file__)
TORQUE = """\
#!/bin/bash
# As qsub of Torque 6.1 has it: no quotes, and no value of -C; quotes for interactive jobs only.
for word; do
    if [ "$before" != -C ]; then
        if [ "$1" = -I ]; then words="$words \\"$word\\""; else words="$words $word"; fi
    fi
    before=$word
done
/bin/sh -c "$FILTER$words >$RESULT"
exit $?
"""
IN_LINES = "put values with blanks (-F, -v, -N, -W) into #PBS lines"
"""What is to be done where the words alone do not tell."""
FOUR = "#PBS -l nodes=2:ppn=4\nhostname\n"
FOUR_CLOUD = "#PBS -l nodes=2:ppn=4:cloud\nhostname\n"


@dataclass(frozen=True)
class Qsub:
    place: Path

    def run(self, *arguments: str, script: str = "hostname\n") -> tuple[int, str, str]:
        return self._end(["/bin/bash", str(self.place / "qsub"), *arguments], script)

    def unseen(self, *arguments: str, script: str = "hostname\n") -> tuple[int, str, str]:
        """As it is where nobody sees qsub's own command line, but only the words of the shell."""
        told = [w for before, w in zip(("", *arguments), arguments, strict=False) if before != "-C"]
        words = " ".join(told)
        return self._end(["/bin/sh", "-c", f"$FILTER {words} >$RESULT"], script)

    def _end(self, command: list[str], script: str) -> tuple[int, str, str]:
        result = self.place / "result"
        result.unlink(missing_ok=True)
        program = f"{shlex.quote(sys.executable)} -I {self.place}/filter"
        environment = {"FILTER": program, "RESULT": str(result)}
        done = subprocess.run(
            command, input=script.encode(), capture_output=True, env=environment, check=False
        )
        return done.returncode, result.read_bytes().decode(), done.stderr.decode()

    def passes(self, *arguments: str, script: str = "hostname\n") -> str:
        code, out, err = self.run(*arguments, script=script)
        assert (code, err) == (0, "")
        return out


@pytest.fixture
def qsub(tmp_path: Path) -> Qsub:
    """As it is installed, but for where its queues are."""
    queues = tmp_path / "queues"
    queues.write_text("# queue property\ncloud cloud\nbatch house default\n")
    (tmp_path / "filter").write_text(FILTER.read_text().replace(QUEUES, str(queues)))
    (tmp_path / "qsub").write_text(TORQUE)
    return Qsub(tmp_path)


def test_it_is_installed_as_a_program() -> None:
    assert FILTER.stat().st_mode & 0o111
    assert FILTER.read_text().startswith("#!/usr/bin/python3")
    packaging = ROOT / "packaging" / "torque"
    example = (packaging / "torque-queues").read_text()
    assert parse_queues(example) == ({}, ""), "installed as it is, it holds up no job"
    wanted = {"cloud": "cloud", "batch": "house"}, "batch"
    assert parse_queues(example.replace("\n# ", "\n")) == wanted


def test_the_page_says_how_to_install_it(tmp_path: Path) -> None:
    page = (ROOT / "docs" / "batch" / "torque.md").read_text()
    commands = re.findall(r"^    (install .*)$", page, re.MULTILINE)
    (tmp_path / "usr/local/sbin").mkdir(parents=True)
    for command in commands:
        head, _, target = command.rpartition(" ")
        subprocess.run([*head.split(), f"{tmp_path}{target}"], cwd=ROOT, check=True)
    assert (tmp_path / QUEUES[1:]).stat().st_mode & 0o777 == 0o644
    installed = tmp_path / "usr/local/sbin/torque_submitfilter"
    assert installed.read_text() == FILTER.read_text()
    assert not installed.is_symlink()
    assert installed.stat().st_mode & 0o777 == 0o755


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
        (r'-l "nodes=2,other=\"x\""', r'-l "nodes=2:cloud,other=\"x\""'),
        (r'-v "A=\"x\" -q y" -l nodes=1', r'-v "A=\"x\" -q y" -l nodes=1:cloud'),
        ('-l "nodes=2:ppn=4"', "-l nodes=2:ppn=4:cloud"),
        ("-l'nodes=2'", "-lnodes=2:cloud"),
        ("-l nodes='2'", "-l nodes=2:cloud"),
        ('-l "mem=1gb, nodes = 2"', "-l mem=1gb,nodes=2:cloud"),
        ('-l "nodes=2, mem=1gb"', '-l "nodes=2:cloud, mem=1gb"'),
        ("""-v "A='b c',D=e" -l nodes=1""", """-v "A='b c',D=e" -l nodes=1:cloud"""),
        ("-N '-l nodes=1'", "-N '-l nodes=1'"),
        ('-l "nodes=2:cloud"', '-l "nodes=2:cloud"'),
        ("-l mem=1gb,\\\nnodes=1 -V", "-l mem=1gb,nodes=1:cloud -V"),
        ('-l "nodes=2', '-l "nodes=2'),
        ("-l nodes=2 --oops", "-l nodes=2:cloud --oops"),
        ("--oops -l nodes=2  # two of them", "--oops -l nodes=2:cloud  # two of them"),
        ("-t 1-9 -i 4 -l nodes=2", "-t 1-9 -i 4 -l nodes=2:cloud"),
        ('-F "--a 1 -l nodes=2" -l nodes=1', '-F "--a 1 -l nodes=2" -l nodes=1:cloud'),
        ("-l nodes", "-l nodes"),
        ("-l nodes=", "-l nodes="),
        ("-l nodes=,mem=1gb", "-l nodes=,mem=1gb"),
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


@pytest.mark.parametrize("arguments", [(), ("-q", "@server"), ("-q@server", "job.sh"), ("-q", "")])
def test_jobs_that_name_no_queue_are_of_the_default_one(
    qsub: Qsub, arguments: tuple[str, ...]
) -> None:
    script = "#PBS -l nodes=1\nhostname\n"
    assert qsub.passes(*arguments, script=script) == "#PBS -l nodes=1:house\nhostname\n"


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
        (("-I", "-q", "cloud", "-N", "my -q other", "-l", "nodes=1"), "nodes=1:cloud"),
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
    (qsub.place / "queues").unlink()
    code, out, err = qsub.run("-q", "cloud", "-l", "nodes=1")
    assert (code, out) == (0, "hostname\n")
    assert err.startswith("qsub: nodes of jobs are not checked: ")


def test_a_file_that_is_no_text_is_read_as_far_as_it_goes(qsub: Qsub) -> None:
    """And does not end the filter, or qsub would refuse every job."""
    (qsub.place / "queues").write_bytes(b"# gr\xfcn\ncloud cloud\n")
    assert qsub.passes("-q", "cloud", script=FOUR) == FOUR_CLOUD


def test_a_file_that_cannot_be_opened_lets_jobs_pass(qsub: Qsub) -> None:
    program = qsub.place / "filter"
    program.write_text(program.read_text().replace(f'"{qsub.place}/queues"', '"a\\0b"'))
    code, out, err = qsub.run("-q", "cloud", script=FOUR)
    assert (code, out) == (0, FOUR)
    assert err.endswith("embedded null byte\n")


# qsub joins its words with blanks, and /bin/sh splits them again


@pytest.mark.parametrize(
    "arguments",
    [
        ("-q", "cloud", "--no-such"),
        ("-q", "cloud", "-F", "in --verbose", "job.sh"),
        ("-q", "cloud", "-F", "--a 1 --b 2", "job.sh"),
        ("-q", "cloud", "-v", "A=x --foo", "job.sh"),
        ("-q", "cloud", "-t", "1-9", "-i", "4", "job.sh"),
        ("-i", "4", "-q", "cloud", "job.sh"),
        ("-C", "#PBS", "-q", "cloud", "job.sh"),
        ("-N", "name", "-Vq", "cloud", "job.sh"),
        ("-l", "mem=1gb, nodes=1:cloud", "-q", "cloud", "job.sh"),
    ],
)
def test_words_that_are_no_options_hide_no_queue(qsub: Qsub, arguments: tuple[str, ...]) -> None:
    assert qsub.run(*arguments, script=FOUR) == (0, FOUR_CLOUD, "")
    assert qsub.unseen(*arguments, script=FOUR) == (0, FOUR_CLOUD, "")


@pytest.mark.parametrize(
    "arguments",
    [
        ("-q", "cloud", "-F", "run -l nodes=4", "job.sh"),
        ("-q", "cloud", "-N", "my -q other", "job.sh"),
        ("-q", "cloud", "-F", "in -q out.dat", "job.sh"),
        ("-q", "cloud", "-v", "A=b -q batch", "job.sh"),
    ],
)
def test_options_within_a_value_are_none(qsub: Qsub, arguments: tuple[str, ...]) -> None:
    assert qsub.run(*arguments, script=FOUR) == (0, FOUR_CLOUD, "")
    code, out, err = qsub.unseen(*arguments, script=FOUR)
    assert (code, out) == (255, "")
    assert err.endswith(f"nd {IN_LINES}\n")


def test_the_last_of_two_queues_counts(qsub: Qsub) -> None:
    assert qsub.passes("-q", "batch", "-N", "x", "-q", "cloud", script=FOUR) == FOUR_CLOUD
    assert qsub.unseen("-q", "batch", "-q", "cloud", script=FOUR)[1] == FOUR_CLOUD
    code, _, err = qsub.unseen("-q", "batch", "-N", "x", "-q", "cloud", script=FOUR)
    assert (code, err.partition("?")[0]) == (
        255,
        "qsub: of which queue is this job, batch or cloud",
    )


def test_jobs_of_other_queues_pass_whatever_is_in_their_values(qsub: Qsub) -> None:
    words = ("-q", "night", "-F", "in -q cloud -l nodes=1", "job.sh")
    assert qsub.run(*words, script=FOUR) == (0, FOUR, "")
    words = ("-q", "night", "-F", "in -q out.dat -l nodes=1", "job.sh")
    assert qsub.unseen(*words, script=FOUR) == (0, FOUR, "")
    words = ("-q", "night", "-F", "in -q cloud", "job.sh")
    assert qsub.unseen(*words, script="hostname\n") == (0, "hostname\n", "")


def test_nodes_within_a_list_with_blanks_are_seen(qsub: Qsub) -> None:
    for run in (qsub.run, qsub.unseen):
        code, _, err = run("-q", "cloud", "-l", "mem=1gb, nodes = 2", "job.sh")
        assert (code, err.endswith("write -l nodes=2:cloud\n")) == (255, True)


def test_a_prefix_that_qsub_does_not_pass_on_is_known(qsub: Qsub) -> None:
    script = "#X -l nodes=1\nhostname\n"
    words = ("-C", "#X", "-q", "cloud", "job.sh")
    wanted = (0, "#X -l nodes=1:cloud\nhostname\n", "")
    assert qsub.run(*words, script=script) == wanted
    assert qsub.unseen(*words, script=script) == wanted
