"""What a real OpenPBS 23.06.06 printed, read."""

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from springtide.batch.openpbs_jobs import parse_jobs
from springtide.batch.openpbs_members import attributes
from springtide.batch.openpbs_text import (
    PbsQueue,
    comment_of,
    error_text,
    parse_document,
    parse_nodes,
    parse_queues,
    parse_server,
    parse_size,
    refusals,
    value_of,
)
from springtide.batch.unread import UnreadableError
from springtide.demand import demand
from springtide.packing import Pool, Room
from springtide.ports import Chunk, Health, JobState, Member, QueueJob

RECORDED = Path(__file__).parents[1] / "recorded"
NASTY = ["9" * 5000, "1e999", "-1", "inf", "nan", "", "²", "٣", "'" * 500]
"""What owners may write where a number belongs."""
CLOUD = PbsQueue("cloud", marks={"Qlist": "cloud"})


def recorded(name: str) -> str:
    return (RECORDED / f"openpbs-23.06.06__{name}").read_text()


def jobs(name: str) -> dict[str, QueueJob]:
    queues = parse_queues(recorded("qstat-Q-json.out"))
    return {job.id.partition(".")[0]: job for job in parse_jobs(recorded(name), queues)}


def one(*queues: PbsQueue, id: str = "1.s", **changed: Any) -> QueueJob | None:
    """A job with some attributes of its own."""
    asked = {"select": "1:ncpus=1", "place": "free", **changed.pop("Resource_List", {})}
    job = {"job_state": "Q", "queue": "cloud", "Resource_List": asked, **changed}
    text = json.dumps({"pbs_server": "s", "Jobs": {id: job}})
    known = {queue.name: queue for queue in queues or (CLOUD,)}
    return next(iter(parse_jobs(text, known)), None)


def made(*queues: PbsQueue, **changed: Any) -> QueueJob:
    found = one(*queues, **changed)
    assert found is not None
    return found


# --- nodes -----------------------------------------------------------------------------------


@pytest.mark.accepts("N1")
def test_a_node_that_is_heard_from_is_up_and_one_that_never_was_joins() -> None:
    found = parse_nodes(recorded("pbsnodes-a-json_one-free-one-unknown.out"))
    nodes = {name: node.shown for name, node in found.items()}
    assert {name: node.health for name, node in nodes.items()} == {
        "pn1": Health.UP,
        "pn3": Health.JOINING,
    }
    assert nodes["pn3"].words == {"state-unknown", "down"}
    assert not any(node.drained or node.jobs for node in nodes.values())


def test_a_drained_node_with_a_job_is_up_drained_and_busy_at_once() -> None:
    node = parse_nodes(recorded("pbsnodes-json_offline-busy.out"))["pn2"].shown
    assert (node.health, node.drained, node.reason) == (Health.UP, True, "hybrid drain")
    assert (node.jobs, node.cores_used) == (("2.pbssrv",), 2)


def node(**changed: Any) -> Any:
    shown = {"state": "free", "pbs_version": "23.06.06", **changed}
    return parse_nodes(json.dumps({"pbs_server": "s", "nodes": {"n": shown}}))["n"].shown


def test_a_node_that_is_silent_is_down_and_its_comment_is_no_drain() -> None:
    seen = node(state="down", comment="node down: communication closed")
    assert (seen.health, seen.drained, seen.reason) == (Health.DOWN, False, "")


@pytest.mark.parametrize(
    ("comment", "reason"),
    [("", ""), ("springtide", ""), ("springtide: dead", "springtide: dead"), ("fan", "fan")],
)
def test_a_drain_without_words_of_its_own_has_no_reason(comment: str, reason: str) -> None:
    """So it is somebody's: a node of ours has our comment before it is drained."""
    assert node(state="offline", comment=comment).reason == reason


@pytest.mark.parametrize(
    ("shown", "ours"),
    [
        ({}, False),
        ({"comment": "springtides are high"}, False),
        ({"comment": "springtide"}, True),
        ({"comment": "springtide: idle, leaves"}, True),
        ({"comment": "ok", "resources_available": {"vntype": "gpu,springtide"}}, True),
        ({"resources_available": {"vntype": "cray_compute"}}, False),
    ],
)
def test_nodes_of_ours_are_marked(shown: dict[str, Any], ours: bool) -> None:
    text = json.dumps({"pbs_server": "s", "nodes": {"n": {"state": "free", **shown}}})
    assert parse_nodes(text)["n"].ours is ours


