"""Nodes from a Terraform module, with the real program and its builtin provider."""

import json
import os
import shutil
import subprocess
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path

import pytest

from springtide.ports import (
    CloudError,
    Denied,
    Instance,
    NoCapacity,
    Provider,
    QuotaExceeded,
    Rejected,
    Throttled,
    Transient,
)
from springtide.providers.cloud import Catalog
from springtide.providers.terraform import messages, parts, provider
from springtide.spec import Flavor, Image
from springtide.spec.clouds import Terraform
from tests.providers.conformance import Conformance
from tests.providers.world import (
    BLUE,
    World,
    delete_until_gone,
    instances,
    launch,
    prepared,
    running,
    until,
)

MODULE = Path(__file__).parent / "module"
WORDS: Mapping[type[CloudError], str] = {
    NoCapacity: "InsufficientInstanceCapacity: no room for it",
    QuotaExceeded: "Quota exceeded for instances",
    Denied: "UnauthorizedOperation: you may not",
    Throttled: "RequestLimitExceeded: slow down",
    Rejected: "Invalid value: that is nothing",
}
PROGRAM = """\
#!/bin/sh
# Counts runs, and loses the answer of one if it is told to.
echo "$1" >>{root}/calls
{terraform} "$@"
code=$?
case "$*" in
*-target*) ! rm {root}/lose 2>/dev/null || {{ echo "the line broke" >&2; exit 9; }} ;;
esac
exit $code
"""


@dataclass
class Place:
    """A module with its state, and what daemons noted."""

    root: Path
    events: list[tuple[str, Mapping[str, str] | None, str]] = field(default_factory=list)

    def home(self, cluster: str) -> Path:
        home = self.root / "machines" / cluster
        home.mkdir(parents=True, exist_ok=True)
        return home

    def open(self, cluster: str, **changes: object) -> Provider:
        self.home(cluster)
        keys = {
            "module": self.root / "module",
            "resource": "module.node",
            "program": str(self.root / "terraform"),
            "refresh": 0.3,
            "timeout": 300,
            "control_address": "127.0.0.1",
        }
        wanted = Terraform.model_validate({**keys, **changes})
        catalog = Catalog(
            {"host": Image(id="image-a"), "other": Image(id="image-b")},
            {"default": Flavor(cpus=1, memory=512, type="tiny")},
        )
        return provider(wanted, catalog, self.root / "state" / cluster, self._note)

    async def _note(self, what: str, nodes: Mapping[str, str] | None, detail: str) -> None:
        self.events.append((what, nodes, detail))

    def calls(self) -> list[str]:
        return (self.root / "calls").read_text().split()

    def said(self, node: str) -> str | None:
        path = self.home(BLUE) / node / "said"
        return path.read_text().strip() if path.exists() else None

    def refuse(self, kind: type[CloudError]) -> None:
        (self.root / "machines" / "refuse").write_text(WORDS[kind])


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Place:
    terraform = shutil.which("terraform") or shutil.which("tofu")
    if terraform is None:
        pytest.skip("there is neither terraform nor tofu, and nothing stands in for them")
    shutil.copytree(MODULE, tmp_path / "module")
    (tmp_path / "calls").touch()
    program = tmp_path / "terraform"
    program.write_text(PROGRAM.format(root=tmp_path, terraform=terraform))
    program.chmod(0o755)
    monkeypatch.setenv("TF_VAR_root", str(tmp_path / "machines"))
    monkeypatch.delenv("TF_CLI_CONFIG_FILE", raising=False)
    return Place(tmp_path)


@pytest.fixture
def world(place: Place) -> World:
    return World(
        open=place.open,
        spoil=lambda one: replace(one, image="no-such-image"),
        says=lambda node, word: f"echo {word}\n",
        said=place.said,
        kill=lambda one: (place.home(BLUE) / one.node / "dead").touch(),
        other_image="other",
        dates_boots=False,
        refuse=place.refuse,
        refusals=tuple(WORDS),
        lose_reply=lambda: (place.root / "lose").touch(),
        calls=lambda: len(place.calls()),
        many=100,
        batch=1000,
    )


@pytest.mark.accepts("C30")
class TestTerraform(Conformance):
    """All of it, with the real program."""


