"""The values of a cluster file: each type takes what a person writes and says what it wants.

A check takes text as it stands in the file (so that 007 and 1.10 stay what they are) or the
value it stands for, as Python code gives it. Its message completes "<key> must be …".
"""

import re
from collections import Counter
from collections.abc import Callable, Hashable
from ipaddress import IPv4Address, IPv4Network
from pathlib import Path
from typing import Annotated, Any, TypeVar

from pydantic import AfterValidator, BeforeValidator, Field, WithJsonSchema

from springtide import nodeset

T = TypeVar("T", bound=Hashable)

MAX_SHOWN = 60
MAX_MOUNT = 160
"""Homes lie below, and an account has room for 200 characters."""
_NUMBER = re.compile(r"-?[0-9]{1,18}(\.[0-9]{1,18})?")
_DURATION = re.compile(r"([0-9]{1,9}(?:\.[0-9]{1,9})?)(ms|s|m|h|d)?")
_SIZE = re.compile(r"([0-9]{1,9}(?:\.[0-9]{1,9})?)([MGT])(?:i?B)?")
_SHARE = re.compile(r"([0-9]{1,6})(%)?")
_HOURS = re.compile(r"((?:[01][0-9]|2[0-3]):[0-5][0-9])-((?:[01][0-9]|2[0-3]):[0-5][0-9])")
_SECONDS = {"ms": 0.001, "s": 1, "m": 60, "h": 3600, "d": 86400, None: 1}
_MIB = {"M": 1, "G": 1024, "T": 1024 * 1024}


def shown(value: object) -> str:
    """A wrong value as a message shows it: short, and harmless to a terminal."""
    match value:
        case None | "":
            return "empty"
        case dict():
            return "a mapping"
        case list() | tuple():
            return "a list"
        case str() if len(value) > MAX_SHOWN:
            return f"{value[:MAX_SHOWN]!r}…"
        case str() if _NUMBER.fullmatch(value):
            return value
    return repr(value)


def wrong(expected: str, value: object) -> ValueError:
    return ValueError(f"must be {expected}, not {shown(value)}")


def matching(pattern: str, expected: str) -> Callable[[object], str]:
    compiled = re.compile(pattern)

    def check(value: object) -> str:
        if isinstance(value, str) and compiled.fullmatch(value):
            return value
        raise wrong(expected, value)

    return check


def whole(low: int, high: int | None = None) -> Callable[[object], int]:
    limits = f"of {low} or more" if high is None else f"from {low} to {high}"

    def check(value: object) -> int:
        number = parse_number(value)
        if number is None or number % 1 or not low <= number <= (high or number):
            raise wrong(f"a whole number {limits}", value)
        return int(number)

    return check


def parse_number(value: object) -> float | None:
    if isinstance(value, int | float) and not isinstance(value, bool):
        return value
    if isinstance(value, str) and _NUMBER.fullmatch(value):
        return float(value) if "." in value else int(value)
    return None


def parse_price(value: object) -> float:
    number = parse_number(value)
    if number is None or not 0 <= number < float("inf"):
        raise wrong("a price for an hour, such as 0.25", value)
    return number


def parse_switch(value: object) -> bool:
    if isinstance(value, bool):
        return value
    if value in ("true", "false"):
        return value == "true"
    raise wrong("true or false", value)


def duration(*, zero: bool) -> Callable[[object], float]:
    limit = "" if zero else " longer than 0"

    def check(value: object) -> float:
        number = parse_seconds(value)
        if number is None or number < 0 or not (number or zero):
            raise wrong(f"a time{limit}, such as 30s, 10m or 1d", value)
        return number

    return check


def parse_seconds(value: object) -> float | None:
    if isinstance(value, str) and (match := _DURATION.fullmatch(value)):
        return float(match[1]) * _SECONDS[match[2]]
    return None if isinstance(value, str) else parse_number(value)


def parse_size(value: object) -> int:
    """MiB from text like 512M or 4G; a number is MiB already, but a person must name the unit."""
    if isinstance(value, str) and (match := _SIZE.fullmatch(value)):
        size = float(match[1]) * _MIB[match[2]]
    else:
        size = 0 if isinstance(value, str) else parse_number(value) or 0
    if size < 1 or size % 1:
        raise wrong("a size with its unit, such as 512M or 4G", value)
    return int(size)