def test_jobs_on_a_node_may_show_their_cores() -> None:
    """rule 4"""
    assert node(jobs="1.s/0, 1.s/1, 2[3].s/2").jobs == ("1.s", "2[3].s")
    assert node(jobs=["1.s", "1.s/1"]).jobs == ("1.s",)


@pytest.mark.parametrize(
    ("state", "health", "drained"),
    [
        ("free", Health.UP, False),
        ("job-exclusive", Health.UP, False),
        ("resv-exclusive,job-busy", Health.UP, False),
        ("offline", Health.UP, True),
        ("offline_by_mom", Health.UP, True),
        ("maintenance,job-busy", Health.UP, True),
        ("down,offline", Health.DOWN, True),
        ("stale", Health.DOWN, False),
        ("state-unknown,down,unresolvable", Health.DOWN, False),
        ("something-new", Health.UP, False),
    ],
)
def test_states_are_sets_of_words(state: str, health: Health, drained: bool) -> None:
    seen = node(state=state)
    assert (seen.health, seen.drained) == (health, drained)


@pytest.mark.parametrize(
    ("state", "shut"),
    [
        ("free", False),
        ("job-busy", False),
        ("busy", True),
        ("busy,job-busy", True),
        ("resv-exclusive", True),
    ],
)
def test_a_node_above_its_load_or_reserved_takes_no_jobs(state: str, shut: bool) -> None:
    assert node(state=state).shut is shut


# --- jobs ------------------------------------------------------------------------------------


@pytest.mark.accepts("N2", "N12")
def test_from_zero_all_that_can_run_is_demand() -> None:
    """rule 3"""
    found = jobs("qstat-ft-json_zero-nodes.out")
    states = {id: job.state.value for id, job in found.items()}
    waiting = dict.fromkeys(("0", "1[]", "2", "4", "5"), "waiting")
    assert states == {**waiting, "3": "held", "6": "held"}
    assert found["1[]"].tasks == 3
    assert found["0"].chunks == (Chunk(2, cores=2, memory=1024, spread=False),)
    assert found["2"].chunks == (Chunk(cores=2),)
    assert found["4"].chunks == (Chunk(cores=64, memory=500 * 1024),)
    assert found["5"].chunks == (Chunk(exclusive=True),)
    assert (found["0"].user, found["0"].queues) == ("tester", ("cloud",))
    assert found["0"].since == 1794766372.0


@pytest.mark.accepts("N2")
def test_running_tasks_are_jobs_and_those_that_ended_are_none() -> None:
    """rule 6"""
    found = jobs("qstat-ft-json_running.out")
    assert {id: job.nodes for id, job in found.items() if job.state is JobState.RUNNING} == {
        "1[2]": ("pn1",),
        "2": ("pn2",),
    }
    assert "1[]" not in found, "none of its tasks waits any more"


def test_can_never_run_is_demand() -> None:
    """rule 3: it speaks of the nodes that there are."""
    job = jobs("qstat-f-json_root-1.out")["0"]
    assert job.reason.startswith("Can Never Run")
    assert job.state is JobState.WAITING
    assert job.chunks[0].features == frozenset(), "the mark of its queue is no feature"


def test_a_job_of_two_nodes_has_both() -> None:
    assert jobs("qstat-f-json_2node-running.out")["0"].nodes == ("pn1", "pn2")


def test_an_odd_environment_hides_nothing() -> None:
    found = jobs("qstat-f-json_nasty.out")
    assert list(found) == ["7", "8", "9", "10"]
    chunks = [(chunk.count, chunk.cores, chunk.memory) for chunk in found["10"].chunks]
    assert chunks == [(1, 1, 100), (2, 2, 1024)]


def test_history_is_over() -> None:
    """rule 6: `-x` shows what has ended too."""
    assert list(jobs("qstat-x-f-json_history.out")) == ["7"]


def test_an_empty_queue_is_empty() -> None:
    assert jobs("qstat-f-json_empty.out") == {}


@pytest.mark.accepts("N2")
@pytest.mark.parametrize(
    ("letter", "state"),
    [
        *(("Q", "waiting"), ("T", "waiting"), ("H", "held"), ("W", "held"), ("R", "running")),
        *(("E", "running"), ("S", "running"), ("U", "running")),
    ],
)
def test_every_state_is_known(letter: str, state: str) -> None:
    assert made(job_state=letter).state.value == state


