"""The stand-in for Torque says what Torque said, byte for byte, and does what it did.

It is brought into the situation of a recording: by the same commands where that can be, and what
machines measured (status of nodes, sessions, memory) is put in by hand.
"""

import asyncio
import re
import signal
import subprocess
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from tests.batch.torque_standin import install
from tests.batch.torque_standin.server import create, opened
from tests.e2e.real import until

RECORDED = Path(__file__).parents[1] / "recorded"
MIXED_AT = 1794765799
STATUS = re.compile(r"<name>(\w+)</name>(?:(?!</Node>).)*<status>([^<]*)</status>")
TIMED = re.compile(r"\n*real\t.*", re.DOTALL)
"""What the shell's `time` added to a recording."""


@dataclass(frozen=True)
class Bed:
    """A server, and programs of root and of a user."""

    state: Path
    root: Path
    tester: Path

    def run(self, line: str, user: str = "root") -> tuple[int, str, str]:
        """A command as the index of recordings has it."""
        script = "sleep 90\n"
        place = self.root if user == "root" else self.tester
        done = subprocess.run(
            ["/bin/bash", "-c", line],  # as whoever recorded did
            env={"PATH": f"{place}:/usr/bin:/bin"},
            input=script,
            capture_output=True,
            text=True,
            check=False,
            timeout=100,
        )
        return done.returncode, done.stdout, done.stderr

    def out(self, line: str, user: str = "root") -> str:
        code, out, err = self.run(line, user)
        assert (code, err) == (0, ""), line
        return out

    def freeze(self, at: float) -> None:
        with opened(self.state) as server:
            server.state["frozen"] = at

    def is_doomed(self, node: str) -> bool:
        with opened(self.state) as server:
            return node in server.state["doomed"]

    def boot(self, *names: str) -> None:
        for name in names:
            (self.state / "moms" / name).touch()

    def change_node(self, name: str, **values: Any) -> None:
        with opened(self.state) as server:
            server.nodes[name].update(values)

    def change_job(self, id: str, **values: Any) -> None:
        with opened(self.state) as server:
            server.jobs[id].update(values)


@pytest.fixture
def bed(tmp_path: Path) -> Bed:
    state = tmp_path / "state"
    create(state)
    return Bed(
        state,
        install(tmp_path / "root", state),
        install(tmp_path / "tester", state, "tester"),
    )


@pytest.fixture
def two(bed: Bed) -> Bed:
    """tn1 and tn2, which has the property cloud, up at the time of the recordings."""
    bed.freeze(MIXED_AT - 100)
    bed.out("qmgr -c 'create node tn1 np=2'; qmgr -c 'create node tn2 np=2,properties=cloud'")
    bed.boot("tn1", "tn2")
    bed.freeze(MIXED_AT - 50)
    assert "free" in bed.out("pbsnodes -l all")
    return bed


@pytest.fixture
def mixed(two: Bed) -> Bed:
    """The jobs of the recordings `mixed`, submitted as they were."""
    two.freeze(MIXED_AT)
    ran = [
        "qsub -N short1",
        "qsub -N twoppn -l nodes=1:ppn=2,mem=512mb,walltime=00:10:00",
        "qsub -q cloud -N cl2n -l nodes=2:ppn=2:cloud,pmem=1gb,walltime=00:20:00",
        "qsub -q cloud -N arr -t 0-2 -l nodes=1:ppn=1",
        "qsub -h -N held -l nodes=1:ppn=1",
        "qsub -N procs -l procs=3,vmem=2gb",
        "qsub -N dep -W depend=afterok:1.trqsrv",
    ]
    codes = []
    for line in ran:
        codes.append(two.run(line, "tester")[0])
        if "cl2n" in line:  # it was refused, but its number was taken
            with opened(two.state) as server:
                server.state["next"] = 3
    assert codes == [0, 0, 190, 0, 0, 0, 0]
    two.out("qmgr -c 'set server scheduling = true'")
    return two


def recorded(label: str, stream: str = "out") -> str:
    return (RECORDED / f"torque-6.1.3.h5__{label}.{stream}").read_text()


def measured(bed: Bed, label: str) -> None:
    """The status of nodes as their machines reported it."""
    for name, status in STATUS.findall(recorded(label)):
        bed.change_node(name, status=status)


