"""Who is down though he has registered since, from what a slurmctld with ReturnToService=0 said."""

from springtide.batch.slurm_return import Returned, decide_returned, may_have_returned
from springtide.batch.slurm_text import parse_nodes

NODE = (
    "NodeName=c-1 Arch=x86_64 CoresPerSocket=1 CPUAlloc=0 CPUTot=1 NodeAddr=10.77.32.2 "
    "NodeHostName=c-1 Version=22.05.8 RealMemory=256 Sockets=1 Boards=1 State={state} "
    "ThreadsPerCore=1 Weight=1 Partitions=main,rebuild BootTime=2026-11-16T00:54:20 "
    "SlurmdStartTime={started} LastBusyTime=2026-11-16T00:54:20 CapWatts=n/a "
    "ExtSensorsTemp=n/s Reason={reason} [{who}@2026-11-16T00:54:20]\n"
)
BEFORE, THEN, AFTER = (f"2026-11-16T00:54:{second}" for second in (19, 20, 21))


def shown(state: str, reason: str, started: str = AFTER, who: str = "root") -> str:
    return NODE.format(state=state, reason=reason, started=started, who=who)


def test_a_node_that_slurm_took_for_rebooted_has_returned() -> None:
    text = shown("DOWN+CLOUD", "Node unexpectedly rebooted", BEFORE, "slurm")
    assert decide_returned(text) == [Returned("c-1", None)]


def test_a_node_that_we_put_down_has_returned_when_its_slurmd_started_since() -> None:
    reason = "springtide: starts afresh"
    for started in (THEN, AFTER):
        assert decide_returned(shown("DOWN+CLOUD", reason, started)) == [Returned("c-1", None)]
    assert decide_returned(shown("DOWN+CLOUD", reason, BEFORE)) == []
    assert decide_returned(shown("DOWN+CLOUD", "Not responding")) == [Returned("c-1", None)]


def test_a_node_that_was_powered_down_and_started_without_slurm_has_returned() -> None:
    """As by `tide stop` and `tide start`: it is taken for rebooted, but the reason stays."""
    assert decide_returned(shown("DOWN+CLOUD", "POWER_DOWN_ASAP")) == [Returned("c-1", None)]
    assert decide_returned(shown("DOWN+CLOUD", "POWER_DOWN_ASAP", BEFORE)) == []


def test_a_node_that_somebody_put_down_stays_down() -> None:
    assert decide_returned(shown("DOWN+CLOUD", "smells of smoke")) == []


def test_a_drained_node_returns_and_stays_drained() -> None:
    text = shown("DOWN+CLOUD+DRAIN", "disk broken (by alice)")
    assert decide_returned(text) == [Returned("c-1", "disk broken (by alice)")]


def test_only_nodes_that_are_down_and_heard_from_are_worth_a_look() -> None:
    states = ("DOWN+CLOUD", "DOWN+CLOUD+NOT_RESPONDING", "IDLE+CLOUD", "DOWN+CLOUD+POWERED_DOWN")
    seen = [parse_nodes(shown(state, "Not responding"))["c-1"] for state in states]
    assert [bool(may_have_returned([node])) for node in seen] == [True, False, False, False]


def test_what_is_no_node_is_passed_over() -> None:
    assert decide_returned("Node c-9 not found\n") == []
