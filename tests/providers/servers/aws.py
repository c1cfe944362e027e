"""AWS on this machine: moto's EC2 and STS behind a wrapper that makes it behave as EC2 does.

The wrapper counts and refuses calls, loses replies, and knows every call that is made here: any
other fails the test. What moto lacks of EC2 is in `aws_ec2`; prices and quotas are served from
their documented shapes.
"""

import io
import json
import os
import threading
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any
from urllib.parse import parse_qsl, urlencode
from xml.sax.saxutils import escape

from moto import settings
from moto.moto_server.werkzeug_app import DomainDispatcherApplication, create_backend_app
from werkzeug.serving import WSGIRequestHandler, make_server
from werkzeug.test import run_wsgi_app

from tests.providers.servers.aws_ec2 import Ec2, Refusal

KNOWN = frozenset(
    """
    CreateFleet CreateImage CreateLaunchTemplate CreateLaunchTemplateVersion CreatePlacementGroup
    CreateTags DeleteLaunchTemplate DeletePlacementGroup DeleteSnapshot DeregisterImage
    DescribeImages DescribeInstanceAttribute DescribeInstanceTypes DescribeInstances
    DescribeLaunchTemplateVersions DescribeSnapshots DescribeSpotPriceHistory DescribeSubnets
    GetCallerIdentity GetConsoleOutput GetProducts GetServiceQuota ModifyInstanceAttribute
    RebootInstances RunInstances StartInstances StopInstances TerminateInstances
    """.split()  # noqa: SIM905 - shorter than a list
)
LAUNCHES = frozenset({"RunInstances", "CreateFleet"})


@dataclass
class Fault:
    """What happens to a call of these actions instead."""

    actions: frozenset[str] | None
    code: str
    status: int = 400
    times: int = 1


class Quiet(WSGIRequestHandler):
    protocol_version = "HTTP/1.1"

    def log(self, type: str, message: str, *args: Any) -> None:
        """Nobody reads it."""

    def connection_dropped(self, error: BaseException, environ: Any = None) -> None:
        """A lost reply is the end of its connection."""
        self.close_connection = True


