"""A whole Debian with a real cloud-init joins by itself, works for a user, and tells of it."""

import hashlib
import json
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from springtide.configure import identity
from springtide.layout import Layout
from springtide.node import fit
from springtide.node.daemon import Daemon, Refused
from tests.e2e.debian import JOIN_PORT, USER, WORD, Debians, debians
from tests.e2e.disks import TOKEN, found, holds, secrets
from tests.e2e.real import until
from tests.libvirt.daemon import Libvirt, libvirt
from tests.libvirt.debian import debian_image

pytestmark = [pytest.mark.real, pytest.mark.timeout(900)]

IDLE_S = 600
BOOT_S = 420.0
NODE = "deb-1"
JOB = """
read -r word <{shared}/word && echo "word $word"
echo "user $(id -un) $(id -u)"
echo "type $(findmnt -n -o FSTYPE {shared})"
echo "conf $(sha256sum </run/slurm/conf/slurm.conf)"
echo "machine $(slurmd -C | head -n 1)"
echo "boot $(cat /proc/sys/kernel/random/boot_id)"
echo "control $(getent hosts {control})"
echo "asked $(getent hosts {control}.deb)"
echo "hosts $(grep -c {control}.deb /etc/hosts)"
echo "site $(cat /etc/site)"
sync
"""


@pytest.fixture(scope="module")
def running() -> Iterator[Libvirt]:
    with libvirt() as running:
        yield running


@pytest.fixture(scope="module")
def cluster(running: Libvirt) -> Iterator[Debians]:
    with debians(running, debian_image(), IDLE_S) as made:
        yield made


def run(cluster: Debians) -> dict[str, str]:
    """What a job of the user says, by its lines' first words; the file it reads comes first."""
    real = cluster.real
    control = real.slurm("scontrol", "show", "config")
    (host,) = (one for one in control.splitlines() if one.startswith("SlurmctldHost[0]"))
    script = JOB.format(shared=real.shared, control=host.split("=")[1].split("(")[0].strip())
    options = ["--parsable", "-o", f"{real.shared}/%A.out", "-w", NODE]
    id = real.slurm("sbatch", *options, "--wrap", script, user=USER).strip()
    try:
        real.finished(id, BOOT_S)
    except BaseException:
        print(cluster.console(f"deb.{NODE}.1"))
        raise
    lines = (real.shared / f"{id}.out").read_text().splitlines()
    return {first: rest for first, _, rest in (line.partition(" ") for line in lines)}


@pytest.fixture(scope="module")
def first(cluster: Debians) -> dict[str, str]:
    """What the first job says, for which the machine was made."""
    return run(cluster)


@pytest.mark.accepts("E10", "N7")
def test_a_debian_joins_by_itself_and_the_first_act_of_a_job_reads_the_shared_file(
    cluster: Debians, first: dict[str, str]
) -> None:
    real = cluster.real
    print(cluster.console(f"deb.{NODE}.1"))
    assert first["word"] == WORD
    assert first["user"] == f"{USER} 28200"
    assert first["type"] == "nfs4"
    assert first["control"].split()[0] == str(cluster.running.control)
    assert first["asked"].split()[0] == str(cluster.running.control)
    assert first["hosts"] == "0", "only the cluster's name server knows that name"
    assert first["site"] == f"{WORD} of the site"
    assert real.record(NODE)[NODE]["state"] == "ready"


def phases(cluster: Debians) -> list[str]:
    """Those of its boot, once the last is told: slurmd serves, and a job may be over, before."""
    shown = cluster.real.tide("timeline", NODE, "--json")
    assert shown.returncode == 0, shown.stderr
    names = [phase["phase"] for phase in json.loads(shown.stdout)["phases"]]
    return names if "slurmd" in names else []


def last_boot(cluster: Debians) -> str:
    """What the console shows of it, once the agent has said its last phase there."""
    said = cluster.console(f"deb.{NODE}.1").rpartition("running 'init-local'")[2]
    return said if "phase slurmd" in said else ""


@pytest.mark.accepts("B15")
def test_mounts_users_munge_and_health_come_before_slurmd(
    cluster: Debians, first: dict[str, str]
) -> None:
    print(cluster.real.tide("timeline", NODE).stdout)
    names = until(lambda: phases(cluster))
    before = names[: names.index("slurmd")]
    assert {"joined", "names", "munge", "mounts", "users", "ssh", "health"} <= {*before}


@pytest.mark.accepts("B16")
def test_node_and_controller_have_the_same_configuration(
    cluster: Debians, first: dict[str, str]
) -> None:
    here = Layout(cluster.real.state).conf / "slurm.conf"
    assert first["conf"].split()[0] == hashlib.sha256(here.read_bytes()).hexdigest()


@pytest.mark.accepts("C6")
def test_slurm_is_told_no_more_than_the_machine_has(
    cluster: Debians, first: dict[str, str]
) -> None:
    seen = dict(word.partition("=")[::2] for word in first["machine"].split())
    told = cluster.real.node(NODE)
    assert int(told["RealMemory"]) <= int(seen["RealMemory"])
    assert int(told["CPUTot"]) <= int(seen["CPUs"])
    assert "DRAIN" not in told["State"]


@pytest.fixture(scope="module")
def disk(cluster: Debians, first: dict[str, str]) -> Iterator[Path]:
    """All that the node has written, as whoever has its disk sees it."""
    raw = cluster.running.root / "scanned.raw"
    source = str(cluster.disks / f"deb.{NODE}.1.qcow2")
    try:
        subprocess.run(["qemu-img", "convert", "-U", "-O", "raw", source, str(raw)], check=True)
        yield raw
    finally:
        raw.unlink(missing_ok=True)


@pytest.mark.accepts("E31", "N15")
def test_nothing_on_the_node_can_act_on_the_control_host(cluster: Debians, disk: Path) -> None:
    """The munge key, which every node of Slurm has, shows that a secret would be found."""
    assert holds(disk, Layout(cluster.real.state).munge_key.read_bytes())
    assert [name for name, one in secrets(cluster.real.state) if holds(disk, one)] == []


@pytest.mark.accepts("E31")
def test_the_token_on_the_disk_lets_nobody_in_again(cluster: Debians, disk: Path) -> None:
    token = found(disk, TOKEN).decode()
    assert token
    who = {"cluster": "deb", "node": NODE, "generation": 1}
    pin = identity.pin(Layout(cluster.real.state).join)
    daemon = Daemon(who, f"{cluster.running.control}:{JOIN_PORT}", pin)
    with pytest.raises(Refused, match="used before"):
        daemon.ask("/join", 30.0, token=token, machine=fit.machine())


@pytest.mark.accepts("A7")
def test_after_a_rebuild_the_node_joins_again_by_its_key(
    cluster: Debians, first: dict[str, str]
) -> None:
    done = cluster.real.tide("rebuild", NODE, "--force", "--yes", "--no-wait")
    assert done.returncode == 0, done.stderr + done.stdout
    newest = cluster.real.client.get("/operations", limit=10)["operations"]
    operation = next(one for one in newest if one["kind"] == "rebuild")
    assert cluster.real.ended(operation["id"], BOOT_S)["state"] == "done"
    again = run(cluster)
    said = until(lambda: last_boot(cluster))
    print(said)
    assert "wrote /var/lib/springtide/key" not in said
    assert again["boot"] != first["boot"]
    assert again["word"] == WORD
    assert again["user"] == first["user"]
