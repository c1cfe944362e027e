"""The one translator of what OpenStack refuses: its answers, its SDK's errors, faults of servers.

Pure. The texts are Nova's and Neutron's own; what they say decides where their numbers do not.
"""

import re

from keystoneauth1 import exceptions as auth
from openstack.exceptions import SDKException
from requests.exceptions import RequestException
from urllib3.exceptions import ConnectTimeoutError, NewConnectionError

from springtide.ports import (
    CloudError,
    Denied,
    NoCapacity,
    QuotaExceeded,
    Rejected,
    Throttled,
    Transient,
)

LONGEST = 400


class Missing(Rejected):
    """What was asked about is not there; mostly that is fine."""


class Busy(Transient):
    """It is doing something else now, and refuses until that is done."""


class Unsure(Transient):
    """It was sent, and no answer of the service came back: it may be done, or be done later."""


_STATUSES: dict[int, type[CloudError]] = {
    401: Denied,
    403: Denied,
    404: Missing,
    408: Transient,
    409: Busy,
    413: QuotaExceeded,
    429: Throttled,
    501: Rejected,
    502: Unsure,
    504: Unsure,
}
_QUOTA = re.compile(
    r"quota|over ?limit|maximum number of (fixed ips|ports|volumes|instances|networks)", re.I
)
_FULL = re.compile(
    r"no valid host|exceeded max|exhausted all hosts|insufficient compute resources|"
    r"no more ip addresses|no fixed ip addresses available",
    re.I,
)
_UNREACHED = (auth.ConnectionError, RequestException, OSError)
_UNSENT = (NewConnectionError, ConnectTimeoutError)
_UNTRUSTED = re.compile(r"certificate.verify.failed", re.I)
_UNKNOWN_USER = (auth.AuthorizationFailure, auth.MissingAuthMethods, auth.AuthPluginException)


def of_answer(status: int, text: str, doing: str) -> CloudError:
    """Of an answer that is an error: `doing` is the call that got it."""
    told = f"{doing}: {_short(text)} ({status})"
    if status not in (401, 429) and status < 500:
        if _FULL.search(text):
            return NoCapacity(told)
        if status in (403, 409, 413) and _QUOTA.search(text):
            return QuotaExceeded(f"{told}; ask for a higher quota, or lower what the file wants")
    return _of_status(status)(told)


def of_exception(error: Exception, doing: str) -> CloudError:
    """Of what the SDK and the libraries below it raise; none of them names a secret."""
    told = f"{doing}: {_short(str(error) or type(error).__name__)}"
    match error:
        case CloudError():
            return error
        case auth.SSLError() if _UNTRUSTED.search(str(error)):
            return Rejected(f"{told}; set cacert in clouds.yaml to the cloud's own authority")
        case auth.HttpError():
            return of_answer(error.http_status, str(error), doing)
        case auth.EndpointNotFound():
            return Rejected(f"{told}; the region in clouds.yaml may be another")
        case auth.DiscoveryFailure():
            return Transient(told)
        case _ if isinstance(error, _UNREACHED):
            return Transient(told) if _is_unsent(error) else Unsure(told)
        case _ if isinstance(error, _UNKNOWN_USER):
            return Denied(f"{told}; see the credentials in clouds.yaml")
        case auth.ClientException() | SDKException():
            return Rejected(told)
    return Rejected(f"{told} ({type(error).__name__})")


def _is_unsent(error: BaseException) -> bool:
    """Whether no connection came about: libraries wrap what they raise, and some keep no cause."""
    below = [error.__cause__, error.__context__, getattr(error, "reason", None), *error.args]
    return isinstance(error, _UNSENT) or any(
        _is_unsent(one) for one in below if isinstance(one, BaseException)
    )


def of_fault(text: str, node: str) -> CloudError | None:
    """Of a server that came to nothing; None if another host or zone would not help."""
    told = f"{node}: {_short(text)}"
    if _QUOTA.search(text):
        return QuotaExceeded(told)
    if "disallowed by policy" in text:
        return Denied(told)
    return NoCapacity(told) if _FULL.search(text) else None


def _of_status(status: int) -> type[CloudError]:
    known = _STATUSES.get(status)
    return known or (Transient if status >= 500 else Rejected)


def _short(text: str) -> str:
    """One line of it: answers may be whole pages."""
    line = " ".join(re.sub(r"<[^>]{1,200}>", " ", text).split())
    return line if len(line) <= LONGEST else f"{line[:LONGEST]}…"
