"""`cloud.Driver` over a Terraform module."""

import shutil
import time
from collections.abc import Collection, Iterable, Mapping, Sequence
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
    Transient,
)
from springtide.providers.cloud import Catalog
from springtide.providers.cloud.here import own_address
from springtide.providers.cloud.script import named
from springtide.providers.terraform import messages, parts
from springtide.providers.terraform.program import Program
from springtide.spec.clouds import Terraform

OUTPUT = "nodes"
NO_IMAGES = "Terraform makes no images of nodes: make them with your own tools"
NO_REBOOT = "the module does not reboot nodes: it must do so when `boot` of a node changes"
STATES = {"running": InstanceState.RUNNING, "broken": InstanceState.BROKEN}


class TerraformDriver:
    """The nodes of one cluster in the state of a module."""

    batch = 1000
    in_place = False

    def __init__(self, wanted: Terraform, catalog: Catalog, program: Program) -> None:
        self._wanted = wanted
        self._catalog = catalog
        self._program = program
        self._refreshed_at = time.monotonic()

    def prepare(self, cluster: str) -> Site:
        with self._program.alone():
            self._program.prepare(cluster)
        return Site(self._wanted.control_address or own_address())

    def remove(self, cluster: str) -> None:
        with self._program.alone():
            if self._program.is_prepared():
                self._program.remove(cluster)
                self._program.want({})

    def list(self, cluster: str) -> Sequence[Instance]:
        with self._program.alone():
            if not self._program.is_prepared():
                return []
            self._refresh()
            return [one for one in self._instances(cluster).values() if one.cluster == cluster]

    def launch(self, launches: Sequence[Launch]) -> Mapping[str, Instance | CloudError]:
        """Wanted are those that exist and those asked for; only the latter are touched."""
        with self._program.alone():
            wanted = {launch.node: self._want(launch) for launch in launches}
            self._program.want({**self._program.wanted(), **wanted})
            failed = self._program.apply([*wanted])
            self._clear(failed)
            made = {node: self._shown(node, one) for node, one in self._outputs().items()}
        errors = {node: messages.classify(f"{node}: {text}") for node, text in failed.items()}
        silent = Transient("Terraform says nothing about it: is it in the output `nodes`?")
        answers = {node: made.get(node, silent) for node in wanted}
        return {**answers, **errors}

    def delete(self, instances: Sequence[Instance]) -> Mapping[str, CloudError]:
        with self._program.alone():
            there = self._instances(instances[0].cluster)
            going = [one for one in instances if there.get(one.node, one).id == one.id]
            doomed = [one for one in going if one.node in there]
            failed = self._program.destroy([one.node for one in doomed]) if doomed else {}
            self._unwant(one.node for one in going if one.node not in failed)
        return {
            one.id: messages.classify(f"{one.node}: {failed[one.node]}")
            for one in doomed
            if one.node in failed
        }

    def renews(self, markets: Sequence[str]) -> bool:
        return True

    def reboot(self, instance: Instance, launch: Launch) -> Instance:
        with self._program.alone():
            wanted = self._program.wanted()
            if launch.node not in wanted and launch.node not in self._outputs():
                raise Transient(f"{launch.node} is no longer there")
            known = wanted.get(launch.node) or self._want(launch)
            boot = known["boot"] + 1
            again = {**known, "user_data": named(launch), "boot": boot}
            self._program.want({**wanted, launch.node: again})
            failed = self._program.apply([launch.node])
            after = self._outputs().get(launch.node)
        if launch.node in failed:
            raise messages.classify(f"{launch.node}: {failed[launch.node]}")
        if after is None or after.get("boot") != boot:
            raise Rejected(f"{launch.node}: {NO_REBOOT}")
        return self._shown(launch.node, after)

    def rebuild(self, instance: Instance, launch: Launch) -> Instance:
        raise Rejected("a node of Terraform with another image is another instance")

    def console(self, instance: Instance) -> str:
        return ""

    def snapshot(self, instance: Instance, name: str) -> CloudImage:
        raise Rejected(NO_IMAGES)

    def images(self, cluster: str) -> Sequence[CloudImage]:
        return []

    def forget(self, image: CloudImage) -> None:
        """There are none."""

    def flavors(self) -> Mapping[str, CloudFlavor]:
        return {}

    def check(self, cluster: str, needs: Sequence[Need]) -> Sequence[Check]:
        program, module = self._wanted.program, self._wanted.module
        if shutil.which(program) is None:
            todo = "install it, or set `program` to where it is"
            return [Check("program", False, f"{program} is not on PATH", todo)]
        text = "".join(path.read_text(errors="replace") for path in sorted(module.glob("*.tf")))
        if not text and not any(module.glob("*.tf.json")):
            return [Check("module", False, f"{module} holds no module", "correct `module`")]
        missing = parts.decide_missing(text, self._wanted.resource) if text else []
        return missing or [self._check_module()]

    def _check_module(self) -> Check:
        """In a place of its own: nothing of the cluster's is touched, and nobody waited for."""
        try:
            self._program.try_module()
        except CloudError as error:
            todo = f"run `{self._wanted.program} init && {self._wanted.program} validate` there"
            return Check("module", False, str(error), todo)
        return Check("module", True, f"{self._wanted.module} is valid")

    def close(self) -> None:
        """Nothing is held open."""

    def _clear(self, failed: Collection[str]) -> None:
        """What is left of nodes that could not be made; Terraform keeps it, as tainted."""
        if failed:
            stuck = self._program.destroy([*failed])
            self._unwant(node for node in failed if node not in stuck)

    def _unwant(self, nodes: Iterable[str]) -> None:
        wanted = self._program.wanted()
        for node in nodes:
            wanted.pop(node, None)
        self._program.want(wanted)

    # The world, as Terraform's state has it

    def _refresh(self) -> None:
        """What vanished in the cloud is in the state until Terraform looks."""
        if time.monotonic() < self._refreshed_at + self._wanted.refresh:
            return
        self._program.refresh()
        self._refreshed_at = time.monotonic()

    def _outputs(self) -> Mapping[str, Mapping[str, Any]]:
        return self._state()[0]

    def _state(self) -> tuple[Mapping[str, Mapping[str, Any]], set[str]]:
        """What the output says of nodes, and the nodes that the state has anything of.

        Without those that are gone: a run that destroys nodes leaves outputs as they were.
        """
        found, there = self._program.state(OUTPUT)
        if not isinstance(found, Mapping):
            raise Rejected(f"the output `{OUTPUT}` of the module is no map of nodes")
        return {node: one for node, one in found.items() if node in there}, there

    def _instances(self, cluster: str) -> dict[str, Instance]:
        """With nodes that a run which was broken off left in the state, and not in the output."""
        found, there = self._state()
        whole = {node: self._shown(node, one) for node, one in found.items()}
        halves = {node: self._half(cluster, node) for node in there if node not in found}
        return {**halves, **whole}

    def _half(self, cluster: str, node: str) -> Instance:
        """The state is in a workspace of the cluster's own, so it can be nobody else's."""
        generation = self._program.wanted().get(node, {}).get("generation", 0)
        id = f"{self._wanted.resource}.{node}"
        return Instance(id, cluster, node, int(generation), InstanceState.BROKEN)

    def _shown(self, node: str, one: Mapping[str, Any]) -> Instance:
        try:
            return Instance(
                id=str(one["id"]),
                cluster=str(one["cluster"]),
                node=node,
                generation=int(one["generation"]),
                state=STATES.get(str(one.get("state", "running")), InstanceState.PENDING),
                address=str(one["address"]) if one.get("address") else None,
                image=self._catalog.image_name(_text(one, "image"), _text(one, "image_name")),
                flavor=self._catalog.flavor_name(_text(one, "flavor"), _text(one, "flavor_name")),
                zone=_text(one, "zone"),
                created_at=float(one.get("created_at") or 0),
                booted_at=float(one.get("booted_at") or one.get("created_at") or 0),
            )
        except (KeyError, TypeError, ValueError) as error:
            raise Rejected(
                f"the output `{OUTPUT}` of the module lacks or garbles {error} of {node}; "
                "see docs/providers/terraform.md"
            ) from error

    def _want(self, launch: Launch) -> dict[str, Any]:
        image = self._catalog.images.get(launch.image)
        id = self._catalog.image_id(launch) if image and image.id else launch.image
        return {
            "cluster": launch.cluster,
            "generation": launch.generation,
            "group": launch.group,
            "image": id,
            "flavor": self._catalog.flavor_type(launch),
            "zone": launch.zone or "",
            "market": launch.market or "",
            "user_data": named(launch),
            "boot": 0,
        }


def _text(one: Mapping[str, Any], key: str) -> str | None:
    return str(one[key]) if one.get(key) else None
