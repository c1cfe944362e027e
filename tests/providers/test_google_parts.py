"""The parts of the Google provider by themselves: names, errors, sizes, credentials."""

import json
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from threading import Thread
from typing import Any

import pytest
from cryptography.hazmat.primitives.asymmetric import rsa
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat
from google.auth.compute_engine import _metadata
from hypothesis import given
from hypothesis import strategies as st

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
from springtide.providers.google import errors, names, parse, render
from springtide.providers.google.checks import decide_quota, decide_size
from springtide.providers.google.credentials import check_file, credentials
from springtide.providers.google.render import Kind
from springtide.providers.google.rest import Api
from springtide.spec import Flavor
from springtide.spec import parse as read_spec
from springtide.spec.clouds import Google
from tests.providers.servers.google import Http

CLUSTERS = st.from_regex(r"[a-z][a-z0-9-]{0,31}", fullmatch=True)
NODES = st.from_regex(r"[A-Za-z0-9][A-Za-z0-9_-]{0,62}(\.[A-Za-z0-9_-]{1,30})?", fullmatch=True)
GENERATIONS = st.integers(min_value=1, max_value=10**9)


def launch(cluster: str, node: str, generation: int = 1) -> Launch:
    return Launch(cluster, node, generation, "general", "base", "small")


# --- names -------------------------------------------------------------------------------


@given(CLUSTERS, st.lists(st.tuples(NODES, GENERATIONS), min_size=1, max_size=30, unique=True))
def test_every_node_has_a_name_that_google_allows_and_is_read_back_exactly(
    cluster: str, members: list[tuple[str, int]]
) -> None:
    parts = names.decide_parts([launch(cluster, *member) for member in members])
    read = []
    for part in parts:
        facts = names.read_description(names.describe(part[0], "i", render.members(part)))
        for one in part:
            name = render.name_of(one)
            assert names.allowed(name)
            assert names.member_of(cluster, name, facts) == (one.node, one.generation)
            read.append((one.node, one.generation))
    assert sorted(read) == sorted(members)


def test_descriptions_stay_below_googles_limit() -> None:
    odd = [launch("c", f"{'x' * 50}{i * 7919 % 100000}_Y{i % 13}") for i in range(600)]
    parts = names.decide_parts(odd)
    assert sum(map(len, parts)) == 600
    texts = [names.describe(part[0], "i" * 150, render.members(part)) for part in parts]
    assert max(map(len, texts)) <= 2048


@pytest.mark.parametrize("text", ["", "{", "[]", '{"other": 1}', None, 7])
def test_a_description_that_is_not_ours_says_nothing(text: object) -> None:
    assert names.read_description(text) == {}


@given(st.text(max_size=200))
def test_every_text_becomes_a_label(text: str) -> None:
    made = names.label(text)
    assert len(made) <= 63
    assert names.label(made) == made


def test_the_request_id_is_of_the_instances_and_of_the_attempt() -> None:
    kind = Kind("n2-standard-4", "image", "zone")
    one, two = launch("c", "n0"), launch("c", "n1")
    same = render.request_id([one, two], kind, 0)
    assert same == render.request_id([two, one], kind, 0)
    others = {
        render.request_id([one, two], kind, 1),
        render.request_id([one], kind, 0),
        render.request_id([one, two], Kind("n2-standard-4", "image", "other"), 0),
    }
    assert len({same, *others}) == 4


# --- errors ------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("status", "reason", "kind"),
    [
        (429, "rateLimitExceeded", Throttled),
        (429, "anything", Throttled),
        (403, "rateLimitExceeded", Throttled),
        (403, "userRateLimitExceeded", Throttled),
        (403, "quotaExceeded", QuotaExceeded),
        (403, "forbidden", Denied),
        (403, "accessNotConfigured", Denied),
        (403, "", Denied),
        (401, "required", Denied),
        (401, "authError", Denied),
        (400, "invalid", Rejected),
        (400, "required", Rejected),
        (400, "resourceNotReady", Transient),
        (404, "notFound", Rejected),
        (409, "alreadyExists", Rejected),
        (412, "conditionNotMet", Transient),
        (500, "backendError", Transient),
        (502, "", Transient),
        (503, "", Transient),
        (0, "ZONE_RESOURCE_POOL_EXHAUSTED", NoCapacity),
        (0, "ZONE_RESOURCE_POOL_EXHAUSTED_WITH_DETAILS", NoCapacity),
        (0, "VM_MIN_COUNT_NOT_REACHED", NoCapacity),
        (0, "QUOTA_EXCEEDED", QuotaExceeded),
        (0, "IP_SPACE_EXHAUSTED", QuotaExceeded),
        (403, "PERMISSIONS_ERROR", Denied),
        (0, "INVALID_FIELD_VALUE", Rejected),
        (400, "SOMETHING_NEW", Rejected),
        (0, "SOMETHING_NEW", Transient),
        (0, "INTERNAL_ERROR", Transient),
    ],
)
def test_each_refusal_becomes_its_class(status: int, reason: str, kind: type[CloudError]) -> None:
    error = errors.cloud_error(errors.Refusal(status, reason, "words"), "a test")
    assert type(error) is kind
    assert "words" in str(error)
    assert "a test" in str(error)


