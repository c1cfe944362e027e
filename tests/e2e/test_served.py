"""The servers that nodes elsewhere need on the control host: real ones, on loopback addresses."""

import asyncio
import os
import shutil
import socket
import subprocess
import tempfile
import threading
from collections.abc import Iterator, Mapping
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from springtide.batch import slurm_service
from springtide.configure.names import names_of
from springtide.layout import Layout
from springtide.model import Node
from springtide.ports import Site, Unavailable
from springtide.served import kernel
from springtide.served.configurator import Served
from springtide.served.kernel import KernelExports
from springtide.served.names import Names
from springtide.served.nfs import Ganesha
from springtide.spec import Cluster, parse
from tests.e2e import ask
from tests.e2e.real import until
from tests.leftovers import owned

pytestmark = [pytest.mark.real, pytest.mark.timeout(300)]

HERE = "127.0.8.20"
SITE = Site(HERE)
PORT = 17127
SPEC = f"""
cluster: served
state: ROOT/s
provider: {{kind: command, control_address: {HERE}, list: [x], create: [x], delete: [x]}}
groups: {{general: {{nodes: "n[1-4]"}}}}
shared:
  - {{path: /data, source: ROOT/data}}
  - {{path: /ro, source: ROOT/ro, options: [ro]}}
nfs: {{server: ganesha, port: {PORT}}}
naming: {{forward: [127.0.8.21]}}
"""


@pytest.fixture
def root() -> Iterator[Path]:
    made = Path(tempfile.mkdtemp(prefix="tide-", dir="/var/tmp"))
    made.chmod(0o755)
    for name in ("data", "ro"):
        (made / name).mkdir()
        (made / name / "word").write_text(f"{name} of springtide\n")
    with owned(made):
        yield made
    shutil.rmtree(made)


def spec_of(root: Path, *changes: tuple[str, str]) -> Cluster:
    text = SPEC.replace("ROOT", str(root))
    for old, new in changes:
        assert old in text
        text = text.replace(old, new)
    return parse(text, "cluster.yaml")


# Names


@pytest.fixture
def names(root: Path) -> Iterator[Names]:
    made = Names(spec_of(root), "head")
    try:
        yield made
    finally:
        made.stop()


@pytest.mark.accepts("C14", "N16")
def test_names_of_nodes_come_change_and_go(names: Names) -> None:
    names.serve(SITE, {"n1": "10.0.0.5", "n2": "10.0.0.6"})
    assert ask.addresses(HERE, "n1") == ask.addresses(HERE, "n1.served") == ["10.0.0.5"]
    assert ask.names(HERE, "10.0.0.6") == ["n2"]
    assert ask.addresses(HERE, "head") == [HERE]

    names.serve(SITE, {"n2": "10.0.0.9", "n3": "10.0.0.7"})
    until(lambda: ask.addresses(HERE, "n2") == ["10.0.0.9"])
    until(lambda: ask.addresses(HERE, "n3.served") == ["10.0.0.7"])
    until(lambda: ask.addresses(HERE, "n1") == [])
    assert ask.names(HERE, "10.0.0.9") == ["n2"]


def test_a_name_that_no_node_has_is_answered_at_once(names: Names) -> None:
    names.serve(SITE, {})
    assert ask.addresses(HERE, "nobody") == []
    assert ask.addresses(HERE, "nobody.served") == []


@pytest.mark.accepts("C14", "N16")
def test_short_names_of_the_site_are_known_too(names: Names, root: Path) -> None:
    """As on a node that joined, whose resolver asks here and looks in the site's domain."""
    site = ["--listen-address=127.0.8.21", "--address=/nas.site.example/10.0.0.77"]
    options = ["--keep-in-foreground", "--bind-interfaces", "--no-resolv", "--no-hosts"]
    files = ["--conf-file=/dev/null", "--pid-file="]
    told = names_of(spec_of(root), [], HERE, {}, ["site.example"])
    resolver = root / "resolv.conf"
    resolver.write_text(f"search {' '.join(told['search'])}\nnameserver {told['nameserver']}\n")
    command = "mount --bind $0 /etc/resolv.conf && exec getent ahostsv4 nas"
    with subprocess.Popen(["dnsmasq", *options, *files, *site]) as server:
        try:
            names.serve(SITE, {"n1": "10.0.0.5"})
            until(lambda: ask.addresses(HERE, "nas.site.example") == ["10.0.0.77"])
            node = ["unshare", "--mount", "sh", "-ec", command, str(resolver)]
            found = until(lambda: printed(node))  # a resolver does not ask for long
        finally:
            server.terminate()
    assert found.split()[0] == "10.0.0.77"


