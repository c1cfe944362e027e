"""The jobs of `qstat -f -t -F json`, read. Pure; called by `openpbs`.

An array shows as its running tasks, each a job, and one job with the count of those that wait.
"""

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Any

from springtide.batch.openpbs_text import (
    BUILT_IN,
    PbsQueue,
    count_of,
    parse_document,
    parse_size,
    part,
    resources,
    shorten,
)
from springtide.batch.pbs_common import NO_NODE
from springtide.batch.unread import UnreadableError, told
from springtide.batch.wants import divided, together
from springtide.ports import Chunk, JobState, QueueJob

_STATES = {
    "Q": JobState.WAITING,
    "T": JobState.WAITING,  # on its way from one queue to another
    "B": JobState.WAITING,  # an array of which some tasks have begun
    "H": JobState.HELD,
    "W": JobState.HELD,  # for its time
    "R": JobState.RUNNING,
    "E": JobState.RUNNING,
    "S": JobState.RUNNING,  # suspended: it is on its nodes still
    "U": JobState.RUNNING,  # suspended because somebody uses the machine
}
_OVER = frozenset("FMX")
_LIMITED = re.compile(
    r"job limit has been reached|has reached (?:server|queue \S+) running|limit reached on resource"
    r"|job limit reached for|would exceed .* limit on resource|running subjobs limit reached"
    r"|Queue not started|Dedicated time conflict|cross dedicated time|primetime only"
    r"|will cross into|zero shares for fairshare|amount of (?:queue|server) resource"
    r"|under job_sort_formula threshold",
    re.IGNORECASE,
)
"""What the scheduler says of jobs that more nodes would not help; "Can Never Run" is not among
them, for it speaks of the nodes that there are."""
_SUBJOB = re.compile(r"\d+\[\d+\]")
_INDICES = re.compile(r"(\d{1,9})(?:-(\d{1,9})(?::(\d{1,9}))?)?")
_QUEUED = re.compile(r"Queued:(\d{1,9})")
_RUNNING = re.compile(r"(?:Running|Exiting):(\d{1,9})")
_AMOUNT = re.compile(r"[0-9]{1,18}")
_CHUNK = re.compile(r"([0-9]{1,9})(?::|$)")
_PARTS = {sep: re.compile(rf"""(?:"[^"]*"?|'[^']*'?|[^{sep}"'])+""") for sep in ("+", ":")}
"""What is between separators that are outside of quotes."""
_VNODE = re.compile(r"[(+]\(?([^:()+]+)")
_TRUE = frozenset({"true", "t", "y", "yes"})
_FALSE = frozenset({"false", "f", "n", "no", "0"})


def parse_jobs(
    text: str, queues: Mapping[str, PbsQueue], features: frozenset[str] = frozenset()
) -> list[QueueJob]:
    """All that are not over. One that asks for strange things is held, and hides no others.

    `features` are those of our groups, some of which will do for what a job asks for.
    """
    found = part(parse_document(text), "Jobs")
    jobs = (_job(id, one, queues, features) for id, one in found.items())
    return [job for job in jobs if job is not None]


def _job(
    id: str, found: Mapping[str, Any], queues: Mapping[str, PbsQueue], known: frozenset[str]
) -> QueueJob | None:
    letter = str(found.get("job_state", ""))
    if letter in _OVER:
        return None
    if letter not in _STATES:
        raise UnreadableError(f"qstat printed job {id} in the state {letter!r}")
    state, tasks = _STATES[letter], 1
    if found.get("array") == "True":
        state, tasks = _array(found, state)
    elif _SUBJOB.match(id) and state is not JobState.RUNNING:
        return None  # counted at its array
    if not tasks:
        return None
    queue = queues.get(str(found.get("queue", "")), PbsQueue(str(found.get("queue", ""))))
    asked, unread = told(lambda: _asked(found, queue, known), _Asked((Chunk(),), ()))
    strange = unread or ("" if asked.chunks else NO_NODE)
    state, comment = _looked_at(state, str(found.get("comment", "")), queue, strange)
    return QueueJob(
        id,
        state,
        user=str(found.get("Job_Owner", "")).partition("@")[0],
        queues=(queue.name, *queue.destinations),
        chunks=asked.chunks,
        tasks=tasks,
        nodes=_nodes(found) if state is JobState.RUNNING else (),
        names=asked.names,
        reason=comment or ("" if queue.started else f"queue {queue.name} is not started"),
        since=_time(str(found.get("ctime", ""))),
    )


def _looked_at(
    state: JobState, comment: str, queue: PbsQueue, strange: str
) -> tuple[JobState, str]:
    """One that waits is held if more nodes would not help it, or if nobody knows what would."""
    if state is not JobState.WAITING:
        return state, comment
    if not queue.started or _LIMITED.search(comment):
        return JobState.HELD, comment
    return (JobState.HELD, strange) if strange else (state, comment)


def _array(found: Mapping[str, Any], state: JobState) -> tuple[JobState, int]:
    """How many of its tasks wait, of those that may run at once."""
    counts = str(found.get("array_state_count", ""))
    match = _QUEUED.search(counts)
    waiting = int(match[1]) if match else _indices(str(found.get("array_indices_remaining", "-")))
    if "max_run_subjobs" not in found:
        return state, waiting
    begun = sum(int(count) for count in _RUNNING.findall(counts))
    free = count_of(found["max_run_subjobs"]) - begun
    return (state, min(waiting, free)) if free > 0 else (JobState.HELD, waiting)