@pytest.mark.parametrize("body", [None, [], {}, {"error": "x"}, {"error": {"errors": [1]}}])
def test_an_answer_without_sense_is_still_an_error(body: object) -> None:
    assert type(errors.cloud_error(errors.parse_refusal(503, body), "a test")) is Transient


def test_the_cause_is_told_and_not_its_summary_and_quota_before_stock_out() -> None:
    codes = ("VM_MIN_COUNT_NOT_REACHED", "ZONE_RESOURCE_POOL_EXHAUSTED", "QUOTA_EXCEEDED")
    operation = {"error": {"errors": [{"code": code, "message": code} for code in codes]}}
    error = errors.hardest(errors.parse_failures(operation), "a test")
    assert type(error) is QuotaExceeded
    assert errors.parse_failures({"status": "DONE"}) == []


# --- shapes ------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("status", "state"),
    [
        ("PROVISIONING", InstanceState.PENDING),
        ("STAGING", InstanceState.PENDING),
        ("RUNNING", InstanceState.RUNNING),
        ("STOPPING", InstanceState.DELETING),
        ("TERMINATED", InstanceState.STOPPED),
        ("SUSPENDED", InstanceState.STOPPED),
        ("REPAIRING", InstanceState.BROKEN),
        ("SOMETHING_NEW", InstanceState.PENDING),
    ],
)
def test_each_status_is_a_state(status: str, state: InstanceState) -> None:
    description = names.describe(launch("c", "n0"), "i", [])
    seen = {"name": "c-n0-1", "status": status, "description": description, "zone": "zones/z"}
    assert parse.instance("c", seen)[0].state is state


@pytest.mark.parametrize(
    ("id", "path"),
    [
        ("debian", "projects/p/global/images/debian"),
        ("family/debian", "projects/p/global/images/family/debian"),
        ("global/images/debian", "projects/p/global/images/debian"),
        ("projects/q/global/images/family/d", "projects/q/global/images/family/d"),
        (
            "https://www.googleapis.com/compute/v1/projects/q/global/images/d",
            "projects/q/global/images/d",
        ),
    ],
)
def test_an_image_can_be_written_in_several_ways(id: str, path: str) -> None:
    assert parse.image_path("p", id) == path


def test_options_add_to_what_we_ask_for() -> None:
    ours = {"a": {"b": 1, "c": 2}, "list": [1], "d": 3}
    more = {"a": {"c": 5}, "list": [2, 3], "e": {"f": 6}}
    joined = render.merge(ours, more)
    assert joined == {"a": {"b": 1, "c": 5}, "list": [2, 3], "d": 3, "e": {"f": 6}}


# --- checks ------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("cpus", "memory", "arch", "says"),
    [
        (4, 15000, "x86_64", None),
        (8, 15000, "x86_64", "set cpus: 4"),
        (4, 16384, "x86_64", "set memory: 15472M or less"),
        (4, 15000, "aarch64", "set arch: x86_64"),
    ],
)
def test_a_flavor_is_compared_with_the_machine(
    cpus: int, memory: int, arch: str, says: str | None
) -> None:
    flavor = Flavor(cpus=cpus, memory=memory, arch=arch)
    found = decide_size("small", flavor, CloudFlavor("n2-standard-4", 4, 16384), "z")
    assert found.ok is (says is None)
    assert (says or "") in found.todo


def test_what_is_ours_already_is_not_counted_twice_and_what_others_use_is() -> None:
    assert decide_quota("r", "CPUS", wanted=40, ours=8, quota=(48.0, 12.0)).ok
    short = decide_quota("r", "CPUS", wanted=40, ours=0, quota=(48.0, 12.0))
    assert (short.ok, "4 more of CPUS" in short.todo) == (False, True)


# --- credentials -------------------------------------------------------------------------


def key_file(path: Path, token_uri: str, mode: int = 0o600) -> Path:
    key = rsa.generate_private_key(65537, 2048)
    pem = key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()).decode()
    facts = {
        "type": "service_account",
        "client_email": "tide@tide-test.iam.gserviceaccount.com",
        "private_key_id": "1",
        "private_key": pem,
        "token_uri": token_uri,
    }
    path.write_text(json.dumps(facts))
    path.chmod(mode)
    return path


@pytest.mark.accepts("A25")
@pytest.mark.parametrize("mode", [0o640, 0o604, 0o666])
def test_a_key_that_others_can_read_is_refused(tmp_path: Path, mode: int) -> None:
    path = key_file(tmp_path / "key.json", "http://127.0.0.1:9/", mode)
    with pytest.raises(Denied, match="chmod 600"):
        credentials(path, "https://compute.googleapis.com")
    found = check_file(path)
    assert (found.ok, "chmod 600" in found.todo) == (False, True)
    path.chmod(0o600)
    assert check_file(path).ok
    assert "PRIVATE" not in repr(credentials(path, "https://compute.googleapis.com"))


