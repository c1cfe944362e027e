"""`tide flavors`: the sizes of a provider, and the lines for them that Slurm can live with."""

import json
import re
import shutil
import subprocess
from collections.abc import Iterator, Mapping
from pathlib import Path
from threading import Timer

import pytest

from springtide.batch.slurm_conf import render as render_conf
from springtide.cli import file_checks, provider_checks
from springtide.cli.endings import Exit
from springtide.cli.init import render
from springtide.cli.sizes import render_yaml
from springtide.cli.subject import run as run_program
from springtide.cli.subject import subject
from springtide.ports import CloudFlavor, Site
from springtide.providers.cloud.memory import seen_by_linux
from springtide.spec import parse
from tests.ports import free_ports
from tests.providers.servers import oci
from tests.providers.servers.oci_cloud import COMPARTMENT, SUBNET
from tests.unit.cli_world import run
from tests.unit.google_file import google_file

slurm = pytest.mark.skipif(shutil.which("slurmd") is None, reason="needs Slurm's programs")

READY = "Running as primary controller"
START_S = 200.0
IOMEM = Path("/proc/iomem")
SIZES = {
    "plain": CloudFlavor("plain", 2, 4096),
    "c7i.xlarge": CloudFlavor("c7i.xlarge", 4, 8192, threads=2, price=0.1785),
    "arm": CloudFlavor("arm", 1, 512, arch="aarch64"),
    "p4d.24xlarge": CloudFlavor("p4d.24xlarge", 96, 1179648, threads=2, gpus=8, price=32.77),
    "VM.Standard.E4.Flex.4.64": CloudFlavor("VM.Standard.E4.Flex.4.64", 8, 65536, threads=2),
    "odd": CloudFlavor("odd", 3, 2048, threads=2),
    "1e3": CloudFlavor("1e3", 1, 1024),
    "gpu/a:1": CloudFlavor("gpu/a:1", 8, 32768, gpus=1),
    "_old": CloudFlavor("_old", 1, 1024),
}
"""What a provider may say; the names are what clouds have made of names."""


def test_a_node_promises_less_memory_than_its_size_has_by_name() -> None:
    assert [seen_by_linux(size) for size in (512, 1024, 4096, 16384)] == [256, 727, 3676, 15472]
    for nominal in range(2, 70000, 7):
        seen = seen_by_linux(nominal)
        assert nominal // 2 <= seen < nominal
        assert seen <= max(nominal * 0.97 - 256, nominal / 2)


@pytest.fixture
def google(tmp_path: Path) -> Iterator[Path]:
    with google_file(tmp_path) as file:
        yield file


def test_sizes_are_listed_as_the_provider_has_them(google: Path) -> None:
    done = run("flavors", "--config", str(google))
    assert (done.code, done.err) == (Exit.DONE, "")
    lines = done.out.splitlines()
    assert lines[0].split() == ["NAME", "CPUS", "MEMORY", "ARCH", "THREADS", "GPUS", "PRICE"]
    assert ["t2a-standard-4", "4", "16384M", "aarch64", "1"] in [row.split()[:5] for row in lines]


def test_sizes_come_as_json_too(google: Path) -> None:
    done = run("flavors", "--config", str(google), "google", "a2-*", "--json")
    answer = json.loads(done.out)
    assert answer["provider"] == "google"
    [size] = answer["flavors"]
    assert size.keys() == {
        *("name", "cpus", "memory", "usable_memory", "arch", "threads", "gpus", "price")
    }
    assert (size["name"], size["memory"], size["gpus"]) == ("a2-highgpu-1g", 87040, 1)
    assert size["usable_memory"] == seen_by_linux(87040)


