"""User data as each provider gets it: golden cases, cloud-init's own reading of them, real runs."""

import json
import subprocess
from base64 import b64decode
from collections.abc import Mapping
from dataclasses import replace
from email import message_from_string
from pathlib import Path

import pytest

from springtide.configure import cloud_config
from springtide.configure.cloud_node import CloudNode
from springtide.configure.joining_node import FALL_BACK_S, render_boot
from springtide.node.bundle import PLACE
from springtide.ports import Launch, Site
from springtide.providers.aws import requests as aws
from springtide.providers.azure import bodies as azure
from springtide.providers.cloud import Catalog, script
from springtide.providers.google import render as google
from springtide.providers.libvirt.marks import Mark
from springtide.providers.libvirt.seed import render_files
from springtide.providers.oci.launches import render_launch
from springtide.providers.openstack import requests as openstack
from springtide.spec import Flavor, Image
from springtide.spec.clouds import Aws, Oci, OpenStack
from tests.unit.agent_control import TOKEN, Control
from tests.unit.agent_world import Machine, slow_is_fine, until

CASES = Path(__file__).parents[1] / "cases" / "user_data"
JOIN_DOC = Path(__file__).parents[2] / "docs" / "join.md"
AWS_BYTES = 16384
SCRIPT_BYTES = 6 << 10
PART = "/var/lib/cloud/instance/scripts/part-001"
AGAIN = "/var/lib/cloud/scripts/per-boot/springtide"

NODE = CloudNode(
    "head", 6817, Path("/run/munge.socket"), pin="0123456789abcdef" * 4, join_port=6821
)
CATALOG = Catalog(
    {"base": Image(id="image-1")}, {"small": Flavor(cpus=1, memory=100, type="t3.nano")}
)


def launches(count: int) -> list[Launch]:
    first = Launch(
        "blue", "", 2, "general", "base", "small", user_data=NODE.user_data(Site("10.0.0.1"))
    )
    names = [f"n-{number}" for number in range(1, count + 1)]
    return [replace(first, node=name, token=f"1700000000.the_token-of-{name}") for name in names]


def decoded(text: str) -> str:
    return b64decode(text).decode()


def rendered() -> Mapping[str, str]:
    """As adapters send it, by provider and number of nodes."""
    (one,), three = launches(1), launches(3)
    plan = aws.Plan(
        Aws.model_validate({"region": "r", "subnets": {"a": "s"}}), CATALOG, "/dev/sda1"
    )
    ids = openstack.Ids("image-1", "flavor-1", "network-1")
    nova = OpenStack.model_validate({"network": "nodes"})
    oci = Oci.model_validate({"compartment": "c", "subnet": "s"})
    mark = Mark(
        "blue",
        one.node,
        2,
        "general",
        "base",
        "small",
        "/d",
        "06:00:00:00:00:01",
        "10.0.0.7",
        0.0,
        0.0,
    )
    return {
        "aws-1": aws.run([one], plan)["UserData"],
        "aws-3": aws.run(three, plan)["UserData"],
        "aws-fleet": decoded(aws.template(one, plan)["UserData"]),
        "azure-1": decoded(azure.user_data(one)),
        "google-1": google.script([one]),
        "google-3": google.script(three),
        "libvirt-1": render_files(mark, one)["user-data"],
        "oci-1": decoded(render_launch(one, oci, CATALOG, "AD-1", None)["metadata"]["user_data"]),
        "openstack-1": decoded(openstack.create(nova, [one], ids)["server"]["user_data"]),
        "openstack-3": decoded(openstack.create(nova, three, ids)["server"]["user_data"]),
        "terraform-1": script.named(one),
        "command": script.listed([one]),
    }


@pytest.mark.parametrize("case", sorted(path.stem for path in CASES.iterdir()))
def test_user_data_of_a_provider_is_as_it_was_agreed(case: str) -> None:
    assert rendered()[case] == (CASES / f"{case}.txt").read_text()


def test_there_is_a_case_for_each_file() -> None:
    assert {path.stem for path in CASES.iterdir()} == set(rendered())


@pytest.mark.parametrize("case", sorted(path.stem for path in CASES.iterdir()))
def test_a_shell_understands_it(case: str) -> None:
    done = subprocess.run(["sh", "-n"], input=rendered()[case], text=True, capture_output=True)
    assert (done.returncode, done.stderr) == (0, "")


def test_a_hundred_nodes_fit_into_what_aws_allows() -> None:
    plan = aws.Plan(
        Aws.model_validate({"region": "r", "subnets": {"a": "s"}}), CATALOG, "/dev/sda1"
    )
    many = [replace(one, node=f"cluster-general-{i:04d}") for i, one in enumerate(launches(100))]
    assert len(aws.run(many, plan)["UserData"].encode()) < AWS_BYTES
    assert len(many[0].user_data.encode()) < SCRIPT_BYTES


