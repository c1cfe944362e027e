"""What Torque's commands print, read: `pbsnodes -x`, `qstat -t -x`, `qstat -Q -f`. Pure.

Written for 6.1. A node's state is a set of words, and says nothing of its jobs: `free` can have
some. The `state=` in its status is what its pbs_mom said when it was last heard, not its state.
"""

import re
from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, replace
from xml.etree.ElementTree import Element

from springtide.batch.pbs_common import NO_NODE
from springtide.batch.torque_notes import Note
from springtide.batch.torque_request import Request, parse_request
from springtide.batch.unread import UnreadableError, parsed_xml, told
from springtide.ports import OURS, Chunk, Health, JobState, QueueJob, QueueNode

NOT_SENT = "MOM-list-not-sent"
"""Torque made a node known to the others a moment ago, and takes no changes of it until then."""
DOWN = frozenset({"down", "state-unknown"})
OFFLINE = "offline"
BUSY = "busy"
"""Its load is above its pbs_mom's $max_load; of a node that is full, Torque says job-exclusive."""

_NEEDLESS = re.compile(r"<Variable_List>.*?</Variable_List>", re.DOTALL)
"""The environment of whoever submitted a job, which may hold anything."""
_HEARD = re.compile(r"(?:^|,)rectime=([0-9]{1,18})(?=,|$)")
_NUMBER = re.compile(r"[0-9]{1,18}")
_SLOTS = re.compile(r"([0-9]{1,9})(?:-([0-9]{1,9}))?")
_MEMBER = re.compile(r"([0-9]+)\[([0-9]+)\](.*)")
_AT_ONCE = re.compile(r"(?:^|\s)-t\s*[0-9,-]+%([0-9]{1,9})(?:\s|$)")
_LIMITED = re.compile(r"^not running\b.*\blimit", re.IGNORECASE)
_VERSION = re.compile(r"pbs_version = (\S+)")
_SCHEDULING = re.compile(r"scheduling = True\b")
_RUNS = frozenset("RES")
_WAITS = frozenset("QT")  # T is on its way from one queue to another


@dataclass(frozen=True, slots=True)
class TorqueNode:
    """A node, with what only this adapter asks for."""

    shown: QueueNode
    note: Note
    heard_at: int
    """When its pbs_mom was last heard from, by the server's clock; 0 if never."""
    np: int
    properties: frozenset[str]

    @property
    def ours(self) -> bool:
        """We created it."""
        return OURS in self.properties

    @property
    def fresh(self) -> bool:
        return NOT_SENT in self.shown.words


@dataclass(frozen=True, slots=True)
class TorqueQueue:
    """One of its queues."""

    started: bool = True
    """Or its jobs stay where they are (qstop)."""
    leads_to: tuple[str, ...] = ()
    """Where it passes jobs on to, if it does no more than that; not those of other servers."""


def _elements(text: str, of: str) -> list[Element]:
    return list(parsed_xml(_NEEDLESS.sub("", text), of, "Data"))


def _text(element: Element, tag: str) -> str:
    return (element.findtext(tag) or "").strip()


# Nodes


def parse_nodes(text: str) -> dict[str, TorqueNode]:
    """The nodes of `pbsnodes -x`."""
    nodes = [_node(element) for element in _elements(text, "pbsnodes")]
    return {node.shown.name: node for node in nodes}


def _node(element: Element) -> TorqueNode:
    name, state = _text(element, "name"), _text(element, "state")
    if element.tag != "Node" or not name or not state:
        raise UnreadableError("pbsnodes printed a node without a name or state")
    words = frozenset(word.strip() for word in state.split(","))
    note = Note.read(_text(element, "note"))
    heard_at = _heard_at(_text(element, "status"))
    properties = frozenset(_text(element, "properties").split(",")) - {""}
    health = _health(words, note, heard_at, OURS in properties)
    slots = _slots(_text(element, "jobs"))
    if slots and health is Health.ABSENT:  # whatever its note says
        health = Health.DOWN if words & DOWN else Health.UP
    by_wish = OFFLINE in words and NOT_SENT not in words and not note.off
    shown = QueueNode(
        name,
        health,
        words,
        drained=by_wish and (health is not Health.ABSENT or bool(note.reason)),
        reason=note.reason if by_wish else "",
        jobs=tuple(slots),
        cores_used=sum(slots.values()),
        shut=BUSY in words,
    )
    np = _text(element, "np")
    return TorqueNode(shown, note, heard_at, int(np) if _NUMBER.fullmatch(np) else 0, properties)


