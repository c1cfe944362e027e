"""Azure's resource manager as far as nodes need it, over real HTTP: what it answers to what.

`azure_cloud` has the subscription behind it.
"""

import json
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs, urlsplit

from tests.providers.servers.azure_cloud import (
    GALLERY,
    LOCATION,
    SUBNET,
    URN,
    Answer,
    Ask,
    AzureServer,
    Machine,
    Refusal,
    check_body,
    identity,
    interface_id,
    route,
)

COMPUTE = r"/subscriptions/*/resourceGroups/*/providers/Microsoft\.Compute"
NETWORK = r"/subscriptions/*/resourceGroups/*/providers/Microsoft\.Network"
HERE = r"/subscriptions/*/providers/Microsoft\.Compute"


@route("PUT", f"{COMPUTE}/virtualMachines/*")
def put_machine(server: AzureServer, ask: Ask) -> Answer:
    return server.put(ask.parts[-1], ask.body, ask.only_new)


@route("GET", f"{COMPUTE}/virtualMachines/*")
def get_machine(server: AzureServer, ask: Ask) -> Answer:
    return Answer(200, server.machine(ask.parts[-1]).model(time.time()))


@route("PATCH", f"{COMPUTE}/virtualMachines/*")
def change_machine(server: AzureServer, ask: Ask) -> Answer:
    check_body("VirtualMachineUpdate", ask.body)
    one, now = _to_change(server, ask), time.time()
    one.body["properties"].update(ask.body.get("properties", {}))
    return Answer(200, one.model(now), server.operation(now + server.allocate_s))


@route("DELETE", f"{COMPUTE}/virtualMachines/*")
def delete_machine(server: AzureServer, ask: Ask) -> Answer:
    one, now = server.machine(ask.parts[-1]), time.time()
    if ask.query.get("forceDeletion") != "true":
        server.unknown.append(f"deletion of {one.name} without force")
    one.gone_at = one.gone_at or now + server.delete_s
    return Answer(202, None, server.operation(one.gone_at))


@route("POST", f"{COMPUTE}/virtualMachines/*/(start|restart)")
def start_machine(server: AzureServer, ask: Ask) -> Answer:
    ask.parts, how = ask.parts[:-1], ask.parts[-1]
    one, now = _to_change(server, ask), time.time()
    if how == "restart" and one.power != "running":
        raise Refusal(409, "OperationNotAllowed", "The operation requires the VM to be running.")
    one.power, one.busy, one.failure = "running", "Updating", None
    one.ready_at = now + server.boot_s
    one.boots.append((one.ready_at, one.body["properties"].get("userData", "")))
    return Answer(202, None, server.operation(one.ready_at))


def _to_change(server: AzureServer, ask: Ask) -> Machine:
    one = server.machine(ask.parts[-1])
    if one.gone_at is not None:
        raise Refusal(409, "OperationNotAllowed", f"VM '{one.name}' is marked for deletion.")
    return one


@route("POST", f"{COMPUTE}/virtualMachines/*/retrieveBootDiagnosticsData")
def console(server: AzureServer, ask: Ask) -> Answer:
    one = server.machine(ask.parts[-1])
    link = f"{server.address}/blobs/{one.name}?sig=x"
    return Answer(200, {"consoleScreenshotBlobUri": link, "serialConsoleLogBlobUri": link})


@route("GET", f"{COMPUTE}/virtualMachines")
def list_machines(server: AzureServer, ask: Ask) -> Answer:
    now = time.time()
    found = [one.model(now) for one in server.living() if one.visible_at <= now]
    return server.paged(ask, found)


@route("GET", f"{HERE}/virtualMachines")
def list_statuses(server: AzureServer, ask: Ask) -> Answer:
    now = time.time()
    if ask.query.get("statusOnly") != "true":
        server.unknown.append("a list of the whole subscription")
    found = [
        {
            **identity("virtualMachines", one.name),
            "location": LOCATION,
            "properties": {"instanceView": {"statuses": one.statuses(now)}},
        }
        for one in server.living()
        if one.visible_at <= now
    ]
    return server.paged(ask, found)


