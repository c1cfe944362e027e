"""The pure parts of the AWS provider."""

import subprocess
from dataclasses import replace
from pathlib import Path

import pytest
from botocore.exceptions import (
    BotoCoreError,
    ClientError,
    ConnectionClosedError,
    ConnectTimeoutError,
    CredentialRetrievalError,
    EndpointConnectionError,
    IncompleteReadError,
    InvalidRegionError,
    MetadataRetrievalError,
    NoCredentialsError,
    NoRegionError,
    ParamValidationError,
    ProxyConnectionError,
    ReadTimeoutError,
    SSLError,
    UnknownServiceError,
)
from botocore.parsers import ResponseParserError

from springtide.ports import (
    CloudError,
    Denied,
    Launch,
    NoCapacity,
    QuotaExceeded,
    Rejected,
    Throttled,
    Transient,
)
from springtide.providers.aws import boot, provider, quotas, requests, shapes
from springtide.providers.aws.errors import Missing, translate
from springtide.providers.aws.prices import parse_products
from springtide.providers.cloud import Catalog, script, tags
from springtide.spec.clouds import Aws

CASES = [
    ("RequestLimitExceeded", 503, Throttled),
    ("Throttling", 400, Throttled),
    ("InsufficientInstanceCapacity", 500, NoCapacity),
    ("InsufficientFreeAddressesInSubnet", 400, NoCapacity),
    ("Unsupported", 400, NoCapacity),
    ("SpotMaxPriceTooLow", 400, NoCapacity),
    ("ReservationCapacityExceeded", 400, NoCapacity),
    ("InsufficientCapacityOnOutpost", 400, NoCapacity),
    ("VcpuLimitExceeded", 400, QuotaExceeded),
    ("InstanceLimitExceeded", 400, QuotaExceeded),
    ("VolumeLimitExceeded", 400, QuotaExceeded),
    ("MaxSpotInstanceCountExceeded", 400, QuotaExceeded),
    ("UnauthorizedOperation", 403, Denied),
    ("AuthFailure", 401, Denied),
    ("ExpiredToken", 400, Denied),
    ("InternalError", 500, Transient),
    ("SomethingNew", 503, Transient),
    ("IncorrectInstanceState", 400, Transient),
    ("ConcurrentTagAccess", 400, Transient),
    ("InvalidInstanceID.NotFound", 400, Missing),
    ("InvalidParameterValue", 400, Rejected),
    ("SomethingNew", 400, Rejected),
]


@pytest.mark.parametrize(("code", "status", "kind"), CASES)
def test_codes_of_aws_become_classes_of_ours(
    code: str, status: int, kind: type[CloudError]
) -> None:
    answer = {
        "Error": {"Code": code, "Message": "why"},
        "ResponseMetadata": {"HTTPStatusCode": status},
    }
    error = translate("run instances", ClientError(answer, "RunInstances"))
    assert type(error) is kind
    assert str(error) == f"run instances: why ({code})"


URL = "http://127.0.0.1"


@pytest.mark.parametrize(
    ("raised", "kind"),
    [
        (NoCredentialsError(), Denied),
        (CredentialRetrievalError(provider="role", error_msg="No credentials found in it"), Denied),
        (CredentialRetrievalError(provider="iam-role", error_msg="no answer"), Transient),
        (ParamValidationError(report="Unknown parameter"), Rejected),
        (InvalidRegionError(region_name="?"), Rejected),
        (NoRegionError(), Rejected),
        (UnknownServiceError(service_name="ec3", known_service_names="ec2"), Rejected),
        (ReadTimeoutError(endpoint_url=URL), Transient),
        (ConnectTimeoutError(endpoint_url=URL), Transient),
        (ConnectionClosedError(endpoint_url=URL), Transient),
        (EndpointConnectionError(endpoint_url=URL), Transient),
        (ProxyConnectionError(proxy_url=URL), Transient),
        (SSLError(endpoint_url=URL, error="reset"), Transient),
        (MetadataRetrievalError(error_msg="no answer"), Transient),
        (IncompleteReadError(actual_bytes=1, expected_bytes=2), Transient),
        (BotoCoreError(), Transient),
        (ResponseParserError("a proxy's page"), Transient),
        (ValueError("no endpoint"), Rejected),
    ],
)
def test_errors_of_the_sdk_become_classes_of_ours(
    raised: Exception, kind: type[CloudError]
) -> None:
    assert type(translate("describe instances", raised)) is kind


def test_what_only_the_owner_of_a_key_can_read_is_not_shown() -> None:
    told = {
        "Code": "UnauthorizedOperation",
        "Message": "No. Encoded authorization failure message: abc",
    }
    assert "abc" not in str(translate("run", ClientError({"Error": told}, "RunInstances")))


