"""What Grid Engine's commands print, as facts. Pure: what makes no sense raises UnreadableError."""

import re
from collections.abc import Iterable
from dataclasses import dataclass, field
from datetime import UTC, datetime
from xml.etree.ElementTree import Element

from springtide.batch.unread import UnreadableError, parsed_xml

UNKNOWN = "-"
"""What qhost has for a value that it does not know."""
EVERYWHERE = "global"
"""No host, but what holds for all of them."""
STATES = {
    "a": "load alarm",
    "A": "suspend alarm",
    "c": "configuration ambiguous",
    "C": "suspended by calendar",
    "d": "disabled",
    "D": "disabled by calendar",
    "E": "error",
    "o": "orphaned",
    "s": "suspended",
    "S": "suspended by subordination",
    "u": "unreachable",
}
"""Of queue instances, in qstat's letters."""
_TASKS = re.compile(r"([0-9]{1,18})(?:-([0-9]{1,18})(?::([0-9]{1,18}))?)?")
_NUMBER = re.compile(r"[0-9]{1,18}")
_ZERO = re.compile(r"0+(?:\.0*)?")
_INSTANCE = re.compile(r"[^@\s]+@[^@\s]+")


@dataclass(frozen=True, slots=True)
class Host:
    """An execution host, as qhost shows it."""

    name: str
    known: bool
    """It was heard from at some time."""
    heard: bool
    """It is heard from now."""
    queues: dict[str, str]
    """The letters of its state in each queue."""
    used: int
    jobs: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Listed:
    """A job, or tasks of one that are alike, as qstat lists them."""

    number: str
    state: str
    running: bool
    owner: str
    slots: int
    tasks: str = ""
    instance: str = ""
    since: float | None = None
    environment: str = ""
    """The parallel environment that it asks for, perhaps as a pattern."""
    resources: dict[str, str] = field(default_factory=dict)
    queues: tuple[str, ...] = ()
    """Patterns of queues, one of which it must run in; empty if any will do."""
    idle_priority: bool = False
    """The scheduler has not looked at it, as if it was held or for later."""

    @property
    def count(self) -> int:
        return count_tasks(self.tasks) if self.tasks else 1


@dataclass(frozen=True, slots=True)
class Limits:
    """What qstat does not list of a job."""

    at_once: int = 0
    """So many tasks may run at once; 0 if there is no limit."""
    not_before: float = 0.0


# --- qhost -q -j -xml -------------------------------------------------------------------------


def parse_hosts(text: str) -> dict[str, Host]:
    root = parsed_xml(text, "qhost", "qhost")
    hosts = [_host(one) for one in root.iter("host") if one.get("name") != EVERYWHERE]
    if root.find("host") is None:
        raise UnreadableError("qhost lists not even `global`")
    return {host.name: host for host in hosts}


def _host(element: Element) -> Host:
    values = {one.get("name"): (one.text or "").strip() for one in element.iter("hostvalue")}
    if not {"arch_string", "load_avg"} <= values.keys():
        raise UnreadableError(f"host {element.get('name')} has no arch_string or load_avg")
    queues = {_needed(one.get("name")): _queue_values(one) for one in element.iter("queue")}
    states = {name: one["state_string"] for name, one in queues.items()}
    silent = values["load_avg"] == UNKNOWN or any("u" in state for state in states.values())
    known = values["arch_string"] != UNKNOWN
    return Host(
        name=_needed(element.get("name")),
        known=known,
        heard=known and not silent,
        queues=states,
        used=sum(_number(one["slots_used"]) for one in queues.values()),
        jobs=tuple(dict.fromkeys(_job_on(one) for one in element.iter("job"))),
    )


def _queue_values(element: Element) -> dict[str, str]:
    found = {_needed(one.get("name")): (one.text or "").strip() for one in element}
    if not {"state_string", "slots_used"} <= found.keys():
        raise UnreadableError(f"queue {element.get('name')} has no state or slots")
    return found


def _job_on(element: Element) -> str:
    number = _needed(element.get("name"))
    tasks = [one.text or "" for one in element.iter("jobvalue") if one.get("name") == "taskid"]
    return f"{number}.{tasks[0].strip()}" if tasks else number


# --- qstat -u * -r -xml -----------------------------------------------------------------------


def parse_jobs(text: str) -> list[Listed]:
    root = parsed_xml(text, "qstat", "job_info")
    if root.find("queue_info") is None or root.find("job_info") is None:
        raise UnreadableError("qstat lists neither running nor waiting jobs")
    return [_job(one) for one in root.iter("job_list")]


