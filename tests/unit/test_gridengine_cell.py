"""What is done to a cell of Grid Engine when its commands do not do what they should."""

import subprocess
from dataclasses import dataclass, field, replace

import pytest

from springtide.batch.gridengine import GridEngineQueue
from springtide.batch.gridengine_cell import Cell
from springtide.batch.gridengine_commands import Commands, require_done
from springtide.batch.gridengine_text import Listed
from springtide.batch.running import Output
from springtide.batch.unread import UnreadableError
from springtide.ports import Member, Unavailable

NO_HOSTS = "<qhost><host name='global'/></qhost>"
ONE_HOST = """<qhost><host name='global'/><host name='n1'>
<hostvalue name='arch_string'>lx-amd64</hostvalue><hostvalue name='load_avg'>0.1</hostvalue>
<queue name='cloud.q'><queuevalue name='slots_used'>0</queuevalue>
<queuevalue name='state_string'></queuevalue></queue></host></qhost>"""
ANSWERS: dict[tuple[str, ...], str] = {
    ("qconf", "-sq"): "qname cloud.q\nhostlist @cloud\npe_list NONE\nslots 1\nqtype BATCH\n",
    ("qconf", "-sc"): "slots s INT <= YES YES 1 1000\n",
    ("qconf", "-shgrpl"): "@cloud\n@springtide-here\n",
    ("qconf", "-shgrp_resolved"): "n1\n",
    ("qconf", "-sel"): "n1\n",
    ("qconf", "-spl"): "smp\n",
    ("qconf", "-sp"): "pe_name smp\nallocation_rule $pe_slots\n",
}
MEMBER = Member("n1", "10.0.0.1", 2, 0, (), ("cloud.q",))


@dataclass(frozen=True, slots=True)
class Told(Commands):
    """Commands that say what they are told to; qhost says the next thing each time."""

    hosts: list[str] = field(default_factory=list)
    ran: list[tuple[str, ...]] = field(default_factory=list)
    qmod: int = 0

    def run(self, *command: str) -> Output:
        self.ran.append(command)
        if command[0] == "qhost":
            said = self.hosts.pop(0) if len(self.hosts) > 1 else self.hosts[0]
            return subprocess.CompletedProcess(command, 0, said, "")
        if command[0] == "qmod" and self.qmod:
            return subprocess.CompletedProcess(command, self.qmod, "", "some trouble")
        return subprocess.CompletedProcess(command, 0, ANSWERS.get(command[:2], ""), "")

    def did(self, *words: str) -> bool:
        return any(command[: len(words)] == words for command in self.ran)


def cell(commands: Commands) -> Cell:
    return Cell(commands, "here", "springtide-here-placeholder", ("n1",))


DRAINED = ONE_HOST.replace("'state_string'></", "'state_string'>d</")


@dataclass(frozen=True, slots=True)
class Forgets(Told):
    """A host that was deleted is no execution host any more."""

    def run(self, *command: str) -> Output:
        gone = command == ("qconf", "-sel") and self.did("qconf", "-de")
        said = Told.run(self, *command)
        return subprocess.CompletedProcess(command, 0, "", "") if gone else said


def test_a_host_leaves_in_the_order_that_grid_engine_needs() -> None:
    """rule 10: closed and its execd ended before it leaves its queues, and forgotten last."""
    commands = Forgets(hosts=[ONE_HOST, ONE_HOST, DRAINED])
    assert cell(commands).leave(["n1"]) == {}
    changes = ("-d", "-ke", "-dattr", "-purge", "-de", "-dconf")
    ran = [command[1:] for command in commands.ran if command[1] in changes]
    assert ran == [
        ("-d", "*@n1"),
        ("-ke", "n1"),
        ("-dattr", "hostgroup", "hostlist", "n1", "@cloud"),
        ("-dattr", "hostgroup", "hostlist", "n1", "@springtide-here"),
        ("-de", "n1"),
        ("-dconf", "n1"),
    ]


def test_a_host_is_entered_before_its_queue_may_have_it() -> None:
    """rule 10: and its execd starts only once qmaster knows it (`Entry.ready`)."""
    commands = Told(hosts=[NO_HOSTS, NO_HOSTS, ONE_HOST])
    cell(commands).join([MEMBER])
    ran = [command[1:] for command in commands.ran if command[1] in ("-aattr", "-Me")]
    file = ran[1][1]
    assert ran == [
        ("-aattr", "hostgroup", "hostlist", "n1", "@springtide-here"),
        ("-Me", file),
        ("-aattr", "queue", "slots", "[n1=2]", "cloud.q"),
        ("-aattr", "hostgroup", "hostlist", "n1", "@cloud"),
    ]


