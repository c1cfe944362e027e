"""Grid Engine's own words, as real ones of 8.1.9 printed them, and what is made of them.

In that of qstat -j the environment of jobs is left out.
"""

import re
import subprocess
from dataclasses import replace
from math import inf
from pathlib import Path

import pytest

from springtide.batch import gridengine_conf as conf
from springtide.batch import gridengine_text as text
from springtide.batch.gridengine_commands import failed
from springtide.batch.gridengine_conf import ClusterQueue, Complex
from springtide.batch.gridengine_jobs import jobs_of, needs_limits, node_of
from springtide.batch.gridengine_match import hosts_of, matches, matches_host
from springtide.batch.gridengine_members import context_of, group_of, render_host
from springtide.batch.gridengine_text import (
    Host,
    Limits,
    Listed,
)
from springtide.batch.gridengine_where import Site, closed_queues, hosts_of_others, queues_of
from springtide.batch.names import named
from springtide.batch.unread import UnreadableError
from springtide.demand import demand
from springtide.packing import Pool
from springtide.ports import Chunk, Health, JobState, Member, QueueJob, Unavailable

RECORDED = Path(__file__).parents[1] / "recorded"
BATCH = frozenset({"BATCH", "INTERACTIVE"})
CLOUD = ClusterQueue("cloud.q", ("@cloud",), frozenset({"mpi", "smp", "by2"}), "1", BATCH)
HOUSE = ClusterQueue("all.q", ("@house", "old1"), frozenset({"mpi"}), "1,[old1=4]", BATCH)
SITE = Site(
    queues={"cloud.q": CLOUD, "all.q": HOUSE},
    complexes={
        "exclusive": Complex("exclusive", "BOOL", "EXCL"),
        "big": Complex("big", "BOOL", "=="),
        "h_vmem": Complex("h_vmem", "MEMORY", "<=", consumed=True),
        "mem_free": Complex("mem_free", "MEMORY", "<="),
    },
    rules={"mpi": "$fill_up", "smp": "$pe_slots", "by2": "2"},
    names=frozenset({"n1", "n2"}),
)
JOB = Listed("7", "qw", running=False, owner="ann", slots=1, queues=("cloud.q",))


def recorded(name: str) -> str:
    return (RECORDED / f"sge-8.1.9__{name}.out").read_text()


def read(jobs: str, hosts: str, site: Site = SITE) -> dict[str, QueueJob]:
    found = text.parse_hosts(recorded(hosts)).values()
    return {one.id: one for one in jobs_of(text.parse_jobs(recorded(jobs)), found, site)}


def one(job: Listed, site: Site = SITE) -> QueueJob:
    (found,) = jobs_of([job], [], site)
    return found


# --- hosts


def test_a_host_that_was_never_heard_from_joins() -> None:
    hosts = text.parse_hosts(recorded("qhost-xml_many"))
    shown = {name: node_of(host) for name, host in hosts.items()}
    assert {name: node.health for name, node in shown.items()} == {
        "n1": Health.JOINING,
        "n2": Health.UP,
        "placeholder": Health.JOINING,
    }
    assert shown["placeholder"].words == {"unreachable"}
    assert not shown["placeholder"].drained


@pytest.mark.parametrize(
    ("states", "shut"),
    [
        ({"cloud.q": "E"}, True),
        ({"cloud.q": "a"}, True),
        ({"cloud.q": "aE", "b.q": "D"}, True),
        ({"cloud.q": "E", "b.q": ""}, False),
        ({"cloud.q": "E", "b.q": "d"}, True),
        ({"cloud.q": "dE", "b.q": "da"}, True),
        ({"cloud.q": "d", "b.q": "d"}, False),
        ({"cloud.q": ""}, False),
        ({"cloud.q": "u"}, False),
        ({}, False),
    ],
)
def test_a_host_is_shut_if_none_of_its_queues_takes_jobs(
    states: dict[str, str], shut: bool
) -> None:
    host = text.Host("n1", known=True, heard=True, queues=states, used=0, jobs=())
    assert node_of(host).shut is shut


@pytest.mark.parametrize(
    ("state", "closed"),
    [
        ("u", {}),
        ("du", {}),
        ("Du", {"cloud.q": "disabled by calendar"}),
        ("Cu", {"cloud.q": "suspended by calendar"}),
        ("su", {"cloud.q": "suspended"}),
        ("Dsu", {"cloud.q": "disabled by calendar and suspended"}),
    ],
)
def test_what_closes_a_whole_queue_shows_on_the_placeholder(
    state: str, closed: dict[str, str]
) -> None:
    assert closed_queues({"cloud.q": state}) == closed


