"""The control container: what it sees of this machine, and what is said of it."""

import os
from ipaddress import IPv4Network
from pathlib import Path
from threading import Event, Thread

import pytest

from springtide.cli import control_checks, controlled
from springtide.cli.endings import Complaint, Exit
from springtide.cli.subject import subject
from springtide.control import cable, container, inside, places
from springtide.layout import Layout
from springtide.ports import Rejected
from springtide.providers.containers.instances import Process, open_process
from springtide.providers.containers.locks import machine_lock
from springtide.providers.containers.site import Ground
from springtide.spec import Cluster, parse

STATE = Path("/var/lib/springtide/blue")
RUN, TMP, SHM = Path("/run"), Path("/tmp"), Path("/dev/shm")


def a_spec(state: Path = STATE, more: str = "") -> Cluster:
    return parse(f"cluster: blue\nstate: {state}\ncontrol: container\n{more}", "cluster.yaml")


def decide(
    writable: list[str], seen: tuple[str, ...] = (), mounted: tuple[str, ...] = ("/",)
) -> places.Places:
    paths = [[Path(text) for text in texts] for texts in (writable, seen, mounted)]
    return places.decide_places(*paths)


# --- what it sees ------------------------------------------------------------------------


def test_only_the_state_and_what_is_shared_can_be_written() -> None:
    found = decide(["/var/lib/springtide/blue", "/home"], mounted=("/", "/home", "/srv"))
    assert found.writable == (Path("/home"), STATE)
    assert found.read_only == (Path("/srv"),)


def test_the_kernel_s_file_systems_stay_as_they_are() -> None:
    found = decide([str(STATE)], mounted=("/", "/proc", "/sys/fs/cgroup", "/dev/pts", "/run/lock"))
    assert found.read_only == ()


def test_a_private_place_is_shared_where_something_needed_lies_in_it() -> None:
    private = decide([str(STATE)]).private
    assert {RUN, TMP, SHM} <= set(private)
    in_tmp = decide(["/tmp/try/state"])
    assert TMP not in in_tmp.private
    assert in_tmp.writable == (TMP, Path("/tmp/try/state"))
    assert TMP in decide([str(STATE)], seen=("/tmp/venv/lib",)).writable


def test_parents_are_mounted_before_what_lies_in_them() -> None:
    found = decide(["/srv/blue/state", "/srv", "/srv/blue"])
    assert found.writable == (Path("/srv"), Path("/srv/blue"), Path("/srv/blue/state"))


def test_mount_points_are_read_with_their_odd_characters() -> None:
    table = (
        "22 1 254:0 / / rw,relatime shared:1 - ext4 /dev/vda rw\n"
        "23 22 0:20 / /mnt/my\\040disk rw,noatime - ext4 /dev/vdb rw\n"
        "24 22 0:21 / /mnt/cd ro - iso9660 /dev/sr0 ro\n"
        "25 22 0:22 / /mnt/two\\012lines rw - ext4 /dev/vdc rw\n"
    )
    assert list(places.parse_mounts(table)) == [Path("/"), Path("/mnt/my disk")]


def test_the_directories_of_every_provider_are_shared() -> None:
    spec = a_spec(
        more="provider: {mounts: [/opt]}\n"
        'groups: {a: {nodes: "a[1-2]", provider: {kind: containers, mounts: [/srv]}}}\n'
    )
    assert places.shared_directories(spec) == [STATE, Path("/opt"), Path("/srv")]


def test_names_are_looked_up_in_its_own_hosts_file_only() -> None:
    switch = places.render_switch("passwd: files sss\nhosts: files dns\n  hosts: nis\n")
    assert switch == "passwd: files sss extrausers\nhosts: files\n"
    assert places.render_hosts("blue-control", "10.77.0.1").splitlines()[1] == (
        "10.77.0.1 blue-control"
    )


# --- its cable ---------------------------------------------------------------------------


def test_this_machine_has_the_last_address_of_the_subnet() -> None:
    ground = Ground("blue", "tide-1", IPv4Network("10.77.16.0/20"))
    assert str(cable.host_address(ground)) == "10.77.31.254"


def test_the_address_of_this_machine_is_never_given_to_a_node(tmp_path: Path) -> None:
    spec = a_spec(tmp_path, "provider: {subnet: 198.51.100.0/29}\n")
    for _ in range(2):
        cable.claim(spec, connected=False)
    taken = tmp_path / "containers" / "addresses" / "198.51.100.6"
    assert taken.is_symlink()
    taken.unlink()
    taken.symlink_to("n5")
    with pytest.raises(Rejected, match=r"a node has 198\.51\.100\.6"):
        cable.claim(spec, connected=False)


