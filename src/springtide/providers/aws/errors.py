"""What errors of AWS mean: the one translator from botocore's errors to ours."""

import re
from collections.abc import Iterator
from contextlib import contextmanager

from boto3.exceptions import Boto3Error
from botocore.exceptions import (
    BaseEndpointResolverError,
    BotoCoreError,
    ClientError,
    ConfigNotFound,
    ConfigParseError,
    CredentialRetrievalError,
    DataNotFoundError,
    EndpointProviderError,
    InvalidConfigError,
    InvalidHostLabelError,
    InvalidProxiesConfigError,
    MissingDependencyException,
    MissingParametersError,
    NoCredentialsError,
    ParamValidationError,
    PartialCredentialsError,
    ProfileNotFound,
    SSOError,
    TokenRetrievalError,
    UnknownClientMethodError,
    UnknownRegionError,
    ValidationError,
)
from botocore.parsers import ResponseParserError

from springtide.ports import (
    CloudError,
    Denied,
    NoCapacity,
    QuotaExceeded,
    Rejected,
    Throttled,
    Transient,
)


class Missing(Rejected):
    """What was named does not exist, or not any more."""


class Duplicate(Rejected):
    """What was to be made is there."""


class Mismatch(Rejected):
    """The client token came before, with another request."""


class Unfit(Rejected):
    """This instance cannot do that, as it was made."""


class Allowed(CloudError):
    """A dry run: the call would have been made."""


CODES: dict[type[CloudError], tuple[str, ...]] = {
    Throttled: (
        "BandwidthLimitExceeded",
        "EC2ThrottledException",
        "PriorRequestNotComplete",
        "RequestLimitExceeded",
        "RequestThrottled",
        "RequestThrottledException",
        "SlowDown",
        "Throttling",
        "ThrottlingException",
        "ThrottledException",
        "TooManyRequestsException",
    ),
    # Another zone may have room, addresses, or the type at all.
    NoCapacity: (
        "InsufficientAddressCapacity",
        "InsufficientCapacity",
        "InsufficientCapacityOnHost",
        "InsufficientCapacityOnOutpost",
        "InsufficientFreeAddressesInSubnet",
        "InsufficientHostCapacity",
        "InsufficientInstanceCapacity",
        "InsufficientReservedInstanceCapacity",
        "InsufficientVolumeCapacity",
        "ReservationCapacityExceeded",
        "SpotMaxPriceTooLow",
        "UnfulfillableCapacity",
        "Unsupported",
    ),
    QuotaExceeded: ("MaxSpotInstanceCountExceeded", "SpotInstanceCountLimitExceeded"),
    Denied: (
        "AccessDenied",
        "AccessDeniedException",
        "AuthFailure",
        "Blocked",
        "ExpiredToken",
        "ExpiredTokenException",
        "IncompleteSignature",
        "InvalidAccessKeyId",
        "InvalidClientTokenId",
        "MissingAuthenticationToken",
        "OptInRequired",
        "PendingVerification",
        "RequestExpired",
        "SignatureDoesNotMatch",
        "UnauthorizedOperation",
        "UnrecognizedClientException",
    ),
    Transient: (
        "ConcurrentTagAccess",
        "IncorrectInstanceState",
        "IncorrectState",
        "InternalError",
        "InternalFailure",
        "InternalServerError",
        "InvalidPlacementGroup.InUse",
        "RequestTimeout",
        "RequestTimeoutException",
        "ServiceUnavailable",
        "Unavailable",
    ),
    Missing: (
        "InvalidAMIID.Unavailable",
        "InvalidInstanceID.Malformed",
        "InvalidInstanceType",
        "InvalidPlacementGroup.Unknown",
        "NoSuchResourceException",
    ),
    Duplicate: (
        "InvalidAMIName.Duplicate",
        "InvalidLaunchTemplateName.AlreadyExistsException",
        "InvalidPlacementGroup.Duplicate",
    ),
    Mismatch: ("IdempotentParameterMismatch",),
    Unfit: ("UnsupportedOperation", "UnsupportedHibernationConfiguration"),
    Allowed: ("DryRunOperation",),
}
_CLASSES = {code: kind for kind, codes in CODES.items() for code in codes}
_SECRETIVE = re.compile(r"\s*Encoded authorization failure message: \S+")
"""Long, and of no use to who cannot decode it."""
MAX_TEXT = 400
_NO_CREDENTIALS = (
    NoCredentialsError,
    PartialCredentialsError,
    ProfileNotFound,
    SSOError,
    TokenRetrievalError,
)
_NONE_FOUND = "No credentials found"
"""Else credentials that cannot be had are those of a service that does not answer now."""
_WRONG = (
    BaseEndpointResolverError,
    ConfigNotFound,
    ConfigParseError,
    DataNotFoundError,
    EndpointProviderError,
    InvalidConfigError,
    InvalidHostLabelError,
    InvalidProxiesConfigError,
    MissingDependencyException,
    MissingParametersError,
    ParamValidationError,
    UnknownClientMethodError,
    UnknownRegionError,
    ValidationError,
)
"""What the SDK refuses before it asks anybody: it would refuse that again."""


def decide_class(code: str, status: int = 400) -> type[CloudError]:
    """What a code means; those that are named nowhere, by their form."""
    if known := _CLASSES.get(code):
        return known
    if code.endswith(("LimitExceeded", "LimitExceededException")):
        return QuotaExceeded
    if ".NotFound" in code:
        return Missing
    return Transient if status >= 500 else Rejected


def said(doing: str, code: str, text: str, status: int = 400) -> CloudError:
    """An error that the service answered."""
    short = _SECRETIVE.sub("", text).strip()[:MAX_TEXT]
    return decide_class(code, status)(f"{doing}: {short} ({code})")


def translate(doing: str, error: Exception) -> CloudError:
    """Whatever the SDK raises."""
    match error:
        case ClientError():
            answer = error.response
            status = answer.get("ResponseMetadata", {}).get("HTTPStatusCode", 400)
            told = answer.get("Error", {})
            return said(doing, told.get("Code") or "unknown", told.get("Message") or "", status)
        case ParamValidationError():
            return Rejected(f"{doing}: {str(error)[:MAX_TEXT]}; look at provider.options")
        case _ if _has_no_credentials(error):
            return Denied(
                f"{doing}: {error}; give this machine a role, or name provider.profile or "
                "provider.credentials"
            )
    return _decide_unanswered(error)(f"{doing}: {str(error)[:MAX_TEXT]}")


def _has_no_credentials(error: Exception) -> bool:
    if isinstance(error, CredentialRetrievalError):
        return _NONE_FOUND in str(error)
    return isinstance(error, _NO_CREDENTIALS)


def _decide_unanswered(error: Exception) -> type[CloudError]:
    """Nobody answered, or not to the end. What the SDK has no other word for may pass."""
    ours = isinstance(error, _WRONG) or not isinstance(error, BotoCoreError | ResponseParserError)
    return Rejected if ours else Transient


@contextmanager
def translated(doing: str) -> Iterator[None]:
    try:
        yield
    except (BotoCoreError, ClientError, Boto3Error, ResponseParserError, ValueError) as error:
        raise translate(doing, error) from error