@pytest.mark.parametrize(("state", "shut"), [("D", False), ("s", False), ("DE", True), ("a", True)])
def test_a_host_is_not_shut_because_its_queue_is_closed_as_a_whole(state: str, shut: bool) -> None:
    host = text.Host("n1", known=True, heard=True, queues={"cloud.q": state}, used=0, jobs=())
    assert node_of(host, {"cloud.q"}).shut is shut
    assert node_of(host).shut


def test_no_node_starts_for_jobs_of_a_queue_that_is_closed() -> None:
    site = replace(SITE, closed={"cloud.q": "disabled by calendar"})
    found = one(JOB, site)
    assert (found.state, found.queues) == (JobState.HELD, ("cloud.q",))
    assert found.reason == "queue cloud.q is disabled by calendar"
    either = one(replace(JOB, queues=("cloud.q", "all.q")), site)
    assert (either.state, either.queues) == (JobState.WAITING, ("all.q",)), "the other is open"
    assert one(replace(JOB, state="hqw"), site).reason == "hqw"


def test_a_host_has_its_jobs_once_and_tasks_by_number() -> None:
    """rule 6"""
    (busy,) = (h for h in text.parse_hosts(recorded("qhost-xml_many")).values() if h.jobs)
    assert (busy.jobs, busy.used) == (("2",), 4)
    assert text.parse_hosts(recorded("qhost-xml_running"))["gn1"].jobs == ("7", "9.1")
    both = text.parse_hosts(recorded("qhost-xml_parallel"))
    assert {name: host.jobs for name, host in both.items()} == {"gn1": ("8",), "gn2": ("8",)}


@pytest.mark.parametrize(
    ("state", "health", "drained"),
    [
        ("", Health.UP, False),
        ("d", Health.UP, True),
        ("du", Health.DOWN, True),
        ("u", Health.DOWN, False),
        ("aE", Health.UP, False),
        ("D", Health.UP, False),
    ],
)
def test_health_and_drain_are_apart(state: str, health: Health, drained: bool) -> None:
    """rule 4"""
    shown = recorded("qhost-xml_running").replace("'state_string'></", f"'state_string'>{state}</")
    node = node_of(text.parse_hosts(shown)["gn1"])
    assert (node.health, node.drained) == (health, drained)


def test_a_host_is_drained_if_all_its_queues_are() -> None:
    host = text.parse_hosts(recorded("qhost-xml_running"))["gn1"]
    assert not node_of(replace(host, queues={"a.q": "d", "b.q": ""})).drained
    assert node_of(replace(host, queues={"a.q": "d", "b.q": "dS"})).drained
    assert not node_of(replace(host, queues={})).drained


# --- jobs


def test_jobs_that_wait_are_told_from_those_that_are_held() -> None:
    jobs = read("qstat-r-xml_many", "qhost-xml_many")
    held = {id for id, job in jobs.items() if job.state is JobState.HELD}
    assert held == {"8", "9"}
    assert {id for id, job in jobs.items() if job.state is JobState.RUNNING} == {"2"}
    assert jobs["2"].nodes == ("n2",)


def test_a_parallel_job_has_all_its_hosts() -> None:
    """rule 6"""
    hosts = text.parse_hosts(recorded("qhost-xml_parallel")).values()
    running = replace(JOB, number="8", state="r", running=True, instance="cloud.q@gn1")
    (job,) = jobs_of([running], hosts, SITE)
    assert job.nodes == ("gn1", "gn2")


def test_arrays_are_counted_and_for_later_is_held() -> None:
    limits = text.parse_limits(recorded("qstat-j-xml_array-and-later"))
    assert limits == {"7": Limits(at_once=5), "23": Limits(not_before=1893456000.0)}
    site = replace(SITE, limits=limits, now=1_800_000_000.0)
    jobs = read("qstat-r-xml_many", "qhost-xml_many", site)
    assert (jobs["6"].tasks, jobs["7"].tasks) == (100, 5)
    assert jobs["23"].state is JobState.HELD
    later = read("qstat-r-xml_many", "qhost-xml_many", replace(site, now=1_900_000_000.0))
    assert later["23"].state is JobState.WAITING


def test_more_is_asked_only_of_arrays_and_of_jobs_that_the_scheduler_passes_over() -> None:
    listed = text.parse_jobs(recorded("qstat-r-xml_many"))
    assert {job.number for job in listed if needs_limits(job)} == {"6", "7", "23"}


def test_an_array_that_runs_as_many_tasks_as_it_may_is_held() -> None:
    running = [
        replace(JOB, state="r", running=True, tasks=str(task), instance="cloud.q@n1")
        for task in (1, 2)
    ]
    waiting = replace(JOB, tasks="3-9:1")
    site = replace(SITE, limits={"7": Limits(at_once=2)})
    *_, job = jobs_of([*running, waiting], [], site)
    assert (job.id, job.state, job.tasks) == ("7", JobState.HELD, 7)
    assert "2 tasks may run at once" in job.reason


