"""OpenStack's services over HTTP: who we are, where they are, which version of Nova we speak.

The SDK's part is clouds.yaml, sign-in and the service catalog. Requests are written by ourselves:
what a version of Nova means by a request is then chosen here, and not by the SDK's.
"""

import re
import threading
from collections.abc import Iterator, Mapping
from typing import Any
from urllib.parse import urlsplit

from keystoneauth1.adapter import Adapter
from openstack.config import OpenStackConfig
from openstack.config.cloud_region import CloudRegion

from springtide.ports import Denied, Rejected, Transient
from springtide.providers.openstack.errors import Missing, Unsure, of_answer, of_exception
from springtide.spec.clouds import OpenStack

Json = dict[str, Any]

COMPUTE, IMAGE, NETWORK, VOLUME = "compute", "image", "network", "block-storage"
VERSIONS = {COMPUTE: "v2.1", IMAGE: "v2", NETWORK: "v2.0", VOLUME: "v3"}
"""What follows the address of a service that the catalog names without a version."""

OLDEST, NEWEST = (2, 79), (2, 93)
"""Microversions of Nova: OpenStack Train has the oldest, Zed the newest that we know."""
REBUILDS_VOLUMES = (2, 93)
PAGE = 1000
_UUID = re.compile(r"[0-9a-f]{8}-?([0-9a-f]{4}-?){3}[0-9a-f]{12}", re.I)


class Api:
    """One project of a cloud. Threads may share it."""

    def __init__(self, region: CloudRegion, page: int = PAGE) -> None:
        self.page = page
        self._region = region
        self._services: dict[str, Adapter] = {}
        self._version: tuple[int, int] | None = None
        self._lock = threading.Lock()

    def get(self, service: str, path: str, **query: object) -> Json:
        return self._ask("GET", service, path, params=query)

    def post(self, service: str, path: str, body: Mapping[str, object]) -> Json:
        return self._ask("POST", service, path, json=body)

    def delete(self, service: str, path: str) -> None:
        """Gone already is fine."""
        try:
            self._ask("DELETE", service, path)
        except Missing:
            return

    def pages(self, service: str, path: str, key: str, **query: object) -> Iterator[Json]:
        """All of a list. If what a page ended with is gone by the next, the list is none."""
        marker: dict[str, object] = {}
        while True:
            try:
                answer = self.get(service, path, limit=self.page, **query, **marker)
            except Rejected as error:
                if not marker:
                    raise
                raise Transient(f"the list changed while it was read: {error}") from error
            found: list[Json] = answer[key]
            yield from found
            if not found or not _has_next(answer, key):
                return
            marker = {"marker": found[-1]["id"]}

    def named(self, service: str, path: str, key: str, wanted: str) -> Json | None:
        """Network, image or such by its name or id; None if there is none, or several."""
        if _UUID.fullmatch(wanted):
            try:
                answer = self.get(service, f"{path}/{wanted}")
            except Missing:
                return None
            return answer if service == IMAGE else dict(answer[key.removesuffix("s")])
        found = list(self.pages(service, path, key, name=wanted))
        return found[0] if len(found) == 1 else None

    @property
    def version(self) -> tuple[int, int]:
        """The microversion of Nova that we speak with it; asked for once."""
        if self._version is None:
            told = self._ask("GET", COMPUTE, "/", any_version=True)
            self._version = decide_version(str(told.get("version", {}).get("version", "")))
        return self._version

    def project(self) -> str:
        """Sign in, and say which project that was for."""
        try:
            return str(self._session().get_project_id() or "")
        except Exception as error:
            raise of_exception(error, "sign in") from error

    def close(self) -> None:
        if self._services:
            self._session().session.close()

    def _ask(
        self, method: str, service: str, path: str, any_version: bool = False, **more: Any
    ) -> Json:
        doing = f"{method} {service}{path}"
        if service == COMPUTE and not any_version:
            more["microversion"] = ".".join(map(str, self.version))
        try:
            answer = self._service(service).request(path, method, raise_exc=False, **more)
        except Exception as error:
            raise of_exception(error, doing) from error
        if answer.status_code >= 400:
            raise of_answer(answer.status_code, _text(answer), doing)
        return _body(answer)

    def _service(self, service: str) -> Adapter:
        with self._lock:
            if service not in self._services:
                self._services[service] = self._found(service)
            return self._services[service]

    def _found(self, service: str) -> Adapter:
        region, session = self._region, self._session()
        where = {
            "interface": region.get_interface(service),
            "region_name": region.get_region_name(service),
        }
        url = region.get_endpoint(service) or session.get_endpoint(
            service_type=service, skip_discovery=True, **where
        )
        if url is None:
            raise Rejected(f"the cloud has no service {service} for {where}")
        return Adapter(
            session,
            service_type=service,
            endpoint_override=decide_url(service, url),
            connect_retries=0,
            status_code_retries=0,
        )

    def _session(self) -> Any:
        return self._region.get_session()


