"""The calls of the provider: `Driver` over azure-mgmt-compute.

A launch is a call for each machine and one wait for all of them: Azure takes every request, and
says only afterwards, in the status of the machine, that there was no room for it.
"""

from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import TypeVar

import requests
from azure.core import MatchConditions
from azure.mgmt.compute import ComputeManagementClient

from springtide.ports import (
    Check,
    CloudError,
    CloudFlavor,
    CloudImage,
    Instance,
    InstanceState,
    Launch,
    Need,
    Rejected,
    Site,
    Throttled,
    Transient,
)
from springtide.providers.azure import bodies, names, shapes
from springtide.providers.azure.account import on_loopback
from springtide.providers.azure.checks import Checks
from springtide.providers.azure.errors import is_gone, is_there, translated
from springtide.providers.azure.images import Images
from springtide.providers.azure.resources import Resources
from springtide.providers.azure.shapes import Status
from springtide.providers.azure.waiting import Patience, refused
from springtide.providers.cloud import Catalog, tags
from springtide.providers.cloud.driver import Answers
from springtide.providers.cloud.here import own_address
from springtide.spec.clouds import Azure

_W = TypeVar("_W")
_A = TypeVar("_A")

THREADS = 16
OFF = frozenset({InstanceState.STOPPED, InstanceState.BROKEN})
CONSOLE_LINK_MINUTES = 5
ONLY_NEW = MatchConditions.IfMissing
"""Machines are made, and never changed by mistake."""


