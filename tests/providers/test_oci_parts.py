"""Oracle's cloud without any calls: shapes, requests, errors, limits, addresses."""

from base64 import b64decode
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from oci._vendor.requests.exceptions import ConnectionError as BrokenConnection
from oci.core.models import Instance as Model
from oci.exceptions import ServiceError

from springtide.ports import (
    CloudError,
    CloudFlavor,
    Denied,
    InstanceState,
    Launch,
    NoCapacity,
    QuotaExceeded,
    Rejected,
    Throttled,
    Transient,
)
from springtide.providers.cloud import Catalog
from springtide.providers.oci.account import Account
from springtide.providers.oci.errors import calling, decide_class, status_of, translate
from springtide.providers.oci.launches import (
    STATES,
    decide_addresses,
    decide_domain,
    decide_token,
    parse_instance,
    render_launch,
)
from springtide.providers.oci.limits import decide_room, decide_units, take
from springtide.providers.oci.shapes import (
    Shape,
    arch_of,
    decide_flavor,
    decide_misfit,
    parse_shape,
    render_shape,
)
from springtide.spec import Flavor, Image
from springtide.spec.clouds import Oci

DOMAINS = ["Uocm:PHX-AD-1", "Uocm:PHX-AD-2"]
LAUNCH = Launch("blue", "n0", 3, "general", "linux", "small", user_data="echo up\n")
CATALOG = Catalog(
    images={"linux": Image(id={"x86_64": "image-x86"}), "both": Image(id="image")},
    flavors={
        "small": Flavor(type="VM.Standard.E4.Flex.4.64", cpus=8, memory=60000),
        "fixed": Flavor(type="VM.Standard2.2", cpus=4, memory=28000),
        "arm": Flavor(type="VM.Standard.A1.Flex.4.24", cpus=4, memory=23000, arch="aarch64"),
    },
)


def spec(**more: Any) -> Oci:
    return Oci(**{"compartment": "compartment", "subnet": "subnet", **more})


def listed(name: str, **more: Any) -> Any:
    """A shape as the SDK gives it."""
    blank = {"ocpus": 1.0, "memory_in_gbs": 16.0, "gpus": 0, "quota_names": []}
    return SimpleNamespace(shape=name, **{**blank, **more})


# --- shapes ----------------------------------------------------------------------------------


@pytest.mark.accepts("C7")
@pytest.mark.parametrize(
    ("type", "shape"),
    [
        ("VM.Standard.E4.Flex.4.64", Shape("VM.Standard.E4.Flex", 4, 64)),
        ("VM.Standard3.Flex.16.256", Shape("VM.Standard3.Flex", 16, 256)),
        ("VM.Standard.A1.Flex.1.6", Shape("VM.Standard.A1.Flex", 1, 6)),
        ("VM.Standard2.2", Shape("VM.Standard2.2")),
        ("BM.GPU4.8", Shape("BM.GPU4.8")),
    ],
)
def test_flexible_shapes_are_named_with_their_size(type: str, shape: Shape) -> None:
    assert parse_shape(type) == shape
    assert render_shape(shape.name, shape.ocpus or 2.0, shape.memory or 30.0) == type


@pytest.mark.accepts("C7")
@pytest.mark.parametrize("type", ["VM.Standard.E4.Flex", "VM.Standard.E4.Flex.4", "A.Flex.4.x"])
def test_a_flexible_shape_without_its_size_is_refused_with_an_example(type: str) -> None:
    with pytest.raises(Rejected, match=r"needs its OCPUs.*VM.Standard.E4.Flex.4.64"):
        parse_shape(type)


@pytest.mark.accepts("C6")
@pytest.mark.parametrize(
    ("type", "shape", "flavor"),
    [
        (
            "VM.Standard.E4.Flex.4.64",
            listed("VM.Standard.E4.Flex"),
            CloudFlavor("VM.Standard.E4.Flex.4.64", 8, 65536, "x86_64", 2),
        ),
        (
            "VM.Standard.A1.Flex.4.24",
            listed("VM.Standard.A1.Flex"),
            CloudFlavor("VM.Standard.A1.Flex.4.24", 4, 24576, "aarch64", 1),
        ),
        (
            "VM.Standard.A2.Flex.4.24",
            listed("VM.Standard.A2.Flex"),
            CloudFlavor("VM.Standard.A2.Flex.4.24", 8, 24576, "aarch64", 1),
        ),
        (
            "BM.GPU4.8",
            listed("BM.GPU4.8", ocpus=64.0, memory_in_gbs=2048.0, gpus=8),
            CloudFlavor("BM.GPU4.8", 128, 2097152, "x86_64", 2, 8),
        ),
        (
            "VM.Standard.E2.1.Micro",
            listed("VM.Standard.E2.1.Micro", ocpus=1.0, memory_in_gbs=1.0),
            CloudFlavor("VM.Standard.E2.1.Micro", 2, 1024, "x86_64", 2),
        ),
    ],
)
def test_a_shape_tells_threads_memory_architecture_and_gpus(
    type: str, shape: Any, flavor: CloudFlavor
) -> None:
    assert decide_flavor(type, {shape.shape: shape}) == flavor


