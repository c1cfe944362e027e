"""What a node gets from its welcome, each in a function of its own; they may be done again.

Users are in `accounts`; munge, the health check and slurmd in `slurm`.
"""

import glob
import json
import os
import re
import shutil
import signal
import socket
from typing import Dict, List, Sequence, Tuple

from springtide.node import fit, given
from springtide.node.console import Failed, Later, Waiting, say
from springtide.node.given import Json
from springtide.node.system import (
    has_systemd,
    last_line,
    read,
    remove,
    render_block,
    replace_block,
    replace_file,
    restart,
    run,
)

AUTHORITIES = (
    ("/usr/local/share/ca-certificates", "update-ca-certificates"),
    ("/etc/pki/ca-trust/source/anchors", "update-ca-trust"),
)
"""Of Debian, and of Red Hat."""
UNTRUSTED = "/var/lib/springtide/untrusted"
"""There as long as certificates are written that the system has not been told of."""
LOOP = "127.0.1.1"
"""A node's own address for itself, until it is told another."""
SSH = "/etc/ssh"
PULL_S = 3600.0
UTF_8 = ("env", "LC_ALL=C.UTF-8")
"""Ansible refuses to run in any other locale."""
UNMATCHED = "\nskipping: no hosts matched"
MOUNTS = "/proc/self/mountinfo"
MOUNT_S = 60.0


# --- certificates, time --------------------------------------------------------------------------


def apply_certificates(welcome: Json) -> None:
    files = welcome["certificates"]["files"]
    found = [(place, program) for place, program in AUTHORITIES if shutil.which(program)]
    if not found:
        if files:
            raise Failed("the image has no update-ca-certificates: install ca-certificates in it")
        return
    place, program = found[0]
    wanted = {"springtide-" + given.word(name, given.NAME): files[name] for name in files}
    gone = {os.path.basename(path) for path in glob.glob(place + "/springtide-*")} - set(wanted)
    changed = [remove(os.path.join(place, name)) for name in sorted(gone)]
    for name, text in wanted.items():
        changed.append(replace_file(os.path.join(place, name), given.text(text)))
    if any(changed) or os.path.exists(UNTRUSTED):
        replace_file(UNTRUSTED, "")
        _succeed([program])
        remove(UNTRUSTED)


def _succeed(command: List[str]) -> None:
    code, said = run(command)
    if code:
        raise Failed(f"{command[0]} failed: {last_line(said)}")


def apply_time(welcome: Json) -> None:
    servers = [given.word(name, r"[A-Za-z0-9.:_-]{1,255}") for name in welcome["time"]["servers"]]
    if not servers:
        return
    lines = [f"server {name} iburst" for name in servers]
    services: Tuple[str, ...] = ("chrony", "chronyd")
    if os.path.isdir("/etc/chrony/sources.d"):
        changed = replace_file("/etc/chrony/sources.d/springtide.sources", "\n".join([*lines, ""]))
    elif os.path.exists("/etc/chrony.conf"):
        changed = replace_block("/etc/chrony.conf", lines)
    else:
        changed, services = _other_time(servers, lines)
    if changed and not restart(*services):
        say(f"{services[0]} was not restarted: is it in the image?")


def _other_time(servers: List[str], lines: List[str]) -> Tuple[bool, Tuple[str, ...]]:
    for path in ("/etc/ntpsec/ntp.conf", "/etc/ntp.conf"):
        if os.path.exists(path):
            return replace_block(path, lines), ("ntpsec", "ntp", "ntpd")
    if os.path.exists("/etc/systemd/timesyncd.conf"):
        path = "/etc/systemd/timesyncd.conf.d/springtide.conf"
        names = " ".join(servers)
        return replace_file(path, f"[Time]\nNTP={names}\n"), ("systemd-timesyncd",)
    say("nothing in the image sets the clock: install chrony in it")
    return False, ()


# --- names ---------------------------------------------------------------------------------------