def read_region(wanted: OpenStack) -> CloudRegion:
    """clouds.yaml, or the environment, as OpenStack's own clients read them; asks nobody."""
    files = [str(wanted.credentials)] if wanted.credentials else None
    if wanted.credentials:
        _readable(wanted)
    try:
        found = OpenStackConfig(config_files=files, load_envvars=files is None)
        region: CloudRegion = found.get_one(
            cloud=wanted.cloud, api_timeout=wanted.timeout, validate=True
        )
    except Exception as error:
        raise of_exception(error, _place(wanted)) from error
    if not region.get_auth_args():
        raise Denied(
            f"{_place(wanted)}: no credentials; name a clouds.yaml in provider.credentials"
        )
    return region


def _readable(wanted: OpenStack) -> None:
    assert wanted.credentials
    try:
        wanted.credentials.open("rb").close()
    except OSError as error:
        raise Denied(
            f"provider.credentials {wanted.credentials} cannot be read: {error.strerror}; "
            "it is to be a clouds.yaml that this user can read"
        ) from error


def _place(wanted: OpenStack) -> str:
    return f"cloud {wanted.cloud or 'of the environment'} in {wanted.credentials or 'clouds.yaml'}"


def decide_version(told: str) -> tuple[int, int]:
    """From the newest that a Nova speaks."""
    try:
        major, minor = (int(part) for part in told.split("."))
    except ValueError:
        raise Rejected(f"Nova does not tell its microversion, but {told!r}") from None
    if (major, minor) < OLDEST:
        raise Rejected(
            f"this Nova speaks {told} at most; we need 2.79, of OpenStack Train, or newer"
        )
    return min((major, minor), NEWEST)


def decide_url(service: str, url: str) -> str:
    """Catalogs name services with and without their version."""
    url = url.rstrip("/")
    parts = urlsplit(url).path.split("/")
    versioned = any(part[:1] == "v" and part[1:2].isdigit() for part in parts)
    return url if versioned else f"{url}/{VERSIONS[service]}"


def _has_next(answer: Json, key: str) -> bool:
    links = answer.get(f"{key}_links", ())
    return "next" in answer or any(link.get("rel") == "next" for link in links)


def _text(answer: Any) -> str:
    """The message in it: services wrap theirs differently."""
    try:
        body = answer.json()
    except ValueError:
        return str(answer.text or answer.reason or "no reason given")
    inner = (
        [one for one in body.values() if isinstance(one, dict)] if isinstance(body, dict) else []
    )
    told = next((one["message"] for one in inner if "message" in one), None)
    return str(told or body)


def _body(answer: Any) -> Json:
    try:
        body = answer.json() if answer.content else {}
    except ValueError as error:
        raise Unsure(f"{answer.url} answered something that is no JSON") from error
    return body if isinstance(body, dict) else {}
