"""What a machine gets to become an execution host, by the files of the cell."""

from pathlib import Path

import pytest

from springtide.batch.gridengine_entry import entry
from springtide.configure.queue_node import part_of
from springtide.node.entry import render_service

SETTINGS = "SGE_ROOT=/x; export SGE_ROOT\nSGE_QMASTER_PORT=7444; export SGE_QMASTER_PORT\n"


@pytest.fixture
def root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    for name in ("SGE_ROOT", "SGE_CELL", "SGE_QMASTER_PORT", "SGE_EXECD_PORT"):
        monkeypatch.delenv(name, raising=False)
    common = tmp_path / "main" / "common"
    common.mkdir(parents=True)
    (common / "act_qmaster").write_text("head1\n")
    (common / "bootstrap").write_text("admin_user sgeadmin\nbinary_path /usr/sbin\n")
    (common / "settings.sh").write_text(SETTINGS)
    return tmp_path


def test_it_has_the_ports_of_the_cell_and_its_files(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SGE_QMASTER_PORT", "1")
    monkeypatch.setenv("SGE_EXECD_PORT", "7445")
    found = entry(root, "main", [], "8.1.9")
    assert found.command == ("/usr/sbin/sge_execd",)
    assert found.environment == {
        "SGE_ROOT": str(root),
        "SGE_CELL": "main",
        "SGE_ND": "1",
        "SGE_QMASTER_PORT": "7444",
        "SGE_EXECD_PORT": "7445",
    }
    assert {path.name for path in found.files} == {"act_qmaster", "bootstrap"}
    assert (found.version, found.versions) == ("8.1.9", ("/usr/sbin/sge_execd", "-help"))


def test_it_asks_whether_qmaster_knows_it_before_it_starts(root: Path) -> None:
    asked = entry(root, "main", [], "").ready
    assert asked == ("timeout", "5", "/usr/bin/qping", "-info", "head1", "7444", "qmaster", "1")


def test_its_execd_starts_after_qmaster_has_entered_it(root: Path) -> None:
    """rule 10: one that is refused does not try again for a minute and a half."""
    script = render_service(part_of(entry(root, "main", [], "")), "/run/agent")
    assert "until timeout 5 /usr/bin/qping -info head1" in script.partition("known() {")[2]
    assert "until known && began=$(date +%s) && served; do" in script


def test_files_of_a_cell_that_nodes_mount_are_not_written_there(root: Path) -> None:
    assert entry(root, "main", [root.parent], "").files == {}


def test_programs_below_the_root_are_those_of_the_architecture(root: Path) -> None:
    (root / "main" / "common" / "bootstrap").write_text(f"binary_path {root}/bin\n")
    (command,) = entry(root, "main", [], "").command
    assert command.startswith(f"{root}/bin/lx-")
    assert command.endswith("/sge_execd")


def test_it_is_the_same_from_call_to_call_and_without_a_cell(root: Path) -> None:
    assert entry(root, "main", [], "") == entry(root, "main", [], "")
    bare = entry(root / "none", "main", [], "")
    assert (bare.files, bare.command) == ({}, ("/usr/sbin/sge_execd",))
