"""Images of containers: layers over what they were made from, without who the node was."""

import asyncio
import os
import shutil
import signal
import stat
import subprocess
import sys
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from springtide.configure.node_users import LIBRARY, render_boot
from springtide.ports import InstanceState, Rejected
from tests.e2e.images import mounted
from tests.providers.machine import Machine, eventually, image_from_host, launch, read, say
from tests.providers.world import BLUE, instances, running, until

pytestmark = pytest.mark.real

WRITES = """
mkdir -p /opt/soft /etc/slurm /var/lib/springtide /var/log/soft
echo one >/opt/soft/one; echo key-of-the-cluster >/etc/munge/munge.key
echo conf >/etc/slurm/slurm.conf; echo log >/var/log/soft/log; echo node >/etc/hostname
rm /etc/debian_version; echo ssh >/etc/ssh/ssh_host_test_key
ln -s /etc /var/lib/cloud
"""


async def written(machine: Machine, script: str, name: str, **changes: str | int) -> Path:
    """An image of a node that ran the script."""
    containers = await machine.prepared()
    done = machine.shared / f"{name}-done"
    made = instances(await containers.create([launch("n9", say(done, script), **changes)]))
    await read(done)
    image = await containers.snapshot(made[0], name)
    await containers.delete(made)
    machine.images[name] = Path(image.id)
    return Path(image.id)


@pytest.fixture
def made(machine: Machine) -> Iterator[Machine]:
    """Images outlive their site, so they go by hand."""
    for folder in ("etc/munge", "etc/ssh"):
        assert Path("/", folder).is_dir()
    try:
        yield machine
    finally:
        shutil.rmtree(machine.directory(BLUE) / "images", ignore_errors=True)


@pytest.mark.accepts("E22")
async def test_a_node_made_from_an_image_has_what_was_written_and_an_identity_of_its_own(
    made: Machine,
) -> None:
    image = await written(made, WRITES, "soft")
    look = (
        "cat /opt/soft/one; hostname; cat /etc/machine-id; ls -A /etc/slurm /var/lib/springtide;"
        "ls /etc/munge/munge.key /etc/ssh/ssh_host_* /etc/debian_version /var/log/soft/log"
    )
    containers = await made.prepared()
    said = {}
    for node in ("n0", "n1"):
        path = made.shared / f"{node}-said"
        await containers.create([launch(node, say(path, look), image="soft")])
        said[node] = (await read(path)).splitlines()
    assert [lines[:2] for lines in said.values()] == [["one", "n0"], ["one", "n1"]]
    ids = {lines[2] for lines in said.values()} | {Path("/etc/machine-id").read_text().strip()}
    assert len(ids) == 3
    assert {len(id) for id in ids} == {32}
    for lines in said.values():
        missing = [line for line in lines if "cannot access" in line]
        assert len(missing) == 4, lines
        assert not any("slurm.conf" in line for line in lines)
    assert b"key-of-the-cluster" not in every_byte(image)
    assert {one.image for one in await running(containers, BLUE, 2)} == {"soft"}


def every_byte(directory: Path) -> bytes:
    """Of all files, and of all names."""
    found = b""
    for folder, _, files in os.walk(directory):
        for file in files:
            path = Path(folder, file)
            found += bytes(path)
            found += path.read_bytes() if stat.S_ISREG(path.lstat().st_mode) else b""
    return found


async def test_what_joining_and_our_roles_wrote_does_not_stay_in_an_image(made: Machine) -> None:
    script = """
    mkdir -p /etc/sssd /etc/chrony.d /root/.ssh /var/lib/sss/db /var/lib/sss/secrets
    echo of-the-cluster | tee /etc/sssd/sssd.conf >/etc/chrony.d/springtide.sources
    echo of-the-cluster | tee /var/lib/sss/db/cache.ldb /var/lib/sss/secrets/.mkey >/etc/krb5.keytab
    printf '%s\\n' kept '# springtide: begin' of-the-cluster '# springtide: end' kept-too \\
        >/root/.ssh/authorized_keys
    """
    image = await written(made, script, "joined")
    assert b"of-the-cluster" not in every_byte(image)
    assert (image / "layer/root/.ssh/authorized_keys").read_text() == "kept\nkept-too\n"