@pytest.mark.parametrize("letter", ["F", "X", "M"])
def test_what_is_over_is_no_job(letter: str) -> None:
    assert one(job_state=letter) is None


@pytest.mark.accepts("N2")
@pytest.mark.parametrize(
    "comment",
    [
        "Queue cloud job limit has been reached.",
        "Server job limit has been reached.",
        "User has reached server running job limit.",
        "User has reached queue cloud running job limit.",
        "Project has reached queue cloud's running limit.",
        "Queue cloud per-user limit reached on resource ncpus",
        "Server job limit reached for user ann",
        "would exceed user ann's limit on resource ncpus in queue cloud",
        "would exceed overall limit on resource mem in complex",
        "Insufficient amount of server resource: license (R: 1 A: 0 T: 4)",
        "Queue not started.",
        "Job would cross dedicated time boundary",
        "Job will run in nonprimetime only",
    ],
)
def test_limits_hold_jobs(comment: str) -> None:
    assert made(comment=f"Not Running: {comment}").state is JobState.HELD


@pytest.mark.parametrize(
    "comment",
    [
        "Not Running: Insufficient amount of resource: ncpus (R: 4 A: 3 T: 4)",
        "Not Running: No available resources on nodes",
        "Not Running: Not enough free nodes available",
        "Not Running: Node has reached job run limit",
        "Not Running: Job would conflict with reservation or top job",
        "Can Never Run: can't fit in the largest placement set, and can't span psets",
        "springtide: it fits on no node of ours",
    ],
)
def test_what_more_nodes_may_help_is_demand(comment: str) -> None:
    assert made(comment=comment).state is JobState.WAITING


def test_jobs_of_a_queue_that_is_not_started_are_held() -> None:
    job = made(PbsQueue("cloud", started=False))
    assert (job.state, job.reason) == (JobState.HELD, "queue cloud is not started")


def routing(destinations: str) -> PbsQueue:
    leads = {"queue_type": "Route", "started": "True", "route_destinations": destinations}
    queues = {"pbs_server": "s", "Queue": {"entrance": leads}}
    return parse_queues(json.dumps(queues))["entrance"]


def test_jobs_of_a_routing_queue_may_run_where_it_leads() -> None:
    assert made(routing("a, b@s"), queue="entrance").queues == ("entrance", "a", "b")


def test_a_queue_of_another_server_is_not_the_one_of_ours_with_its_name() -> None:
    assert made(routing("a,cloud@other"), queue="entrance").queues == ("entrance", "a")


def array(**changed: Any) -> QueueJob:
    counts = {"array_state_count": "Queued:8 Running:2 Exiting:1 Expired:4"}
    return made(id="1[].s", array="True", job_state="B", **{**counts, **changed})


@pytest.mark.accepts("N2")
def test_tasks_that_may_not_run_at_once_are_not_demand() -> None:
    assert (array().state, array().tasks) == (JobState.WAITING, 8)
    assert array(max_run_subjobs=5).tasks == 2
    assert array(max_run_subjobs=50).tasks == 8
    assert array(max_run_subjobs=3).state is JobState.HELD


def test_tasks_are_counted_from_their_indices_too() -> None:
    left = array(array_state_count="", array_indices_remaining="0-9,12,20-30:2")
    assert left.tasks == 10 + 1 + 6