class AzureDriver:
    """One resource group of a subscription."""

    batch = 1000
    """Not with one call, but with one wait: their number costs no looks."""
    in_place = False

    def __init__(
        self, wanted: Azure, catalog: Catalog, client: ComputeManagementClient, key: str
    ) -> None:
        self.wanted = wanted
        self.catalog = catalog
        self.patience = Patience()
        self._key = key
        self._client = client
        self._group = wanted.resource_group
        self._resources = Resources(client, wanted)
        self._images = Images(client, wanted)
        self._pool = ThreadPoolExecutor(THREADS, thread_name_prefix="azure")

    def prepare(self, cluster: str) -> Site:
        """Nothing is the cluster's own but its machines."""
        return Site(self.wanted.control_address or own_address())

    def remove(self, cluster: str) -> None:
        """Interfaces go with their machines, but for those of machines that were never made."""
        for interface in self._resources.interfaces():
            properties = interface.get("properties") or {}
            ours = shapes.tagged(interface).get(tags.CLUSTER) == cluster
            if ours and not properties.get("virtualMachine"):
                self._resources.delete_interface(interface["id"])

    def list(self, cluster: str) -> Sequence[Instance]:
        with translated(f"list the machines of {self._group}"):
            machines = [
                machine
                for machine in self._client.virtual_machines.list(self._group)
                if shapes.tagged(machine).get(tags.CLUSTER) == cluster
            ]
        if not machines:
            return []
        statuses, addresses = self._resources.statuses(), self._resources.addresses()
        return [
            shapes.instance(
                machine,
                statuses.get(machine["name"].lower(), Status()),
                addresses.get(machine["id"].lower()),
                self.catalog,
            )
            for machine in machines
        ]

    def launch(self, launches: Sequence[Launch]) -> Answers:
        nodes = [launch.node for launch in launches]
        answers = dict(zip(nodes, self._each(self._make, launches), strict=True))
        made = [one for one in answers.values() if isinstance(one, Instance)]
        ids = [one.id for one in made]
        failures = refused(ids, self._resources.statuses, self.patience)
        self.delete([one for one in made if one.id in failures])
        return answers | {one.node: failures[one.id] for one in made if one.id in failures}

    def _each(self, do: Callable[[_W], _A], wanted: Sequence[_W]) -> Sequence[_A | Throttled]:
        """Side by side. Once Azure has throttled one, the rest are not asked for at all."""
        throttled: list[Throttled] = []

        def attempt(one: _W) -> _A | Throttled:
            if throttled:
                return throttled[0]
            answer = do(one)
            if isinstance(answer, Throttled):
                throttled.append(answer)
            return answer

        return [*self._pool.map(attempt, wanted)]

    def _make(self, launch: Launch) -> Instance | CloudError:
        """Answers when Azure has taken the request, not when the machine is there."""
        name = names.machine_name(launch)
        try:
            body = bodies.machine(launch, self.wanted, self.catalog, self._key)
            with translated(f"make {launch.node} ({name})"):
                made = self._client.virtual_machines.begin_create_or_update(
                    self._group,
                    name,
                    body,
                    match_condition=ONLY_NEW,
                    polling=False,
                ).result()
        except CloudError as error:
            return self._standing(name) if is_there(error) else error
        return shapes.instance(made, Status(), None, self.catalog)

    def _standing(self, name: str) -> Instance | CloudError:
        """One that was made before, by a request whose answer we never had."""
        try:
            with translated(f"find {name}, which it says is there"):
                found = self._client.virtual_machines.get(self._group, name)
        except CloudError as error:
            return Transient(str(error)) if is_gone(error) else error
        one = shapes.instance(found, Status(), None, self.catalog)
        if one.state is InstanceState.DELETING:
            return Transient(f"{one.node}: {name} is still being deleted")
        return one

    def delete(self, instances: Sequence[Instance]) -> Mapping[str, CloudError]:
        going = [one for one in instances if one.state is not InstanceState.DELETING]
        answers = zip(going, self._each(self._delete, going), strict=True)
        return {one.id: error for one, error in answers if isinstance(error, CloudError)}

    def _delete(self, instance: Instance) -> CloudError | None:
        """By force: nobody waits for its services to stop."""
        try:
            with translated(f"delete {instance.id}"):
                self._client.virtual_machines.begin_delete(
                    self._group, instance.id, force_deletion=True, polling=False
                )
        except CloudError as error:
            return None if is_gone(error) else error
        return None

    def renews(self, markets: Sequence[str]) -> bool:
        return True

    def reboot(self, instance: Instance, launch: Launch) -> Instance:
        """The user data must be there before it starts; the start itself is seen in the list."""
        machines = self._client.virtual_machines
        body = {"properties": {"userData": bodies.user_data(launch)}}
        with translated(f"reboot {launch.node} ({instance.id})"):
            update = machines.begin_update(
                self._group, instance.id, body, polling_interval=self.patience.pause_s
            )
            update.wait(self.wanted.timeout)
            if not update.done():
                raise Transient(f"{instance.id}: Azure still changes its user data")
            update.result()
            again = machines.begin_start if instance.state in OFF else machines.begin_restart
            again(self._group, instance.id, polling=False)
        return replace(instance, state=InstanceState.PENDING)

    def rebuild(self, instance: Instance, launch: Launch) -> Instance:
        raise Rejected("Azure replaces no disks: an instance with another image is another one")

    def console(self, instance: Instance) -> str:
        """The log is a file elsewhere: its link needs no credentials, and gets none of ours."""
        try:
            with translated(f"tell where the console of {instance.id} is"):
                links = self._client.virtual_machines.retrieve_boot_diagnostics_data(
                    self._group,
                    instance.id,
                    sas_uri_expiration_time_in_minutes=CONSOLE_LINK_MINUTES,
                )
        except Rejected:
            return ""
        return self._read(str(links.get("serialConsoleLogBlobUri") or ""))

    def _read(self, link: str) -> str:
        tested = on_loopback(self.wanted.endpoint or "") and on_loopback(link)
        if not (link.startswith("https://") or tested):
            return ""
        try:
            answer = requests.get(link, timeout=self.wanted.timeout, allow_redirects=False)
        except requests.RequestException:
            return ""
        return answer.content.decode(errors="replace") if answer.ok else ""

    def snapshot(self, instance: Instance, name: str) -> CloudImage:
        return self._images.make(instance, name, self.patience.pause_s)

    def images(self, cluster: str) -> Sequence[CloudImage]:
        return self._images.of(cluster)

    def forget(self, image: CloudImage) -> None:
        self._images.forget(image)

    def flavors(self) -> Mapping[str, CloudFlavor]:
        """Azure's API of machines tells no prices."""
        found = (shapes.flavor(sku) for sku in self._resources.sizes())
        return {one.name: one for one in found if one is not None}

    def check(self, cluster: str, needs: Sequence[Need]) -> Sequence[Check]:
        checks = Checks(self._resources, self.wanted, self.catalog)
        return checks.all(needs, lambda: self.list(cluster))

    def close(self) -> None:
        self._pool.shutdown()
        self._client.close()