def used(memory: str, time: str) -> dict[str, object]:
    """What a machine measured of a job."""
    fixed = {"cput": "00:00:00", "energy_used": 0}
    return {**fixed, "mem": memory, "vmem": "11640kb", "walltime": time}


class TestNodes:
    @pytest.mark.parametrize("label", ["pbsnodes-x_fresh", "pbsnodes-a_after-moms-started"])
    def test_nodes_that_are_down(self, two: Bed, label: str) -> None:
        measured(two, "pbsnodes-x_fresh")
        for name in ("tn1", "tn2"):
            (two.state / "moms" / name).unlink()
            two.change_node(name, words=["down"])
        assert two.out(f"pbsnodes -{label[9]}") == recorded(label)

    def test_nodes_with_jobs(self, mixed: Bed) -> None:
        with opened(mixed.state) as server:  # the array's first had the other half of tn1
            assert server.jobs["3[0].trqsrv"]["slots"] == {"tn1": [1]}
        text = recorded("pbsnodes-a_busy")
        statuses = re.findall(r"^(\w+)$.*?status = ([^\n]*)", text, re.DOTALL | re.MULTILINE)
        for name, status in statuses:
            mixed.change_node(name, status=status)
        assert mixed.out("pbsnodes -a") == text

    def test_a_drained_node_with_jobs(self, mixed: Bed) -> None:
        mixed.out("pbsnodes -o -N 'hybrid drain: idle' tn1")
        measured(mixed, "pbsnodes-x_offline-busy")
        assert mixed.out("pbsnodes -x tn1") == recorded("pbsnodes-x_offline-busy")
        assert mixed.out("pbsnodes -a tn1") == recorded("pbsnodes-a_offline-busy")
        assert mixed.out("pbsnodes -l -n") == recorded("pbsnodes-l-n_offline")
        mixed.out("pbsnodes -c -N n/a tn1")
        assert mixed.out("pbsnodes -a tn1") == recorded("pbsnodes-a_cleared")

    def test_new_nodes_take_no_drain(self, two: Bed) -> None:
        """rule 4"""
        two.change_node("tn1", note="n/a")
        line = (
            "qmgr -c 'create node tn3 np=2,properties=cloud'; "
            "qmgr -c 'create node tn4 np=4,properties=cloud'; pbsnodes -l all; "
            "pbsnodes -o tn3 tn4 -N 'powered off'; pbsnodes -l all -n"
        )
        label = "qmgr_create-precreated"
        assert two.run(line) == (0, recorded(label), recorded(label, "err"))

    def test_new_nodes_are_down_by_themselves_and_free_when_heard_from(self, bed: Bed) -> None:
        """rule 4"""
        bed.freeze(MIXED_AT)
        bed.out("qmgr -c 'create node tn3 np=2'")
        assert bed.out("pbsnodes -l all").split() == ["tn3", "down,offline,MOM-list-not-sent"]
        bed.freeze(MIXED_AT + 1)
        assert bed.out("pbsnodes -l all").split() == ["tn3", "down"]
        bed.boot("tn3")
        assert bed.out("pbsnodes -l all").split() == ["tn3", "free"]

    def test_qmgr_replaces_all_words_of_a_state(self, mixed: Bed) -> None:
        """rule 4"""
        mixed.out("pbsnodes -r tn2")
        mixed.out("qmgr -c 'set node tn2 state = offline'")
        with opened(mixed.state) as server:
            assert server.nodes["tn2"]["words"] == ["offline"]
        mixed.out("qmgr -c 'set node tn2 state = free'")
        with opened(mixed.state) as server:
            assert server.nodes["tn2"]["words"] == []

    def test_a_restarted_server_has_heard_from_nobody(self, two: Bed) -> None:
        """rule 5"""
        two.change_node("tn1", note="n/a")
        two.out("qmgr -c 'create node tn3 np=2'; qmgr -c 'create node tn4 np=2'")
        two.out("qmgr -c 'delete node tn2'; qmgr -c 'create node tn2 np=2'")
        (two.state / "moms/tn1").unlink()
        with opened(two.state) as server:
            server.stop()
            server.start()
        two.freeze(MIXED_AT)
        assert two.out("pbsnodes -l all -n") == recorded("pbsnodes-l-all_after-server-restart")

    def test_several_nodes_of_one_job(self, two: Bed) -> None:
        two.out("qmgr -c 'delete node tn2'")
        for name, np in (("tn3", 2), ("tn4", 4), ("tn2", 2)):
            two.out(f"qmgr -c 'create node {name} np={np},properties=cloud'")
        two.boot("tn3")
        two.freeze(1794766256)
        two.out("pbsnodes -l all")
        two.change_node("tn1", note="n/a")
        with opened(two.state) as server:
            server.state["next"] = 17
        line = "qsub -q cloud -N {} -l nodes={}"
        two.out(line.format("two", "1:ppn=2:cloud+1:ppn=1:cloud,mem=1gb"), "tester")
        two.out(line.format("nsp", "tn1:ppn=1"), "tester")
        two.out("qmgr -c 'set server scheduling = true'")
        measured(two, "pbsnodes-x_multinode")
        assert two.out("pbsnodes -x") == recorded("pbsnodes-x_multinode")
        two.change_job("17.trqsrv", session=0)
        two.change_job("18.trqsrv", session=124)
        *over, first, second = recorded("qstat-x_multinode-running-full").split("<Job>")
        assert two.out("qstat -t -x").split("<Job>")[1:] == [first, second]
        assert all("<job_state>C</job_state>" in one for one in over[1:]), "of before"


