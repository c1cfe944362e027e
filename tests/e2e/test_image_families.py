"""Images are built, taken of nodes, used and cleaned, on a real cluster of containers."""

import os
import stat
import sys
from collections.abc import Iterator
from contextlib import ExitStack, suppress
from pathlib import Path

import pytest

from tests.e2e.real import Json, RealCluster, cluster, until

pytestmark = pytest.mark.real

SPEC = """
cluster: families
batch: {kind: slurm, port: 17140, node_port: 17141}
provider: {kind: containers, mounts: [SHARED, HERE]}
images:
  soft: {build: {base: host, scripts: [SHARED/install], keep: 2}}
  mpi: {build: {base: soft, roles: [munge, slurm_node], group: soft}}
groups:
  soft: {nodes: "soft-[1-3]", image: soft}
  plain: {nodes: "plain-1"}
timing: {idle: 3600s, start: 2m, stop: 30s, reconcile: 1s, grace: 1s}
"""
INSTALL = """#!/bin/sh
set -e
mkdir /opt/soft
echo "$TIDE_IMAGE" >/opt/soft/version
env >/opt/soft/environment
rm -rf /etc/motd
echo "installed soft"
"""


CLOUD = {"OS_PASSWORD": "word-for-openstack", "AWS_SECRET_ACCESS_KEY": "word-for-amazon"}
"""What the daemon has in its environment, and nobody else is to have."""


@pytest.fixture(scope="module")
def real() -> Iterator[RealCluster]:
    # Where a checkout is in /tmp, nodes would not see its Ansible: they have a /tmp of their own.
    with pytest.MonkeyPatch.context() as patch, ExitStack() as stack:
        for name, word in CLOUD.items():
            patch.setenv(name, word)
        text = SPEC.replace("HERE", sys.prefix)
        made = stack.enter_context(cluster(text, deployed=False))
        patch.undo()  # jobs get the environment of whoever submits them
        write(made, "install", INSTALL)
        assert made.deploy()["state"] == "done"
        yield made


def write(real: RealCluster, name: str, text: str) -> Path:
    path = real.shared / name
    path.write_text(text)
    return path


def images(real: RealCluster) -> dict[str, Json]:
    return {one["name"]: one for one in real.client.get("/images")["images"]}


def builders(real: RealCluster) -> list[str]:
    homes = (real.state / "containers" / "instances").iterdir()
    return [home.name for home in homes if home.name.startswith("tide-build")]


def version_on(real: RealCluster, node: str) -> list[str]:
    id = real.sbatch("cat /opt/soft/version", "-w", node)
    real.finished(id)
    return real.output(id)


@pytest.mark.accepts("C21")
@pytest.mark.timeout(400)
def test_new_nodes_get_the_newest_image_that_a_script_of_the_site_made(real: RealCluster) -> None:
    assert "soft@1" in real.tide("image", "build", "soft", "--dry-run").stdout
    assert images(real) == {}
    done = real.tide("image", "build", "soft")
    assert done.returncode == 0, done.stderr
    assert "soft@1 (x86_64): ready" in done.stdout
    assert builders(real) == []
    built = Path(images(real)["soft@1"]["id"])
    assert held(built, secrets(real) | {"planted": b"TIDE_IMAGE=soft@1"}) == {"planted"}
    assert version_on(real, "soft-1") == ["soft@1"]
    assert real.record("soft-1")["soft-1"]["image"] == "soft@1"

    more = write(real, "more", "#!/bin/sh\necho more >>/opt/soft/version\n")
    done = real.tide("image", "build", "soft", "--script", str(more))
    assert done.returncode == 0, done.stderr
    assert "installed soft" in real.tide("image", "log", "soft@2").stdout
    assert version_on(real, "soft-2") == ["more", "soft@2"]
    assert version_on(real, "soft-1") == ["soft@1"]

    rows = {r["name"]: r for r in real.client.get("/nodes", names="soft-[1-2]")["nodes"]}
    assert rows["soft-1"]["outdated"] == "image soft@1 instead of soft@2"
    assert rows["soft-2"]["outdated"] is None
    assert images(real)["soft@2"]["groups"] == ["soft"]
    done = real.tide("rebuild", "soft-1", "--direct", "--yes")
    assert done.returncode == 0, done.stderr
    assert version_on(real, "soft-1") == ["more", "soft@2"]
    shown = real.tide("image", "list").stdout
    assert "soft@1" in shown
    assert "soft-[1-2]" in shown


@pytest.mark.accepts("E22")
@pytest.mark.timeout(400)
def test_an_image_of_a_node_holds_no_munge_key_and_nodes_made_from_it_are_their_own(
    real: RealCluster,
) -> None:
    copied = real.sbatch(
        f"mkdir -p /etc/munge /var/lib/springtide; cp {real.state}/key/munge.key /etc/munge/;"
        "echo by hand >/opt/hand; ssh-keygen -A >/dev/null;"
        "cat /proc/[0-9]*/environ >/opt/seen 2>/dev/null;"
        "echo key-of-a-node >/var/lib/springtide/key; cat /etc/machine-id",
        *("-w", "soft-3"),
    )
    real.finished(copied)
    taken = real.tide("image", "snapshot", "soft-3")
    assert taken.returncode == 0, taken.stderr
    name = max(images(real), key=lambda one: int(one.partition("@")[2]))
    image = images(real)[name]
    assert (image["made_from"], image["state"]) == ("soft-3", "ready")
    planted = {"planted": b"by hand", "key of the node": b"key-of-a-node"}
    assert held(Path(image["id"]), secrets(real) | planted) == {"planted"}
    assert real.states("soft-3") == {"ready"}

    done = real.tide("rebuild", "soft-[1-2]", "--direct", "--yes")
    assert done.returncode == 0, done.stderr
    look = (
        "cat /opt/hand /etc/machine-id; hostname; [ ! -e /etc/munge/munge.key ] && echo no-key;"
        "ls /etc/ssh/ssh_host_* 2>/dev/null"
    )
    ids = [real.sbatch(look, "-w", f"soft-{number}") for number in (1, 2)]
    seen = []
    for number, id in enumerate(ids, 1):
        ended(real, id)
        lines = real.output(id)
        assert {"by", "hand", "no-key", f"soft-{number}"} <= set(lines)
        assert not [line for line in lines if "ssh_host" in line]
        seen += [line for line in lines if len(line) == 32]
    assert len({*seen, *real.output(copied)}) == 3


