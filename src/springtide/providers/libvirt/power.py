"""Machines that exist: a node's is the domain of its name, created is switched on.

Its mark is put before it is switched on and taken away when it is off. A machine that runs
without our mark, or with another cluster's, is somebody's: it is neither listed nor touched.
"""

import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any
from xml.etree import ElementTree

from springtide.ports import (
    Check,
    CloudError,
    CloudImage,
    Instance,
    InstanceState,
    Launch,
    Need,
    Rejected,
    Site,
)
from springtide.providers.libvirt import checks, marks
from springtide.providers.libvirt.host import OFF, Host, cut_off, found, mark_of, put_mark
from springtide.providers.libvirt.marks import Mark

SNAPSHOTS = "machines of `nodes: power` have disks of their own, of which no images are made"


class Powered(Host):
    """Implements `providers.cloud.Driver`."""

    in_place = False

    def prepare(self, cluster: str) -> Site:
        self.connection.get()
        return self.site()

    def remove(self, cluster: str) -> None:
        """Nothing was made."""

    def list(self, cluster: str) -> Sequence[Instance]:
        there = [one for one in self.marked(cluster) if not _is_off_for_good(*one)]
        known = self._addresses() if there else {}
        seen = ((mark, marks.decide_state(state, why, mark)) for mark, state, why in there)
        return [self.instance(mark, state, known.get(mark.mac)) for mark, state in seen if state]

    def launch(self, launches: Sequence[Launch]) -> Mapping[str, Instance | CloudError]:
        return {launch.node: self._switch_on(launch) for launch in launches}

    def delete(self, instances: Sequence[Instance]) -> Mapping[str, CloudError]:
        refused: dict[str, CloudError] = {}
        for instance in instances:
            try:
                self._switch_off(instance)
            except CloudError as error:
                refused[instance.id] = error
        return refused

    def renews(self, markets: Sequence[str]) -> bool:
        return False

    def reboot(self, instance: Instance, launch: Launch) -> Instance:
        """The machine finds on its disk what it found before."""
        with self.alone(launch.node) as connection:
            domain, mark = self._own(connection, instance)
            if domain is None or mark is None or mark.going_at:
                raise Rejected(f"{launch.node} is being switched off, or is off: create it instead")
            after = mark.rebooted(time.time())
            if domain.isActive():
                domain.reset(0)
            else:
                domain.create()
            put_mark(domain, after)
            return self.instance(after, InstanceState.RUNNING, self._addresses().get(after.mac))

    def rebuild(self, instance: Instance, launch: Launch) -> Instance:
        raise Rejected(f"{launch.node} exists without us, and so does its disk")

    def console(self, instance: Instance) -> str:
        """Whatever these machines write their consoles to is not ours."""
        return ""

    def snapshot(self, instance: Instance, name: str) -> CloudImage:
        raise Rejected(f"{instance.node}: {SNAPSHOTS}")

    def images(self, cluster: str) -> Sequence[CloudImage]:
        return []

    def forget(self, image: CloudImage) -> None:
        """There is none."""

    def check(self, cluster: str, needs: Sequence[Need]) -> Sequence[Check]:
        return checks.of_powered(self)

    def _switch_on(self, launch: Launch) -> Instance:
        with self.alone(launch.node) as connection:
            domain = found(connection, launch.node)
            if refusal := self._refusal(domain, launch):
                raise refusal
            before = mark_of(domain)
            begun = before is not None and before.is_of(launch)
            mark = marks.made_for(launch, time.time(), "", _mac(domain), "")
            put_mark(domain, replace(mark, starting=True))
            # If another cluster was quicker, this fails: one of us has the machine.
            if not (begun and domain.isActive()):
                domain.create()
            put_mark(domain, mark)
            return self.instance(mark, InstanceState.RUNNING, self._addresses().get(mark.mac))

    def _refusal(self, domain: Any, launch: Launch) -> Rejected | None:
        node = launch.node
        if domain is None:
            return Rejected(
                f"{node}: {self.wanted.uri} has no machine of that name: define one, or take the "
                "node out of the group"
            )
        if not domain.isPersistent():
            return Rejected(f"{node}: the machine is transient, so it cannot be switched on again")
        mark = mark_of(domain)
        state = domain.state()[0]
        if state in OFF and (mark is None or _is_free(mark)):
            return None
        if mark is None:
            return Rejected(
                f"{node}: the machine runs already, and not by us: shut it down first "
                f"(`virsh shutdown {node}`), or take the node out of the group"
            )
        if mark.is_of(launch):
            return None
        whose = f"cluster {mark.cluster}, generation {mark.generation}"
        return Rejected(f"{node}: the machine is in use by {whose}: it must be switched off there")

    def _switch_off(self, instance: Instance) -> None:
        with self.alone(instance.node) as connection:
            domain, mark = self._own(connection, instance)
            if domain is None or mark is None:
                return
            now = time.time()
            if not domain.isActive():
                put_mark(domain, None)
            elif not mark.going_at and self.wanted.grace:
                put_mark(domain, replace(mark, going_at=now))
                domain.shutdown()
            elif now >= mark.going_at + self.wanted.grace:
                cut_off(domain)
                put_mark(domain, None)

    def _own(self, connection: Any, instance: Instance) -> tuple[Any, Mark | None]:
        """The machine of this instance, if it is still this instance's."""
        domain = found(connection, instance.node)
        mark = mark_of(domain) if domain is not None else None
        return (domain, mark) if mark is not None and mark.is_of(instance) else (None, None)

    def _addresses(self) -> dict[str, str]:
        """As the site bound them, else as they were leased."""
        connection = self.connection.get()
        return {**self.network.leased(connection), **self.network.known(connection).entries}


def _is_off_for_good(mark: Mark, state: int, reason: int) -> bool:
    """It shut down because we asked; its mark is for the next one to replace."""
    return bool(mark.going_at) and state in OFF


def _is_free(mark: Mark) -> bool:
    """Of a machine that is off."""
    return bool(mark.going_at) or mark.starting


def _mac(domain: Any) -> str:
    """Of its first link; empty if it has none."""
    tree = ElementTree.fromstring(domain.XMLDesc(0))  # noqa: S314 - libvirt has made it
    mac = tree.find("devices/interface/mac")
    return "" if mac is None else mac.get("address", "").lower()