def printed(command: list[str]) -> str:
    return subprocess.run(command, capture_output=True, text=True, check=False).stdout


def test_a_file_among_the_names_that_is_no_text_is_replaced(names: Names, root: Path) -> None:
    names.serve(SITE, {"n1": "10.0.0.5"})
    odd = Layout(root / "s").naming / "hosts" / "n2"
    odd.write_bytes(b"\xff\xfe")
    Names(spec_of(root), "head").serve(SITE, {"n1": "10.0.0.5"})
    assert not odd.exists()


def test_names_outlive_the_daemon_and_only_changes_are_written(names: Names, root: Path) -> None:
    names.serve(SITE, {"n1": "10.0.0.5", "n2": "10.0.0.6"})
    after = Names(spec_of(root), "head")
    after.serve(SITE, None)
    assert ask.addresses(HERE, "n1") == ["10.0.0.5"]
    assert after.write({"n1": "10.0.0.5", "n2": "10.0.0.9", "head": HERE}) == 1


def test_a_name_server_that_died_is_started_again(names: Names, root: Path) -> None:
    names.serve(SITE, {"n1": "10.0.0.5"})
    process = int((Layout(root / "s").run / "dnsmasq.pid").read_text())
    os.kill(process, 9)
    until(lambda: slurm_service.find(names._server.service) is None)
    names.serve(SITE, {"n1": "10.0.0.5"})
    assert ask.addresses(HERE, "n1") == ["10.0.0.5"]


def test_a_name_server_is_started_anew_if_it_must_ask_others(names: Names, root: Path) -> None:
    names.serve(SITE, {"n1": "10.0.0.5"})
    pid = (Layout(root / "s").run / "dnsmasq.pid").read_text()
    other = Names(spec_of(root, ("127.0.8.21", "127.0.8.22")), "head")
    other.serve(SITE, None)
    assert (Layout(root / "s").run / "dnsmasq.pid").read_text() != pid
    assert ask.addresses(HERE, "n1") == ["10.0.0.5"]


def test_nobody_serves_names_that_nodes_do_not_ask_for(names: Names, root: Path) -> None:
    names.serve(SITE, {})
    Names(spec_of(root, ("naming: {", "naming: {kind: hosts, ")), "head").serve(SITE, {})
    assert not names._server.running


def test_a_port_that_is_taken_is_told_with_what_to_do(names: Names) -> None:
    with closing(socket.create_server((HERE, 53))), pytest.raises(Unavailable) as refused:
        names.serve(SITE, {})
    assert str(refused.value) == (
        f"port 53 of {HERE} is taken by another program, so dnsmasq cannot start; "
        "stop that program, or set `naming: {kind: hosts}`"
    )


def test_an_address_that_is_not_this_machines_is_told_with_what_to_do(root: Path) -> None:
    elsewhere = Names(spec_of(root, (HERE, "192.0.2.77")), "head")
    with pytest.raises(Unavailable, match=r"192\.0\.2\.77 is no address of this machine") as told:
        elsewhere.serve(SITE, {})
    assert "set join.listen" in str(told.value)


# Files


@pytest.fixture
def ganesha(root: Path) -> Iterator[Ganesha]:
    made = Ganesha(spec_of(root))
    try:
        yield made
    finally:
        made.stop()


def read_over_nfs(path: Path, *before: str) -> str:
    """With NFS 4.0 and no help of the kernel; empty if the server does not let us."""
    url = f"nfs://{HERE}{path}?version=4&nfsport={PORT}"
    command = [*before, "nfs-cat", url]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    return done.stdout


@pytest.mark.accepts("N7")
def test_nodes_read_shared_files_over_nfs_as_long_as_they_are_there(
    ganesha: Ganesha, root: Path
) -> None:
    word = root / "data" / "word"
    ganesha.serve(SITE, None)
    assert read_over_nfs(word) == ""
    pid = (Layout(root / "s").run / "ganesha.pid").read_text()

    ganesha.serve(SITE, {"n1": "127.0.0.1", "n2": "10.0.0.6"})
    until(lambda: read_over_nfs(word) == "data of springtide\n")
    until(lambda: read_over_nfs(root / "ro" / "word") == "ro of springtide\n")
    (root / "data" / "later").write_text("written here\n")
    assert read_over_nfs(root / "data" / "later") == "written here\n"

    ganesha.serve(SITE, {"n2": "10.0.0.6"})
    until(lambda: read_over_nfs(word) == "")
    assert (Layout(root / "s").run / "ganesha.pid").read_text() == pid


