"""Tells whether a daemon runs with the spec that a file describes now. Its status says it."""

from hashlib import sha256

from springtide.spec.cluster import Cluster


def fingerprint(spec: Cluster) -> str:
    """The same for files that mean the same, whatever their comments."""
    return sha256(spec.model_dump_json().encode()).hexdigest()[:16]
