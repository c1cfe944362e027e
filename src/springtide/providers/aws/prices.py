"""What an hour of a type costs. Who cannot find out says so; nothing depends on it."""

import json
import time
from collections.abc import Iterable, Mapping
from typing import Any

from springtide.ports import CloudError
from springtide.providers.aws.account import Account

KEPT_S = 86400.0
_LINUX = {
    "operatingSystem": "Linux",
    "tenancy": "Shared",
    "preInstalledSw": "NA",
    "capacitystatus": "Used",
}


class Prices:
    """On-demand prices, asked for once a day."""

    def __init__(self, account: Account) -> None:
        self._account = account
        self._known: dict[str, tuple[float | None, float]] = {}

    def on_demand(self, types: Iterable[str]) -> dict[str, float | None]:
        """None if it is not told. After one refusal no more are asked for."""
        answers: dict[str, float | None] = {}
        for type in types:
            try:
                answers[type] = self._one(type)
            except CloudError:
                return answers
        return answers

    def spot(self, types: Iterable[str]) -> dict[str, float]:
        """The cheapest zone of each now."""
        try:
            found = list(
                self._account.pages(
                    "describe_spot_price_history",
                    "SpotPriceHistory",
                    InstanceTypes=list(types),
                    ProductDescriptions=["Linux/UNIX"],
                    StartTime=time.time(),
                )
            )
        except CloudError:
            return {}
        prices: dict[str, float] = {}
        for one in found:
            type, price = one["InstanceType"], float(one["SpotPrice"])
            prices[type] = min(price, prices.get(type, price))
        return prices

    def _one(self, type: str) -> float | None:
        price, until = self._known.get(type, (None, 0.0))
        if time.monotonic() < until:
            return price
        wanted = {**_LINUX, "instanceType": type, "regionCode": self._account.wanted.region}
        answer = self._account.ask(
            "get_products",
            service="pricing",
            ServiceCode="AmazonEC2",
            Filters=[{"Type": "TERM_MATCH", "Field": k, "Value": v} for k, v in wanted.items()],
        )
        price = parse_products(answer.get("PriceList", ()))
        self._known[type] = price, time.monotonic() + KEPT_S
        return price


def parse_products(products: Iterable[str]) -> float | None:
    """The dollars of an hour in a price list: each product is a JSON document of its own."""
    for text in products:
        for price in _hourly(json.loads(text)):
            return price
    return None


def _hourly(product: Mapping[str, Any]) -> Iterable[float]:
    for term in product.get("terms", {}).get("OnDemand", {}).values():
        for dimension in term.get("priceDimensions", {}).values():
            dollars = float(dimension.get("pricePerUnit", {}).get("USD", 0))
            if dimension.get("unit") == "Hrs" and dollars:
                yield dollars
