"""Whether the markets of a group are ways to buy that its provider has; called by `checks`."""

from collections.abc import Iterator, Mapping

from springtide.spec.findings import Data, Finding, readable, words

KNOWN: Mapping[str, tuple[str, ...]] = {
    "openstack": (),
    "aws": ("spot", "on-demand"),
    "oci": ("preemptible", "on-demand"),
    "azure": ("spot", "on-demand"),
    "google": ("spot", "on-demand"),
    "libvirt": (),
}
"""Others take any word, or none of them: `tide check` tells."""


def check_markets(data: Data) -> Iterator[Finding]:
    for key, group in readable(data, "groups").items():
        provider = group.get("provider") or data.get("provider")
        kind = provider.get("kind") if isinstance(provider, dict) else None
        known = KNOWN.get(kind) if isinstance(kind, str) else None
        if known is None:
            continue
        for i, market in words(group.get("markets")):
            if market not in known:
                has = f"has {' and '.join(known)}" if known else "has none"
                message = f"{market!r} is no market of {kind}, which {has}"
                yield Finding(("groups", key, "markets", i), message)
