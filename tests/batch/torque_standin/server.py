"""The server: nodes, jobs and queues, and what becomes of them as time goes on."""

import fcntl
import json
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TextIO

from tests.batch.torque_standin import scheduler

Json = dict[str, Any]

NOT_SENT = "MOM-list-not-sent"
FRESH = ["down", "offline", NOT_SENT]
TIMES = {
    "settle_s": 0.4,  # until others are told of a new node; 20 s in earnest
    "report_s": 0.3,  # between two reports of a pbs_mom; 45 s in earnest
    "refused_s": 4.5,  # until one that was refused reports again; 45 s in earnest
    "silence_s": 2.0,  # until a node that does not report is down; minutes in earnest
    "delete_s": 1.0,  # how long the jobs of a deleted node are waited for; 120 s in earnest
    "turn_s": 0.5,  # between two looks of the scheduler
}
QUEUE = {"neednodes": "", "route": "", "default": {}, "mtime": 1794765682}
"""One that takes and starts jobs. Nobody looks at when it was changed: it is as recorded."""
STATUS = (
    "opsys=linux,uname=Linux {name},ncpus={np},state=free,version=6.1.3.h5,rectime={at},jobs={jobs}"
)


def create(place: Path, **times: float) -> None:
    """A server without nodes, and with the queues `batch` and `cloud`."""
    (place / "moms").mkdir(parents=True)
    state = {
        "name": "trqsrv",
        "times": {**TIMES, **times},
        "nodes": {},
        "jobs": {},
        "next": 0,
        "queues": {
            "batch": {**QUEUE, "default": {"walltime": "01:00:00", "nodes": "1"}},
            "cloud": QUEUE,
        },
        "doomed": {},
        "refused": {},
        "turn_at": 0.0,
        "scheduling": True,
        "frozen": None,
        "down": False,
        "hosts": None,
    }
    (place / "server.json").write_text(json.dumps(state))
    (place / "lock").touch()
    for path in (place, place / "moms", place / "lock", place / "server.json"):
        path.chmod(0o777 if path.is_dir() else 0o666)


@contextmanager
def opened(place: Path) -> Iterator["Server"]:
    """The state as of now; what is changed in it is kept, whole or not at all: whoever has it open
    may be killed at any moment."""
    path, hidden = place / "server.json", place / ".server.json"
    with (place / "lock").open("r+") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        server = Server(json.loads(path.read_text()), place / "moms")
        server.go_on()
        yield server
        hidden.unlink(missing_ok=True)
        hidden.write_text(json.dumps(server.state))
        hidden.chmod(0o666)
        hidden.rename(path)


