"""What the commands print, as the real ones do: documents, lists, and the attributes in order."""

import json
import time
from typing import Any

VERSION = "23.06.06"
SERVER = "pbssrv"
PORT = 15002
UNUSED = ("accelerator_memory", "hbmem", "mem", "naccelerators", "ncpus", "vmem")


def clock(at: float) -> str:
    """As ctime prints it."""
    return time.strftime("%a %b %e %H:%M:%S %Y", time.gmtime(at))


def document(at: float, part: str | None, objects: dict[str, Any], *, raw: bool = False) -> str:
    """`raw` is how versions before 20 print the environment of jobs: without quoting."""
    head: dict[str, Any] = {"timestamp": int(at), "pbs_version": VERSION, "pbs_server": SERVER}
    if part is not None:
        head[part] = objects
    return _value(head, 0, raw) + "\n"


def _value(value: Any, depth: int, raw: bool) -> str:
    if isinstance(value, dict):
        return _object(value, depth, raw)
    if isinstance(value, list):
        return "[" + ", ".join(_value(one, depth, raw) for one in value) + "]"
    return json.dumps(value, ensure_ascii=False)


def _object(value: dict[str, Any], depth: int, raw: bool) -> str:
    edge = "\n" + "\t" * (depth + 1)
    lines = []
    for key, one in value.items():
        if raw and key == "Variable_List":
            text = _unquoted(one, edge)
        else:
            text = _value(one, depth + 1, raw)
        lines.append(f'{edge}"{key}":\t{text}')
    return "{" + ",".join(lines) + "\n" + "\t" * depth + "}"


def _unquoted(variables: dict[str, str], edge: str) -> str:
    lines = (f'"{k}":\t{v}' if v.isdigit() else f'"{k}":\t"{v}"' for k, v in variables.items())
    return "{" + ",".join(f"{edge}\t{line}" for line in lines) + edge + "}"


# --- nodes -----------------------------------------------------------------------------------


def node_text(name: str, shown: dict[str, Any]) -> str:
    """A node without a format: each attribute on a line, resources one by one."""
    lines = [name]
    for key, value in shown.items():
        if key == "resources_assigned":
            value = {one: value.get(one, 0 if one.startswith("n") else "0kb") for one in UNUSED}
        if key == "jobs":
            value = ", ".join(value)
        if key == "last_state_change_time":
            value = clock(value)
        pairs = value.items() if isinstance(value, dict) else [(None, value)]
        lines += [f"     {key}{f'.{part}' if part else ''} = {one}" for part, one in pairs]
    return "\n".join(lines) + "\n\n"


# --- jobs ------------------------------------------------------------------------------------


def job_table(jobs: dict[str, dict[str, Any]]) -> str:
    if not jobs:
        return ""
    head = (
        "Job id            Name             User              Time Use S Queue\n"
        "----------------  ---------------- ----------------  -------- - -----\n"
    )
    return head + "".join(_row(id, job) for id, job in jobs.items())


def _row(id: str, job: dict[str, Any]) -> str:
    used = "00:00:00" if job["state"] == "R" else "0"
    name, user = job["name"], job["user"]
    return (
        f"{id:<16.16}  {name:<16.16} {user:<16.16}  {used:>8} {job['state']} {job['queue']:<16}\n"
    )


