"""How many vCPUs the account may have, by family of types. Codes are those of Service Quotas."""

import re
from collections.abc import Iterable
from typing import Any

from springtide.ports import CloudError
from springtide.providers.aws import shapes
from springtide.providers.aws.account import Account

_ON_DEMAND = {
    "standard": "L-1216C47A",
    "f": "L-74FC7D96",
    "g": "L-DB2E81BA",
    "hpc": "L-F7808C92",
    "p": "L-417A185B",
    "x": "L-7295265B",
}
_SPOT = {
    "standard": "L-34B43A08",
    "f": "L-88CF9481",
    "g": "L-3819A6DF",
    "p": "L-7212CCBC",
    "x": "L-E3A00192",
}
_STANDARD = frozenset("acdhimrtz")

Key = tuple[str, bool]
"""A family of types, and whether it is spot."""


def family(type: str) -> str:
    """What the quota of a type is called; types that share one are `standard`."""
    letters = re.match("[a-z]*", type)
    name = letters[0] if letters else ""
    if name in ("hpc", "mac", "inf", "trn", "dl", "u"):
        return name
    if name[:1] in _STANDARD:
        return "standard"
    return {"vt": "g"}.get(name, name[:1])


def code(key: Key) -> str | None:
    name, spot = key
    return (_SPOT if spot else _ON_DEMAND).get(name)


def limit(account: Account, key: Key) -> float | None:
    """In vCPUs; None if nobody tells."""
    quota = code(key)
    if quota is None:
        return None
    try:
        answer = account.ask(
            "get_service_quota", service="service-quotas", ServiceCode="ec2", QuotaCode=quota
        )
    except CloudError:
        return None
    return float(answer["Quota"]["Value"])


def used(raws: Iterable[Any], cpus: dict[str, int]) -> dict[Key, int]:
    """The vCPUs of instances that run, whosoever they are."""
    sums: dict[Key, int] = {}
    for raw in raws:
        key = family(raw["InstanceType"]), shapes.is_spot(raw)
        sums[key] = sums.get(key, 0) + _cpus(raw, cpus)
    return sums


def _cpus(raw: Any, cpus: dict[str, int]) -> int:
    """Of the type: switching threads off frees no quota."""
    told = raw.get("CpuOptions", {})
    return cpus.get(raw["InstanceType"]) or told.get("CoreCount", 1) * told.get("ThreadsPerCore", 1)
