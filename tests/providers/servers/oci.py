"""A server that speaks OCI's protocol as it is documented, on loopback, over an `OciCloud`.

Requests must be signed with the key of the config file that it hands out; lists come in pages.
`open_world` gives a whole place to work on: tests and the bench use it.
"""

import json
import re
import time
from base64 import b64decode, b64encode
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass, field, replace
from email.utils import parsedate_to_datetime
from functools import cache
from hashlib import md5, sha256
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from typing import Any, NoReturn
from urllib.parse import parse_qsl, urlsplit

from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import padding, rsa

from springtide.ports import (
    CloudError,
    Denied,
    NoCapacity,
    Provider,
    QuotaExceeded,
    Rejected,
    Throttled,
)
from springtide.providers.cloud import Catalog
from springtide.providers.oci import provider
from springtide.spec import Flavor, Image
from springtide.spec.clouds import Oci
from tests.providers.servers.oci_cloud import (
    ARM_IMAGE,
    COMPARTMENT,
    DOMAINS,
    IMAGE,
    OTHER_IMAGE,
    REGION,
    SUBNET,
    Json,
    OciCloud,
    Refusal,
    full,
)
from tests.providers.servers.oci_machine import FEDERATION, METADATA, MachineIdentity
from tests.providers.world import BLUE, CALL_S, World

TENANCY, USER = "ocid1.tenancy.oc1..here", "ocid1.user.oc1..tide"
CORE = "/20160918"
ID = "(?P<id>[^/]+)"
MACHINE = f"{TENANCY}/fed-x509"
"""How the keys of machines are called, up to their fingerprints."""
SKEW_S = 300.0
PAGED = frozenset({"limit", "page"})


@cache
def key() -> rsa.RSAPrivateKey:
    """Thrown away with the process."""
    return rsa.generate_private_key(public_exponent=65537, key_size=2048)


def fingerprint() -> str:
    public = (
        key()
        .public_key()
        .public_bytes(serialization.Encoding.DER, serialization.PublicFormat.SubjectPublicKeyInfo)
    )
    digest = md5(public, usedforsecurity=False).hexdigest()
    return ":".join(re.findall("..", digest))


def write_config(directory: Path) -> Path:
    """A config file and its key, for the user that the server knows."""
    pem, config = directory / "key.pem", directory / "config"
    pem.write_bytes(
        key().private_bytes(
            serialization.Encoding.PEM,
            serialization.PrivateFormat.PKCS8,
            serialization.NoEncryption(),
        )
    )
    config.write_text(
        f"[DEFAULT]\nuser={USER}\nfingerprint={fingerprint()}\ntenancy={TENANCY}\n"
        f"region={REGION}\nkey_file={pem}\n"
    )
    for path in (pem, config):
        path.chmod(0o600)
    return config


class Call:
    """One request, as the routes see it."""

    def __init__(self, cloud: OciCloud, query: Mapping[str, str], body: Json, token: str | None):
        self.cloud, self.query, self.body, self.token = cloud, query, body, token


