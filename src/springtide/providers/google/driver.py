"""`Driver` of Google Compute Engine: instances, their scripts, consoles and sizes."""

import threading
import time
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import Any

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
)
from springtide.providers.cloud import Catalog
from springtide.providers.cloud.here import own_address
from springtide.providers.google import checks, names, parse, render
from springtide.providers.google.errors import hardest, is_busy, is_missing, parse_failures
from springtide.providers.google.images import Images
from springtide.providers.google.launching import Answers, Launching
from springtide.providers.google.render import Kind
from springtide.providers.google.rest import Answer, Api
from springtide.spec.clouds import Google

BATCH = 1000
DELETERS = 16
ASKED_S = 300.0
"""One that we asked to go, and that is going, is asked again after so long."""
CONSOLE_BYTES = 16 << 10


class Compute:
    """Implements `cloud.Driver`."""

    batch = BATCH
    in_place = False
    """A boot disk cannot be given another image."""

    def __init__(self, wanted: Google, catalog: Catalog, api: Api) -> None:
        self.wanted = wanted
        self.catalog = catalog
        self.api = api
        self.pictures = Images(api, catalog)
        self._launching = Launching(api, wanted, self.list)
        self._deleters = ThreadPoolExecutor(DELETERS, thread_name_prefix="google")
        self._asked: dict[str, float] = {}
        self._lock = threading.Lock()

    def prepare(self, cluster: str) -> Site:
        """Nothing of Google's is the cluster's own but instances and images."""
        return Site(self.wanted.control_address or own_address())

    def remove(self, cluster: str) -> None:
        """Images stay: people made them. `tide image clean` forgets them."""

    def list(self, cluster: str) -> Sequence[Instance]:
        pages = self.api.pages(
            "aggregated/instances",
            f"instances of {cluster}",
            filter=render.cluster_filter(cluster),
            fields=parse.FIELDS,
        )
        seen = [
            one
            for page in pages
            for scope in (page.get("items") or {}).values()
            for one in scope.get("instances") or ()
        ]
        return self._parsed(cluster, seen)

    def launch(self, launches: Sequence[Launch]) -> Answers:
        answers: Answers = {}
        for part in names.decide_parts(launches):
            try:
                answers |= self._launching.launch(part, self._kind(part[0]))
            except CloudError as error:
                answers |= {launch.node: error for launch in part}
        return answers

    def delete(self, instances: Sequence[Instance]) -> Mapping[str, CloudError]:
        """A call for each: the API has none for many. When throttled the rest is not asked."""
        busy = threading.Event()
        asked = [one for one in instances if not self._going(one)]
        done = self._deleters.map(lambda one: self._delete(one, busy), asked)
        return {one.id: error for one, error in zip(asked, done, strict=True) if error is not None}

    def renews(self, markets: Sequence[str]) -> bool:
        return True

    def reboot(self, instance: Instance, launch: Launch) -> Instance:
        """New script first: Google's agent in the guest runs what is there when it boots."""
        at = _at(instance)
        try:
            seen = self.api.get(at, f"instance {instance.id}")
            metadata = render.metadata(seen.get("metadata") or {}, launch)
            self._done(instance, self.api.post(f"{at}/setMetadata", "metadata", metadata))
            stopped = parse.STATES.get(str(seen.get("status"))) is InstanceState.STOPPED
            verb = "start" if stopped else "reset"
            self._done(instance, self.api.post(f"{at}/{verb}", f"{verb} of {instance.id}"))
            after = self._parsed(instance.cluster, [self.api.get(at, f"instance {instance.id}")])
        except CloudError as error:
            if is_missing(error):
                raise Rejected(f"{launch.node}: {instance.id} is gone: create it") from error
            raise
        return after[0] if after else instance

    def rebuild(self, instance: Instance, launch: Launch) -> Instance:
        raise Rejected(f"{launch.node}: Google gives no boot disk another image")

    def console(self, instance: Instance) -> str:
        what = f"console of {instance.id}"
        try:
            said = self.api.get(f"{_at(instance)}/serialPort", what, port=1, start=-CONSOLE_BYTES)
        except CloudError as error:
            if is_missing(error) or is_busy(error):
                return ""
            raise
        return str(said.get("contents") or "")

    def snapshot(self, instance: Instance, name: str) -> CloudImage:
        return self.pictures.snapshot(instance, name)

    def images(self, cluster: str) -> Sequence[CloudImage]:
        return self.pictures.listed(cluster)

    def forget(self, image: CloudImage) -> None:
        self.pictures.forget(image)

    def flavors(self) -> Mapping[str, CloudFlavor]:
        """Those of the default zone; their prices Google keeps elsewhere."""
        pages = self.api.pages(f"zones/{self.wanted.zone}/machineTypes", "machine types")
        seen = [one for page in pages for one in page.get("items") or ()]
        found = [parse.flavor(one) for one in seen if one.get("guestCpus") and one.get("memoryMb")]
        return {flavor.name: flavor for flavor in found}

    def check(self, cluster: str, needs: Sequence[Need]) -> Sequence[Check]:
        return checks.check(self, cluster, needs)

    def close(self) -> None:
        self._deleters.shutdown()
        self.api.close()

    def _kind(self, launch: Launch) -> Kind:
        if launch.market not in (None, "spot", "on-demand"):
            raise Rejected(f"{launch.node}: Google has no market {launch.market}, but `spot`")
        zone = launch.zone or self.wanted.zone
        if not names.allowed(zone):
            raise Rejected(f"{launch.node}: {zone} is not the name of a zone")
        return Kind(
            machine=self.catalog.flavor_type(launch),
            image=self.pictures.resolve(self.catalog.image_id(launch)),
            zone=zone,
        )

    def _parsed(self, cluster: str, seen: Sequence[Mapping[str, Any]]) -> Sequence[Instance]:
        """Those that are ours by more than a label, with the file's words for what they are."""
        known = self.pictures.names() if seen else {}
        found = []
        for one in seen:
            try:
                instance, facts = parse.instance(cluster, one)
            except LookupError:
                continue
            image = self.pictures.name(instance.image, facts.get("image"), known)
            flavor = self.catalog.flavor_name(instance.flavor, str(facts.get("flavor")))
            found.append(replace(instance, image=image, flavor=flavor))
        return found

    def _delete(self, instance: Instance, busy: threading.Event) -> CloudError | None:
        if busy.is_set():
            return Throttled(f"{instance.id} was not asked to go: Google throttles us")
        zone, _, name = instance.id.partition("/")
        if not names.allowed(zone) or not names.allowed(name):
            return None  # nothing at Google can be called so
        try:
            self.api.call("DELETE", _at(instance), f"delete of {instance.id}")
        except CloudError as error:
            if isinstance(error, Throttled):
                busy.set()
            return None if is_missing(error) or is_busy(error) else error
        with self._lock:
            self._asked[instance.id] = time.monotonic() + ASKED_S
        return None

    def _going(self, instance: Instance) -> bool:
        """It stops because we asked; one that stops by itself would stay."""
        now = time.monotonic()
        with self._lock:
            self._asked = {id: until for id, until in self._asked.items() if until > now}
            return instance.state is InstanceState.DELETING and instance.id in self._asked

    def _done(self, instance: Instance, operation: Answer) -> None:
        zone = instance.id.partition("/")[0]
        done = self.api.finish(operation, f"zones/{zone}", f"reboot of {instance.id}")
        if failures := parse_failures(done):
            raise hardest(failures, f"reboot of {instance.id}")


def _at(instance: Instance) -> str:
    zone, _, name = instance.id.partition("/")
    return f"zones/{zone}/instances/{name}"
