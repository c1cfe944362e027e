"""How stories speak of batch systems that are polled: their names and commands, and who decides."""

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from springtide import story as stories
from springtide.failures import Trouble
from springtide.spec import parse
from springtide.story import job_story, node_story, voice_of
from springtide.story.queue import WAITS
from springtide.story.telling import Story
from springtide.story.troubles import REPAIRS, SILENCE
from springtide.story.voice import TERMS, voice
from springtide.triage import RULES
from tests.unit.test_story import JOBS, NODES, NOON
from tests.unit.test_story_polled import STORIES

SLURMS = re.compile(r"slurm|\bs(control|queue|info|acct|prio|cancel)\b", re.IGNORECASE)
OTHERS = sorted(set(TERMS) - {"slurm"})
TOLD = {
    **{f"node {case}": node_story(NOON, facts[0]) for case, facts in NODES.items()},
    **{f"job {case}": job_story(NOON, facts[0]) for case, facts in JOBS.items()},
    **{f"polled job {case}": job_story(NOON, facts[0]) for case, facts in STORIES.items()},
}
SPEC = """
cluster: blue
batch: {batch}
provider: {{kind: fake}}
flavors: {{small: {{cpus: 1, memory: 4G}}}}
groups: {{general: {{nodes: "c[1-2]", flavors: [small]}}}}
partitions: {{cloud: {{groups: [general]}}}}
"""


def texts(story: Story) -> list[str]:
    return [story.about, story.now, story.next, story.do, *(text for _, text in story.past)]


@pytest.mark.accepts("X5")
@pytest.mark.parametrize("kind", OTHERS)
@pytest.mark.parametrize("case", TOLD)
def test_no_story_of_another_batch_system_has_a_word_of_slurm(case: str, kind: str) -> None:
    assert [text for text in texts(voice(kind).tell(TOLD[case])) if SLURMS.search(text)] == []


@pytest.mark.parametrize("case", TOLD)
def test_slurm_that_asks_for_nodes_itself_is_spoken_of_as_it_is_written(case: str) -> None:
    assert voice("").tell(TOLD[case]) == TOLD[case]


def _literals(path: Path) -> Iterator[str]:
    """What a module may say: its texts, without docstrings."""
    tree = ast.parse(path.read_text())
    lone = [node.value for node in ast.walk(tree) if isinstance(node, ast.Expr)]
    said = (node for node in ast.walk(tree) if isinstance(node, ast.Constant) and node not in lone)
    return (node.value for node in said if isinstance(node.value, str))


MODULES = [
    path
    for path in sorted(Path(stories.__file__).parent.glob("*.py"))
    if path.name not in ("voice.py", "telling.py", "__init__.py")
]
AFTER = (
    "",
    "17)",
    "17` tells",
    "17 -o %A` prints the number; ask with that",
    "17 state=resume`",
    "3 s after the last node came",
)
"""What may follow a piece of a text."""
PIECES = ("Slurm counts it as off at the latest ", "` tells what Slurm knows of it")
WHOLE = (
    "Slurm counts it as off at the latest 1 h (timing.stop) after it began with that",
    "`scontrol show node c3` tells what Slurm knows of it",
)


@pytest.mark.parametrize("path", MODULES, ids=lambda path: path.name)
def test_every_text_in_which_slurm_occurs_is_known(path: Path) -> None:
    """A new text about Slurm needs a line in the table, even if no case above tells it."""
    speaks = voice("torque")
    left = [
        text
        for text in _literals(path)
        if SLURMS.search(text) and not any(_is_changed(speaks.say(f"{text}{end}")) for end in AFTER)
    ]
    assert [text for text in left if text not in PIECES] == []
    assert all(_is_changed(speaks.say(text)) for text in WHOLE)


def _is_changed(text: str) -> bool:
    return SLURMS.search(text) is None


@pytest.mark.parametrize("kind", OTHERS)
def test_tables_of_troubles_have_no_word_of_slurm_either(kind: str) -> None:
    waits = [text for one in WAITS.values() for text in (one.now, one.next, one.do)]
    rules = [rule.why for rule in RULES]
    for text in (*waits, *rules, *REPAIRS.values(), SILENCE, *Trouble):
        assert not SLURMS.search(voice(kind).say(text)), text


@pytest.mark.parametrize(
    ("kind", "written", "said"),
    [
        ("gridengine", "`scontrol show job 7.3` tells more", "`qstat -j 7.3` tells more"),
        ("torque", "`scontrol show job 7[].s` tells more", "`qstat -f 7[].s` tells more"),
        ("openpbs", "`sacct -j 7.s` knows more", "`qstat -xf 7.s` knows more"),
        ("gridengine", str(Trouble.UNREACHED), "its sge_execd does not reach sge_qmaster"),
        ("torque", str(Trouble.SILENT), "its instance runs, but no pbs_mom of it has spoken"),
        ("openpbs", "look whether slurmctld runs", "look whether pbs_server runs"),
        ("torque", "strange slurmd put out of service", "strange pbs_mom put out of service"),
        ("torque", "c3 is off; Slurm shows IDLE.", "c3 is off."),
        ("slurm", JOBS["a task of an array"][3], "`squeue` lists the jobs that there are"),
        ("torque", "c3 is up; Slurm shows IDLE+free.", "c3 is up; Torque shows free."),
        ("slurm", "c3 is up; Slurm shows IDLE+CLOUD+IDLE.", "c3 is up; Slurm shows CLOUD+IDLE."),
    ],
)
def test_things_have_the_names_that_admins_know(kind: str, written: str, said: str) -> None:
    assert voice(kind).say(written) == said