def ended(real: RealCluster, id: str) -> None:
    until(lambda: real.job(id).get("JobState") in ("COMPLETED", "FAILED"))


def secrets(real: RealCluster) -> dict[str, bytes]:
    """All that only the control host has: its private files, and what it knows of clouds."""
    paths = [Path(folder, file) for folder, _, files in os.walk(real.state) for file in files]
    texts: dict[str, bytes] = {}
    for path in paths:
        if "containers" in path.parts:
            continue
        with suppress(FileNotFoundError):  # what slurmctld is writing gets another name
            mode = path.lstat().st_mode
            if stat.S_ISREG(mode) and not mode & 0o077:
                texts[str(path.relative_to(real.state))] = path.read_bytes()
    assert "key/munge.key" in texts
    sought = {name: telling(text) for name, text in texts.items() if len(text) >= 16}
    return {**sought, **{name: word.encode() for name, word in CLOUD.items()}}


def telling(content: bytes) -> bytes:
    """A part of it that no other file has."""
    lines = content.splitlines()
    return lines[len(lines) // 2] if content.startswith(b"-----") else content[:64]


def held(directory: Path, sought: dict[str, bytes]) -> set[str]:
    """Those that are anywhere in its files."""
    paths = [Path(folder, file) for folder, _, files in os.walk(directory) for file in files]
    texts = [path.read_bytes() for path in paths if stat.S_ISREG(path.lstat().st_mode)]
    return {name for name, secret in sought.items() if any(secret in text for text in texts)}


@pytest.mark.timeout(400)
def test_roles_are_applied_by_the_machine_that_an_image_is_built_on(real: RealCluster) -> None:
    done = real.tide("image", "build", "mpi")
    assert done.returncode == 0, done.stderr
    said = real.tide("image", "log", "mpi@1").stdout
    assert "Install slurmd" in said
    assert "failed=0" in said
    assert images(real)["mpi@1"]["made_from"].startswith("soft@")
    assert real.tide("image", "clean", "mpi", "--keep", "0", "--yes").returncode == 0


@pytest.mark.accepts("C21")
@pytest.mark.timeout(400)
def test_a_script_that_fails_makes_no_image_and_its_log_is_shown(real: RealCluster) -> None:
    before = images(real)
    bad = write(real, "bad", "#!/bin/sh\necho no such mirror\nexit 3\n")
    done = real.tide("image", "build", "soft", "--script", str(bad))
    assert done.returncode == 1
    assert f"{bad} ended with status 3" in done.stderr
    assert "no such mirror" in done.stderr
    assert builders(real) == []
    (name,) = images(real).keys() - before.keys()
    assert images(real)[name]["state"] == "failed"
    assert images(real)[name]["groups"] == []


@pytest.mark.accepts("C21")
@pytest.mark.timeout(400)
def test_a_daemon_that_is_killed_leaves_neither_a_builder_nor_half_an_image(
    real: RealCluster,
) -> None:
    slow = write(real, "slow", "#!/bin/sh\necho slowly\nwhile :; do sleep 1; done\n")
    asked = real.tide("image", "build", "soft", "--no-wait", "--script", str(slow))
    assert asked.returncode == 0, asked.stderr
    until(lambda: builders(real))
    refused = real.tide("image", "build", "soft")
    assert refused.returncode == 1
    assert "is being made" in refused.stderr
    real.kill_daemon()
    real.start_daemon()
    until(lambda: not builders(real))
    until(lambda: not [one for one in images(real).values() if one["state"] == "building"])
    assert [one["detail"] for one in images(real).values() if "daemon ended" in one["detail"]]


@pytest.mark.accepts("C21")
@pytest.mark.timeout(400)
def test_old_images_are_listed_and_cleaned_but_not_those_in_use(real: RealCluster) -> None:
    ready = {name for name, one in images(real).items() if one["state"] == "ready"}
    assert len(ready) >= 3
    newest = max(ready, key=lambda name: int(name.partition("@")[2]))
    plan = real.tide("image", "clean", "--dry-run", "--keep", "1")
    assert "delete soft@1" in plan.stdout
    assert f"keep {newest}" in plan.stdout
    assert ready <= images(real).keys()
    refused = real.tide("image", "clean", "--keep", "1", stdin=0)
    assert refused.returncode == 2
    done = real.tide("image", "clean", "--keep", "1", "--yes")
    left = images(real)
    assert done.returncode == 0, done.stderr
    assert ready - left.keys(), done.stdout
    assert newest in left
    assert not [one for one in left.values() if one["state"] == "failed"]
    for name in ready - left.keys():
        assert name in done.stdout
        assert not (real.state / "images" / f"{name.replace('@', '-')}-x86-64").exists()
    assert version_on(real, "soft-1")