@pytest.mark.accepts("C6")
def test_the_printed_block_takes_the_place_of_the_files_own(google: Path) -> None:
    done = run("flavors", "--config", str(google), "general", "n2-standard-4", "--yaml")
    before, _, after = google.read_text().partition("\nflavors:")
    rest = after.partition("\ngroups:")[2].replace("[small]", "[n2-standard-4]")
    spec = parse(f"{before}\n{done.out}\ngroups:{rest}", "c.yaml")
    [name] = spec.flavors
    flavor = spec.flavor(name)
    assert (name, flavor.cpus, flavor.memory) == ("n2-standard-4", 4, seen_by_linux(16384))


def test_a_size_that_is_not_there_is_told(google: Path) -> None:
    done = run("flavors", "--config", str(google), "n2-standard-4", "n9-mega")
    assert (done.code, done.err) == (Exit.WRONG, "tide: google has no size n9-mega\n")
    done = run("flavors", "--config", str(google), "n9;x")
    assert (done.code, done.out) == (Exit.WRONG, "")


def test_a_size_that_is_made_to_measure_is_known_by_its_name(tmp_path: Path) -> None:
    """Oracle's flexible shapes are in no list; the one that is asked for has cpus and memory."""
    with oci.serving() as server:
        config = oci.write_config(tmp_path)
        text = render("oci").replace(
            "  kind: oci", f"  kind: oci\n  credentials: {config}\n  endpoint: {server.endpoint}"
        )
        for example, real in (("compartment", COMPARTMENT), ("subnet", SUBNET)):
            text = re.sub(f"  {example}: ocid1[^ ]+", f"  {example}: {real}", text)
        file = tmp_path / "cluster.yaml"
        file.write_text(text)
        done = run("flavors", "--config", str(file), "VM.Standard.E4.Flex.8.32", "--yaml")
    assert (done.code, done.err) == (Exit.DONE, "")
    memory = seen_by_linux(32768)
    assert done.out == (
        f"flavors:\n  VM.Standard.E4.Flex.8.32: {{cpus: 16, memory: {memory}M, threads: 2}}\n"
    )


def test_check_tells_what_a_cloud_says_of_the_file(google: Path) -> None:
    found = list(provider_checks.look_at_providers(subject(parse(google.read_text(), "c.yaml"))))
    assert {line.name.split()[0] for line in found} == {"google"}
    assert any(line.ok for line in found)


def test_a_provider_that_does_not_answer_is_a_failure(tmp_path: Path) -> None:
    file = tmp_path / "c.yaml"
    file.write_text(
        render("google").replace(
            "  kind: google", "  kind: google\n  endpoint: http://127.0.0.1:1\n  timeout: 2s"
        )
    )
    done = run("flavors", "--config", str(file))
    assert (done.code, done.out) == (Exit.FAILED, "")
    assert done.err.startswith("tide: google: ")


@pytest.mark.parametrize("kind", ["containers", "none"])
def test_who_has_no_sizes_says_so(kind: str, tmp_path: Path) -> None:
    file = tmp_path / "c.yaml"
    file.write_text(render(kind))
    for words in ((), ("general",)):
        done = run("flavors", "--config", str(file), *words)
        assert done.code == Exit.WRONG
        assert f"provider {kind}, which has no sizes of its own: " in done.err


def test_of_several_providers_one_must_be_named(tmp_path: Path) -> None:
    file = tmp_path / "c.yaml"
    other = "{kind: libvirt, uri: 'test:///default'}"
    file.write_text(
        render("command").replace(
            "\npartitions:",
            f"  other: {{nodes: o1, flavors: [small], provider: {other}}}\n\npartitions:",
        )
    )
    done = run("flavors", "--config", str(file))
    assert (done.code, done.err) == (
        Exit.WRONG,
        "tide: the file has several providers; name a group: general, other\n",
    )
    done = run("flavors", "--config", str(file), "command")
    assert (done.code, done.out) == (Exit.DONE, "")
    assert "command tells no sizes" in done.err


# --- what Slurm is told --------------------------------------------------------------------


