"""Which jobs run where: in the order of their numbers, on the first nodes with room."""

from typing import Any

from tests.batch.openpbs_standin.show import clock, vnodes

State = dict[str, Any]
Wants = dict[str, Any]


def schedule(state: State) -> None:
    """One turn. Without any nodes the real one does not even comment."""
    if not (state["scheduling"] and state["nodes"]):
        return
    for job in state["jobs"].values():
        if job["state"] not in "QB" or job["hold"] != "n":
            continue
        queue = state["queues"][job["queue"]]
        if why := _shut(state, job, queue):
            _comment(state, job, f"Not Running: {why}")
        elif job.get("array"):
            _start_tasks(state, job)
        else:
            _start(state, job, job)


def _shut(state: State, job: State, queue: State) -> str:
    if queue["started"] != "True":
        return "Queue not started."
    running = sum(one["state"] == "R" for one in state["jobs"].values())
    if "max_run" in queue and running >= int(queue["max_run"]):
        return f"Queue {job['queue']} job limit has been reached."
    return ""


def _start_tasks(state: State, job: State) -> None:
    subjobs = job["array"]["subjobs"].values()
    for sub in subjobs:
        limit = job["array"]["limit"]
        if limit and sum(one["state"] == "R" for one in subjobs) >= limit:
            return
        if sub["state"] == "Q" and not _start(state, job, sub):
            return
    if any(sub["state"] == "R" for sub in subjobs):
        job["state"] = "B"


def _start(state: State, job: State, task: State) -> bool:
    found = _places(state, job)
    if found is None:
        _comment(state, task, _why(state, job))
        return False
    at = state["at"]
    task |= {"state": "R", "exec": found, "stime": at, "mtime": at, "runs": task.get("runs", 0) + 1}
    when = f"{clock(at)[:10]} at {clock(at)[11:16]}"
    task["comment"] = f"Job run at {when} on {vnodes(found)}"
    if job.get("array") and job["state"] != "B":
        job |= {"state": "B", "stime": at, "comment": f"Job Array Began at {when}"}
    if job.get("array"):
        job["mtime"] = at
    return True


def _comment(state: State, task: State, text: str) -> None:
    if task.get("comment") != text:
        task |= {"comment": text, "mtime": state["at"]}


def _places(state: State, job: State) -> list[tuple[str, Wants]] | None:
    place = str(job["resources"]["place"]).split(":")
    taken: list[tuple[str, Wants]] = []
    for wants in _chunks(job):
        for name, node in state["nodes"].items():
            apart = "scatter" in place and any(name == one for one, _ in taken)
            astray = "pack" in place and taken and name != taken[0][0]
            if not apart and not astray and _fits(state, node, job, wants, taken, place):
                taken.append((name, {**wants, "slot": _slot(state, name, taken)}))
                break
        else:
            return None
    return taken


def _slot(state: State, name: str, taken: list[tuple[str, Wants]]) -> int:
    """The first number of a part of a job that no other has on this node."""
    used = {wants["slot"] for _, wants, _ in on_node(state, name)}
    used |= {wants["slot"] for at, wants in taken if at == name}
    return next(number for number in range(len(used) + 1) if number not in used)


def _chunks(job: State) -> list[Wants]:
    return [wants for count, wants in job["chunks"] for _ in range(count)]


def _fits(
    state: State, node: State, job: State, wants: Wants, taken: list[Any], place: list[str]
) -> bool:
    if not node["alive"] or node["offline"] or (node["queue"] or job["queue"]) != job["queue"]:
        return False
    beside = on_node(state, node["name"])
    if beside and ("excl" in place or any("excl" in str(one[2]) for one in beside)):
        return False
    used = [one[1] for one in beside] + [one for name, one in taken if name == node["name"]]
    room = capacity(node)
    for key in ("ncpus", "mem"):
        if room[key] - sum(one[key] for one in used) < wants[key]:
            return False
    has = node["resources_available"]
    return all(value in str(has.get(key, "")).split(",") for key, value in wants["others"].items())


def capacity(node: State) -> dict[str, int]:
    """Cores, and memory in kb."""
    has = node["resources_available"]
    return {"ncpus": int(has.get("ncpus", 0)), "mem": kilobytes(str(has.get("mem", "0kb")))}


def kilobytes(text: str) -> int:
    scale = {"kb": 1, "mb": 1 << 10, "gb": 1 << 20}
    return int(text[:-2]) * scale[text[-2:]]


def on_node(state: State, name: str) -> list[tuple[str, Wants, str]]:
    """What runs there: id, what it has of the node, how it is placed."""
    found = []
    for id, job in state["jobs"].items():
        place = job["resources"]["place"]
        tasks = job["array"]["subjobs"].items() if job.get("array") else [("", job)]
        for index, task in tasks:
            if task["state"] == "R":
                own = id.replace("[]", f"[{index}]")
                found += [(own, wants, place) for at, wants in task["exec"] if at == name]
    return found


def _why(state: State, job: State) -> str:
    """In the scheduler's words, of the first resource that there is too little of."""
    up = [node for node in state["nodes"].values() if node["alive"]]
    for key in ("mem", "ncpus"):
        wanted = sum(wants[key] for wants in _chunks(job))
        total = sum(capacity(node)[key] for node in up)
        used = sum(one[1][key] for node in up for one in on_node(state, node["name"]))
        if wanted > total - used:
            asked = job["resources"]["mem"] if key == "mem" else wanted
            never = wanted > total  # then it does not count what is used
            left = _amount(key, up, 0 if never else used)
            numbers = f"(R: {asked} A: {left} T: {_amount(key, up, 0)})"
            words = "Can Never Run" if never else "Not Running"
            return f"{words}: Insufficient amount of resource: {key} {numbers}"
    return "Not Running: No available resources on nodes"


def _amount(key: str, nodes: list[State], used: int) -> str:
    """What nodes have of it; memory of each in whole megabytes, if there are several."""
    if key == "ncpus":
        return str(sum(capacity(node)[key] for node in nodes) - used)
    if len(nodes) < 2:
        return f"{sum(capacity(node)[key] for node in nodes) - used}kb"
    return f"{sum(capacity(node)[key] >> 10 for node in nodes) - (used >> 10)}mb"
