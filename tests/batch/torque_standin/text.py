"""What the programs print of nodes and jobs."""

from typing import Any
from xml.sax.saxutils import escape

from tests.batch.torque_standin.server import NOT_SENT, Server

Json = dict[str, Any]

HEAD = """\
Job ID                    Name             User            Time Use S Queue
------------------------- ---------------- --------------- -------- - -----
"""
WIDTH = 78
HOME = "/opt/site/home/tester"
PATH = "/opt/site/torque/bin:/opt/site/torque/sbin:/usr/sbin:/usr/bin:/sbin:/bin"


# Nodes


def state_of(server: Server, node: Json) -> str:
    words = [word for word in node["words"] if word != NOT_SENT]
    if node["np"] and not server.free_slots(node):
        words.append("job-exclusive")
    if NOT_SENT in node["words"]:
        words.append(NOT_SENT)
    return ",".join(words) or "free"


def attributes(server: Server, node: Json) -> dict[str, str]:
    jobs = [f"{_ranges(job['slots'][node['name']])}/{job['id']}" for job in server.on(node["name"])]
    found = {
        "state": state_of(server, node),
        "power_state": "Running",
        "np": str(node["np"]),
        "properties": node["properties"],
        "ntype": "cluster",
        "jobs": ",".join(jobs),
        "status": node["status"],
        "note": node["note"],
        "mom_service_port": "15002",
        "mom_manager_port": "15003",
    }
    return {key: value for key, value in found.items() if value}


def nodes_xml(server: Server, nodes: list[Json]) -> str:
    texts = []
    for node in nodes:
        tags = {"name": node["name"], **attributes(server, node)}
        texts.append(f"<Node>{_tags(tags)}</Node>")
    return f"<Data>{''.join(texts)}</Data>\n"


def nodes_long(server: Server, nodes: list[Json]) -> str:
    texts = []
    for node in nodes:
        lines = [f"     {key} = {value}\n" for key, value in attributes(server, node).items()]
        texts.append(f"{node['name']}\n{''.join(lines)}\n")
    return "".join(texts)


def nodes_short(server: Server, nodes: list[Json], notes: bool) -> str:
    lines = []
    for node in nodes:
        state = state_of(server, node)
        if notes and node["note"]:
            lines.append(f"{node['name']:<20.20} {state:<26.26} {node['note']}\n")
        else:
            lines.append(f"{node['name']:<20.20} {state}\n")
    return "".join(lines)


def _ranges(slots: list[int]) -> str:
    first, last = min(slots), max(slots)
    if len(slots) != last - first + 1:
        return ",".join(str(slot) for slot in slots)
    return str(first) if first == last else f"{first}-{last}"


# Jobs


def jobs_xml(server: Server, jobs: list[Json]) -> str:
    texts = [f"<Job>{_tags(job_tags(server, job))}</Job>" for job in jobs]
    return f'<?xml version="1.0"?>\n<Data>{"".join(texts)}</Data>\n'


def job_tags(server: Server, job: Json) -> Json:
    """In Torque's order; what a job has not is None."""
    host, times = server.name, job["ctime"]
    number, task = job["number"], job["task"]
    suffix = f"{number}-{task}" if task is not None else str(number)
    stem = job["name"] if task is None else job["name"].rpartition("-")[0]
    out = f"{host}:{HOME}/{stem}"
    started = job.get("start_time")
    array = "" if task is None else f"PBS_ARRAYID={task},"
    return {
        "Job_Id": job["id"],
        "Job_Name": job["name"],
        "Job_Owner": f"{job['user']}@{host}",
        "resources_used": job.get("used"),
        "job_state": job["state"],
        "queue": job["queue"],
        "server": host,
        "Checkpoint": "u",
        "ctime": times,
        "depend": job.get("depend"),
        "Error_Path": f"{out}.e{suffix}",
        "exec_host": _exec_host(job),
        "Hold_Types": job["hold"] if task is None or job["hold"] != "n" else None,
        "Join_Path": "n",
        "Keep_Files": "n",
        "Mail_Points": "a",
        "mtime": job["mtime"],
        "Output_Path": f"{out}.o{suffix}",
        "Priority": 0,
        "qtime": None if job.get("array") else times,
        "Rerunable": str(job["rerun"]),
        "Resource_List": job["resources"],
        "session_id": job.get("session"),
        "Variable_List": f"{array}PBS_O_QUEUE={job['queue']},PBS_O_HOME={HOME},PBS_O_PATH={PATH},"
        f"PBS_O_SHELL=/bin/bash,PBS_O_LANG=C.UTF-8,PBS_O_WORKDIR={HOME},PBS_O_HOST={host},"
        f"PBS_O_SERVER={host}",
        "euser": job["user"],
        "egroup": job["user"],
        "queue_type": "R" if server.state["queues"][job["queue"]]["route"] else "E",
        "comment": job["comment"],
        "etime": times if job["hold"] == "n" else None,
        "submit_args": job["submit_args"],
        "job_array_id": task,
        "job_array_request": job["request"] if job.get("array") else None,
        "start_time": started,
        "Walltime": _remaining(server, job),
        "start_count": 1 if started else None,
        "fault_tolerant": "False",
        "comp_time": job.get("comp_time"),
        "job_radix": 0,
        "submit_host": host,
        "init_work_dir": HOME,
        "request_version": 1,
    }


