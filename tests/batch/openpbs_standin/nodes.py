"""pbsnodes and qmgr."""

import re
from collections.abc import Callable
from typing import Any

from tests.batch.openpbs_standin import show
from tests.batch.openpbs_standin.scheduler import State, capacity, on_node
from tests.batch.openpbs_standin.state import new_node

NO_NODE_LIST = "pbsnodes: Server has no node list\n"
REFUSED = "Connection refused\n"
UNAUTHORIZED, UNKNOWN_NODE, EXISTS, BUSY = 15007, 15062, 15066, 15027
UNKNOWN_QUEUE, UNKNOWN_RESOURCE = 15020, 15035
WORDS = {
    UNAUTHORIZED: "Unauthorized Request ",
    UNKNOWN_NODE: "Unknown node ",
    EXISTS: "Node name already exists",
    BUSY: "Cannot delete busy object",
    UNKNOWN_QUEUE: "Unknown queue",
    UNKNOWN_RESOURCE: "Unknown resource",
}
LONGEST_COMMENT = 79
ATTRIBUTE = re.compile(r'([\w.]+)\s*=\s*("[^"]*"|[^,\s]*)')

Answer = tuple[int, str, str]
"""Exit code, what is printed, what is complained."""


# --- pbsnodes --------------------------------------------------------------------------------


def pbsnodes(state: State, arguments: list[str], user: str) -> Answer:
    if not state["up"]:
        error = f"pbsnodes: cannot connect to server {show.SERVER}, error=15010\n"
        return 1, "", REFUSED + error
    options, names = _options(arguments)
    if "-o" in options or "-r" in options:
        return _mark(state, options, names, user)
    if "-a" in options and not state["nodes"]:
        return 1, "", NO_NODE_LIST
    chosen = list(state["nodes"]) if "-a" in options else names
    unknown = [name for name in chosen if name not in state["nodes"]]
    if unknown:
        return 1, "", "".join(f"Node: {name},  Error: Unknown node \n" for name in unknown)
    json = options.get("-F") == "json"
    shown = {name: _shown(state, state["nodes"][name], slots=not json) for name in chosen}
    if json:
        return 0, show.document(state["at"], "nodes", shown), ""
    return 0, "".join(show.node_text(name, one) for name, one in shown.items()), ""


def _options(arguments: list[str]) -> tuple[dict[str, str], list[str]]:
    options: dict[str, str] = {}
    rest = list(arguments)
    while rest and rest[0].startswith("-"):
        option = rest.pop(0)
        options[option] = rest.pop(0) if option in ("-C", "-F", "-s") else ""
    return options, rest


def _mark(state: State, options: dict[str, str], names: list[str], user: str) -> Answer:
    errors = ""
    for name in names:
        wrong = UNAUTHORIZED if user != "root" else UNKNOWN_NODE
        if user != "root" or name not in state["nodes"]:
            errors += f"Error marking node {name} - {WORDS[wrong]}\n"
            continue
        node = state["nodes"][name]
        node |= {"offline": "-o" in options, "changed": int(state["at"])}
        if "-C" in options:
            node["comment"] = options["-C"].encode()[:LONGEST_COMMENT].decode(errors="replace")
    return (1 if errors else 0), "", errors


def _shown(state: State, node: State, *, slots: bool) -> dict[str, Any]:
    beside = on_node(state, node["name"])
    used = sum(wants["ncpus"] for _, wants, _ in beside)
    memory = sum(wants["mem"] for _, wants, _ in beside)
    has = sorted(node["resources_available"].items(), key=lambda pair: str(pair[0]).lower())
    shown: dict[str, Any] = {"Mom": node["name"], "Port": show.PORT}
    shown |= {"pbs_version": show.VERSION if node["heard"] else "unavailable", "ntype": "PBS"}
    shown |= {"state": _words(node, used)} | ({"pcpus": node["pcpus"]} if node["heard"] else {})
    ids = dict.fromkeys(id for id, _, _ in beside)
    if slots:
        ids = dict.fromkeys(f"{id}/{n}" for id, wants, _ in beside for n in range(wants["ncpus"]))
    shown |= {"jobs": list(ids)} if ids else {}
    shown["resources_available"] = dict(has)
    assigned = ({"mem": f"{memory}kb"} if memory else {}) | ({"ncpus": used} if used else {})
    shown["resources_assigned"] = assigned
    shown |= {"queue": node["queue"]} if node["queue"] else {}
    shown |= {"comment": node["comment"]} if node["comment"] else {}
    shown |= {"resv_enable": "True", "sharing": "default_shared"}
    if node["heard"]:
        shown |= {"license": "l", "last_state_change_time": node["changed"]}
    return shown


