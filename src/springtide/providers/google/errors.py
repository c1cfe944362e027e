"""What Google says when it refuses, as our classes; the one translator of this adapter. Pure.

Google refuses in two ways: a call is answered with an HTTP status and a reason, or an operation
that was accepted ends with errors. Stock-outs come the second way only.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import requests
from google.auth import exceptions as auth

from springtide.ports import (
    CloudError,
    Denied,
    NoCapacity,
    QuotaExceeded,
    Rejected,
    Throttled,
    Transient,
)

REASONS: Mapping[str, type[CloudError]] = {
    # of calls
    "rateLimitExceeded": Throttled,
    "userRateLimitExceeded": Throttled,
    "concurrentLimitExceeded": Throttled,
    "quotaExceeded": QuotaExceeded,
    "limitExceeded": QuotaExceeded,
    "dailyLimitExceeded": QuotaExceeded,
    "forbidden": Denied,
    "insufficientPermissions": Denied,
    "accessNotConfigured": Denied,
    "authError": Denied,
    "resourceNotReady": Transient,
    "resourceInUseByAnotherResource": Transient,
    "conditionNotMet": Transient,
    "backendError": Transient,
    "internalError": Transient,
    "stockout": NoCapacity,
    "insufficientCapacity": NoCapacity,
    "resourcePoolExhausted": NoCapacity,
    # of operations
    "ZONE_RESOURCE_POOL_EXHAUSTED": NoCapacity,
    "ZONE_RESOURCE_POOL_EXHAUSTED_WITH_DETAILS": NoCapacity,
    "REGION_RESOURCE_POOL_EXHAUSTED": NoCapacity,
    "RESOURCE_POOL_EXHAUSTED": NoCapacity,
    "UNSUPPORTED_OPERATION": NoCapacity,  # a spot instance preempted while it was being made
    "QUOTA_EXCEEDED": QuotaExceeded,
    "IP_SPACE_EXHAUSTED": QuotaExceeded,  # the subnetwork is full: a person must enlarge it
    "IP_SPACE_EXHAUSTED_WITH_DETAILS": QuotaExceeded,
    "RATE_LIMIT_EXCEEDED": Throttled,
    "RESOURCE_OPERATION_RATE_EXCEEDED": Throttled,
    "PERMISSIONS_ERROR": Denied,
    "FORBIDDEN": Denied,
    "INTERNAL_ERROR": Transient,
    "RESOURCE_NOT_READY": Transient,
    "RESOURCE_IN_USE_BY_ANOTHER_RESOURCE": Transient,
    "CONDITION_NOT_MET": Transient,
    "INVALID_FIELD_VALUE": Rejected,
    "INVALID_USAGE": Rejected,
    "RESOURCE_NOT_FOUND": Rejected,
    "RESOURCE_ALREADY_EXISTS": Rejected,
}
STATUSES: Mapping[int, type[CloudError]] = {
    401: Denied,
    403: Denied,
    408: Transient,
    412: Transient,
    429: Throttled,
}
SUMMARIES = frozenset({"VM_MIN_COUNT_NOT_REACHED"})
"""They say that fewer were made than wanted; why, another error beside them says."""
TAKEN = frozenset({"alreadyExists", "RESOURCE_ALREADY_EXISTS"})
HARDEST = (Denied, QuotaExceeded, Rejected, NoCapacity, Throttled, Transient)
"""Of several errors the one that trying elsewhere does not mend is told."""
MAX_TEXT = 500


@dataclass(eq=False)
class Refusal(Exception):
    """A refusal in Google's words; the cause of the CloudError that it became."""

    status: int
    reason: str
    message: str


def parse_refusal(status: int, body: object) -> Refusal:
    """From the answer to a call."""
    error = body.get("error") if isinstance(body, dict) else None
    error = error if isinstance(error, dict) else {}
    listed = error.get("errors")
    first = listed[0] if isinstance(listed, list) and listed else {}
    reason = first.get("reason", "") if isinstance(first, dict) else ""
    message = str(error.get("message") or "it does not say why")
    return Refusal(status, str(reason), message[:MAX_TEXT])


def parse_failures(operation: Mapping[str, Any]) -> list[Refusal]:
    """From an operation that is done; none if it went well."""
    status = int(operation.get("httpErrorStatusCode") or 0)
    found = [
        Refusal(status, str(error.get("code", "")), str(error.get("message", ""))[:MAX_TEXT])
        for error in (operation.get("error") or {}).get("errors") or []
    ]
    return [one for one in found if one.reason not in SUMMARIES] or found


def decide_class(refusal: Refusal) -> type[CloudError]:
    if refusal.status == 429:
        return Throttled
    if refusal.reason in SUMMARIES:
        return NoCapacity
    if refusal.reason in REASONS:
        return REASONS[refusal.reason]
    if refusal.status in STATUSES:
        return STATUSES[refusal.status]
    return Rejected if 400 <= refusal.status < 500 else Transient


def cloud_error(refusal: Refusal, what: str) -> CloudError:
    """`what` says what was asked for, such as `instances of zone z`."""
    kind = decide_class(refusal)
    code = refusal.reason or str(refusal.status)
    error = kind(f"Google, {what}: {refusal.message} ({code}){_advice(kind)}")
    error.__cause__ = refusal
    return error


def _advice(kind: type[CloudError]) -> str:
    if kind is Denied:
        return "; give the service account the role that docs/providers/google.md shows"
    if kind is QuotaExceeded:
        return "; ask Google for more, or lower the group's nodes"
    return ""


def hardest(refusals: Sequence[Refusal], what: str) -> CloudError:
    """The error for something that failed for these reasons."""
    errors = [cloud_error(refusal, what) for refusal in refusals]
    return min(errors, key=lambda error: HARDEST.index(type(error)))


def is_missing(error: CloudError) -> bool:
    return isinstance(error.__cause__, Refusal) and error.__cause__.status == 404


def is_taken(error: CloudError) -> bool:
    cause = error.__cause__
    return isinstance(cause, Refusal) and (cause.reason in TAKEN or cause.status == 409)


def is_busy(error: CloudError) -> bool:
    """It is on its way somewhere already."""
    return isinstance(error.__cause__, Refusal) and error.__cause__.reason == "resourceNotReady"


def unreached(error: Exception, what: str) -> CloudError:
    """For what comes up before Google has answered. Its own words may hold secrets: not shown."""
    kind = type(error).__name__
    if isinstance(error, auth.RefreshError) and isinstance(error.__cause__, auth.TransportError):
        return Transient(
            f"Google, {what}: this machine's own account is not told: its metadata server does not "
            "answer; if this is no machine of Google's, set `credentials` to a key file"
        )
    if isinstance(error, auth.RefreshError) and not error.retryable:
        return Denied(
            f"Google, {what}: the credentials are not accepted ({kind}); is the service account's "
            "key still there, and this machine's clock right?"
        )
    if isinstance(error, auth.DefaultCredentialsError):
        return Denied(f"Google, {what}: there are no credentials; set `credentials` in the file")
    if isinstance(error, requests.Timeout):
        return Transient(f"Google, {what}: no answer in time; what it did is found later")
    return Transient(f"Google, {what}: not reached, or no whole answer ({kind})")
