"""Asks a provider something without the daemon: for `tide check` and `tide flavors`.

In a process of its own, which has this module as its program: SDKs block in threads that nothing
can interrupt, and they print what nobody asked for. Such a process can be killed when its time is
over, and what it prints goes nowhere.
"""

import asyncio
import json
import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from springtide.images import lineage
from springtide.ports import Check, CloudError, CloudFlavor, Need, Provider
from springtide.spec import Cluster
from springtide.spec.clouds import Remote

START_S = 15.0
"""To start Python and import an SDK; the calls themselves have the provider's own limit."""
CHECK, FLAVORS = "check", "flavors"


class Unanswered(Exception):
    """Why there is no answer, and what to do about it, in words for people."""


@dataclass(frozen=True, slots=True)
class Place:
    """A provider of a cluster file, and the groups that use it."""

    wanted: Remote
    groups: tuple[str, ...]


def places(spec: Cluster) -> list[Place]:
    """The clouds and machines of a file, each once; the cluster's own also without groups."""
    found: list[tuple[Remote, list[str]]] = []
    uses = [(spec.provider, None), *((spec.provider_of(key), key) for key in spec.groups)]
    for wanted, group in uses:
        if not isinstance(wanted, Remote):
            continue
        groups = next((some for known, some in found if known == wanted), None)
        if groups is None:
            found.append((wanted, groups := []))
        groups += [group] if group else []
    return [Place(wanted, tuple(groups)) for wanted, groups in found]


def needs(spec: Cluster, groups: Sequence[str]) -> list[Need]:
    """What the file wants of a provider for each of these groups, if all its nodes are up."""
    wanted = {key: spec.groups[key] for key in groups if spec.names(key)}
    return [
        Need(key, len(one.names), base_of(spec, key), one.flavors, one.zones, one.markets)
        for key, one in wanted.items()
    ]


def base_of(spec: Cluster, group: str) -> str:
    """The image that a group's nodes have, or that theirs is built from."""
    return lineage(spec, spec.image_of(group))[-1]


def ask_check(spec: Cluster, place: Place) -> list[Check]:
    return [Check(**each) for each in _ask(CHECK, spec, place)]


def ask_flavors(spec: Cluster, place: Place) -> dict[str, CloudFlavor]:
    return {name: CloudFlavor(**each) for name, each in _ask(FLAVORS, spec, place).items()}


def _ask(question: str, spec: Cluster, place: Place) -> Any:
    asked = {
        "question": question,
        "spec": spec.model_dump(mode="json"),
        "provider": place.wanted.model_dump(mode="json"),
    }
    limit_s = place.wanted.timeout
    answer = json.loads(ask(json.dumps(asked), limit_s + START_S, limit_s))
    if "problem" in answer:
        raise Unanswered(answer["problem"])
    return answer["answer"]


def ask(
    text: str, limit_s: float, told_s: float, program: Sequence[str] = ("-m", __name__)
) -> bytes:
    """What the process says to a question, if it says it in time."""
    command = [sys.executable, *program]
    try:
        done = subprocess.run(
            command, input=text.encode(), capture_output=True, timeout=limit_s, check=False
        )
    except subprocess.TimeoutExpired:
        raise Unanswered(
            f"it did not answer within {told_s:g} s: look whether it is reached from here, "
            "or set a longer `timeout` in its block"
        ) from None
    if done.returncode or not done.stdout:
        raise Unanswered(f"it could not be asked, exit code {done.returncode}{_last(done.stderr)}")
    return done.stdout


def _last(said: bytes) -> str:
    lines = said.decode(errors="replace").split("\n")
    last = next((line for line in reversed(lines) if line.strip()), "")
    return f": {last[:300]}" if last else ""


# --- the process that asks -----------------------------------------------------------------


def main() -> None:
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    asked = json.load(sys.stdin)
    with answers:
        json.dump(asyncio.run(_answer(asked)), answers)


async def _answer(asked: Mapping[str, Any]) -> Mapping[str, Any]:
    """What a provider cannot be made for, or does not answer, is told in its words."""
    from springtide.daemon import DaemonError

    spec = Cluster.model_validate(asked["spec"])
    place = next(one for one in places(spec) if _is(one, asked["provider"]))
    try:
        provider = _made(place.wanted, spec)
    except DaemonError as error:
        return {"problem": str(error)}
    try:
        return {"answer": await _answered(provider, asked["question"], spec, place)}
    except CloudError as error:
        return {"problem": str(error)}
    finally:
        await provider.close()


def _is(place: Place, provider: Mapping[str, Any]) -> bool:
    return place.wanted.model_dump(mode="json") == provider


def _made(wanted: Remote, spec: Cluster) -> Provider:
    """By the code that the daemon has it from."""
    from springtide.compose import remote

    return remote(wanted, spec, _unheard)


async def _unheard(what: str, nodes: Mapping[str, str] | None, detail: str) -> None:
    """There is no record to keep it in."""


async def _answered(provider: Provider, question: str, spec: Cluster, place: Place) -> Any:
    if question == FLAVORS:
        return {name: asdict(one) for name, one in (await provider.flavors()).items()}
    found = await provider.check(spec.cluster, needs(spec, place.groups))
    return [asdict(each) for each in found]


if __name__ == "__main__":
    main()