def test_parts_of_an_array_share_what_may_run_at_once() -> None:
    parts = [replace(JOB, tasks="1-2:1"), replace(JOB, tasks="5-9:1"), replace(JOB, tasks="12")]
    found = jobs_of(parts, [], replace(SITE, limits={"7": Limits(at_once=3)}))
    assert [job.tasks for job in found if job.state is JobState.WAITING] == [2, 1]


def test_tasks_of_an_array_that_are_held_have_a_name_of_their_own() -> None:
    parts = [replace(JOB, tasks="5-14:1,18-20:1"), replace(JOB, state="hqw", tasks="15-17:1")]
    found = [(job.id, job.state, job.tasks) for job in jobs_of(parts, [], SITE)]
    assert found == [("7", JobState.WAITING, 13), ("7.15-17:1", JobState.HELD, 3)]


@pytest.mark.parametrize(
    ("state", "wanted"),
    [
        ("qw", JobState.WAITING),
        ("Rq", JobState.WAITING),
        ("hqw", JobState.HELD),
        ("hRqw", JobState.HELD),
        ("Eqw", JobState.HELD),
    ],
)
def test_only_what_would_start_waits(state: str, wanted: JobState) -> None:
    assert one(replace(JOB, state=state)).state is wanted


@pytest.mark.parametrize("state", ["r", "t", "Rr", "dr", "dt", "s", "S", "T", "hr"])
def test_what_has_a_host_runs(state: str) -> None:
    job = replace(JOB, state=state, running=True, instance="cloud.q@n1")
    assert (one(job).state, one(job).nodes) == (JobState.RUNNING, ("n1",))


@pytest.mark.parametrize(
    ("tasks", "count"), [("4", 1), ("1-9:1", 9), ("1-100:3", 34), ("1,3-4:1", 3)]
)
def test_tasks_are_counted(tasks: str, count: int) -> None:
    assert text.count_tasks(tasks) == count


# --- what jobs ask for


@pytest.mark.parametrize(
    ("environment", "slots", "chunk"),
    [
        ("", 1, Chunk(memory=1024)),
        ("smp", 4, Chunk(cores=4, memory=4096)),
        ("mpi", 4, Chunk(count=4, memory=1024, spread=False)),
        ("by2", 4, Chunk(count=2, cores=2, memory=2048)),
        ("m*", 4, Chunk(count=4, memory=1024, spread=False)),
    ],
)
def test_slots_are_placed_as_the_parallel_environment_says(
    environment: str, slots: int, chunk: Chunk
) -> None:
    job = replace(JOB, environment=environment, slots=slots, resources={"h_vmem": "1G"})
    assert one(job).chunks == (chunk,)


def test_a_range_of_slots_needs_its_least_whatever_the_site_has_shown_for_it() -> None:
    """With urgency_slots, a parallel environment has the greatest or the mean shown."""
    shown = recorded("qstat-r-xml_many")
    for asked, least in (("2-9999999", 2), ("4,8-16:4", 4), ("5000", 5000)):
        changed = shown.replace('"mpi">5000<', f'"mpi">{asked}<')
        changed = changed.replace("<slots>5000<", f"<slots>{'5000' if asked == '5000' else 10**7}<")
        found = {job.number: job.slots for job in text.parse_jobs(changed)}
        assert (found["16"], found["2"]) == (least, 4), asked
    runs = shown.replace('"mpi">4</requested', '"mpi">2-8</requested')
    assert {job.number: job.slots for job in text.parse_jobs(runs)}["2"] == 4, "it has these"


@pytest.mark.parametrize("limit", ["h_vmem", "s_vmem", "h_rss", "s_rss"])
def test_a_limit_of_memory_that_nothing_is_consumed_of_asks_for_none(limit: str) -> None:
    complexes = {**SITE.complexes, limit: Complex(limit, "MEMORY", "<=")}
    asked = replace(JOB, resources={limit: "100G"})
    assert one(asked, replace(SITE, complexes=complexes)).chunks == (Chunk(),)
    assert one(replace(JOB, resources={"mem_free": "2G"})).chunks == (Chunk(memory=2048),)


@pytest.mark.parametrize(
    ("size", "memory"),
    [
        ("1G", 1024),
        ("512M", 512),
        ("1.5G", 1536),
        ("1g", 954),
        ("2097152", 2),
        ("0x40000000", 1024),
        ("010M", 8),
        (".5G", 512),
        ("1e9", 954),
        ("1", 1),
        ("INFINITY", 0),
    ],
)
def test_memory_is_in_mebibytes(size: str, memory: int) -> None:
    assert one(replace(JOB, resources={"mem_free": size})).chunks[0].memory == memory


