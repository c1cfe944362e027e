"""Who we are to OCI: credentials, and the SDK's clients with its own retries off.

Making an account calls nobody. Clients are made when they are first used: the rights of the
machine itself (instance principals) cost calls.
"""

import configparser
from collections.abc import Iterable
from pathlib import Path
from threading import Lock
from typing import Any

import oci
from oci.auth.signers import InstancePrincipalsSecurityTokenSigner
from oci.circuit_breaker import NoCircuitBreakerStrategy
from oci.config import DEFAULT_LOCATION
from oci.core import ComputeClient, VirtualNetworkClient
from oci.exceptions import ClientError
from oci.identity import IdentityClient
from oci.limits import LimitsClient
from oci.retry import NoneRetryStrategy

from springtide.ports import Denied, Transient
from springtide.providers.oci.errors import calling
from springtide.spec.clouds import Oci

CONNECT_S = 10.0
THREADS = 16
"""Connections that are kept open to each service."""
OTHERS = 0o077


class Account:
    """One tenancy, as the provider block of the cluster file names it."""

    def __init__(self, wanted: Oci) -> None:
        self._wanted = wanted
        self._lock = Lock()
        self._clients: dict[type, Any] = {}
        self._config = {} if wanted.auth == "instance" else _read_config(wanted)
        self._signer = _signer(self._config) if self._config else None
        if wanted.region:
            self._config["region"] = wanted.region

    @property
    def compute(self) -> Any:
        return self._client(ComputeClient)

    @property
    def network(self) -> Any:
        return self._client(VirtualNetworkClient)

    @property
    def identity(self) -> Any:
        return self._client(IdentityClient)

    @property
    def limits(self) -> Any:
        return self._client(LimitsClient)

    @property
    def files(self) -> list[Path]:
        """What holds secrets, and must be readable by us alone."""
        if self._wanted.auth == "instance":
            return []
        return [_config_path(self._wanted), Path(self._config["key_file"]).expanduser()]

    def close(self) -> None:
        with self._lock:
            for client in self._clients.values():
                client.base_client.session.close()

    def _client(self, kind: Any) -> Any:
        with self._lock:
            if kind not in self._clients:
                self._clients[kind] = self._made(kind)
            return self._clients[kind]

    def _made(self, kind: Any) -> Any:
        limit_s = self._wanted.timeout
        self._signer = self._signer or _machine(self._wanted.endpoint)
        with calling("logging in"):
            client = kind(
                self._config,
                signer=self._signer,
                timeout=(min(CONNECT_S, limit_s), limit_s),
                retry_strategy=NoneRetryStrategy(),
                circuit_breaker_strategy=NoCircuitBreakerStrategy(),
                **({"service_endpoint": self._wanted.endpoint} if self._wanted.endpoint else {}),
            )
        for adapter in client.base_client.session.adapters.values():
            adapter.init_poolmanager(THREADS, THREADS)
        return client


def _config_path(wanted: Oci) -> Path:
    return wanted.credentials or Path(DEFAULT_LOCATION).expanduser()


def _read_config(wanted: Oci) -> dict[str, Any]:
    """The config file's profile, complete."""
    path = _config_path(wanted)
    try:
        config: dict[str, Any] = oci.config.from_file(str(path), wanted.profile)
        config.setdefault("key_file", None)
        oci.config.validate_config({**config, "region": wanted.region or config.get("region")})
    except oci.exceptions.ConfigFileNotFound as error:
        raise Denied(f"{path} cannot be read: make it, or set `credentials`") from error
    except oci.exceptions.ProfileNotFound as error:
        raise Denied(f"{path} has no profile {wanted.profile}: set `profile`") from error
    except oci.exceptions.InvalidConfig as error:
        wrong = ", ".join(f"{key} is {what}" for key, what in sorted(error.errors.items()))
        raise Denied(f"{path}, profile {wanted.profile}: {wrong}") from error
    except oci.exceptions.InvalidKeyFilePath as error:
        raise Denied(f"{path}, profile {wanted.profile}: its key_file is not there") from error
    except (ValueError, configparser.Error) as error:
        raise Denied(f"{path} is no config file of OCI") from error
    return config


def _signer(config: dict[str, Any]) -> Any:
    try:
        return oci.signer.Signer.from_config(config)
    except (ClientError, OSError, ValueError) as error:
        raise Denied(
            f"{config['key_file']} cannot be used as a key ({type(error).__name__}): "
            "it must be a PEM file that we can read, with `pass_phrase` in the config file if it "
            "has one"
        ) from error


def _machine(endpoint: str | None) -> Any:
    """The rights of the machine that we run on. The SDK says in many ways that it has none."""
    federation = {"federation_endpoint": f"{endpoint}/v1/x509"} if endpoint else {}
    try:
        return InstancePrincipalsSecurityTokenSigner(
            retry_strategy=NoneRetryStrategy(),
            federation_client_retry_strategy=NoneRetryStrategy(),
            federation_client_circuit_breaker_strategy=NoCircuitBreakerStrategy(),
            **federation,
        )
    except Exception as error:
        raise Transient(
            f"OCI, logging in as this machine: {type(error).__name__}; `auth: instance` works "
            "only on an instance of OCI, whose dynamic group has a policy"
        ) from error


def decide_exposed(files: Iterable[tuple[Path, int]]) -> list[Path]:
    """Of files and their modes: those that others than their owner can read."""
    return [path for path, mode in files if mode & OTHERS]
