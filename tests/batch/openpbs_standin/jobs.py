"""qsub, qdel, qrerun, qalter and qstat."""

import os
from pathlib import Path
from typing import Any

from tests.batch.openpbs_standin import show
from tests.batch.openpbs_standin.nodes import REFUSED, Answer
from tests.batch.openpbs_standin.scheduler import State, kilobytes

UNKNOWN_JOB, UNAUTHORIZED, BAD_STATE, NO_RERUN, READ_ONLY = 15001, 15007, 15018, 15032, 15003
WORDS = {
    UNKNOWN_JOB: "Unknown Job Id",
    UNAUTHORIZED: "Unauthorized Request ",
    BAD_STATE: "Request invalid for state of job",
    NO_RERUN: "Job is not rerunable",
    READ_ONLY: "Cannot set attribute, read only or insufficient permission  comment",
}
SETTINGS = {
    "scheduler_iteration": 20,
    "flatuid": "True",
    "resv_enable": "True",
    "node_fail_requeue": 60,
    "max_array_size": 10000,
    "resend_term_delay": 5,
    "pbs_license_min": 0,
    "pbs_license_max": 2147483647,
    "pbs_license_linger_time": 31536000,
    "license_count": "Avail_Global:1000000 Avail_Local:1000000 Used:0 High_Use:0",
    "pbs_version": show.VERSION,
    "eligible_time_enable": "False",
    "job_history_enable": "True",
    "max_concurrent_provision": 5,
    "clear_topjob_estimates_enable": "False",
    "max_job_sequence_id": 9999999,
}
"""Of the server, which nobody changes."""
VALUES = ("-q", "-N", "-J", "-l", "-W", "-v", "-r")


# --- qsub ------------------------------------------------------------------------------------


def qsub(state: State, arguments: list[str], user: str) -> Answer:
    if not state["up"]:
        error = f"qsub: cannot connect to server {show.SERVER} (errno=15010)\n"
        return 255, "", REFUSED + error
    options, script = _options(arguments)
    queue = options.get("-q", ["workq"])[0]
    if queue not in state["queues"]:
        return 20, "", "qsub: Unknown queue\n"
    number, at = state["next"], state["at"]
    state["next"] += 1
    array = _array(options["-J"][0]) if "-J" in options else None
    name = options.get("-N", [Path(script[0]).name if script else "STDIN"])[0]
    resources = _resources(dict(one.split("=", 1) for one in options.get("-l", [])))
    marks = state["queues"][queue].get("default_chunk", {})
    chunks = [_chunk(text, marks) for text in str(resources["select"]).split("+")]
    _total(resources, chunks)
    job: State = {
        "number": number,
        "name": name,
        "user": user,
        "state": "Q",
        "queue": queue,
        "ctime": at,
        "mtime": at,
        "hold": "u" if "-h" in options else "n",
        "rerunable": options.get("-r", ["y"])[0] == "y",
        "resources": dict(sorted(resources.items())),
        "chunks": chunks,
        "schedselect": _marked(str(resources["select"]), marks),
        "env": _environment(queue, options, raw=state["raw"]),
        "arguments": " ".join(arguments),
        "array": array,
    }
    id = f"{number}{'[]' if array else ''}.{show.SERVER}"
    for depend in options.get("-W", []):
        _depend(state, id, job, depend.partition("depend=")[2])
    job["state"] = "H" if job["hold"] != "n" else "Q"
    state["jobs"][id] = job
    state["turn"] = True
    return 0, f"{id}\n", ""


def _options(arguments: list[str]) -> tuple[dict[str, list[str]], list[str]]:
    options: dict[str, list[str]] = {}
    rest = list(arguments)
    while rest and rest[0].startswith("-"):
        option = rest.pop(0)
        values = options.setdefault(option, [])
        if option in VALUES:
            values.append(rest.pop(0))
    return options, rest


def _array(text: str) -> State:
    """0-9, or 0-9%2 if only two may run at once."""
    span, _, limit = text.partition("%")
    first, last = (int(number) for number in span.split("-"))
    tasks = {str(index): {"state": "Q"} for index in range(first, last + 1)}
    return {"range": span, "limit": int(limit or 0), "subjobs": tasks}


def _resources(asked: dict[str, str]) -> State:
    found: State = {k: v for k, v in asked.items() if k not in ("mem", "ncpus")}
    if "nodes" in asked:
        count, _, cores = asked["nodes"].partition(":ppn=")
        found |= {"mpiprocs": int(count) * int(cores), "place": "scatter"}
        found["select"] = f"{count}:ncpus={cores}:mpiprocs={cores}"
    found.setdefault("place", "free" if "select" in asked else "pack")
    memory = f":mem={asked['mem']}" if "mem" in asked else ""
    found.setdefault("select", f"1:ncpus={asked.get('ncpus', 1)}{memory}")
    return found


