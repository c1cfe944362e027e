"""What a run of Ansible says, event by event: how far it is, and what became of each node. Pure.

Fed by `configure.ansible` with the events of ansible-runner.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from springtide.configure.ansible_inventory import END

LONGEST = 300
"""Characters of a message that people are told."""
UNREACHED = "not reached over ssh"
GIVEN_UP = "a playbook ended before it was this node's turn; see what failed on others"


@dataclass(slots=True)
class Course:
    """One run so far."""

    failed: dict[str, str] = field(default_factory=dict)
    """By host, the task that failed and its message."""
    through: set[str] = field(default_factory=set)
    """Hosts that came to the end of all playbooks."""
    stats: Mapping[str, Any] | None = None
    """What Ansible counted at the end; None before that."""
    words: str = ""
    """The last complaint that was no host's."""

    def feed(self, event: Mapping[str, Any]) -> tuple[str, str]:
        """Take one event; answers what is to be told of it, and of which host, if of one."""
        data = event.get("event_data") or {}
        match event.get("event"):
            case "playbook_on_task_start":
                return "", render_task(data)
            case "runner_on_failed" if not data.get("ignore_errors"):
                return self._fail(data, f"{render_task(data)}: {message(data.get('res'))}")
            case "runner_on_unreachable":
                return self._fail(data, f"{UNREACHED}: {message(data.get('res'))}")
            case "runner_on_ok" if data.get("task") == END:
                self.through.add(str(data.get("host")))
            case "playbook_on_stats":
                self.stats = data
            case "error" | "verbose" | "warning":
                self._hear(str(event.get("stdout") or ""))
        return "", ""

    def _fail(self, data: Mapping[str, Any], why: str) -> tuple[str, str]:
        """The last failure counts: those before it were rescued."""
        host = str(data.get("host"))
        self.failed[host] = why
        return host, f"failed: {why}"

    def _hear(self, text: str) -> None:
        lines = [line.strip() for line in text.splitlines()]
        found = [line for line in lines if line.startswith(("ERROR", "[ERROR]", "fatal"))]
        if found and not self.words:
            self.words = found[0][:LONGEST]

    def fallen(self, hosts: Iterable[str], ending: str) -> dict[str, str]:
        """Hosts that are not configured, and why; `ending` is how the run ended."""
        why = {host: self._why(host, ending) for host in hosts}
        return {host: reason for host, reason in why.items() if reason}

    def _why(self, host: str, ending: str) -> str:
        known = self.failed.get(host, "")
        if self.stats is None:
            return known or f"Ansible did not finish: {self.words or ending}"
        if self._counted("failures", host) or self._counted("dark", host):
            return known or f"Ansible failed on it and did not say why: {ending}"
        return "" if host in self.through else GIVEN_UP

    def _counted(self, what: str, host: str) -> bool:
        return bool((self.stats or {}).get(what, {}).get(host))

    @property
    def changed(self) -> dict[str, int]:
        """How much was changed, by host."""
        return {host: int(count) for host, count in (self.stats or {}).get("changed", {}).items()}


def render_task(data: Mapping[str, Any]) -> str:
    """Where a run is, in words."""
    task = str(data.get("task") or "?")[:LONGEST]
    role = data.get("role")
    return f"role {role}, task {task}" if role else f"task {task}"


def message(result: object) -> str:
    """What a task said as it failed, on one line; of a secret one nothing is known."""
    if not isinstance(result, Mapping):
        return "no message"
    if "censored" in result:
        return "its output is secret (no_log)"
    found = [" ".join(str(result.get("msg") or "").split()), *_output(result)]
    text = ": ".join(dict.fromkeys(one for one in found if one)) or "no message"
    return text[:LONGEST]


def _output(result: Mapping[str, Any]) -> list[str]:
    """What it printed; of much, the last line, and of a command its output if it has no errors."""
    said = [str(result.get(key) or "") for key in ("stderr", "module_stderr")]
    if "rc" in result and not any(said):
        said = [str(result.get("stdout") or "")]
    return [_brief(text) for text in said if text.strip()]


def _brief(text: str) -> str:
    whole = " ".join(text.split())
    last = text.strip().splitlines()[-1]
    return whole if len(whole) <= LONGEST // 2 else " ".join(last.split())
