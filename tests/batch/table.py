"""What batch systems do, as tables of docs/conformance-batch.md.

`make conformance` fills them in.
"""

from collections.abc import Mapping

from tests.batch.batch_conformance import BatchConformance
from tests.batch.conformance import Conformance
from tests.conformance_table import Column, Plugin, Suite, program

INTRODUCTION = """\
# Conformance of batch systems

What every batch system must do, and which of them do it: two sets of tests, each run over all that
it is for. `make conformance` runs them and writes this page; nobody edits it by hand. A run of one
file updates the columns of its batch system:

    .venv/bin/python -m pytest -p tests.batch.table --conformance-table docs/conformance-batch.md \\
        tests/batch/test_gridengine.py

`not offered` means that the batch system has no such thing, for the reason in the note. What
clusters with these batch systems are like is told in [hybrid](hybrid.md).

## Batch systems that are read

Springtide reads these again and again, and tells them what joins (the class `Conformance` in
tests/batch).
"""
ALL = """\
## As the engine has them

A Slurm that calls Springtide, and those that are read, with what Springtide puts before them (the
class `BatchConformance` in tests/batch).
"""


def _standin(name: str, recorded: str) -> Column:
    return Column(
        name,
        lambda: (
            f"commands of ours that keep state; recorded answers of {recorded} to the commands in "
            "use they give byte for byte, but for jobs that are over; [the rest is assumed]"
            f"(batch/{name}.md#what-is-assumed)"
        ),
    )


def _grid_engine() -> str:
    package = program("dpkg-query", "-W", "gridengine-master")
    return f"real: Grid Engine {package} of Debian, with an execd for each node"


def _slurm() -> str:
    return f"real: slurmctld {program('slurmctld', '-V')}, with a slurmd for each node"


def _calling_slurm() -> str:
    return f"real: slurmctld {program('slurmctld', '-V')}, with slurmds, that asks for nodes"


COLUMNS: Mapping[str, Column] = {
    "TestFakeQueue": Column("fake", lambda: "the fake queue of the simulation, virtual time"),
    "TestTorque": _standin("torque", "Torque 6.1.3"),
    "TestOpenPbs": _standin("openpbs", "OpenPBS 23.06.06"),
    "TestGridEngine": Column("gridengine", _grid_engine),
    "TestPolledSlurm": Column("slurm", _slurm),
}
READ = Suite(Conformance, "batch system that is read", INTRODUCTION, COLUMNS)
ALL_COLUMNS: Mapping[str, Column] = {
    "TestFakeBatch": Column("fake", lambda: "the fake Slurm of the simulation, virtual time"),
    "TestSlurm": Column("slurm", _calling_slurm),
    "TestPolledFake": Column("fake, read", COLUMNS["TestFakeQueue"].against),
    "TestPolledTorque": Column("torque, read", COLUMNS["TestTorque"].against),
    "TestPolledOpenPbs": Column("openpbs, read", COLUMNS["TestOpenPbs"].against),
    "TestPolledSlurmPort": Column("slurm, read", lambda: f"{_slurm()}; that it is away is played"),
}
SUITE = Suite(BatchConformance, "batch system", ALL, ALL_COLUMNS)

_plugin = Plugin(READ, SUITE)
pytest_addoption = _plugin.pytest_addoption
pytest_configure = _plugin.pytest_configure
pytest_collection_modifyitems = _plugin.pytest_collection_modifyitems