def test_the_largest_wish_for_memory_counts() -> None:
    assert read("qstat-r-xml_many", "qhost-xml_many")["13"].chunks[0].memory == 2048


@pytest.mark.parametrize("environment", ["smp", "by2"])
def test_memory_that_slots_do_not_consume_is_not_multiplied(environment: str) -> None:
    """Grid Engine runs it on a host that has as much, once."""
    job = replace(JOB, environment=environment, slots=4, resources={"mem_free": "15G"})
    assert one(job).chunks[0].memory == 15 * 1024


def test_resources_of_the_cell_or_a_queue_are_no_features_of_nodes() -> None:
    job = replace(JOB, resources={"matlab": "1", "big": "TRUE"})
    assert one(job, replace(SITE, shared=frozenset({"matlab"}))).chunks[0].features == {"big"}


def test_a_size_that_cannot_be_read_holds_that_job_alone() -> None:
    jobs = [replace(JOB, number="8", resources={"h_vmem": "lots"}), JOB]
    odd, plain = jobs_of(jobs, [], SITE)
    why = "springtide cannot read what it asks for: 'lots' is no size of memory"
    assert (odd.state, odd.reason) == (JobState.HELD, why)
    assert plain.state is JobState.WAITING


ENDLESS = ["1e999", "9" * 400, "1e308T", "9" * 5000, "0x" + "f" * 5000, "0" * 5000, "1.", "٣G", ""]
DEEP = ["(" * 2000, "!" * 2001, "!(" * 2000, "n1|" * 9000 + "n1", "[" * 2000, "[z-a]", "*" * 3000]
STRANGE = [
    *(replace(JOB, resources={name: size}) for name in ("mem_free", "h_vmem") for size in ENDLESS),
    *(replace(JOB, resources={"gpu": size}) for size in ENDLESS),
    *(replace(JOB, resources={"h_rt": size}) for size in (*ENDLESS, "9:" + "9" * 5000 + ":9")),
    *(replace(JOB, resources={name: one}) for name in ("hostname", "qname") for one in DEEP),
    *(replace(JOB, queues=(one,)) for one in DEEP),
    *(replace(JOB, queues=(f"cloud.q@{one}",)) for one in DEEP),
    *(replace(JOB, environment=one, slots=4) for one in DEEP),
]


@pytest.mark.parametrize("strange", STRANGE)
def test_whatever_an_owner_asks_for_the_jobs_of_others_are_read(strange: Listed) -> None:
    short = replace(CLOUD, longest_s=3600.0)
    complexes = {**SITE.complexes, "gpu": Complex("gpu", "INT", "<=", consumed=True)}
    site = replace(SITE, queues={**SITE.queues, "short.q": short}, complexes=complexes)
    odd, plain = jobs_of([replace(strange, number="8"), JOB], [], site)
    assert odd.state in (JobState.WAITING, JobState.HELD)
    assert len(odd.reason) < 300
    assert plain == one(JOB, site)
    pool = Pool("g", ("n1",), 4, 4096, queues=frozenset({"cloud.q"}), free=("n1",), left=1)
    assert demand([odd, plain], [], [pool]).start == ("n1",)


@pytest.mark.parametrize("strange", STRANGE)
def test_whatever_an_owner_asked_for_a_job_that_runs_has_its_node(strange: Listed) -> None:
    shown = replace(strange, state="r", running=True, instance="cloud.q@n1")
    started = [replace(strange, number="9"), replace(shown, number="8", instance="")]
    jobs = jobs_of([shown, *started], [on("n2", "8", "9")], SITE)
    assert [job.state for job in jobs] == [JobState.RUNNING] * 3
    assert [job.nodes for job in jobs] == [("n1",), ("n2",), ("n2",)]


@pytest.mark.parametrize(
    ("resources", "why"),
    [
        ({"mem_free": "1e999"}, "'1e999' is no size of memory"),
        ({"hostname": "(" * 2000}, "a pattern with 20 parentheses within each other"),
        ({"qname": "n|" * 9000}, "a pattern of 18000 characters"),
    ],
    ids=["endless", "deep", "long"],
)
def test_a_request_that_cannot_be_read_holds_its_job_and_says_why(
    resources: dict[str, str], why: str
) -> None:
    odd = one(replace(JOB, resources=resources))
    assert odd.state is JobState.HELD
    assert odd.reason == f"springtide cannot read what it asks for: {why}"


def test_a_time_longer_than_all_others_is_more_than_a_queue_allows() -> None:
    site = replace(SITE, queues={"cloud.q": replace(CLOUD, longest_s=3600.0)})
    assert one(replace(JOB, resources={"h_rt": "9" * 5000}), site).queues == ()
    assert one(replace(JOB, resources={"h_rt": "0" * 5000 + "60"}), site).queues == ("cloud.q",)


