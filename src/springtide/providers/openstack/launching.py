"""Servers in bulk: one request makes many, and what became of each is found out for a while.

Nova takes a request before it has looked for room. That there is none shows only in the servers,
which it then has failed: so those are looked at until they have a place or have failed, or until
`settle_s` is over. A request of many is placed as a whole or not at all; of one that was not, half
is tried, and so on, so that what room there is gets used. What was asked for without an answer is
not asked for again for a while: see `doubts`.
"""

import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress

from springtide.ports import (
    CloudError,
    Instance,
    InstanceState,
    Launch,
    NoCapacity,
    QuotaExceeded,
    Rejected,
    Transient,
)
from springtide.providers.cloud import Catalog, roster
from springtide.providers.openstack import requests
from springtide.providers.openstack.api import COMPUTE, Api, Json
from springtide.providers.openstack.doubts import Doubts
from springtide.providers.openstack.errors import Unsure, of_fault
from springtide.providers.openstack.identity import member_of
from springtide.providers.openstack.names import Names
from springtide.providers.openstack.shapes import address_of, fault_of, parse_server, state_of
from springtide.spec.clouds import OpenStack

SETTLE_S = 10.0
"""How long a launch waits for Nova to find its servers a place."""
THREADS = 8
FIRST_LOOK_S, LAST_LOOK_S, GROWTH = 0.25, 3.0, 1.5

UNKNOWN = "whether it was made is not known yet, so it is looked for before it is asked for again"

Answers = dict[str, Instance | CloudError]


class Launching:
    """Makes servers of a project."""

    def __init__(
        self, wanted: OpenStack, catalog: Catalog, api: Api, names: Names, settle_s: float
    ) -> None:
        self.doubts = Doubts(wanted.timeout)
        self._wanted = wanted
        self._catalog = catalog
        self._api = api
        self._names = names
        self._settle_s = settle_s

    def launch(self, launches: Sequence[Launch]) -> Answers:
        """Launches that are alike; as many of them as there is room for."""
        doubtful = self.doubts.among(launches)
        answers: Answers = {one.node: _not_known_yet(one) for one in doubtful}
        if clear := [one for one in launches if one.node not in answers]:
            answers |= self._fitted(clear)
        return answers

    def _fitted(self, launches: Sequence[Launch]) -> Answers:
        try:
            answers = self._request(in_order(launches))
        except CloudError as error:
            return {one.node: error for one in launches}
        if len(launches) == 1 or not all(isinstance(one, NoCapacity) for one in answers.values()):
            return answers
        half = len(launches) // 2
        answers |= self._fitted(launches[:half])
        if any(isinstance(answers[one.node], Instance) for one in launches[:half]):
            answers |= self._fitted(launches[half:])
        return answers

    def _request(self, launches: Sequence[Launch]) -> Answers:
        made = self._settled(self._reserved(launches))
        answers = self._judged(launches, made)
        self.doubts.add(one for one in launches if isinstance(answers[one.node], Transient))
        self._remove([one for one in made if _failed(answers.get(member_of(one)[0]))])
        return answers

    def _reserved(self, launches: Sequence[Launch]) -> str:
        body = requests.create(self._wanted, launches, self._names.of(launches[0]))
        try:
            return str(self._api.post(COMPUTE, "/servers", body)["reservation_id"])
        except Rejected:
            self._names.forget()
            raise
        except Unsure as error:
            self.doubts.add(launches)
            raise Transient(f"{error}; {UNKNOWN}") from error

    def _settled(self, reservation: str) -> list[Json]:
        end, pause_s = time.monotonic() + self._settle_s, FIRST_LOOK_S
        while True:
            found = list(
                self._api.pages(COMPUTE, "/servers/detail", "servers", reservation_id=reservation)
            )
            if all(map(_has_place, found)) or time.monotonic() > end:
                return found
            time.sleep(pause_s)
            pause_s = min(pause_s * GROWTH, LAST_LOOK_S)

    def _judged(self, launches: Sequence[Launch], made: Sequence[Json]) -> Answers:
        """Of a request for more than the quota has left, Nova makes the first ones."""
        answers: Answers = {one.node: _lost(one) for one in launches}
        answers |= {one.node: _over_quota(one) for one in launches[len(made) :] if made}
        of_member = {(one.node, one.generation): one for one in launches}
        for server in made:
            if launch := of_member.get(member_of(server)):
                answers[launch.node] = self._verdict(launch, server)
        return answers

    def _verdict(self, launch: Launch, server: Json) -> Instance | CloudError:
        broken = state_of(server) is InstanceState.BROKEN
        error = of_fault(fault_of(server), launch.node) if broken else None
        return error or parse_server(server, self._catalog, self._names.refs())

    def _remove(self, servers: Sequence[Json]) -> None:
        """What failed, side by side, so that its nodes are given back soon."""
        if servers:
            with ThreadPoolExecutor(THREADS) as pool:
                list(pool.map(self._forget, servers))

    def _forget(self, server: Json) -> None:
        """If that fails too, it is listed as broken, and goes as such."""
        with suppress(CloudError):
            self._api.delete(COMPUTE, f"/servers/{server['id']}")


def in_order(launches: Sequence[Launch]) -> list[Launch]:
    """That of the roster."""
    by_member = {(one.node, one.generation): one for one in launches}
    return [by_member[member] for member in roster.ordered(list(by_member))]


def _has_place(server: Json) -> bool:
    """A host has it, or none ever will."""
    return state_of(server) is not InstanceState.PENDING or address_of(server) is not None


def _failed(answer: Instance | CloudError | None) -> bool:
    return isinstance(answer, CloudError)


def _over_quota(launch: Launch) -> QuotaExceeded:
    return QuotaExceeded(
        f"{launch.node}: the project's quota had no room left for it; ask for a higher one, or "
        "lower what the file wants"
    )


def _not_known_yet(launch: Launch) -> Transient:
    return Transient(f"{launch.node}: a request for it was not answered; {UNKNOWN}")


def _lost(launch: Launch) -> Transient:
    return Transient(f"{launch.node}: Nova took the request, and shows no server for it")