def _indices(text: str) -> int:
    """0-9,12,20-30:2"""
    return sum(
        len(range(int(first), int(last or first) + 1, int(step or 1) or 1))
        for first, last, step in _INDICES.findall(text)
    )


# What a job asks for


@dataclass(frozen=True, slots=True)
class _Asked:
    chunks: tuple[Chunk, ...]
    names: tuple[str, ...]


def _asked(found: Mapping[str, Any], queue: PbsQueue, known: frozenset[str]) -> _Asked:
    """With the defaults of queue and server, which privileged users are shown.

    Without chunks if it asks for no node.
    """
    listed = resources(found, "Resource_List")
    select = _select(found, listed)
    place = str(listed.get("place", "free")).split(":")
    exclusive = not {"excl", "exclhost"}.isdisjoint(place)
    spread = not {"scatter", "vscatter"}.isdisjoint(place)
    chunks, names = [], [str(listed[key]) for key in ("host", "vnode") if key in listed]
    parts = [_part(text, queue, known) for text in _PARTS["+"].findall(select)]
    if not parts:
        raise UnreadableError(f"{shorten(select)!r} is no select statement")
    for chunk, named in parts:
        if chunk.count:
            chunks.append(replace(chunk, exclusive=exclusive, spread=spread))
            names += named
    if chunks and "pack" in place:
        chunks = [_packed(chunks)]
    if [chunk.count for chunk in chunks] == [1]:
        chunks = [replace(chunks[0], spread=True)]
    return _Asked(tuple(chunks), tuple(dict.fromkeys(names)))


def _part(text: str, queue: PbsQueue, known: frozenset[str]) -> tuple[Chunk, list[str]]:
    """A chunk, and the names of nodes in it."""
    count, wants = _wants(text)
    names = [wants.pop(key) for key in ("host", "vnode") if key in wants]
    features, ways = divided(_features(wants, queue.marks, known))
    memory = parse_size(wants["mem"]) if "mem" in wants else 0
    chunk = Chunk(count, count_of(wants.get("ncpus", "1")), memory, features, ways=ways)
    return chunk, names


def _select(found: Mapping[str, Any], listed: Mapping[str, Any]) -> str:
    """A bare `select=0` is a number in JSON, and as good a statement as others."""
    said = [str(one) for one in (found.get("schedselect"), listed.get("select")) if one is not None]
    return next(filter(None, said), "") or _plain(listed)


def _plain(listed: Mapping[str, Any]) -> str:
    memory = f":mem={listed['mem']}" if "mem" in listed else ""
    return f"1:ncpus={listed.get('ncpus', 1)}{memory}"


def _wants(text: str) -> tuple[int, dict[str, str]]:
    """2:ncpus=4:mem=8gb"""
    match = _CHUNK.match(text)
    rest = text[match.end() :] if match else text
    pairs = [one.partition("=") for one in _PARTS[":"].findall(rest)]
    if not all(key and equals for key, equals, _ in pairs):
        raise UnreadableError(f"{shorten(text)!r} is no part of a select statement")
    count = int(match[1]) if match else 1
    return count, {key: value.strip("\"'") for key, _, value in pairs}


def _features(
    wants: Mapping[str, str], marks: Mapping[str, str], known: frozenset[str]
) -> Iterator[frozenset[str]]:
    """Of each set, any will do."""
    for key, value in wants.items():
        if key not in BUILT_IN and marks.get(key) != value and value.lower() not in _FALSE:
            yield _wanted(key, value, known)


def _wanted(key: str, value: str, known: frozenset[str]) -> frozenset[str]:
    """gpu=True, gpu=yes and gpu=1 are for nodes with the feature gpu, color=blue for those with
    color=blue. If no node has just so much, as in ngpus=1, those that have more will do."""
    exact, truth = f"{key}={value}", value.lower() in _TRUE
    if found := known & ({key, exact} if truth or value == "1" else {exact}):
        return found
    more = {one for one in known if _AMOUNT.fullmatch(value) and _has_more(one, key, int(value))}
    return frozenset(more or {key if truth else exact})


def _has_more(feature: str, key: str, wanted: int) -> bool:
    name, _, value = feature.partition("=")
    return name == key and bool(_AMOUNT.fullmatch(value)) and int(value) > wanted


def _packed(chunks: Iterable[Chunk]) -> Chunk:
    """All on one node."""
    listed = list(chunks)
    return Chunk(
        cores=sum(chunk.count * chunk.cores for chunk in listed),
        memory=sum(chunk.count * chunk.memory for chunk in listed),
        features=frozenset().union(*(chunk.features for chunk in listed)),
        exclusive=listed[0].exclusive,
        ways=together([chunk.ways for chunk in listed if chunk.ways]),
    )


def _nodes(found: Mapping[str, Any]) -> tuple[str, ...]:
    """(pn1:ncpus=2:mem=1gb)+(pn2:ncpus=2)"""
    if vnodes := str(found.get("exec_vnode", "")):
        return tuple(dict.fromkeys(_VNODE.findall(vnodes)))
    hosts = str(found.get("exec_host", "")).split("+")
    return tuple(dict.fromkeys(host.partition("/")[0] for host in hosts if host))


def _time(text: str) -> float | None:
    """As C prints it, in UTC because it was asked so."""
    try:
        return datetime.strptime(text, "%a %b %d %H:%M:%S %Y").replace(tzinfo=UTC).timestamp()
    except ValueError:
        return None