def test_limits_are_no_features_and_other_resources_are() -> None:
    resources = {"h_rt": "600", "big": "TRUE", "gpu": "2", "disk": "ssd", "exclusive": "true"}
    (chunk,) = one(replace(JOB, resources=resources)).chunks
    assert (chunk.features, chunk.exclusive) == (frozenset({"big", "gpu=2", "disk=ssd"}), True)


GPUS = replace(
    SITE,
    features=frozenset({"gpu=2", "gpu=4", "slow", "scratch=100G", "gen=1"}),
    complexes={
        **SITE.complexes,
        "gpu": Complex("gpu", "INT", "<=", consumed=True),
        "scratch": Complex("scratch", "MEMORY", "<="),
        "gen": Complex("gen", "INT", "=="),
    },
)


@pytest.mark.parametrize(
    ("asked", "slots", "served"),
    [
        ({"gpu": "1"}, 1, {"two", "four"}),
        ({"gpu": "2"}, 1, {"two", "four"}),
        ({"gpu": "3"}, 1, {"four"}),
        ({"gpu": "2"}, 2, {"four"}),  # each slot consumes as much
        ({"gpu": "5"}, 1, set()),
        ({"gpu": "0", "big": "false"}, 1, {"two", "four"}),
        ({"gpu": "1", "scratch": "50G"}, 1, {"four"}),
        ({"gen": "1"}, 1, {"four"}),
        ({"gen": "2"}, 1, set()),
    ],
)
def test_what_hosts_are_told_to_have_serves_the_jobs_that_ask_for_it(
    asked: dict[str, str], slots: int, served: set[str]
) -> None:
    more = ("gpu=4", "scratch=100G", "gen=1")
    members = [
        Member("two", "", 4, 4096, ("gpu=2",), ("cloud.q",)),
        Member("four", "", 4, 4096, more, ("cloud.q",)),
    ]
    assert "complex_values gpu=2,slots=4\n" in render_host(members[0], GPUS.complexes)
    job = one(replace(JOB, environment="smp", slots=slots, resources=asked), GPUS)
    for member in members:
        names, sets = (member.name,), (frozenset(member.features), frozenset(member.queues))
        pool = Pool(member.name, names, member.cores, member.memory, *sets, names, 1)
        found = demand([job], [], [pool])
        assert found.start == (names if member.name in served else ())
        assert bool(found.impossible) == (member.name not in served)


def test_an_amount_that_no_host_has_is_told_as_it_counts() -> None:
    asks = replace(JOB, environment="smp", slots=3, resources={"gpu": "2"})
    assert one(asks, GPUS).chunks[0].features == {"gpu=6"}
    plain = replace(GPUS, features=frozenset({"gpu"}))
    assert one(asks, plain).chunks[0].features == {"gpu"}


# --- jobs that start during a reading


def on(name: str, *jobs: str) -> Host:
    return Host(name, known=True, heard=True, queues={"cloud.q": ""}, used=len(jobs), jobs=jobs)


def test_a_job_that_a_host_has_runs_though_it_was_listed_as_waiting() -> None:
    job = replace(JOB, environment="mpi", slots=4)
    (found,) = jobs_of([job], [on("n1", "7"), on("n2", "7")], SITE)
    assert (found.state, found.nodes) == (JobState.RUNNING, ("n1", "n2"))
    assert found.queues == ("cloud.q",)


def test_tasks_that_hosts_have_run_and_the_others_wait() -> None:
    listed = [
        replace(JOB, state="r", running=True, tasks="1", instance="cloud.q@n1"),
        replace(JOB, tasks="2-10:2,12"),
        replace(JOB, number="8"),
    ]
    found = jobs_of(listed, [on("n1", "7.1", "7.4"), on("n2", "7.2", "7.10", "7.12")], SITE)
    assert [(one.id, one.state.value, one.tasks, one.nodes) for one in found] == [
        ("7.1", "running", 1, ("n1",)),
        ("7.2", "running", 1, ("n2",)),
        ("7.4", "running", 1, ("n1",)),
        ("7.10", "running", 1, ("n2",)),
        ("7.12", "running", 1, ("n2",)),
        ("7", "waiting", 2, ()),
        ("8", "waiting", 1, ()),
    ]


def test_tasks_that_have_started_meanwhile_are_of_those_that_may_run_at_once() -> None:
    site = replace(SITE, limits={"7": Limits(at_once=2)})
    found = jobs_of([replace(JOB, tasks="1-9:1")], [on("n1", "7.1", "7.2")], site)
    assert [(one.state.value, one.tasks) for one in found] == [
        ("running", 1),
        ("running", 1),
        ("held", 7),
    ]