def test_a_key_that_is_none_is_refused_without_showing_it(tmp_path: Path) -> None:
    with pytest.raises(Denied, match="cannot be read"):
        credentials(tmp_path / "none", "https://compute.googleapis.com")
    path = tmp_path / "key.json"
    path.write_text('{"private_key": "SECRET"}')
    path.chmod(0o600)
    with pytest.raises(Denied) as caught:
        credentials(path, "https://compute.googleapis.com")
    assert "SECRET" not in str(caught.value)


class Tokens:
    """Gives tokens, and answers calls that carry the last one."""

    def __init__(self) -> None:
        self.given = 0
        self.refused = 0
        self.broken = False
        tokens = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                self.rfile.read(int(self.headers["Content-Length"]))
                tokens.given += 1
                refusal = {"error": "invalid_grant", "error_description": "Invalid JWT"}
                made = {"access_token": f"t{tokens.given}", "expires_in": 3600}
                self._say(400 if tokens.broken else 200, refusal if tokens.broken else made)

            def do_GET(self) -> None:
                if self.path.startswith("/computeMetadata/v1/"):
                    assert self.headers["Metadata-Flavor"] == "Google"
                    tokens.given += "/token" in self.path
                    made = {"access_token": f"t{tokens.given}", "expires_in": 3600}
                    account = {"email": "a@b.c", "scopes": ["all"], "aliases": ["default"]}
                    self._say(200, made if "/token" in self.path else account)
                    return
                right = self.headers["Authorization"] == f"Bearer t{tokens.given}"
                tokens.refused += not right
                self._say(200 if right else 401, {})

            def _say(self, status: int, body: dict[str, Any]) -> None:
                text = json.dumps(body).encode()
                self.send_response(status)
                self.send_header("Content-Type", "application/json")
                self.send_header("Metadata-Flavor", "Google")
                self.send_header("Content-Length", str(len(text)))
                self.end_headers()
                self.wfile.write(text)

            def log_message(self, format: str, *args: object) -> None:
                """Nobody reads it."""

        self.http = Http(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.http.server_address[1]}"


@pytest.fixture
def tokens() -> Iterator[Tokens]:
    tokens = Tokens()
    thread = Thread(target=tokens.http.serve_forever, args=(0.02,))
    thread.start()
    yield tokens
    tokens.http.shutdown()
    tokens.http.server_close()
    thread.join()


@pytest.fixture
def api(tmp_path: Path, tokens: Tokens, monkeypatch: pytest.MonkeyPatch) -> Iterator[Api]:
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    path = key_file(tmp_path / "key.json", f"{tokens.url}/token")
    api = Api(tokens.url, "p", credentials(path, "https://compute.googleapis.com"), 60.0)
    yield api
    api.close()


def test_many_threads_share_one_token(api: Api, tokens: Tokens) -> None:
    with ThreadPoolExecutor(8) as pool:
        assert [*pool.map(lambda _: api.get("", "a test"), range(40))] == [{}] * 40
    assert (tokens.given, tokens.refused) == (1, 0)


def test_a_token_that_is_refused_is_not_tried_again_and_the_next_call_has_another(
    api: Api, tokens: Tokens
) -> None:
    api.get("", "a test")
    tokens.given += 1  # as if it had been withdrawn
    with pytest.raises(Denied):
        api.get("", "a test")
    assert tokens.refused == 1
    assert api.get("", "a test") == {}


def test_a_machine_without_an_account_of_its_own_is_told_to_have_a_key(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    monkeypatch.setattr(_metadata, "_GCE_METADATA_HOST", "127.0.0.1:9")
    monkeypatch.setattr("google.auth._exponential_backoff.time.sleep", lambda _: None)
    api = Api("http://127.0.0.1:9", "p", credentials(None, "https://compute.googleapis.com"), 60.0)
    with pytest.raises(Transient, match="set `credentials`"):
        api.get("", "a test")
    api.close()


def test_a_machine_uses_its_own_account(tokens: Tokens, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    monkeypatch.setattr(_metadata, "_GCE_METADATA_HOST", tokens.url.removeprefix("http://"))
    api = Api(tokens.url, "p", credentials(None, "https://compute.googleapis.com"), 60.0)
    assert [api.get("", "a test") for _ in range(3)] == [{}] * 3
    assert (tokens.given, tokens.refused) == (1, 0)
    api.close()


def test_an_account_that_is_not_accepted_is_denied(api: Api, tokens: Tokens) -> None:
    tokens.broken = True
    with pytest.raises(Denied, match="not accepted"):
        api.get("", "a test")


# --- documents ---------------------------------------------------------------------------


def test_the_example_in_the_documents_is_a_cluster_file() -> None:
    page = (Path(__file__).parents[2] / "docs/providers/google.md").read_text()
    example = page.split("```yaml\n")[1].split("```")[0]
    assert isinstance(read_spec(example, "google.md").provider, Google)