@pytest.mark.accepts("X17")
def test_nothing_in_user_data_is_secret_but_a_token() -> None:
    text = script.named(launches(1)[0])
    assert text.count("the_token-of-n-1") == 1
    assert "munge" not in text
    assert "PRIVATE" not in text


def test_groups_without_join_boot_as_before() -> None:
    text = replace(NODE, pin="").user_data(Site("10.0.0.1"))
    assert "no munge key in" in text
    assert "python3" not in text


def test_an_address_of_ipv6_is_told_from_its_port() -> None:
    assert "TIDE_CONTROL='[fd00::1]:6821'" in render_boot("fd00::1", 6821, "00")


# --- cloud-init's own reading --------------------------------------------------------------------

READ = """\
import json, sys
from cloudinit import handlers, helpers
from cloudinit.handlers.shell_script import ShellScriptPartHandler
from cloudinit.user_data import UserDataProcessor

def kept(case, text, home):
    paths = helpers.Paths({"cloud_dir": home, "run_dir": home})
    paths.get_ipath_cur = lambda name: home + "/" + name
    message = UserDataProcessor(paths).process(text)
    parts = [part for part in message.walk() if part.get_content_maintype() != "multipart"]
    handler = ShellScriptPartHandler(paths)
    for part in parts:
        name = part.get_filename()
        handler.handle_part(None, part.get_content_type(), name, part.get_payload(), "always")
    return [(part.get_content_type(), part.get_filename()) for part in parts]

cases, place = json.load(sys.stdin), sys.argv[1]
print(json.dumps({case: kept(case, text, place + "/" + case) for case, text in cases.items()}))
"""


@pytest.mark.real
def test_cloud_init_takes_it_for_one_script_and_writes_it_as_it_is(tmp_path: Path) -> None:
    """By the code that every boot runs; its schema knows only cloud-config."""
    cases = dict(rendered())
    command = ["/usr/bin/python3", "-c", READ, str(tmp_path)]
    done = subprocess.run(command, input=json.dumps(cases), text=True, capture_output=True)
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout) == {name: [["text/x-shellscript", "part-001"]] for name in cases}
    for name, text in cases.items():
        written = tmp_path / name / "scripts" / "part-001"
        assert written.read_text() == text
        assert written.stat().st_mode & 0o777 == 0o700


SITE = """\
#cloud-config
timezone: Europe/Paris
write_files:
  - {path: /etc/motd, content: "of the site\\n"}
"""


def with_config() -> Mapping[str, str]:
    """With a cloud-config of the site's own, as those providers send it that have cloud-init."""
    three = [replace(one, cloud_config=SITE) for one in launches(3)]
    return {
        "named": script.named(three[0]),
        "indexed": script.indexed(three, "echo 0"),
        "asked": script.asked(three[0], "echo n-1", "echo 2", "echo t"),
        "google": google.script(three),
    }


@pytest.mark.real
def test_cloud_init_finds_the_sites_own_config_beside_the_script(tmp_path: Path) -> None:
    """And its schema accepts what it finds."""
    cases = with_config()
    command = ["/usr/bin/python3", "-c", READ, str(tmp_path)]
    done = subprocess.run(command, input=json.dumps(cases), text=True, capture_output=True)
    assert done.returncode == 0, done.stderr
    both = [["text/cloud-config", "part-001"], ["text/x-shellscript", "part-002"]]
    assert json.loads(done.stdout) == dict.fromkeys(cases, both)
    for case, text in cases.items():
        _, first, _ = message_from_string(text).walk()
        config = tmp_path / f"{case}.yaml"
        config.write_text(str(first.get_payload()))
        assert config.read_text() == SITE
        assert cloud_config.complaint(config) == ""
        ran = (tmp_path / case / "scripts" / "part-002").read_text()
        assert script.told(text) == ran.partition("TIDE_TOKEN\n")[2] == launches(1)[0].user_data


@pytest.mark.real
@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("timezone: Europe/Paris\n", "must begin with the line `#cloud-config`"),
        ("#cloud-config\n- a list\n", "must be a mapping"),
        ("#cloud-config\na: [1\n", "is no YAML"),
        ("#cloud-config\nntp: {enabled: perhaps}\n", "ntp.enabled"),
    ],
)
def test_a_cloud_config_that_cloud_init_would_not_take_is_told(
    tmp_path: Path, text: str, said: str
) -> None:
    path = tmp_path / "site.yaml"
    path.write_text(text)
    assert said in cloud_config.complaint(path)
    assert "cannot be read" in cloud_config.complaint(tmp_path / "none.yaml")


# --- real runs -----------------------------------------------------------------------------------


def written(machine: Machine, control: Control) -> None:
    """As cloud-init writes it at every boot."""
    node = replace(NODE, pin=control.pin, join_port=control.port)
    text = node.user_data(Site("127.0.0.1"))
    launch = Launch("blue", "n-7", 3, "g", "base", "small", user_data=text, token=TOKEN)
    machine.write(PART, script.named(launch), 0o700)


