"""Images in words: a row or a line each, for `tide image`. Pure."""

from collections.abc import Iterable

from springtide.cli import output
from springtide.cli.client import Json

NONE = "no images were made here; `tide image build FAMILY` makes one"


def render_images(found: Iterable[Json], now: float) -> list[list[str]]:
    return [
        [
            one["name"],
            one["arch"],
            one["doing"] or (f"failed: {one['detail']}" if one["detail"] else one["state"]),
            one["made_from"],
            output.render_age(one["created_at"], now),
            one["made_by"],
            one["nodes"],
            ", ".join(one["groups"]),
            one["id"],
        ]
        for one in found
    ]


def render_end(one: Json) -> str:
    which = f"{one['name']} ({one['arch']})"
    if one["state"] == "ready":
        return f"{which}: ready, {one['id']}"
    return f"{which} failed: {one['detail']}" if one["detail"] else f"{which}: {one['state']}"


def render_plan(planned: Iterable[Json]) -> list[str]:
    return [
        f"build {one['name']} ({one['arch']}) from {one['made_from']}, on {one['provider']}"
        for one in planned
    ]


def render_snapshot(plan: Json) -> list[str]:
    (one,) = plan["images"]
    lines = [f"make {one['name']} ({one['arch']}) of {one['made_from']}, on {one['provider']}"]
    if plan["disturbed"]:
        lines += [
            f"  {one['made_from']} takes no more jobs, and its jobs end",
            "  it forgets who it was, and switches itself off",
            "  its image is taken, and it is made anew",
        ]
    return lines


def render_cleaning(plan: Json, verb: str) -> list[str]:
    going = [f"{verb} {name}" for name in names_of(plan["gone"])]
    return [*going, *(f"keep {name}: {why}" for name, why in plan["kept"].items())] or [NONE]


def names_of(found: Iterable[Json]) -> list[str]:
    return list(dict.fromkeys(one["name"] for one in found))