@pytest.mark.parametrize(
    ("asked", "queues"),
    [
        (("cloud.q",), ("cloud.q",)),
        (("all.q", "cloud.q"), ("all.q", "cloud.q")),
        (("cl*",), ("cloud.q",)),
        (("cloud.q@n1",), ("cloud.q",)),
        (("*@@cloud",), ("cloud.q",)),
        (("*@@house",), ("all.q",)),
        (("cloud.q@@some",), ("cloud.q",)),
        (("*",), ("cloud.q", "all.q")),
        (("!all.q",), ("cloud.q",)),
        ((), ("cloud.q", "all.q")),
        (("gone.q",), ()),
    ],
)
def test_queues_are_those_that_it_may_run_in(
    asked: tuple[str, ...], queues: tuple[str, ...]
) -> None:
    assert queues_of(replace(JOB, queues=asked), SITE) == queues


PREMISES = replace(
    SITE, ours=("cloud.q",), others={"all.q": frozenset({"old1"}), "cloud.q": frozenset({"old2"})}
)
"""With hosts of others that are there."""


@pytest.mark.accepts("N3")
@pytest.mark.parametrize(
    ("job", "queues"),
    [
        (replace(JOB, queues=()), ("all.q",)),
        (replace(JOB, queues=(), environment="mpi"), ("all.q",)),
        (replace(JOB, queues=(), environment="smp"), ("cloud.q",)),
        (replace(JOB, queues=(), resources={"hostname": "n1"}), ("cloud.q", "all.q")),
        (replace(JOB, queues=(), resources={"hostname": "old1"}), ("all.q",)),
        (replace(JOB, queues=(), resources={"qname": "cloud.q"}), ("cloud.q",)),
        (replace(JOB, queues=("*",)), ("cloud.q", "all.q")),
        (replace(JOB, queues=("cl*",)), ("cloud.q",)),
    ],
)
def test_a_job_that_names_no_queue_waits_for_hosts_of_others_if_they_could_take_it(
    job: Listed, queues: tuple[str, ...]
) -> None:
    assert queues_of(job, PREMISES) == queues


@pytest.mark.accepts("N3")
def test_a_recorded_job_that_names_no_queue_is_for_ours_only_if_nobody_else_serves() -> None:
    """Here the host of all.q is called `placeholder`; job 12 names nothing, job 19 asks for n2."""
    hosts = text.parse_hosts(recorded("qhost-xml_many")).values()
    others = hosts_of_others(hosts, SITE.names)
    assert others == dict.fromkeys(("all.q", "cloud.q"), frozenset({"placeholder"}))
    site = replace(SITE, ours=("cloud.q",), others=others)
    jobs = read("qstat-r-xml_many", "qhost-xml_many", site)
    assert jobs["12"].queues == ("all.q",)
    assert "cloud.q" in jobs["19"].queues
    alone = read("qstat-r-xml_many", "qhost-xml_many", replace(site, others={}))
    assert "cloud.q" in alone["12"].queues


def test_a_queue_without_its_parallel_environment_is_none_of_a_jobs() -> None:
    job = replace(JOB, queues=(), environment="smp")
    assert queues_of(job, SITE) == ("cloud.q",)


@pytest.mark.accepts("B18")
@pytest.mark.parametrize(
    ("wanted", "queues"),
    [
        ("600", ("cloud.q",)),
        ("1:00:00", ("cloud.q",)),
        ("3601", ()),
        ("1:0:1", ()),
        ("odd", ("cloud.q",)),
    ],
)
def test_a_queue_whose_jobs_end_sooner_is_none_of_a_jobs(
    wanted: str, queues: tuple[str, ...]
) -> None:
    """No node would help it."""
    site = replace(SITE, queues={"cloud.q": replace(CLOUD, longest_s=3600)})
    assert queues_of(replace(JOB, resources={"h_rt": wanted}), site) == queues


@pytest.mark.parametrize(
    ("text", "seconds"),
    [("1:00:00", 3600), ("90", 90), ("INFINITY", inf), ("1:0:0,[n1=2:0:0],[@x=0:5:0]", 7200)],
)
def test_the_longest_run_of_a_queue_is_read(text: str, seconds: float) -> None:
    shown = re.sub(r"(?m)^h_rt .*", f"h_rt {text}", recorded("qconf-Aq_cloud"))
    assert conf.parse_queues(shown)["cloud.q"].longest_s == seconds


def test_a_queue_can_be_asked_for_as_a_resource() -> None:
    assert queues_of(replace(JOB, queues=(), resources={"qname": "all.q"}), SITE) == ("all.q",)