def _heard_at(status: str) -> int:
    """pbs_server adds the time to what a pbs_mom says, which may name other times: the earliest,
    so that no node can seem to be heard from for ever."""
    return min(map(int, _HEARD.findall(status)), default=0)


def _health(words: frozenset[str], note: Note, heard_at: int, ours: bool) -> Health:
    """By what was heard since the node joined, where its note tells when that was."""
    silent = bool(words & DOWN)
    if note.off and (silent or OFFLINE in words):
        return Health.ABSENT
    if note.after is not None and heard_at <= note.after:
        return Health.JOINING
    if NOT_SENT in words or (silent and not heard_at):
        return Health.ABSENT if ours and note.after is None else Health.JOINING
    return Health.DOWN if silent else Health.UP


def _slots(text: str) -> Counter[str]:
    """How many slots each job has, of `0-1/17.server,2/3[0].server`; the order stays."""
    found: Counter[str] = Counter()
    waiting = 0
    for item in filter(None, (part.strip() for part in text.split(","))):
        slots, _, job = item.partition("/")
        matched = _SLOTS.fullmatch(slots)
        if not matched:
            raise UnreadableError(f"pbsnodes printed {item!r} instead of slots and a job")
        waiting += int(matched[2] or matched[1]) - int(matched[1]) + 1
        if job:
            found[job] += waiting
            waiting = 0
    if waiting:
        raise UnreadableError(f"pbsnodes printed slots without a job: {text!r}")
    return found


# Jobs


def parse_jobs(
    text: str, nodes: Collection[str], queues: Mapping[str, TorqueQueue] | None = None
) -> list[QueueJob]:
    """The jobs of `qstat -t -x` that are not over; tasks of an array that wait alike are one.

    `nodes` are the names of all nodes.
    """
    jobs: list[QueueJob] = []
    arrays: defaultdict[str, list[QueueJob]] = defaultdict(list)
    at_once: dict[str, int] = {}
    for element in _elements(text, "qstat"):
        job = _job(element, nodes, queues or {})
        if job is None:
            continue
        if found := _MEMBER.fullmatch(job.id):
            array = f"{found[1]}[]{found[3]}"
            arrays[array].append(job)
            if limit := _AT_ONCE.search(_text(element, "submit_args")):
                at_once[array] = int(limit[1])
        else:
            jobs.append(job)
    for array, tasks in arrays.items():
        jobs += _array(array, tasks, at_once.get(array))
    return jobs


def _array(id: str, tasks: Iterable[QueueJob], at_once: int | None) -> list[QueueJob]:
    """Those that run each by itself, the others in heaps of equal ones."""
    found = [task for task in tasks if task.state is JobState.RUNNING]
    heaps = Counter(replace(task, id=id) for task in tasks if task.state is not JobState.RUNNING)
    free = None if at_once is None else at_once - len(found)
    for job, count in heaps.items():
        found.append(heap := _heap(job, count, free))
        if free is not None and heap.state is JobState.WAITING:
            free -= heap.tasks
    return found


def _heap(job: QueueJob, count: int, free: int | None) -> QueueJob:
    """Of those that wait as many as may run at once; if that is none, for each other's end."""
    if job.state is JobState.HELD or free is None:
        return replace(job, tasks=count)
    if free <= 0:
        return replace(job, state=JobState.HELD, tasks=count)
    return replace(job, tasks=min(free, count))


