"""A cluster file for the small Google of the provider's tests, which is on loopback."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from springtide.cli.init import render
from tests.providers.servers.google import serving
from tests.providers.servers.google_state import PROJECT, SUBNETWORK, ZONES


@contextmanager
def google_file(place: Path) -> Iterator[Path]:
    """From what `tide init` writes; the server is there as long as the file is."""
    with serving() as server:
        text = render("google").replace("my-project", PROJECT)
        text = text.replace("europe-west4-a", ZONES[0])
        text = text.replace("regions/europe-west4/subnetworks/nodes", SUBNETWORK)
        text = text.replace("  kind: google", f"  kind: google\n  endpoint: {server.endpoint}")
        text = text.replace("c3-standard-4", "n2-standard-4")
        text = text.replace("slurm-node", "family/debian-12")
        file = place / "cluster.yaml"
        file.write_text(text.replace("batch:", f"state: {place}/s\nbatch:"))
        yield file
