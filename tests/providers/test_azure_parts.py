"""The parts of Azure's provider that ask nobody: names, bodies, states, errors, credentials."""

import base64
import json
import subprocess
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from azure.core.exceptions import ClientAuthenticationError, ServiceResponseError
from azure.identity import ClientSecretCredential
from azure.mgmt.core.policies import ARMChallengeAuthenticationPolicy
from pydantic import ValidationError

from springtide.ports import (
    CloudError,
    Denied,
    InstanceState,
    Launch,
    NoCapacity,
    QuotaExceeded,
    Rejected,
    Throttled,
    Transient,
)
from springtide.providers.azure import account, bodies, names, provider, shapes
from springtide.providers.azure.checks import RIGHTS, check_size, decide_missing_rights
from springtide.providers.azure.errors import decide_kind, translate
from springtide.spec import parse
from springtide.spec.clouds import Azure
from tests.providers.servers import azure_cloud as azure
from tests.providers.servers.azure_cloud import AzureServer
from tests.providers.servers.azure_world import CATALOG, KEY, block

LAUNCH = Launch("blue", "n0", 3, "general", "base", "small", user_data="echo here\n")


@pytest.fixture
def wanted(tmp_path: Path) -> Azure:
    """As in a cluster file of Azure's own cloud; nobody is asked."""
    return block(AzureServer(), tmp_path, endpoint=None)


def body(launch: Launch, wanted: Azure) -> dict[str, Any]:
    return bodies.machine(launch, wanted, CATALOG, KEY)


# Names


def test_names_of_machines_tell_cluster_node_and_generation() -> None:
    assert names.machine_name(LAUNCH).startswith("blue-n0-3-")


def test_names_that_would_read_alike_differ() -> None:
    one = replace(LAUNCH, cluster="a-b", node="c")
    alike = [one, replace(one, cluster="a", node="b-c"), replace(one, node="C")]
    assert len({names.machine_name(launch).lower() for launch in alike}) == 3


def test_long_names_fit_and_still_differ() -> None:
    long = replace(LAUNCH, cluster="c" * 32, node="n" * 60)
    both = [names.machine_name(replace(long, generation=number)) for number in (1, 2)]
    assert both[0] != both[1]
    assert {len(name) for name in both} == {64}


@pytest.mark.parametrize(
    "id", [azure.URN, azure.OTHER.lstrip("/"), "subscriptions/s/x/galleries/g/images/i"]
)
def test_images_are_named_as_the_file_names_them(id: str) -> None:
    assert names.image_of(names.image_reference(id)) == id


# Requests


def test_a_machine_takes_its_interface_and_its_disk_with_it(wanted: Azure) -> None:
    properties = body(LAUNCH, wanted)["properties"]
    (interface,) = properties["networkProfile"]["networkInterfaceConfigurations"]
    assert interface["properties"]["deleteOption"] == "Delete"
    assert properties["storageProfile"]["osDisk"]["deleteOption"] == "Delete"


def test_user_data_can_be_changed_later_and_says_who_the_node_is(wanted: Azure) -> None:
    properties = body(LAUNCH, wanted)["properties"]
    assert "customData" not in properties["osProfile"]
    script = base64.b64decode(properties["userData"]).decode()
    assert script.startswith("#!/bin/sh\n")
    shown = subprocess.run(
        ["/bin/sh", "-c", f'{script}echo "$TIDE_CLUSTER $TIDE_NODE $TIDE_GENERATION"'],
        capture_output=True,
        text=True,
        check=True,
    )
    assert shown.stdout == "here\nblue n0 3\n"


def test_people_log_in_by_key_and_there_is_no_password(wanted: Azure) -> None:
    system = body(LAUNCH, wanted)["properties"]["osProfile"]
    assert "adminPassword" not in system
    assert system["linuxConfiguration"]["disablePasswordAuthentication"] is True
    (key,) = system["linuxConfiguration"]["ssh"]["publicKeys"]
    assert key == {"path": "/home/azureuser/.ssh/authorized_keys", "keyData": KEY}


def test_spot_machines_are_gone_when_they_are_evicted(wanted: Azure) -> None:
    properties = body(replace(LAUNCH, market="spot"), wanted)["properties"]
    assert (properties["priority"], properties["evictionPolicy"]) == ("Spot", "Delete")
    assert "priority" not in body(LAUNCH, wanted)["properties"]


def test_a_market_that_azure_does_not_have_is_rejected(wanted: Azure) -> None:
    with pytest.raises(Rejected, match="no market auction"):
        body(replace(LAUNCH, market="auction"), wanted)


