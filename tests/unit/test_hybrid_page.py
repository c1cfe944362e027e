"""docs/hybrid.md: what an admin copies from it is right."""

import re
from pathlib import Path

import pytest

from springtide.spec import Cluster, parse

PAGE = Path(__file__).resolve().parents[2] / "docs" / "hybrid.md"
FILES = re.findall(r"^```yaml\n(.*?)^```", PAGE.read_text(), re.MULTILINE | re.DOTALL)


@pytest.mark.parametrize("text", FILES, ids=[str(number) for number in range(len(FILES))])
def test_cluster_files_of_the_page_are_right(text: str) -> None:
    spec = parse(text, "cluster.yaml")
    assert spec.polled
    assert spec.partitions


@pytest.mark.parametrize("kind", ["torque", "openpbs", "gridengine"])
def test_the_first_file_does_for_all_kinds(kind: str) -> None:
    spec = parse(FILES[0].replace("kind: torque", f"kind: {kind}"), "cluster.yaml")
    assert (spec.batch.kind, spec.polled) == (kind, True)


def test_defaults_are_those_that_the_page_tells() -> None:
    told = dict(re.findall(r"^\| `batch\.polling\.(\w+)` \|.*\| (.*) \|$", PAGE.read_text(), re.M))
    spec: Cluster = parse(FILES[0], "cluster.yaml")
    polling = getattr(spec.batch, "polling")  # noqa: B009
    real = {
        "every": f"{polling.every:g} s",
        "patience": f"{polling.patience:g}",
        "doubt": f"{polling.doubt / 60:g} min",
        "leave": f"`{polling.leave}`",
    }
    assert told == real


def test_jobs_are_not_submitted_as_root() -> None:
    """Torque takes none of root's, and all other commands of the page are for root."""
    blocks = re.findall(r"\n\n((?: {4,}.*\n)+)", PAGE.read_text())
    (submits,) = [block for block in blocks if "qsub " in block]
    assert submits.strip() == "qsub -q cloud job.sh"
    before = PAGE.read_text().partition(submits)[0].rstrip().rpartition("\n\n")[2]
    assert "as an ordinary user" in before