class TestRefusals:
    @pytest.mark.parametrize(
        ("line", "user", "code", "label"),
        [
            ("qmgr -c 'create node tn2'", "root", 2, "qmgr_create-node-dup"),
            ("qmgr -c 'delete node tn9'", "root", 2, "qmgr_delete-node-unknown"),
            ("pbsnodes -x tn9", "root", 1, "pbsnodes_unknown-node"),
            ("qmgr -c 'create node tn4'", "tester", 2, "qmgr_as-user-denied"),
            ("pbsnodes -o tn1", "tester", 0, "pbsnodes-o_as-user-denied"),  # rule 7
            ("qstat -x 9999", "tester", 153, "qstat-x_one-unknown-job"),
            ("qsub -N imposs -l nodes=9:ppn=9", "tester", 190, "qsub_impossible"),
            (
                "qsub -q cloud -N cl2n -l nodes=2:ppn=2:cloud,pmem=1gb,walltime=00:20:00",
                "tester",
                190,
                "qsub_cloud_2nodes",
            ),
            (
                "qsub -q cloud -N z1 -l nodes=5:ppn=2:cloud",
                "tester",
                190,
                "qsub_cloud-from-zero_with-nodect-hint",
            ),
            (
                "qsub -q cloud -N z3 -l nodes=1:ppn=16:cloud",
                "tester",
                190,
                "qsub_cloud-from-zero_ppn-too-big",
            ),
        ],
    )
    def test_what_is_refused(self, two: Bed, line: str, user: str, code: int, label: str) -> None:
        before = two.out("pbsnodes -l all")
        assert two.run(line, user) == (code, recorded(label), recorded(label, "err"))
        assert two.out("pbsnodes -l all") == before

    @pytest.mark.parametrize(
        ("line", "user", "code", "label"),
        [
            ("qstat -x", "tester", 111, "qstat_server-down"),
            ("pbsnodes -x", "root", 1, "pbsnodes_server-down"),
        ],
    )
    def test_a_server_that_is_down(
        self, two: Bed, line: str, user: str, code: int, label: str
    ) -> None:
        """rule 1"""
        with opened(two.state) as server:
            server.stop()
        said = TIMED.sub("\n", recorded(label, "err"))
        assert two.run(line, user) == (code, "", said)

    def test_root_may_not_submit(self, two: Bed) -> None:
        """rule 7"""
        assert two.run("qsub -N short1")[0] != 0

    @pytest.mark.parametrize(
        ("spec", "label"),
        [
            ("2:ppn=2:cloud,mem=1gb", "qsub_precreated-offline_2nodes"),
            ("1:ppn=4:cloud", "qsub_precreated-offline_ppn4"),
            ("1:ppn=8:cloud", "qsub_precreated-offline_ppn8"),
        ],
    )
    def test_nodes_that_are_down_are_enough_for_qsub(self, two: Bed, spec: str, label: str) -> None:
        """rule 3"""
        two.out("qmgr -c 'create node tn3 np=2,properties=cloud'")
        two.out("qmgr -c 'create node tn4 np=4,properties=cloud'")
        with opened(two.state) as server:
            server.state["next"] = int(recorded(label).partition(".")[0])
        assert two.out(f"qsub -q cloud -N p1 -l nodes={spec}", "tester") == recorded(label)

    def test_one_node_of_a_property_that_none_has_is_accepted(self, two: Bed) -> None:
        with opened(two.state) as server:
            server.state["next"] = 9
        said = two.out("qsub -q cloud -N z2 -l nodes=1:ppn=1:gpuxyz", "tester")
        assert said == recorded("qsub_cloud-from-zero_prop-nonexist")