def test_an_unknown_shape_is_no_flavor() -> None:
    assert decide_flavor("VM.Nowhere", {}) is None


def test_sizes_outside_of_a_flexible_shape_are_told() -> None:
    shape = listed(
        "VM.Standard.E4.Flex",
        ocpu_options=SimpleNamespace(min=1.0, max=64.0),
        memory_options=SimpleNamespace(min_in_g_bs=1.0, max_in_g_bs=1024.0),
    )
    assert decide_misfit("VM.Standard.E4.Flex.64.1024", shape) == ""
    assert decide_misfit("VM.Standard.E4.Flex.65.64", shape) == "it has 1 to 64 OCPUs, not 65"
    assert decide_misfit("VM.Standard.E4.Flex.4.2048", shape) == "it has 1 to 1024 GB, not 2048"


def test_grace_and_ampere_are_arm_and_nothing_else_is() -> None:
    arms = ["VM.Standard.A1.Flex", "BM.Standard.A4.48", "BM.GPU.GB200.4", "BM.GPU.GH200.1"]
    assert {arch_of(name) for name in arms} == {"aarch64"}
    others = ["VM.Standard.E5.Flex", "BM.GPU.A100-v2.8", "VM.GPU.A10.1", "BM.HPC2.36"]
    assert {arch_of(name) for name in others} == {"x86_64"}


# --- requests --------------------------------------------------------------------------------


def test_a_launch_becomes_a_request() -> None:
    wanted = spec(disk="100G")
    request = render_launch(LAUNCH, wanted, CATALOG, DOMAINS[0], "ssh-ed25519 AAAA admin")
    script = b64decode(request["metadata"].pop("user_data")).decode()
    assert request == {
        "availabilityDomain": "Uocm:PHX-AD-1",
        "compartmentId": "compartment",
        "displayName": "blue-n0",
        "shape": "VM.Standard.E4.Flex",
        "shapeConfig": {"ocpus": 4, "memoryInGBs": 64},
        "sourceDetails": {
            "sourceType": "image",
            "imageId": "image-x86",
            "bootVolumeSizeInGBs": 100,
        },
        "createVnicDetails": {"subnetId": "subnet", "assignPublicIp": False},
        "metadata": {"ssh_authorized_keys": "ssh-ed25519 AAAA admin"},
        "freeformTags": {
            "springtide-cluster": "blue",
            "springtide-node": "n0",
            "springtide-generation": "3",
            "springtide-group": "general",
            "springtide-image": "linux",
            "springtide-flavor": "small",
        },
    }
    assert script.startswith("#!/bin/sh\nTIDE_NODE=n0 TIDE_GENERATION=3 TIDE_TOKEN=''\n")
    assert script.endswith("echo up\n")


def test_a_fixed_shape_has_no_size_of_ours_and_only_the_preemptible_are_taken_back() -> None:
    launch = replace(LAUNCH, flavor="fixed")
    request = render_launch(launch, spec(), CATALOG, DOMAINS[0], None)
    assert request["shape"] == "VM.Standard2.2"
    assert not request.keys() & {"shapeConfig", "preemptibleInstanceConfig"}
    spot = render_launch(replace(launch, market="preemptible"), spec(), CATALOG, DOMAINS[0], None)
    action = {"type": "TERMINATE", "preserveBootVolume": False}
    assert spot["preemptibleInstanceConfig"] == {"preemptionAction": action}


def test_an_unknown_market_is_refused_with_the_known_ones() -> None:
    with pytest.raises(Rejected, match="no market spot; it has preemptible and on-demand"):
        render_launch(replace(LAUNCH, market="spot"), spec(), CATALOG, DOMAINS[0], None)


@pytest.mark.accepts("C8")
def test_an_architecture_without_an_image_is_told_with_what_to_add() -> None:
    with pytest.raises(Rejected, match=r"linux has no id for aarch64.*images\.linux\.id"):
        render_launch(replace(LAUNCH, flavor="arm"), spec(), CATALOG, DOMAINS[0], None)


