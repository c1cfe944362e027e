"""What every provider does, as a table of docs/conformance.md. `make conformance` fills it in."""

import platform
import re
import shutil
from collections.abc import Mapping
from importlib.metadata import version

from tests.conformance_table import TOP, Column, Plugin, Suite, program
from tests.providers.conformance import Conformance

INTRODUCTION = """\
# Conformance

What every provider must do, and which of them do it: one set of tests (the class `Conformance` in
tests/providers), run over all of them. `make conformance` runs it and writes this page; nobody
edits it by hand. A run of one file updates the column of its provider:

    .venv/bin/python -m pytest -p tests.providers.table --conformance-table docs/conformance.md \\
        tests/providers/test_aws.py

`not offered` means that the provider has no such thing, for the reason in the note. Where a
provider cannot rebuild in place, make images of instances or tell its flavors, `passed` means that
it says so and changes nothing.
"""


def locked(package: str) -> str:
    """The version of a server of the tests' OpenStack, which has an environment of its own."""
    lines = (TOP / "requirements" / "openstack.txt").read_text()
    found = re.search(rf"^{package}==(\S+)", lines, re.MULTILINE)
    return found[1] if found else "?"


def _terraform() -> str:
    name = "terraform" if shutil.which("terraform") else "tofu"
    return f"real: {name} {program(name, 'version')} with its builtin provider and a module of ours"


def _openstack() -> str:
    names = ("nova", "neutron", "keystone", "glance", "openstack-placement")
    servers = ", ".join(f"{name.removeprefix('openstack-')} {locked(name)}" for name in names)
    return (
        f"real: {servers} with MariaDB and RabbitMQ, only the hypervisor is Nova's FakeDriver; "
        f"openstacksdk {version('openstacksdk')}; no room and no quota are Nova's own refusals, "
        "others and lost replies come from a proxy before it"
    )


def _libvirt() -> str:
    qemu = program("qemu-system-x86_64", "--version")
    return f"real: libvirtd {program('libvirtd', '--version')}, QEMU {qemu} without KVM"


def _aws() -> str:
    return (
        f"SDK and server: boto3 {version('boto3')}, over HTTP to moto {version('moto')} behind a "
        "wrapper of ours that behaves as EC2 does"
    )


def _azure() -> str:
    sdk = f"azure-mgmt-compute {version('azure-mgmt-compute')}"
    return f"SDK and server: {sdk}, over HTTP to a protocol server of ours"


def _google() -> str:
    document = f"google-api-python-client {version('google-api-python-client')}"
    return (
        f"SDK and server: google-auth {version('google-auth')}, REST over HTTP to a protocol "
        f"server of ours that holds requests to Google's own description of the API ({document})"
    )


def _containers() -> str:
    kernel = ".".join(platform.release().split(".")[:2])
    return f"real: namespaces, overlays and links of Linux {kernel}"


COLUMNS: Mapping[str, Column] = {
    "TestConformance": Column("fake", lambda: "the fake cloud of the simulation, virtual time"),
    "TestContainers": Column("containers", _containers),
    "TestOpenStack": Column("openstack", _openstack),
    "TestAws": Column("aws", _aws),
    "TestAwsFleets": Column("aws fleets", lambda: f"{_aws()}; every launch is a fleet"),
    "TestOci": Column(
        "oci",
        lambda: f"SDK and server: oci {version('oci')}, over HTTP to a protocol server of ours",
    ),
    "TestAzure": Column("azure", _azure),
    "TestGoogle": Column("google", _google),
    "TestLibvirt": Column(
        "libvirt", lambda: f"{_libvirt()}; refusals and lost replies come from a proxy before it"
    ),
    "TestPower": Column(
        "libvirt power",
        lambda: (
            f"{_libvirt()}; machines that exist are switched. Each is one cluster's at a time, so "
            "its test of two clusters is its own: the second is refused until the first is done"
        ),
    ),
    "TestTerraform": Column("terraform", _terraform),
    "TestCommand": Column("command", lambda: "real: programs of a site, whose machines are files"),
}
SUITE = Suite(Conformance, "provider", INTRODUCTION, COLUMNS)

_plugin = Plugin(SUITE)
pytest_addoption = _plugin.pytest_addoption
pytest_configure = _plugin.pytest_configure
pytest_collection_modifyitems = _plugin.pytest_collection_modifyitems
