"""Files that providers keep are the cluster's; a cloud that says nothing is trouble."""

from pathlib import Path

from springtide.cli.provider_checks import _unreached
from springtide.layout import Layout
from springtide.ports import Check

SILENT = Check("credentials", None, "cannot be found out: nobody listens", "try again")


def test_what_programs_keep_is_removed_with_the_cluster() -> None:
    layout = Layout(Path("/srv/blue"))
    assert {layout.command, layout.terraform} <= set(layout.entries)


def test_a_check_fails_if_nothing_could_be_found_out() -> None:
    (told,) = _unreached([SILENT])
    assert told.ok is False
    known = Check("image base", True, "it is there")
    assert _unreached([SILENT, known]) == [SILENT, known]
    later = Check("", None, "tells nothing of itself before nodes are made")
    assert _unreached([later]) == [later]