def _remaining(server: Server, job: Json) -> Json | None:
    """Of its time, if that is limited."""
    if not job.get("start_time") or "walltime" not in job["resources"]:
        return None
    hours, minutes, seconds = map(int, job["resources"]["walltime"].split(":"))
    spent = int(server.now()) - job["start_time"]
    return {"Remaining": hours * 3600 + minutes * 60 + seconds - spent}


def jobs_short(jobs: list[Json]) -> str:
    lines = [
        f"{job['id']:<26} {job['name']:<16.16} {job['user']:<15} "
        f"{'00:00:00' if job.get('start_time') else '0':>8} {job['state']} {job['queue']:<15}\n"
        for job in jobs
    ]
    return HEAD + "".join(lines) if lines else ""


def queues_long(server: Server) -> str:
    return "".join(_queue(server, name, queue) for name, queue in server.state["queues"].items())


def _queue(server: Server, name: str, queue: Json) -> str:
    jobs = [job for job in server.jobs.values() if job["queue"] == name]
    default = {f"resources_default.{key}": value for key, value in queue["default"].items()}
    values = {
        "queue_type": "Route" if queue["route"] else "Execution",
        "total_jobs": len(jobs),
        "state_count": _counts([job["state"] for job in jobs]),
        "route_destinations": queue["route"],
        "resources_default.neednodes": queue["neednodes"],
        **default,
        "mtime": queue["mtime"],
        **_assigned([job for job in jobs if job["state"] == "R"]),
        "enabled": True,
        "started": queue.get("started", True),
    }
    lines = [f"    {key} = {value}" for key, value in values.items() if value != ""]
    return "\n".join([f"Queue: {name}", *map(_broken, lines), "", ""])


def _counts(states: list[str]) -> str:
    words = {"Transit": "T", "Queued": "Q", "Held": "H", "Waiting": "W", "Running": "R"}
    words |= {"Exiting": "E", "Complete": "C"}
    return "".join(f"{word}:{states.count(letter)} " for word, letter in words.items())


def _assigned(running: list[Json]) -> dict[str, object]:
    """Resources of jobs that run."""
    nodes = sum(int(job["resources"]["nodect"]) for job in running)
    memory = sum(_bytes(job["resources"].get("mem", "0b")) for job in running)
    found: dict[str, object] = {"resources_assigned.nodect": nodes} if running else {}
    return found | ({"resources_assigned.mem": f"{memory}b"} if memory else {})


def _bytes(text: str) -> int:
    scale = {"k": 10, "m": 20, "g": 30}
    number, unit = text.rstrip("bkmg"), text.lstrip("0123456789")
    return int(number) << scale.get(unit[:1], 0)


def _broken(line: str) -> str:
    """A long line goes on in the next."""
    return line if len(line) <= WIDTH else f"{line[:WIDTH]}\n\t{line[WIDTH:]}"


def _exec_host(job: Json) -> str | None:
    hosts = [f"{name}/{_ranges(slots)}" for name, slots in sorted(job["slots"].items())]
    return "+".join(hosts) or None


def _tags(values: Json) -> str:
    return "".join(_tag(key, value) for key, value in values.items() if value is not None)


def _tag(key: str, value: object) -> str:
    inner = _tags(value) if isinstance(value, dict) else escape(str(value))
    return f"<{key}>{inner}</{key}>"
