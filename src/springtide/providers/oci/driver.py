"""The calls to OCI, blocking: `Cloud` runs them in threads.

OCI makes one instance with a call, and tells no addresses with instances: those it lists by
subnet, so that many nodes cost a call for each page, and are asked for only while some are new.
"""

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from springtide.ports import (
    Check,
    CloudError,
    CloudFlavor,
    CloudImage,
    Denied,
    Instance,
    InstanceState,
    Launch,
    Need,
    NoCapacity,
    Rejected,
    Site,
    Transient,
)
from springtide.providers.cloud import Catalog
from springtide.providers.cloud.driver import Answers
from springtide.providers.cloud.here import own_address
from springtide.providers.oci.account import THREADS, Account
from springtide.providers.oci.checks import Checks
from springtide.providers.oci.errors import CONFLICT, NOT_FOUND, calling, status_of
from springtide.providers.oci.images import OciImages
from springtide.providers.oci.launches import (
    STATES,
    TERMINATED,
    decide_addresses,
    decide_domain,
    decide_token,
    is_ours,
    parse_instance,
    render_launch,
)
from springtide.providers.oci.shapes import FLEX, decide_flavor
from springtide.spec.clouds import Oci

PAGE = 1000
"""The most that OCI lists at once."""
CONSOLE_BYTES = 1 << 20
"""All that it keeps of a console."""
FIRST_PAUSE_S = 0.05
PATIENCE_S = 10.0
"""For what takes OCI a moment; what takes longer is asked for again later."""
GOING = (InstanceState.DELETING,)


