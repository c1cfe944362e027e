"""What OCI's errors mean for us: the only place that knows them.

OCI says most by an HTTP status and a code; that a host is full it says as an internal error, and
that rights are missing as something not found.
"""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager

from oci._vendor.requests.exceptions import RequestException
from oci.exceptions import ClientError, ServiceError

from springtide.ports import (
    CloudError,
    Denied,
    NoCapacity,
    QuotaExceeded,
    Rejected,
    Throttled,
    Transient,
)

NOT_FOUND = 404
CONFLICT = 409
FULL = ("out of host capacity", "out of capacity")
_BY_CODE: Mapping[str, type[CloudError]] = {
    "TooManyRequests": Throttled,
    "LimitExceeded": QuotaExceeded,
    "QuotaExceeded": QuotaExceeded,
    "OutOfHostCapacity": NoCapacity,
    "NotAuthorizedOrNotFound": Denied,
    "NotAuthorizedOrResourceAlreadyExists": Denied,
    "RelatedResourceNotAuthorizedOrNotFound": Rejected,
    "InvalidatedRetryToken": Rejected,
}
_BY_STATUS: Mapping[int, type[CloudError]] = {
    401: Denied,
    403: Denied,
    408: Transient,
    CONFLICT: Transient,
    412: Transient,
    429: Throttled,
}
_TODO: Mapping[type[CloudError], str] = {
    QuotaExceeded: "raise the limit in the console under Limits, Quotas and Usage",
    Denied: "see that the key, the OCIDs and the policy are right (`tide check`)",
}


def decide_class(status: int, code: str | None, message: str | None) -> type[CloudError]:
    """The class of an answer that is none."""
    if any(words in (message or "").lower() for words in FULL):
        return NoCapacity
    if known := _BY_CODE.get(code or "") or _BY_STATUS.get(status):
        return known
    return Rejected if 400 <= status < 500 else Transient


def translate(error: Exception, doing: str) -> CloudError:
    """What an exception of the SDK means."""
    match error:
        case ServiceError():
            kind = decide_class(error.status, error.code, error.message)
            todo = f"; {_TODO[kind]}" if kind in _TODO else ""
            said = f"{error.message or 'no reason given'} ({error.status} {error.code})"
            return kind(f"OCI, {doing}: {said}{todo}")
        case ClientError():
            return Denied(f"OCI, {doing}: {error}")
    return Transient(f"OCI, {doing}: no answer ({type(error).__name__})")


@contextmanager
def calling(doing: str) -> Iterator[None]:
    """Around calls of the SDK."""
    try:
        yield
    except (
        ServiceError,
        ClientError,
        RequestException,
        OSError,
        RuntimeError,
        ValueError,
    ) as error:
        raise translate(error, doing) from error


def status_of(error: CloudError) -> int | None:
    """The HTTP status that an error of ours comes from."""
    cause = error.__cause__
    return cause.status if isinstance(cause, ServiceError) else None