def parse_path(value: object) -> Path:
    text = str(value) if isinstance(value, Path) else value
    if not (isinstance(text, str) and text.startswith("/")):
        raise wrong("an absolute path, such as /srv/data", value)
    if bad := re.search(r"[\s\x00-\x1f\x7f\"'#%\\:,]", text):
        # slurm.conf and the options of an overlay mount have no way to write these.
        raise ValueError(f"must be a path without {bad[0]!r}, not {shown(text)}")
    if ".." in Path(text).parts:
        raise wrong("a path without '..'", text)
    return Path(text)


def parse_mount(value: object) -> Path:
    path = parse_path(value)
    if path == Path("/"):
        raise wrong("a directory below /", "/")
    if len(str(path)) > MAX_MOUNT:
        raise wrong(f"a path of at most {MAX_MOUNT} characters", str(path))
    return path


def parse_subnet(value: object) -> IPv4Network:
    try:
        network = IPv4Network(str(value))
    except ValueError:
        raise wrong("an IPv4 network, such as 10.77.0.0/16", value) from None
    if not 8 <= network.prefixlen <= 29:
        raise wrong("an IPv4 network between /8 and /29", value)
    return network


def parse_address(value: object) -> str:
    try:
        return str(IPv4Address(str(value)))
    except ValueError:
        raise wrong("an IPv4 address, such as 10.0.0.5", value) from None


def parse_option(value: object) -> Any:
    """What a cloud is handed as it is: numbers and truths of YAML, texts, lists and mappings."""
    match value:
        case dict():
            return {str(key): parse_option(each) for key, each in value.items()}
        case list() | tuple():
            return [parse_option(each) for each in value]
        case "true" | "false":
            return value == "true"
        case str() if (number := parse_number(value)) is not None and str(number) == value:
            return number  # 007 and 1.10 are texts
    return value


def parse_options(value: object) -> Any:
    if not isinstance(value, dict):
        raise wrong("a mapping of keys to values", value)
    return parse_option(value)


def parse_hosts(value: object) -> str:
    """A host list, checked but not expanded; empty is no node at all."""
    if not isinstance(value, str):
        raise wrong("a host list, such as blue-[000-199] or a1,a2", value)
    text = value.strip()
    if text:
        nodeset.expand(text)
    return text


def parse_host(value: object) -> str:
    if not isinstance(value, str):
        raise wrong("a host name", value)
    return nodeset.validate_name(value)


def distinct(values: tuple[T, ...]) -> tuple[T, ...]:
    twice = [value for value, count in Counter(values).items() if count > 1]
    if twice:
        raise ValueError(f"must not name {str(twice[0])!r} twice")
    return values


def parse_share(value: object) -> str:
    """A number of nodes, or a part of them; either as text."""
    text = str(value)
    match = _SHARE.fullmatch(text)
    most = 100 if match and match[2] else 10**6
    if isinstance(value, bool) or match is None or not 1 <= int(match[1]) <= most:
        raise wrong("a number of nodes, or a part of them such as 10%", value)
    return text


