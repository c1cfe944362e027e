"""The parts of the provider for OpenStack that need no cloud: requests, answers, errors, quotas."""

import json
import subprocess
import threading
from base64 import b64decode
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from socketserver import BaseRequestHandler, ThreadingTCPServer
from typing import Any

import pytest
from keystoneauth1 import exceptions as auth

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
from springtide.providers.cloud import Catalog, script, tags
from springtide.providers.openstack import provider, requests
from springtide.providers.openstack.api import decide_url, decide_version, read_region
from springtide.providers.openstack.checks import Checks
from springtide.providers.openstack.doubts import Doubts
from springtide.providers.openstack.driver import OpenStackDriver
from springtide.providers.openstack.errors import Unsure, of_answer, of_exception, of_fault
from springtide.providers.openstack.identity import INDEX, bulk_name, member_of
from springtide.providers.openstack.quota import Use, check_quotas
from springtide.providers.openstack.requests import Ids
from springtide.providers.openstack.shapes import STATES, parse_flavor, parse_server, state_of
from springtide.spec import Flavor, Image
from springtide.spec.clouds import OpenStack
from tests.providers.world import nobody

CATALOG = Catalog({"base": Image(id="image-1")}, {"small": Flavor(cpus=1, memory=100)})
IDS = Ids("image-1", "flavor-1", "network-1")
SECRET = "not-for-your-eyes"


def wanted(**more: Any) -> OpenStack:
    return OpenStack.model_validate({"network": "nodes", **more})


def launch(node: str = "n1", generation: int = 1, zone: str | None = None) -> Launch:
    return Launch("blue", node, generation, "general", "base", "small", zone, user_data="work\n")


def server(**more: Any) -> dict[str, Any]:
    metadata = {
        "springtide-cluster": "blue",
        "springtide-node": "n1",
        "springtide-generation": "3",
        "springtide-image-id": "image-1",
    }
    return {"id": "s1", "name": "n1", "status": "ACTIVE", "metadata": metadata, **more}


# --- errors --------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("status", "text", "kind"),
    [
        (400, "Invalid key_name provided.", Rejected),
        (400, "No valid host was found.", NoCapacity),
        (401, "The request you have made requires authentication.", Denied),
        (403, "Policy doesn't allow it to be performed.", Denied),
        (403, "Quota exceeded for instances: Requested 5, but already used 5 of 6", QuotaExceeded),
        (403, "Maximum number of ports exceeded", QuotaExceeded),
        (404, "Instance could not be found.", Rejected),
        (408, "", Transient),
        (409, "Cannot 'reboot' instance while it is in task_state spawning", Transient),
        (409, "Quota exceeded for resources: ['port']", QuotaExceeded),
        (413, "Quota exceeded", QuotaExceeded),
        (429, "Quota of calls is used up", Throttled),
        (500, "Unexpected API Error.", Transient),
        (501, "not implemented", Rejected),
        (503, "<html><body>quota</body></html>", Transient),
    ],
)
def test_an_answer_becomes_its_class(status: int, text: str, kind: type[CloudError]) -> None:
    error = of_answer(status, text, "POST compute/servers")
    assert isinstance(error, kind)
    assert isinstance(error, Throttled) == (kind is Throttled)
    assert "POST compute/servers" in str(error)
    assert "<" not in str(error)


@pytest.mark.parametrize(
    ("error", "kind"),
    [
        (auth.ConnectFailure("refused"), Transient),
        (auth.ConnectTimeout("late"), Transient),
        (auth.Unauthorized("who?"), Denied),
        (
            auth.TooManyRequests("later") if hasattr(auth, "TooManyRequests") else OSError(),
            Transient,
        ),
        (auth.SSLError("[SSL: CERTIFICATE_VERIFY_FAILED] certificate verify failed"), Rejected),
        (auth.SSLError("EOF occurred in violation of protocol (_ssl.c:997)"), Transient),
        (auth.EndpointNotFound("no compute"), Rejected),
        (auth.NoMatchingPlugin("magic"), Denied),
        (TimeoutError(), Transient),
        (ValueError("strange"), Rejected),
        (NoCapacity("as it is"), NoCapacity),
    ],
    ids=lambda value: value.__name__ if isinstance(value, type) else type(value).__name__,
)
def test_an_exception_becomes_its_class(error: Exception, kind: type[CloudError]) -> None:
    assert isinstance(of_exception(error, "sign in"), kind)


