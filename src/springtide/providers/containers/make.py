"""Making one instance: find it, refuse it, or write the intent and start it."""

import time
from collections.abc import Mapping
from contextlib import ExitStack, suppress
from dataclasses import replace
from ipaddress import IPv4Network
from pathlib import Path
from threading import Lock

from springtide.ports import Instance, Launch, Transient
from springtide.providers.containers import addresses, forgotten, links
from springtide.providers.containers.erase import erase_one
from springtide.providers.containers.halt import halt
from springtide.providers.containers.instances import (
    Intent,
    Process,
    await_process,
    has_process,
    homes,
    instance_id,
    intend,
    is_alive,
    is_deleting,
    nameless,
    observe,
    read_intent,
    refuse_name,
    write_intent,
)
from springtide.providers.containers.locks import directory_lock
from springtide.providers.containers.mounts import Tree
from springtide.providers.containers.site import Ground
from springtide.providers.containers.start import Start, start

_addressing = Lock()
"""Threads that choose at once would all choose the lowest and have to choose again."""


def make(
    directory: Path, ground: Ground, tree: Tree, launch: Launch, plan: Mapping[str, str]
) -> Intent:
    """The launch's instance, made now or found. `plan` are the addresses that nodes are to have."""
    refuse_name(launch.node)
    home = homes(directory) / launch.node
    with ExitStack() as stack:
        _enter(stack, directory, nameless(home, launch.cluster))
        known = read_intent(home)
        if known:
            _refuse_namesake(home, known.instance, launch)
        wanted = Intent(intend(launch, "", time.time()), tree.image)
        intent = _ensure_address(directory, ground.subnet, plan, wanted, known)
        began, process = has_process(home), await_process(home)
        if not began and links.exists(links.port_name(launch.cluster, launch.node)):
            forgotten.end(launch.cluster, launch.node)
        if not _is_settled(process, intent.former):
            halt(intent.instance, process)
            if known:
                intent = _intend_again(home, intent, wanted)
            _start(directory, home, Start(intent.instance, ground, tree, launch.user_data), began)
        return observe(home, time.time()) or intent


def _enter(stack: ExitStack, directory: Path, nobody: Instance) -> None:
    """Lock the node's directory; made if missing, and gone again if nothing comes of it."""
    home = homes(directory) / nobody.node
    while True:
        home.mkdir(mode=0o700, exist_ok=True)
        try:
            stack.enter_context(directory_lock(home))
        except FileNotFoundError:
            continue  # deleted while we waited for the lock
        if read_intent(home) is None and any(home.iterdir()):
            erase_one(directory, home, nobody)  # what a start or an end left that was cut short
            continue
        stack.callback(_remove_if_empty, home)
        return


def _remove_if_empty(home: Path) -> None:
    with suppress(OSError):
        home.rmdir()


def _refuse_namesake(home: Path, known: Instance, launch: Launch) -> None:
    if known.generation != launch.generation or is_deleting(home):
        wanted = instance_id(launch.cluster, launch.node, launch.generation)
        raise Transient(f"{known.id} is still terminating: {wanted} has to wait until it is gone")


def _ensure_address(
    directory: Path,
    subnet: IPv4Network,
    plan: Mapping[str, str],
    wanted: Intent,
    known: Intent | None,
) -> Intent:
    """The intent, on disk, with an address that is the node's; a known one keeps its own."""
    node = wanted.instance.node
    if known and addresses.take(directory, known.instance.address or "", node):
        return known
    with _addressing:
        for address in addresses.free_addresses(directory, subnet, plan, node):
            intent = _write(homes(directory) / node, wanted, address)
            if addresses.take(directory, address, node):
                return intent
    raise AssertionError("free_addresses ends by raising")


def _intend_again(home: Path, known: Intent, wanted: Intent) -> Intent:
    """The launch may have another flavor by now; only the address stays."""
    return _write(home, wanted, known.instance.address or "")


def _write(home: Path, wanted: Intent, address: str) -> Intent:
    intent = replace(wanted, instance=replace(wanted.instance, address=address))
    write_intent(home, intent.instance, intent.image_path)
    return intent


def _is_settled(process: Process | None, former: str) -> bool:
    """It runs or ran; one that died before it was ready has yet to be started."""
    if process is None or process.key == former:
        return False
    return process.ready or is_alive(process)


def _start(directory: Path, home: Path, plan: Start, again: bool) -> None:
    """What fails to start leaves nothing."""
    try:
        start(home, plan, again)
    except Exception:
        erase_one(directory, home, plan.instance)
        raise
