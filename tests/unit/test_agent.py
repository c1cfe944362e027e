"""The agent of nodes, as a program, on a machine of its own, against a real TLS server."""

import time
from typing import Any

import pytest

from springtide.joining import parse_join, parse_report
from tests.unit.agent_control import (
    KEY,
    MUNGE_KEY,
    TOKEN,
    Control,
    welcome,
)
from tests.unit.agent_world import LAST, Machine, failing, slow_is_fine, until

pytestmark = pytest.mark.real

FEATURES = list(welcome()["features"])


# --- joining -------------------------------------------------------------------------------------


@pytest.mark.accepts("A7", "B6", "X16")
def test_a_node_gets_all_it_needs_for_its_token_and_starts_slurmd_last(
    machine: Machine, control: Control
) -> None:
    machine.booted(control)
    assert machine.calls[-1] == LAST
    assert [call.split()[0] for call in machine.calls] == [
        *("update-ca-certificates", "munged", "mount", "ansible-pull", "health", "slurmd")
    ]
    assert machine.phases() == ["started", "joined", *FEATURES]
    assert control.told_phases() == machine.phases()
    assert control.paths()[:2] == ["/join", "/report"]
    assert control.asked[1][1]["phases"] == [], "before all else, so that the token is spent"
    assert control.asked[0][1]["machine"]["slurm"] == "22.05.8"
    assert control.asked[0][1]["machine"]["host_keys"] == ["ssh-ed25519 AAAA image"]


@pytest.mark.accepts("A7")
def test_what_a_node_was_told_is_in_its_files(machine: Machine, control: Control) -> None:
    machine.path("etc/resolv.conf").symlink_to("../run/nobody/resolv.conf")
    machine.booted(control)
    key = machine.path("etc/munge/munge.key")
    assert key.read_bytes() == MUNGE_KEY
    assert (key.stat().st_mode & 0o777, key.owner()) == (0o400, "munge")
    assert machine.path("run/cluster/munge.socket").is_symlink()
    assert "as munge" in machine.text("run/calls")
    assert machine.text("etc/hostname") == "n-7\n"
    assert not machine.path("etc/resolv.conf").is_symlink()
    assert machine.text("etc/resolv.conf") == "search blue site.example\nnameserver 10.0.0.1\n"
    assert "127.0.1.1 n-7\n10.0.0.1 head\n" in machine.text("etc/hosts")
    assert machine.text("etc/hosts").endswith("127.0.0.1 localhost\n")
    assert machine.text("etc/chrony/sources.d/springtide.sources") == "server ntp.site iburst\n"
    assert "ann:x:20000:20000:ann of tests:/srv/shared/ann:/bin/sh\n" in machine.text("etc/passwd")
    assert "ann:*:" in machine.text("etc/shadow")
    certificate = "/etc/ssh/ssh_host_ed25519_key-cert.pub"
    assert (
        machine.text("etc/ssh/sshd_config.d/springtide.conf") == f"HostCertificate {certificate}\n"
    )
    assert "@cert-authority" in machine.text("etc/ssh/ssh_known_hosts")
    assert "AAAA cluster" in machine.text("root/.ssh/authorized_keys")
    assert machine.path("usr/local/share/ca-certificates/springtide-site.crt").exists()
    assert machine.path("var/spool/slurmd").is_dir()
    home = machine.path("var/lib/springtide")
    assert home.stat().st_mode & 0o777 == 0o755, "munge's socket may be in it"
    assert {path.stat().st_mode & 0o777 for path in home.iterdir()} == {0o600}


@pytest.mark.parametrize(
    ("there", "written", "line"),
    [
        ("etc/chrony.conf", "etc/chrony.conf", "server ntp.site iburst"),
        ("etc/ntpsec/ntp.conf", "etc/ntpsec/ntp.conf", "server ntp.site iburst"),
        (
            "etc/systemd/timesyncd.conf",
            "etc/systemd/timesyncd.conf.d/springtide.conf",
            "NTP=ntp.site",
        ),
    ],
)
def test_what_sets_the_clock_of_an_image_is_told_the_servers(
    machine: Machine, control: Control, there: str, written: str, line: str
) -> None:
    machine.path("etc/chrony/sources.d").rmdir()
    machine.write(there, "# of the image\n")
    control.welcome = {"features": ["time"], "time": control.welcome["time"]}
    machine.booted(control)
    assert line in machine.text(written).splitlines()
    assert "# of the image" in machine.text(there)


def test_an_sshd_without_a_directory_of_parts_has_its_certificates_in_its_file(
    machine: Machine, control: Control
) -> None:
    """First of all, for what comes last may be about some users only."""
    machine.write("etc/ssh/sshd_config", "Match user ann\n")
    control.welcome = {"features": ["ssh"], "ssh": control.welcome["ssh"]}
    machine.booted(control)
    lines = machine.text("etc/ssh/sshd_config").splitlines()
    assert lines[1] == "HostCertificate /etc/ssh/ssh_host_ed25519_key-cert.pub"
    assert lines[-1] == "Match user ann"


