"""Files of settings that an image has, and of which only some lines are ours: a pbs_mom's."""

import subprocess
from pathlib import Path

import pytest

from springtide.batch import openpbs_mom, torque_mom
from springtide.compose_queue import queue_of
from springtide.configure.queue_node import part_of
from springtide.node import entry as entries
from springtide.node.system import render_settings
from springtide.ports import Entry, Settings
from springtide.spec import parse

OURS = ("$pbsserver head", "$pbsserver spare")
COPIED = ("$usecp *:/home /home", "$usecp *:/my data /my data")
BLOCK = """\
# springtide: begin
$pbsserver head
$pbsserver spare
{}# springtide: end
"""
BARE = BLOCK.format("")
FULL = BLOCK.format("".join(f"{line}\n" for line in COPIED))
CASES = {
    "an image that has none": ("", FULL),
    "what the image has stays": (
        "$max_load 4\n  $node_check_script /x\n# $usecp no\n\n$pbsserverx a\n",
        f"{FULL}$max_load 4\n  $node_check_script /x\n# $usecp no\n\n$pbsserverx a\n",
    ),
    "another server than ours": ("$pbsserver old\n\t$pbsserver\told\nlast", f"{FULL}last\n"),
    "a way to copy of its own": ("$usecp *:/x /y\n", f"{BARE}$usecp *:/x /y\n"),
    "of an earlier boot": (f"{BARE}$max_load 4\n", f"{FULL}$max_load 4\n"),
}


@pytest.mark.parametrize(("text", "wanted"), CASES.values(), ids=CASES)
def test_only_our_lines_are_replaced(tmp_path: Path, text: str, wanted: str) -> None:
    """By the agent of nodes that join, and by the boot script of others."""
    assert render_settings(text, OURS, COPIED) == wanted
    assert render_settings(wanted, OURS, COPIED) == wanted, "and again at the next boot"
    path = tmp_path / "mom priv" / "config"
    if text:
        path.parent.mkdir()
        path.write_text(text)
    script = entries.render_prepare(
        part_of(Entry(("true",), settings={path: Settings(OURS, COPIED)}))
    )
    for _ in range(2):
        subprocess.run(["sh", "-eu", "-c", script], check=True)
        assert path.read_text() == wanted
    assert [one.name for one in path.parent.iterdir()] == ["config"]


def only(entry: Entry) -> Settings:
    ((path, settings),) = entry.settings.items()
    assert path.match("mom_priv/config")
    assert path not in entry.files
    return settings


def test_a_pbs_mom_keeps_what_its_image_says(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PBS_CONF_FILE", "/nowhere/pbs.conf")
    shared = [Path("/home")]
    copied = ("$usecp *:/home /home",)
    torque = torque_mom.pbs_mom(None, "head,spare:15001", "", shared)
    assert only(torque) == Settings(("$pbsserver head", "$pbsserver spare:15001"), copied)
    assert torque.servers == ("head", "spare")
    openpbs = openpbs_mom.pbs_mom("n1", "head:15001", "", shared)
    assert only(openpbs) == Settings(("$clienthost head",), copied)
    assert openpbs.servers == ("head",)


@pytest.mark.parametrize("kind", ["torque", "openpbs"])
@pytest.mark.parametrize(
    ("more", "paths"),
    [
        ("shared: [{path: /home}, {path: /data, source: 'nas:/d'}]\n", ["/home", "/data"]),
        (
            "provider: {kind: containers, mounts: [/srv/x]}\nshared: [{path: /d}]\n",
            ["/srv/x", "/d"],
        ),
        ("", []),
    ],
)
def test_output_of_jobs_is_copied_within_shared_filesystems(
    kind: str, more: str, paths: list[str]
) -> None:
    text = f"""\
cluster: hy
batch: {{kind: {kind}}}
groups: {{g: {{nodes: "c[1-2]"}}}}
partitions: {{cloud: {{groups: [g]}}}}
{more}"""
    entry = queue_of(parse(text, "cluster.yaml")).entry("c1")
    assert only(entry).defaults == tuple(f"$usecp *:{path} {path}" for path in paths)
