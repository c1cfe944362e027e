"""The stories of nodes and jobs: one case for each situation, and how the past is told."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest

from springtide import decide
from springtide.batch.slurm_reason import UNHEALTHY
from springtide.failures import NO_SSH, UNCONFIGURED
from springtide.model import Event, Kind, Node, NodeState, Operation, OperationState
from springtide.ports import OURS, BatchNode, Instance, InstanceState, Job, Power
from springtide.spec import Timing
from springtide.story import (
    SHORT,
    Due,
    Held,
    JobCase,
    NodeCase,
    Story,
    holder,
    in_short,
    is_for,
    job_story,
    node_story,
    nodes_asked,
    not_yet_told,
    setback,
    troubles,
)
from springtide.story.off import RUNS
from springtide.story.telling import Told
from springtide.story.troubles import REPAIRS
from springtide.triage import RULES, Batch, Cloud, Drained, Repair

NOON = 1735732800.0  # 2025-01-01 12:00:00 UTC
FULL = "the provider is full: no large in zone-a"
HELD = Held("no capacity for large in zone-a", NOON + 2040)
ALONE = Held("node c3 does not start any more", NOON + 2040, "node:c3", alone=True)
LIFT_ALONE = "when the cause is gone, `tide holds --lift node:c3` has it tried at once"


def node(state: NodeState, **fields: object) -> Node:
    known = {"instance": "i-1"} if state not in (NodeState.OFF, NodeState.REQUESTED) else {}
    record = Node("c3", "big", state, generation=1, changed_at=NOON - 30)
    return replace(record, **known, **fields)  # type: ignore[arg-type]


def seen(power: Power, state: str = "IDLE", **fields: object) -> BatchNode:
    flags = {Power.DOWN: "POWERED_DOWN", Power.GOING_UP: "POWERING_UP"}.get(power, "CLOUD")
    shown = BatchNode("c3", state, frozenset({flags}), power, registered=power is Power.UP)
    return replace(shown, **fields)  # type: ignore[arg-type]


def instance(state: InstanceState) -> Instance:
    return Instance("i-1", "blue", "c3", 1, state)


def operation(kind: Kind = Kind.RESUME, **fields: object) -> Operation:
    jobs = "resume by the batch system, for jobs 17"
    made = Operation(5, kind, ("c3",), OperationState.RUNNING, asked_by="batch", reason=jobs)
    made = replace(made, created_at=NOON - 40, started_at=NOON - 40)
    return replace(made, **fields)  # type: ignore[arg-type]


def event(what: str, ago_s: float, node: str | None = "c3", detail: str = "") -> Event:
    return Event(NOON - ago_s, what, node, 5, detail)


def due(rule: str, at: float | None = None) -> Due:
    """A trouble of the table, by its name there."""
    return Due(next(one for one in RULES if one.name == rule), at)


DOWN, GOING_UP, UP = seen(Power.DOWN), seen(Power.GOING_UP), seen(Power.UP)
BY_ALICE: dict[str, Any] = {"drained": True, "owner": "alice", "reason": "bad fan"}
JOB = Job("17", "RUNNING", nodes="c3")
REQUESTED = [event("node requested", 40)]
OFF, READY, JOINING = node(NodeState.OFF), node(NodeState.READY), node(NodeState.JOINING)
REBUILD = operation(Kind.REBUILD, asked_by="alice", reason="", next_step=1)
UNDRAIN = "`tide undrain c3` gives it back to service; what others took out of it needs --force"
MAINTAINED = troubles.maintained("bob", "new switch", NOON - 3600, NOON)
RESTS = "nothing for now: maintenance since 11:00:00 UTC by bob (new switch); after that"
LOOK = "look again {}, with `tide why c3`: it may pass by itself"
KILL = "`tide kill c3` gives its jobs back and removes it at once"
LOG = "`tide log c3` shows what it said while it booted; "
DIED = "its instance died"
SEE = "`tide operations 5` shows how far it is; --cancel ends it"

HUNG: dict[str, Any] = {
    "seen": seen(Power.UP, registered=False),
    "instances": [instance(InstanceState.RUNNING)],
}
DEAD: dict[str, Any] = {"seen": UP, "instances": [instance(InstanceState.BROKEN)]}
SILENCE = (
    "nothing by itself until Slurm gives it up, when SlurmdTimeout is over (300 s, unless set "
    "otherwise): then Springtide removes it and gives its jobs back to the queue"
)
NO_CTLD = "slurmctld does not run"
FAILED_BOOT = [
    event("node requested", 40),
    event("instance created", 39),
    event("node failed", 30, detail="late"),
    event("instance deleting", 28),
    event("instance gone", 27),
]

DRAINED = [event("drain asked", 10, detail="alice: bad fan")]

NODES: dict[str, tuple[NodeCase, str, str, str]] = {
    "off": (
        NodeCase("c3", OFF, seen=DOWN),
        "c3 is off and has no instance; Slurm shows IDLE+POWERED_DOWN.",
        "Slurm starts it when a job needs it.",
        "`tide resume c3` starts it by hand",
    ),
    "off after a failure": (
        NodeCase("c3", node(NodeState.OFF, reason=FULL), seen=DOWN),
        f"c3 is off and has no instance; its last start failed: {FULL}; "
        "Slurm shows IDLE+POWERED_DOWN.",
        "Slurm starts it when a job needs it.",
        "`tide resume c3` starts it by hand",
    ),
    "off after a failed boot": (
        NodeCase("c3", node(NodeState.OFF, reason="late"), FAILED_BOOT, seen=DOWN),
        "c3 is off and has no instance; its last start failed: late; "
        "Slurm shows IDLE+POWERED_DOWN.",
        "Slurm starts it when a job needs it.",
        f"{LOG}`tide resume c3` starts it by hand",
    ),
    "off, though always up": (
        NodeCase("c3", OFF, seen=DOWN, always_up=True, timing=Timing(reconcile=30)),
        "c3 is off and has no instance, though the cluster file wants it always up; "
        "Slurm shows IDLE+POWERED_DOWN.",
        "Springtide starts it by itself within 30 s (timing.reconcile).",
        "`tide resume c3` starts it at once",
    ),
    "off, though always up, in maintenance": (
        NodeCase(
            "c3", OFF, seen=DOWN, always_up=True, rest=MAINTAINED, timing=Timing(reconcile=30)
        ),
        "c3 is off and has no instance, though the cluster file wants it always up; "
        "Slurm shows IDLE+POWERED_DOWN.",
        f"{RESTS} Springtide starts it by itself within 30 s (timing.reconcile).",
        "`tide resume c3` starts it at once",
    ),
    "put down by a person": (
        NodeCase("c3", READY, seen=seen(Power.UP, "DOWN", owner="root", reason="kernel panic")),
        "c3 is out of service: root put it down; Slurm shows DOWN+CLOUD.",
        "nothing: root put it down (kernel panic); `tide undrain c3` ends that.",
        UNDRAIN,
    ),
    "off and put down by a person": (
        NodeCase("c3", OFF, seen=seen(Power.DOWN, "DOWN", owner="root", reason="kernel panic")),
        "c3 is off, and root put it down; Slurm shows DOWN+POWERED_DOWN.",
        "nothing: root put it down (kernel panic); `tide undrain c3` ends that.",
        UNDRAIN,
    ),
    "set to FAIL": (
        NodeCase(
            "c3", READY, seen=seen(Power.UP, flags=frozenset({"CLOUD", "FAIL"}), reason="bad fan")
        ),
        "c3 is up but takes no new jobs: somebody set it to FAIL in Slurm (bad fan); "
        "Slurm shows IDLE+CLOUD+FAIL.",
        "nothing by itself: whoever set it so ends it.",
        "`scontrol update nodename=c3 state=resume` gives it back to service",
    ),
    "drained by a person, and nobody can ask Slurm": (
        NodeCase("c3", READY, DRAINED, silent="no answer", outage=troubles.outage("", None, 30)),
        "c3 is up, and as far as is known takes no new jobs: alice drained it; Slurm does not "
        "answer, so this is our record alone.",
        "jobs that run go on; none starts until slurmctld answers; then nothing: alice drained it "
        "(bad fan); `tide undrain c3` ends that.",
        "`tide check` finds out what does not run",
    ),
    "off, drained by a person, and nobody can ask Slurm": (
        NodeCase("c3", OFF, DRAINED, silent="no answer", outage=troubles.outage("", None, 30)),
        "c3 is off, and as far as is known takes no new jobs: alice drained it; Slurm does not "
        "answer, so this is our record alone.",
        "jobs that run go on; none starts until slurmctld answers; then nothing: alice drained it "
        "(bad fan); `tide undrain c3` ends that.",
        "`tide check` finds out what does not run",
    ),
    "undrained, and nobody can ask Slurm": (
        NodeCase(
            "c3",
            READY,
            [*DRAINED, event("undrain asked", 5, detail="by alice")],
            silent="no answer",
            outage=troubles.outage("", None, 30),
        ),
        "c3 is in service since 11:59:30 UTC (30 s ago); Slurm does not answer, so this is our "
        "record alone.",
        "jobs that run go on; none starts until slurmctld answers; then Slurm gives it up when it "
        "has been idle for 10 min (timing.idle).",
        "`tide check` finds out what does not run",
    ),
    "off and drained by a person": (
        NodeCase("c3", OFF, seen=seen(Power.DOWN, **BY_ALICE), held=HELD),
        "c3 is off, and alice drained it; Slurm shows IDLE+POWERED_DOWN.",
        "nothing: alice drained it (bad fan); `tide undrain c3` ends that.",
        UNDRAIN,
    ),
    "off and held": (
        NodeCase("c3", OFF, seen=seen(Power.DOWN, drained=True, owner=OURS), held=HELD),
        "c3 is off, and no node of group big is started now; Slurm shows IDLE+POWERED_DOWN.",
        "group big is held until 12:34:00 UTC: no capacity for large in zone-a; "
        "then one node is tried.",
        "when the cause is gone, `tide holds --lift big` has it tried at once",
    ),
    "off and held after a failed boot, by its place": (
        NodeCase(
            "c3",
            node(NodeState.OFF, reason="late"),
            FAILED_BOOT,
            seen=DOWN,
            held=replace(HELD, key="place:a/large/@aws"),
        ),
        "c3 is off, and no node of group big is started now; its last start failed: late; "
        "Slurm shows IDLE+POWERED_DOWN.",
        "group big is held until 12:34:00 UTC: no capacity for large in zone-a; "
        "then one node is tried.",
        f"{LOG}when the cause is gone, `tide holds --lift place:a/large/@aws` has it tried at once",
    ),
    "off while another of its group is tried": (
        NodeCase("c3", OFF, seen=DOWN, held=replace(HELD, until=NOON - 1)),
        "c3 is off, and no node of group big is started now; Slurm shows IDLE+POWERED_DOWN.",
        "group big was held: no capacity for large in zone-a; now one node is tried, and the "
        "others wait for it.",
        "when the cause is gone, `tide holds --lift big` has it tried at once",
    ),
    "off and held for good": (
        NodeCase("c3", OFF, seen=DOWN, held=replace(HELD, until=NOON + 315_360_000)),
        "c3 is off, and no node of group big is started now; Slurm shows IDLE+POWERED_DOWN.",
        "group big is held until somebody lifts that: no capacity for large in zone-a.",
        "when the cause is gone, `tide holds --lift big` has it tried at once",
    ),
    "off and held by itself": (
        NodeCase("c3", OFF, seen=DOWN, held=ALONE),
        "c3 is off, and it is not started now; Slurm shows IDLE+POWERED_DOWN.",
        "c3 is held until 12:34:00 UTC: node c3 does not start any more; then it is tried.",
        LIFT_ALONE,
    ),
    "off and held by itself for good": (
        NodeCase("c3", OFF, seen=DOWN, held=replace(ALONE, until=NOON + 315_360_000)),
        "c3 is off, and it is not started now; Slurm shows IDLE+POWERED_DOWN.",
        "c3 is held until somebody lifts that: node c3 does not start any more.",
        LIFT_ALONE,
    ),
    "off and to be tried": (
        NodeCase("c3", OFF, seen=DOWN, held=replace(ALONE, until=NOON - 1)),
        "c3 is off, and it is not started now; Slurm shows IDLE+POWERED_DOWN.",
        "c3 was held: node c3 does not start any more; it is tried again when a job needs it.",
        LIFT_ALONE,
    ),
    "off and wanted": (
        NodeCase("c3", OFF, seen=GOING_UP, jobs=[JOB]),
        "c3 is off, and Slurm has asked for it for job 17; Slurm shows IDLE+POWERING_UP.",
        "Springtide starts it within seconds.",
        "if nothing happens, `tide check` finds out whether Slurm's programs run",
    ),
    "off and wanted, and nothing starts it": (
        NodeCase("c3", OFF, seen=GOING_UP, due=due("forgotten request", NOON + 60)),
        "c3 is off, and Slurm has asked for it; Slurm shows IDLE+POWERING_UP.",
        "at 12:01:00 UTC (in 60 s) Springtide starts it, because the batch system waits for it, "
        "but nothing starts it.",
        "if nothing happens, `tide check` finds out whether Slurm's programs run",
    ),
    "off and wanted after a failed boot": (
        NodeCase(
            "c3",
            node(NodeState.OFF, reason="late"),
            FAILED_BOOT,
            seen=GOING_UP,
            due=due("forgotten request", NOON + 60),
        ),
        "c3 is off, and Slurm has asked for it; its last start failed: late; "
        "Slurm shows IDLE+POWERING_UP.",
        "at 12:01:00 UTC (in 60 s) Springtide starts it, because its last start failed, and is "
        "tried again.",
        LOG.removesuffix("; "),
    ),
    "off and wanted, and its boot has just failed": (
        NodeCase("c3", node(NodeState.OFF, reason="late"), FAILED_BOOT, seen=GOING_UP, jobs=[JOB]),
        "c3 is off, and Slurm has asked for it for job 17; its last start failed: late; "
        "Slurm shows IDLE+POWERING_UP.",
        "Springtide tries it again by itself.",
        LOG.removesuffix("; "),
    ),
    "off and wanted, and no instance could be made": (
        NodeCase("c3", node(NodeState.OFF, reason=FULL), seen=GOING_UP),
        f"c3 is off, and Slurm has asked for it; its last start failed: {FULL}; "
        "Slurm shows IDLE+POWERING_UP.",
        "Springtide tries it again by itself.",
        "`tide events c3` tells more",
    ),
    "off, and Slurm waits on": (
        NodeCase("c3", OFF, seen=seen(Power.GOING_DOWN), timing=Timing(stop=300)),
        "c3 is off; Slurm still counts it as powering down; Slurm shows IDLE+CLOUD.",
        "Slurm counts it as off at the latest 5 min (timing.stop) after it began with that; "
        "then a job can have it.",
        "",
    ),
    "an orphan that is due": (
        NodeCase(
            "c3",
            OFF,
            seen=DOWN,
            instances=[instance(InstanceState.RUNNING)],
            due=due("orphan", NOON + 40),
        ),
        "c3 is off, but its provider lists an instance (i-1, running); "
        "Slurm shows IDLE+POWERED_DOWN.",
        "at 12:00:40 UTC (in 40 s) Springtide removes it and gives its jobs back to the queue, "
        "because it is off, but has an instance.",
        "`tide resume c3` starts it by hand",
    ),
    "due, but the reconciler rests": (
        NodeCase(
            "c3",
            OFF,
            seen=DOWN,
            due=due("let go", NOON - 1),
            rest=MAINTAINED,
        ),
        "c3 is off and has no instance; Slurm shows IDLE+POWERED_DOWN.",
        f"{RESTS} at any moment Springtide deletes its instance, because the batch system has "
        "powered it down, but its instance is still there.",
        "`tide resume c3` starts it by hand",
    ),
    "the batch system is away": (
        NodeCase("c3", READY, silent="no answer", outage=troubles.outage("", None, 30)),
        "c3 is in service since 11:59:30 UTC (30 s ago); Slurm does not answer, so this is our "
        "record alone.",
        "jobs that run go on; none starts until slurmctld answers; then Slurm gives it up when it "
        "has been idle for 10 min (timing.idle).",
        "`tide check` finds out what does not run",
    ),
    "slurmctld does not run": (
        NodeCase("c3", OFF, silent="no answer", outage=troubles.outage(NO_CTLD, None, 30)),
        "c3 is off and has no instance; slurmctld does not run, so this is our record alone.",
        "Springtide starts it again by itself, within 30 s (timing.reconcile), after tries in vain "
        "more seldom; jobs that run go on; then Slurm starts it when a job needs it.",
        "if it does not come back, `tide deploy` tells why",
    ),
    "slurmctld does not run, its instance died, in maintenance": (
        NodeCase(
            "c3",
            READY,
            silent="no answer",
            instances=[instance(InstanceState.BROKEN)],
            rest=MAINTAINED,
            outage=troubles.outage(NO_CTLD, MAINTAINED, 30),
        ),
        "c3 should be in service, but its instance is broken; slurmctld does not run, so this is "
        "our record alone.",
        "nothing by itself: maintenance since 11:00:00 UTC by bob (new switch); jobs that run go "
        "on, none starts; then Springtide repairs it.",
        "`tide deploy` starts it; or `tide maintenance off`",
    ),
    "the cluster is stopped": (
        NodeCase("c3", OFF, closed="the cluster is stopped; run `tide start`"),
        "c3 is off; nothing is started: the cluster is stopped; run `tide start`.",
        "nothing until then.",
        "",
    ),
    "a machine that is not ours": (
        NodeCase("c3", None, seen=UP),
        "c3 is a machine that Springtide neither makes nor removes; Slurm shows IDLE+CLOUD.",
        "nothing by Springtide: its provider is 'none'.",
        "`scontrol show node c3` tells what Slurm knows of it",
    ),
    "asked of the provider": (
        NodeCase("c3", node(NodeState.REQUESTED), REQUESTED, operation=operation(), seen=GOING_UP),
        "c3 starts: its instance is asked of the provider since 11:59:30 UTC (30 s ago); "
        "Slurm shows IDLE+POWERING_UP.",
        "operation 5 (resume by Slurm for job 17) goes on until it is in service.",
        SEE,
    ),
    "booting": (
        NodeCase("c3", JOINING, REQUESTED, operation=operation(), seen=GOING_UP, usual_s=60),
        "c3 boots: Slurm waits for its slurmd to report since 11:59:30 UTC (30 s ago); "
        "Slurm shows IDLE+POWERING_UP.",
        "it is in service at 12:00:20 UTC (in 20 s): a start takes 60 s as a rule; "
        "if not by 12:09:30 UTC (timing.start), it is removed and its job waits again.",
        SEE,
    ),
    "booting, and something of it fails": (
        NodeCase(
            "c3",
            JOINING,
            REQUESTED,
            operation=operation(),
            seen=GOING_UP,
            usual_s=10,
            hindrance=Told("mounts has failed so far: no room", "it tries again", "mend that"),
        ),
        "c3 boots: Slurm waits for its slurmd to report since 11:59:30 UTC (30 s ago); "
        "mounts has failed so far: no room; Slurm shows IDLE+POWERING_UP.",
        "it tries again; if not by 12:09:30 UTC (timing.start), it is removed and its job waits "
        "again.",
        "mend that",
    ),
    "in service, though Ansible could not configure it": (
        NodeCase("c3", node(NodeState.READY, reason=f"{UNCONFIGURED}: no room"), seen=UP),
        "c3 is in service since 11:59:30 UTC (30 s ago), and idle, but not as it should be: "
        f"{UNCONFIGURED}: no room; Slurm shows IDLE+CLOUD.",
        "Slurm gives it up when it has been idle for 10 min (timing.idle).",
        "when the cause is gone, `tide update c3` configures it",
    ),
    "off, as Ansible could not configure it": (
        NodeCase(
            "c3", node(NodeState.OFF, reason=f"{UNCONFIGURED}: no room"), FAILED_BOOT, seen=DOWN
        ),
        f"c3 is off and has no instance; its last start failed: {UNCONFIGURED}: no room; "
        "Slurm shows IDLE+POWERED_DOWN.",
        "Slurm starts it when a job needs it.",
        f"{RUNS}; `tide resume c3` would start it without what Ansible was to give it",
    ),
    "always up, and Ansible could not configure it": (
        NodeCase(
            "c3",
            node(NodeState.OFF, reason=f"{UNCONFIGURED}: no room"),
            seen=DOWN,
            always_up=True,
            timing=Timing(reconcile=30),
        ),
        f"c3 is off and has no instance; its last start failed: {UNCONFIGURED}: no room, though "
        "the cluster file wants it always up; Slurm shows IDLE+POWERED_DOWN.",
        "Springtide starts it by itself within 30 s (timing.reconcile).",
        RUNS,
    ),
    "held, as Ansible could not configure it": (
        NodeCase(
            "c3",
            node(NodeState.OFF, reason=f"{UNCONFIGURED}: no room"),
            FAILED_BOOT,
            seen=DOWN,
            held=ALONE,
        ),
        f"c3 is off, and it is not started now; its last start failed: {UNCONFIGURED}: no room; "
        "Slurm shows IDLE+POWERED_DOWN.",
        "c3 is held until 12:34:00 UTC: node c3 does not start any more; then it is tried.",
        f"{RUNS}; {LIFT_ALONE}",
    ),
    "off, and its image was never built": (
        NodeCase("c3", OFF, seen=DOWN, unbuilt="compute"),
        "c3 is off and has no instance; Slurm shows IDLE+POWERED_DOWN.",
        "Slurm starts it when a job needs it.",
        "`tide image build compute` makes the image that is lacking; "
        "`tide resume c3` starts it by hand",
    ),
    "booting for longer than usual": (
        NodeCase("c3", JOINING, REQUESTED, operation=operation(), seen=GOING_UP, usual_s=10),
        "c3 boots: Slurm waits for its slurmd to report since 11:59:30 UTC (30 s ago); "
        "Slurm shows IDLE+POWERING_UP.",
        "it is in service soon, though late: a start takes 10 s as a rule; "
        "if not by 12:09:30 UTC (timing.start), it is removed and its job waits again.",
        SEE,
    ),
    "an operation waits for it": (
        NodeCase("c3", READY, seen=UP, operation=replace(REBUILD, started_at=None)),
        "c3 is in service since 11:59:30 UTC (30 s ago); operation 5 (rebuild by alice) waits for "
        "it; Slurm shows IDLE+CLOUD.",
        "operation 5 (rebuild by alice) begins with it when operations before it are done with it.",
        SEE,
    ),
    "its start failed and is cleaned up": (
        NodeCase(
            "c3", node(NodeState.FAILED), seen=GOING_UP, operation=operation(fallen={"c3": FULL})
        ),
        f"c3 could not start: {FULL}; Slurm shows IDLE+POWERING_UP.",
        "operation 5 (resume by Slurm for job 17) removes what it left; then it may be started "
        "again.",
        SEE,
    ),
    "updated without Ansible": (
        NodeCase(
            "c3",
            node(NodeState.JOINING),
            seen=GOING_UP,
            operation=operation(Kind.UPDATE, fallen={"c3": f"{NO_SSH} 60 s"}),
        ),
        "c3 boots: Slurm waits for its slurmd to report since 11:59:30 UTC (30 s ago): no login by "
        "ssh within 60 s; Slurm shows IDLE+POWERING_UP.",
        "operation 5 (update by Slurm for job 17) gives it back to service as it is, once it has "
        "registered.",
        SEE,
    ),
    "rebuilt": (
        NodeCase("c3", node(NodeState.DRAINING), seen=UP, operation=REBUILD, jobs=[JOB]),
        "c3 takes no new jobs since 11:59:30 UTC (30 s ago), by operation 5 (rebuild by alice); "
        "job 17 still on it; Slurm shows IDLE+CLOUD.",
        "delete instances, then create instances, refresh inventory, write hosts, wait "
        "registered, undrain.",
        SEE,
    ),
    "repaired": (
        NodeCase(
            "c3",
            node(NodeState.DELETING),
            seen=DOWN,
            operation=operation(
                Kind.REPAIR, asked_by="reconcile", reason="c3: its instance died", next_step=1
            ),
        ),
        "c3 is going: its instance is being deleted since 11:59:30 UTC (30 s ago), by operation 5 "
        "(repair by Springtide itself), because c3: its instance died; "
        "Slurm shows IDLE+POWERED_DOWN.",
        "it is off when its provider lists its instance no more.",
        SEE,
    ),
    "suspended": (
        NodeCase(
            "c3", node(NodeState.DELETING), seen=DOWN, operation=operation(Kind.SUSPEND, reason="")
        ),
        "c3 is going: its instance is being deleted since 11:59:30 UTC (30 s ago), by operation 5 "
        "(suspend by Slurm); Slurm shows IDLE+POWERED_DOWN.",
        "it is off when its provider lists its instance no more.",
        SEE,
    ),
    "the operation is at its end": (
        NodeCase("c3", READY, seen=UP, operation=operation(next_step=3)),
        "c3 is in service since 11:59:30 UTC (30 s ago), by operation 5 (resume by Slurm for job "
        "17); Slurm shows IDLE+CLOUD.",
        "operation 5 (resume by Slurm for job 17) cleans up and ends.",
        SEE,
    ),
    "left by its operation": (
        NodeCase("c3", node(NodeState.FAILED, reason=FULL), seen=DOWN),
        f"c3 could not start: {FULL}; no operation is at it; Slurm shows IDLE+POWERED_DOWN.",
        "Springtide removes what is left of it, and it may be started again.",
        "`tide events c3` tells more",
    ),
    "idle": (
        NodeCase("c3", READY, seen=UP, instances=[instance(InstanceState.RUNNING)]),
        "c3 is in service since 11:59:30 UTC (30 s ago), and idle; Slurm shows IDLE+CLOUD.",
        "Slurm gives it up when it has been idle for 10 min (timing.idle).",
        "",
    ),
    "always up": (
        NodeCase("c3", READY, seen=UP, always_up=True),
        "c3 is in service since 11:59:30 UTC (30 s ago), and idle; Slurm shows IDLE+CLOUD.",
        "nothing: it is one of the nodes that are always up.",
        "",
    ),
    "in service with another image, to be replaced at night": (
        NodeCase(
            "c3",
            READY,
            seen=UP,
            always_up=True,
            drift=troubles.drifted("image a instead of b", "c3", ["22:00-23:00"], False),
        ),
        "c3 is in service since 11:59:30 UTC (30 s ago), and idle, with image a instead of b; "
        "Slurm shows IDLE+CLOUD.",
        "Springtide replaces it in the hours for that: 22:00-23:00 (drift.hours, this machine's "
        "clock).",
        "`tide rebuild c3` mends it by hand",
    ),
    "in service with another image, and in maintenance": (
        NodeCase(
            "c3",
            READY,
            seen=UP,
            rest=MAINTAINED,
            drift=troubles.drifted("image a instead of b", "c3", [], False),
        ),
        "c3 is in service since 11:59:30 UTC (30 s ago), and idle, with image a instead of b; "
        "Slurm shows IDLE+CLOUD.",
        f"{RESTS} Springtide replaces it, few nodes at once (drift.at_once).",
        "`tide rebuild c3` mends it by hand",
    ),
    "in service with another image, and replacing was stopped": (
        NodeCase(
            "c3",
            READY,
            seen=UP,
            drift=troubles.drifted("image a instead of b", "c3", [], True),
        ),
        "c3 is in service since 11:59:30 UTC (30 s ago), and idle, with image a instead of b; "
        "Slurm shows IDLE+CLOUD.",
        "it stays so: nothing more is replaced, as a replacement failed with this file; another "
        "file lets it go on (drift.replace).",
        "`tide operations` shows what failed; then mend the file and `tide apply`",
    ),
    "in service with another configuration, and people update": (
        NodeCase(
            "c3",
            READY,
            seen=UP,
            drift=troubles.drifted("another configuration", "c3", None, False),
        ),
        "c3 is in service since 11:59:30 UTC (30 s ago), and idle, with another configuration; "
        "Slurm shows IDLE+CLOUD.",
        "Slurm gives it up when it has been idle for 10 min (timing.idle).",
        "`tide update c3` mends it by hand",
    ),
    "busy": (
        NodeCase("c3", READY, seen=seen(Power.UP, "MIXED", busy=True), jobs=[JOB]),
        "c3 is in service since 11:59:30 UTC (30 s ago), and has job 17; Slurm shows MIXED+CLOUD.",
        "when its jobs have ended and none comes for 10 min (timing.idle), Slurm gives it up.",
        "",
    ),
    "drained by a person": (
        NodeCase("c3", READY, seen=seen(Power.UP, busy=True, **BY_ALICE), jobs=[JOB]),
        "c3 is up but takes no new jobs: alice drained it; job 17 may run to the end; "
        "Slurm shows IDLE+CLOUD.",
        "nothing: alice drained it (bad fan); `tide undrain c3` ends that.",
        UNDRAIN,
    ),
    "drained by nobody knows whom": (
        NodeCase("c3", READY, seen=seen(Power.UP, drained=True, owner="somebody")),
        "c3 is up but takes no new jobs: somebody drained it; Slurm shows IDLE+CLOUD.",
        "nothing: somebody drained it; `tide undrain c3 --force` ends that.",
        "`tide undrain c3 --force` gives it back to service",
    ),
    "drained by Slurm": (
        NodeCase(
            "c3",
            READY,
            seen=seen(Power.UP, drained=True, owner="slurm", reason="Low RealMemory"),
            due=due("unfit", NOON + 60),
        ),
        "c3 is up but takes no new jobs: Slurm itself drained it: Low RealMemory; "
        "Slurm shows IDLE+CLOUD.",
        "at 12:01:00 UTC (in 60 s) Springtide removes it and gives its jobs back to the queue, "
        "because Slurm drained it for a fault.",
        "if it is fit after all, `tide undrain c3 --force`",
    ),
    "drained by its health check": (
        NodeCase(
            "c3",
            READY,
            seen=seen(
                Power.UP, drained=True, owner="slurm", reason="health check failed: disk is full"
            ),
            due=due("unfit", NOON + 60),
        ),
        "c3 is up but takes no new jobs: it is drained, as its health check failed: disk is full; "
        "Slurm shows IDLE+CLOUD.",
        "at 12:01:00 UTC (in 60 s) Springtide removes it and gives its jobs back to the queue, "
        "because Slurm drained it for a fault.",
        "mend what the check found: it ends the drain by itself when it passes again",
    ),
    "drained by its health check while it has a job": (
        NodeCase(
            "c3",
            READY,
            seen=seen(Power.UP, drained=True, busy=True, owner="slurm", reason=UNHEALTHY),
            timing=Timing(grace=300),
        ),
        "c3 is up but takes no new jobs: it is drained, as its health check failed; "
        "Slurm shows IDLE+CLOUD.",
        "Springtide replaces it when its jobs have ended, unless the check has passed again "
        "within 5 min (timing.grace).",
        "mend what the check found: it ends the drain by itself when it passes again",
    ),
    "a stranger answers in its name": (
        NodeCase("c3", OFF, seen=UP, due=due("rogue", NOON - 1)),
        "c3 is off and has no instance; Slurm shows IDLE+CLOUD.",
        "nothing by itself: it needs a person, because a slurmd answers in its name, but it has no "
        "instance; `tide kill` ends its service.",
        "`tide kill c3` ends its service",
    ),
    "drained by us and forgotten": (
        NodeCase("c3", READY, seen=seen(Power.UP, drained=True, owner=OURS, reason="rebuild")),
        "c3 is in service since 11:59:30 UTC (30 s ago), and idle, but takes no new jobs, by "
        "Springtide (rebuild); Slurm shows IDLE+CLOUD.",
        "Slurm gives it up when it has been idle for 10 min (timing.idle).",
        "",
    ),
    "let go": (
        NodeCase("c3", READY, seen=DOWN),
        "Slurm has let go of c3; Slurm shows IDLE+POWERED_DOWN.",
        "its instance is deleted, and then it is off.",
        "",
    ),
    "given up by Slurm": (
        NodeCase(
            "c3",
            READY,
            seen=seen(Power.UP, "DOWN", registered=False, reason="Not responding"),
            due=due("vanished", NOON + 60),
        ),
        "c3 should be in service, but its provider lists no instance, and Slurm has given it up: "
        "Not responding; Slurm shows DOWN+CLOUD.",
        "at 12:01:00 UTC (in 60 s) Springtide removes it and gives its jobs back to the queue, "
        "because its instance is gone.",
        LOOK.format("after 12:01:00 UTC"),
    ),
    "its slurmd hangs": (
        NodeCase("c3", READY, **HUNG, due=due("silent", NOON + 570)),
        "c3 should be in service, but Slurm does not hear from it, though its instance runs; "
        "Slurm shows IDLE+CLOUD.",
        f"{SILENCE}; it needs a person if it lasts until 12:09:30 UTC (timing.start).",
        LOOK.format("after 12:09:30 UTC"),
    ),
    "its slurmd hangs for long": (
        NodeCase("c3", READY, **HUNG, due=due("silent", NOON - 1), rest=MAINTAINED),
        "c3 should be in service, but Slurm does not hear from it, though its instance runs; "
        "Slurm shows IDLE+CLOUD.",
        f"{SILENCE}; it needs a person.",
        KILL,
    ),
    "its provider does not answer": (
        NodeCase("c3", READY, seen=seen(Power.UP, registered=False), unlisted=True),
        "c3 should be in service, but whether its instance runs is not known, and Slurm does not "
        "hear from it; Slurm shows IDLE+CLOUD.",
        "Springtide looks again within seconds.",
        LOOK.format("in a few seconds"),
    ),
    "busy, and not in its provider's list": (
        NodeCase("c3", READY, seen=UP, due=due("unlisted", NOON + 570)),
        "c3 is in service since 11:59:30 UTC (30 s ago), and idle; Slurm shows IDLE+CLOUD.",
        "nothing for now, though it has jobs and is heard from, but its provider does not list "
        "it; it needs a person if it lasts until 12:09:30 UTC (timing.start).",
        "",
    ),
    "busy, and not in its provider's list for long": (
        NodeCase("c3", READY, seen=UP, due=due("unlisted", NOON)),
        "c3 is in service since 11:59:30 UTC (30 s ago), and idle; Slurm shows IDLE+CLOUD.",
        "nothing by itself: it needs a person, because it has jobs and is heard from, but its "
        "provider does not list it.",
        "",
    ),
    "dead": (
        NodeCase("c3", READY, **DEAD, due=due("died", NOON + 60)),
        "c3 should be in service, but its instance is broken, and Slurm has not missed it yet; "
        "Slurm shows IDLE+CLOUD.",
        "at 12:01:00 UTC (in 60 s) Springtide removes it and gives its jobs back to the queue, "
        "because its instance died.",
        LOOK.format("after 12:01:00 UTC"),
    ),
    "dead, among too many at once": (
        NodeCase("c3", READY, **DEAD, due=due("died", NOON), rest=troubles.FEW),
        "c3 should be in service, but its instance is broken, and Slurm has not missed it yet; "
        "Slurm shows IDLE+CLOUD.",
        "nothing for now: Springtide gives up only few nodes that run at once; after that at any "
        "moment Springtide removes it and gives its jobs back to the queue, because its instance "
        "died.",
        KILL,
    ),
    "missing in a list that nobody believes": (
        NodeCase(
            "c3", READY, seen=UP, due=due("vanished", NOON), rest=troubles.disbelieved(["c3", "c4"])
        ),
        "c3 is in service since 11:59:30 UTC (30 s ago), and idle; Slurm shows IDLE+CLOUD.",
        "nothing for now: their provider lists no instance of c[3-4] that runs, but Slurm hears "
        "from them; so many at once are not believed, and nothing is removed; it needs a person.",
        "look whether the provider is well; what is really gone, `tide kill c[3-4]` removes",
    ),
}


@pytest.mark.accepts("X5")
@pytest.mark.parametrize("case", NODES)
def test_a_node_tells_how_it_stands_what_comes_next_and_what_to_do(case: str) -> None:
    facts, now, then, do = NODES[case]
    story = node_story(NOON, facts)
    assert (story.now, story.next, story.do) == (now, then, do)
    assert story.about == "node c3"


def test_every_repair_has_words() -> None:
    assert set(Repair) == set(REPAIRS)


def test_what_a_person_has_to_look_at_is_told_without_a_time() -> None:
    case = NodeCase("c3", OFF, due=due("unknown name", NOON), rest=MAINTAINED)
    story = node_story(NOON, case)
    assert story.next == (
        "nothing by itself: it needs a person, because the batch system does not know it; "
        "`tide deploy` tells it."
    )
    assert story.now == "c3 is off and has no instance; Slurm does not know it."


def test_the_operation_that_has_a_node_goes_before_one_that_waits_for_it() -> None:
    waits = replace(REBUILD, id=4, started_at=None)
    assert holder([waits, operation()], READY) == operation()
    assert holder([waits], READY) == waits
    assert holder([], READY) is None
    fell = operation(fallen={"c3": FULL})
    assert holder([fell], OFF) is None
    assert holder([fell], node(NodeState.DELETING)) == fell
    assert holder([operation(Kind.SUSPEND)], OFF) is None
    assert holder([operation(Kind.SUSPEND)], READY) == operation(Kind.SUSPEND)
    assert holder([replace(REBUILD, nodes=("c3", "c4"), done=("c3",))], READY) is None


# --- the past ------------------------------------------------------------------------------------


def past(events: Sequence[Event], most: int | None = 15) -> list[str]:
    known = {5: operation()}
    story = node_story(NOON, NodeCase("c3", OFF, events, known, seen=DOWN), most)
    return [text for _, text in story.past]


START = [
    event("node requested", 40, detail="generation 1"),
    event("instance created", 39, detail="i-1 at 10.0.0.1, large, image base"),
    event("address told", 38),
]


def test_a_start_that_is_over_is_one_line() -> None:
    assert past([*START, event("node registered", 28)]) == [
        "started by Slurm for job 17; in service after 12 s"
    ]


def test_a_node_that_joined_on_its_way_up_is_still_one_line() -> None:
    joined = event("node joined", 30, detail="from 10.0.0.3; slurmd 22.05.8")
    assert past([*START, joined, event("node registered", 28)]) == [
        "started by Slurm for job 17; in service after 12 s"
    ]
    assert past([*START, joined])[-1] == "joined; it sets itself up"


def test_a_boot_that_the_node_gave_up_says_why() -> None:
    failed = event("boot failed", 29, detail="/home is not mounted")
    told = past([*START, failed, event("node failed", 28, detail="its boot failed: /home …")])
    assert told == [
        "its boot failed: /home is not mounted",
        "could not start: its boot failed: /home …",
    ]


def test_a_start_under_way_is_told_step_by_step() -> None:
    assert past(START) == [
        "start ordered by Slurm for job 17",
        "instance made",
        "booting; Slurm waits for slurmd to report",
    ]


def test_a_start_that_failed_says_why_and_what_was_done() -> None:
    events = [
        *START,
        event("node failed", 30, detail=FULL),
        event("node given back", 29, detail=FULL),
        event("instance deleting", 28),
        event("instance gone", 27),
    ]
    assert past(events) == [
        f"could not start: {FULL}",
        "given back to Slurm, and its jobs to the queue",
        "what was left of it removed",
    ]


def test_a_repair_tells_its_cause_and_what_became_of_the_jobs() -> None:
    events = [Event(NOON - 9, "instance deleting", "c3", 6), Event(NOON, "instance gone", "c3", 6)]
    case = NodeCase("c3", OFF, events, {6: REPAIRED}, seen=DOWN)
    told = "broke; removed, and its jobs put back into the queue, by operation 6 (repair by "
    (line,) = [text for _, text in node_story(NOON, case).past]
    assert line == f"{told}Springtide itself), because its instance died"
    orphan = replace(REPAIRED, reason="c3: it is off, but has an instance")
    case = replace(case, operations={6: orphan})
    (line,) = [text for _, text in node_story(NOON, case).past]
    assert line == (
        "instance removed by operation 6 (repair by Springtide itself), because it is off, but has "
        "an instance"
    )


def test_a_job_that_runs_again_tells_which_node_it_lost_and_why() -> None:
    """Two nodes with two causes are two lines, and nodes of other jobs are not its own."""
    removed = ("instance deleting", "instance gone")
    events = [Event(NOON, what, name, 6) for name in ("c2", "c3", "c4") for what in removed]
    lost = replace(
        REPAIRED,
        nodes=("c2", "c3", "c4"),
        reason="c[2-3]: its instance died; c4: its instance is gone",
    )
    case = JobCase("17", JOB, [READY], operations=[operation(), lost], events=events)
    assert [text.partition(":")[0] for _, text in job_story(NOON, case).past] == ["c[2-3]", "c4"]


def test_what_springtide_starts_by_itself_says_what_for() -> None:
    mine = operation(asked_by="reconcile", reason="to be always up")
    case = NodeCase("c3", OFF, [event("node requested", 4)], {5: mine}, seen=DOWN)
    (line,) = [text for _, text in node_story(NOON, case).past]
    assert line == "start ordered by operation 5 (resume by Springtide itself) to be always up"


def test_a_start_that_was_given_up_shows_how_far_it_came() -> None:
    assert past([*START, event("instance deleting", 20)])[-2:] == [
        "booting; Slurm waits for slurmd to report",
        "deletion of its instance ordered by Slurm for job 17",
    ]


def test_people_are_named_and_unknown_events_are_shown_as_they_are() -> None:
    events = [
        Event(NOON - 9, "drain asked", "c3", None, "alice: bad fan"),
        Event(NOON - 8, "undrain asked", "c3", None, "by alice"),
        Event(NOON - 7, "tide turned", "c3", None, "at 3 {o'clock}"),
        Event(NOON - 6, "tide turned", "c3", 77),
        event("resume failed", 5, detail="it did not register within ResumeTimeout {x}"),
    ]
    assert past(events) == [
        "drained by alice: bad fan",
        "undrained by alice",
        "tide turned: at 3 {o'clock}",
        "tide turned",
        "Slurm waited no longer: it did not register within ResumeTimeout {x}",
    ]


def test_only_the_newest_lines_are_told_unless_all_are_wanted() -> None:
    events = [Event(NOON - 100 + n, "drain asked", "c3", None, f"alice: {n}") for n in range(40)]
    assert past(events)[0] == "drained by alice: 25"
    assert len(past(events)) == 15
    assert len(past(events, most=None)) == 40


def test_the_boot_of_forty_nodes_is_one_line() -> None:
    names = [f"c{n}" for n in range(40)]
    steps = ("node requested", "instance created", "address told", "node registered")
    events = [
        event(what, 40 - 4 * step, name, f"{name} {step}")
        for step, what in enumerate(steps)
        for name in names
    ]
    wide = operation(nodes=tuple(names))
    case = JobCase("17", Job("17", "RUNNING", nodes="c[0-39]"), operations=[wide], events=events)
    assert job_story(NOON, case).past == (
        (NOON - 40, "c[0-39]: started by Slurm for job 17; in service after 12 s"),
    )


def test_an_operation_that_had_to_wait_or_stop_says_so_among_what_befell_its_nodes() -> None:
    why = "waited 600 s for c3 (operation 4)"
    events = [
        event("operation started", 50, None, "resume c3"),
        event("operation waits", 40, None, why),
        event("operation judged", 30, None, why),
        event("operation judged", 20, None),
        event("operation ended", 10, None, "failed"),
    ]
    case = JobCase("17", pending("BeginTime"), operations=[operation()], events=events)
    assert [text for _, text in job_story(NOON, case).past] == [
        f"operation 5 (resume by Slurm for job 17) waits: {why}",
        f"operation 5 (resume by Slurm for job 17) goes no further: {why}",
    ]


# --- jobs ----------------------------------------------------------------------------------------


def pending(reason: str) -> Job:
    return Job("17", "PENDING", partition="main", node_count=2, reason=reason)


CONFIGURING = Job("17", "CONFIGURING", nodes="c[3-4]", node_count=2)
NEIGHBOUR = replace(READY, name="c4")
FELL = operation(
    state=OperationState.PARTLY, nodes=("c3", "c4"), fallen={"c3": FULL}, ended_at=NOON
)
REPAIRED = operation(
    Kind.REPAIR, id=6, asked_by="reconcile", reason="x: other; c[2-3]: its instance died"
)
LATE = "nodes that are not by 12:09:20 UTC (timing.start) are removed, and it waits again."
LIFT = "when the cause is gone, `tide holds --lift big` has one node tried at once"
BEGIN = "Slurm starts it when that time has come; after a requeue within two minutes."
NOW = "`scontrol update jobid=17 starttime=now` starts it at once"

JOBS: dict[str, tuple[JobCase, str, str, str]] = {
    "before others": (
        JobCase("17", pending("Priority")),
        "job 17 waits: jobs with a higher priority come before it (Slurm: Priority).",
        "Slurm starts it when its turn comes and nodes are free.",
        "`sprio -j 17` tells of its priority",
    ),
    "an image was never built": (
        JobCase("17", pending("Resources"), groups=["big"], unbuilt="compute"),
        "job 17 waits: the nodes that it needs are in use, or not there yet (Slurm: Resources).",
        "Slurm starts it when nodes are free, or can be started.",
        "`tide image build compute` makes the image that is lacking",
    ),
    "nodes in use": (
        JobCase("17", pending("Resources"), groups=["big"]),
        "job 17 waits: the nodes that it needs are in use, or not there yet (Slurm: Resources).",
        "Slurm starts it when nodes are free, or can be started.",
        "",
    ),
    "a pool that is exhausted": (
        JobCase("17", pending("Resources"), groups=["big"], pools={"big": 12}),
        "job 17 waits: the pool of 12 of big is exhausted, all nodes are up and in use "
        "(Slurm: Resources).",
        "Slurm starts it when other jobs have ended.",
        "more names in groups.big.nodes, and `tide apply`, make room for more nodes",
    ),
    "one of two pools that is exhausted": (
        JobCase("17", pending("Resources"), groups=["big", "other"], pools={"big": 12}),
        "job 17 waits: the nodes that it needs are in use, or not there yet (Slurm: Resources).",
        "Slurm starts it when nodes are free, or can be started.",
        "",
    ),
    "a node that is not available": (
        JobCase("17", pending("ReqNodeNotAvail, UnavailableNodes:c3")),
        "job 17 waits: a node that it asks for by name or feature is down, drained or reserved "
        "(Slurm: ReqNodeNotAvail, UnavailableNodes:c3).",
        "Slurm starts it when that node takes jobs again.",
        "`sinfo -R` says why; or submit it without that node",
    ),
    "not allowed": (
        JobCase("17", pending("PartitionConfig")),
        "job 17 waits: it asks for what its partition does not allow (Slurm: PartitionConfig).",
        "never, unless the job or the limit is changed.",
        "`scontrol show partition`",
    ),
    "a reason that is new": (
        JobCase("17", pending("WaitingForGodot")),
        "job 17 waits: WaitingForGodot.",
        "Slurm starts it when that has changed.",
        "`scontrol show job 17`",
    ),
    "just submitted": (
        JobCase("17", pending("")),
        "job 17 waits: Slurm has not looked at it yet.",
        "Slurm looks at it within seconds.",
        "",
    ),
    "its group is held": (
        JobCase("17", pending("Resources"), held={"big": HELD, "other": HELD}, groups=["big"]),
        "job 17 waits: the nodes that it needs are in use, or not there yet (Slurm: Resources).",
        "group big is held until 12:34:00 UTC: no capacity for large in zone-a; "
        "then one node is tried.",
        LIFT,
    ),
    "its nodes did not boot, and its group is held": (
        JobCase(
            "17",
            pending("BeginTime"),
            [OFF],
            operations=[FELL],
            events=FAILED_BOOT,
            held={"big": HELD},
            groups=["big"],
        ),
        "c3 could not start, so the job waits again: late (Slurm: BeginTime).",
        "group big is held until 12:34:00 UTC: no capacity for large in zone-a; "
        "then one node is tried.",
        f"`tide log c3` shows what c3 said while it booted; {LIFT}",
    ),
    "its node did not boot": (
        JobCase("17", pending("BeginTime"), [OFF], operations=[FELL], events=FAILED_BOOT),
        "c3 could not start, so the job waits again: late (Slurm: BeginTime).",
        BEGIN,
        "`tide log c3` shows what c3 said while it booted",
    ),
    "its node did not boot, and is held": (
        JobCase(
            "17",
            pending("BeginTime"),
            [OFF],
            operations=[FELL],
            events=FAILED_BOOT,
            held_nodes={"c3": ALONE},
            groups=["big"],
        ),
        "c3 could not start, so the job waits again: late (Slurm: BeginTime).",
        "c3 is held until 12:34:00 UTC: node c3 does not start any more; then it is tried; "
        f"otherwise {BEGIN}",
        f"`tide log c3` shows what c3 said while it booted; {LIFT_ALONE}",
    ),
    "all nodes that it might get are held": (
        JobCase(
            "17",
            pending("Resources"),
            held_nodes={"c2": replace(ALONE, until=NOON + 9000, key="node:c2"), "c3": ALONE},
            groups=["big"],
        ),
        "job 17 waits: the nodes that it needs are in use, or not there yet (Slurm: Resources).",
        "c3 is held until 12:34:00 UTC: node c3 does not start any more; then it is tried; 1 more "
        "is held too; otherwise Slurm starts it when nodes are free, or can be started.",
        LIFT_ALONE,
    ),
    "one of its groups is held": (
        JobCase("17", pending("Resources"), held={"big": HELD}, groups=["big", "small"]),
        "job 17 waits: the nodes that it needs are in use, or not there yet (Slurm: Resources).",
        "group big is held until 12:34:00 UTC: no capacity for large in zone-a; "
        "then one node is tried; Slurm may start it on small.",
        "",
    ),
    "its node could not start": (
        JobCase("17", pending("BeginTime"), [OFF, NEIGHBOUR], operations=[FELL]),
        f"c3 could not start, so the job waits again: {FULL} (Slurm: BeginTime).",
        BEGIN,
        NOW,
    ),
    "its node could not start, and its log told why": (
        JobCase(
            "17",
            pending("BeginTime"),
            [OFF],
            operations=[FELL],
            events=[event("node failed", 9, detail=f"{FULL}: disk full")],
        ),
        f"c3 could not start, so the job waits again: {FULL}: disk full (Slurm: BeginTime).",
        BEGIN,
        NOW,
    ),
    "its node broke": (
        JobCase(
            "17",
            pending("BeginTime"),
            [OFF],
            operations=[operation(state=OperationState.DONE), REPAIRED],
        ),
        "c3 broke, so the job goes back to the queue: its instance died (Slurm: BeginTime).",
        BEGIN,
        NOW,
    ),
    "a node of its or of another job could not start": (
        JobCase("17", pending("BeginTime"), [OFF, NEIGHBOUR], shared=True, operations=[FELL]),
        "job 17 waits; of nodes that were asked for, for it and other jobs, c3 could not start: "
        f"{FULL} (Slurm: BeginTime).",
        BEGIN,
        NOW,
    ),
    "the cluster is stopped": (
        JobCase("17", pending("PartitionDown"), closed="the cluster is stopped; run `tide start`"),
        "job 17 waits: its partition starts no jobs (Slurm: PartitionDown); nothing is started: "
        "the cluster is stopped; run `tide start`.",
        "nothing until then.",
        "",
    ),
    "its nodes start": (
        JobCase("17", CONFIGURING, [JOINING, NEIGHBOUR], operations=[operation()], usual_s=60),
        "job 17 waits for c3 to start, 1 of 2 are in service; operation 5 (resume by Slurm for job "
        "17) is at work since 11:59:20 UTC (40 s ago), at `create instances`.",
        "it runs as soon as they are in service, at 12:00:20 UTC (in 20 s): a start takes 60 s as "
        f"a rule; {LATE}",
        "`tide why c3` tells more",
    ),
    "its nodes start, for the first time ever": (
        JobCase("17", CONFIGURING, [JOINING], operations=[operation(started_at=None)]),
        "job 17 waits for c3 to start; operation 5 (resume by Slurm for job 17) waits for its turn "
        "since 11:59:20 UTC (40 s ago).",
        f"it runs as soon as they are in service; {LATE}",
        "`tide why c3` tells more",
    ),
    "nobody starts its nodes": (
        JobCase("17", CONFIGURING, [OFF], operations=[FELL]),
        "job 17 waits for c3 to start; no operation is at it.",
        f"it runs as soon as they are in service; {LATE}",
        "`tide why c3` tells more",
    ),
    "its nodes are there": (
        JobCase("17", CONFIGURING, [READY, NEIGHBOUR]),
        "job 17 has its nodes (c[3-4]), and all are in service.",
        "Slurm launches it, at the latest 30 s after the last node came.",
        "",
    ),
    "running": (
        JobCase("17", JOB, [READY], running_since=NOON - 300),
        "job 17 runs on c3 since 11:55:00 UTC (5 min ago).",
        "nothing by Springtide: its nodes stay until it has ended.",
        "",
    ),
    "running on a node that died": (
        JobCase("17", JOB, [READY], dues={"c3": due("died", NOON + 6)}),
        "job 17 runs on c3, but c3 is not well: its instance died.",
        "c3: at 12:00:06 UTC (in 6 s) Springtide removes it and gives its jobs back to the queue, "
        "because its instance died.",
        "`tide why c3` tells more",
    ),
    "running on a node that died, in maintenance": (
        JobCase("17", JOB, [READY], dues={"c3": due("died", NOON)}, rests={"c3": MAINTAINED}),
        "job 17 runs on c3, but c3 is not well: its instance died.",
        f"c3: {RESTS} at any moment Springtide removes it and gives its jobs back to the queue, "
        "because its instance died.",
        "`tide why c3` tells more",
    ),
    "all nodes are there, but one does not answer": (
        JobCase("17", CONFIGURING, [READY, NEIGHBOUR], dues={"c4": due("silent", NOON)}),
        "job 17 has its nodes (c[3-4]), but c4 is not well: its instance runs, but the batch "
        "system does not hear from it.",
        f"c4: {SILENCE}; it needs a person.",
        "`tide why c4` tells more",
    ),
    "running on a node that only has an instance too many": (
        JobCase("17", JOB, [READY], dues={"c3": due("twins", NOON)}),
        "job 17 runs on c3.",
        "nothing by Springtide: its nodes stay until it has ended.",
        "",
    ),
    "running on a node that is repaired": (
        JobCase("17", JOB, [node(NodeState.DELETING)], operations=[REPAIRED]),
        "job 17 runs on c3, but c3 is going: its instance died.",
        "Slurm puts it back into the queue when it misses the node.",
        "`tide why c3` tells more",
    ),
    "running on a node that goes": (
        JobCase("17", JOB, [node(NodeState.DELETING)]),
        "job 17 runs on c3, but c3 is going.",
        "Slurm puts it back into the queue when it misses the node.",
        "`tide why c3` tells more",
    ),
    "ending": (
        JobCase("17", Job("17", "COMPLETING", nodes="c3")),
        "job 17 has stopped; Slurm cleans up after it on c3.",
        "then it is over, or in the queue again if it was put back there.",
        "",
    ),
    "put back because its node did not boot": (
        JobCase(
            "17",
            Job("17", "COMPLETING", nodes="c[3-4]"),
            [OFF, NEIGHBOUR],
            operations=[FELL],
            events=FAILED_BOOT,
        ),
        "c3 could not start, so the job waits again: late; Slurm still cleans up on c[3-4].",
        "it is in the queue again when that is done, within seconds as a rule.",
        "`tide log c3` shows what c3 said while it booted",
    ),
    "put back because its node broke": (
        JobCase("17", Job("17", "COMPLETING", nodes="c3"), [OFF], operations=[REPAIRED]),
        "c3 broke, so the job goes back to the queue: its instance died; Slurm still cleans up on "
        "c3.",
        "it is in the queue again when that is done, within seconds as a rule.",
        "",
    ),
    "suspended": (
        JobCase("17", Job("17", "SUSPENDED", nodes="c3")),
        "Slurm shows job 17 as SUSPENDED.",
        "that is Slurm's to decide.",
        "`scontrol show job 17` tells more",
    ),
    "over": (
        JobCase("17", None, operations=[FELL]),
        "Slurm knows no job 17 any more; the last that Springtide did for it is operation 5 "
        "(resume by Slurm for job 17), partly done.",
        "nothing.",
        "`sacct -j 17` knows more, if an account of jobs is kept",
    ),
    "over, and Slurm still knows": (
        JobCase(
            "17",
            None,
            over=Job("17", "COMPLETED", nodes="c3", ended_at=NOON - 23),
            operations=[FELL],
        ),
        "job 17 completed at 11:59:37 UTC on c3; the last that Springtide did for it is operation "
        "5 (resume by Slurm for job 17), partly done.",
        "nothing.",
        "`scontrol show job 17` tells more, as long as Slurm keeps it",
    ),
    "cancelled before it had a node": (
        JobCase("17", None, over=Job("17", "CANCELLED", reason="Priority", ended_at=NOON - 23)),
        "job 17 was cancelled at 11:59:37 UTC.",
        "nothing.",
        "`scontrol show job 17` tells more, as long as Slurm keeps it",
    ),
    "failed by itself": (
        JobCase("17", None, over=Job("17", "FAILED", nodes="c3", reason="NonZeroExitCode")),
        "job 17 failed on c3 (Slurm: NonZeroExitCode).",
        "nothing.",
        "`scontrol show job 17` tells more, as long as Slurm keeps it",
    ),
    "came back between two questions": (
        JobCase("17", None, over=Job("17", "REQUEUED")),
        "Slurm shows job 17 as REQUEUED.",
        "that is Slurm's to decide.",
        "`scontrol show job 17` tells more",
    ),
    "unknown": (
        JobCase("17", None),
        "Slurm knows no job 17 any more; no node was started for it: it is over, or never was.",
        "nothing.",
        "`sacct -j 17` knows more, if an account of jobs is kept",
    ),
    "a task of an array": (
        JobCase("17_3", None),
        "Springtide knows the tasks of arrays by numbers of their own, not as 17_3.",
        "",
        "`squeue -h -j 17_3 -o %A` prints the number; ask with that",
    ),
    "the batch system is away": (
        JobCase(
            "17",
            None,
            silent="no answer",
            outage=troubles.outage("", None, 30),
            operations=[FELL],
        ),
        "Slurm does not answer, so how job 17 stands is not known; the last that Springtide did "
        "for it is operation 5 (resume by Slurm for job 17), partly done.",
        "jobs that run go on; none starts until slurmctld answers.",
        "`tide check` finds out what does not run",
    ),
    "slurmctld does not run": (
        JobCase("17", None, silent="no answer", outage=troubles.outage(NO_CTLD, None, 30)),
        "slurmctld does not run, so how job 17 stands is not known; nothing in our record was "
        "done for it.",
        "Springtide starts it again by itself, within 30 s (timing.reconcile), after tries in vain "
        "more seldom; jobs that run go on.",
        "if it does not come back, `tide deploy` tells why",
    ),
    "nobody runs": (
        JobCase("17", None, closed="the cluster is stopped; run `tide start`"),
        "no job runs: the cluster is stopped; run `tide start`.",
        "jobs that wait stay in the queue.",
        "",
    ),
}


@pytest.mark.accepts("X5")
@pytest.mark.parametrize("case", JOBS)
def test_a_job_tells_what_it_waits_for_or_what_became_of_it(case: str) -> None:
    facts, now, then, do = JOBS[case]
    story = job_story(NOON, facts)
    assert (story.now, story.next, story.do) == (now, then, do)
    assert story.about == f"job {facts.id}"


@pytest.mark.accepts("X5")
def test_a_job_is_told_in_its_comment_what_its_story_says() -> None:
    waiting = Job("17", "CONFIGURING", nodes="c[3-4]")
    (comment,) = decide.news([waiting], {"c3": FULL})
    assert comment == setback(["c3"], FULL)
    assert comment in JOBS["its node could not start"][1]
    (comment,) = decide.losses([waiting], {"c3": "its instance died"})
    assert comment in JOBS["its node broke"][1]


def test_the_nodes_of_a_job_are_told_from_those_of_others() -> None:
    shared = operation(
        nodes=("c1", "c2", "c3", "c4", "c5"),
        reason="resume by the batch system, for jobs 17,18,19",
        options={"wide": {"17": "c[1-2]"}},
    )
    assert nodes_asked(shared, "17") == (("c1", "c2"), False)
    assert nodes_asked(shared, "18") == (("c3", "c4", "c5"), True)
    assert nodes_asked(operation(), "17") == (("c3",), False)
    assert [is_for(shared, id) for id in ("17", "19", "1", "")] == [True, True, False, False]
    stopped = replace(shared, reason="cancelled by root")
    assert [is_for(stopped, id) for id in ("17", "19")] == [True, False]


# --- in short ------------------------------------------------------------------------------------


def test_the_short_form_has_no_times_that_pass_and_fits_into_a_comment() -> None:
    story = Story(
        "node c3",
        "c3 boots since 11:59:30 UTC (30 s ago).",
        next="it is there at 12:00:20 UTC (in 20 s).",
    )
    assert in_short(story) == "c3 boots since 11:59:30 UTC. it is there at 12:00:20 UTC."
    long = in_short(replace(story, next="because " * 60))
    assert len(long) <= SHORT
    assert long.endswith("because…")


@pytest.mark.parametrize("case", [*NODES.values(), *JOBS.values()])
def test_every_story_is_short_enough_when_it_must_be(case: tuple[Any, str, str, str]) -> None:
    facts = case[0]
    story = node_story(NOON, facts) if isinstance(facts, NodeCase) else job_story(NOON, facts)
    assert 0 < len(in_short(story)) <= SHORT


def test_a_job_is_not_told_the_same_twice() -> None:
    letters = {"c3 could not start": ["17", "18"], "c4 could not start": ["19"]}
    assert not_yet_told(letters, {}) == letters
    told = {"17": "c3 could not start", "18": "other", "19": "c4 could not start"}
    assert not_yet_told(letters, told) == {"c3 could not start": ["18"]}


# --- what keeps repairs --------------------------------------------------------------------------


def test_a_brake_tells_a_list_that_is_not_believed_from_too_many_at_once() -> None:
    missing = (NodeState.READY, Batch.BUSY, Drained.NOBODY, Cloud.NONE)
    ill = (NodeState.READY, Batch.SERVING, Drained.SLURM, Cloud.RUNNING)
    rests = troubles.braked({"c3": missing, "c4": ill, "c5": missing})
    assert rests["c4"] == troubles.FEW
    assert rests["c3"] == rests["c5"] == troubles.disbelieved(["c3", "c5"])
    assert not rests["c3"].ends
    assert troubles.braked({"c4": ill}) == {"c4": troubles.FEW}