def job_attributes(job: dict[str, Any], *, manager: bool) -> dict[str, Any]:
    """All of one job, or of an array."""
    array, stem = job.get("array"), f"{SERVER}:{job['env']['PBS_O_WORKDIR']}/{job['name']}"
    tail = f"{job['number']}" + (".^array_index^" if array else "")
    shown: dict[str, Any] = {"Job_Name": job["name"], "Job_Owner": f"{job['user']}@{SERVER}"}
    shown |= {"resources_used": job["used"]} if job.get("used") else {}
    shown |= {"job_state": job["state"], "queue": job["queue"], "server": SERVER}
    shown |= {"Checkpoint": "u", "ctime": clock(job["ctime"])}
    shown |= {"depend": job["depend"]} if job.get("depend") else {}
    shown |= {"Error_Path": f"{stem}.e{tail}"} | _where(job)
    shown |= {"Hold_Types": job["hold"], "Join_Path": "n", "Keep_Files": "n", "Mail_Points": "a"}
    shown |= {"mtime": clock(job["mtime"]), "Output_Path": f"{stem}.o{tail}", "Priority": 0}
    shown |= {"qtime": clock(job["ctime"]), "Rerunable": str(job["rerunable"])}
    shown["Resource_List"] = job["resources"]
    shown |= {key: clock(job[key]) for key in ("stime", "obittime") if job.get(key)}
    if job.get("session"):
        shown |= {"session_id": job["session"], "jobdir": job["env"]["PBS_O_WORKDIR"]}
    waits = job["state"] in "QH"
    shown |= {"schedselect": job["schedselect"]} if manager and waits else {}
    shown |= {"substate": _substate(job), "Variable_List": job["env"]}
    if manager:
        shown |= {"euser": job["user"], "egroup": job["user"]}
        shown |= {"queue_rank": int(job["ctime"] * 1_000_000), "queue_type": "E"}
    shown |= {"comment": job["comment"]} if job.get("comment") else {}
    shown |= {} if job["hold"] != "n" else {"etime": clock(job["ctime"])}
    shown |= {"run_count": job["runs"]} if job.get("runs") else {}
    shown |= {"Stageout_status": 1, "Exit_status": 0} if job.get("ended") else {}
    shown["Submit_arguments"] = job["arguments"]
    shown |= _array(job) if array else {}
    return shown | {"project": "_pbs_project_default", "Submit_Host": SERVER}


def subjob_attributes(id: str, job: dict[str, Any], index: str, *, manager: bool) -> dict[str, Any]:
    """One of an array; those that wait show what their array has."""
    sub = job["array"]["subjobs"][index]
    own = {"depend": None, "array": None, "ended": False, "stime": None, "comment": ""}
    shown = job_attributes({**job, **own, "mtime": job["ctime"], **sub}, manager=manager)
    if sub["state"] == "Q":
        for path in ("Error_Path", "Output_Path"):
            shown[path] += ".^array_index^"
        return {k: v for k, v in shown.items() if k not in ("project", "Submit_Host")}
    for path in ("Error_Path", "Output_Path"):
        shown[path] += f".{index}"
    for key in ("Checkpoint", "Hold_Types", "Submit_arguments"):
        del shown[key]
    rest: dict[str, Any] = {"array_id": id, "array_index": int(index)}
    rest |= {"history_timestamp": int(sub["obittime"])} if sub.get("obittime") else {}
    tail = {key: shown.pop(key) for key in ("project", "Submit_Host")}
    return shown | rest | tail


def _where(job: dict[str, Any]) -> dict[str, str]:
    if not job.get("exec"):
        return {}
    hosts = "+".join(
        f"{name}/{wants['slot']}" + (f"*{wants['ncpus']}" if wants["ncpus"] > 1 else "")
        for name, wants in job["exec"]
    )
    return {"exec_host": hosts, "exec_vnode": vnodes(job["exec"])}


def vnodes(places: list[tuple[str, dict[str, Any]]]) -> str:
    """What a job has of which nodes."""
    memory = [f":mem={wants['mem']}kb" if wants["mem"] else "" for _, wants in places]
    return "+".join(
        f"({name}:ncpus={wants['ncpus']}{more})"
        for (name, wants), more in zip(places, memory, strict=True)
    )


def _substate(job: dict[str, Any]) -> int:
    if job["state"] == "H":
        return 22 if job["hold"] == "s" else 20
    if job["state"] == "R" and job.get("starting"):
        return 41
    return {"Q": 10, "R": 42, "X": 92, "B": 70}[job["state"]]


def _array(job: dict[str, Any]) -> dict[str, Any]:
    array = job["array"]
    states = [sub["state"] for sub in array["subjobs"].values()]
    left = [int(index) for index, sub in array["subjobs"].items() if sub["state"] == "Q"]
    counts = f"Queued:{states.count('Q')} Running:{states.count('R')} Exiting:0"
    shown = {
        "array": "True",
        "array_state_count": f"{counts} Expired:{states.count('X')}",
        "array_indices_submitted": array["range"],
        "array_indices_remaining": f"{left[0]}-{left[-1]}" if left else "-",
    }
    return shown | ({"max_run_subjobs": array["limit"]} if array["limit"] else {})