@pytest.mark.accepts("N2")
@pytest.mark.parametrize(
    ("select", "place", "chunks"),
    [
        ("1", "free", [Chunk()]),
        ("ncpus=4", "free", [Chunk(cores=4)]),
        ("2:ncpus=4:mem=8gb", "scatter", [Chunk(2, 4, 8192)]),
        ("2:ncpus=4:mem=8gb", "scatter:excl", [Chunk(2, 4, 8192, exclusive=True)]),
        ("2:ncpus=4:mem=8gb", "free:exclhost", [Chunk(2, 4, 8192, exclusive=True, spread=False)]),
        ("2:ncpus=4:mem=8gb", "pack", [Chunk(1, 8, 16384)]),
        ("2:ncpus=4+1:ncpus=1:mem=1gb", "pack", [Chunk(1, 9, 1024)]),
        ("1:ncpus=1:gpu=True:old=False", "free", [Chunk(features=frozenset({"gpu"}))]),
        ("1:ncpus=2:ngpus=1", "free", [Chunk(cores=2, features=frozenset({"ngpus=1"}))]),
        ("1:ncpus=2:ngpus=0", "free", [Chunk(cores=2)]),
        ("1:color=blue:Qlist=cloud", "free", [Chunk(features=frozenset({"color=blue"}))]),
        (
            """1:color="it's"+1:ncpus=2""",
            "scatter",
            [Chunk(features=frozenset({"color=it's"})), Chunk(cores=2)],
        ),
        ('1:color="a+b:c"', "free", [Chunk(features=frozenset({"color=a+b:c"}))]),
        ("1:Qlist=other", "free", [Chunk(features=frozenset({"Qlist=other"}))]),
        ("1:ncpus=2:mpiprocs=2:ompthreads=1:arch=linux", "free", [Chunk(cores=2)]),
        ("1:ncpus=1+2:ncpus=2", "vscatter", [Chunk(1, 1), Chunk(2, 2)]),
    ],
)
def test_chunks(select: str, place: str, chunks: list[Chunk]) -> None:
    asked = {"select": select, "place": place}
    assert list(made(Resource_List=asked).chunks) == chunks


@pytest.mark.parametrize(
    ("asked", "served"),
    [
        *[(f"gpu={word}", {"plain"}) for word in ("True", "t", "y", "yes", "1", "YES")],
        ("gpu=no", {"plain", "two", "four"}),
        ("gpu=2", set()),
        ("ngpus=2", {"two"}),
        ("ngpus=1", {"two", "four"}),
        ("ngpus=3", {"four"}),
        ("ngpus=5", set()),
        ("color=blue", {"two"}),
        ("color=red", set()),
    ],
)
def test_what_nodes_are_told_to_have_serves_the_jobs_that_ask_for_it(
    asked: str, served: set[str]
) -> None:
    each = {"plain": ("gpu",), "two": ("ngpus=2", "color=blue"), "four": ("ngpus=4",)}
    members = [Member(name, "", 4, 4096, has, ("cloud",)) for name, has in each.items()]
    assert "resources_available.gpu=True" in attributes(members[0], {"cloud": PbsQueue("cloud")})
    known = frozenset(feature for has in each.values() for feature in has)
    shown = {"job_state": "Q", "queue": "cloud", "Resource_List": {"select": f"1:{asked}"}}
    document = json.dumps({"pbs_server": "s", "Jobs": {"1.s": shown}})
    (job,) = parse_jobs(document, {"cloud": PbsQueue("cloud")}, known)
    for member in members:
        names, sets = (member.name,), (frozenset(member.features), frozenset(member.queues))
        pool = Pool(member.name, names, member.cores, member.memory, *sets, names, 1)
        found = demand([job], [], [pool])
        assert found.start == (names if member.name in served else ())
        assert bool(found.impossible) == (member.name not in served)


def test_jobs_may_insist_on_nodes() -> None:
    asked = {"select": "1:ncpus=1:host=n1+1:vnode=n2", "host": "n3"}
    assert made(Resource_List=asked).names == ("n3", "n1", "n2")


def test_defaults_of_the_queue_count() -> None:
    """Managers are shown them."""
    job = made(schedselect="1:ncpus=3:mem=2gb:Qlist=cloud", Resource_List={"select": "1"})
    assert job.chunks == (Chunk(cores=3, memory=2048),)


def test_parts_of_machines_are_nodes_each() -> None:
    where = "(a[0]:ncpus=1+a[1]:ncpus=2)+(b:ncpus=1)"
    assert made(job_state="R", exec_vnode=where).nodes == ("a[0]", "a[1]", "b")
    assert made(job_state="R", exec_host="a/0*2+b/1").nodes == ("a", "b")


# --- what cannot be read ---------------------------------------------------------------------


@pytest.mark.parametrize("text", ["", "{", "[]", "{}", "null", "qstat: ?", '{"pbs_server": 1}{'])
def test_what_is_no_document_is_no_empty_queue(text: str) -> None:
    """rule 1"""
    for parse in (parse_document, parse_nodes, parse_queues, parse_server):
        with pytest.raises(UnreadableError):
            parse(text)


@pytest.mark.parametrize(
    "changed",
    [
        {"job_state": "?"},
        {"job_state": ""},
        {"array": "True", "max_run_subjobs": "x"},
    ],
)
def test_a_job_that_makes_no_sense_spoils_the_reading(changed: dict[str, Any]) -> None:
    with pytest.raises(UnreadableError):
        one(**changed)


