"""What `tide check` says of where nodes find OpenPBS's server."""

from pathlib import Path

import pytest

from springtide.cli.openpbs_checks import decide_checks, look_at_address
from springtide.cli.subject import subject
from springtide.spec import parse

TEXT = """\
cluster: hy
state: {place}/state
batch: {{kind: openpbs, bin: {place}, server: pbs.site}}
groups: {{g: {{nodes: "c[1-2]"}}}}
partitions: {{cloud: {{groups: [g]}}}}
"""


def test_a_server_that_nodes_find_where_it_registered_is_in_order() -> None:
    (here,) = decide_checks("head", "10.0.0.1", True, {"g": "10.0.0.1"})
    assert (here.ok, here.text) == (True, "nodes look for head at 10.0.0.1")
    (there,) = decide_checks("head", "10.0.0.1", False, {"g": "10.0.0.9"})
    assert there.ok is True
    assert "on its own machine, `getent hosts head` must say the same" in there.text


def test_a_server_that_only_its_own_machine_reaches_is_wrong() -> None:
    """Debian gives a machine's own name 127.0.1.1."""
    (check,) = decide_checks("head", "127.0.1.1", True, {})
    assert check.ok is False
    assert "no node on another machine or in a container ever registers" in check.text
    assert "set PBS_LEAF_NAME in /etc/pbs.conf" in check.todo


def test_groups_that_reach_this_machine_elsewhere_are_told() -> None:
    (check,) = decide_checks("head", "10.0.0.1", True, {"g": "10.0.0.1", "h": "172.16.0.1"})
    assert check.ok is None
    assert "nodes of h reach this machine at 172.16.0.1" in check.text
    assert "set PBS_LEAF_NAME in /etc/pbs.conf to a name of 172.16.0.1" in check.todo


@pytest.mark.parametrize(("address", "ok"), [("10.9.9.9", True), (None, False)])
def test_the_name_is_looked_up(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, address: str | None, ok: bool
) -> None:
    def lookup(name: str) -> str:
        assert name == "pbs.site"
        if address is None:
            raise OSError("Temporary failure in name resolution")
        return address

    monkeypatch.setattr("socket.gethostbyname", lookup)
    monkeypatch.setenv("PBS_CONF_FILE", str(tmp_path / "none"))
    for name in ("pbsnodes", "qalter", "qmgr", "qrerun", "qstat"):
        (tmp_path / name).touch(0o755)
    asked = subject(parse(TEXT.format(place=tmp_path), "cluster.yaml"))
    (check,) = look_at_address(asked)
    assert check.ok is ok
    other = TEXT.format(place=tmp_path).replace("openpbs", "torque")
    assert list(look_at_address(subject(parse(other, "cluster.yaml")))) == []