class Server:
    """A WSGI application around moto's."""

    def __init__(self) -> None:
        settings.ENABLE_AMI_VALIDATION = True
        settings.EC2_ENABLE_INSTANCE_TYPE_VALIDATION = True
        os.environ["MOTO_EC2_LOAD_DEFAULT_AMIS"] = "false"
        self._moto = DomainDispatcherApplication(create_backend_app)
        self._lock = threading.RLock()
        self.endpoint = ""
        self.reset()

    def reset(self) -> None:
        """A fresh account."""
        with self._lock:
            self.calls: Counter[str] = Counter()
            self.signed_by: set[str] = set()
            self.unknown: list[str] = []
            self.faults: list[Fault] = []
            self.denied: set[str] = set()
            self.losses: list[frozenset[str]] = []
            self.prices: dict[str, float] = {}
            self.quotas: dict[str, float] = {}
            self.ec2 = Ec2(self._forward, self._lock)

    def refuse(
        self, code: str, actions: Iterable[str] | None = LAUNCHES, status: int = 400, times: int = 1
    ) -> None:
        """Have the next calls of these actions, or of any, fail with a code."""
        some = None if actions is None else frozenset(actions)
        self.faults.append(Fault(some, code, status, times))

    def lose_reply(self, actions: Iterable[str] = LAUNCHES) -> None:
        """Have the next of these calls done, and its reply lost."""
        self.losses.append(frozenset(actions))

    def __call__(self, environ: dict[str, Any], start: Callable[..., Any]) -> Iterable[bytes]:
        body = environ["wsgi.input"].read(int(environ.get("CONTENT_LENGTH") or 0))
        with self._lock:
            signed = environ.get("HTTP_AUTHORIZATION", "")
            self.signed_by.add(signed.partition("Credential=")[2].partition("/")[0])
            action, status, answer, kind = self._answer(environ, body)
            lost = next((one for one in self.losses if action in one), None)
            if lost is not None:
                self.losses.remove(lost)
                raise ConnectionAbortedError("the reply is lost")
        headers = [("Content-Type", kind), ("Content-Length", str(len(answer)))]
        start(f"{status} x", headers)
        return [answer]

    def _answer(self, environ: dict[str, Any], body: bytes) -> tuple[str, int, bytes, str]:
        if target := environ.get("HTTP_X_AMZ_TARGET"):
            action = target.partition(".")[2]
            return action, *self._json(action, json.loads(body)), "application/x-amz-json-1.1"
        form = dict(parse_qsl(body.decode(), keep_blank_values=True))
        action = form["Action"]
        try:
            self._admit(action)
            status, answer = self.ec2.answer(environ, form)
        except Refusal as error:
            status, answer = error.status, _refusal(error)
        return action, status, answer, "text/xml"

    def _admit(self, action: str) -> None:
        self.calls[action] += 1
        if action not in KNOWN:
            self.unknown.append(action)
            raise Refusal("InvalidAction", f"nobody taught this server {action}")
        for fault in self.faults:
            if fault.actions is None or action in fault.actions:
                fault.times -= 1
                self.faults = [one for one in self.faults if one.times > 0]
                raise Refusal(fault.code, "as the test wants it", fault.status)
        if action in self.denied:
            raise Refusal(
                "UnauthorizedOperation",
                "You are not authorized. Encoded authorization failure message: AAAA-secret",
                403,
            )

    def _json(self, action: str, wanted: dict[str, Any]) -> tuple[int, bytes]:
        try:
            self._admit(action)
            answer = self._products(wanted) if action == "GetProducts" else self._quota(wanted)
            return 200, json.dumps(answer).encode()
        except Refusal as error:
            return error.status, json.dumps({"__type": error.code, "message": str(error)}).encode()

    def _products(self, wanted: dict[str, Any]) -> dict[str, Any]:
        asked = {one["Field"]: one["Value"] for one in wanted["Filters"]}
        assert asked.keys() >= {"instanceType", "regionCode", "operatingSystem", "tenancy"}
        price = self.prices.get(asked["instanceType"])
        if price is None:
            return {"FormatVersion": "aws_v1", "PriceList": []}
        dimension = {"unit": "Hrs", "pricePerUnit": {"USD": f"{price:.10f}"}}
        terms = {"OnDemand": {"SKU.T": {"priceDimensions": {"SKU.T.R": dimension}}}}
        product = {"product": {"attributes": asked}, "terms": terms}
        return {"FormatVersion": "aws_v1", "PriceList": [json.dumps(product)]}

    def _quota(self, wanted: dict[str, Any]) -> dict[str, Any]:
        if wanted["QuotaCode"] not in self.quotas:
            raise Refusal("NoSuchResourceException", "there is no such quota")
        return {"Quota": {**wanted, "Value": self.quotas[wanted["QuotaCode"]], "Adjustable": True}}

    def _forward(self, environ: dict[str, Any], form: dict[str, str]) -> tuple[int, bytes]:
        """To moto, as if the client had sent that."""
        body = urlencode(form).encode()
        inner = dict(environ, CONTENT_LENGTH=str(len(body)))
        inner["wsgi.input"] = io.BytesIO(body)
        parts, status, _ = run_wsgi_app(self._moto.get_application(inner), inner, buffered=True)
        return int(status.split()[0]), b"".join(parts)


def _refusal(error: Refusal) -> bytes:
    return (
        f"<Response><Errors><Error><Code>{error.code}</Code><Message>{escape(str(error))}</Message>"
        "</Error></Errors><RequestID>1</RequestID></Response>"
    ).encode()


@contextmanager
def serving() -> Iterator[Server]:
    """A server on a port of its own, for as long as the block lasts."""
    server = Server()
    http = make_server("127.0.0.1", 0, server, threaded=True, request_handler=Quiet)
    server.endpoint = f"http://127.0.0.1:{http.server_port}"
    thread = threading.Thread(target=http.serve_forever, args=(0.02,), daemon=True)
    thread.start()
    try:
        yield server
    finally:
        http.shutdown()
        http.server_close()
        thread.join(10)