@route("GET", f"{NETWORK}/networkInterfaces")
def list_interfaces(server: AzureServer, ask: Ask) -> Answer:
    found = [
        {
            "id": interface_id(one.name),
            "tags": one.body["tags"],
            "properties": {
                "virtualMachine": {"id": identity("virtualMachines", one.name)["id"].upper()},
                "ipConfigurations": [{"properties": {"privateIPAddress": one.address}}],
            },
        }
        for one in server.living()
    ]
    return server.paged(ask, [*found, *server.interfaces_left.values()])


@route("DELETE", f"{NETWORK}/networkInterfaces/*")
def delete_interface(server: AzureServer, ask: Ask) -> Answer:
    if server.interfaces_left.pop(ask.parts[-1], None) is None:
        raise Refusal(404, "ResourceNotFound", "The Resource was not found.")
    return Answer(202, None, server.operation(time.time()))


@route("GET", f"{NETWORK}/virtualNetworks/*/subnets/*")
def get_subnet(server: AzureServer, ask: Ask) -> Answer:
    if ask.path != SUBNET:
        raise Refusal(404, "NotFound", "Resource not found.")
    return Answer(200, {"id": SUBNET, "properties": {"addressPrefix": "10.0.0.0/8"}})


@route("GET", f"{HERE}/locations/*/operations/*")
def get_operation(server: AzureServer, ask: Ask) -> Answer:
    done_at, error = server.operations[ask.parts[-1]]
    body: dict[str, Any] = {"name": ask.parts[-1], "status": "InProgress"}
    if time.time() >= done_at:
        body["status"] = "Failed" if error else "Succeeded"
        if error:
            body["error"] = {"code": error.code, "message": error.message}
    return Answer(200, body)


@route("GET", f"{HERE}/skus")
def list_skus(server: AzureServer, ask: Ask) -> Answer:
    if ask.query.get("$filter") != f"location eq '{LOCATION}'":
        server.unknown.append(f"skus of {ask.query}")
    return server.paged(ask, server.skus)


@route("GET", f"{HERE}/locations/*/usages")
def list_usages(server: AzureServer, ask: Ask) -> Answer:
    used = server.others_cores + 2 * len(server.living())
    found = [
        {"name": {"value": name, "localizedValue": name}, "limit": limit, "currentValue": used}
        for name, limit in server.limits.items()
    ]
    return server.paged(ask, found)


OFFER = f"{HERE}/locations/*/publishers/*/artifacttypes/vmimage/offers/*/skus/*/versions"


@route("GET", OFFER)
def list_versions(server: AzureServer, ask: Ask) -> Answer:
    if ":".join((*ask.parts[2:], "latest")) != URN:
        raise Refusal(404, "NotFound", "Artifact: VMImage was not found.")
    return Answer(200, [{"name": "24.04.202610010", "location": LOCATION, "id": "x"}])


@route("GET", f"{OFFER}/*")
def get_version(server: AzureServer, ask: Ask) -> Answer:
    return Answer(200, {"name": ask.parts[-1], "properties": {"architecture": "x64"}})


@route("GET", f"{COMPUTE}/disks/*")
def get_disk(server: AzureServer, ask: Ask) -> Answer:
    server.machine(ask.parts[-1].removesuffix("_OsDisk_1"))
    properties = {"hyperVGeneration": "V2", "supportedCapabilities": {"architecture": "x64"}}
    return Answer(200, {**identity("disks", ask.parts[-1]), "properties": properties})