Do = Callable[..., Any]
ROUTES: list[tuple[str, str, frozenset[str], Do]] = [
    ("POST", f"{CORE}/instances", frozenset(), lambda c: c.cloud.launch(c.body, c.token)),
    (
        "GET",
        f"{CORE}/instances",
        frozenset({"compartmentId"}) | PAGED,
        lambda c: c.cloud.list_instances(c.query),
    ),
    ("GET", f"{CORE}/instances/{ID}", frozenset(), lambda c, id: c.cloud.instance(id).shown()),
    (
        "DELETE",
        f"{CORE}/instances/{ID}",
        frozenset({"preserveBootVolume"}),
        lambda c, id: c.cloud.terminate(id, c.query),
    ),
    (
        "POST",
        f"{CORE}/instances/{ID}",
        frozenset({"action"}),
        lambda c, id: c.cloud.act(id, c.query["action"]),
    ),
    (
        "GET",
        f"{CORE}/vnicAttachments",
        frozenset({"compartmentId"}) | PAGED,
        lambda c: c.cloud.attachments(c.query),
    ),
    (
        "GET",
        f"{CORE}/privateIps",
        frozenset({"subnetId"}) | PAGED,
        lambda c: c.cloud.private_ips(c.query),
    ),
    (
        "GET",
        f"{CORE}/shapes",
        frozenset({"compartmentId", "imageId"}) | PAGED,
        lambda c: c.cloud.shapes(c.query),
    ),
    ("GET", f"{CORE}/subnets/{ID}", frozenset(), lambda c, id: c.cloud.subnet(id)),
    ("POST", f"{CORE}/images", frozenset(), lambda c: c.cloud.create_image(c.body, c.token)),
    (
        "GET",
        f"{CORE}/images",
        frozenset({"compartmentId"}) | PAGED,
        lambda c: [one.shown() for one in c.cloud.images.values()],
    ),
    ("GET", f"{CORE}/images/{ID}", frozenset(), lambda c, id: c.cloud.image(id).shown()),
    ("DELETE", f"{CORE}/images/{ID}", frozenset(), lambda c, id: c.cloud.image(id).turn("DELETED")),
    (
        "POST",
        f"{CORE}/instanceConsoleHistories",
        frozenset(),
        lambda c: c.cloud.capture(c.body),
    ),
    (
        "GET",
        f"{CORE}/instanceConsoleHistories/{ID}",
        frozenset(),
        lambda c, id: c.cloud.history(id).shown(),
    ),
    (
        "DELETE",
        f"{CORE}/instanceConsoleHistories/{ID}",
        frozenset(),
        lambda c, id: c.cloud.histories.pop(id) and None,
    ),
    (
        "GET",
        f"{CORE}/instanceConsoleHistories/{ID}/data",
        frozenset({"length", "offset"}),
        lambda c, id: c.cloud.said(id),
    ),
    (
        "GET",
        f"{CORE}/availabilityDomains",
        frozenset({"compartmentId"}),
        lambda c: [{"name": name, "compartmentId": TENANCY} for name in DOMAINS],
    ),
    (
        "GET",
        f"/20190729/services/compute/limits/{ID}/resourceAvailability",
        frozenset({"compartmentId", "availabilityDomain"}),
        lambda c, id: c.cloud.availability(id, c.query["availabilityDomain"]),
    ),
]