@pytest.mark.accepts("E6")
async def test_only_the_asked_nodes_are_touched_when_the_image_has_changed_for_all(
    place: Place, world: World
) -> None:
    blue = await prepared(world, BLUE)
    await blue.create([launch(world, BLUE, "n0"), launch(world, BLUE, "n1")])
    before = await running(blue, BLUE, 2)
    (place.root / "module" / "node" / "more.tf").write_text(
        'resource "terraform_data" "more" {\n  input = var.name\n}\n'
    )
    await blue.create([replace(launch(world, BLUE, "n2"), image="other")])
    after = await running(blue, BLUE, 3)
    assert list(after[:2]) == list(before)
    assert after[2].image == "other"
    state = place.root / "module" / "terraform.tfstate.d" / BLUE / "terraform.tfstate"
    more = [r["module"] for r in json.loads(state.read_text())["resources"] if r["name"] == "more"]
    assert more == ['module.node["n2"]']


async def test_a_run_that_takes_too_long_is_ended_and_what_it_made_is_listed_and_removed(
    place: Place, world: World
) -> None:
    again = await prepared(world, BLUE)
    answers: Mapping[str, Instance | CloudError] = {}
    for limit_s in (4, 16, 64):  # until both had the time to begin
        script = f"trap '' INT; sleep {limit_s + 8}\n"
        slow = replace(launch(world, BLUE, "n1"), user_data=script)
        blue = place.open(BLUE, timeout=limit_s)
        with suppress(Transient):  # on a busy machine a mere look may take too long
            answers = await blue.create([launch(world, BLUE, "n0"), slow])
        if place.said("n0") is not None and place.said("n1") is not None:
            break
        await delete_until_gone(again, BLUE)
        for path in place.home(BLUE).iterdir():  # what Terraform had no time to write down
            shutil.rmtree(path)
    assert type(answers["n1"]) is Transient
    assert "and was killed" in str(answers["n1"])
    assert isinstance(answers["n0"], Transient | Instance)
    assert {"n0", "n1"} >= {one.node for one in await again.list(BLUE)} >= {"n0"}
    await delete_until_gone(again, BLUE)
    assert [path.name for path in place.home(BLUE).iterdir()] == []
    await again.remove(BLUE)


async def test_two_modules_of_one_cluster_do_not_meet(place: Place, world: World) -> None:
    shutil.copytree(place.root / "module", place.root / "other")
    first, second = place.open(BLUE), place.open(BLUE, module=place.root / "other")
    await first.prepare(BLUE)
    await second.prepare(BLUE)
    await first.create([launch(world, BLUE, "n0")])
    await second.create([launch(world, BLUE, "n1")])
    await second.remove(BLUE)
    assert [one.node for one in await first.list(BLUE)] == ["n0"]


async def test_what_is_built_from_all_nodes_outlives_one_of_them(
    place: Place, world: World
) -> None:
    (place.root / "module" / "all.tf").write_text(
        'resource "terraform_data" "all" {\n  input = keys(module.node)\n}\n'
    )
    blue = await prepared(world, BLUE)
    await blue.create([launch(world, BLUE, "n0"), launch(world, BLUE, "n1")])
    one, _ = await running(blue, BLUE, 2)
    done = run_terraform(place, BLUE, "apply", "-auto-approve")
    assert done.returncode == 0, done.stdout + done.stderr
    assert await blue.delete([one]) == {}
    assert "terraform_data.all" in run_terraform(place, BLUE, "state", "list").stdout.split()


def run_terraform(
    place: Place, cluster: str, *arguments: str
) -> "subprocess.CompletedProcess[str]":
    """As a person would, in the cluster's workspace and with its variables."""
    (data,) = (place.root / "state" / cluster / "terraform").glob("*/data")
    more = [f"-var-file={data.parent / 'nodes.tfvars.json'}"] if arguments[0] == "apply" else []
    return subprocess.run(
        [place.root / "terraform", *arguments, *more],
        cwd=place.root / "module",
        env={**os.environ, "TF_DATA_DIR": str(data)},
        capture_output=True,
        text=True,
        check=False,
    )