@pytest.mark.accepts("N6")
def test_options_are_added_as_they_stand_but_never_change_whose_it_is() -> None:
    options = {
        "faultDomain": "FAULT-DOMAIN-2",
        "createVnicDetails": {"nsgIds": ["nsg"]},
        "freeformTags": {"cost-centre": "physics", "springtide-node": "n9"},
        "metadata": {"quota": "1", "user_data": "other"},
    }
    request = render_launch(LAUNCH, spec(options=options), CATALOG, DOMAINS[0], None)
    assert request["faultDomain"] == "FAULT-DOMAIN-2"
    assert request["createVnicDetails"]["nsgIds"] == ["nsg"]
    assert request["createVnicDetails"]["subnetId"] == "subnet"
    assert request["freeformTags"]["cost-centre"] == "physics"
    assert request["freeformTags"]["springtide-node"] == "n0"
    assert "echo up" in b64decode(request["metadata"]["user_data"]).decode()


@pytest.mark.parametrize("zone", ["Uocm:PHX-AD-2", "PHX-AD-2", "phx-ad-2", "AD-2", "2"])
def test_a_zone_may_be_named_by_its_end(zone: str) -> None:
    assert decide_domain(zone, DOMAINS) == "Uocm:PHX-AD-2"
    wanted = spec(subnets={"AD-2": "second"})
    request = render_launch(replace(LAUNCH, zone=zone), wanted, CATALOG, DOMAINS[1], None)
    assert request["createVnicDetails"]["subnetId"] == "second"
    assert request["freeformTags"]["springtide-zone"] == zone


def test_without_a_zone_the_first_is_taken_and_an_unknown_one_is_refused() -> None:
    assert decide_domain(None, DOMAINS) == DOMAINS[0]
    for zone in ("3", "D-1", "HX-AD-1"):
        with pytest.raises(Rejected, match=f"no availability domain {zone} here; it has: Uocm"):
            decide_domain(zone, DOMAINS)


def test_only_the_same_launch_has_the_same_token() -> None:
    assert decide_token(LAUNCH) == decide_token(replace(LAUNCH, user_data="other"))
    others = [
        replace(LAUNCH, cluster="green"),
        replace(LAUNCH, node="n1"),
        replace(LAUNCH, generation=4),
        replace(LAUNCH, zone="2"),
        replace(LAUNCH, market="preemptible"),
    ]
    tokens = {decide_token(one) for one in [LAUNCH, *others]}
    assert len(tokens) == 6
    assert {len(one) for one in tokens} == {64}


# --- answers ---------------------------------------------------------------------------------


def test_every_state_of_oci_is_one_of_ours_and_a_new_one_is_waited_for() -> None:
    names = [name for name in vars(Model) if name.startswith("LIFECYCLE_STATE_")]
    assert {getattr(Model, name) for name in names} == STATES.keys()
    assert _instance(lifecycle_state="THAWING").state is InstanceState.PENDING


def test_an_instance_is_called_as_the_file_calls_it_now() -> None:
    one = _instance()
    assert (one.image, one.flavor, one.zone) == ("linux", "small", "Uocm:PHX-AD-1")
    assert one.created_at == one.booted_at == 1577934245.0
    other = _instance(image_id="image-old", shape="VM.Standard2.2")
    assert (other.image, other.flavor) == ("image-old", "fixed")


def test_a_generation_that_somebody_spoiled_is_nobodys() -> None:
    assert _instance(generation="three").generation == 0


def _instance(generation: str = "3", **more: Any) -> Any:
    marks = {
        "springtide-cluster": "blue",
        "springtide-node": "n0",
        "springtide-generation": generation,
    }
    known = {
        "id": "one",
        "freeform_tags": marks,
        "lifecycle_state": "RUNNING",
        "shape": "VM.Standard.E4.Flex",
        "shape_config": SimpleNamespace(ocpus=4.0, memory_in_gbs=64.0),
        "image_id": "image-x86",
        "availability_domain": "Uocm:PHX-AD-1",
        "time_created": datetime(2020, 1, 2, 3, 4, 5, tzinfo=UTC),
    }
    return parse_instance(SimpleNamespace(**{**known, **more}), None, CATALOG)


def test_the_address_is_the_primary_one_of_the_first_interface_on_our_subnets() -> None:
    def attached(
        instance: str, vnic: str, subnet: str, second: int, state: str = "ATTACHED"
    ) -> Any:
        made = datetime(2020, 1, 1, 0, 0, second, tzinfo=UTC)
        return SimpleNamespace(
            instance_id=instance,
            vnic_id=vnic,
            subnet_id=subnet,
            lifecycle_state=state,
            time_created=made,
        )

    attachments = [
        attached("a", "a2", "ours", 2),
        attached("a", "a1", "ours", 1),
        attached("a", "a0", "elsewhere", 0),
        attached("b", "b0", "ours", 0, "DETACHED"),
        attached("c", "c0", "ours", 0, "ATTACHING"),
    ]
    addresses = [
        SimpleNamespace(vnic_id=vnic, ip_address=f"10.0.0.{number}", is_primary=primary)
        for number, (vnic, primary) in enumerate(
            [("a0", True), ("a1", True), ("a1", False), ("a2", True), ("b0", True), ("c0", True)]
        )
    ]
    assert decide_addresses(attachments, addresses, ["ours"]) == {"a": "10.0.0.1", "c": "10.0.0.5"}


