"""The first process of a libvirt of a test, in network, mount and pid namespaces of its own.

Started by `daemon`. It hides the machine's own libvirt behind the directories of the test, starts
virtlogd and libvirtd, and ends when its standard input does, that is with the test's process,
however that ends. With it ends every process of the namespaces, and so the namespaces themselves
with their links.

usage: init.py DIRECTORY
"""

import signal
import subprocess
import sys
from pathlib import Path

HIDDEN = ("/run", "/var/lib", "/var/cache", "/var/log")
"""Where libvirt keeps things without being asked."""
PLACES = {
    "run": "/run/libvirt",
    "lib": "/var/lib/libvirt",
    "cache": "/var/cache/libvirt",
    "log": "/var/log/libvirt",
    "etc": "/etc/libvirt",
}
USERS = {
    "/etc/passwd": "libvirt-qemu:x:64055:64055::/nonexistent:/usr/sbin/nologin\n",
    "/etc/group": "libvirt-qemu:x:64055:\n",
}
"""libvirtd does not start without, though its configuration has machines run as root."""
DAEMONS = ("virtlogd", "libvirtd")


def main(root: Path) -> None:
    take_places(root)
    for name in DAEMONS:
        with (root / "log" / f"{name}.out").open("wb") as out:
            subprocess.Popen(
                [f"/usr/sbin/{name}"], stdin=subprocess.DEVNULL, stdout=out, stderr=out
            )
    # Not before they are started, they would inherit it. Then the kernel reaps whoever is left to
    # us: libvirt waits until a machine that it stopped is no process any more.
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    print("started", flush=True)
    while sys.stdin.read(1):
        pass


def take_places(root: Path) -> None:
    for path in HIDDEN:
        run("mount", "-t", "tmpfs", "-o", "mode=755", "tide-test", path)
    for name, path in PLACES.items():
        (root / name).mkdir(exist_ok=True)
        Path(path).mkdir(exist_ok=True)
        run("mount", "--bind", str(root / name), path)
    for name, line in USERS.items():
        ours = root / Path(name).name
        ours.write_text(Path(name).read_text() + line)
        run("mount", "--bind", str(ours), name)
    # The old one shows the links of the other network namespace.
    run("mount", "-t", "sysfs", "sysfs", "/sys")
    run("ip", "link", "set", "lo", "up")


def run(*command: str) -> None:
    subprocess.run(command, check=True)


main(Path(sys.argv[1]))
