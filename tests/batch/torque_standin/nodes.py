"""pbsnodes and qmgr."""

import getopt
import re
import sys
import time
from typing import Any

from tests.batch.torque_standin import text
from tests.batch.torque_standin.calls import DENIED, NOT_TOLD, UNREACHED, VERSION, Call, Failed, say
from tests.batch.torque_standin.server import NOT_SENT, QUEUE, Server, opened

# pbsnodes


def pbsnodes(call: Call) -> int:
    if "--version" in call.arguments:
        sys.stderr.write(VERSION)
        return 0
    options, names = getopt.gnu_getopt(call.arguments, "acloqrxN:n")
    flags = {option for option, _ in options}
    notes = [value for option, value in options if option == "-N"]
    with opened(call.place) as server:
        if server.state["down"]:
            words = f"pbsnodes: cannot connect to server {server.name}, error=111"
            raise Failed(1, f"{UNREACHED.format(name=server.name)}{words} (Connection refused)\n")
        if flags & {"-c", "-o", "-r", "-N"}:
            return _mark(server, call, flags, names, notes)
        if "-l" in flags:
            return say(_listed(server, names, "-n" in flags))
        if not server.nodes:
            raise Failed(2, "pbsnodes: No nodes found\n")
        nodes = [server.nodes[name] for name in names if name in server.nodes]
        if len(nodes) < len(names):
            raise Failed(1, "pbsnodes: Unknown node  MSG=cannot locate specified node\n")
        shown = text.nodes_xml if "-x" in flags else text.nodes_long
        return say(shown(server, nodes or list(server.nodes.values())))


def _listed(server: Server, names: list[str], notes: bool) -> str:
    nodes = list(server.nodes.values())
    if names != ["all"]:
        nodes = [node for node in nodes if {"down", "offline"} & set(node["words"])]
    return text.nodes_short(server, nodes, notes)


def _mark(server: Server, call: Call, flags: set[str], names: list[str], notes: list[str]) -> int:
    """Whatever goes wrong, it exits with 0; what is asked of one node is done or not as a whole."""
    for name in names:
        node = server.nodes.get(name)
        words = ""
        if not call.manager:
            words = DENIED.format("PERM_OPorMGR")
        elif node is None:
            words = "Unknown node  MSG=cannot locate specified node"
        elif NOT_SENT in node["words"]:
            words = NOT_TOLD
        if words or node is None:
            sys.stderr.write(f"Error setting note attribute for {name} - {words}\n")
            continue
        marked = set(node["words"]) - ({"offline"} if flags & {"-c", "-r"} else set())
        marked |= {word for flag, word in (("-o", "offline"), ("-r", "down")) if flag in flags}
        node["words"] = [word for word in ("down", "offline") if word in marked]
        if notes:
            node["note"] = "" if notes[-1] == "n" else notes[-1]
    return 0


# qmgr

_DIRECTIVE = re.compile(r"(create|delete|set|unset|list) (node|queue|server) ?(\S*)(.*)", re.DOTALL)
DEFAULT = "resources_default."
_PAIR = re.compile(r"\s*([\w.]+)\s*(?:=\s*(\"[^\"]*\"|[^,\s]+))?,?")


def qmgr(call: Call) -> int:
    if call.arguments[:1] != ["-c"]:
        raise Failed(1, "Usage: qmgr [-a] [-c command] [-e] [-n] [-z] [server...]\n")
    found = _DIRECTIVE.fullmatch(call.arguments[1].strip())
    if not found:
        raise Failed(1, f"qmgr: Syntax error in {call.arguments[1]}\n")
    verb, kind, name, rest = found.groups()
    with opened(call.place) as server:
        if server.state["down"]:
            words = f"qmgr: cannot connect to server {server.name} (errno=111) Connection refused\n"
            raise Failed(3, UNREACHED.format(name=server.name) * 3 + words)
        if verb == "list":
            shown = {"pbs_version": "6.1.3.h5", "scheduling": server.state["scheduling"]}
            return say(f"Server {server.name}\n\t{name} = {shown[name]}\n\n")
        if not call.manager:
            right = "PERM_MANAGER" if verb in ("create", "delete") else "PERM_OPorMGR"
            _refuse(name if kind != "server" else "", DENIED.format(right))
        waits = _manage(server, verb, kind, name, rest)
    if waits:
        _wait_for_deletion(call, name)
    return 0


def _refuse(name: str, words: str) -> None:
    raise Failed(2, f"qmgr obj={name} svr=default: {words}\n")


def _manage(server: Server, verb: str, kind: str, name: str, rest: str) -> bool:
    """Whether the client has to wait."""
    if kind == "server":
        server.state["scheduling"] = rest.split()[-1].lower() == "true"
        server.schedule()
        return False
    values = {key: value.strip('"') for key, value in _PAIR.findall(rest)}
    if kind == "queue":
        queue = server.state["queues"].setdefault(name, {**QUEUE, "default": {}})
        for key, value in values.items():
            if key.startswith(DEFAULT):
                _set_default(queue, key.removeprefix(DEFAULT), "" if verb == "unset" else value)
        queue["route"] = values.get("route_destinations", queue["route"])
        queue["started"] = values.get("started", str(queue.get("started", True))).lower() == "true"
        return False
    return _manage_node(server, verb, name, values)


def _set_default(queue: dict[str, Any], key: str, value: str) -> None:
    if key == "neednodes":
        queue[key] = value
    elif value:
        queue["default"][key] = value
    else:
        queue["default"].pop(key, None)


def _manage_node(server: Server, verb: str, name: str, values: dict[str, str]) -> bool:
    if verb == "create":
        if name in server.nodes:
            _refuse(name, "Node name already exists")
        if not server.resolves(name):
            _refuse(name, "Unknown node ")
        server.add_node(name, int(values.get("np", "1")), values.get("properties", ""))
        return False
    if name not in server.nodes:
        _refuse(name, "Unknown node ")
    if verb == "delete":
        return server.doom(name)
    node = server.nodes[name]
    node["np"] = int(values.get("np") or node["np"])
    node["properties"] = values.get("properties", node["properties"])
    if "state" in values:  # it replaces all the words that there were
        node["words"] = [] if values["state"] == "free" else values["state"].split(",")
    return False


def _wait_for_deletion(call: Call, name: str) -> None:
    while True:
        time.sleep(0.05)
        with opened(call.place) as server:
            if name not in server.state["doomed"]:
                return
