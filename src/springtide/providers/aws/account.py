"""Calls to one account in one region: the only place that talks to the SDK."""

import os
from collections.abc import Iterator
from pathlib import Path
from threading import Lock
from typing import Any

import boto3
import botocore.session
from botocore.config import Config
from botocore.exceptions import NoCredentialsError

from springtide.ports import CloudError
from springtide.providers.aws.errors import translated
from springtide.spec.clouds import Aws

POOL = 32
"""Connections; more than there are threads."""
PRICING_REGION = "us-east-1"
"""Prices of all regions are told in a few."""

Answer = dict[str, Any]


class Account:
    """Its clients are made when they are first used: looking for credentials may take a call."""

    def __init__(self, wanted: Aws) -> None:
        self.wanted = wanted
        self._lock = Lock()
        self._clients: dict[str, Any] = {}
        self._session = _session(wanted)

    def ask(self, operation: str, *, service: str = "ec2", **parameters: Any) -> Answer:
        """One call; raises CloudError."""
        with translated(operation.replace("_", " ")):
            try:
                answer: Answer = getattr(self._client(service), operation)(**parameters)
            except NoCredentialsError:
                self._forget(service)
                raise
        return answer

    def pages(self, operation: str, key: str, **parameters: Any) -> Iterator[Answer]:
        """What all pages hold."""
        while True:
            answer = self.ask(operation, **parameters)
            yield from answer.get(key, ())
            if not (token := answer.get("NextToken")):
                return
            parameters["NextToken"] = token

    def credentials_file(self) -> Path | None:
        """The file that holds our secret key, if one does."""
        if self.wanted.credentials:
            return self.wanted.credentials
        with translated("credentials"):
            found = self._session.get_credentials()
        if found is None or found.method != "shared-credentials-file":
            return None
        named = os.environ.get("AWS_SHARED_CREDENTIALS_FILE", "~/.aws/credentials")
        return Path(named).expanduser()

    def close(self) -> None:
        with self._lock:
            for client in self._clients.values():
                client.close()
            self._clients.clear()

    def _forget(self, service: str) -> None:
        """A client that was made without credentials never looks for them again."""
        with self._lock:
            self._clients.pop(service, None)

    def _client(self, service: str) -> Any:
        """Sessions must not be used by two threads at once, clients may."""
        with self._lock:
            if service not in self._clients:
                self._clients[service] = self._made(service)
            return self._clients[service]

    def _made(self, service: str) -> Any:
        seconds = self.wanted.timeout
        return self._session.client(
            service,
            region_name=PRICING_REGION if service == "pricing" else self.wanted.region,
            endpoint_url=self.wanted.endpoint,
            config=Config(
                connect_timeout=min(seconds, 10.0),
                read_timeout=seconds,
                retries={"total_max_attempts": 1},
                max_pool_connections=POOL,
                user_agent_extra="springtide",
            ),
        )


def _session(wanted: Aws) -> Any:
    """A file of credentials that is named is used, whatever the environment says."""
    file = wanted.credentials
    if file and not os.access(file, os.R_OK):
        raise CloudError(
            f"provider.credentials: {file} cannot be read: put the file there, owned by the user "
            "that the daemon runs as, with mode 600"
        )
    with translated("provider.profile"):
        core = botocore.session.Session(profile=wanted.profile or ("default" if file else None))
        if file:
            core.set_config_variable("credentials_file", str(file))
        return boto3.Session(botocore_session=core, region_name=wanted.region)
