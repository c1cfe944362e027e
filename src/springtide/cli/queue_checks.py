"""What a batch system that is read needs of this machine, and whether its server answers.

For `tide check`; `tide deploy` makes `look_at_commands` before it starts a daemon.
"""

import asyncio
import os
import shutil
from collections.abc import Iterable

from springtide import compose_queue
from springtide.batch.gridengine_commands import advised
from springtide.cli.file_checks import containers
from springtide.cli.subject import Check, Subject, search_path
from springtide.ports import Unavailable
from springtide.served import hosts_block
from springtide.spec import Queued, environment, source

PACKAGES = {"ip": "iproute2", "unshare": "util-linux"}
"""What containers are made with, and the Debian packages that have it."""


def look_at_commands(subject: Subject) -> Iterable[Check]:
    """Without them the daemon refuses to start."""
    spec = subject.spec
    if said := compose_queue.lacks(spec):
        text, _, todo = said.partition("; ")
        yield Check("programs", False, text, todo)
    else:
        names = ", ".join(compose_queue.queue_of(spec).programs)
        yield Check("programs", True, f"commands of {spec.batch.kind} are there: {names}")
    for name, package in PACKAGES.items() if containers(spec) else ():
        if shutil.which(name, path=search_path()) is None:
            todo = f"run `apt-get install {package}`"
            yield Check("programs", False, f"{name} not found: containers need it", todo)


def look_at_hosts(subject: Subject) -> Iterable[Check]:
    """The file in which names of nodes are kept, if the cluster file has one."""
    batch = subject.spec.batch
    if not isinstance(batch, Queued) or batch.hosts is None or os.geteuid() != 0:
        return
    try:
        hosts_block.require(batch.hosts)
    except Unavailable as error:
        text, _, todo = str(error).partition("; ")
        yield Check("batch.hosts", False, text, todo)
    else:
        yield Check("batch.hosts", True, f"{batch.hosts} can be written")


def look_at_environment(subject: Subject) -> Iterable[Check]:
    """What the environment file of the service sets, in place of the cluster file."""
    if subject.file is None:
        return
    found = environment.applied(source.read(subject.file.read_text(), str(subject.file)).data)
    if found.settings:
        yield Check("environment", True, f"{found.file}: {environment.render(found)}")
    if found.idle:
        text = f"{', '.join(found.idle)} of {found.file}: of no meaning here"
        yield Check("environment", None, text, "take it out, if nobody else needs it")
    if found.passed:
        lines = ", ".join(map(str, found.passed))
        text = f"{found.file}: no NAME=VALUE in line {lines}; systemd passes it over, and so do we"
        yield Check("environment", None, text, "correct it, or begin it with #")


def look_at_server(subject: Subject) -> Iterable[Check]:
    """One that is away is no failure: the daemon waits for it."""
    spec = subject.spec
    if not spec.polled or compose_queue.lacks(spec):
        return
    name = f"{spec.batch.kind}'s server"
    queue = compose_queue.queue_of(spec)
    try:
        version = asyncio.run(queue.version())
    except Unavailable as error:
        otherwise = "start it; until it answers the daemon waits, and touches no node"
        text, todo = advised(str(error), otherwise)
        yield Check(name, None, f"does not answer: {text}", todo)
        return
    yield Check(name, True, f"answers: {version}")
    try:
        asyncio.run(queue.require(compose_queue.members(spec).values()))
    except Unavailable as error:
        text, _, todo = str(error).partition("; ")
        yield Check("queues and nodes", False, text, todo)
    else:
        yield Check("queues and nodes", True, "it has our queues, and none of our names is taken")