def _job(element: Element) -> Listed:
    kind = element.get("state")
    if kind not in ("running", "pending"):
        raise UnreadableError(f"a job is {kind!r}")
    environment = element.find("requested_pe")
    requests = element.findall("hard_request")
    return Listed(
        number=str(_number(_text(element, "JB_job_number"))),
        state=_text(element, "state"),
        running=kind == "running",
        owner=_text(element, "JB_owner"),
        slots=_slots(element),
        tasks=(element.findtext("tasks") or "").strip(),
        instance=_instance(element),
        since=_time(element.findtext("JB_submission_time")),
        environment=_needed(environment.get("name")) if environment is not None else "",
        resources={_needed(one.get("name")): (one.text or "").strip() for one in requests},
        queues=tuple((one.text or "").strip() for one in element.findall("hard_req_queue")),
        idle_priority=_ZERO.fullmatch(_text(element, "JAT_prio")) is not None,
    )


def _slots(element: Element) -> int:
    """Of a range that waits (`-pe mpi 2-8`) the least: it starts with that. What is shown as its
    slots is as the site has it (urgency_slots), and may be more than there are."""
    shown = _number(_text(element, "slots"))
    asked = _NUMBER.match((element.findtext("requested_pe") or "").strip())
    return int(asked[0]) if asked and element.get("state") == "pending" else shown


def _instance(element: Element) -> str:
    """The queue instance that it runs in; of a parallel job, that of its first process."""
    found = (element.findtext("queue_name") or "").strip()
    if found and not _INSTANCE.fullmatch(found):
        raise UnreadableError(f"{found!r} is no queue instance")
    return found


def _time(text: str | None) -> float | None:
    if not text:
        return None
    try:
        return datetime.fromisoformat(text).replace(tzinfo=UTC).timestamp()
    except ValueError:
        raise UnreadableError(f"{text!r} is no time") from None


def count_tasks(text: str) -> int:
    """How many tasks `1-9:2,12` are."""
    return sum(len(_tasks(part)) for part in text.split(","))


def split_tasks(text: str, some: Iterable[int]) -> tuple[list[int], str]:
    """Those of `some` that are among the tasks; and the tasks without them."""
    found, rest = [], []
    wanted = sorted(some)
    for tasks in map(_tasks, text.split(",")):
        for task in wanted:
            if task in tasks:
                found.append(task)
                at = tasks.index(task)
                rest.append(tasks[:at])
                tasks = tasks[at + 1 :]
        rest.append(tasks)
    return found, ",".join(_written(tasks) for tasks in rest if tasks)


def _tasks(part: str) -> range:
    found = _TASKS.fullmatch(part)
    if not found:
        raise UnreadableError(f"{part[:80]!r} are no tasks")
    first, last, step = (int(one) if one else None for one in found.groups())
    return range(first or 0, (first or 0) + 1 if last is None else last + 1, step or 1)


def _written(tasks: range) -> str:
    return f"{tasks[0]}-{tasks[-1]}:{tasks.step}" if len(tasks) > 1 else str(tasks[0])


# --- qstat -j IDS -xml ------------------------------------------------------------------------


def parse_limits(text: str) -> dict[str, Limits]:
    """Of those jobs that were asked for and are not over."""
    root = parsed_xml(text, "qstat", "detailed_job_info", "unknown_jobs")
    jobs = root.findall("djob_info/element")
    return {_text(one, "JB_job_number"): _limits(one) for one in jobs}


def _limits(element: Element) -> Limits:
    at_once = element.findtext("JB_ja_task_concurrency") or "0"
    later = element.findtext("JB_execution_time") or "0"
    return Limits(_number(at_once), float(_number(later)))


def parse_version(text: str) -> str:
    """From the first line of any command's -help."""
    found = re.search(r"\d+(?:\.[0-9A-Za-z]+)+", text.partition("\n")[0])
    if not found:
        raise UnreadableError("no version in the first line of -help")
    return found.group()


# --- the parts of XML -------------------------------------------------------------------------


def _text(element: Element, tag: str) -> str:
    return _needed((element.findtext(tag) or "").strip(), tag)


def _needed(value: str | None, what: str = "name") -> str:
    if not value:
        raise UnreadableError(f"something has no {what}")
    return value


def _number(text: str) -> int:
    if not _NUMBER.fullmatch(text):
        raise UnreadableError(f"{text[:80]!r} is no number")
    return int(text)