class Speaker(BaseHTTPRequestHandler):
    """One connection."""

    protocol_version = "HTTP/1.1"
    wbufsize = -1
    disable_nagle_algorithm = True
    server: "OciServer"

    def handle_one(self) -> None:
        length = int(self.headers.get("content-length") or 0)
        body = self.rfile.read(length)
        cloud, path = self.server.cloud, urlsplit(self.path).path
        with cloud.lock:
            cloud.calls.append(f"{self.command} {path}")
            try:
                lost = self.command == "POST" and path.endswith("/instances") and cloud.lost > 0
                answer = self._answer(cloud, body)
                if lost:
                    cloud.lost -= 1
                    self.close_connection = True
                    return
            except Refusal as error:
                self._send(error.status, {"code": error.code, "message": error.message})
                return
        self._page(answer)

    do_GET = do_POST = do_DELETE = do_PUT = handle_one

    def _answer(self, cloud: OciCloud, body: bytes) -> Any:
        path, machine = urlsplit(self.path).path, self.server.machine
        if path.startswith(METADATA) and self.headers["authorization"] == "Bearer Oracle":
            return machine.metadata(path) or self._unknown(cloud)
        self._check_signature(body)
        if path == FEDERATION:
            return machine.session(json.loads(body))
        if cloud.throttled:
            cloud.throttled -= 1
            raise Refusal(429, "TooManyRequests", "User-rate limit exceeded.")
        parts = urlsplit(self.path)
        query = dict(parse_qsl(parts.query))
        self._check_compartment(cloud, query)
        call = Call(
            cloud, query, json.loads(body) if body else {}, self.headers.get("opc-retry-token")
        )
        for method, pattern, known, do in ROUTES:
            found = re.fullmatch(pattern, parts.path)
            if method == self.command and found and query.keys() <= known:
                return do(call, **found.groupdict())
        return self._unknown(cloud)

    def _unknown(self, cloud: OciCloud) -> NoReturn:
        cloud.wrong.append(f"{self.command} {self.path}")
        raise Refusal(404, "NotFound", f"{self.command} {self.path} is not supported")

    def _check_compartment(self, cloud: OciCloud, query: Mapping[str, str]) -> None:
        if query.get("compartmentId", cloud.compartments[0]) not in cloud.compartments:
            raise Refusal(404, "NotAuthorizedOrNotFound", "Authorization failed or not found.")

    def _check_signature(self, body: bytes) -> None:
        try:
            machine, federates = self.server.machine, self.path == FEDERATION
            keys = {MACHINE: machine.key.public_key()} if federates else known_keys(machine)
            verify(self.command, self.path, dict(self.headers.items()), body, keys)
        except (InvalidSignature, ValueError, KeyError) as error:
            raise Refusal(
                401, "NotAuthenticated", "The required information was not provided or incorrect."
            ) from error

    def _page(self, answer: Any) -> None:
        if not isinstance(answer, list):
            self._send(204 if answer is None else 200, answer)
            return
        query = dict(parse_qsl(urlsplit(self.path).query))
        at, most = int(query.get("page", 0)), min(int(query.get("limit", 100)), self.server.page)
        more = {"opc-next-page": str(at + most)} if at + most < len(answer) else {}
        self._send(200, answer[at : at + most], more)

    def _send(self, status: int, answer: Any, headers: Mapping[str, str] | None = None) -> None:
        raw = answer if isinstance(answer, bytes) else json.dumps(answer).encode()
        kind = "application/octet-stream" if isinstance(answer, bytes) else "application/json"
        self.send_response(status)
        for name, value in {"opc-request-id": "REQUEST", **(headers or {})}.items():
            self.send_header(name, value)
        if status != 204:
            self.send_header("content-type", kind)
            self.send_header("content-length", str(len(raw)))
        self.end_headers()
        if status != 204:
            self.wfile.write(raw)
        self.wfile.flush()

    def log_message(self, format: str, *args: object) -> None:
        """Tests look at `OciCloud.calls`."""


def known_keys(machine: MachineIdentity) -> dict[str, rsa.RSAPublicKey]:
    return {f"{TENANCY}/{USER}/{fingerprint()}": key().public_key(), **machine.sessions}


def verify(
    method: str,
    target: str,
    headers: Mapping[str, str],
    body: bytes,
    keys: Mapping[str, rsa.RSAPublicKey],
) -> None:
    """Raises if the request is not signed as OCI wants it, by a key that it knows."""
    sent = {name.lower(): value for name, value in headers.items()}
    fields = dict(re.findall(r'(\w+)="([^"]*)"', sent["authorization"].removeprefix("Signature ")))
    names = fields["headers"].split()
    needed = {"date", "(request-target)"} | ({"host"} if MACHINE not in keys else set())
    if method in ("POST", "PUT", "PATCH"):
        needed |= {"content-length", "content-type", "x-content-sha256"}
        if b64encode(sha256(body).digest()).decode() != sent["x-content-sha256"]:
            raise ValueError("another body")
    if not needed <= set(names) or fields["algorithm"] != "rsa-sha256":
        raise ValueError("not signed as it must be")
    if abs(parsedate_to_datetime(sent["date"]).timestamp() - time.time()) > SKEW_S:
        raise ValueError("too old")
    sent["(request-target)"] = f"{method.lower()} {target}"
    text = "\n".join(f"{name}: {sent[name]}" for name in names)
    public = keys[MACHINE if fields["keyId"].startswith(MACHINE) else fields["keyId"]]
    public.verify(
        b64decode(fields["signature"]), text.encode(), padding.PKCS1v15(), hashes.SHA256()
    )


class OciServer(ThreadingHTTPServer):
    """Listens on a free port of loopback."""

    daemon_threads = True
    request_queue_size = 64

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Speaker)
        self.cloud = OciCloud()
        self.machine = MachineIdentity(TENANCY, REGION)

    @property
    def page(self) -> int:
        return self.cloud.page

    @property
    def endpoint(self) -> str:
        return f"http://127.0.0.1:{self.server_port}"