def share_of(share: str, total: int) -> int:
    """How many that is of so many nodes; at least one."""
    part = int(share.rstrip("%"))
    return max(1, part * total // 100) if share.endswith("%") else part


def parse_hours(value: object) -> str:
    if isinstance(value, str) and (match := _HOURS.fullmatch(value)) and match[1] != match[2]:
        return value
    raise wrong("two times of a day, such as 22:00-06:00", value)


_PARAMETER_NAME = matching("[A-Za-z][A-Za-z0-9]*", "a Slurm parameter, such as MaxJobCount")
_PARAMETER = matching(
    r'(?:"[^"#\x00-\x1f\x7f]*"|[^\s"#\x00-\x1f\x7f]*[^\s"#\x00-\x1f\x7f\\])',
    "one line without '#', and in double quotes if it has spaces",
)
_ACCOUNT = matching("[A-Za-z_][A-Za-z0-9_.@-]{0,63}", "the name of a user or group")

ClusterName = Annotated[
    str,
    Field(pattern="^[a-z][a-z0-9-]{0,31}$"),
    BeforeValidator(
        matching(
            "[a-z][a-z0-9-]{0,31}",
            "a name of a-z, 0-9 and '-' that starts with a letter (at most 32)",
        )
    ),
]
Domain = Annotated[
    str,
    BeforeValidator(
        matching("[A-Za-z0-9_][A-Za-z0-9_.-]{0,252}", "a domain, such as site.example")
    ),
]
Name = Annotated[
    str,
    BeforeValidator(
        matching(
            "[A-Za-z0-9][A-Za-z0-9_.-]{0,62}",
            "a name of letters, digits, '_', '.' and '-' (at most 63)",
        )
    ),
]
Word = Annotated[
    str,
    BeforeValidator(
        matching(
            "[A-Za-z0-9_][A-Za-z0-9_.:/-]{0,127}",
            "a word of letters, digits, '_', '.', ':', '/' and '-'",
        )
    ),
]
Label = Annotated[
    str,
    BeforeValidator(
        matching(
            "[A-Za-z0-9_][A-Za-z0-9_.:/=-]{0,127}",
            "a word of letters, digits, '_', '.', ':', '/', '=' and '-'",
        )
    ),
]
Id = Annotated[
    str,
    BeforeValidator(
        matching(
            r"[A-Za-z0-9_/][^\s\x00-\x1f\x7f\"'#$`\\]{0,511}",
            "a cloud's id or name, without spaces and quotes",
        )
    ),
]
Type = Annotated[
    str,
    BeforeValidator(
        matching(
            r"[A-Za-z0-9_][A-Za-z0-9_.:/|-]{0,255}",
            "what a cloud calls a size of machines, or several of them with '|' in between",
        )
    ),
]
Arch = Annotated[
    str, BeforeValidator(matching("x86_64|aarch64", "an architecture, x86_64 or aarch64"))
]
Address = Annotated[str, BeforeValidator(parse_address)]
Account = Annotated[str, BeforeValidator(_ACCOUNT)]
Argument = Annotated[
    str, BeforeValidator(matching(r"[^\x00-\x1f\x7f]{1,1000}", "a word of a command"))
]
ParameterName = Annotated[str, BeforeValidator(_PARAMETER_NAME)]
Parameter = Annotated[str, BeforeValidator(_PARAMETER)]
Host = Annotated[str, BeforeValidator(parse_host)]
Hosts = Annotated[str, BeforeValidator(parse_hosts)]
Switch = Annotated[bool, BeforeValidator(parse_switch)]
Count = Annotated[int, Field(ge=0), BeforeValidator(whole(0))]
Cpus = Annotated[int, Field(ge=1), BeforeValidator(whole(1))]
Port = Annotated[int, Field(ge=1, le=65535), BeforeValidator(whole(1, 65535))]
Price = Annotated[float, Field(ge=0), BeforeValidator(parse_price)]
AbsolutePath = Annotated[Path, BeforeValidator(parse_path)]
Mount = Annotated[Path, BeforeValidator(parse_mount)]
Subnet = Annotated[IPv4Network, BeforeValidator(parse_subnet)]
Share = Annotated[str, BeforeValidator(parse_share)]
Hours = Annotated[str, BeforeValidator(parse_hours)]
Options = Annotated[dict[str, Any], BeforeValidator(parse_options)]
Distinct = AfterValidator(distinct)


def _text_or_number(pattern: re.Pattern[str]) -> WithJsonSchema:
    schema: dict[str, Any] = {"anyOf": [{"type": "string", "pattern": f"^{pattern.pattern}$"}]}
    schema["anyOf"].append({"type": "number", "minimum": 0})
    return WithJsonSchema(schema)


Seconds = Annotated[float, BeforeValidator(duration(zero=True)), _text_or_number(_DURATION)]
PositiveSeconds = Annotated[
    float, BeforeValidator(duration(zero=False)), _text_or_number(_DURATION)
]
Size = Annotated[
    int,
    BeforeValidator(parse_size),
    WithJsonSchema({"type": "string", "pattern": f"^{_SIZE.pattern}$"}),
]