def test_a_dead_container_comes_back_elsewhere_if_others_have_its_subnet(tmp_path: Path) -> None:
    directory = tmp_path / "containers"
    (directory / "instances" / "n1").mkdir(parents=True)
    taken = '{"cluster": "blue", "bridge": "tide-1", "subnet": "127.0.8.0/24", "thresholds": []}'
    (directory / "site.json").write_text(taken)
    with pytest.raises(Rejected, match=r"127\.0\.8\.0/24 overlaps"):
        cable.claim(a_spec(tmp_path, "provider: {subnet: 127.0.8.0/24}\n"), connected=False)
    with machine_lock():  # or another cluster may come, and have it again
        ground = cable.claim(a_spec(tmp_path), connected=False)
        assert ground.subnet.subnet_of(IPv4Network("10.77.0.0/16"))
        assert not (directory / "instances").exists()
        assert cable.claim(a_spec(tmp_path), connected=False) == ground


def test_one_that_was_never_connected_moves_but_not_away_from_its_nodes(tmp_path: Path) -> None:
    directory = tmp_path / "containers"
    taken = '{"cluster": "blue", "bridge": "tide-1", "subnet": "127.0.8.0/24", "thresholds": []}'
    (directory / "instances" / "n1").mkdir(parents=True)
    (directory / "site.json").write_text(taken)
    with pytest.raises(Rejected, match=r"127\.0\.8\.0/24 overlaps"):
        cable.claim(a_spec(tmp_path), connected=True)
    (directory / "instances" / "n1").rmdir()
    ground = cable.claim(a_spec(tmp_path), connected=True)
    assert ground.subnet.subnet_of(IPv4Network("10.77.0.0/16"))


# --- who it is ---------------------------------------------------------------------------


def test_a_process_with_the_pid_of_a_dead_container_is_not_taken_for_it(tmp_path: Path) -> None:
    layout = Layout(tmp_path)
    layout.control.mkdir()
    boot = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    stat = Path("/proc/self/stat").read_text()
    named = layout.control / "process"
    named.write_text(f"{boot} {stat}ready\n")
    found = container.find(layout)
    assert found is not None
    assert found.pid == os.getpid()
    fields = stat.rsplit(")", 1)[1].split()
    fields[19] = str(int(fields[19]) + 1)
    named.write_text(f"{boot} {os.getpid()} (sh) {' '.join(fields)}\nready\n")
    assert container.find(layout) is None
    named.write_text(f"0000-another-boot {stat}ready\n")
    assert container.find(layout) is None


def test_a_thread_with_the_pid_of_a_dead_container_is_not_taken_for_it() -> None:
    boot = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    end = Event()
    thread = Thread(target=end.wait)
    thread.start()
    try:
        assert thread.native_id is not None
        assert open_process(Process(boot, thread.native_id, started=0, ready=True)) is None
    finally:
        end.set()
        thread.join()


# --- what is said ------------------------------------------------------------------------


def test_a_daemon_is_not_started_beside_its_container(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(inside.VARIABLE, raising=False)
    with pytest.raises(Complaint, match="start it with `tide deploy --cluster blue`"):
        controlled.refuse_outside(a_spec())
    monkeypatch.setenv(inside.VARIABLE, "container")
    controlled.refuse_outside(a_spec())


@pytest.mark.parametrize("there", ["here", "container"])
def test_control_does_not_move_while_the_cluster_stands(tmp_path: Path, there: str) -> None:
    layout = Layout(tmp_path)
    (layout.instances).mkdir()
    spec = a_spec(tmp_path)
    elsewhere = spec if there == "here" else spec.model_copy(update={"control": "here"})
    controlled.refuse_move(elsewhere)
    (layout.instances / "site.json").write_text(
        '{"cluster": "blue", "bridge": "tide-1", "subnet": "10.77.0.0/20", "thresholds": []}'
    )
    if there == "container":
        layout.control.mkdir()
    with pytest.raises(Complaint, match=f"set `control: {there}`, or destroy it first") as told:
        controlled.refuse_move(elsewhere)
    assert told.value.code == Exit.WRONG


def test_check_says_where_control_is_before_there_is_any(tmp_path: Path) -> None:
    spec = a_spec(tmp_path)
    [check] = control_checks.look_at_control(subject(spec))
    assert (check.ok, check.text) == (None, "container blue-control is not there yet")
    here = spec.model_copy(update={"control": "here"})
    [check] = control_checks.look_at_control(subject(here))
    assert (check.ok, check.text) == (True, "on this machine itself")