def start(machine: Machine, program: str) -> "subprocess.Popen[bytes]":
    """A boot, in which cloud-init runs one program."""
    for name in ("springtide.booted", "munge/up"):
        machine.path(f"run/{name}").unlink(missing_ok=True)
    for name in ("calls", "environments"):
        machine.write(f"run/{name}", "", 0o666)
    return machine.start([program], {})


@pytest.mark.real
@pytest.mark.accepts("A7", "A8")
def test_user_data_fetches_the_agent_at_every_boot_and_runs_it(
    machine: Machine, control: Control
) -> None:
    written(machine, control)
    assert slow_is_fine(start(machine, PART)) == 0, machine.console
    assert machine.calls[-1].startswith("slurmd -b -N n-7")
    assert control.paths()[0] == "/join"
    assert TOKEN not in machine.console + machine.text("run/environments")
    control.asked.clear()
    assert slow_is_fine(start(machine, AGAIN)) == 0, machine.console
    assert machine.calls[-1].startswith("slurmd -b -N n-7")
    assert control.paths()[0] == "/refresh"


@pytest.mark.real
def test_user_data_that_runs_twice_in_a_boot_does_nothing_the_second_time(
    machine: Machine, control: Control
) -> None:
    written(machine, control)
    assert slow_is_fine(start(machine, PART)) == 0
    calls = machine.calls
    assert slow_is_fine(machine.start([AGAIN], {})) == 0
    assert machine.calls == calls


@pytest.mark.real
@pytest.mark.accepts("A8")
def test_user_data_waits_quietly_for_a_control_host_that_is_away(
    machine: Machine, control: Control
) -> None:
    control.close()
    written(machine, control)
    process = start(machine, PART)
    until(lambda: "waiting for the control host 127.0.0.1" in machine.console)
    assert machine.calls == []
    control.open()
    assert slow_is_fine(process) == 0
    assert machine.console.count("waiting for") == 1
    assert machine.calls[-1].startswith("slurmd")


WITHOUT_SYSTEMD = ["slurmd ended"]
WITH_SYSTEMD = ["systemctl mask --now slurmd", "slurmd ended"]
EARLY = """\
cp /usr/bin/sleep /run/slurmd
(/run/slurmd 600; echo slurmd ended >>/run/calls) &
until pidof slurmd; do :; done
exec "$@"
"""


@pytest.mark.real
@pytest.mark.accepts("A8")
@pytest.mark.parametrize("ended", [WITHOUT_SYSTEMD, WITH_SYSTEMD])
def test_no_slurmd_of_the_image_runs_while_the_control_host_is_away(
    machine: Machine, control: Control, ended: list[str]
) -> None:
    control.close()
    written(machine, control)
    machine.write("run/calls", "", 0o666)
    machine.write("usr/local/bin/early", EARLY)
    systemctl = '#!/bin/sh\necho "systemctl $*" >>/run/calls\n'
    machine.write("usr/local/sbin/systemctl", systemctl, 0o755)
    if ended is WITH_SYSTEMD:
        machine.path("run/systemd/system").mkdir(parents=True)
    path = {"PATH": "/usr/local/sbin:/usr/bin:/bin"}
    machine.start(["sh", "/usr/local/bin/early", PART], path)
    until(lambda: "waiting for the control host" in machine.console, machine.console)
    until(lambda: machine.calls == ended, f"for {ended}")


@pytest.mark.real
def test_a_node_that_cannot_fetch_the_agent_runs_the_one_it_has(
    machine: Machine, control: Control
) -> None:
    """Which then waits for the control host itself."""
    control.close()
    written(machine, control)
    text = machine.text(PART)
    assert f"began + {FALL_BACK_S} " in text
    machine.write(PART, text.replace(f"began + {FALL_BACK_S} ", "began + 0 "), 0o700)
    machine.write(PLACE, "import sys\nprint('the agent of the last boot:', sys.argv[1])\n", 0o755)
    assert slow_is_fine(start(machine, PART)) == 0, machine.console
    assert machine.console.endswith("the agent of the last boot: boot\n")


@pytest.mark.real
@pytest.mark.accepts("X17")
def test_no_agent_is_taken_from_a_host_with_another_certificate(
    machine: Machine, control: Control
) -> None:
    control.pin = "0" * 64
    written(machine, control)
    start(machine, PART)
    until(lambda: control.connections > 1, "for a second attempt")
    words = "shows another certificate than the one of our control host"
    assert f": it {words}\n" in machine.console
    assert f"waiting for the control host …: … {words} |" in JOIN_DOC.read_text()
    assert not machine.path("usr/local/lib/springtide/agent").exists()
    assert control.asked == []