async def test_what_terraform_said_is_in_the_events(place: Place, world: World) -> None:
    blue = await prepared(world, BLUE)
    await blue.create([launch(world, BLUE, "n0")])
    (began, _, _), (ended, nodes, _) = place.events
    assert (began, ended) == ("program started", "program ended")
    assert nodes is not None
    assert "exit code 0" in nodes["n0"]
    assert 'module.node["n0"].terraform_data.instance: Creation complete' in nodes["n0"]


async def test_a_module_that_is_wrong_is_told_with_terraforms_own_words(
    place: Place, world: World
) -> None:
    blue = await prepared(world, BLUE)
    (place.root / "module" / "wrong.tf").write_text('output "x" {\n  value = var.nothing\n}\n')
    with pytest.raises(Rejected, match="undeclared input variable"):
        await until(blue, BLUE, lambda found: False)
    (finding,) = await blue.check(BLUE, [])
    assert (finding.name, finding.ok) == ("module", False)
    assert "undeclared input variable" in finding.text


async def test_a_module_that_does_not_reboot_says_so(place: Place, world: World) -> None:
    main = place.root / "module" / "node" / "main.tf"
    main.write_text(main.read_text().replace("boot       = terraform_data.boot.output", ""))
    blue = await prepared(world, BLUE)
    await blue.create([launch(world, BLUE, "n0")])
    answer = (await blue.reboot([launch(world, BLUE, "n0")]))["n0"]
    assert isinstance(answer, Rejected)
    assert "when `boot` of a node changes" in str(answer)


async def test_a_check_changes_nothing_and_sees_what_a_module_lacks(place: Place) -> None:
    blue = place.open(BLUE)
    (fine,) = await blue.check(BLUE, [])
    assert fine.ok, fine
    assert not (place.root / "state" / BLUE).exists()
    main = place.root / "module" / "main.tf"
    text = main.read_text()
    main.write_text(text.replace('output "nodes"', 'output "machines"'))
    (finding,) = await blue.check(BLUE, [])
    assert (finding.ok, finding.text) == (False, "it declares no output `nodes`")
    others = await place.open(BLUE, resource="module.machine").check(BLUE, [])
    assert [one.text for one in others] == [finding.text, "it declares no module.machine"]
    main.write_text(text + 'output "x" {\n')
    (broken,) = await blue.check(BLUE, [])
    assert broken.ok is False
    assert 'in output "x"' in broken.text


def test_parts_of_a_module_are_found_in_its_text() -> None:
    text = 'variable "nodes" {}\noutput  "nodes" {}\nresource "a_b" "node" {}\nmodule "m" {}\n'
    assert parts.decide_missing(text, "a_b.node") == parts.decide_missing(text, "module.m") == []
    (finding,) = parts.decide_missing(text, "a_b.other")
    assert finding.text == "it declares no a_b.other"


async def test_check_says_what_is_missing(place: Place) -> None:
    blue = place.open(BLUE)
    (place.root / "terraform").unlink()
    (finding,) = await blue.check(BLUE, [])
    assert (finding.name, finding.ok) == ("program", False)


async def test_a_node_in_a_state_locked_by_somebody_else_is_waited_for_and_not_lost(
    place: Place, world: World
) -> None:
    blue = await prepared(world, BLUE)
    (place.root / "lose").touch()
    lost = (await blue.create([launch(world, BLUE, "n0")]))["n0"]
    assert isinstance(lost, Transient)
    (made,) = instances(await blue.create([launch(world, BLUE, "n0")]))
    assert [one.id for one in await running(blue, BLUE, 1)] == [made.id]


@pytest.mark.parametrize(
    ("text", "kind"),
    [
        ("Error: 429 Too Many Requests", Throttled),
        ("No valid host was found. There are not enough hosts available.", NoCapacity),
        ("VcpuLimitExceeded: You have requested more vCPU capacity", QuotaExceeded),
        ("Error: Forbidden", Denied),
        ("Unsupported argument: An argument named x is not expected here", Rejected),
        ("dial tcp: connection reset by peer", Transient),
    ],
)
def test_words_of_providers_become_classes(text: str, kind: type[CloudError]) -> None:
    assert type(messages.classify(text)) is kind