def test_users_of_a_directory_come_by_sssd(machine: Machine, control: Control) -> None:
    start = "#!/bin/sh\necho sssd >>/run/calls\ncp /usr/bin/sleep /run/sssd\n/run/sssd 600 &\n"
    machine.write("etc/init.d/sssd", start, 0o755)
    users = {"users": [], "groups": [], "sssd": "[sssd]\ndomains = site\n"}
    control.welcome = {"features": ["users"], "users": users}
    machine.booted(control)
    conf = machine.path("etc/sssd/sssd.conf")
    assert (conf.read_text(), conf.stat().st_mode & 0o777) == (users["sssd"], 0o600)
    assert machine.calls == ["sssd"]


@pytest.mark.accepts("B15")
def test_munge_of_a_node_takes_credentials_of_the_key_it_was_given(
    machine: Machine, control: Control
) -> None:
    """The real one."""
    for name in ("munged", "munge", "unmunge"):
        machine.path(f"usr/local/sbin/{name}").unlink()
    control.welcome = {"features": ["munge"], "munge": control.welcome["munge"]}
    machine.booted(control)
    assert machine.phases() == ["started", "joined", "munge"]
    assert machine.path("run/munge/munged.log").owner() == "munge"


@pytest.mark.accepts("X17")
def test_no_secret_is_shown_or_handed_on(machine: Machine, control: Control) -> None:
    machine.booted(control)
    said = machine.console + machine.text("run/calls") + machine.text("run/environments")
    secrets = (TOKEN, KEY, control.welcome["munge"]["key"])
    assert not [one for one in secrets if one in said]
    kept = [path for path in machine.root.rglob("*") if path.is_file()]
    assert not [path for path in kept if TOKEN.encode() in path.read_bytes()]
    holders = [path for path in kept if KEY.encode() in path.read_bytes()]
    assert holders == [machine.path("var/lib/springtide/key")]
    assert holders[0].stat().st_mode & 0o777 == 0o600


@pytest.mark.accepts("A7")
def test_a_node_gets_only_the_features_of_its_group(machine: Machine, control: Control) -> None:
    few = {name: control.welcome[name] for name in ("munge", "slurmd")}
    control.welcome = {"features": list(few), **few}
    machine.booted(control)
    assert machine.phases() == ["started", "joined", "munge", "slurmd"]
    assert [call.split()[0] for call in machine.calls] == ["munged", "slurmd"]
    assert "ann" not in machine.text("etc/passwd")
    assert not machine.path("etc/resolv.conf").exists()


@pytest.mark.accepts("X17")
def test_a_node_says_nothing_to_a_host_with_another_certificate(
    machine: Machine, control: Control
) -> None:
    control.pin = "0" * 64
    machine.boot(control)
    until(lambda: control.connections > 1, "for a second attempt")
    assert control.asked == []
    assert "shows another certificate than the one of our control host" in machine.console
    assert machine.calls == []


@pytest.mark.accepts("A8")
def test_a_node_waits_quietly_for_its_control_host_and_starts_nothing_meanwhile(
    machine: Machine, control: Control
) -> None:
    control.close()
    process = machine.boot(control)
    until(lambda: "waiting for the control host" in machine.console)
    assert process.poll() is None
    assert machine.calls == []
    control.open()
    assert slow_is_fine(process) == 0
    assert machine.calls[-1] == LAST
    assert machine.console.count("waiting for the control host") == 1


@pytest.mark.accepts("A8")
def test_a_slurmd_that_the_image_starts_by_itself_is_stopped_first(
    machine: Machine, control: Control
) -> None:
    early = "/usr/local/lib/early/slurmd"
    ends = "trap 'echo ended >>/run/calls; exit' TERM"
    machine.write(early, f"#!/bin/sh\n{ends}\nsleep 600 &\n: >/run/early\nwait\n", 0o755)
    begun = "until [ -e /run/early ]; do sleep 0.1; done"
    machine.write("usr/local/bin/boot", f'{early} &\n{begun}\nexec "$@"\n')
    process = machine.boot(control, first=["sh", "/usr/local/bin/boot"])
    assert slow_is_fine(process) == 0, machine.console
    assert "a slurmd runs already" in machine.console
    assert machine.calls[0] == "ended"
    assert machine.calls[-1] == LAST


@pytest.mark.accepts("X17")
def test_a_token_that_is_refused_ends_the_boot_with_words(
    machine: Machine, control: Control
) -> None:
    control.refusal = "the token was used before"
    assert slow_is_fine(machine.boot(control)) == 1
    assert "this machine may not join: the token was used before" in machine.console
    assert control.paths() == ["/join"]
    assert machine.calls == []


def test_a_machine_whose_key_and_token_are_refused_says_why_the_key_is(
    machine: Machine, control: Control
) -> None:
    machine.booted(control)
    control.refusal = "slurmctld would refuse its slurmd"
    control.token_refusal = "the token was used before"
    assert slow_is_fine(machine.boot(control)) == 1
    assert machine.console.endswith(
        "this machine may not join: slurmctld would refuse its slurmd; the token was used before\n"
    )