@pytest.mark.parametrize(
    ("text", "kind"),
    [
        ("No valid host was found. There are not enough hosts available.", NoCapacity),
        ("Exceeded maximum number of retries. Exhausted all hosts available", NoCapacity),
        ("VolumeLimitExceeded: Maximum number of volumes allowed (10) exceeded", QuotaExceeded),
        ("(rule:create_port) is disallowed by policy", Denied),
        ("Build of instance aborted: disk is broken", type(None)),
    ],
)
def test_a_fault_of_a_server_becomes_its_class(text: str, kind: type) -> None:
    assert type(of_fault(text, "n1")) is kind


# --- versions and addresses ----------------------------------------------------------------


def test_the_newest_microversion_that_both_speak_is_chosen() -> None:
    assert decide_version("2.100") == (2, 93)
    assert decide_version("2.87") == (2, 87)
    for old in ("2.72", "2.1", ""):
        with pytest.raises(Rejected):
            decide_version(old)


def test_services_are_found_with_and_without_a_version_in_the_catalog() -> None:
    assert decide_url("compute", "http://c:8774/v2.1/") == "http://c:8774/v2.1"
    assert decide_url("compute", "http://c/compute/v2.1/abc") == "http://c/compute/v2.1/abc"
    assert decide_url("network", "http://c:9696") == "http://c:9696/v2.0"
    assert decide_url("image", "http://volumes.example/image") == "http://volumes.example/image/v2"


# --- connections ---------------------------------------------------------------------------


@pytest.fixture
def nowhere() -> Iterator[str]:
    """Where nobody listens."""
    with nobody() as address:
        yield f"http://{address}"


@contextmanager
def hanging_up() -> Iterator[str]:
    """Where each connection is closed once something was said."""

    class HangUp(BaseRequestHandler):
        def handle(self) -> None:
            self.request.recv(1)

    with ThreadingTCPServer(("127.0.0.1", 0), HangUp) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.02,))
        thread.start()
        try:
            yield f"127.0.0.1:{server.server_address[1]}"
        finally:
            server.shutdown()
            thread.join()


@contextmanager
def reached_at(path: Path, **cloud: Any) -> Iterator[OpenStackDriver]:
    path.write_text(json.dumps({"clouds": {"test": cloud}}))
    driver = OpenStackDriver(wanted(cloud="test", credentials=str(path), timeout=30.0), CATALOG)
    try:
        yield driver
    finally:
        driver.close()


def without_login(url: str) -> dict[str, Any]:
    return {"auth_type": "none", "auth": {"endpoint": url}, "compute_endpoint_override": url}


@pytest.mark.filterwarnings("ignore::openstack.warnings._RemovedInSDKWarning")
@pytest.mark.parametrize("dead", ["keystone", "keystone without a version", "nova"])
def test_a_cloud_that_nobody_answers_for_may_be_there_again_soon(
    tmp_path: Path, nowhere: str, dead: str
) -> None:
    login = {"username": "u", "password": SECRET, "project_name": "p"}
    domain = {"user_domain_id": "default", "project_domain_id": "default"}
    version = "/v3" if dead == "keystone" else ""
    with_login = {"auth": {"auth_url": nowhere + version, **login, **domain}}
    cloud = without_login(f"{nowhere}/v2.1") if dead == "nova" else with_login
    gone = parse_server(server(), CATALOG, {})
    with reached_at(tmp_path / "clouds.yaml", **cloud) as driver:
        with pytest.raises(Transient) as failed:
            driver.list("blue")
        told = [failed.value, driver.launch([launch()])["n1"], driver.delete([gone])[gone.id]]
        assert {type(one) for one in told} == {Transient}