def name_host(node: str) -> None:
    """A name that nobody knows makes munged and others wait for an answer."""
    socket.sethostname(node)
    replace_file("/etc/hostname", node + "\n")
    if not re.search(rf"^[^#]*\s{re.escape(node)}(\s|$)", read("/etc/hosts"), re.MULTILINE):
        replace_block("/etc/hosts", [f"{LOOP} {node}"])


def apply_names(welcome: Json) -> None:
    part = welcome["names"]
    lines = render_hosts(welcome["node"], own_address(welcome), part["hosts"])
    replace_file("/etc/hosts", render_block(without_names(read("/etc/hosts"), lines), lines))
    if part["nameserver"]:
        search = [given.word(domain, given.NAME) for domain in part["search"]]
        nameserver = given.address(part["nameserver"])
        text = "search {}\nnameserver {}\n".format(" ".join(search), nameserver)
        replace_file("/etc/resolv.conf", text)


def render_hosts(node: str, own: str, told: Dict[str, str]) -> List[str]:
    """The node's own name comes first: an address leads back to it. Others may know it by an
    address that is not its own."""
    hosts = dict({node: own}, **told)
    hosts[node] = own
    return [given.address(at) + " " + given.word(name, given.NAME) for name, at in hosts.items()]


def without_names(text: str, lines: Sequence[str]) -> str:
    """A hosts file that knows nothing of the names in these lines. Who finds a name twice may take
    either address: one that an image has of another machine, or of its own as 127.0.1.1."""
    names = {line.split()[1] for line in lines}
    kept = []
    for line in text.splitlines():
        address, *known = line.partition("#")[0].split() or [""]
        others = [name for name in known if name not in names]
        if others == known:
            kept.append(line)
        elif others:
            kept.append(" ".join([address, *others]))
    return "".join(line + "\n" for line in kept)


def own_address(welcome: Json) -> str:
    """As others know it, if it is an address of this machine: programs tell it to each other."""
    told = fit.last_part(welcome).get("address")
    if not told:
        return LOOP
    family = socket.AF_INET6 if ":" in given.address(told) else socket.AF_INET
    try:
        with socket.socket(family, socket.SOCK_DGRAM) as trial:
            trial.bind((told, 0))
    except OSError:
        return LOOP
    return str(told)


# --- filesystems ---------------------------------------------------------------------------------


def apply_mounts(welcome: Json) -> None:
    """As the node boots; nobody uses yet what the image may have in the same place."""
    for one in welcome["mounts"]:
        _mount(*_mount_words(one))


def refresh_mounts(welcome: Json) -> None:
    """While jobs may run: what is mounted stays below their feet until the node boots again."""
    later = []
    for source, path, kind, options in map(_mount_words, welcome["mounts"]):
        there = mounted_from(read(MOUNTS), path)
        if there and not is_mounted(read(MOUNTS), source, path):
            later.append(f"{path} is mounted from {there}, and is to be from {source}")
        else:
            _mount(source, path, kind, options)
    if later:
        node = given.word(welcome["node"], given.NAME)
        text = "; ".join(later)
        raise Later(f"{text}: `tide update {node}` starts the node afresh with it")


def _mount_words(one: Json) -> Tuple[str, str, str, str]:
    source, kind = given.word(one["source"], given.SOURCE), given.word(one["type"], given.NAME)
    options = ",".join(given.word(option, given.OPTION) for option in one["options"])
    return source, given.path(one["path"]).rstrip("/"), kind, options


def _mount(source: str, path: str, kind: str, options: str) -> None:
    if is_mounted(read(MOUNTS), source, path):
        return
    os.makedirs(path, exist_ok=True)
    asked = ["-o", options] if options else []
    code, said = run(["mount", "-t", kind, *asked, source, path], MOUNT_S)
    if code or not is_mounted(read(MOUNTS), source, path):
        raise Waiting(f"{path} is not mounted from {source}: {last_line(said)}")
    say(f"mounted {path} from {source}")


def is_mounted(mountinfo: str, source: str, path: str) -> bool:
    """Whether what lies uppermost at `path` is `source`; a directory shows as its device there."""
    found = mounted_from(mountinfo, path)
    return bool(found) and (source.startswith("/") or found.rstrip("/") == source.rstrip("/"))


