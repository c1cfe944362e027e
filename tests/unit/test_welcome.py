"""What a node is told when it joins: a cluster file each, and the welcome that comes of it."""

import json
from base64 import b64decode
from pathlib import Path
from typing import Any

import pytest

from springtide.configure.membership import Around, Newcomer, told
from springtide.configure.mounts import mounts_of
from springtide.configure.names import names_of
from springtide.configure.queue_node import part_of
from springtide.configure.welcome import Control, Facts, Ssh, welcome
from springtide.model import Node, NodeState
from springtide.ports import Entry, Site
from springtide.spec import Cluster, load, parse
from springtide.spec.clouds import Remote
from tests.unit.join_world import TEXT, JoinWorld, join_world

CASES = Path(__file__).parents[1] / "cases" / "welcome"
USERS = {
    "users": [
        {
            "name": "ada",
            "uid": 20000,
            "gid": 20000,
            "gecos": "",
            "home": "/home/ada",
            "shell": "/bin/bash",
        }
    ],
    "groups": [{"name": "ada", "gid": 20000, "members": []}],
    "sssd": "",
}
SSH = Ssh(
    {"ssh_host_ed25519_key-cert.pub": "ssh-ed25519-cert-v01@openssh.com AAAA"},
    "@cert-authority b* ssh-ed25519 BBBB",
    ("ssh-ed25519 CCCC",),
)


def facts(spec: Cluster) -> Facts:
    provider = spec.provider
    assert isinstance(provider, Remote)
    address = provider.control_address or "10.77.0.1"
    cpus, memory = told(spec, "general")
    return Facts(
        spec=spec,
        node="b1",
        features=spec.gets("general"),
        address="10.77.1.1",
        control=Control(
            ("head",),
            address,
            6817,
            Path("/var/lib/springtide/blue/munge/munge.socket"),
            ("/var/spool/slurmd", "/scratch/%n"),
            "22.05.8",
        ),
        clock=1_800_000_000.5,
        munge_key=b"a secret of munge",
        certificates={"site.crt": "-----BEGIN CERTIFICATE-----\n"} if spec.certificates else {},
        names=names_of(spec, ("head",), address, {"b2": "10.77.1.2"}, ()),
        mounts=mounts_of(spec, address),
        users=USERS,
        ssh=SSH,
        health={"path": "/var/lib/springtide/blue/conf/health", "text": "#!/bin/sh\n"},
        entry=part_of(Entry(("pbs_mom",), files={Path("/etc/pbs.conf"): "PBS_SERVER=head\n"})),
        cpus=cpus,
        memory=memory,
    )


@pytest.mark.accepts("A7")
@pytest.mark.parametrize("case", [path.stem for path in sorted(CASES.glob("*.yaml"))])
def test_a_node_is_told_this(case: str) -> None:
    answer = welcome(facts(load(CASES / f"{case}.yaml")))
    assert json.loads((CASES / f"{case}.json").read_text()) == answer
    assert [key for key in answer if key in answer["features"]] == answer["features"]


async def given(world: JoinWorld, **changes: Any) -> dict[str, Any]:
    node = Node("b1", "general", NodeState.JOINING, 1)
    newcomer = Newcomer(node, "10.77.1.1", changes.pop("host_keys", ()))
    around = Around(Site("10.77.0.1"), "22.05.8", world.now, {"b2": "10.77.1.2"}, USERS)
    return world.membership.welcome(newcomer, around)


async def test_the_facts_are_those_of_the_cluster(tmp_path: Path) -> None:
    async with join_world(tmp_path) as world:
        answer = await given(world)
        assert b64decode(answer["munge"]["key"]) == world.layout.munge_key.read_bytes()
        assert answer["munge"]["socket"] == str(world.layout.munge_socket)
        assert answer["names"]["hosts"] == {"b2": "10.77.1.2", "head": "10.77.0.1"}
        assert answer["users"] == USERS
        assert answer["health"]["path"] == str(world.layout.health)
        assert answer["health"]["text"].startswith("#!/bin/sh\n")
        assert answer["slurmd"]["memory"] == 1000


async def test_host_keys_that_are_none_are_done_without(tmp_path: Path) -> None:
    async with join_world(tmp_path) as world:
        good = (world.layout.join / "id_ed25519.pub").read_text().strip()
        keys = ("ssh-dss AAAA", "; rm -rf /", good)
        answer = await given(world, host_keys=keys)
        (name,) = answer["ssh"]["certificates"]
        assert name == "ssh_host_ed25519_key-cert.pub"
        assert answer["ssh"]["known_hosts"].startswith("@cert-authority b*,x* ssh-ed25519 ")


async def test_certificates_of_one_name_are_kept_apart(tmp_path: Path) -> None:
    for place in ("a", "b"):
        (tmp_path / place).mkdir()
        (tmp_path / place / "my+site.pem").write_text(place)
    text = TEXT + f"certificates: [{tmp_path}/a/my+site.pem, {tmp_path}/b/my+site.pem]\n"
    async with join_world(tmp_path, text) as world:
        answer = await given(world)
        assert answer["certificates"]["files"] == {"my_site-1.crt": "a", "my_site-2.crt": "b"}


PEM = "-----BEGIN CERTIFICATE-----\n{}\n-----END CERTIFICATE-----\n"


async def test_certificates_of_one_file_are_given_each_by_itself(tmp_path: Path) -> None:
    """`openssl rehash`, which nodes run, skips a file with two of them."""
    bundle, lone = tmp_path / "site.pem", tmp_path / "lone.pem"
    key = "-----BEGIN PRIVATE KEY-----\nsecret\n-----END PRIVATE KEY-----\n"
    bundle.write_text(f"Root\n{PEM.format('root')}{key}Below it\n{PEM.format('below')}")
    lone.write_text(PEM.format("lone"))
    async with join_world(tmp_path, TEXT + f"certificates: [{bundle}, {lone}]\n") as world:
        answer = await given(world)
        assert answer["certificates"]["files"] == {
            "site-1.crt": PEM.format("root"),
            "site-2.crt": PEM.format("below"),
            "lone.crt": PEM.format("lone"),
        }


async def test_no_secret_of_the_control_host_is_told(tmp_path: Path) -> None:
    """But munge's, which every member must have."""
    async with join_world(tmp_path) as world:
        text = json.dumps(await given(world))
        for name in ("tls.key", "ssh_ca", "id_ed25519"):
            lines = (world.layout.join / name).read_text().splitlines()
            assert lines[len(lines) // 2] not in text


def test_what_all_nodes_are_told_alike_is_reckoned_once() -> None:
    """A thousand that join at once do not each look at all names."""
    spec = parse(TEXT.replace("STATE", "/s").replace("PORT", "6821"), "blue.yaml")
    assert spec.patterns is spec.patterns
    assert spec.patterns == ("b*", "x*")