@pytest.mark.filterwarnings("ignore::openstack.warnings._RemovedInSDKWarning")
@pytest.mark.parametrize("scheme", ["http", "https"])
def test_a_request_that_was_sent_and_not_answered_may_have_been_done(
    tmp_path: Path, scheme: str
) -> None:
    with (
        hanging_up() as address,
        reached_at(tmp_path / "clouds.yaml", **without_login(f"{scheme}://{address}/v2.1")) as here,
        pytest.raises(Unsure),
    ):
        here.api.get("compute", "/servers/detail")


def test_what_may_still_be_made_is_not_asked_for_until_it_is_seen_or_long_over() -> None:
    now = 1000.0
    doubts = Doubts(timeout_s=45.0, clock=lambda: now)
    first, second, newer = launch("n1"), launch("n2"), launch("n1", generation=2)
    doubts.add([first, second])
    assert doubts.among([first, second, newer]) == [first, second]
    doubts.settle([parse_server(server(metadata=tags.own(first)), CATALOG, {})])
    assert doubts.among([first, second]) == [second]
    now += 89.0
    assert doubts.among([second]) == [second]
    now += 2.0
    assert doubts.among([second]) == []


# --- credentials -----------------------------------------------------------------------------


def clouds(path: Path, mode: int) -> Path:
    login = {"auth_url": "http://127.0.0.1:9/v3", "username": "u", "password": SECRET}
    named = {"project_name": "p", "user_domain_id": "default", "project_domain_id": "default"}
    path.write_text(json.dumps({"clouds": {"test": {"auth": {**login, **named}}}}))
    path.chmod(mode)
    return path


@pytest.mark.accepts("A25")
def test_a_credential_that_others_can_read_is_told_of(tmp_path: Path) -> None:
    for mode, ok in ((0o600, True), (0o400, True), (0o640, False), (0o604, False)):
        path = clouds(tmp_path / f"{mode:o}.yaml", mode)
        spec = wanted(cloud="test", credentials=str(path))
        first = Checks(spec, CATALOG, _Nothing()).all([], list)[0]  # type: ignore[arg-type]
        assert (first.name, first.ok) == ("cloud credential", ok)
        assert ok or f"chmod 600 {path}" in first.todo


class _Nothing:
    """A cloud that cannot be reached."""

    def project(self) -> str:
        raise Transient("no route")


@pytest.mark.accepts("A25")
@pytest.mark.filterwarnings("ignore::openstack.warnings._RemovedInSDKWarning")
async def test_no_message_names_a_secret(tmp_path: Path) -> None:
    path = clouds(tmp_path / "clouds.yaml", 0o600)
    spec = wanted(cloud="test", credentials=str(path), control_address="10.0.0.1", timeout=30.0)
    here = provider(spec, CATALOG, tmp_path)
    try:
        with pytest.raises(Transient) as failed:
            await here.list("blue")
        checks = await here.check("blue", [])
        assert [one.ok for one in checks] == [True, False]
        assert SECRET not in f"{failed.value!r} {failed.value} {checks} {spec!r} {here!r}"
    finally:
        await here.close()


def test_missing_credentials_are_told_before_anything_is_asked(tmp_path: Path) -> None:
    for path, cloud in ((tmp_path / "none.yaml", "test"), (tmp_path / "c.yaml", "other")):
        clouds(tmp_path / "c.yaml", 0o600)
        with pytest.raises(CloudError, match=str(path)):
            read_region(wanted(cloud=cloud, credentials=str(path)))


# --- requests ------------------------------------------------------------------------------


def test_one_request_makes_many_and_their_metadata_tell_who_they_are() -> None:
    launches = [launch(f"n{i}", zone="east") for i in range(1, 4)]
    body = requests.create(wanted(), launches, IDS)["server"]
    assert (body["min_count"], body["max_count"], body["availability_zone"]) == (1, 3, "east")
    assert body["metadata"]["springtide-nodes"] == "1:n[1-3]"
    assert "springtide-node" not in body["metadata"]
    assert body["networks"] == [{"uuid": "network-1"}]
    made = [
        server(name=f"{bulk_name(launches[0])}-{number}", metadata=body["metadata"])
        for number in (1, 2, 3)
    ]
    assert [member_of(one) for one in made] == [("n1", 1), ("n2", 1), ("n3", 1)]


