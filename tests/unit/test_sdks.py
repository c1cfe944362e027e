"""SDKs of clouds are large: none is imported before its cloud is used."""

import subprocess
import sys

import pytest

SDKS = (
    "ansible",
    "ansible_runner",
    "azure",
    "boto3",
    "botocore",
    "google",
    "libvirt",
    "oci",
    "openstack",
    "requests",
)
LOADED = "print(*sorted(name for name in {sdks!r} if name in sys.modules))"


def loaded(code: str) -> list[str]:
    """The SDKs that a fresh interpreter has after this code."""
    text = f"import sys\n{code}\n{LOADED.format(sdks=SDKS)}"
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", text], capture_output=True, text=True, check=True
    )
    return done.stdout.split()


def test_the_daemon_and_its_commands_import_no_sdk() -> None:
    code = (
        "import springtide.compose, springtide.api.server, springtide.cli.main\n"
        "from springtide.spec import parse\n"
        "from pathlib import Path\n"
        "import tempfile\n"
        "with tempfile.TemporaryDirectory() as state:\n"
        "    text = 'cluster: blue\\nstate: ' + state + '\\ngroups: {g: {nodes: n1}}\\n'\n"
        "    springtide.compose.compose(parse(text, 'cluster.yaml'))\n"
    )
    assert loaded(code) == []


@pytest.mark.parametrize("kind", ["command", "terraform"])
def test_programs_of_the_site_need_no_sdk(kind: str) -> None:
    assert loaded(f"import springtide.providers.{kind}") == []


def test_a_cloud_imports_its_own_sdk_alone() -> None:
    assert set(loaded("import springtide.providers.aws")) <= {"boto3", "botocore"}