def mounted_from(mountinfo: str, path: str) -> str:
    """The source of what lies uppermost at `path`, or nothing."""
    found = ""
    for line in mountinfo.splitlines():
        head, _, tail = line.partition(" - ")
        if _plain(head.split(" ")[4]) == path:
            found = _plain(tail.split(" ")[1])
    return found


def _plain(escaped: str) -> str:
    return re.sub(r"\\([0-7]{3})", lambda found: chr(int(found.group(1), 8)), escaped)


# --- ssh, ansible --------------------------------------------------------------------------------


def make_host_keys() -> None:
    """Whoever trusts the cluster's authority need not know them; it signs them at the join."""
    if os.path.exists(SSH + "/sshd_config") and not glob.glob(SSH + "/ssh_host_*_key.pub"):
        run(["ssh-keygen", "-A"])


def apply_ssh(welcome: Json) -> None:
    part = welcome["ssh"]
    authorized = [given.line(line) for line in part["authorized"]]
    if authorized:
        os.makedirs("/root/.ssh", mode=0o700, exist_ok=True)
    replace_block("/root/.ssh/authorized_keys", authorized, 0o600)
    if not os.path.isdir(SSH):
        return
    known = [given.line(part["known_hosts"])] if part["known_hosts"] else []
    replace_block(SSH + "/ssh_known_hosts", known)
    if _certify(part["certificates"]):
        _reload_sshd()


def _certify(certificates: Dict[str, str]) -> bool:
    changed, lines = False, []
    for name in sorted(certificates):
        path = os.path.join(SSH, given.word(name, r"ssh_host_[a-z0-9]{1,20}_key-cert\.pub"))
        changed = replace_file(path, given.line(certificates[name]) + "\n") or changed
        lines.append("HostCertificate " + path)
    main = SSH + "/sshd_config"
    if re.search(rf"^\s*Include\s+{SSH}/sshd_config\.d/", read(main), re.MULTILINE | re.I):
        path = SSH + "/sshd_config.d/springtide.conf"
        return replace_file(path, "".join(line + "\n" for line in lines)) or changed
    return replace_block(main, lines) or changed


def _reload_sshd() -> None:
    if has_systemd():
        run(["systemctl", "reload", "ssh"])[0] == 0 or run(["systemctl", "reload", "sshd"])
        return
    pid = read("/run/sshd.pid").strip()
    if pid.isdigit() and read(f"/proc/{pid}/comm").strip() == "sshd":
        os.kill(int(pid), signal.SIGHUP)


def apply_ansible(welcome: Json) -> None:
    part = welcome["ansible"]
    version = ["-C", given.word(part["version"], given.REVISION)] if part["version"] else []
    playbook = given.word(part["playbook"], given.NAME)
    if not shutil.which("ansible-pull"):
        raise Failed("the image has no ansible-pull: install ansible in it")
    url = given.word(part["url"], given.URL)
    pull = [*UTF_8, "ansible-pull", "-U", url, *version, playbook]
    code, said = run(pull, PULL_S)
    say(said)
    if code:
        raise Failed(f"ansible-pull of {playbook} failed: {ansible_trouble(said)}")
    if said.count(UNMATCHED) and said.count(UNMATCHED) == said.count("\nPLAY ["):
        raise Failed(f"no play of {playbook} is for this node: write `hosts: localhost` in it")


def ansible_trouble(said: str) -> str:
    """The task that failed and what it said, if it was one."""
    task = why = ""
    for line in said.splitlines():
        begun = re.match(r"(?:TASK|RUNNING HANDLER) \[(.*)\] \*+$", line)
        if begun:
            task = begun.group(1)
        elif line == "...ignoring":
            why = ""
        elif line.startswith("fatal: "):
            message = re.search(r'"msg": ("(?:[^"\\]|\\.)*")', line)
            told = json.loads(message.group(1)) if message else line
            why = f"task {task}: " + " ".join(told.split())[:300]
    errors = [line for line in said.splitlines() if re.match(r"\[?ERROR", line)]
    return why or last_line(errors[-1] if errors else said)