class TestQueueDefaults:
    """As pbs_sched goes by them; seen on a real 6.1.3."""

    def set(self, bed: Bed, line: str) -> None:
        bed.out(f"qmgr -c 'set queue {line}'")

    def submitted(self, bed: Bed, line: str) -> tuple[list[str], str]:
        """Nodes and comment of a job, after the scheduler had its turn."""
        id = bed.out(f"qsub {line}", "tester").strip()
        bed.out("qmgr -c 'set server scheduling = true'")
        with opened(bed.state) as server:
            return list(server.jobs[id]["slots"]), str(server.jobs[id]["comment"])

    def test_a_word_alone_is_a_host_that_nobody_knows(self, two: Bed) -> None:
        self.set(two, "cloud resources_default.neednodes = cloud")
        nodes, comment = self.submitted(two, "-q cloud -N x")
        assert (nodes, comment) == ([], "Not Running - PBS Error: Unknown node ")
        self.set(two, "cloud resources_default.neednodes = tn2")
        assert self.submitted(two, "-q cloud -N y")[0] == ["tn2"]

    @pytest.mark.parametrize("default", ["neednodes = 1:cloud", "nodes = 1:ppn=1:cloud"])
    def test_a_number_and_a_property_are_for_jobs_that_ask_for_no_nodes(
        self, two: Bed, default: str
    ) -> None:
        self.set(two, f"cloud resources_default.{default}")
        assert self.submitted(two, "-q cloud -N x")[0] == ["tn2"]
        assert self.submitted(two, "-q cloud -N y -l nodes=1")[0] == ["tn1"]

    def test_a_job_that_asks_for_nodes_may_leave_its_queue_either_way(self, two: Bed) -> None:
        two.out("qmgr -c 'set node tn1 properties = house'")
        self.set(two, "cloud resources_default.neednodes = 1:cloud")
        self.set(two, "batch resources_default.neednodes = 1:house")
        assert self.submitted(two, "-q cloud -N x -l nodes=1:ppn=2")[0] == ["tn1"]
        assert self.submitted(two, "-q batch -N y -l nodes=1")[0] == ["tn2"]


class TestAddresses:
    """Of nodes, as pbs_server trusts them; seen on a real 6.1.3."""

    def resolve(self, bed: Bed, **hosts: str) -> None:
        with opened(bed.state) as server:
            server.state["hosts"] = hosts

    def words(self, bed: Bed) -> str:
        return bed.out("pbsnodes -l all").split()[1]

    def test_names_are_resolved_when_the_server_starts(self, bed: Bed) -> None:
        bed.freeze(MIXED_AT)
        self.resolve(bed, tn1="10.0.0.1")
        bed.out("qmgr -c 'create node tn1 np=2'")
        self.resolve(bed, tn1="198.18.0.1")
        with opened(bed.state) as server:
            server.stop()
            server.start()
        self.resolve(bed, tn1="10.0.0.1")
        bed.boot("tn1")
        for later_s in (10, 60, 600):
            bed.freeze(MIXED_AT + later_s)
            assert self.words(bed) == "down", "its address is not trusted"
        bed.out("qmgr -c 'delete node tn1'; qmgr -c 'create node tn1 np=2'")
        bed.freeze(MIXED_AT + 660)
        assert self.words(bed) == "free"

    def test_a_pbs_mom_that_was_refused_does_not_try_again_for_long(self, bed: Bed) -> None:
        bed.freeze(MIXED_AT)
        bed.boot("tn1")
        bed.run("pbsnodes -l all")
        bed.out("qmgr -c 'create node tn1 np=2'")
        bed.freeze(MIXED_AT + 3)
        assert self.words(bed) == "down"
        bed.freeze(MIXED_AT + 5)
        assert self.words(bed) == "free"