@route("PUT", f"{COMPUTE}/(images|snapshots)/*")
def put_image(server: AzureServer, ask: Ask) -> Answer:
    kind, name = ask.parts[-2:]
    check_body("Image" if kind == "images" else "Snapshot", ask.body)
    if kind == "images":
        source = ask.body["properties"]["storageProfile"]["osDisk"]["snapshot"]["id"]
        if source.rsplit("/", 1)[-1] not in server.made["snapshots"]:
            raise Refusal(400, "InvalidParameter", f"There is no snapshot {source}.")
    properties = {**ask.body["properties"], "provisioningState": "Succeeded"}
    found = {**ask.body, **identity(kind, name), "properties": properties}
    server.made[kind][name] = found
    status = 201 if kind == "images" else 202
    return Answer(status, found, server.operation(time.time() + server.allocate_s))


@route("GET", f"{COMPUTE}/(images|snapshots)/*")
def get_image(server: AzureServer, ask: Ask) -> Answer:
    kind, name = ask.parts[-2:]
    if name not in server.made[kind]:
        raise Refusal(404, "ResourceNotFound", f"The Resource {name} was not found.")
    return Answer(200, server.made[kind][name])


@route("GET", f"{COMPUTE}/galleries/*/images/*")
def get_gallery_image(server: AzureServer, ask: Ask) -> Answer:
    if ask.path != GALLERY:
        raise Refusal(404, "ResourceNotFound", f"The Resource {ask.path} was not found.")
    return Answer(200, {"id": GALLERY, "properties": {"architecture": "Arm64"}})


@route("GET", f"{COMPUTE}/images")
def list_images(server: AzureServer, ask: Ask) -> Answer:
    return server.paged(ask, list(server.made["images"].values()))


@route("DELETE", f"{COMPUTE}/(images|snapshots)/*")
def delete_image(server: AzureServer, ask: Ask) -> Answer:
    kind, name = ask.parts[-2:]
    if server.made[kind].pop(name, None) is None:
        return Answer(204)
    return Answer(202, None, server.operation(time.time()))


@route("GET", r"/subscriptions/*/resourceGroups/*/providers/Microsoft\.Authorization/permissions")
def list_rights(server: AzureServer, ask: Ask) -> Answer:
    return server.paged(ask, server.rights)


class Http(ThreadingHTTPServer):
    """Many may knock at once, before anybody opens."""

    daemon_threads = True
    request_queue_size = 64


@contextmanager
def serving() -> Iterator[AzureServer]:
    """The server, on a port of its own, until the block ends."""
    azure = AzureServer()

    class Requests(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"
        disable_nagle_algorithm = True
        wbufsize = 1 << 16

        def log_message(self, format: str, *args: object) -> None:
            """Nobody reads it."""

        def serve(self) -> None:
            parts = urlsplit(self.path)
            text = self.rfile.read(int(self.headers.get("Content-Length") or 0))
            query = {key: values[0] for key, values in parse_qs(parts.query).items()}
            only_new = self.headers.get("If-None-Match") == "*"
            ask = Ask(self.command, parts.path, query, json.loads(text) if text else {}, only_new)
            answer = azure.answer(ask, self.headers.get("Authorization"))
            if self.command == "PUT" and azure.loses():
                self.close_connection = True
                return
            self.say(answer)

        def say(self, answer: Answer) -> None:
            plain = isinstance(answer.body, bytes)
            text = answer.body if plain else json.dumps(answer.body).encode()
            text = text if answer.body is not None else b""
            self.send_response(answer.status)
            for key, value in answer.headers.items():
                self.send_header(key, value)
            self.send_header("Content-Type", "text/plain" if plain else "application/json")
            self.send_header("Content-Length", str(len(text)))
            self.end_headers()
            self.wfile.write(text)
            self.wfile.flush()

        do_GET = do_PUT = do_PATCH = do_POST = do_DELETE = serve

    http = Http(("127.0.0.1", 0), Requests)
    azure.address = f"http://127.0.0.1:{http.server_address[1]}"
    thread = threading.Thread(target=http.serve_forever, kwargs={"poll_interval": 0.02})
    thread.start()
    try:
        yield azure
    finally:
        http.shutdown()
        thread.join()
        http.server_close()
