"""Instances in bulk: one call, one operation, and an answer for each node.

A call is known by its request id, and instances by their names: neither is made twice. Google
tells in the operation what it had no room for; each instance has an operation of its own beneath.
"""

import re
from collections.abc import Callable, Mapping, Sequence

from springtide.ports import (
    CloudError,
    Instance,
    InstanceState,
    Launch,
    NoCapacity,
    Rejected,
    Transient,
)
from springtide.providers.google import names, parse, render
from springtide.providers.google.errors import hardest, is_missing, is_taken, parse_failures
from springtide.providers.google.render import Kind
from springtide.providers.google.rest import Answer, Api
from springtide.spec.clouds import Google

ATTEMPTS = 5
"""A request id whose call ended long ago is passed over so often."""

Answers = dict[str, Instance | CloudError]
List = Callable[[str], Sequence[Instance]]


class Launching:
    """`launch` of the driver."""

    def __init__(self, api: Api, wanted: Google, list: List) -> None:
        self._api = api
        self._wanted = wanted
        self._list = list

    def launch(self, launches: Sequence[Launch], kind: Kind) -> Answers:
        what = f"{len(launches)} instances of {kind.machine} in {kind.zone}"
        try:
            operation = self._insert(launches, kind, what)
        except CloudError as error:
            if not is_taken(error):
                raise
            return self._taken(launches, kind, error)
        done = self._api.finish(operation, f"zones/{kind.zone}", what)
        return self._answers(launches, kind, done, what)

    def _insert(self, launches: Sequence[Launch], kind: Kind, what: str) -> Answer:
        """An operation that is done at once is an old one.

        Its instances are there and lists lag, or they are gone, or never were: then asked anew.
        """
        body = render.bulk(self._wanted, launches, kind)
        for attempt in range(ATTEMPTS):
            operation = self._api.post(
                f"zones/{kind.zone}/instances/bulkInsert",
                what,
                body,
                requestId=render.request_id(launches, kind, attempt),
            )
            if operation.get("status") != "DONE" or self._still(operation, launches[0], kind):
                return operation
        raise Transient(f"Google, {what}: it remembers {ATTEMPTS} such requests; asked again later")

    def _still(self, done: Answer, launch: Launch, kind: Kind) -> bool:
        """Whether what an old operation made is there; one instance stands for all."""
        return not parse_failures(done) and isinstance(self._owned(launch, kind), Instance)

    def _answers(self, launches: Sequence[Launch], kind: Kind, done: Answer, what: str) -> Answers:
        found = self._found(launches)
        missing = [launch for launch in launches if launch.node not in found]
        if not missing:
            return {**found}
        if done.get("status") != "DONE":
            slow = Transient(f"Google, {what}: still at work; what it makes is found later")
            return {**found, **dict.fromkeys((one.node for one in missing), slow)}
        return {**found, **self._lacking(missing, kind, done, what)}

    def _lacking(self, missing: Sequence[Launch], kind: Kind, done: Answer, what: str) -> Answers:
        """Of those that are not listed: failed, or so new that lists lack them."""
        failures = parse_failures(done)
        if not failures and _made(done) >= _wanted(done):
            return {launch.node: unlisted(launch, kind) for launch in missing}
        single = self._single(kind, done)
        rest = (
            hardest(failures, what)
            if failures
            else NoCapacity(f"Google, {what}: it made {_made(done)} of them and does not say why")
        )
        outcomes = {one.node: _outcome(one, kind, single, rest) for one in missing}
        for one in missing:
            outcome = outcomes[one.node]
            if isinstance(outcome, CloudError) and is_taken(outcome):
                outcomes[one.node] = self._owned(one, kind)
        return outcomes

    def _single(self, kind: Kind, done: Answer) -> Mapping[str, Answer]:
        """The operations of single instances beneath the bulk's, by name of the instance."""
        group = str(done.get("operationGroupId") or "")
        if not group:
            return {}
        pages = self._api.pages(
            f"zones/{kind.zone}/operations",
            f"operations of {kind.zone}",
            filter=f'(operationGroupId = "{group}") (operationType = "insert")',
        )
        return {
            parse.last(each.get("targetLink")): each
            for page in pages
            for each in page.get("items") or ()
        }

    def _taken(self, launches: Sequence[Launch], kind: Kind, error: CloudError) -> Answers:
        """Google refused them all since one of the names is taken: by us, as a rule."""
        found: Answers = {**self._found(launches)}
        named = set(re.findall(r"instances/([a-z0-9-]+)", str(error)))
        later = Transient(f"another instance of its launch was there already: {error}")
        for launch in launches:
            if launch.node not in found:
                taken = render.name_of(launch) in named
                found[launch.node] = self._owned(launch, kind) if taken else later
        return found

    def _owned(self, launch: Launch, kind: Kind) -> Instance | CloudError:
        """Whose an instance is that has the name, though our list does not show it."""
        name = render.name_of(launch)
        try:
            seen = self._api.get(f"zones/{kind.zone}/instances/{name}", f"instance {name}")
        except CloudError as error:
            return Transient(f"{launch.node}: {error}") if is_missing(error) else error
        facts = names.read_description(seen.get("description"))
        if names.member_of(launch.cluster, name, facts) == (launch.node, launch.generation):
            return unlisted(launch, kind)
        return Rejected(
            f"{launch.node}: {kind.zone} has an instance {name} that is not this cluster's: "
            "rename or delete it, or call the cluster or the nodes otherwise"
        )

    def _found(self, launches: Sequence[Launch]) -> dict[str, Instance]:
        keys = {(one.node, one.generation) for one in launches}
        listed = self._list(launches[0].cluster)
        return {
            one.node: one
            for one in listed
            if (one.node, one.generation) in keys and one.state is not InstanceState.DELETING
        }


def unlisted(launch: Launch, kind: Kind) -> Instance:
    """One that was made, as long as lists do not show it."""
    return Instance(
        f"{kind.zone}/{render.name_of(launch)}",
        launch.cluster,
        launch.node,
        launch.generation,
        InstanceState.PENDING,
        image=launch.image,
        flavor=launch.flavor,
        zone=kind.zone,
    )


def _outcome(
    launch: Launch, kind: Kind, single: Mapping[str, Answer], rest: CloudError
) -> Instance | CloudError:
    """What its own operation says; else what the whole launch's does."""
    own = single.get(render.name_of(launch))
    if own is None:
        return rest
    what = f"{launch.node} in {kind.zone}"
    if failures := parse_failures(own):
        return hardest(failures, what)
    return unlisted(launch, kind) if own.get("status") == "DONE" else rest


def _counts(done: Answer, key: str) -> int:
    status = (done.get("instancesBulkInsertOperationMetadata") or {}).get("perLocationStatus") or {}
    return sum(int(each.get(key) or 0) for each in status.values())


def _made(done: Answer) -> int:
    return _counts(done, "createdVmCount") - _counts(done, "deletedVmCount")


def _wanted(done: Answer) -> int:
    return _counts(done, "targetVmCount")