@pytest.mark.accepts("N6")
def test_options_of_the_file_are_added_and_win(wanted: Azure) -> None:
    more = {"tags": {"owner": "physics"}, "properties": {"licenseType": "RHEL_BYOS"}}
    options = {**more, "zones": ["2"]}
    made = body(replace(LAUNCH, zone="1"), wanted.model_copy(update={"options": options}))
    assert made["zones"] == ["2"]
    assert made["properties"]["licenseType"] == "RHEL_BYOS"
    assert made["properties"]["hardwareProfile"] == {"vmSize": "Standard_D2s_v5"}
    assert made["tags"]["owner"] == "physics"
    assert made["tags"]["springtide-node"] == "n0"


@pytest.mark.accepts("N6")
def test_options_reach_into_the_interface_and_leave_the_rest_of_it(wanted: Azure) -> None:
    fast = [{"properties": {"enableAcceleratedNetworking": True}}]
    options = {"properties": {"networkProfile": {"networkInterfaceConfigurations": fast}}}
    made = body(LAUNCH, wanted.model_copy(update={"options": options}))
    (interface,) = made["properties"]["networkProfile"]["networkInterfaceConfigurations"]
    assert interface["properties"]["enableAcceleratedNetworking"] is True
    assert interface["properties"]["deleteOption"] == "Delete"
    assert interface["name"] == names.machine_name(LAUNCH)


def test_options_add_tags_as_texts_and_change_none_of_ours(wanted: Azure) -> None:
    options = {"tags": {"cost": 4711, "shared": True, "springtide-node": "other"}}
    made = body(LAUNCH, wanted.model_copy(update={"options": options}))["tags"]
    assert (made["cost"], made["shared"], made["springtide-node"]) == ("4711", "true", "n0")


def test_the_disk_is_as_large_as_the_file_says(wanted: Azure) -> None:
    disk = wanted.model_copy(update={"disk": 64 * 1024 + 1})
    assert body(LAUNCH, disk)["properties"]["storageProfile"]["osDisk"]["diskSizeGB"] == 65
    assert "diskSizeGB" not in body(LAUNCH, wanted)["properties"]["storageProfile"]["osDisk"]


# Answers


@pytest.mark.parametrize(
    ("provisioning", "power", "state"),
    [
        ("Creating", None, InstanceState.PENDING),
        ("Creating", "starting", InstanceState.PENDING),
        ("Succeeded", "running", InstanceState.RUNNING),
        ("Updating", "running", InstanceState.RUNNING),
        ("Succeeded", "stopped", InstanceState.STOPPED),
        ("Succeeded", "deallocated", InstanceState.STOPPED),
        ("Succeeded", None, InstanceState.PENDING),
        ("Deleting", "running", InstanceState.DELETING),
        ("Failed", None, InstanceState.BROKEN),
        ("Failed", "running", InstanceState.RUNNING),
        ("Canceled", "stopped", InstanceState.BROKEN),
        ("SomethingNew", "unknown", InstanceState.PENDING),
    ],
)
def test_states_of_machines_become_ours(
    provisioning: str, power: str | None, state: InstanceState
) -> None:
    assert shapes.parse_state(provisioning, power) is state


def test_a_failure_is_read_from_the_status_of_a_machine() -> None:
    code = {"code": "ProvisioningState/failed/AllocationFailed", "message": "full"}
    status = shapes.parse_status({"properties": {"instanceView": {"statuses": [code]}}})
    assert (status.failure, status.said, status.allocated) == ("AllocationFailed", "full", False)


# Errors


@pytest.mark.parametrize(
    ("status", "code", "said", "kind"),
    [
        (409, "SkuNotAvailable", "", NoCapacity),
        (500, "ZonalAllocationFailed", "", NoCapacity),
        (500, "OverconstrainedAllocationRequest", "", NoCapacity),
        (409, "OperationNotAllowed", "exceeding approved Cores quota", QuotaExceeded),
        (409, "OperationNotAllowed", "VM is marked for deletion", Transient),
        (409, "OperationNotAllowed", "requires the VM to be running", Transient),
        (409, "OperationNotAllowed", "the disk is being copied", Transient),
        (400, "OperationNotAllowed", "not for this kind of disk", Rejected),
        (403, "QuotaExceeded", "", QuotaExceeded),
        (400, "SubnetIsFull", "", QuotaExceeded),
        (403, "RequestDisallowedByPolicy", "", Denied),
        (401, "ExpiredAuthenticationToken", "", Denied),
        (404, "SubscriptionNotFound", "", Denied),
        (429, "OperationNotAllowed", "too many requests", Throttled),
        (400, "InvalidParameter", "", Rejected),
        (404, "ResourceGroupNotFound", "", Rejected),
        (409, "Conflict", "", Transient),
        (409, "SomethingNew", "", Transient),
        (500, "InternalServerError", "", Transient),
        (503, "", "", Transient),
    ],
)
def test_what_azure_says_becomes_its_class(
    status: int, code: str, said: str, kind: type[CloudError]
) -> None:
    assert decide_kind(status, code, said) is kind