def test_a_user_of_a_node_cannot_ask_the_server_as_somebody_else(
    ganesha: Ganesha, root: Path
) -> None:
    """Whoever is not root has no port below 1024, and could claim any uid from another."""
    word = root / "data" / "word"
    ganesha.serve(SITE, {"n1": "127.0.0.1"})
    until(lambda: read_over_nfs(word) == "data of springtide\n")
    job = ("setpriv", "--reuid=12345", "--regid=12345", "--clear-groups")
    assert read_over_nfs(word, *job) == ""


def test_an_nfs_server_goes_on_without_the_daemon_and_with_what_it_knew(
    ganesha: Ganesha, root: Path
) -> None:
    ganesha.serve(SITE, {"n1": "127.0.0.1"})
    pid = (Layout(root / "s").run / "ganesha.pid").read_text()
    Ganesha(spec_of(root)).serve(SITE, None)
    assert (Layout(root / "s").run / "ganesha.pid").read_text() == pid
    until(lambda: read_over_nfs(root / "data" / "word") == "data of springtide\n")


def test_an_nfs_server_is_told_what_a_daemon_that_was_killed_had_only_written(
    ganesha: Ganesha, root: Path
) -> None:
    ganesha.serve(SITE, {"n2": "10.0.0.6"})
    conf = Layout(root / "s").nfs / "ganesha.conf"
    conf.write_text(conf.read_text().replace("10.0.0.6", "127.0.0.1"))
    Ganesha(spec_of(root)).serve(SITE, {"n1": "127.0.0.1"})
    until(lambda: read_over_nfs(root / "data" / "word") == "data of springtide\n")


