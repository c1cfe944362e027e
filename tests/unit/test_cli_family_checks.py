"""Who uses a family of which nothing was built is told so before the first job fails."""

from pathlib import Path

from springtide.cli.client import Client
from springtide.cli.family_checks import look_at_families
from springtide.cli.subject import Check, Subject, subject
from springtide.configure.building import BUILT
from springtide.spec import parse
from tests.unit.cli_world import SPEC, World, run, served

FAMILY = SPEC.replace('"c[1-4]"}', '"c[1-4]", image: hard}')
UNBUILT = Check(
    "image hard",
    None,
    "none was built yet for x86_64, so nodes of general could not start",
    "when it is deployed, run `tide image build hard`",
)


def found_in(world: World) -> list[Check]:
    daemon = Client(world.layout.state)
    return list(look_at_families(Subject(world.spec, daemon, daemon.get("/status"))))


def test_a_family_is_a_warning_with_the_command_until_it_was_built() -> None:
    with served(FAMILY) as world:
        assert found_in(world) == [UNBUILT]
        world.cloud.said["tide-build-hard-1-x86-64"] = f"{BUILT}\n"
        done = world.run("image", "build", "hard")
        assert done.code == 0, done.err
        assert found_in(world) == [Check("image hard", True, "nodes of general get hard@1")]


def test_a_group_that_is_yet_to_come_gets_what_is_there() -> None:
    with served(FAMILY) as world:
        world.cloud.said["tide-build-hard-1-x86-64"] = f"{BUILT}\n"
        assert world.run("image", "build", "hard").code == 0
        daemon = Client(world.layout.state)
        more = FAMILY.replace("  bare:", '  once: {nodes: "o[1-2]", image: hard}\n  bare:')
        seen = Subject(parse(more, "c.yaml"), daemon, daemon.get("/status"))
        assert [one.text for one in look_at_families(seen)] == [
            "nodes of general get hard@1",
            "nodes of once get hard@1",
        ]


def test_before_the_first_deploy_nothing_was_built(tmp_path: Path) -> None:
    spec = parse(f"{FAMILY}state: {tmp_path}\n", "c.yaml")
    assert list(look_at_families(subject(spec))) == [UNBUILT]


def test_a_daemon_that_is_away_is_no_sign_that_nothing_was_built(tmp_path: Path) -> None:
    seen = subject(parse(f"{FAMILY}state: {tmp_path}\n", "c.yaml"))
    seen.daemon.layout.record.touch()
    [found] = look_at_families(seen)
    assert (found.ok, found.text) == (None, "no daemon to ask what was built")


def test_images_that_need_no_build_are_no_line(tmp_path: Path) -> None:
    assert list(look_at_families(subject(parse(f"{SPEC}state: {tmp_path}\n", "c.yaml")))) == []


def test_nodes_for_a_slurm_that_is_there_need_images_too(tmp_path: Path) -> None:
    file = tmp_path / "c.yaml"
    attach = f"batch: {{attach: {tmp_path}/slurm.conf}}"
    text = FAMILY.replace("batch: {kind: fake}", attach).replace("kind: fake", "kind: containers")
    file.write_text(f"{text}state: {tmp_path}/s\n")
    assert UNBUILT.text in run("check", str(file), "--offline").out
