"""Torque's output as a real pbs_server 6.1.3 printed it, and what it may print besides."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from springtide.batch.torque_notes import LONGEST, OFF, Note
from springtide.batch.torque_request import RequestError, parse_request, parse_size
from springtide.batch.torque_rules import refuse_busy
from springtide.batch.torque_text import (
    TorqueNode,
    TorqueQueue,
    parse_all_queues,
    parse_jobs,
    parse_nodes,
    parse_version,
)
from springtide.batch.unread import UnreadableError
from springtide.demand import demand
from springtide.packing import Pool, Room
from springtide.ports import Chunk, Health, JobState, QueueJob, Unavailable

RECORDED = Path(__file__).parents[1] / "recorded"
NASTY = ["9" * 5000, "1e999", "-1", "inf", "nan", "", "²", "٣", "1+" * 500]
"""What owners may write where a number belongs."""
BUSY = ("0.trqsrv", "3[0].trqsrv")


def recorded(label: str) -> str:
    return (RECORDED / f"torque-6.1.3.h5__{label}.out").read_text()


def nodes(label: str) -> dict[str, TorqueNode]:
    return parse_nodes(recorded(label))


def jobs(label: str) -> dict[str, QueueJob]:
    return {job.id: job for job in parse_jobs(recorded(label), {"tn1", "tn2", "tn3", "tn4"})}


def node(state: str, **tags: str) -> TorqueNode:
    inner = "".join(f"<{tag}>{text}</{tag}>" for tag, text in tags.items())
    text = f"<Data><Node><name>n1</name><state>{state}</state>{inner}</Node></Data>"
    return parse_nodes(text)["n1"]


def job(state: str = "Q", id: str = "7.trqsrv", listed: str = "", **tags: str) -> QueueJob | None:
    given = {"Job_Id": id, "job_state": state, "queue": "cloud", **tags}
    inner = "".join(f"<{tag}>{text}</{tag}>" for tag, text in given.items())
    text = f"<Data><Job>{inner}<Resource_List>{listed}</Resource_List></Job></Data>"
    found = parse_jobs(text, {"tn1"}, {"entrance": TorqueQueue(leads_to=("cloud", "batch"))})
    return found[0] if found else None


def seen(*arguments: str, **tags: str) -> QueueJob:
    found = job(*arguments, **tags)
    assert found is not None
    return found


class TestNodes:
    def test_the_state_in_the_status_is_not_the_state(self) -> None:
        """rule 4: nodes that are down say state=free in what they said last."""
        assert "state=free" in recorded("pbsnodes-x_fresh")
        assert {n.shown.health for n in nodes("pbsnodes-x_fresh").values()} == {Health.DOWN}

    def test_free_nodes_can_have_jobs_and_slots_are_ranges(self) -> None:
        """rule 4"""
        found = nodes("pbsnodes-x_multinode")
        shown = {
            name: (n.shown.words, n.shown.jobs, n.shown.cores_used) for name, n in found.items()
        }
        assert shown == {
            "tn1": (frozenset({"free"}), ("18.trqsrv",), 1),
            "tn3": (frozenset({"job-exclusive"}), ("17.trqsrv",), 2),
            "tn4": (frozenset({"down"}), (), 0),
            "tn2": (frozenset({"free"}), ("17.trqsrv",), 1),
        }
        assert found["tn4"].shown.health is Health.JOINING  # never heard from
        assert found["tn1"].shown.reason == ""  # its note is n/a

    def test_an_admins_drain_is_one_word_of_the_state(self) -> None:
        """rule 4"""
        (found,) = nodes("pbsnodes-x_offline-busy").values()
        assert found.shown.words == {"offline", "job-exclusive"}
        assert (found.shown.health, found.shown.drained) == (Health.UP, True)
        assert found.shown.reason == "hybrid drain: idle"
        assert (found.shown.jobs, found.shown.cores_used) == (BUSY, 2)

    def test_a_new_node_is_no_admins_drain(self) -> None:
        """rule 4"""
        found = node("down,offline,MOM-list-not-sent")
        assert (found.shown.health, found.shown.drained) == (Health.JOINING, False)
        assert found.fresh

    @pytest.mark.parametrize(
        ("state", "note", "health"),
        [
            ("down", "", Health.DOWN),
            ("down,offline", OFF, Health.DOWN),
            ("offline", OFF, Health.UP),
        ],
    )
    def test_a_node_with_jobs_is_not_off(self, state: str, note: str, health: Health) -> None:
        """rule 2"""
        found = node(state, properties="springtide", note=note, jobs="0/1.trqsrv")
        assert found.shown.health is health

    @pytest.mark.parametrize(
        ("state", "note", "heard", "health", "drained"),
        [
            ("down,offline,MOM-list-not-sent", "", 0, Health.ABSENT, False),
            ("down", "", 0, Health.ABSENT, False),
            ("down", "", 5, Health.DOWN, False),
            ("down,offline", OFF, 5, Health.ABSENT, False),
            ("offline", OFF, 5, Health.ABSENT, False),  # it died, or goes on; nobody may care
            ("free", OFF, 5, Health.UP, False),  # an admin cleared it by hand
            ("down", "springtide: joined 0", 0, Health.JOINING, False),
            ("down", "springtide: joined 5", 5, Health.JOINING, False),
            ("free", "springtide: joined 5", 5, Health.JOINING, False),  # of its former life
            ("free", "springtide: joined 5", 6, Health.UP, False),
            ("down", "springtide: joined 5", 6, Health.DOWN, False),
            ("offline", "springtide: idle, leaves (joined 5)", 6, Health.UP, True),
            ("down,offline", "springtide: idle, leaves (joined 5)", 5, Health.JOINING, True),
            ("offline", "springtide: joined 5", 6, Health.UP, True),  # by hand, without a word
            ("offline", "disk broken", 6, Health.UP, True),
            ("state-unknown", "", 6, Health.DOWN, False),
            ("busy", "", 6, Health.UP, False),
        ],
    )
    def test_nodes_of_ours_are_what_words_note_and_reports_say(
        self, state: str, note: str, heard: int, health: Health, drained: bool
    ) -> None:
        status = {"status": f"opsys=linux,rectime={heard},jobs="} if heard else {}
        found = node(state, properties="springtide,cloud", note=note, **status)
        assert (found.shown.health, found.shown.drained) == (health, drained)
        assert found.shown.reason == (found.note.reason if drained else "")

    @pytest.mark.parametrize(
        ("state", "shut"),
        [("free", False), ("job-exclusive", False), ("busy", True), ("job-exclusive,busy", True)],
    )
    def test_a_node_above_its_load_takes_no_jobs(self, state: str, shut: bool) -> None:
        assert node(state).shown.shut is shut

    def test_slots_of_one_job_may_have_gaps(self) -> None:
        found = node("free", jobs="0,2-3/7.trqsrv, 1/3[0].trqsrv").shown
        assert (found.jobs, found.cores_used) == (("7.trqsrv", "3[0].trqsrv"), 4)

    @pytest.mark.parametrize("text", ["x/7.trqsrv", "0-1", "/7.trqsrv"])
    def test_slots_that_make_no_sense_are_no_free_node(self, text: str) -> None:
        """rule 1"""
        with pytest.raises(UnreadableError, match="pbsnodes printed"):
            node("free", jobs=text)


class TestJobs:
    def test_an_empty_queue_is_empty(self) -> None:
        assert parse_jobs(recorded("qstat-x_empty"), ()) == []

    @pytest.mark.accepts("N2")
    def test_states_are_told_apart(self) -> None:
        states = {id: found.state for id, found in jobs("qstat-x_mixed").items()}
        assert states == {
            "0.trqsrv": JobState.RUNNING,
            "1.trqsrv": JobState.RUNNING,
            "4.trqsrv": JobState.HELD,
            "5.trqsrv": JobState.WAITING,
            "6.trqsrv": JobState.HELD,  # for another job
        }

    @pytest.mark.accepts("N2")
    def test_members_of_an_array_are_counted(self) -> None:
        """rule 6: qstat -x has the array alone, and says that it runs."""
        assert "3[1]" not in recorded("qstat-x_mixed")
        found = jobs("qstat-t-x-cloud")
        shown = {id: (one.state, one.tasks, one.nodes) for id, one in found.items()}
        assert shown == {
            "3[0].trqsrv": (JobState.RUNNING, 1, ("tn1",)),
            "3[].trqsrv": (JobState.WAITING, 2, ()),
        }

    @pytest.mark.accepts("N2")
    def test_what_is_over_is_left_out_and_the_rest_has_its_nodes(self) -> None:
        found = jobs("qstat-x_multinode-running-full")
        assert {id: one.nodes for id, one in found.items()} == {
            "17.trqsrv": ("tn2", "tn3"),
            "18.trqsrv": ("tn1",),
        }
        assert found["17.trqsrv"].chunks == (Chunk(1, 2, 512), Chunk(1, 1, 512))
        assert found["18.trqsrv"].names == ("tn1",)
        assert found["18.trqsrv"].since == 1794766256.0
        assert found["18.trqsrv"].user == "tester"

    def test_processors_may_be_anywhere(self) -> None:
        found = jobs("qstat-x_mixed")["5.trqsrv"]
        assert found.chunks == (Chunk(3, 1, spread=False),)  # vmem is no memory
        assert found.queues == ("batch",)

    @pytest.mark.parametrize(
        ("state", "tags", "expected"),
        [
            ("Q", {}, JobState.WAITING),
            ("Q", {"Hold_Types": "n"}, JobState.WAITING),
            ("Q", {"Hold_Types": "u"}, JobState.HELD),
            ("Q", {"comment": "Not Running: Not enough of the right type"}, JobState.WAITING),
            ("Q", {"comment": "Not Running: User has reached queue running limit"}, JobState.HELD),
            ("Q", {"comment": "my own limits are wide"}, JobState.WAITING),
            ("W", {}, JobState.HELD),
            ("H", {}, JobState.HELD),
            ("T", {}, JobState.WAITING),
            ("E", {}, JobState.RUNNING),
            ("S", {}, JobState.RUNNING),
            ("X", {}, JobState.HELD),
        ],
    )
    def test_only_what_would_start_is_demand(
        self, state: str, tags: dict[str, str], expected: JobState
    ) -> None:
        assert seen(state, **tags).state is expected

    def test_tasks_that_may_not_run_at_once_are_no_demand(self) -> None:
        def task(number: int, state: str, comment: str) -> str:
            return (
                f"<Job><Job_Id>3[{number}].s</Job_Id><job_state>{state}</job_state>"
                f"<comment>{comment}</comment>"
                "<queue>cloud</queue><submit_args>-t 0-9%2 -q cloud</submit_args></Job>"
            )

        def found(running: int, *comments: str) -> list[tuple[JobState, int]]:
            said = [*comments, *[""] * (10 - len(comments))]
            states = ["R" if number < running else "Q" for number in range(10)]
            text = "".join(task(n, state, said[n]) for n, state in enumerate(states))
            return [
                (one.state, one.tasks)
                for one in parse_jobs(f"<Data>{text}</Data>", ())
                if one.state is not JobState.RUNNING
            ]

        assert found(0) == [(JobState.WAITING, 2)]
        assert found(1) == [(JobState.WAITING, 1)]
        assert found(2) == [(JobState.HELD, 8)]
        assert found(0, "a") == [(JobState.WAITING, 1), (JobState.WAITING, 1)], "two in all"
        assert found(1, "", "a") == [(JobState.WAITING, 1), (JobState.HELD, 8)]

    def test_a_job_in_a_queue_that_leads_to_ours_may_run_in_ours(self) -> None:
        found = seen(queue="entrance", queue_type="R")
        assert found.queues == ("entrance", "cloud", "batch")

    def test_jobs_of_a_queue_that_is_stopped_are_held_and_those_that_run_do(self) -> None:
        text = recorded("qstat-x_mixed")
        queues = parse_all_queues(recorded("qstat-Qf").replace("started = True", "started = False"))
        before = {job.id: job.state for job in parse_jobs(text, ())}
        after = {job.id: job.state for job in parse_jobs(text, (), queues)}
        assert JobState.WAITING in before.values()
        assert JobState.WAITING not in after.values()
        runs = [id for id, state in before.items() if state is JobState.RUNNING]
        assert [id for id, state in after.items() if state is JobState.RUNNING] == runs

    def test_properties_that_tie_a_queue_to_its_nodes_are_no_features(self) -> None:
        """All nodes of ours that serve the queue have them."""
        found = seen(listed="<nodes>2:ppn=4:cloud:bigmem</nodes><neednodes>cloud</neednodes>")
        assert found.chunks == (Chunk(2, 4, features=frozenset({"bigmem"})),)

    def test_a_strange_request_hides_no_other_job(self) -> None:
        found = seen(listed="<mem>lots</mem>")
        assert found.state is JobState.HELD
        assert found.reason == "springtide cannot read what it asks for: 'lots' is no size"
        assert seen("R", listed="<mem>lots</mem>").state is JobState.RUNNING

    @pytest.mark.parametrize("value", NASTY, ids=range(len(NASTY)))
    @pytest.mark.parametrize("name", ["nodes", "procs", "ncpus", "mem", "pmem", "feature", "odd"])
    def test_whatever_an_owner_asks_for_the_jobs_of_others_are_read(
        self, name: str, value: str
    ) -> None:
        for asked in (value, f"{value}:ppn={value}:gpus={value}", f"{value}gb"):
            listed = f"<{name}>{asked}</{name}>"
            assert seen(listed=listed).state in (JobState.WAITING, JobState.HELD)
            assert len(seen(listed=listed).reason) < 300
            runs = seen("R", listed=listed, exec_host="tn1/0")
            assert (runs.state, runs.nodes) == (JobState.RUNNING, ("tn1",))

    def test_a_time_or_a_size_beyond_all_numbers_is_none(self) -> None:
        assert seen(ctime="9" * 5000).since is None
        assert node("free", np="9" * 5000).np == 0

    @pytest.mark.parametrize("asked", ["0", "0:ppn=2", "0:ppn=2+0:tn1", "0#excl"])
    def test_a_job_of_no_node_is_held_and_keeps_none(self, asked: str) -> None:
        found = seen(listed=f"<nodes>{asked}</nodes>")
        assert (found.state, found.reason) == (JobState.HELD, "it asks for no node")
        pool = Pool("g", ("tn1",), 4, 4096, queues=frozenset({"cloud"}))
        assert not demand([found], [Room("tn1", "g", 4, 4096)], [pool]).short
        runs = seen("R", listed=f"<nodes>{asked}</nodes>", exec_host="tn1/0")
        assert (runs.state, runs.nodes) == (JobState.RUNNING, ("tn1",))

    def test_a_part_of_no_node_is_left_out(self) -> None:
        found = seen(listed="<nodes>0:ppn=9:tn1+2:ppn=4</nodes>")
        assert (found.state, found.chunks, found.names) == (JobState.WAITING, (Chunk(2, 4),), ())

    def test_environments_may_hold_anything(self) -> None:
        """What a user exports must not keep all others from getting nodes."""
        assert seen(Variable_List="A=<b>\x01&&]]>").state is JobState.WAITING
        assert seen(Job_Name="a\x02b").state is JobState.WAITING
        assert seen(submit_args="-N \ufffe\uffff").state is JobState.WAITING

    @pytest.mark.parametrize(
        "text",
        [
            "",
            "qstat: nothing",
            "<Data>",
            "<Other></Other>",
            "<Data><Job></Job></Data>",
            "<Data><Job><Job_Id>1</Job_Id></Job></Data>",
            "<Data><Node><name>n1</name></Node></Data>",
            '<!DOCTYPE a [<!ENTITY b "c">]><Data></Data>',
        ],
    )
    def test_what_makes_no_sense_is_no_empty_queue(self, text: str) -> None:
        """rule 1"""
        with pytest.raises(UnreadableError, match="printed"):
            parse_jobs(text, ())
        with pytest.raises(UnreadableError, match="printed"):
            parse_nodes(text)


class TestRequests:
    @pytest.mark.parametrize(
        ("resources", "chunks"),
        [
            ({}, (Chunk(),)),
            ({"nodes": "1"}, (Chunk(),)),
            ({"nodes": "3"}, (Chunk(3),)),
            (
                {"nodes": "2:ppn=4:bigmem+1:ppn=1"},
                (Chunk(2, 4, features=frozenset({"bigmem"})), Chunk()),
            ),
            ({"nodes": "bigmem:ppn=2"}, (Chunk(1, 2, features=frozenset({"bigmem"})),)),
            ({"nodes": "1:ppn=2:gpus=1"}, (Chunk(1, 2, features=frozenset({"gpus"})),)),
            (
                {"nodes": "1:gpus=1:exclusive_thread:reseterr+1:gpus=2:Shared:big"},
                (
                    Chunk(features=frozenset({"gpus"})),
                    Chunk(features=frozenset({"big", "gpus"})),
                ),
            ),
            ({"nodes": "1:shared"}, (Chunk(features=frozenset({"shared"})),)),
            ({"nodes": "1:ppn=2#excl"}, (Chunk(1, 2, exclusive=True),)),
            ({"nodes": "1:ppn=2#shared"}, (Chunk(1, 2),)),
            ({"naccesspolicy": "SINGLEJOB"}, (Chunk(exclusive=True),)),
            ({"ncpus": "4"}, (Chunk(1, 4),)),
            ({"nodes": "2:ppn=2", "mem": "4gb"}, (Chunk(2, 2, 2048),)),
            ({"nodes": "2:ppn=2", "pmem": "1gb"}, (Chunk(2, 2, 2048),)),
            ({"nodes": "2:ppn=2", "mem": "1gb", "pmem": "1gb"}, (Chunk(2, 2, 2048),)),
            ({"nodes": "1", "vmem": "900gb", "pvmem": "900gb"}, (Chunk(),)),
            ({"procs": "4", "mem": "4gb"}, (Chunk(4, 1, 1024, spread=False),)),
            ({"feature": "fast,fast"}, (Chunk(features=frozenset({"fast"})),)),
            ({"feature": "a|b"}, (Chunk(),)),
            ({"nodes": "1:fast", "neednodes": "1:fast"}, (Chunk(features=frozenset({"fast"})),)),
            ({"neednodes": "1:ppn=1:fast"}, (Chunk(features=frozenset({"fast"})),)),
        ],
    )
    def test_what_is_asked_for(self, resources: dict[str, str], chunks: tuple[Chunk, ...]) -> None:
        assert parse_request(resources, ()).chunks == chunks

    def test_names_of_nodes_are_no_features(self) -> None:
        found = parse_request({"nodes": "tn1:ppn=1+1:ppn=2:fast"}, {"tn1"})
        assert found.names == ("tn1",)
        assert [chunk.features for chunk in found.chunks] == [frozenset(), {"fast"}]

    @pytest.mark.parametrize(
        ("text", "size"),
        [("512mb", 2**29), ("536870912b", 2**29), ("1gw", 2**33), ("7", 7), ("2GB", 2**31)],
    )
    def test_sizes(self, text: str, size: int) -> None:
        assert parse_size(text) == size

    @pytest.mark.parametrize("resources", [{"nodes": "1:ppn=x"}, {"mem": "-1"}, {"procs": "all"}])
    def test_what_is_no_number_is_said(self, resources: dict[str, str]) -> None:
        with pytest.raises(RequestError, match="is no"):
            parse_request(resources, ())

    @given(st.text(max_size=60))
    def test_any_specification_is_read_or_refused(self, text: str) -> None:
        try:
            found = parse_request({"nodes": text}, {"tn1"})
        except RequestError:
            return
        assert all(chunk.cores >= 1 and chunk.count >= 0 for chunk in found.chunks)


class TestNotes:
    @given(st.text(max_size=300), st.none() | st.integers(0, 10**12))
    def test_what_is_written_is_read_again(self, reason: str, after: int | None) -> None:
        text = str(Note(reason, after))
        again = Note.read(text)
        assert str(again) == text
        assert "\n" not in text
        assert len(text.encode()) <= LONGEST + 30
        assert Note.read(str(Note(reason, 7, address="10.0.0.1"))).address == "10.0.0.1"

    def test_a_drain_keeps_when_the_node_joined(self) -> None:
        assert Note.read("springtide: idle (joined 7)") == Note("springtide: idle", 7)
        assert Note.read("springtide: joined 7") == Note("", 7)
        assert Note.read("springtide: joined 7 at fe80::1") == Note("", 7, address="fe80::1")
        assert Note.read(OFF) == Note(off=True)
        assert Note.read(f"{OFF} (at 10.0.0.1)") == Note(off=True, address="10.0.0.1")
        assert Note.read("n/a") == Note()


def test_the_version_is_the_servers() -> None:
    assert parse_version(recorded("qmgr_list-server-version")) == "6.1.3.h5"
    with pytest.raises(UnreadableError, match="no version"):
        parse_version("")


def test_queues_that_lead_elsewhere_are_known() -> None:
    usual = parse_all_queues(recorded("qstat-Qf"))
    assert usual == {"batch": TorqueQueue(), "cloud": TorqueQueue()}
    text = (
        "Queue: entrance\n    queue_type = Route\n    route_destinations = cloud,ba\n\ttch,x@far\n"
    )
    assert parse_all_queues(text) == {"entrance": TorqueQueue(leads_to=("cloud", "batch"))}
    with pytest.raises(UnreadableError, match="no queues"):
        parse_all_queues("")


class Once(list[QueueJob]):
    """Jobs that are gone through but once."""

    times = 0

    def __iter__(self) -> Iterator[QueueJob]:
        self.times += 1
        assert self.times == 1, "for each node all jobs"
        return super().__iter__()


def test_what_keeps_nodes_is_found_without_all_jobs_for_each() -> None:
    text = "".join(
        f"<Node><name>n{n}</name><state>free</state><properties>springtide</properties></Node>"
        for n in range(3)
    )
    known = parse_nodes(f"<Data>{text}</Data>")
    jobs = Once([QueueJob("1.s", JobState.RUNNING, nodes=("n1",)), QueueJob("2.s", JobState.HELD)])
    with pytest.raises(Unavailable, match=r"must not delete n1; .* n1: it has jobs: 1\.s$"):
        refuse_busy(known, jobs, known)
