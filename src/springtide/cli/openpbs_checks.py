"""Whether nodes look for OpenPBS's server where it has registered: elsewhere it never answers them.

For `tide check`; looks, changes nothing.
"""

from collections.abc import Iterable, Iterator, Mapping

from springtide import compose_queue
from springtide.cli.subject import Check, Subject
from springtide.served.where import is_here
from springtide.spec import Cluster, OpenPbs
from springtide.spec.clouds import Remote

NAME = "OpenPBS's address"
LEAF = "PBS_LEAF_NAME"


def look_at_address(subject: Subject) -> Iterable[Check]:
    """pbs_server registers with pbs_comm under the address that its own name has on its machine."""
    spec = subject.spec
    if not isinstance(spec.batch, OpenPbs) or compose_queue.lacks(spec) or not spec.managed:
        return
    entry = compose_queue.queue_of(spec).entry(spec.managed[0])
    at = compose_queue.registered_address(entry)
    if at is None:
        todo = "name it in /etc/hosts or your name server, or correct batch.server"
        yield Check(NAME, False, f"this machine finds no address of {entry.registered}", todo)
        return
    yield from decide_checks(entry.registered, at, is_here(at), _reached(spec))


def _reached(spec: Cluster) -> dict[str, str]:
    """The addresses of this machine that groups on clouds are given, by group."""
    providers = {key: spec.provider_of(key) for key in spec.remote}
    return {
        key: one.control_address
        for key, one in providers.items()
        if isinstance(one, Remote) and one.control_address
    }


def decide_checks(name: str, at: str, here: bool, reached: Mapping[str, str]) -> Iterator[Check]:
    """Of a server whose name has the address `at`, which is this machine's if `here`. Pure."""
    if at.startswith(compose_queue.LOCAL):
        text = (
            f"{name} is {at} on this machine: a pbs_server here registers with pbs_comm there, and "
            "no node on another machine or in a container ever registers"
        )
        todo = (
            f"give {name} its address in the network in /etc/hosts, or set {LEAF} in /etc/pbs.conf "
            "to a name that has it, and restart OpenPBS"
        )
        yield Check(NAME, False, text, todo)
        return
    others = {group: where for group, where in reached.items() if here and where != at}
    for group, where in others.items():
        text = (
            f"nodes of {group} reach this machine at {where}, but pbs_server has registered at "
            f"{at}, and answers them there only"
        )
        todo = f"have them reach {at}, or set {LEAF} in /etc/pbs.conf to a name of {where}, and "
        yield Check(NAME, None, text, f"{todo}restart OpenPBS")
    if not others:
        words = "" if here else f"; on its own machine, `getent hosts {name}` must say the same"
        yield Check(NAME, True, f"nodes look for {name} at {at}{words}")