def test_options_are_merged_and_never_take_the_name_of_a_node() -> None:
    ours = {"TagSpecifications": [requests.tagged("instance", {"springtide-cluster": "blue"})]}
    theirs = requests.texts(
        {
            "TagSpecifications": [
                {
                    "ResourceType": "instance",
                    "Tags": [
                        {"Key": "cost", "Value": 4711},
                        {"Key": "springtide-cluster", "Value": "red"},
                    ],
                }
            ],
            "EbsOptimized": True,
        }
    )
    merged = requests.merge(theirs, ours)
    assert shapes.tags_of(merged["TagSpecifications"][0]) == {
        "cost": "4711",
        "springtide-cluster": "blue",
    }
    assert merged["EbsOptimized"] is True


@pytest.mark.parametrize("key", requests.OURS)
def test_options_that_would_break_the_books_are_refused(key: str, tmp_path: Path) -> None:
    wanted = Aws(region="eu-west-1", subnets={"eu-west-1a": "subnet-1"}, options={key: "x"})
    with pytest.raises(CloudError, match=key):
        provider(wanted, Catalog({}, {}), tmp_path)


def test_a_credentials_file_that_is_not_there_is_said_at_once(tmp_path: Path) -> None:
    wanted = Aws(region="eu-west-1", subnets={"a": "subnet-1"}, credentials=str(tmp_path / "none"))
    with pytest.raises(CloudError, match="mode 600"):
        provider(wanted, Catalog({}, {}), tmp_path)


def test_a_token_is_the_same_for_the_same_nodes_in_any_order_and_for_no_others() -> None:
    def token(*nodes: str, zone: str | None = None, generation: int = 1) -> str:
        launches = [Launch("blue", n, generation, "g", "i", "f", zone) for n in nodes]
        return requests.token(launches)

    same = token("n1", "n2")
    assert same == token("n2", "n1")
    assert (
        len({same, token("n1"), token("n1", "n2", zone="a"), token("n1", "n2", generation=2)}) == 4
    )
    assert len(same) <= 64


def test_times_are_of_the_first_start_and_of_the_last() -> None:
    from datetime import UTC, datetime

    def at(seconds: int) -> datetime:
        return datetime.fromtimestamp(seconds, UTC)

    raw = {
        "InstanceId": "i-1",
        "LaunchTime": at(5000),
        "NetworkInterfaces": [{"Attachment": {"AttachTime": at(1000)}}],
    }
    one = shapes.instance(raw, Catalog({}, {}))
    assert (one.created_at, one.booted_at) == (1000.0, 5000.0)
    one = shapes.instance({**raw, "LaunchTime": at(1001)}, Catalog({}, {}))
    assert (one.created_at, one.booted_at) == (1000.0, 1000.0)


def test_the_price_of_an_hour_is_found_in_a_price_list() -> None:
    assert parse_products([]) is None
    assert parse_products(['{"terms": {"Reserved": {}}}']) is None


@pytest.mark.parametrize(
    ("type", "family"),
    [
        ("c7i.xlarge", "standard"),
        ("t3.micro", "standard"),
        ("g5.xlarge", "g"),
        ("vt1.3xlarge", "g"),
        ("p5.48xlarge", "p"),
        ("hpc7a.96xlarge", "hpc"),
        ("inf2.xlarge", "inf"),
    ],
)
def test_types_belong_to_the_quotas_of_their_family(type: str, family: str) -> None:
    assert quotas.family(type) == family


METADATA = """\
#!/bin/sh
for last; do :; done
case $last in
*/latest/api/token) echo secret ;;
*/meta-data/ami-launch-index) printf 1 ;;
*/tags/instance/springtide-node)
    [ -e "$0.named" ] || { : >"$0.named"; exit 22; }
    printf n7 ;;
*/tags/instance/springtide-generation) printf 3 ;;
*) exit 22 ;;
esac
"""


def booted(tmp_path: Path, text: str) -> str:
    """What a machine says whose metadata service answers so."""
    curl = tmp_path / "curl"
    curl.write_text(METADATA)
    curl.chmod(0o755)
    done = subprocess.run(
        ["/bin/sh"],
        input=text,
        env={"PATH": f"{tmp_path}:/usr/bin:/bin"},
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )
    return done.stdout


SAYS = 'echo "$TIDE_CLUSTER $TIDE_NODE $TIDE_GENERATION $TIDE_TOKEN"\n'


def test_an_instance_of_a_launch_knows_by_its_index_which_node_it_is(tmp_path: Path) -> None:
    launch = Launch("blue", "n1", 1, "g", "i", "f", user_data=SAYS, token="9.abc")
    other = replace(launch, node="n2", generation=5, token="9.d-f_")
    text = script.indexed([launch, other], boot.LAUNCH_INDEX)
    assert booted(tmp_path, text) == "blue n2 5 9.d-f_\n"
    assert script.told(text) == SAYS


def test_an_instance_of_a_fleet_waits_until_it_has_a_name(tmp_path: Path) -> None:
    launch = Launch("blue", "n1", 1, "g", "i", "f", user_data=SAYS)
    text = script.asked(launch, boot.tag(tags.NODE), boot.tag(tags.GENERATION), "echo 9.abc")
    assert booted(tmp_path, text) == "blue n7 3 9.abc\n"