async def test_jobs_of_people_do_not_stay_in_an_image(made: Machine) -> None:
    script = """
    for home in /var/spool/torque /var/spool/pbs; do
        for dir in mom_priv/jobs spool undelivered aux; do
            mkdir -p $home/$dir; echo of-ann >$home/$dir/1.head
        done
        echo of-ann >$home/server_name
        printf '%s\\n' '# springtide: begin' of-ann '# springtide: end' of-the-site \\
            >$home/mom_priv/config
        echo of-the-site >$home/mom_priv/prologue
    done
    echo of-ann >/etc/pbs.conf
    for dir in /var/spool/gridengine/execd /var/lib/gridengine/default/spool; do
        mkdir -p $dir/n9/job_scripts; echo of-ann >$dir/n9/job_scripts/3
    done
    """
    image = await written(made, script, "jobs")
    assert b"of-ann" not in every_byte(image)
    for home in ("torque", "pbs"):
        kept = image / "layer/var/spool" / home
        assert (kept / "mom_priv/prologue").read_text() == "of-the-site\n"
        assert (kept / "mom_priv/config").read_text() == "of-the-site\n"
        assert (kept / "spool").is_dir(), "programs expect theirs"


async def test_an_image_boots_though_it_forgot_a_directory_that_is_hidden_from_nodes(
    made: Machine,
) -> None:
    """As of a base that is this machine, with the states of clusters where they are by default."""
    programs = ["sh", "umount", "sleep", "cat", "mkdir", "ls", "mv"]
    base = image_from_host(made.root / "base", programs)
    states = Path("/var/lib/springtide")
    secret = base / states.relative_to("/") / "trial" / "instances"
    secret.mkdir(parents=True)
    made.images["base"] = base
    image = await written(made, "echo one >/one", "forgot", image="base")
    mark = (image / "layer" / states.relative_to("/") / "trial").lstat()
    assert stat.S_ISCHR(mark.st_mode)
    containers = made.open(BLUE, hidden=[states, states / "trial", states / "trial/instances"])
    path = made.shared / "said-forgot"
    look = f"cat /one; mkdir {states}/mine; ls {states}"
    instances(await containers.create([launch("n0", say(path, look), image="forgot")]))
    assert (await read(path)).split() == ["one", "mine"]


async def test_people_whom_a_node_took_over_do_not_stay_in_an_image(made: Machine) -> None:
    """The part of the boot script, as if the library were not there."""
    people = made.shared / "people"
    people.mkdir()
    (people / "passwd").write_text("tideann:x:54321:54321::/home/tideann:/bin/sh\n")
    (people / "group").write_text("tideann:x:54321:\ntideproj:x:54322:tideann\n")
    (people / "shadow").write_text("tideann:*:::::::\n")
    script = render_boot(people, None).replace(LIBRARY, "libnss_nothing.so.2")
    image = await written(made, f"{script}\ngetent passwd tideann >{made.shared}/known", "people")
    assert (made.shared / "known").read_text() == (people / "passwd").read_text()
    assert b"tideann" not in every_byte(image)
    assert b"tideproj" not in every_byte(image)
    for name in ("passwd", "group", "shadow"):
        assert (image / "layer/etc" / name).read_text() == Path("/etc", name).read_text()


async def test_links_of_a_node_lead_the_anonymising_nowhere(made: Machine) -> None:
    """Root of a node may turn a directory of secrets into a link to ours."""
    outside = made.root / "outside"
    outside.mkdir()
    (outside / "ssh_host_rsa_key").write_text("ours")
    script = f"rm -rf /etc/ssh /etc/slurm; ln -s {outside} /etc/ssh; ln -s {outside} /etc/slurm"
    await written(made, script, "linked")
    assert (outside / "ssh_host_rsa_key").read_text() == "ours"


async def test_an_image_of_an_image_has_both_and_what_lies_below_is_not_forgotten(
    made: Machine,
) -> None:
    await written(made, "mkdir /opt/a; echo a >/opt/a/x; echo below >/opt/a/y", "first")
    await written(made, "rm /opt/a/y; echo b >/opt/b", "second", image="first")
    containers = await made.prepared()
    path = made.shared / "said-both"
    await containers.create([launch("n0", say(path, "cd /opt; cat a/x b; ls a"), image="second")])
    assert (await read(path)).split() == ["a", "b", "x"]
    first, second = await containers.images(BLUE)
    for image, user in ((first, "node n0 and 1 more"), (second, "node n0")):
        with pytest.raises(Rejected, match=user):
            await containers.forget(image)
    await containers.delete(await containers.list(BLUE))
    await containers.forget(second)
    await containers.forget(first)
    assert list(await containers.images(BLUE)) == []


async def test_a_node_goes_on_after_an_image_was_made_of_it(made: Machine) -> None:
    containers = await made.prepared()
    clock = made.shared / "clock"
    script = f"n=0; while :; do n=$((n+1)); echo $n >{clock}; /bin/true; done"
    (one,) = instances(await containers.create([launch("n0", script)]))
    await eventually(clock.exists)
    for time in range(5):  # it starts a program at nearly all times
        await containers.snapshot(one, f"live-{time}")
        clock.unlink()
        await eventually(clock.exists)