@contextmanager
def serving() -> Iterator[OciServer]:
    """A server that ends with the block."""
    server = OciServer()
    thread = Thread(target=server.serve_forever, args=(0.01,), name="oci-server")
    thread.start()
    try:
        yield server
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


# --- a place to work on ----------------------------------------------------------------------

CATALOG = Catalog(
    images={
        "linux": Image(id={"x86_64": IMAGE, "aarch64": ARM_IMAGE}),
        "newer": Image(id=OTHER_IMAGE),
    },
    flavors={
        "small": Flavor(type="VM.Standard.E4.Flex.4.64", cpus=8, memory=60000),
        "arm": Flavor(type="VM.Standard.A1.Flex.4.24", cpus=4, memory=23000, arch="aarch64"),
        "gpu": Flavor(type="VM.GPU3.2", cpus=24, memory=170000),
        "unheard-of": Flavor(type="VM.Nowhere1.1", cpus=1, memory=1000),
    },
)
SAYS = re.compile("^say (.*)$", re.MULTILINE)
REFUSALS: dict[type[CloudError], Callable[[], Refusal]] = {
    NoCapacity: full,
    QuotaExceeded: lambda: Refusal(400, "LimitExceeded", "Limits are exceeded: core-count"),
    Denied: lambda: Refusal(401, "NotAuthenticated", "The required information was not provided."),
    Throttled: lambda: Refusal(429, "TooManyRequests", "User-rate limit exceeded."),
    Rejected: lambda: Refusal(400, "InvalidParameter", "Parameter hostnameLabel is invalid"),
}


@dataclass
class Place:
    """A server, and the credentials of somebody who works on it."""

    server: OciServer
    config: Path
    opened: list[Provider] = field(default_factory=list)

    @property
    def cloud(self) -> OciCloud:
        return self.server.cloud

    def spec(self, **more: Any) -> Oci:
        return Oci(
            **{
                "credentials": self.config,
                "endpoint": self.server.endpoint,
                "compartment": COMPARTMENT,
                "subnet": SUBNET,
                "timeout": CALL_S,
                **more,
            }
        )

    def open(self, catalog: Catalog = CATALOG, **more: Any) -> Provider:
        opened = provider(self.spec(**more), catalog, self.config.parent)
        self.opened.append(opened)
        return opened

    def said(self, node: str) -> str | None:
        """The word that an instance which has booted was given."""
        booted = [one for one in self.cloud.nodes(BLUE, node) if one.state == "RUNNING"]
        words = [word for one in booted for word in SAYS.findall(one.user_data)]
        return words[-1] if words else None

    def world(self) -> World:
        return World(
            open=lambda cluster: self.open(),
            spoil=lambda launch: replace(launch, flavor="unheard-of"),
            says=lambda node, word: f"say {word}\n",
            said=self.said,
            kill=lambda instance: self.cloud.stop(instance.id),
            image="linux",
            flavor="small",
            other_image="newer",
            changes_user_data=False,
            dates_boots=False,
            snapshots=True,
            refuse=lambda kind: self.cloud.refusals.append(REFUSALS[kind]()),
            refusals=tuple(REFUSALS),
            lose_reply=lambda: setattr(self.cloud, "lost", 1),
            calls=lambda: len(self.cloud.calls),
            many=1000,
            batch=1,
            throttle=lambda: setattr(self.cloud, "throttled", 1),
            unreached=lambda: self.open(endpoint="http://127.0.0.1:1"),
        )


@asynccontextmanager
async def open_place(server: OciServer, directory: Path) -> AsyncIterator[Place]:
    """A cloud with nothing on it. At the end nobody has asked it for what it does not know."""
    server.cloud = OciCloud()
    place = Place(server, write_config(directory))
    try:
        yield place
    finally:
        for one in place.opened:
            await one.close()
    assert server.cloud.wrong == []
    assert server.cloud.histories == {}


@asynccontextmanager
async def open_world(directory: Path) -> AsyncIterator[World]:
    """With a server of its own."""
    with serving() as server:
        async with open_place(server, directory) as place:
            yield place.world()
