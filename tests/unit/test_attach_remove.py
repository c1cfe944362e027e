"""`tide attach --remove`: what of ours stays while that Slurm needs it, and what is told."""

import shutil
from pathlib import Path

import pytest

from springtide.batch.running import Output
from springtide.batch.slurm_attachment import Attachment
from springtide.batch.slurm_commands import Commands
from springtide.cli import attach_remove, attached
from springtide.cli.consent import Consent
from springtide.cli.endings import Complaint, Exit
from springtide.layout import Layout
from springtide.ports import Job
from springtide.spec import Cluster, parse

RECORDED = Path(__file__).parents[1] / "recorded"
PLAIN = "SlurmctldHost=head\nSlurmUser=slurm\nNodeName=static1\n"
TAKEN_OUT = "TreeWidth=3\nPrologSlurmctld=/etc/slurm/prolog\n"
INCLUDE = """\
ResumeProgram={bin}/resume
TreeWidth=10
PrologSlurmctld={bin}/prolog

#: TreeWidth=3
#: PrologSlurmctld=/etc/slurm/prolog
"""


class Left:
    """A cluster whose nodes and daemon are gone, and the slurm.conf that it was attached to."""

    def __init__(self, place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.conf = place / "slurm.conf"
        self.layout = Layout(place / "s")
        self.layout.conf.mkdir(parents=True)
        self.layout.programs.mkdir()
        self.layout.include.write_text(INCLUDE.format(bin=self.layout.programs))
        text = f"cluster: blue\nstate: {self.layout.state}\nbatch: {{attach: {self.conf}}}\n"
        self.layout.stored_spec.write_text(text)
        self.runs_with_us, self.version = True, "22.05.8"
        self.asked: list[str] = []
        monkeypatch.setattr(Commands, "run", self.answer)
        monkeypatch.setattr(attached, "SYSTEMD", place)

    @property
    def spec(self) -> Cluster:
        return parse(self.layout.stored_spec.read_text(), "cluster.yaml")

    def answer(self, command: list[str], conf: Path | None = None) -> Output:
        """As slurmctld would."""
        self.asked.append(" ".join(command))
        if command[-1] == "reconfigure":
            self.runs_with_us = "include" in self.conf.read_text()
        text = (RECORDED / "slurm-22.05.8__scontrol-show-config_plain.out").read_text()
        text = text.replace("22.05.8", self.version)
        program = f"{self.layout.programs}/resume" if self.runs_with_us else "(null)"
        lines = (line for line in text.splitlines() if not line.startswith("ResumeProgram"))
        return Output(command, 0, "\n".join([*lines, f"ResumeProgram = {program}"]), "")

    def remove(self) -> Exit:
        return attach_remove.remove_attached(self.spec, Consent(yes=True))


@pytest.fixture
def left(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Left:
    return Left(tmp_path, monkeypatch)


PUT_BACK = """\
put back into {conf} (or do without: remove {include}):
  TreeWidth=3
  PrologSlurmctld=/etc/slurm/prolog
"""


def test_what_had_to_go_is_told_until_it_is_back_though_the_include_went_first(
    left: Left, capsys: pytest.CaptureFixture[str]
) -> None:
    left.conf.write_text(PLAIN)
    told = PUT_BACK.format(conf=left.conf, include=left.layout.include)
    for left.runs_with_us in (True, False):
        assert left.remove() == Exit.PARTLY
        said = capsys.readouterr().out
        assert told in said
        assert "\n  systemctl restart slurmctld\n" in said
        assert left.layout.include.exists()
        assert left.layout.programs.exists() == left.runs_with_us
    left.conf.write_text(PLAIN + TAKEN_OUT)
    assert left.remove() == Exit.DONE
    assert not left.layout.state.exists()


def test_whoever_does_not_want_it_back_removes_the_file(left: Left) -> None:
    left.conf.write_text(PLAIN)
    left.runs_with_us = False
    assert left.remove() == Exit.PARTLY
    left.layout.include.unlink()
    assert left.remove() == Exit.DONE
    assert not left.layout.state.exists()


def test_a_newer_slurmctld_is_asked_to_drop_us_when_it_has_its_prolog_again(
    left: Left, capsys: pytest.CaptureFixture[str]
) -> None:
    left.version = "24.11.5"
    left.conf.write_text(PLAIN)
    assert left.remove() == Exit.PARTLY
    assert "have slurmctld read it:\n  scontrol reconfigure\n" in capsys.readouterr().out
    assert "scontrol reconfigure" not in left.asked
    left.conf.write_text(PLAIN + TAKEN_OUT)
    assert left.remove() == Exit.DONE
    assert "scontrol reconfigure" in left.asked
    assert not left.layout.state.exists()


def test_a_slurm_conf_that_is_gone_has_nothing_put_back(left: Left) -> None:
    left.runs_with_us = False
    shutil.rmtree(left.layout.programs)
    assert left.remove() == Exit.DONE


def test_what_would_go_is_shown_before_anybody_is_asked(
    left: Left, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    left.conf.write_text(PLAIN)
    left.layout.record.touch()
    monkeypatch.setattr(Attachment, "jobs", lambda self: [])
    with pytest.raises(Complaint, match="say --yes"):
        attach_remove.remove_attached(left.spec, Consent())
    said = capsys.readouterr().err
    assert said == f"plan: suspend no node, stop the daemon, and remove {left.layout.state}\n"


def test_one_job_is_told_as_one() -> None:
    one = Job("7", "RUNNING", user="ann")
    assert attach_remove.render_jobs([one]) == (
        "1 job runs on our nodes or waits for them: 7 of ann"
    )
    assert attach_remove.render_jobs([one, one]).startswith("2 jobs run on our nodes or wait for")