class OciDriver:
    """Implements `Driver`."""

    batch = 1
    in_place = False

    def __init__(self, wanted: Oci, catalog: Catalog, account: Account, key: str | None) -> None:
        self.wanted = wanted
        self.catalog = catalog
        self.account = account
        self._key = key
        self._addresses: dict[str, str] = {}
        """Of instances by id: they keep theirs."""
        self._domains: Sequence[str] = ()
        self._images = OciImages(wanted, catalog, account, self.pages)

    def prepare(self, cluster: str) -> Site:
        """Network and compartment are the site's own, so there is nothing to make."""
        return Site(self.wanted.control_address or own_address())

    def remove(self, cluster: str) -> None:
        """`prepare` makes nothing."""

    def list(self, cluster: str) -> Sequence[Instance]:
        with calling("listing instances"):
            listed = self.pages(self.account.compute.list_instances, self.wanted.compartment)
            ours = [one for one in listed if is_ours(one, cluster)]
            self._find(ours)
        self._forget_addresses({one.id for one in listed if one.lifecycle_state != TERMINATED})
        return [self._instance(one) for one in ours]

    def launch(self, launches: Sequence[Launch]) -> Answers:
        return {launch.node: self._launch(launch) for launch in launches}

    def delete(self, instances: Sequence[Instance]) -> Mapping[str, CloudError]:
        """Boot volumes and interfaces go with them. What is going already is not asked again."""
        wanted = [one for one in instances if one.state not in GOING]
        with ThreadPoolExecutor(THREADS, thread_name_prefix="oci-delete") as pool:
            answers = zip(wanted, pool.map(self._terminate, wanted), strict=True)
            return {one.id: error for one, error in answers if error is not None}

    def renews(self, markets: Sequence[str]) -> bool:
        return False

    def reboot(self, instance: Instance, launch: Launch) -> Instance:
        """With the user data that it has: OCI does not change it."""
        for _ in pauses():
            try:
                return self._act(instance)
            except Transient as error:
                if status_of(error) != CONFLICT:
                    raise
        raise Transient(f"{launch.node}: {instance.id} is busy with something else")

    def rebuild(self, instance: Instance, launch: Launch) -> Instance:
        raise Rejected("OCI makes another instance for another image")

    def console(self, instance: Instance) -> str:
        try:
            with calling(f"reading the console of {instance.node}"):
                return self._captured(instance)
        except CloudError as error:
            if status_of(error) in (NOT_FOUND, CONFLICT):
                return ""
            raise

    def snapshot(self, instance: Instance, name: str) -> CloudImage:
        return self._images.snapshot(instance, name)

    def images(self, cluster: str) -> Sequence[CloudImage]:
        return self._images.images(cluster)

    def forget(self, image: CloudImage) -> None:
        self._images.forget(image)

    def flavors(self) -> Mapping[str, CloudFlavor]:
        """Of flexible shapes, which have any size, those sizes that the file names."""
        known = self.shapes()
        types = [name for name in known if not name.endswith(FLEX)]
        types += [self.catalog.type_of(name) for name in self.catalog.flavors]
        found: dict[str, CloudFlavor] = {}
        for type in types:
            try:
                flavor = decide_flavor(type, known)
            except Rejected:
                continue
            if flavor is not None:
                found[type] = flavor
        return found

    def check(self, cluster: str, needs: Sequence[Need]) -> Sequence[Check]:
        return Checks(self).of(cluster, needs)

    def close(self) -> None:
        self.account.close()

    def pages(self, ask: Callable[..., Any], *arguments: Any, **more: Any) -> Sequence[Any]:
        """All that a call lists. The SDK's own loop has retries of its own."""
        answer = ask(*arguments, limit=PAGE, **more)
        found = [*answer.data]
        while answer.has_next_page:
            answer = ask(*arguments, limit=PAGE, page=answer.next_page, **more)
            found += answer.data
        return found

    def shapes(self, **more: Any) -> dict[str, Any]:
        """What OCI lists, by name; it says the same of each availability domain."""
        with calling("listing shapes"):
            listed = self.pages(self.account.compute.list_shapes, self.wanted.compartment, **more)
        return {one.shape: one for one in listed}

    def domains(self) -> Sequence[str]:
        """The availability domains; they do not change, but come in any order."""
        if not self._domains:
            with calling("listing availability domains"):
                answer = self.account.identity.list_availability_domains(self.wanted.compartment)
            self._domains = sorted(one.name for one in answer.data)
        return self._domains

    def _launch(self, launch: Launch) -> Instance:
        domain = decide_domain(launch.zone, self.domains())
        request = render_launch(launch, self.wanted, self.catalog, domain, self._key)
        with calling(f"launching {launch.node}"):
            made = self.account.compute.launch_instance(
                request, opc_retry_token=decide_token(launch)
            ).data
        if STATES.get(made.lifecycle_state) in GOING:
            raise NoCapacity(f"{launch.node}: OCI has given up {made.id}, which it had begun")
        return self._instance(made)

    def _instance(self, listed: Any) -> Instance:
        return parse_instance(listed, self._addresses.get(listed.id), self.catalog)

    def _find(self, listed: Sequence[Any]) -> None:
        """Where new ones are: a few calls for however many."""
        new = [one for one in listed if one.id not in self._addresses]
        if all(STATES.get(one.lifecycle_state) in GOING for one in new):
            return
        attachments = self.pages(
            self.account.compute.list_vnic_attachments, self.wanted.compartment
        )
        subnets = sorted({self.wanted.subnet, *self.wanted.subnets.values()})
        addresses = [
            one
            for subnet in subnets
            for one in self.pages(self.account.network.list_private_ips, subnet_id=subnet)
        ]
        self._addresses = {**self._addresses, **decide_addresses(attachments, addresses, subnets)}

    def _forget_addresses(self, living: set[str]) -> None:
        self._addresses = {id: at for id, at in self._addresses.items() if id in living}

    def _terminate(self, instance: Instance) -> CloudError | None:
        try:
            with calling(f"deleting {instance.node}"):
                self.account.compute.terminate_instance(instance.id, preserve_boot_volume=False)
        except CloudError as error:
            return self._still(instance, error)
        return None

    def _still(self, instance: Instance, refusal: CloudError) -> CloudError | None:
        """OCI says alike that something is gone, and that we may not touch it."""
        if status_of(refusal) not in (NOT_FOUND, CONFLICT):
            return refusal
        try:
            state = self._state(instance)
        except CloudError as error:
            return None if status_of(error) == NOT_FOUND else error
        return None if state in GOING else refusal

    def _state(self, instance: Instance) -> InstanceState:
        with calling(f"looking at {instance.node}"):
            found = self.account.compute.get_instance(instance.id).data
        return STATES.get(found.lifecycle_state, InstanceState.PENDING)

    def _act(self, instance: Instance) -> Instance:
        """One that is off is started; one that goes is left."""
        try:
            state = self._state(instance)
            if state in GOING:
                raise Rejected(f"{instance.node}: {instance.id} is being deleted")
            action = "START" if state is InstanceState.STOPPED else "RESET"
            with calling(f"rebooting {instance.node}"):
                return self._instance(
                    self.account.compute.instance_action(instance.id, action).data
                )
        except Denied as error:
            if status_of(error) != NOT_FOUND:
                raise
            raise Rejected(f"{instance.node}: {instance.id} is not there, or not ours") from error

    def _captured(self, instance: Instance) -> str:
        """OCI first makes a copy of what was said, which is then ours to delete."""
        compute = self.account.compute
        copy = compute.capture_console_history({"instanceId": instance.id}).data.id
        try:
            for _ in pauses():
                state = compute.get_console_history(copy).data.lifecycle_state
                if state == "SUCCEEDED":
                    return _text(compute.get_console_history_content(copy, length=CONSOLE_BYTES))
                if state == "FAILED":
                    break
            return ""
        finally:
            compute.delete_console_history(copy)


def pauses() -> Iterator[None]:
    """Tries, ever longer apart, for as long as one may wait."""
    end, pause_s = time.monotonic() + PATIENCE_S, FIRST_PAUSE_S
    yield
    while time.monotonic() + pause_s < end:
        time.sleep(pause_s)
        pause_s *= 1.5
        yield


def _text(answer: Any) -> str:
    said = answer.data
    return said.decode(errors="replace") if isinstance(said, bytes) else str(said)
