"""What is run on every Slurm: areas of the product, each with its files of tests."""

from collections.abc import Mapping, Sequence

AREAS: Mapping[str, Sequence[str]] = {
    "demo": ["tests/e2e/test_demo.py"],
    "autoscaling": ["tests/e2e/test_autoscale.py"],
    "adapter": ["tests/e2e/test_slurm_adapter.py", "tests/e2e/test_slurm_standing.py"],
    "conformance": ["tests/batch/test_slurm.py"],
    "attach": ["tests/e2e/test_attach.py"],
    "resize": ["tests/e2e/test_resize.py"],
    "rebuild": [
        "tests/e2e/test_rebuild.py",
        "tests/e2e/test_rebuild_partitions.py",
        "tests/e2e/test_rebuild_random.py",
        "tests/e2e/test_story.py",
    ],
    "accounting": ["tests/e2e/test_accounting.py"],
    "faults of accounting": ["tests/e2e/test_accounting_faults.py"],
    "fresh nodes": ["tests/e2e/test_fresh.py"],
    "adapter of polled mode": ["tests/batch/test_slurm_polled.py"],
    "polled mode": ["tests/e2e/test_polled_slurm.py"],
    "faults": ["tests/e2e/test_faults.py"],
    "join": ["tests/e2e/test_join.py"],
}
QUICK = (
    "demo", "autoscaling", "adapter", "conformance", "attach", "resize", "rebuild", "accounting",
)  # fmt: skip
"""For every change."""


def area_of(test: str) -> str | None:
    """By the dotted name of a test's module or class, as reports of pytest have it."""
    for area, files in AREAS.items():
        for file in files:
            module = file.removesuffix(".py").replace("/", ".")
            if test == module or test.startswith(f"{module}."):
                return area
    return None
