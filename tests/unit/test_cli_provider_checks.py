"""`tide check` asks clouds and machines what they can do, and looks at what the file wants of them.

The providers here are real ones that run programs of a site, or that need nothing to be asked.
"""

import json
import shlex
import time
from ipaddress import IPv4Network
from pathlib import Path

import pytest

from springtide.cli import asking, provider_checks
from springtide.cli.asking import Unanswered, places
from springtide.cli.init import KINDS, render
from springtide.cli.subject import Check, Look, Subject, subject
from springtide.ports import Need
from springtide.providers.containers.site import Ground, _write_ground
from springtide.spec import Cluster, parse
from tests.unit.cli_world import run

NODES = 'g: {nodes: "c[1-2]"}'


def a_subject(state: Path, more: str = "", groups: str = NODES) -> Subject:
    text = f"cluster: blue\nstate: {state}\ngroups: {{{groups}}}\n{more}"
    return subject(parse(text, "cluster.yaml"))


def found(look: Look, subject: Subject) -> list[Check]:
    return list(look(subject))


def a_program(path: Path, said: str = "", code: int = 0) -> str:
    """A program of the site that says something; the provider block that names it."""
    path.write_text(f"#!/bin/sh\ncat >/dev/null\nprintf %s {shlex.quote(said)}\nexit {code}\n")
    path.chmod(0o755)
    return f"{{kind: command, create: [{path}], delete: [{path}], list: [{path}], timeout: 20s}}"


# --- asking ------------------------------------------------------------------------------


def test_what_a_provider_says_of_itself_is_told_under_its_name(tmp_path: Path) -> None:
    provider = a_program(tmp_path / "nodes", "c1 on\nc2 off\n")
    seen = a_subject(tmp_path / "s", f"provider: {provider}\n")
    assert found(provider_checks.look_at_providers, seen) == [
        Check("command program list", True, "it knows 2 machines")
    ]


def test_a_provider_that_fails_is_a_failed_check_with_what_it_said(tmp_path: Path) -> None:
    provider = a_program(tmp_path / "nodes", code=7)
    [line] = found(
        provider_checks.look_at_providers, a_subject(tmp_path, f"provider: {provider}\n")
    )
    assert (line.name, line.ok) == ("command program list", False)
    assert "exit code 7" in line.text
    assert line.todo


def test_every_provider_of_the_file_is_asked_once_and_named_by_its_groups(tmp_path: Path) -> None:
    one, other = (a_program(tmp_path / name, said) for name, said in (("a", ""), ("b", "x on")))
    groups = (
        f'g: {{nodes: "c[1-2]"}}, h: {{nodes: "d[1-2]", provider: {other}}}, '
        f'i: {{nodes: "e[1-2]"}}, j: {{nodes: "f1", provider: {{kind: containers}}}}'
    )
    seen = a_subject(tmp_path / "s", f"provider: {one}\n", groups)
    assert [(line.name, line.text) for line in found(provider_checks.look_at_providers, seen)] == [
        ("command (g, i) program list", "it knows 0 machines"),
        ("command (h) program list", "it knows 1 machines"),
    ]


def test_what_a_group_needs_is_counted_as_if_all_its_nodes_were_up() -> None:
    text = render("google").replace("    min: 0", "    zones: [north]\n    markets: [spot]")
    spec = parse(text, "c.yaml")
    [place] = places(spec)
    assert asking.needs(spec, place.groups) == [
        Need("general", 16, "base", ("small",), ("north",), ("spot",))
    ]


def test_containers_and_machines_that_are_there_are_not_asked() -> None:
    for kind in ("containers", "none"):
        assert places(parse(render(kind), kind)) == []


def test_offline_nobody_is_asked(tmp_path: Path) -> None:
    started = tmp_path / "started"
    provider = a_program(tmp_path / "nodes")
    (tmp_path / "nodes").write_text(f"#!/bin/sh\ntouch {started}\n")
    file = tmp_path / "c.yaml"
    file.write_text(
        f"cluster: blue\nstate: {tmp_path}/s\nbatch: {{kind: fake}}\n"
        f"provider: {provider}\ngroups: {{{NODES}}}\n"
    )
    done = run("check", "--offline", str(file))
    assert "- command: was not asked, as you wish\n" in done.out
    assert not started.exists()
    asked = run("check", "--json", str(file))
    names = [line["name"] for line in json.loads(asked.out)["checks"]]
    assert "command program list" in names
    assert started.exists()