def test_a_single_one_that_a_quota_left_of_many_is_the_first() -> None:
    launches = [launch("n1"), launch("n2")]
    metadata = requests.create(wanted(), launches, IDS)["server"]["metadata"]
    assert member_of(server(name=bulk_name(launches[0]), metadata=metadata)) == ("n1", 1)


def test_the_index_is_believed_before_names_and_the_host_name_before_the_name() -> None:
    metadata = requests.create(wanted(), [launch("n1"), launch("n2")], IDS)["server"]["metadata"]
    shown = server(name="renamed", metadata=metadata)
    assert member_of(shown) == ("renamed", 0)
    assert member_of({**shown, "OS-EXT-SRV-ATTR:hostname": "blue-general-node-2"}) == ("n2", 1)
    assert member_of({**shown, "OS-EXT-SRV-ATTR:launch_index": 0}) == ("n1", 1)


@pytest.mark.accepts("N6")
def test_options_of_the_file_are_added_as_they_stand_and_ours_stay() -> None:
    options = {
        "description": "a node",
        "metadata": {"cost-centre": 42, "springtide-cluster": "green"},
        "os:scheduler_hints": {"different_cell": "x"},
    }
    spec = wanted(options=options, key="ops", security_groups=["nodes"], config_drive="false")
    body = requests.create(spec, [launch()], Ids("i", "f", "n", server_group="g"))
    assert body["os:scheduler_hints"] == {"group": "g", "different_cell": "x"}
    made = body["server"]
    assert (made["description"], made["key_name"]) == ("a node", "ops")
    assert made["security_groups"] == [{"name": "nodes"}]
    assert made["config_drive"] is False
    assert made["metadata"]["cost-centre"] == "42"
    assert made["metadata"]["springtide-cluster"] == "blue"


def test_nodes_with_something_of_their_own_are_asked_for_alone() -> None:
    spec = wanted(addresses={"n1": "10.0.0.7"}, ports={"n2": "port-2"}, hosts={"n3": "host-3"})
    assert [requests.has_its_own(spec, f"n{i}") for i in range(1, 5)] == [True, True, True, False]
    one, two, three = (requests.create(spec, [launch(f"n{i}")], IDS)["server"] for i in (1, 2, 3))
    assert one["networks"] == [{"uuid": "network-1", "fixed_ip": "10.0.0.7"}]
    assert two["networks"] == [{"port": "port-2"}]
    assert three["hypervisor_hostname"] == "host-3"


def test_a_volume_is_as_large_as_the_file_says_and_goes_with_its_server() -> None:
    spec = wanted(volume="20.5G", volume_type="fast")
    body = requests.create(spec, [launch()], IDS)["server"]
    (volume,) = body["block_device_mapping_v2"]
    assert "imageRef" not in body
    assert (volume["volume_size"], volume["volume_type"]) == (21, "fast")
    assert volume["delete_on_termination"] is True


def test_a_rebuilt_server_leaves_the_roster_and_keeps_metadata_of_others() -> None:
    before = requests.create(wanted(), [launch("n1"), launch("n2")], IDS)["server"]["metadata"]
    body = requests.rebuild(launch("n2", 1), "image-2", {**before, "theirs": "x"})["rebuild"]
    assert body["metadata"]["theirs"] == "x"
    assert body["metadata"]["springtide-image-id"] == "image-2"
    assert member_of(server(name="whatever", metadata=body["metadata"])) == ("n2", 1)
    assert "TIDE_NODE=n2" in b64decode(body["user_data"]).decode()


def test_a_machine_finds_its_index_in_what_cloud_init_has_read(tmp_path: Path) -> None:
    told = tmp_path / "instance-data.json"
    told.write_text(json.dumps({"ds": {"meta_data": {"launch_index": 2, "name": "x"}}}, indent=1))
    index = INDEX.replace("/run/cloud-init/instance-data.json", str(told))
    launches = [replace(launch(), node=f"n{i}", generation=7) for i in range(4)]
    text = script.indexed(launches, index) + "echo $TIDE_CLUSTER $TIDE_NODE $TIDE_GENERATION"
    ran = subprocess.run(["sh", "-c", text.replace("work\n", "")], capture_output=True, text=True)
    assert (ran.stdout, ran.returncode) == ("blue n2 7\n", 0)