@pytest.mark.parametrize(
    ("job", "names"),
    [
        (JOB, ()),
        (replace(JOB, queues=("cloud.q@n2",)), ("n2",)),
        (replace(JOB, queues=("cloud.q@n2", "all.q")), ()),
        (replace(JOB, queues=("*@@cloud",)), ()),
        (replace(JOB, resources={"hostname": "n*"}), ()),
        (replace(JOB, resources={"hostname": "*2"}), ("n2",)),
        (replace(JOB, resources={"hostname": "n2|n3"}), ("n2",)),
        (replace(JOB, resources={"hostname": "old1"}), ("old1",)),
    ],
)
def test_a_host_that_a_job_insists_on_is_named(job: Listed, names: tuple[str, ...]) -> None:
    assert one(job).names == names
    assert one(job).avoid == frozenset()


@pytest.mark.parametrize("pattern", ["!n*", "!(n1|n2)"])
def test_a_job_that_excludes_all_hosts_of_its_queue_can_have_none(pattern: str) -> None:
    """So its owner is told, rather than that it is for others to decide."""
    job = replace(JOB, resources={"hostname": pattern})
    assert (one(job).names, one(job).avoid) == ((), SITE.names)
    elsewhere = replace(JOB, queues=(f"cloud.q@{pattern}",))
    assert (one(elsewhere).names, one(elsewhere).avoid) == ((), SITE.names)
    mixed = replace(SITE, others={"cloud.q": frozenset({"old1"})})
    assert one(job, mixed).names == (pattern,), "a host of others may take it"


@pytest.mark.parametrize(
    ("job", "avoid"),
    [
        (replace(JOB, queues=("cloud.q@n[12]",)), {"n3", "n4"}),
        (replace(JOB, resources={"hostname": "!n1"}), {"n1"}),
        (replace(JOB, resources={"hostname": "n*"}), set()),
        (replace(JOB, queues=("cloud.q@n2",), environment="mpi", slots=4), {"n1", "n3", "n4"}),
    ],
)
def test_hosts_that_a_pattern_leaves_out_are_avoided(job: Listed, avoid: set[str]) -> None:
    """As long as it asks for the same, whichever hosts are there: so it is known to be stuck."""
    site = replace(SITE, names=frozenset({"n1", "n2", "n3", "n4"}))
    found = [one(job, site), one(replace(job, number="8"), replace(site, now=1.0))]
    assert [each.names for each in found] == [(), ()]
    assert found[0].avoid == avoid
    assert found[0].avoid is found[1].avoid, "one for all"


@pytest.mark.parametrize(
    ("value", "pattern", "wanted"),
    [
        ("cloud.q", "cloud.q", True),
        ("cloud.q", "all.q", False),
        ("cloud.q", "c*&!all.q", True),
        ("all.q", "!(c*|a*)", False),
        ("all.q", "(c*|a*)", True),
        ("all", "all.q", False),
        ("n1", "(((", False),
        ("n1", "!!n1", True),
        ("n1", "!!!n1", False),
        ("n1", "!(!(n1&!n2))", True),
    ],
)
def test_patterns_are_compared_as_grid_engine_does(value: str, pattern: str, wanted: bool) -> None:
    assert matches(value, pattern) is wanted


def test_of_hosts_alone_the_domain_may_be_left_out() -> None:
    assert matches_host("n1", "n1.example.org")
    assert matches_host("n1", "n*")
    assert not matches_host("n1", "n2.example.org")


@pytest.mark.accepts("N3")
def test_a_queue_whose_name_begins_like_ours_is_another() -> None:
    site = replace(SITE, queues={"all": replace(CLOUD, name="all"), "all.q": HOUSE})
    assert queues_of(replace(JOB, queues=("all.q",)), site) == ("all.q",)


@pytest.mark.parametrize(
    ("shown", "called"),
    [
        (("n1.example.org", "old1.example.org"), ("n1", "old1.example.org")),
        (("n1", "n1.example.org"), ("n1", "n1.example.org")),
        (("n1.example.org", "n1.example.net"), ("n1.example.org", "n1.example.net")),
        (("n2.full.org",), ("n2.full.org",)),
    ],
)
def test_a_host_that_is_shown_with_its_domain_is_ours_unless_another_could_be(
    shown: tuple[str, ...], called: tuple[str, ...]
) -> None:
    names = ("n1", "n2", "n2.full.org")
    assert tuple(named(shown, names).values()) == called


def test_a_job_that_runs_on_a_host_with_a_domain_has_our_node() -> None:
    job = replace(JOB, state="r", running=True, instance="cloud.q@n1.example.org")
    assert one(job).nodes == ("n1",)


# --- qconf


def test_a_queue_is_read() -> None:
    (queue,) = conf.parse_queues(recorded("qconf-Aq_cloud")).values()
    assert (queue.name, queue.group) == ("cloud.q", "@cloud")
    assert queue.environments >= {"make", "mpi"}
    assert queue.kinds == BATCH


def test_slots_of_single_hosts_are_known() -> None:
    assert HOUSE.own_slots == {"old1"}