def test_a_node_that_is_refused_after_it_has_joined_ends_its_boot_with_words(
    machine: Machine, control: Control
) -> None:
    machine.write("etc/unwell", "")
    failing(machine, control)
    control.refusal = "it is another instance than the node has now"
    assert slow_is_fine(machine.running[-1]) == 1
    assert machine.console.endswith("springtide: it is another instance than the node has now\n")


@pytest.mark.parametrize(
    ("features", "why"),
    [
        (["names", "teleport"], "this agent knows nothing of teleport: it is too old"),
        (None, "the agent has failed: TypeError("),
    ],
)
def test_what_ends_a_boot_in_any_other_way_is_told(
    machine: Machine, control: Control, features: Any, why: str
) -> None:
    control.welcome = {"features": features}
    assert slow_is_fine(machine.boot(control)) == 1
    (report,) = [body for body in control.reports() if body.get("failed")]
    assert report["failed"].startswith(why)
    assert report["final"], "nobody tries again"
    assert "Traceback" not in machine.console


def test_a_node_that_cannot_keep_its_key_says_so(machine: Machine, control: Control) -> None:
    machine.path("var/lib/springtide/key.springtide-new").mkdir(parents=True)
    assert slow_is_fine(machine.boot(control)) == 1
    assert "/var/lib/springtide/key" in control.failures()[0]
    assert "Traceback" not in machine.console


def test_the_daemon_understands_whatever_a_node_asks(machine: Machine, control: Control) -> None:
    machine.booted(control)
    machine.ended(control, "refresh")
    machine.ended(control, "report-failure", "the", "disk", "broke")
    assert set(control.paths()) == {"/join", "/refresh", "/report"}
    for path, body in control.asked:
        secret = "token" if path == "/join" else "key"
        asked = parse_report(body) if path == "/report" else parse_join(body, secret)
        assert (asked.node, asked.generation, asked.secret) == ("n-7", 3, body[secret])
        assert asked.clock == body["clock"]
        assert len(asked.phases) == len(body["phases"])


def test_every_question_tells_the_clock_of_the_node(machine: Machine, control: Control) -> None:
    before = time.time()
    machine.booted(control)
    clocks = [body["clock"] for _, body in control.asked]
    assert all(before <= clock <= time.time() for clock in clocks)
    assert control.asked[0][1]["machine"]["clock"] == clocks[0]


def test_a_node_that_boots_again_shows_the_key_it_got(machine: Machine, control: Control) -> None:
    machine.booted(control)
    control.asked.clear()
    machine.booted(control, TIDE_TOKEN="used")
    assert control.paths()[0] == "/refresh"
    assert "/join" not in control.paths()
    assert machine.calls[-1] == LAST


def test_another_instance_of_a_node_does_not_use_the_key_of_the_last(
    machine: Machine, control: Control
) -> None:
    machine.booted(control)
    control.asked.clear()
    machine.booted(control, TIDE_GENERATION="4")
    assert control.paths()[0] == "/join"


def test_a_boot_goes_on_though_nobody_hears_its_reports(machine: Machine, control: Control) -> None:
    control.is_deaf_to = lambda report: bool(report["phases"])
    process = machine.boot(control)
    until(lambda: LAST in machine.calls)
    control.is_deaf_to = lambda report: False
    assert slow_is_fine(process) == 0
    assert set(FEATURES) <= set(control.told_phases())


@pytest.mark.accepts("X17")
def test_a_node_does_nothing_until_its_key_was_used_and_its_token_is_worthless(
    machine: Machine, control: Control
) -> None:
    control.is_deaf_to = lambda report: True
    process = machine.boot(control)
    until(lambda: len(control.reports()) > 1, machine.console)
    assert machine.calls == []
    assert "/join" not in control.paths()[1:], "it has its key"
    control.is_deaf_to = lambda report: False
    assert slow_is_fine(process) == 0
    assert machine.calls[-1] == LAST


def test_a_slurmctld_that_is_only_watched_is_told_of_no_boot(
    machine: Machine, control: Control
) -> None:
    control.welcome["slurmd"]["tells_boot"] = False
    machine.booted(control)
    assert machine.calls[-1] == LAST.replace(" -b ", " ").lstrip()


def test_systemd_does_not_start_slurmd_again_as_if_the_node_had_rebooted(
    machine: Machine, control: Control
) -> None:
    machine.path("run/systemd/system").mkdir(parents=True)
    for name in ("systemctl", "systemd-run"):
        machine.write(f"usr/local/sbin/{name}", '#!/bin/sh\necho "$0 $*" >>/run/calls\n', 0o755)
    control.welcome = {"features": ["slurmd"], "slurmd": control.welcome["slurmd"]}
    machine.booted(control)
    assert machine.calls[-1].endswith(LAST)
    assert "Type=forking" in machine.calls[-1]
    assert "Restart" not in machine.calls[-1]