def test_for_a_slurm_that_is_there_providers_are_asked_as_well(tmp_path: Path) -> None:
    file = tmp_path / "c.yaml"
    file.write_text(
        f"cluster: blue\nstate: {tmp_path}/s\nbatch: {{attach: {tmp_path}/slurm.conf}}\n"
        f"provider: {a_program(tmp_path / 'nodes')}\ngroups: {{{NODES}}}\n"
    )
    assert "✓ command program list: it knows 0 machines\n" in run("check", str(file)).out


def test_a_missing_sdk_is_told_with_what_to_install(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where the SDK would be, there is only a module that is not to be found."""
    broken = tmp_path / "path" / "boto3"
    broken.mkdir(parents=True)
    missing = "raise ModuleNotFoundError(\"No module named 'boto3'\", name='boto3')\n"
    (broken / "__init__.py").write_text(missing)
    monkeypatch.setenv("PYTHONPATH", str(broken.parent))
    seen = subject(parse(render("aws").replace("batch:", f"state: {tmp_path}\nbatch:"), "c.yaml"))
    [line] = found(provider_checks.look_at_providers, seen)
    assert (line.name, line.ok) == ("aws", False)
    assert line.text == (
        "provider.kind aws needs the Python package boto3: install springtide with its extra, "
        "`pip install 'springtide[aws]'`"
    )


def test_a_provider_that_does_not_answer_is_not_waited_for() -> None:
    began = time.monotonic()
    with pytest.raises(Unanswered, match=r"did not answer within 5 s.*longer `timeout`"):
        asking.ask("{}", 0.5, 5, ("-c", "import time; time.sleep(60)"))
    assert time.monotonic() - began < 50


def test_a_process_that_ends_without_an_answer_is_told_with_its_last_words() -> None:
    code = "import sys; print('out of memory', file=sys.stderr); sys.exit(3)"
    with pytest.raises(Unanswered, match="exit code 3: out of memory"):
        asking.ask("", 20, 20, ("-c", code))


def test_what_an_sdk_prints_is_no_part_of_the_answer(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "path").mkdir()
    noise = "import atexit\natexit.register(print, 'thank you for using this SDK')\n"
    (tmp_path / "path" / "sitecustomize.py").write_text(noise)
    monkeypatch.setenv("PYTHONPATH", str(tmp_path / "path"))
    provider = a_program(tmp_path / "nodes")
    seen = a_subject(tmp_path / "s", f"provider: {provider}\n")
    [line] = found(provider_checks.look_at_providers, seen)
    assert line.text == "it knows 0 machines"


@pytest.mark.parametrize("kind", [kind for kind in KINDS if kind not in ("containers", "none")])
def test_a_file_reaches_the_process_that_asks_as_it_is(kind: str) -> None:
    spec = parse(render(kind), kind)
    assert Cluster.model_validate(json.loads(json.dumps(spec.model_dump(mode="json")))) == spec


# --- credentials -------------------------------------------------------------------------


@pytest.mark.accepts("A25")
def test_credentials_that_others_can_read_are_complained_of(tmp_path: Path) -> None:
    secret = tmp_path / "clouds.yaml"
    text = render("openstack").replace("  cloud:", f"  credentials: {secret}\n  cloud:")
    text = text.replace("batch:", f"state: {tmp_path}/s\nbatch:")
    spec = parse(text, "c.yaml")

    def look() -> list[tuple[str, bool | None, str]]:
        seen = Subject(spec, subject(spec).daemon, None, offline=True)
        lines = found(provider_checks.look_at_providers, seen)
        return [(line.text, line.ok, line.todo) for line in lines if "credentials" in line.name]

    assert look()[0][0] == f"{secret} is not there"
    secret.write_text("password: hidden\n")
    for mode in (0o644, 0o640, 0o604):
        secret.chmod(mode)
        assert look() == [(f"{secret} can be read by others", False, f"run `chmod 600 {secret}`")]
    secret.chmod(0o600)
    assert look() == []


@pytest.mark.accepts("A25")
def test_a_provider_that_has_complained_of_its_credentials_is_not_repeated(tmp_path: Path) -> None:
    secret = tmp_path / "clouds.yaml"
    secret.write_text("clouds: {}\n")
    secret.chmod(0o644)
    spec = parse(
        render("openstack").replace("  cloud:", f"  credentials: {secret}\n  cloud:"), "c.yaml"
    )
    [place] = places(spec)
    own = Check("credentials", False, f"others can read {secret}")
    assert list(provider_checks._look_at_credentials(place, [own])) == []
    assert len(list(provider_checks._look_at_credentials(place, []))) == 1


# --- groups ------------------------------------------------------------------------------

FLAVORS = "flavors: {a: {cpus: 1, memory: 1G, price: 0.1}, b: {cpus: 1, memory: 1G}}\n"


def test_choosing_by_price_needs_prices(tmp_path: Path) -> None:
    groups = 'g: {nodes: "c[1-2]", flavors: [a, b], choose: price}'
    [line] = found(provider_checks.look_at_prices, a_subject(tmp_path, FLAVORS, groups))
    assert (line.name, line.ok) == ("group g", None)
    assert line.text == "it chooses by price, but flavor b has no price"
    assert "flavors.b.price" in line.todo
    for fine in ("[a, b]", "[b], choose: price", "[a], choose: price"):
        groups = f'g: {{nodes: "c[1-2]", flavors: {fine}}}'
        assert found(provider_checks.look_at_prices, a_subject(tmp_path, FLAVORS, groups)) == []


@pytest.mark.parametrize("kind", ["containers", "none"])
def test_keys_that_do_nothing_are_told(kind: str, tmp_path: Path) -> None:
    groups = 'g: {nodes: "c[1-2]", zones: [north], markets: [spot]}'
    lines = found(
        provider_checks.look_at_ignored,
        a_subject(tmp_path, f"provider: {{kind: {kind}}}\n", groups),
    )
    assert [(line.ok, line.todo) for line in lines] == [
        (None, "take `zones` out"),
        (None, "take `markets` out"),
    ]


def test_containers_must_fit_their_subnet(tmp_path: Path) -> None:
    small = "provider: {subnet: 10.9.0.0/29}\n"
    fits = a_subject(tmp_path, small, 'g: {nodes: "c[1-3]"}, h: {nodes: "d[1-2]"}')
    assert found(provider_checks.look_at_room, fits) == []
    seen = a_subject(tmp_path, small, 'g: {nodes: "c[1-3]"}, h: {nodes: "d[1-3]"}')
    [line] = found(provider_checks.look_at_room, seen)
    assert line.ok is False
    assert line.text == "6 container nodes do not fit 10.9.0.0/29, which has room for 5"


def test_without_a_subnet_they_must_fit_the_one_that_is_chosen(tmp_path: Path) -> None:
    [line] = found(provider_checks.look_at_room, a_subject(tmp_path, "", 'g: {nodes: "c[1-4094]"}'))
    assert (line.ok, line.text.split()[0]) == (False, "4094")
    [line] = found(provider_checks.look_at_room, a_subject(tmp_path, "", 'g: {nodes: "c[1-4093]"}'))
    assert (line.ok, "only 1023 can be up at once" in line.text) == (None, True)
    others = 'g: {nodes: "c[1-9999]", provider: {kind: none}}'
    assert found(provider_checks.look_at_room, a_subject(tmp_path, "", others)) == []


def test_a_site_that_is_there_has_the_room_that_counts(tmp_path: Path) -> None:
    seen = a_subject(tmp_path, "", 'g: {nodes: "c[1-6]"}')
    seen.daemon.layout.instances.mkdir(parents=True)
    ground = Ground("blue", "tide0", IPv4Network("10.9.0.0/29"))
    _write_ground(seen.daemon.layout.instances, ground)
    [line] = found(provider_checks.look_at_room, seen)
    assert "10.9.0.0/29" in line.text