@pytest.mark.parametrize(
    ("name", "said"), [("no.q", "has no queue no.q"), ("bare.q", "no hostgroup")]
)
def test_queues_that_nothing_can_be_done_with_are_refused(name: str, said: str) -> None:
    """N13: and it is told what to do."""
    bare = replace(CLOUD, name="bare.q", hosts=("old1",))
    with pytest.raises(Unavailable, match=said) as caught:
        group_of({"cloud.q": CLOUD, "bare.q": bare}, name)
    assert "qconf" in str(caught.value)


def test_only_features_that_the_site_has_defined_are_told() -> None:
    member = Member("n1", "", 4, 0, ("big", "unknown"), ("cloud.q",))
    shown = render_host(member, SITE.complexes)
    assert "complex_values big=TRUE,slots=4\n" in shown


def test_a_name_that_is_not_known_yet_is_no_reason_to_change_the_file_at_once() -> None:
    line = "unable to resolve host tg3"
    done = subprocess.CompletedProcess(["qconf", "-aattr"], 1, "", line)
    assert str(failed(done)).startswith(f"`qconf -aattr` failed: {line}; qmaster remembers for a")
    assert "so this may pass; if it does not, batch.hosts must be set" in str(failed(done))


def test_words_to_owners_are_one_value() -> None:
    """A comma would begin another."""
    assert context_of("springtide: too big,\nx=1 ü") == "springtide=too big; x=1 ?"


# --- what makes no sense


@pytest.mark.parametrize(
    "answer",
    ["", "no such thing\n", "<Data>", "{", "\0", "<a/>", "<qhost/>", "<job_info/>"],
)
def test_an_answer_that_makes_no_sense_is_no_empty_list(answer: str) -> None:
    """rule 1"""
    for parse in (text.parse_hosts, text.parse_jobs, text.parse_limits, conf.parse_complexes):
        with pytest.raises(UnreadableError):
            parse(answer)


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("<slots>4</slots>", "<slots>many</slots>"),
        ("<state>qw</state>", "<state></state>"),
        ("<tasks>1-3:1</tasks>", "<tasks>all</tasks>"),
        ("<JB_owner>tester</JB_owner>", ""),
        ('state="pending"', 'state="odd"'),
    ],
)
def test_a_job_that_makes_no_sense_spoils_the_reading(before: str, after: str) -> None:
    whole = recorded("qstat-xml-r_pending")
    assert before in whole
    with pytest.raises(UnreadableError):
        jobs_of(text.parse_jobs(whole.replace(before, after)), [], SITE)


@pytest.mark.parametrize("odd", ["\x1b", "\x00", "\x02", "\ufffe"])
def test_bytes_that_no_xml_may_have_spoil_nothing(odd: str) -> None:
    """Grid Engine prints the environment of jobs as it is."""
    shown = recorded("qstat-j-xml_array-and-later")
    spoilt = shown.replace("</JB_job_name>", f"{odd}</JB_job_name>")
    assert spoilt != shown
    assert text.parse_limits(spoilt) == text.parse_limits(shown)


def test_a_priority_that_is_no_number_is_no_failure_of_ours() -> None:
    whole = recorded("qstat-xml-r_pending")
    odd = re.sub("<JAT_prio>[^<]*<", "<JAT_prio>nan?<", whole)
    assert not any(job.idle_priority for job in text.parse_jobs(odd))


def test_resources_are_read() -> None:
    shown = "#name shortcut type relop requestable consumable default urgency\n"
    shown += "h_vmem h_vmem MEMORY <= YES YES 0 0\nmem_free mf MEMORY <= YES NO 0 0\n"
    found = conf.parse_complexes(shown)
    assert {name: one.consumed for name, one in found.items()} == {
        "h_vmem": True,
        "mem_free": False,
    }
    assert conf.parse_global("hostname global\ncomplex_values matlab=5,lic_x=1\n") == {
        "matlab",
        "lic_x",
    }
    assert conf.parse_global("hostname global\ncomplex_values NONE\n") == frozenset()
    assert conf.parse_values("NONE,[old1=gpu=2,ssd=TRUE],[@all=tape=1]") == {"gpu", "ssd", "tape"}
    with pytest.raises(UnreadableError):
        conf.parse_global("")


def test_no_jobs_is_an_empty_list() -> None:
    head, _, _ = recorded("qstat-xml-r_pending").partition("<job_list")
    assert text.parse_jobs(f"{head}</job_info></job_info>") == []


@pytest.mark.parametrize("pattern", ["n1", "n1.example.org", "n[12]", "!n1", "n3|n1", "old1", "*"])
def test_hosts_of_a_pattern_are_those_that_it_matches(pattern: str) -> None:
    hosts = frozenset({"n1", "n2", "n3", "n1.example.org"})
    assert hosts_of(pattern, hosts) == {host for host in hosts if matches_host(host, pattern)}