def _job(
    element: Element, nodes: Collection[str], known: Mapping[str, TorqueQueue]
) -> QueueJob | None:
    id, letter, queue = (_text(element, tag) for tag in ("Job_Id", "job_state", "queue"))
    if element.tag != "Job" or not id or not letter or not queue:
        raise UnreadableError("qstat printed a job without an id, state or queue")
    if letter == "C" or "[]" in id:
        return None
    place = known.get(queue, TorqueQueue())
    queues = tuple(dict.fromkeys((queue, *place.leads_to)))
    comment = _text(element, "comment")
    state = _state(element, letter, comment)
    if state is JobState.WAITING and not place.started:
        state, comment = JobState.HELD, f"queue {queue} is not started"
    asked, unread = told(lambda: _request(element, nodes), Request((Chunk(),)))
    if state is JobState.WAITING and (unread or not asked.chunks):
        state, comment = JobState.HELD, unread or NO_NODE
    return QueueJob(
        id,
        state,
        user=_text(element, "Job_Owner").partition("@")[0],
        queues=queues,
        chunks=_without(asked.chunks, {OURS, *queues}),
        nodes=_hosts(_text(element, "exec_host")) if state is JobState.RUNNING else (),
        names=asked.names,
        reason=comment if state is not JobState.RUNNING else "",
        since=_since(element),
    )


def _since(element: Element) -> float | None:
    text = _text(element, "ctime")
    return float(text) if _NUMBER.fullmatch(text) else None


def _state(element: Element, letter: str, comment: str) -> JobState:
    """What waits is no demand if a limit of its user or queue keeps it from starting."""
    if letter in _RUNS:
        return JobState.RUNNING
    held = _text(element, "Hold_Types") not in ("", "n")
    if letter in _WAITS and not held and not _LIMITED.search(comment):
        return JobState.WAITING
    return JobState.HELD


def _request(element: Element, nodes: Collection[str]) -> Request:
    listed = element.find("Resource_List")
    resources = {} if listed is None else {one.tag: (one.text or "").strip() for one in listed}
    return parse_request(resources, nodes, _text(element, "node_exclusive") == "True")


def _without(chunks: Iterable[Chunk], names: Collection[str]) -> tuple[Chunk, ...]:
    """Without the properties that tie a queue to its nodes, which all of these have."""
    return tuple(replace(chunk, features=chunk.features - set(names)) for chunk in chunks)


def _hosts(text: str) -> tuple[str, ...]:
    """Of `tn2/0+tn3/0-1`."""
    return tuple(dict.fromkeys(part.partition("/")[0] for part in text.split("+") if part))


# The rest


def parse_queues(text: str) -> dict[str, dict[str, str]]:
    """The attributes of the queues of `qstat -Q -f`."""
    queues: dict[str, dict[str, str]] = {}
    here: dict[str, str] = {}
    for line in text.replace("\n\t", "").splitlines():
        key, _, value = (part.strip() for part in line.partition("="))
        if line.startswith("Queue: "):
            here = queues.setdefault(line.removeprefix("Queue: ").strip(), {})
        elif key:
            here[key] = value
    return queues


def parse_all_queues(text: str) -> dict[str, TorqueQueue]:
    """The queues of `qstat -Q -f`, of which every server that has jobs has some."""
    found = {name: _queue(one) for name, one in parse_queues(text).items()}
    if not found:
        raise UnreadableError("qstat printed no queues")
    return found


def _queue(attributes: Mapping[str, str]) -> TorqueQueue:
    leads = (word.strip() for word in attributes.get("route_destinations", "").split(","))
    return TorqueQueue(
        started=attributes.get("started") != "False",
        leads_to=tuple(word for word in leads if word and "@" not in word),
    )


def parse_version(text: str) -> str:
    """The server's, of `qmgr -c "list server pbs_version"`."""
    found = _VERSION.search(text)
    if not found:
        raise UnreadableError(f"qmgr printed no version: {text.strip()[:80]!r}")
    return found[1]


def is_scheduling(text: str) -> bool:
    """Whether nobody has stopped the scheduler, of `qmgr -c "list server scheduling"`."""
    return bool(_SCHEDULING.search(text))