def test_a_server_runs_on_if_the_daemon_ends_while_it_waits_for_it(
    ganesha: Ganesha, root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    start = slurm_service.start

    def killed(*about: Any) -> None:
        start(*about)
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(slurm_service, "start", killed)
        with pytest.raises(KeyboardInterrupt):
            ganesha.serve(SITE, {"n1": "127.0.0.1"})
    pid = (Layout(root / "s").run / "ganesha.pid").read_text()
    Ganesha(spec_of(root)).serve(SITE, None)
    assert (Layout(root / "s").run / "ganesha.pid").read_text() == pid


def test_an_nfs_server_that_is_no_longer_wanted_is_stopped(ganesha: Ganesha, root: Path) -> None:
    ganesha.serve(SITE, {})
    assert ganesha._server.running
    Ganesha(spec_of(root, ("server: ganesha", "server: none"))).serve(SITE, {})
    assert not ganesha._server.running


def test_a_directory_that_is_missing_is_named(ganesha: Ganesha, root: Path) -> None:
    shutil.rmtree(root / "ro")
    with pytest.raises(Unavailable, match=f"{root}/ro is no directory"):
        ganesha.serve(SITE, {})


# Around the configurator of nodes


class Nodes:
    """Nodes that need nothing else."""

    async def prepare(self, site: Site) -> None: ...

    async def publish(self, site: Site, addresses: Mapping[str, str]) -> None: ...

    async def install(self) -> None: ...

    def user_data(self, node: Node, site: Site) -> str:
        return ""


async def test_what_died_is_started_again_and_all_ends_with_the_cluster(
    names: Names, ganesha: Ganesha, root: Path
) -> None:
    served = Served(Nodes(), (names, ganesha))
    await served.prepare(SITE)
    await served.publish(SITE, {"n1": "127.0.0.1"})
    for name in ("dnsmasq", "ganesha"):
        os.kill(int((Layout(root / "s").run / f"{name}.pid").read_text()), 9)
    until(lambda: not names._server.running and not ganesha._server.running)

    await served.tend(SITE, {"n1": "127.0.0.1"})
    assert ask.addresses(HERE, "n1") == ["127.0.0.1"]
    until(lambda: read_over_nfs(root / "data" / "word") == "data of springtide\n")
    await served.stop()
    assert not names._server.running
    assert not ganesha._server.running


async def test_files_are_served_though_names_cannot_be_and_both_are_stopped(
    names: Names, ganesha: Ganesha, root: Path
) -> None:
    served = Served(Nodes(), (names, ganesha))
    shutil.rmtree(root / "ro")
    with closing(socket.create_server((HERE, 53))), pytest.raises(Unavailable) as told:
        await served.publish(SITE, {"n1": "127.0.0.1"})
    assert "port 53" in str(told.value)
    assert f"{root}/ro is no directory" in str(told.value)
    (root / "ro").mkdir()
    with closing(socket.create_server((HERE, 53))), pytest.raises(Unavailable, match="port 53"):
        await served.publish(SITE, {"n1": "127.0.0.1"})
    assert ganesha._server.running
    await served.stop()
    assert not ganesha._server.running


async def test_who_asks_next_waits_for_a_server_whose_asker_has_left() -> None:
    began, go, order = threading.Event(), threading.Event(), list[str]()

    class Slow:
        def serve(self, site: Site, addresses: Mapping[str, str] | None) -> None:
            began.set()
            assert go.wait(60)
            order.append("served")

        def stop(self, for_good: bool = True) -> None:
            order.append("stopped")

    served = Served(Nodes(), (Slow(),))
    first = asyncio.create_task(served.tend(SITE, {}))
    await asyncio.to_thread(began.wait, 60)
    first.cancel()
    await asyncio.gather(first, return_exceptions=True)
    last = asyncio.create_task(served.stop())
    await asyncio.sleep(0)
    go.set()
    await last
    assert order == ["served", "stopped"]


# The kernel's server, which is the site's: exportfs is a program that writes down what it is told


@pytest.fixture
def told(root: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    program = root / "bin" / "exportfs"
    program.parent.mkdir()
    program.write_text(f'#!/bin/sh\necho "$*" >>{root}/told\n')
    program.chmod(0o755)
    monkeypatch.setattr(kernel, "PATH", f"{program.parent}:/usr/bin:/bin")
    return root / "told"


def test_the_kernels_server_is_told_of_changed_nodes_alone(root: Path, told: Path) -> None:
    place = root / "exports.d"
    exports = KernelExports(spec_of(root, ("server: ganesha", "server: kernel")), place)
    exports.serve(SITE, {"n1": "10.0.0.5", "n2": "10.0.0.6"})
    exports.serve(SITE, {"n1": "10.0.0.5", "n3": "10.0.0.7"})
    exports.serve(SITE, {"n1": "10.0.0.5", "n3": "10.0.0.7"})
    exports.stop()
    options = "sync,root_squash,no_subtree_check"
    assert told.read_text().splitlines() == [
        "-r",
        f"-o ro,{options} 10.0.0.7:{root}/ro",
        f"-o rw,{options} 10.0.0.7:{root}/data",
        f"-u 10.0.0.6:{root}/data 10.0.0.6:{root}/ro",
        f"-u 10.0.0.5:{root}/data 10.0.0.7:{root}/data 10.0.0.5:{root}/ro 10.0.0.7:{root}/ro",
    ]
    assert list(place.iterdir()) == []


def test_what_is_exported_no_more_need_not_be_unexported(root: Path, told: Path) -> None:
    program = root / "bin" / "exportfs"
    spec = spec_of(root, ("server: ganesha", "server: kernel"))
    exports = KernelExports(spec, root / "exports.d")
    exports.serve(SITE, {"n1": "10.0.0.5"})
    program.write_text(
        "#!/bin/sh\necho \"exportfs: Could not find '$2' to unexport.\" >&2\nexit 1\n"
    )
    exports.serve(SITE, {})
    program.write_text("#!/bin/sh\necho 'exportfs: no such option' >&2\nexit 1\n")
    with pytest.raises(Unavailable, match="exportfs says: exportfs: no such option"):
        exports.serve(SITE, {"n1": "10.0.0.5"})
    program.write_text(f'#!/bin/sh\necho "$*" >>{told}\n')
    told.unlink()
    exports.serve(SITE, {"n1": "10.0.0.5"})
    assert told.read_text() == "-r\n"


def test_what_could_not_be_unexported_is_tried_again(root: Path, told: Path) -> None:
    program, place = root / "bin" / "exportfs", root / "exports.d"
    exports = KernelExports(spec_of(root, ("server: ganesha", "server: kernel")), place)
    exports.serve(SITE, {"n1": "10.0.0.5"})
    program.write_text("#!/bin/sh\necho 'exportfs: busy' >&2\nexit 1\n")
    with pytest.raises(Unavailable, match="busy"):
        exports.stop()
    program.write_text(f'#!/bin/sh\necho "$*" >>{told}\n')
    exports.stop()
    assert told.read_text().splitlines()[-1].startswith("-u 10.0.0.5:")
    assert list(place.iterdir()) == []


def test_a_kernel_server_that_is_missing_is_told_with_what_to_do(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(kernel, "PATH", str(root / "nothing"))
    spec = spec_of(root, ("server: ganesha", "server: kernel"))
    with pytest.raises(Unavailable, match="install and start nfs-kernel-server"):
        KernelExports(spec, root / "exports.d").serve(SITE, {})