@pytest.mark.parametrize(
    ("written", "said"),
    [
        ("`tide deploy` tells it", "`tide attach` tells it"),
        ("not deployed yet; run `tide deploy`.", "not deployed yet; run `tide attach`."),
        ("drained by ann: no `tide deploy` now", "drained by ann: no `tide deploy` now"),
    ],
)
def test_a_cluster_that_is_attached_is_told_to_attach(written: str, said: str) -> None:
    attached = voice_of(parse(SPEC.format(batch="{attach: /etc/slurm/slurm.conf}"), "blue.yaml"))
    assert attached.say(written) == said


ROGUE = next(rule.why for rule in RULES if rule.name == "rogue")


@pytest.mark.parametrize(
    ("kind", "needed"),
    [
        ("gridengine", ("qmod -d '*@{}'", "qconf -ke {}", "hostlist {} @GROUP", "qconf -de {}")),
        ("openpbs", ("pbsnodes -o {}", "qmgr -c 'delete node {}'")),
    ],
)
def test_a_node_that_somebody_else_added_is_removed_with_their_commands(
    kind: str, needed: tuple[str, ...]
) -> None:
    """`tide kill` leaves it alone."""
    event, advice = (
        voice(kind).say(ROGUE),
        voice(kind).say(NODES["a stranger answers in its name"][3]),
    )
    assert all(one.format("NODE") in event for one in needed)
    assert all(one.format("c3") in advice for one in needed)
    assert advice.startswith("`tide kill c3` ends its service; ")


@pytest.mark.parametrize("kind", ["slurm", "torque"])
def test_where_every_node_of_our_names_is_ours_it_is_killed(kind: str) -> None:
    assert voice(kind).say(ROGUE).endswith("; `tide kill` ends its service")


@pytest.mark.parametrize("kind", TERMS)
def test_where_springtide_decides_it_is_not_said_that_the_batch_system_does(kind: str) -> None:
    system, say = TERMS[kind].system, voice(kind).say
    assert say(NODES["off"][2]) == "Springtide starts it when a job needs it."
    assert say("Slurm gives it up when it has been idle") == (
        "Springtide lets it go when it has been idle"
    )
    assert say("none comes for 10 min, Slurm gives it up") == (
        "none comes for 10 min, Springtide lets it go"
    )
    assert say("start ordered by Slurm for job 17") == "start ordered by Springtide for job 17"
    assert say("resume by the batch system, for jobs 1.s") == "resume by Springtide, for jobs 1.s"
    assert say("Slurm has let go of c3; and so on") == f"c3 leaves {system}; and so on"
    assert "SlurmdTimeout" not in say(SILENCE)
    assert f"until {system} has not heard from it for 3 min" in say(SILENCE)


@pytest.mark.parametrize("kind", TERMS)
def test_a_node_whose_boot_failed_has_lost_no_request(kind: str) -> None:
    told = voice(kind).tell(TOLD["node off and wanted after a failed boot"])
    assert told.now == "c3 is off, and is to start; its last start failed: late; " + (
        f"{TERMS[kind].system} shows POWERING_UP."
    )
    assert told.next == (
        "at 12:01:00 UTC (in 60 s) Springtide starts it, because its last start failed, and is "
        "tried again."
    )
    assert told.do == "`tide log c3` shows what it said while it booted"
    other = voice(kind).tell(TOLD["node off and wanted, and nothing starts it"])
    assert other.next.endswith(
        " Springtide starts it, because it is to start, but nothing starts it."
    )


@pytest.mark.parametrize("kind", TERMS)
def test_that_jobs_are_started_stays_the_batch_systems(kind: str) -> None:
    said = voice(kind).say("Slurm starts it when other jobs have ended")
    assert said == f"{TERMS[kind].system} starts it when other jobs have ended"


@pytest.mark.parametrize("kind", TERMS)
@pytest.mark.parametrize(
    "words",
    ["alice: we move to Slurm", "slurmd tests, bob", "after the Slurm course", "by Slurm people"],
)
def test_what_people_wrote_stays_as_it_is(kind: str, words: str) -> None:
    assert voice(kind).say(words) == words


@pytest.mark.parametrize(
    ("batch", "said"),
    [
        ("{kind: fake}", "Slurm does not answer"),
        ("{kind: slurm}", "Slurm does not answer"),
        ("{kind: torque}", "Torque does not answer"),
        ("{kind: openpbs}", "OpenPBS does not answer"),
        ("{kind: gridengine, root: /sge}", "Grid Engine does not answer"),
        ("{kind: slurm, attach: /etc/slurm/slurm.conf, polling: {}}", "Slurm does not answer"),
    ],
)
def test_the_cluster_file_says_which_voice_it_is(batch: str, said: str) -> None:
    spec = parse(SPEC.format(batch=batch), "blue.yaml")
    assert voice_of(spec).say("Slurm does not answer") == said
    polled = "polling" in batch or "Slurm" not in said
    by = "Springtide" if polled else "Slurm"
    assert voice_of(spec).say("started by Slurm for job 1") == f"started by {by} for job 1"