def conf_of(sizes: Mapping[str, CloudFlavor], more: str = "") -> tuple[str, list[str]]:
    """A slurm.conf with a group for each size, and its node lines."""
    block = "\n".join(render_yaml(sizes.values()))
    provider = "provider: {kind: command, create: [x], delete: [x], list: [x]}\n"
    head = f"cluster: blue\n{more}{provider}"
    names = list(parse(f"{head}{block}\n", "c.yaml").flavors)
    groups = "".join(
        f'  g{n}: {{nodes: "c{n}-[1-2]", flavors: ["{name}"]}}\n' for n, name in enumerate(names)
    )
    spec = parse(f"{head}{block}\ngroups:\n{groups}", "c.yaml")
    text = render_conf(spec, Site("127.0.0.1"), state=spec.state, version=(22, 5))
    return text, [line for line in text.splitlines() if line.startswith("NodeName=")]


@pytest.mark.accepts("C6")
def test_sizes_become_lines_of_nodes() -> None:
    _, lines = conf_of(SIZES)
    assert len(lines) == len(SIZES)
    assert lines[0] == "NodeName=c0-[1-2] CPUs=2 RealMemory=3676 State=CLOUD"
    topology = "Sockets=1 CoresPerSocket=2 ThreadsPerCore=2"
    assert lines[1] == f"NodeName=c1-[1-2] CPUs=4 {topology} RealMemory=7608 State=CLOUD"
    assert "Gres=gpu:8" in lines[3]
    assert "ThreadsPerCore" not in lines[5]


def started(text: str, place: Path) -> list[str]:
    """What a real slurmctld says until it is up with such a slurm.conf; it is stopped then."""
    for name in ("slurmctld", "log"):
        (place / name).mkdir(parents=True)
    (place / "slurm.conf").write_text(text)
    command = ["slurmctld", "-D", "-c", "-f", str(place / "slurm.conf")]
    said: list[str] = []
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as slurmctld:
        watchdog = Timer(START_S, slurmctld.kill)
        watchdog.start()
        try:
            for line in slurmctld.stderr or ():
                said.append(line)
                if READY in line:
                    break
        finally:
            watchdog.cancel()
            slurmctld.kill()
    return said


def complaints(said: list[str]) -> list[str]:
    """Those of nodes; in this place it misses munged and our programs as well."""
    return [one for one in said if re.search(r"(error|fatal): .*(node|cpu|gres|c\d-)", one, re.I)]


@slurm
@pytest.mark.accepts("C6")
def test_slurm_takes_the_lines_of_all_sizes(tmp_path: Path) -> None:
    """First read as the daemon has it read before it uses it; then slurmctld starts with it.

    Without credentials and prolog: newer ones would want a munged and the program.
    """
    (port,) = free_ports(1)
    text, _ = conf_of(SIZES, f"state: {tmp_path}/a\nbatch: {{user: root, port: {port}}}\n")
    assert file_checks._misread(text) == ""
    text = text.replace("auth/munge", "auth/none\nCredType=cred/none")
    text = re.sub("^PrologSlurmctld=.*\n", "", text, flags=re.MULTILINE)
    said = started(text, tmp_path / "a")
    assert READY in said[-1]
    assert complaints(said) == []
    wrong = text.replace(f"{tmp_path}/a", f"{tmp_path}/b").replace("CPUs=4 S", "CPUs=5 S")
    assert complaints(started(wrong, tmp_path / "b")) != []


@slurm
@pytest.mark.accepts("C6")
def test_a_line_never_promises_more_memory_than_slurmd_reports() -> None:
    """On this machine: what it has by name is what firmware hands to the kernel, or more."""
    ranges = re.findall(r"^([0-9a-f]+)-([0-9a-f]+) : System RAM$", IOMEM.read_text(), re.M)
    nominal = sum(int(end, 16) - int(start, 16) + 1 for start, end in ranges) >> 20
    if nominal == 0:
        pytest.skip("only root sees the memory map")
    said = run_program(["slurmd", "-C"]).stdout
    reported = int(re.findall(r"RealMemory=(\d+)", said)[0])
    assert seen_by_linux(nominal) <= reported < nominal
