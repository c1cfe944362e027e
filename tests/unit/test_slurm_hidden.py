"""Nodes that Slurm hides while they are off, with a scontrol that shows what it is told to."""

from pathlib import Path

import pytest

from springtide.batch.slurm import Slurm
from springtide.batch.slurm_control import Control
from springtide.batch.slurm_reason import SLURM
from springtide.layout import Layout
from springtide.ports import OURS, UNREADY, Power
from springtide.spec import parse

SCONTROL = """\
#!/bin/sh
case $* in
*show*) cat {home}/nodes ;;
*) echo "$*" >>{home}/calls ;;
esac
"""
SLURMCTLD = "#!/bin/sh\necho slurm-wlm 22.05.8\n"
"""Newer ones hide nothing."""


class Place:
    """A Slurm that hides c[1-3] unless they are shown."""

    def __init__(self, home: Path, monkeypatch: pytest.MonkeyPatch, hide: str) -> None:
        self.home = home
        text = f"cluster: blue\nstate: {home}/state\nbatch: {{hide_off: {hide}}}\n"
        cluster = parse(f"{text}groups: {{general: {{nodes: 'c[1-3]'}}}}\n", "cluster.yaml")
        conf = Layout(cluster.state).conf / "slurm.conf"
        conf.parent.mkdir(parents=True)
        conf.write_text("ClusterName=blue\n")
        for name, text in (("scontrol", SCONTROL.format(home=home)), ("slurmctld", SLURMCTLD)):
            (home / name).write_text(text)
            (home / name).chmod(0o755)
        monkeypatch.setenv("PATH", f"{home}:/usr/bin:/bin")
        monkeypatch.setattr(Control, "silent", lambda self: [])
        self.cluster = cluster
        self.slurm = Slurm(cluster)
        self.show()

    def show(self, **states: str) -> None:
        lines = (f"NodeName={name} State={state}\n" for name, state in states.items())
        (self.home / "nodes").write_text("".join(lines))

    @property
    def asked(self) -> list[str]:
        calls = self.home / "calls"
        return calls.read_text().splitlines() if calls.exists() else []


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Place:
    return Place(tmp_path, monkeypatch, "true")


async def test_we_drain_nothing_that_slurm_hides_or_will_hide(place: Place) -> None:
    place.show(c1="IDLE+CLOUD+POWERING_DOWN", c2="IDLE+CLOUD+POWER_DOWN")
    await place.slurm.drain(["c1", "c2", "c3"], "the provider is full")
    assert place.asked == []
    place.show(c1="IDLE+CLOUD")
    await place.slurm.drain(["c1"], "shrink")
    assert place.asked == ["update nodename=c1 state=drain reason=springtide: shrink"]


@pytest.mark.accepts("E3")
@pytest.mark.parametrize("restarted", [False, True])
async def test_a_hidden_node_is_drained_until_it_is_set_up(place: Place, restarted: bool) -> None:
    """Also a daemon that was started meanwhile, and sees nothing of the drain, ends it."""
    await place.slurm.drain(["c1"], UNREADY)
    assert place.asked == [f"update nodename=c1 state=drain reason=springtide: {UNREADY}"]
    slurm = Slurm(place.cluster) if restarted else place.slurm
    await slurm.undrain(["c1"], None)
    assert place.asked[1:] == ["update nodename=c1 state=idle"]


async def test_a_drain_that_slurm_forgot_the_reason_of_is_ours_if_we_know_it(place: Place) -> None:
    place.show(c1="IDLE+CLOUD+DRAIN", c2="IDLE+CLOUD+DRAIN Reason=disk [ada@x]")
    await place.slurm.drain(["c1", "c2"], "shrink")
    assert place.asked == []
    await place.slurm.drain(["c1", "c2"], UNREADY)
    assert place.asked == [f"update nodename=c1 state=drain reason=springtide: {UNREADY}"]


async def test_what_slurm_shows_while_it_is_off_is_held_back(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    place = Place(tmp_path, monkeypatch, "false")
    place.show(c1="IDLE+CLOUD+POWERING_DOWN", c2="IDLE+CLOUD+POWERED_DOWN")
    await place.slurm.drain(["c1", "c2"], "full")
    assert place.asked == ["update nodename=c[1-2] state=drain reason=springtide: full"]


@pytest.mark.parametrize("looked", [False, True])
async def test_our_drain_of_a_node_that_went_is_known_and_ended(place: Place, looked: bool) -> None:
    place.show(c1="IDLE+CLOUD")
    await place.slurm.drain(["c1"], "shrink")
    if looked:
        place.show(c1="IDLE+CLOUD+DRAIN+POWERING_DOWN Reason=springtide: shrink [root@x]")
        await place.slurm.nodes()
    place.show()
    node = (await place.slurm.nodes())["c1"]
    assert (node.drained, node.owner, node.power) == (True, OURS, Power.DOWN)
    await place.slurm.undrain(["c1", "c2"])
    assert place.asked[1:] == ["update nodename=c1 state=idle"]
    assert not (await place.slurm.nodes())["c1"].drained


@pytest.mark.accepts("X9")
async def test_a_persons_drain_of_a_hidden_node_is_ended_by_that_person_only(place: Place) -> None:
    await place.slurm.drain(["c1"], "bad fan", "alice")
    await place.slurm.undrain(["c1"])
    await place.slurm.undrain(["c1"], SLURM)
    assert place.asked == ["update nodename=c1 state=drain reason=bad fan (by alice)"]
    node = (await place.slurm.nodes(["c1"]))["c1"]
    assert (node.drained, node.owner, node.reason) == (True, "alice", "bad fan")
    await place.slurm.undrain(["c1"], "alice")
    assert place.asked[1:] == ["update nodename=c1 state=idle"]


async def test_a_drain_that_ended_while_the_node_was_shown_is_forgotten(place: Place) -> None:
    place.show(c1="IDLE+CLOUD+DRAIN Reason=springtide: shrink")
    await place.slurm.nodes()
    place.show(c1="IDLE+CLOUD")
    await place.slurm.nodes()
    place.show()
    assert not (await place.slurm.nodes())["c1"].drained


async def test_whoever_ends_anybodys_drain_ends_one_that_nobody_could_see(place: Place) -> None:
    await place.slurm.undrain(["c1", "c2"], None)
    assert place.asked == ["update nodename=c[1-2] state=idle"]
