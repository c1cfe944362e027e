"""The programs that show, submit and change jobs."""

import getopt
import re
import sys
from collections.abc import Callable
from typing import Any

from tests.batch.torque_standin import scheduler, submitting, text
from tests.batch.torque_standin.calls import UNREACHED, VERSION, Call, Failed, say
from tests.batch.torque_standin.server import Server, opened

Json = dict[str, Any]

# qstat


def qstat(call: Call) -> int:
    if "--version" in call.arguments:
        return say(VERSION)
    options, names = getopt.gnu_getopt(call.arguments, "txQf1")
    flags = {option for option, _ in options}
    with opened(call.place) as server:
        if server.state["down"]:
            words = UNREACHED.format(name=server.name) * 3
            words += (
                f"qstat: cannot connect to server {server.name} (errno=111) Connection refused\n"
            )
            raise Failed(111, words + "qstat: Error (111 - Connection refused) \n")
        if "-Q" in flags:
            return say(text.queues_long(server))
        jobs = _selected(server, names)
        if "-t" not in flags:
            jobs = _folded(jobs)
        return say(text.jobs_xml(server, jobs) if "-x" in flags else text.jobs_short(jobs))


def _selected(server: Server, names: list[str]) -> list[Json]:
    jobs = list(server.jobs.values())
    for name in names:
        if name in server.state["queues"]:
            jobs = [job for job in jobs if job["queue"] == name]
        else:
            id = name if "." in name else f"{name}.{server.name}"
            if id not in server.jobs:
                raise Failed(153, f"qstat: Unknown Job Id Error {id}\n")
            jobs = [server.jobs[id]]
    return jobs


def _folded(jobs: list[Json]) -> list[Json]:
    """Without -t, an array is one job, and its members are not shown."""
    found: dict[str, Json] = {}
    for job in jobs:
        if job["task"] is None:
            found[job["id"]] = job
            continue
        id = re.sub(r"\[\d+\]", "[]", job["id"])
        one = found.setdefault(id, _whole(job, id))
        one["state"] = "R" if "R" in (one["state"], job["state"]) else one["state"]
    return list(found.values())


def _whole(member: Json, id: str) -> Json:
    """The array of a member: it has no node, and was not queued."""
    name = member["name"].rpartition("-")[0]
    own = {"id": id, "name": name, "task": None, "slots": {}, "comment": None, "array": True}
    kept = {key: value for key, value in member.items() if key not in ("used", "session")}
    kept.pop("start_time", None)
    return {**kept, **own}


# Jobs


def qsub(call: Call) -> int:
    script = "" if sys.stdin.isatty() else sys.stdin.read()
    if call.manager:
        raise Failed(
            159, "qsub: submit error (Bad UID for job execution MSG=root user not allowed)\n"
        )
    ask = submitting.parse(call.arguments)
    with opened(call.place) as server:
        if server.state["down"]:
            raise Failed(111, f"qsub: cannot connect to server {server.name} (errno=111)\n")
        spec = ask.resources.get("nodes", "1")
        if why := scheduler.infeasible(server, spec):
            words = f"Job exceeds queue resource limits MSG=cannot locate feasible nodes ({why})"
            raise Failed(190, f"qsub: submit error ({words})\n")
        id = submitting.submit(server, ask, call.user, script)
    return say(f"{id}\n")


def _each(call: Call, program: str, ids: list[str], act: Callable[[Server, Json], str]) -> int:
    code = 0
    for id in ids:
        with opened(call.place) as server:
            if server.state["down"]:
                raise Failed(
                    111, f"{program}: cannot connect to server {server.name} (errno=111)\n"
                )
            jobs = _named(server, id)
            words = "" if jobs else "Unknown Job Id"
            for job in jobs:
                words = words or act(server, job)
        if words:
            sys.stderr.write(f"{program}: {words} {id}\n")
            code = 170
    return code


def _named(server: Server, id: str) -> list[Json]:
    """A job, or all of an array."""
    id = id if "." in id else f"{id}.{server.name}"
    pattern = re.escape(id).replace(r"\[\]", r"\[\d+\]")
    return [job for key, job in server.jobs.items() if re.fullmatch(pattern, key)]


def qrerun(call: Call) -> int:
    _, ids = getopt.getopt(call.arguments, "f")

    def rerun(server: Server, job: Json) -> str:
        if not call.manager:
            return "Unauthorized Request "
        if job["state"] != "R":
            return "Request invalid for state of job"
        if not job["rerun"]:
            return "Job is not rerunnable"
        job["state"], job["slots"], job["begun"] = "Q", {}, False
        job.pop("start_time", None)
        return ""

    return _each(call, "qrerun", ids, rerun)


def qalter(call: Call) -> int:
    options, ids = getopt.getopt(call.arguments, "W:")
    key, _, value = dict(options)["-W"].partition("=")

    def alter(server: Server, job: Json) -> str:
        if job["state"] == "C":
            return "Request invalid for state of job"
        if key != "comment" or "=" in value:
            return "Undefined attribute "
        if not call.manager:
            return "Cannot set attribute, read only or insufficient permission  comment"
        job["comment"], job["kept"] = value, True
        return ""

    return _each(call, "qalter", ids, alter)


def qdel(call: Call) -> int:
    def delete(server: Server, job: Json) -> str:
        if not call.manager and call.user != job["user"]:
            return "Unauthorized Request "
        if job["state"] == "C":
            return "Request invalid for state of job"
        server.end(job)
        return ""

    return _each(call, "qdel", call.arguments, delete)


def qrls(call: Call) -> int:
    def release(server: Server, job: Json) -> str:
        if job["state"] == "H":
            job["state"], job["hold"] = "Q", "n"
        return ""

    return _each(call, "qrls", call.arguments, release)
