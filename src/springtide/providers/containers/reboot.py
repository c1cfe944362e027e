"""Rebooting one instance: its processes end, and it starts again from its image.

The provider calls it for one node in each of its threads. The intent names the process that
has to go, so that whoever looks meanwhile, or after a kill of the daemon, takes it for gone.
"""

import time
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path

from springtide.ports import Instance, Launch, Rejected, Transient
from springtide.providers.containers import addresses
from springtide.providers.containers.halt import claim, halt
from springtide.providers.containers.instances import (
    Intent,
    Process,
    homes,
    instance_id,
    is_deleting,
    observe,
    read_intent,
    refuse_name,
    write_intent,
)
from springtide.providers.containers.locks import directory_lock
from springtide.providers.containers.mounts import Tree
from springtide.providers.containers.site import Ground
from springtide.providers.containers.start import Start, start


def reboot(
    directory: Path, ground: Ground, tree_of: Callable[[Intent], Tree], launch: Launch
) -> Intent:
    """Whatever can be refused is refused before anything is ended."""
    refuse_name(launch.node)
    home = homes(directory) / launch.node
    with ExitStack() as stack:
        known = _enter(stack, home, launch)
        _refuse_lost_address(directory, known.instance)
        tree = tree_of(known)
        process = claim(home)
        intent = _intend_again(home, known, tree.image, process)
        halt(intent.instance, process)
        _start(home, Start(intent.instance, ground, tree, launch.user_data))
        return observe(home, time.time()) or intent


def _enter(stack: ExitStack, home: Path, launch: Launch) -> Intent:
    """Lock the node's directory and read what is there."""
    wanted = instance_id(launch.cluster, launch.node, launch.generation)
    try:
        stack.enter_context(directory_lock(home))
        known = read_intent(home)
    except FileNotFoundError:
        known = None
    if known is None or known.instance.id != wanted:
        raise Rejected(f"{wanted} does not exist, so it cannot be rebooted: create it instead")
    if is_deleting(home):
        raise Transient(f"{wanted} is being deleted: it can be created again when it is gone")
    return known


def _refuse_lost_address(directory: Path, known: Instance) -> None:
    """A start that was killed before it took its address may find it taken."""
    if not addresses.take(directory, known.address or "", known.node):
        raise Rejected(
            f"{known.id} never started, and its address {known.address} is another node's by now: "
            "delete it and create it again"
        )


def _intend_again(home: Path, known: Intent, image: Path, process: Process | None) -> Intent:
    instance = replace(known.instance, booted_at=time.time())
    intent = Intent(instance, image, former=process.key if process else "")
    write_intent(home, instance, image, intent.former)
    return intent


def _start(home: Path, plan: Start) -> None:
    """What fails to start stays, with no process, for another reboot."""
    try:
        start(home, plan, again=True)
    except Exception:
        halt(plan.instance, claim(home))
        raise
