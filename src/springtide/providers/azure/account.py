"""Who we are to Azure, and the client that says so. Only `provider` and `checks` call it."""

import json
import re
import stat
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from azure.core.credentials import TokenCredential
from azure.core.pipeline import PipelineRequest
from azure.core.pipeline.policies import SansIOHTTPPolicy
from azure.identity import (
    ChainedTokenCredential,
    ClientSecretCredential,
    EnvironmentCredential,
    ManagedIdentityCredential,
)
from azure.mgmt.compute import ComputeManagementClient

from springtide.ports import CloudError
from springtide.spec.clouds import Azure

PUBLIC = "https://management.azure.com"
AUTHORITIES = {
    "management.azure.com": "login.microsoftonline.com",
    "management.usgovcloudapi.net": "login.microsoftonline.us",
    "management.chinacloudapi.cn": "login.chinacloudapi.cn",
}
"""Where to sign in for each cloud."""
CONNECT_S = 10.0
_LOOPBACK = re.compile(r"http://(127(\.\d{1,3}){3}|localhost)(:\d+)?(/|$)")
KEYS = ("tenantId", "clientId", "clientSecret")


@dataclass(frozen=True, slots=True)
class Secret:
    """A service principal, as its file says."""

    tenant: str
    client: str
    secret: str = field(repr=False)


class _OnLoopback(SansIOHTTPPolicy):  # type: ignore[type-arg]
    """Sends the client secret itself as the token, to a server of tests on this machine.

    The SDK's own policy refuses to send tokens over plain HTTP, and rightly so: this one is used
    only where nothing leaves the machine.
    """

    def __init__(self, token: str) -> None:
        self._token = token

    def on_request(self, request: PipelineRequest) -> None:  # type: ignore[type-arg]
        request.http_request.headers["Authorization"] = f"Bearer {self._token}"


def connect(wanted: Azure) -> ComputeManagementClient:
    """A client that tries once: patience is the guard's."""
    secret = read_credentials(wanted.credentials) if wanted.credentials else None
    endpoint = wanted.endpoint or PUBLIC
    policy = _OnLoopback(secret.secret if secret else "") if on_loopback(endpoint) else None
    limits: dict[str, Any] = {
        "connection_timeout": min(wanted.timeout, CONNECT_S),
        "read_timeout": wanted.timeout,
        "retry_total": 0,
    }
    return ComputeManagementClient(
        _credential(secret, endpoint, limits),
        wanted.subscription,
        base_url=endpoint,
        credential_scopes=[f"{endpoint}/.default"],
        **limits,
        **({"authentication_policy": policy} if policy else {}),
    )


def on_loopback(endpoint: str) -> bool:
    return _LOOPBACK.match(endpoint) is not None


def _credential(secret: Secret | None, endpoint: str, limits: dict[str, Any]) -> TokenCredential:
    host = urlsplit(endpoint).hostname or ""
    authority = AUTHORITIES.get(host, AUTHORITIES["management.azure.com"])
    if secret is None:
        environment = EnvironmentCredential(authority=authority, **limits)
        return ChainedTokenCredential(environment, ManagedIdentityCredential(**limits))
    return ClientSecretCredential(
        secret.tenant, secret.client, secret.secret, authority=authority, **limits
    )


def read_credentials(path: Path) -> Secret:
    try:
        found = json.loads(path.read_text())
    except OSError as error:
        raise CloudError(
            f"Azure credentials cannot be read: {error}; write them there or change "
            "provider.credentials"
        ) from error
    except ValueError:
        found = None
    values = [found.get(key) if isinstance(found, dict) else None for key in KEYS]
    if not all(isinstance(value, str) and value for value in values):
        raise CloudError(f"{path} must be a JSON object with the texts {', '.join(KEYS)}")
    return Secret(*map(str, values))


def readable_by_others(path: Path) -> bool:
    return bool(path.stat().st_mode & (stat.S_IRWXG | stat.S_IRWXO))


def read_public_key(path: Path) -> str:
    try:
        text = path.read_text().strip()
    except (OSError, UnicodeDecodeError) as error:
        raise CloudError(
            f"the public key of provider.ssh_key cannot be read: {error}; name one, such as "
            "made by `ssh-keygen -t ed25519`"
        ) from error
    if "PRIVATE KEY" in text or len(text.splitlines()) != 1 or len(text.split()) < 2:
        raise CloudError(f"{path} must hold one public key, as a .pub file does")
    return text
