"""Making one instance: find it, refuse it, or write the intent and start it."""

import time
from contextlib import ExitStack, suppress
from pathlib import Path
from threading import Lock

from springtide.nodeset import NodeNameError, validate_name
from springtide.ports import Instance, Launch, Rejected, Transient
from springtide.providers.containers import addresses
from springtide.providers.containers.erase import erase_one
from springtide.providers.containers.instances import (
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
    write_intent,
)
from springtide.providers.containers.locks import directory_lock
from springtide.providers.containers.mounts import Tree
from springtide.providers.containers.site import Ground
from springtide.providers.containers.start import Start, start, sweep

MAX_HOST_NAME = 63

_addressing = Lock()
"""Threads that choose at once would all choose the lowest and have to choose again."""


def make(directory: Path, ground: Ground, tree: Tree, launch: Launch) -> Instance:
    """The launch's instance, made now or found."""
    _refuse_name(launch.node)
    home = homes(directory) / launch.node
    with ExitStack() as stack:
        _enter(stack, directory, nameless(home, launch.cluster))
        known = read_intent(home)
        if known:
            _refuse_namesake(home, known, launch)
        intent = _ensure_address(directory, ground, launch, known)
        began = has_process(home)
        if not _is_settled(home):
            if began:
                sweep(home, intent)
            if known:
                intent = _intend_again(home, intent, launch)
            _start(directory, home, Start(intent, ground, tree, launch.user_data))
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


def _refuse_name(node: str) -> None:
    try:
        validate_name(node)
    except NodeNameError as error:
        raise Rejected(str(error)) from None
    if len(node) > MAX_HOST_NAME:
        raise Rejected(f"node name {node}: a host name has at most {MAX_HOST_NAME} characters")


def _refuse_namesake(home: Path, known: Instance, launch: Launch) -> None:
    if known.generation != launch.generation or is_deleting(home):
        wanted = instance_id(launch.cluster, launch.node, launch.generation)
        raise Transient(f"{known.id} is still terminating: {wanted} has to wait until it is gone")


def _ensure_address(
    directory: Path, ground: Ground, launch: Launch, known: Instance | None
) -> Instance:
    """The intent, on disk, with an address that is the node's; a known one keeps its own."""
    if known and addresses.take(directory, known.address or "", known.node):
        return known
    with _addressing:
        for address in addresses.free_addresses(directory, ground.subnet):
            intent = intend(launch, str(address), time.time())
            write_intent(homes(directory) / launch.node, intent)
            if addresses.take(directory, str(address), launch.node):
                return intent
    raise AssertionError("free_addresses ends by raising")


def _intend_again(home: Path, known: Instance, launch: Launch) -> Instance:
    """The launch may have another flavor by now; only the address stays."""
    intent = intend(launch, known.address or "", time.time())
    write_intent(home, intent)
    return intent


def _is_settled(home: Path) -> bool:
    """It runs or ran; one that died before it was ready has yet to be started."""
    process = await_process(home)
    return process is not None and (process.ready or is_alive(process))


def _start(directory: Path, home: Path, plan: Start) -> None:
    """What fails to start leaves nothing."""
    try:
        start(home, plan)
    except Exception:
        erase_one(directory, home, plan.instance)
        raise
