"""The script that makes the Python environment of a checkout."""

import subprocess
from pathlib import Path

SCRIPT = Path(__file__).parents[2] / "scripts" / "make-venv"


def test_the_environment_of_another_checkout_is_not_touched(tmp_path: Path) -> None:
    """Through a link this checkout would be installed into it."""
    other, here = tmp_path / "other", tmp_path / "here"
    other.mkdir()
    here.mkdir()
    (here / ".venv").symlink_to(other)
    asked = [str(SCRIPT), "run", "/bin/false"]
    done = subprocess.run(asked, cwd=here, capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert f".venv is a link to {other}" in done.stderr
    assert "remove the link" in done.stderr
    assert list(other.iterdir()) == []