@pytest.mark.parametrize(
    "select",
    [
        *(
            "1:ncpus",
            "1:mem=much",
            "1:ncpus=x",
            "+",
            "1:ncpus=1:color=it's:b",
            "1:mem=" + "9" * 5000,
        ),
        "1:ncpus=" + "9" * 5000,
    ],
)
def test_one_strange_job_is_held_and_hides_no_others(select: str) -> None:
    asked = {"select": select}
    job = made(Resource_List=asked)
    if job.state is JobState.HELD:
        assert job.reason.startswith("springtide cannot read what it asks for: ")
        assert len(job.reason) < 300
    else:
        assert select == "1:ncpus=1:color=it's:b"
        assert job.chunks == (Chunk(features=frozenset({"color=it's:b"})),)
    runs = made(Resource_List=asked, job_state="R", exec_vnode="(n1:ncpus=1)")
    assert (runs.state, runs.nodes) == (JobState.RUNNING, ("n1",))


@pytest.mark.parametrize("value", NASTY, ids=range(len(NASTY)))
@pytest.mark.parametrize("name", ["ncpus", "mem", "ngpus", "host", "place", "select"])
def test_whatever_an_owner_asks_for_the_jobs_of_others_are_read(name: str, value: str) -> None:
    wanted = ({name: value}, {"select": f"1:{name}={value}"}, {"select": f"{value}:{name}={value}"})
    for asked in wanted:
        odd = {"job_state": "Q", "queue": "cloud", "Resource_List": asked}
        runs = odd | {"job_state": "R", "exec_vnode": "(n1:ncpus=1)"}
        jobs = {"1.s": odd, "2.s": runs, "3.s": odd | {"Resource_List": {"select": "1:ncpus=1"}}}
        text = json.dumps({"pbs_server": "s", "Jobs": jobs})
        strange, running, plain = parse_jobs(text, {"cloud": CLOUD}, frozenset({"ngpus=4"}))
        assert strange.state in (JobState.WAITING, JobState.HELD)
        assert len(strange.reason) < 300
        assert (running.state, running.nodes) == (JobState.RUNNING, ("n1",))
        assert (plain.state, plain.chunks) == (JobState.WAITING, (Chunk(),))


@pytest.mark.parametrize("place", ["free", "scatter", "pack"])
@pytest.mark.parametrize("select", [0, "0", "0:ncpus=4", "0:ncpus=4:host=n1+0:mem=1gb"])
def test_a_job_of_no_node_is_held_and_keeps_none(select: int | str, place: str) -> None:
    asked = {"select": select, "place": place}
    found = made(Resource_List=asked)
    assert (found.state, found.reason) == (JobState.HELD, "it asks for no node")
    pool = Pool("g", ("n1",), 4, 4096, queues=frozenset({"cloud"}))
    assert not demand([found], [Room("n1", "g", 4, 4096)], [pool]).short
    runs = made(Resource_List=asked, job_state="R", exec_vnode="(n1:ncpus=1)")
    assert (runs.state, runs.nodes) == (JobState.RUNNING, ("n1",))


def test_a_chunk_of_no_node_is_left_out() -> None:
    found = made(Resource_List={"select": "0:ncpus=9:host=n1+2:ncpus=4", "place": "scatter"})
    assert (found.state, found.chunks, found.names) == (JobState.WAITING, (Chunk(2, 4),), ())


@given(st.text(st.sampled_from("1aq:+=\"' 9"), max_size=20), st.sampled_from(["free", "pack"]))
def test_whatever_users_ask_for_is_read_or_held(select: str, place: str) -> None:
    job = made(Resource_List={"select": select, "place": place})
    assert job.state in (JobState.WAITING, JobState.HELD)


def test_a_job_that_is_smuggled_in_does_not_hide_another() -> None:
    """Versions before 20 print the environment as it is."""
    forged = '"x"}}, "2.s": {"job_state": "F", "Variable_List": {"a": "b"'
    found = parse_jobs(RAW.replace("VALUE", forged), {})
    assert [(job.id, job.state) for job in found] == [
        ("1.s", JobState.WAITING),
        ("2.s", JobState.WAITING),
    ]