class Server:
    """One look at the state, under its lock."""

    def __init__(self, state: Json, moms: Path) -> None:
        self.state = state
        self.moms = moms
        self.nodes: dict[str, Json] = state["nodes"]
        self.jobs: dict[str, Json] = state["jobs"]
        self.times: dict[str, float] = state["times"]

    @property
    def name(self) -> str:
        return str(self.state["name"])

    def now(self) -> float:
        frozen = self.state["frozen"]
        return time.time() if frozen is None else float(frozen)

    def go_on(self) -> None:
        """What has happened since the last look."""
        if self.state["down"]:
            return
        self._delete_doomed()
        for node in self.nodes.values():
            self._age(node)
        moms = sorted(path.name for path in self.moms.iterdir())
        kept = self.state["refused"]
        self.state["refused"] = {name: kept[name] for name in moms if name in kept}
        for name in moms:
            self._listen(name)
        self._forget_jobs()
        if self.now() >= self.state["turn_at"] + self.times["turn_s"]:
            self.schedule()

    def schedule(self) -> None:
        self.state["turn_at"] = self.now()
        if self.state["scheduling"]:
            scheduler.turn(self)

    # Nodes

    def add_node(self, name: str, np: int, properties: str) -> None:
        self.nodes[name] = {
            "name": name,
            "words": list(FRESH),
            "np": np,
            "properties": properties,
            "status": None,
            "note": None,
            "heard_at": 0.0,
            "address": self.address(name),
            "sent_at": self.now() + self.times["settle_s"],
        }

    def address(self, name: str) -> str | None:
        """What its name resolves to now; None if that does not matter, or to nothing."""
        return (self._hosts() or {}).get(name)

    def _hosts(self) -> dict[str, str] | None:
        """Names and addresses as a test has them, or by a hosts file."""
        hosts: dict[str, str] | str | None = self.state["hosts"]
        if not isinstance(hosts, str):
            return hosts
        lines = [line.split() for line in Path(hosts).read_text().splitlines()]
        pairs = [(name, words[0]) for words in lines for name in words[1:] if words[0] != "#"]
        return dict(reversed(pairs))

    def machine(self, name: str) -> str | None:
        """Where its pbs_mom is: as that says, or else where the name leads."""
        try:
            said = (self.moms / name).read_text().split()[1:]
        except FileNotFoundError:
            said = []
        return said[0] if said and self.state["hosts"] is not None else self.address(name)

    def resolves(self, name: str) -> bool:
        hosts = self._hosts()
        return hosts is None or name in hosts

    def _age(self, node: Json) -> None:
        words = node["words"]
        now = self.now()
        if NOT_SENT in words:
            if now < node["sent_at"]:
                return
            node["words"] = words = ["down"]
        silent = not self.alive(node["name"]) or not self._trusts(node["name"])
        if silent and node["heard_at"] and now >= node["heard_at"] + self.times["silence_s"]:
            _add(words, "down")

    def _trusts(self, name: str) -> bool:
        """It trusts the address that the name had when the node was created, or when it started
        itself, whichever was later."""
        return name in self.nodes and self.nodes[name]["address"] == self.machine(name)

    def _listen(self, name: str) -> None:
        """To a pbs_mom, which reports when it starts; one that is refused does not try again for
        long."""
        refused, now = self.state["refused"], self.now()
        if not self.alive(name):
            refused.pop(name, None)
        elif now < refused.get(name, 0.0) + self.times["refused_s"]:
            return
        elif not self._trusts(name):
            refused[name] = now
            self.state.setdefault("ever_refused", []).append(name)
        elif now >= self._reports_at(self.nodes[name]):
            self.hear(self.nodes[name])

    def _reports_at(self, node: Json) -> float:
        if NOT_SENT in node["words"]:
            return float(node["sent_at"])
        return float(node["heard_at"] + self.times["report_s"])

    def hear(self, node: Json) -> None:
        node["heard_at"] = self.now()
        on_it = " ".join(job["id"] for job in self.on(node["name"]))
        node["status"] = STATUS.format(
            name=node["name"], np=node["np"], at=int(self.now()), jobs=on_it
        )
        _remove(node["words"], "down")

    def alive(self, name: str) -> bool:
        """A mom of a test is there while its file is; a program holds a lock on what it wrote."""
        try:
            trace = (self.moms / name).open()
        except FileNotFoundError:
            return False
        with trace:
            return not trace.read() or _is_locked(trace)

    def on(self, name: str) -> list[Json]:
        return [job for job in self.jobs.values() if name in job["slots"]]

    def free_slots(self, node: Json) -> list[int]:
        used = {slot for job in self.on(node["name"]) for slot in job["slots"][node["name"]]}
        return [slot for slot in range(node["np"]) if slot not in used]

    def doom(self, name: str) -> bool:
        """Whether a node that is to be deleted has jobs, and is waited for."""
        if not self.on(name):
            del self.nodes[name]
            return False
        self.state["doomed"][name] = self.now() + self.times["delete_s"]
        return True

    def _delete_doomed(self) -> None:
        """The jobs of a node are purged with it, whether or not anybody still waits."""
        for name, due in list(self.state["doomed"].items()):
            if self.now() >= due:
                del self.state["doomed"][name]
                for job in self.on(name):
                    del self.jobs[job["id"]]
                    self.state.setdefault("purged", []).append(job["id"])
                self.nodes.pop(name, None)

    def stop(self) -> None:
        self.state["down"] = True

    def start(self) -> None:
        """It knows of no reports any more, and nothing of lists that were not sent. All names are
        resolved anew."""
        self.state["down"] = False
        for node in self.nodes.values():
            offline = "offline" in node["words"] and NOT_SENT not in node["words"]
            node["words"] = ["down", *["offline"] * offline]
            node["status"], node["heard_at"] = None, 0.0
            node["address"] = self.address(node["name"])

    # Jobs

    def end(self, job: Json) -> None:
        job["state"], job["slots"], job["comp_time"] = "C", {}, int(self.now())
        for other in self.jobs.values():
            if job["id"] in other.get("waits_for", ()):
                other["waits_for"].remove(job["id"])
                if not other["waits_for"] and other["state"] == "H":
                    other["state"], other["hold"] = "Q", "n"

    def _forget_jobs(self) -> None:
        for job in list(self.jobs.values()):
            if job["state"] == "C" and self.now() >= job["comp_time"] + 60:
                del self.jobs[job["id"]]


def _is_locked(file: TextIO) -> bool:
    try:
        fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    return False


def _add(words: list[str], word: str) -> None:
    if word not in words:
        words.insert(0, word)


def _remove(words: list[str], word: str) -> None:
    if word in words:
        words.remove(word)