def _chunk(text: str, marks: dict[str, str]) -> tuple[int, State]:
    head, *rest = text.split(":")
    wants = dict(one.split("=", 1) for one in ([head, *rest] if "=" in head else rest))
    plain = {"ncpus", "mem", "mpiprocs", "ompthreads"}
    others = {k: v.strip('"') for k, v in wants.items() if k not in plain}
    return int(head) if head.isdigit() else 1, {
        "ncpus": int(wants.get("ncpus", 1)),
        "mem": kilobytes(wants["mem"]) if "mem" in wants else 0,
        "others": {**marks, **others},
    }


def _total(resources: State, chunks: list[tuple[int, State]]) -> None:
    resources["ncpus"] = sum(count * wants["ncpus"] for count, wants in chunks)
    resources["nodect"] = sum(count for count, _ in chunks)
    if memory := sum(count * wants["mem"] for count, wants in chunks):
        scale, unit = next(
            s for s in ((1 << 20, "gb"), (1 << 10, "mb"), (1, "kb")) if not memory % s[0]
        )
        resources["mem"] = f"{memory // scale}{unit}"


def _marked(select: str, marks: dict[str, str]) -> str:
    tail = "".join(f":{key}={value}" for key, value in marks.items())
    return "+".join(f"{chunk}{tail}" for chunk in select.split("+"))


def _environment(queue: str, options: dict[str, list[str]], *, raw: bool) -> dict[str, str]:
    found = {f"PBS_O_{key}": os.environ.get(key, "") for key in ("HOME", "LANG", "PATH", "SHELL")}
    found |= {"PBS_O_INTERACTIVE_AUTH_METHOD": "resvport"}
    found |= {"PBS_O_INTERACTIVE_ENCRYPT_METHOD": "", "PBS_O_WORKDIR": os.environ.get("PWD", "/")}
    found |= {"PBS_O_SYSTEM": "Linux"}
    for names in options.get("-v", []):
        pairs = (name.partition("=") for name in names.split(","))
        given = {name: value or os.environ.get(name, "") for name, _, value in pairs}
        found |= {n: v if raw else _passed_on(_quoted(v)) for n, v in given.items()}
    if "-V" in options:
        others = {k: v for k, v in os.environ.items() if f"PBS_O_{k}" not in found}
        found |= {name: _quoted(value) for name, value in others.items() if name != "PWD"}
    return found | {"PBS_O_QUEUE": queue, "PBS_O_HOST": show.SERVER}


def _quoted(value: str) -> str:
    return value.replace("\\", "\\\\").replace('"', '\\"')


def _passed_on(value: str) -> str:
    """What is named with -v is quoted twice, and loses its quotes."""
    return value.replace("\\", "\\\\").replace('"', "")


def _depend(state: State, id: str, job: State, text: str) -> None:
    kind, _, other = text.partition(":")
    other = other if "." in other else f"{other}.{show.SERVER}"
    job |= {"hold": "s", "depend": f"{kind}:{other}@{show.SERVER}", "after": other}
    if other in state["jobs"]:
        back = f"before{kind.removeprefix('after')}:{id}@{show.SERVER}"
        state["jobs"][other] |= {"depend": back, "mtime": state["at"]}


# --- what is done to jobs --------------------------------------------------------------------


def qdel(state: State, ids: list[str], user: str) -> Answer:
    def delete(id: str, job: State, index: str) -> int:
        if user not in ("root", job["user"]):
            return UNAUTHORIZED
        over(state, id, index)
        return 0

    return _each(state, "qdel", ids, delete)


def over(state: State, id: str, index: str = "") -> None:
    """A job, a task of an array, or all that is left of one has ended."""
    job = state["jobs"][id]
    state["turn"] = True
    if index:
        at, sub = state["at"], job["array"]["subjobs"][index]
        sub |= {"state": "X", "obittime": at, "mtime": at, "ended": True}
        sub["comment"] = f"{sub.get('comment', '')} and finished"
        job |= {"mtime": at, "ended": True}
        if any(sub["state"] != "X" for sub in job["array"]["subjobs"].values()):
            return
    del state["jobs"][id]
    for other in state["jobs"].values():
        if other.get("after") == id:
            other |= {"hold": "n", "state": "Q", "after": None, "depend": None}


def qrerun(state: State, arguments: list[str], user: str) -> Answer:
    def rerun(id: str, job: State, index: str) -> int:
        task = job["array"]["subjobs"][index] if index else job
        if user != "root":
            return UNAUTHORIZED
        if task["state"] != "R":
            return BAD_STATE
        if not job["rerunable"]:
            return NO_RERUN
        task |= {"state": "Q", "exec": [], "comment": ""}
        state["turn"] = True
        return 0

    return _each(state, "qrerun", [a for a in arguments if a not in ("-W", "force")], rerun)