def test_a_machine_finds_its_index_where_cloud_init_has_read_none(tmp_path: Path) -> None:
    (tmp_path / "instance-data.json").write_text(json.dumps({"ds": {"meta_data": {}}}))
    (tmp_path / "meta_data.json").write_text(json.dumps({"launch_index": 1}))
    index = INDEX.replace("/run/cloud-init", str(tmp_path)).replace(
        "http://169.254.169.254/openstack/latest", tmp_path.as_uri()
    )
    ran = subprocess.run(["sh", "-c", index], capture_output=True, text=True)
    assert (ran.stdout, ran.returncode) == ("1\n", 0)


def test_a_machine_that_cannot_find_its_index_does_nothing(tmp_path: Path) -> None:
    index = INDEX.replace("/run/cloud-init", str(tmp_path)).replace(
        "169.254.169.254", "127.0.0.1:9"
    )
    text = script.indexed([launch()], index) + "echo done"
    ran = subprocess.run(["sh", "-c", text], capture_output=True, text=True)
    assert (ran.stdout, ran.returncode) == ("", 1)


# --- answers -------------------------------------------------------------------------------


@pytest.mark.accepts("A17")
def test_a_server_that_boots_from_a_volume_has_the_image_of_its_metadata() -> None:
    assert parse_server(server(image=""), CATALOG, {"image-1": ["image-1"]}).image == "base"
    rebuilt = server(image={"id": "image-9"})
    assert parse_server(rebuilt, CATALOG, {"image-1": ["image-1"]}).image == "image-9"


def test_states_are_told() -> None:
    assert {state_of(server(status=status)) for status in STATES} == {*InstanceState}
    going = {"OS-EXT-STS:task_state": "deleting"}
    assert state_of(server(**going)) is InstanceState.DELETING
    starting = {"OS-EXT-STS:task_state": "rebooting_hard"}
    assert state_of(server(status="ERROR", **starting)) is InstanceState.PENDING
    assert state_of(server(status="SOMETHING NEW")) is InstanceState.PENDING


def test_fixed_ipv4_addresses_come_first() -> None:
    addresses = {
        "nodes": [
            {"addr": "fe80::1", "version": 6, "OS-EXT-IPS:type": "fixed"},
            {"addr": "192.0.2.9", "version": 4, "OS-EXT-IPS:type": "floating"},
            {"addr": "10.0.0.9", "version": 4, "OS-EXT-IPS:type": "fixed"},
        ]
    }
    assert parse_server(server(addresses=addresses), CATALOG, {}).address == "10.0.0.9"
    assert parse_server(server(), CATALOG, {}).address is None


def test_flavors_tell_their_devices() -> None:
    extra = {"pci_passthrough:alias": "a100:2,nic:1", "hw:cpu_threads": "2"}
    shape = {"id": "1", "name": "gpu", "vcpus": 8, "ram": 4096, "extra_specs": extra}
    assert parse_flavor(shape) == CloudFlavor("gpu", 8, 4096, threads=2, gpus=2)
    assert parse_flavor({**shape, "extra_specs": {"resources:VGPU": "1"}}).gpus == 1


def test_what_others_use_of_a_quota_counts_and_what_is_ours_counts_once() -> None:
    limits = {"maxTotalInstances": 10, "totalInstancesUsed": 6, "maxTotalCores": -1}
    small = [CloudFlavor("small", 1, 512)]
    fits = check_quotas(limits, Use.of(8, small), Use(4, 4, 2048), grouped=False)
    assert [one.ok for one in fits] == [True, True, True]
    over = check_quotas(limits, Use.of(8, small), Use(), grouped=False)
    assert [one.ok for one in over] == [False, True, True]
    assert "ask for 14" in over[0].todo
    grouped = check_quotas({"maxServerGroupMembers": 10}, Use.of(11, small), Use(), grouped=True)
    assert grouped[-1].ok is False