# --- errors ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("status", "code", "message", "kind"),
    [
        (500, "InternalError", "Out of host capacity.", NoCapacity),
        (400, "OutOfHostCapacity", "No room", NoCapacity),
        (500, "InternalError", "Internal error occurred", Transient),
        (503, "ServiceUnavailable", "", Transient),
        (502, None, None, Transient),
        (429, "TooManyRequests", "User-rate limit exceeded.", Throttled),
        (400, "LimitExceeded", "core-count", QuotaExceeded),
        (400, "QuotaExceeded", "compartment", QuotaExceeded),
        (401, "NotAuthenticated", "", Denied),
        (403, "NotAllowed", "", Denied),
        (404, "NotAuthorizedOrNotFound", "", Denied),
        (404, "NotFound", "", Rejected),
        (400, "RelatedResourceNotAuthorizedOrNotFound", "", Rejected),
        (400, "InvalidParameter", "", Rejected),
        (409, "IncorrectState", "", Transient),
        (409, "InvalidatedRetryToken", "", Rejected),
        (412, "NoEtagMatch", "", Transient),
        (413, "RequestEntityTooLarge", "", Rejected),
    ],
)
def test_an_error_of_oci_has_its_class(
    status: int, code: str | None, message: str | None, kind: type[CloudError]
) -> None:
    assert decide_class(status, code, message) is kind
    said = translate(ServiceError(status, code, {}, message), "launching n0")
    assert type(said) is kind
    assert "launching n0" in str(said)


def test_a_broken_connection_may_work_later_and_says_nothing_secret() -> None:
    told = pytest.raises(Transient, match=r"listing: no answer \(ConnectionError\)")
    with told as error, calling("listing"):
        raise BrokenConnection("https://user:secret@iaas")
    assert status_of(error.value) is None
    assert "secret" not in str(error.value)


# --- limits ----------------------------------------------------------------------------------


@pytest.mark.accepts("C5")
def test_limits_leave_room_for_what_their_scarcest_has() -> None:
    quotas = ["standard-e4-core-count", "standard-e4-memory-count"]
    shape = listed("VM.Standard.E4.Flex", quota_names=quotas)
    units = decide_units(Shape("VM.Standard.E4.Flex", 4, 64), shape)
    assert units == dict(zip(quotas, (4, 64), strict=True))
    left = {(quotas[0], "a"): 19.0, (quotas[1], "a"): 200.0, (quotas[0], "b"): 8.0}
    room = decide_room(units, left, ["a", "b", "c"])
    assert room == {"a": 3, "b": 2}
    assert take(4, units, left, room) == 0
    assert left == {(quotas[0], "a"): 7.0, (quotas[1], "a"): 8.0, (quotas[0], "b"): 4.0}
    assert take(4, units, left, decide_room(units, left, ["a", "b"])) == 3


def test_gpus_and_shapes_of_old_are_counted_by_themselves() -> None:
    gpu = listed("VM.GPU3.2", gpus=2, quota_names=["gpu3-count"])
    assert decide_units(Shape("VM.GPU3.2"), gpu) == {"gpu3-count": 2}
    old = listed("VM.Standard1.4", quota_names=["vm-standard1-4-count"])
    assert decide_units(Shape("VM.Standard1.4"), old) == {"vm-standard1-4-count": 1}


# --- credentials -----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        (None, r"config cannot be read: make it, or set `credentials`"),
        ("[OTHER]\nuser=x\n", r"has no profile MINE: set `profile`"),
        ("[MINE]\nuser=x\n", r"profile MINE: .*key_file is missing.*user is malformed"),
        ("[MINE]\nkey_file=/nowhere/key.pem\n", r"its key_file is not there"),
        ("nonsense\n", r"is no config file of OCI"),
    ],
)
def test_wrong_credentials_are_told_before_any_call(
    tmp_path: Path, text: str | None, complaint: str
) -> None:
    config = tmp_path / "config"
    if text is not None:
        config.write_text(text)
    with pytest.raises(Denied, match=complaint):
        Account(spec(credentials=config, profile="MINE"))