class TestDeletion:
    def test_of_an_idle_node(self, two: Bed) -> None:
        assert two.out("qmgr -c 'delete node tn2'") == recorded("qmgr_delete-node-idle-tn3")
        assert two.out("pbsnodes -l all").split() == ["tn1", "free"]

    def test_of_a_busy_node_blocks_and_is_done_later_though_the_client_has_gone(
        self, mixed: Bed
    ) -> None:
        """rule 2"""
        mixed.out("qmgr -c 'create node tn3 np=2'")
        mixed.change_node("tn3", words=["down"])
        command = [str(mixed.root / "qmgr"), "-c", "delete node tn2"]
        pipe = subprocess.PIPE
        with subprocess.Popen(command, stdout=pipe, stderr=pipe, text=True) as client:
            until(lambda: mixed.is_doomed("tn2"))
            client.terminate()
            assert client.communicate() == (recorded("qmgr_delete-node-busy"), "")
        assert client.returncode == -signal.SIGTERM
        label = "pbsnodes-l-all_after-delete-hang"
        assert mixed.out("pbsnodes -l all") == recorded(label)
        assert "1.trqsrv" in mixed.out("qstat -t")
        mixed.freeze(MIXED_AT + 1000)
        assert "tn2" not in mixed.out("pbsnodes -l all")
        assert "1.trqsrv" not in mixed.out("qstat -t")


class TestJobs:
    def test_no_jobs(self, two: Bed) -> None:
        assert two.out("qstat -x") == recorded("qstat-x_empty")
        assert two.out("qstat") == recorded("qstat_empty")

    def test_jobs_in_lines(self, mixed: Bed) -> None:
        assert mixed.out("qstat") == recorded("qstat_mixed")
        assert mixed.out("qstat -t") == recorded("qstat-t_mixed")

    def test_members_of_an_array_are_hidden_without_t(self, mixed: Bed) -> None:
        """rule 6"""
        assert "3[0]" not in mixed.out("qstat -x")
        mixed.change_job("3[0].trqsrv", session=88, used=used("7048kb", "00:00:34"))
        assert mixed.out("qstat -t -x cloud") == recorded("qstat-t-x-cloud")

    def test_jobs_of_all_kinds(self, mixed: Bed) -> None:
        mixed.change_job("0.trqsrv", session=84, used=used("7212kb", "00:00:04"))
        mixed.change_job("1.trqsrv", session=78, used=used("6820kb", "00:00:06"))
        mixed.change_job("3[0].trqsrv", mtime=MIXED_AT + 17)
        mixed.change_job("5.trqsrv", mtime=MIXED_AT + 15)
        mixed.freeze(MIXED_AT + 17)
        assert mixed.out("qstat -x") == recorded("qstat-x_mixed")
        assert mixed.out("qstat -Q -f") == recorded("qstat-Qf")

    def test_ids_are_answered(self, two: Bed) -> None:
        assert two.out("qsub -N short1", "tester") == recorded("qsub_batch_1")
        line = "qsub -N twoppn -l nodes=1:ppn=2,mem=512mb,walltime=00:10:00"
        assert two.out(line, "tester") == recorded("qsub_batch_ppn")


class TestVersions:
    def test_of_commands_and_server(self, two: Bed) -> None:
        assert two.out("qstat --version") == recorded("qstat-version")
        said = two.out("qmgr -c 'list server pbs_version'")
        assert said == recorded("qmgr_list-server-version")


async def test_many_commands_at_once_lose_nothing(bed: Bed) -> None:
    lines = [f"qmgr -c 'create node n{number} np=1'" for number in range(12)]
    await asyncio.gather(*(asyncio.to_thread(bed.out, line) for line in lines))
    assert len(bed.out("pbsnodes -l all").splitlines()) == 12
