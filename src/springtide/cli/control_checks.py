"""Where control of a cluster runs, and whether a container can be had for it. For `checks`."""

import os
import tempfile
from collections.abc import Iterable

from springtide.batch import slurm_text
from springtide.cli.subject import Check, Subject, run
from springtide.control import cable, container
from springtide.providers.containers import links, site

TRY_CONTAINER = """\
mount --rbind "$1" "$1"
mount -t sysfs sysfs "$1"
umount "$1"
mount -t proc proc /proc
mount -o remount,bind,ro /
exec unshare -n -m -u -p -i -f sh -ec "$2" sh "$1"
"""
"""What the container is made of, and what a node is made of within it."""


def look_at_control(subject: Subject) -> Iterable[Check]:
    """Where it runs; of a container, whether it lives and this machine reaches it."""
    if subject.spec.control == "here":
        yield Check("control", True, "on this machine itself")
        return
    layout, name = subject.daemon.layout, container.host_name(subject.spec.cluster)
    if os.geteuid() != 0:
        yield Check("control", None, f"only root can look at container {name}", "run it as root")
        return
    process, ground = container.find(layout), site.read_ground(layout.instances)
    if ground is None:
        yield Check("control", None, f"container {name} is not there yet", subject.deploy)
    elif process is None:
        yield Check("control", False, f"container {name} is dead", subject.deploy)
    elif not links.exists(ground.bridge):
        text = f"link {ground.bridge} is gone, so this machine does not reach container {name}"
        yield Check("control", False, text, subject.deploy)
    else:
        address = cable.host_address(ground)
        text = f"in container {name} (process {process.pid}), to which this machine is {address}"
        yield Check("control", True, text)


def try_container(subject: Subject, within: str) -> Iterable[Check]:
    """By trying, as for nodes: `within` is a script of what a node needs."""
    if subject.spec.control == "here" or os.geteuid() != 0:
        return
    with tempfile.TemporaryDirectory() as place:
        command = ["unshare", "-n", "-m", "-u", "-p", "-i", "-f", "sh", "-ec", TRY_CONTAINER, "sh"]
        done = run([*command, place, within])
    if done.returncode == 0:
        yield Check("control container", True, "the kernel allows nodes within a container")
    else:
        text = slurm_text.error_text(done.stderr) or f"exit code {done.returncode}"
        todo = "it needs a kernel (or an outer container) that allows this, or `control: here`"
        yield Check("control container", False, text, todo)