def test_a_lost_connection_may_work_later_and_a_lost_login_will_not() -> None:
    assert type(translate(ServiceResponseError("reset"), "list")) is Transient
    denied = translate(ClientAuthenticationError("no identity\nlong story"), "list")
    assert type(denied) is Denied
    assert "no identity" in str(denied)
    assert "story" not in str(denied)
    assert "role" in str(denied)


def test_a_sign_in_that_is_not_reached_may_work_later() -> None:
    """The SDK's own credential, whose way to the sign-in is shut."""
    nowhere = ClientSecretCredential(
        "t", "c", "s", authority="127.0.0.1:1", disable_instance_discovery=True, retry_total=0
    )
    with pytest.raises(ClientAuthenticationError) as refused:
        nowhere.get_token("https://management.azure.com/.default")
    assert type(translate(refused.value, "list")) is Transient
    nowhere.close()


# Credentials


def test_tokens_go_over_tls_by_the_sdks_own_policy(wanted: Azure) -> None:
    client = account.connect(wanted)
    assert isinstance(client._config.authentication_policy, ARMChallengeAuthenticationPolicy)
    client.close()


@pytest.mark.parametrize(
    "endpoint", ["http://management.azure.com", "http://127.0.0.1.example.com:80", "ftp://x"]
)
def test_an_endpoint_without_tls_is_refused(wanted: Azure, endpoint: str) -> None:
    with pytest.raises(ValidationError, match="https://"):
        Azure(**(wanted.model_dump() | {"endpoint": endpoint}))
    assert not account.on_loopback(endpoint)


@pytest.mark.parametrize("text", ["", "[]", '{"tenantId": "t"}', '{"clientSecret": 7}'])
def test_credentials_that_are_not_whole_are_refused_at_once(
    wanted: Azure, tmp_path: Path, text: str
) -> None:
    (tmp_path / "azure.json").write_text(text)
    with pytest.raises(CloudError, match="tenantId, clientId, clientSecret"):
        provider(wanted, CATALOG, tmp_path)


def test_a_missing_file_is_told(wanted: Azure, tmp_path: Path) -> None:
    (tmp_path / "azure.json").unlink()
    with pytest.raises(CloudError, match=r"azure\.json"):
        provider(wanted, CATALOG, tmp_path)


@pytest.mark.parametrize("text", ["", "-----BEGIN OPENSSH PRIVATE KEY-----\nx y\n", "a b\nc d"])
def test_only_a_public_key_is_taken(wanted: Azure, tmp_path: Path, text: str) -> None:
    (tmp_path / "key.pub").write_text(text)
    with pytest.raises(CloudError, match="public key"):
        provider(wanted, CATALOG, tmp_path)


@pytest.mark.accepts("A25")
def test_the_secret_is_not_shown(wanted: Azure) -> None:
    assert wanted.credentials is not None
    assert azure.TOKEN not in repr(account.read_credentials(wanted.credentials))


# Documents

PAGE = (Path(__file__).parents[2] / "docs/providers/azure.md").read_text()


def examples(language: str) -> list[str]:
    return [part.split("```", 1)[0] for part in PAGE.split(f"```{language}\n")[1:]]


def test_the_example_in_the_documents_is_a_cluster_file() -> None:
    spec = parse(examples("yaml")[0], "azure.md")
    assert isinstance(spec.provider, Azure)


def test_the_role_in_the_documents_is_what_the_check_looks_for() -> None:
    nodes, _, _ = (json.loads(text) for text in examples("json"))
    assert set(nodes["Actions"]) == {*RIGHTS, "Microsoft.Authorization/permissions/read"}
    assert decide_missing_rights([{"actions": nodes["Actions"]}]) == []


# Checks


def test_rights_are_found_missing_one_by_one() -> None:
    compute = {"actions": ["Microsoft.Compute/*"], "notActions": ["*/images/delete"]}
    network = {"actions": ["microsoft.network/networkinterfaces/*"]}
    assert decide_missing_rights([compute, network]) == ["Microsoft.Compute/images/delete"]
    assert decide_missing_rights([]) == list(RIGHTS)
    assert decide_missing_rights([{"actions": ["*"], "notActions": []}]) == []


@pytest.mark.parametrize(
    ("cpus", "memory", "arch", "todo"),
    [
        (2, 7600, "x86_64", ""),
        (3, 7600, "x86_64", "flavors.small.cpus to 2"),
        (2, 8192, "x86_64", "flavors.small.memory to 7608M"),
        (2, 7600, "aarch64", "flavors.small.arch to x86_64"),
    ],
)
def test_a_flavor_must_not_promise_more_than_the_size_has(
    cpus: int, memory: int, arch: str, todo: str
) -> None:
    size = shapes.flavor(azure.SKUS[0])
    assert size is not None
    found = check_size("small", size, cpus, memory, arch)
    assert found.ok is (not todo)
    assert todo in found.todo