async def test_no_image_is_made_of_a_node_that_has_ended(made: Machine) -> None:
    containers = await made.prepared()
    (one,) = instances(await containers.create([launch("n0", "exit 1")]))
    await until(containers, BLUE, lambda found: found[0].state is InstanceState.BROKEN)
    with pytest.raises(Rejected, match="runs no more"):
        await containers.snapshot(one, "late")
    assert list(await containers.images(BLUE)) == []


async def test_what_a_killed_snapshot_left_is_no_image(made: Machine) -> None:
    containers = await made.prepared()
    (one,) = instances(await containers.create([launch("n0")]))
    for name in (".half.new", ".other.new", ".half.gone", "half"):
        (made.directory(BLUE) / "images" / name / "layer").mkdir(parents=True)
    assert list(await containers.images(BLUE)) == []
    image = await containers.snapshot(one, "half")
    assert [each.id for each in await containers.images(BLUE)] == [image.id]
    assert left(made) == ["half"]


def left(made: Machine) -> list[str]:
    return sorted(one.name for one in (made.directory(BLUE) / "images").iterdir())


async def test_what_a_killed_daemon_left_of_images_goes_with_the_next_deploy_or_forget(
    made: Machine,
) -> None:
    containers = await made.prepared()
    (one,) = instances(await containers.create([launch("n0")]))
    image = await containers.snapshot(one, "whole")
    for name in (".half.new", ".whole.gone"):
        (made.directory(BLUE) / "images" / name / "layer").mkdir(parents=True)
    await containers.prepare(BLUE)
    assert left(made) == ["whole"]
    (made.directory(BLUE) / "images" / ".whole.gone" / "layer").mkdir(parents=True)
    await containers.forget(image)
    assert left(made) == []


async def test_a_full_disk_refuses_an_image_and_half_of_it_does_not_stay(made: Machine) -> None:
    containers = await made.prepared()
    done = made.shared / "full-done"
    script = say(done, "head -c 4M /dev/urandom >/opt/large")
    (one,) = instances(await containers.create([launch("n0", script)]))
    await read(done)
    (made.directory(BLUE) / "images").mkdir()
    with mounted("tmpfs", "size=1m", made.directory(BLUE) / "images"):
        with pytest.raises(Rejected, match="room"):
            await containers.snapshot(one, "large")
        assert left(made) == []


STOPPED, GOING, WITHIN = (f"8640{number}.{os.getpid()}" for number in (1, 2, 3))
"""How long processes sleep, by which they are found: no other run has the same."""


def states_of(argument: str) -> list[str]:
    return list(processes_of(argument).values())


def processes_of(argument: str) -> dict[int, str]:
    """Those that were started with this argument, with their states."""
    found = {}
    for path in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):
            if argument in (path / "cmdline").read_text(errors="replace").split("\0"):
                line = (path / "stat").read_text(errors="replace")
                found[int(path.name)] = line.rpartition(")")[2].split()[0]
    return found


async def test_what_stood_still_before_an_image_was_made_does_so_after(made: Machine) -> None:
    containers = await made.prepared()
    (one,) = instances(
        await containers.create([launch("n0", f"sleep {STOPPED} & sleep {GOING} & true")])
    )
    await eventually(lambda: states_of(STOPPED) == states_of(GOING) == ["S"])
    os.kill(next(iter(processes_of(STOPPED))), signal.SIGSTOP)
    await eventually(lambda: states_of(STOPPED) == ["T"])
    await containers.snapshot(one, "still")
    await eventually(lambda: states_of(GOING) == ["S"])
    assert states_of(STOPPED) == ["T"]


NESTED = f"unshare -p -f sleep {WITHIN} & true"
FREEZES = """
import sys, time
from pathlib import Path
from springtide.providers.containers.freeze import frozen
from springtide.providers.containers.instances import read_process
with frozen(read_process(Path(sys.argv[1])), Path(sys.argv[2])):
    print("still", flush=True)
    time.sleep(600)
"""


async def test_a_node_that_a_killed_daemon_left_standing_still_goes_on(made: Machine) -> None:
    """All of it stood still, also what has a namespace of its own."""
    containers = await made.prepared()
    await containers.create([launch("n0", NESTED)])
    await eventually(lambda: states_of(WITHIN) == ["S", "S"])
    directory = made.directory(BLUE)
    arguments = [str(directory / "instances" / "n0"), str(directory / "frozen" / "n0")]
    daemon = await asyncio.create_subprocess_exec(
        sys.executable, "-c", FREEZES, *arguments, stdout=subprocess.PIPE
    )
    try:
        assert daemon.stdout
        assert await daemon.stdout.readline() == b"still\n"
        await containers.list(BLUE)
        assert states_of(WITHIN) == ["T", "T"]
    finally:
        daemon.kill()
        await daemon.wait()
    await containers.list(BLUE)
    await eventually(lambda: states_of(WITHIN) == ["S", "S"])
    assert list((directory / "frozen").iterdir()) == []
