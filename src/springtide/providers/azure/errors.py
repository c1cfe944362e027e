"""From the errors of Azure to the provider's; the one translator of this adapter."""

from collections.abc import Iterator
from contextlib import contextmanager

from azure.core.exceptions import (
    AzureError,
    ClientAuthenticationError,
    HttpResponseError,
    ServiceRequestError,
    ServiceResponseError,
)

from springtide.ports import (
    CloudError,
    Denied,
    NoCapacity,
    QuotaExceeded,
    Rejected,
    Throttled,
    Transient,
)

LONGEST = 300
"""Characters of Azure's own words; the rest are links."""

CODES: dict[str, type[CloudError]] = {
    "SkuNotAvailable": NoCapacity,
    "AllocationFailed": NoCapacity,
    "ZonalAllocationFailed": NoCapacity,
    "OverconstrainedAllocationRequest": NoCapacity,
    "OverconstrainedZonalAllocationRequest": NoCapacity,
    "QuotaExceeded": QuotaExceeded,
    "SubnetIsFull": QuotaExceeded,
    "AuthorizationFailed": Denied,
    "LinkedAuthorizationFailed": Denied,
    "InvalidAuthenticationToken": Denied,
    "ExpiredAuthenticationToken": Denied,
    "SubscriptionNotFound": Denied,
    "PropertyChangeNotAllowed": Rejected,
    "SubscriptionRequestsThrottled": Throttled,
    "TooManyRequests": Throttled,
    "Conflict": Transient,
    "AnotherOperationInProgress": Transient,
    "OperationPreempted": Transient,
    "RetryableError": Transient,
    "InternalExecutionError": Transient,
}
"""What a code means whatever its status is."""

NOT_ALLOWED: dict[str, type[CloudError]] = {
    "quota": QuotaExceeded,
    "deletion": Transient,
    "to be running": Transient,
}
"""What an OperationNotAllowed means by a word in it; else its status tells. A machine that was
running when we looked and is not now is started by the next try."""

STATUSES: dict[int, type[CloudError]] = {
    401: Denied,
    403: Denied,
    408: Transient,
    409: Transient,
    412: Transient,
    429: Throttled,
}
"""What a status means whose code is not known; else 4xx stays wrong, and 5xx passes."""

ADVICE: dict[type[CloudError], str] = {
    Denied: "see that the credentials are valid and have the roles of docs/providers/azure.md",
    QuotaExceeded: "ask Azure for more (portal, Quotas), or lower the group's nodes",
}


@contextmanager
def translated(what: str) -> Iterator[None]:
    """`what` was to be done, and to what."""
    try:
        yield
    except AzureError as error:
        raise translate(error, what) from error


def translate(error: AzureError, what: str) -> CloudError:
    if not isinstance(error, HttpResponseError) or error.status_code is None:
        refused = isinstance(error, ClientAuthenticationError) and not _unreached(error)
        return _worded(Denied if refused else Transient, what, _first_line(str(error)))
    code = (error.error.code if error.error else None) or ""
    said = _first_line((error.error.message if error.error else None) or error.message)
    kind = decide_kind(error.status_code, code, said)
    return _worded(kind, what, f"{code}: {said}" if code else said, _wait(error))


def _unreached(error: BaseException) -> bool:
    """Whether it was the way to the sign-in that failed: the SDK calls that a refusal, too."""
    cause = error.__cause__ or error.__context__
    return isinstance(cause, ServiceRequestError | ServiceResponseError) or (
        cause is not None and _unreached(cause)
    )


def failed(code: str, said: str, what: str) -> CloudError:
    """For a failure inside an operation that Azure had begun: it has no status."""
    kind = decide_kind(500, code, said)
    return _worded(kind, what, f"{code}: {_first_line(said)}")


def decide_kind(status: int, code: str, said: str) -> type[CloudError]:
    """Quotas come as an operation that is not allowed: only their words tell."""
    if status == 429:
        return Throttled
    if code == "OperationNotAllowed":
        by_status = STATUSES.get(status, Rejected)
        return next((kind for word, kind in NOT_ALLOWED.items() if word in said.lower()), by_status)
    return CODES.get(code) or STATUSES.get(status) or (Transient if status >= 500 else Rejected)


def is_gone(error: CloudError) -> bool:
    """Whether what was asked about does not exist."""
    return _status(error) == 404


def is_there(error: CloudError) -> bool:
    """Whether what was to be made exists already."""
    return _status(error) == 412


def _status(error: CloudError) -> int | None:
    cause = error.__cause__
    return cause.status_code if isinstance(cause, HttpResponseError) else None


def _worded(kind: type[CloudError], what: str, said: str, wait: str = "") -> CloudError:
    text = f"Azure did not {what}: {said}"
    return kind("; ".join(part for part in (text, wait, ADVICE.get(kind, "")) if part))


def _wait(error: HttpResponseError) -> str:
    seconds = getattr(error.response, "headers", {}).get("Retry-After")
    return f"it asks to wait {seconds} s" if seconds and str(seconds).isdecimal() else ""


def _first_line(text: str) -> str:
    line = next((line.strip() for line in text.splitlines() if line.strip()), "no reason given")
    return line if len(line) <= LONGEST else f"{line[:LONGEST]}…"