def _words(node: State, used: int) -> str:
    words = [] if node["heard"] else ["state-unknown"]
    words += [] if node["alive"] else ["down"]
    words += ["offline"] if node["offline"] else []
    words += ["job-busy"] if used and used >= capacity(node)["ncpus"] else []
    return ",".join(words) or "free"


# --- qmgr ------------------------------------------------------------------------------------


def qmgr(state: State, arguments: list[str], user: str) -> Answer:
    if not state["up"]:
        return 1, "", f"{REFUSED}qmgr: cannot connect to server {show.SERVER} (errno=15010)\n"
    verb, kind, *rest = arguments[1].split(maxsplit=3)
    names = rest[0].split(",") if rest and "=" not in rest[0] else [""]
    text = " ".join(rest if names == [""] else rest[1:])
    pairs = {key: value.strip('"') for key, value in ATTRIBUTE.findall(text)}
    code, errors = 0, ""
    for name in names:
        doing = _DOING[verb, kind]
        if wrong := UNAUTHORIZED if user != "root" else doing(state, name, pairs):
            errors += f"qmgr obj={name} svr=default: {WORDS[wrong]}\n"
            errors += f"qmgr: Error ({wrong}) returned from server\n"
            code = wrong % 256
    return code, "", errors


def _create_node(state: State, name: str, pairs: dict[str, str]) -> int:
    if name in state["nodes"]:
        return EXISTS
    if state["resolves"] is not None and name not in state["resolves"]:
        return UNKNOWN_NODE
    state["nodes"][name] = new_node(name)
    if wrong := _set_node(state, name, pairs):
        del state["nodes"][name]
    return wrong


def _set_node(state: State, name: str, pairs: dict[str, str]) -> int:
    if name not in state["nodes"]:
        return UNKNOWN_NODE
    node = state["nodes"][name]
    for key, value in pairs.items():
        kind, _, resource = key.partition(".")
        if kind == "resources_available":
            if resource not in ("ncpus", "mem", "vntype", *state["resources"]):
                return UNKNOWN_RESOURCE
            node[kind][resource] = int(value) if resource == "ncpus" else value
        elif key == "queue":
            if value not in state["queues"]:
                return UNKNOWN_QUEUE
            node["queue"] = value
        elif key == "comment":
            node["comment"] = value
        elif key == "state":
            node["offline"] = value == "offline"
    return 0


def _delete_node(state: State, name: str, _: dict[str, str]) -> int:
    if name not in state["nodes"]:
        return UNKNOWN_NODE
    if on_node(state, name):
        return BUSY
    del state["nodes"][name]
    return 0


def _create_queue(state: State, name: str, pairs: dict[str, str]) -> int:
    state["queues"][name] = {"queue_type": "Execution", "enabled": "False", "started": "False"}
    return _set_queue(state, name, pairs)


def _set_queue(state: State, name: str, pairs: dict[str, str]) -> int:
    if name not in state["queues"]:
        return UNKNOWN_QUEUE
    for key, value in pairs.items():
        kind, _, resource = key.partition(".")
        if resource:
            state["queues"][name].setdefault(kind, {})[resource] = value
        else:
            state["queues"][name][key] = (
                value.capitalize() if key != "route_destinations" else value
            )
    return 0


def _create_resource(state: State, name: str, _: dict[str, str]) -> int:
    state["resources"].append(name)
    return 0


def _set_server(state: State, _: str, pairs: dict[str, str]) -> int:
    if "scheduling" in pairs:
        state["scheduling"] = state["turn"] = pairs["scheduling"].lower() == "true"
    return 0


_DOING: dict[tuple[str, str], Callable[[State, str, dict[str, str]], int]] = {
    ("create", "node"): _create_node,
    ("set", "node"): _set_node,
    ("delete", "node"): _delete_node,
    ("create", "queue"): _create_queue,
    ("set", "queue"): _set_queue,
    ("create", "resource"): _create_resource,
    ("set", "server"): _set_server,
}