def qalter(state: State, arguments: list[str], user: str) -> Answer:
    option, text, *ids = arguments
    name, _, comment = text.partition("=")
    if (option, name) != ("-W", "comment") or any(sign in comment for sign in ",=\"'"):
        return 2, "", "qalter: illegal -W value\n"

    def alter(id: str, job: State, index: str) -> int:
        if user != "root":
            return READ_ONLY
        job["comment"] = comment
        return 0

    return _each(state, "qalter", ids, alter)


def _each(state: State, program: str, ids: list[str], act: Any) -> Answer:
    if not state["up"]:
        error = f"{program}: cannot connect to server {show.SERVER} (errno=15010)\n"
        return 15010 % 256, "", REFUSED + error
    code, errors = 0, ""
    for asked in ids:
        id = asked if "." in asked else f"{asked}.{show.SERVER}"
        stem, _, rest = id.partition("[")
        index = rest.partition("]")[0]
        own = f"{stem}[].{show.SERVER}" if rest else id
        wrong = act(own, state["jobs"][own], index) if own in state["jobs"] else UNKNOWN_JOB
        if wrong:
            errors += f"{program}: {WORDS[wrong]} {id}\n"
            code = wrong % 256
    return code, "", errors


# --- qstat -----------------------------------------------------------------------------------


def qstat(state: State, arguments: list[str], user: str) -> Answer:
    json = "json" in arguments
    if not state["up"]:
        error = f"qstat: cannot connect to server {show.SERVER} (errno=15010)\n"
        return 255, show.document(state["at"], None, {}) if json else "", REFUSED + error
    if "-B" in arguments:
        return 0, show.document(state["at"], "Server", {show.SERVER: _server(state)}), ""
    if "-Q" in arguments:
        queues = {name: _queue(state, name, one) for name, one in state["queues"].items()}
        return 0, show.document(state["at"], "Queue", queues), ""
    if not json:
        return 0, show.job_table(state["jobs"]), ""
    wanted = [f"{one}.{show.SERVER}" for one in arguments if one.isdigit()]
    shown = _jobs(state, wanted, tasks="-t" in arguments, manager=user == "root")
    part = "Jobs" if shown else None
    return 0, show.document(state["at"], part, shown, raw=state["raw"]), ""


def _jobs(state: State, wanted: list[str], *, tasks: bool, manager: bool) -> dict[str, Any]:
    shown: dict[str, Any] = {}
    for id, job in state["jobs"].items():
        if wanted and id not in wanted:
            continue
        shown[id] = show.job_attributes(job, manager=manager)
        for index in job["array"]["subjobs"] if tasks and job["array"] else ():
            own = id.replace("[]", f"[{index}]")
            shown[own] = show.subjob_attributes(id, job, index, manager=manager)
    return shown


def _counts(state: State, queue: str | None = None) -> dict[str, Any]:
    jobs = [job["state"] for job in state["jobs"].values() if queue in (None, job["queue"])]
    words = {"Queued": "Q", "Held": "H", "Waiting": "W", "Running": "R", "Exiting": "E"}
    counts = "".join(f"{word}:{jobs.count(letter)} " for word, letter in words.items())
    begun = f"Transit:0 {counts}Begun:{jobs.count('B')} "
    return {"total_jobs": len(jobs), "state_count": begun}


def _assigned(state: State, queue: str | None = None) -> dict[str, Any]:
    """What jobs have that run."""
    jobs = [job for job in state["jobs"].values() if queue in (None, job["queue"])]
    tasks = [t for job in jobs for t in (*_tasks(job), job) if t["state"] == "R"]
    parts = [wants for task in tasks for _, wants in task["exec"]]
    if not parts:
        return {}
    memory, cores = (sum(wants[key] for wants in parts) for key in ("mem", "ncpus"))
    found = {"mem": f"{memory}kb", "mpiprocs": 0, "ncpus": cores, "nodect": len(parts)}
    return {"resources_assigned": found}


def _tasks(job: State) -> list[State]:
    return list(job["array"]["subjobs"].values()) if job["array"] else []


def _queue(state: State, name: str, queue: State) -> dict[str, Any]:
    rest = {key: value for key, value in queue.items() if key != "queue_type"}
    last = {key: rest.pop(key) for key in ("enabled", "started")}
    rest |= _assigned(state, name)
    return {"queue_type": queue["queue_type"], **_counts(state, name), **rest, **last}


def _server(state: State) -> dict[str, Any]:
    return {
        "server_state": "Active",
        "server_host": show.SERVER,
        "scheduling": str(state["scheduling"]),
        **_counts(state),
        "default_queue": "workq",
        "log_events": 511,
        "mailer": "/usr/sbin/sendmail",
        "mail_from": "adm",
        "query_other_jobs": "True",
        "resources_default": {"ncpus": 1},
        "default_chunk": {"ncpus": 1},
        **_assigned(state),
        **SETTINGS,
    }