@pytest.mark.parametrize("said", ["", "\n", ANSWERS["qconf", "-sq"].replace("cloud.q", "all.q")])
async def test_a_reading_without_our_queue_decides_nothing(said: str) -> None:
    """rule 1: or there would be no demand, and idle nodes would go."""

    class Says(Told):
        def run(self, *command: str) -> Output:
            if command[1] == "-sq":
                return subprocess.CompletedProcess(command, 0, said, "")
            return Told.run(self, *command)

    queue = GridEngineQueue(cell(Says(hosts=[NO_HOSTS])), ["cloud.q"])
    with pytest.raises(Unavailable, match=r"shows no queues|has no queue cloud\.q; create it"):
        await queue.read()


def test_a_host_that_still_takes_jobs_does_not_leave() -> None:
    """rule 2: a job could start between the look and the end of its execd."""
    commands = Told(hosts=[ONE_HOST], qmod=1)
    assert cell(commands).leave(["n1"]) == {"n1": "it still takes jobs: some trouble"}
    for words in (("-ke",), ("-dattr",), ("-de",)):
        assert not commands.did("qconf", *words)


def test_a_host_that_still_takes_jobs_does_not_join_anew() -> None:
    commands = Told(hosts=[ONE_HOST], qmod=1)
    with pytest.raises(Unavailable, match="n1 cannot join anew: it still takes jobs"):
        cell(commands).join([MEMBER])
    assert not commands.did("qconf", "-dattr")


def test_what_joined_by_half_is_undone_though_the_answer_made_no_sense() -> None:
    drained = ONE_HOST.replace("'state_string'></", "'state_string'>d</")
    commands = Told(hosts=[NO_HOSTS, NO_HOSTS, "garbage", drained])
    with pytest.raises(UnreadableError):
        cell(commands).join([MEMBER])
    assert commands.did("qconf", "-de")


def test_a_job_that_is_over_does_not_excuse_what_failed_for_another() -> None:
    over = "job 5 does not exist\n"
    require_done(subprocess.CompletedProcess(("qalter",), 1, over, ""))
    require_done(
        subprocess.CompletedProcess(("qalter",), 1, f"{over}modified context of job 6", "")
    )
    with pytest.raises(Unavailable, match="truly failed"):
        require_done(subprocess.CompletedProcess(("qalter",), 1, f"{over}it truly failed", ""))
    with pytest.raises(Unavailable):
        require_done(subprocess.CompletedProcess(("qalter",), 1, "", ""))


def test_a_parallel_environment_that_was_made_since_is_asked_for() -> None:
    commands = Told(hosts=[NO_HOSTS])
    queue = GridEngineQueue(cell(commands), ["cloud.q"])
    job = Listed("1", "qw", running=False, owner="ann", slots=2, environment="smp")
    for name in ("smp", "smp", "mpi"):
        queue._rules_for([replace(job, environment=name)])
    assert commands.ran.count(("qconf", "-spl")) == 2


def test_a_parallel_environment_that_cannot_be_read_hides_no_other() -> None:
    queue = GridEngineQueue(cell(Told(hosts=[NO_HOSTS])), ["cloud.q"])
    job = Listed("1", "qw", running=False, owner="ann", slots=2, environment="smp")
    rules = queue._rules_for([job])
    assert queue._rules_for([job, replace(job, environment="(" * 2000)]) == rules


def test_a_cell_without_any_host_is_no_failure_and_other_failures_stay_failures() -> None:
    class Says(Told):
        said = "no execution host defined\n"

        def run(self, *command: str) -> Output:
            if command[1:] == ("-sel",):
                return subprocess.CompletedProcess(command, 1, "", self.said)
            return Told.run(self, *command)

    class Silent(Says):
        said = "error: commlib error: got select error\n"

    assert cell(Says(hosts=[NO_HOSTS])).known() == set()
    with pytest.raises(Unavailable, match="commlib error"):
        cell(Silent(hosts=[NO_HOSTS])).known()