def test_a_document_cut_short_is_unreadable() -> None:
    """rule 1"""
    text = recorded("qstat-ft-json_running.out")
    for length in range(1, len(text) - 2, 97):
        with pytest.raises(UnreadableError):
            parse_jobs(text[:length], {})


def test_a_node_without_a_state_spoils_the_reading() -> None:
    with pytest.raises(UnreadableError):
        node(state="")


RAW = """{
\t"pbs_server":\t"s",
\t"Jobs":\t{
\t\t"1.s":\t{
\t\t\t"job_state":\t"Q",
\t\t\t"Variable_List":\t{
\t\t\t\t"NASTY":\tVALUE
\t\t\t},
\t\t\t"Submit_arguments":\t"-v NASTY"
\t\t},
\t\t"2.s":\t{
\t\t\t"job_state":\t"Q"
\t\t}
\t}
}
"""


@pytest.mark.parametrize(
    "value", ["005", '"a"b"', '"\\,"', '"(){ echo "x"; }"', '"\x01"', "\ufffd"]
)
def test_old_versions_quote_badly_and_hide_no_job(value: str) -> None:
    found = parse_jobs(RAW.replace("VALUE", value), {})
    assert [job.id for job in found] == ["1.s", "2.s"]


@given(st.text(st.characters(codec="utf-8")))
def test_no_environment_hides_a_job(value: str) -> None:
    """It is read as a whole, or not at all."""
    try:
        found = parse_jobs(RAW.replace("VALUE", f'"{value}"'), {})
    except UnreadableError:
        return
    assert {"1.s", "2.s"} <= {job.id for job in found}


# --- the rest --------------------------------------------------------------------------------


def test_server_and_queues() -> None:
    server = parse_server(recorded("qstat-B-json.out"))
    assert (server.name, server.version, server.scheduling) == ("pbssrv", "23.06.06", True)
    queues = parse_queues(recorded("qstat-Q-json.out"))
    assert list(queues) == ["workq", "cloud"]
    assert queues["cloud"].marks == {"Qlist": "cloud"}


@pytest.mark.parametrize(
    ("text", "mib"),
    [("0kb", 0), ("1kb", 1), ("24682416kb", 24104), ("2gb", 2048), ("1tb", 1 << 20), ("1mw", 8)],
)
def test_amounts_of_memory(text: str, mib: int) -> None:
    assert parse_size(text) == mib


def test_errors_are_told_in_one_line() -> None:
    assert error_text(recorded("qmgr_create-dup.err")) == (
        "qmgr obj=pn1 svr=default: Node name already exists"
    )
    assert refusals(recorded("qmgr_delete-node-unknown.err")) == {"pn9": "Unknown node"}
    assert refusals(recorded("qmgr_delete-node-busy.err")) == {"pn2": "Cannot delete busy object"}


def test_comments_fit() -> None:
    assert comment_of("a\n b\tc") == "a b c"
    assert len(comment_of("ü" * 100).encode()) <= 79
    assert value_of("a, b=c \"d\" 'e' \\f") == "a; b:c d e f"


def test_a_node_has_what_the_jobs_of_its_queues_ask_for() -> None:
    member = Member("n", "", 4, 2048, ("gpu", "color=blue"), ("cloud",))
    assert attributes(member, {"cloud": CLOUD}) == (
        "comment=springtide,resources_available.vntype=springtide,"
        "resources_available.Qlist=cloud,resources_available.gpu=True,"
        "resources_available.color=blue,resources_available.ncpus=4,"
        "resources_available.mem=2048mb,queue=cloud"
    )


def test_amounts_that_a_queue_gives_to_its_jobs_mark_no_nodes() -> None:
    chunk = {"Qlist": "cloud", "ngpus": 1, "vmem": "1gb", "ncpus": 1}
    text = json.dumps({"pbs_server": "s", "Queue": {"cloud": {"default_chunk": chunk}}})
    assert parse_queues(text)["cloud"].marks == {"Qlist": "cloud"}


def test_a_number_without_end_in_one_job_spoils_no_other() -> None:
    text = '{"pbs_server": "head", "Jobs": {"1.head": {"Account_Name": %s}}}' % ("9" * 5000)
    assert parse_document(text)["Jobs"]["1.head"]["Account_Name"] == "9" * 5000


def test_a_document_that_is_deeper_than_any_is_unreadable() -> None:
    with pytest.raises(UnreadableError, match="too deep"):
        parse_document('{"pbs_server": ' + "[" * 100_000)
