"""Variables of a service's environment file, in place of what the cluster file says."""

from pathlib import Path

import pytest

from springtide.cli.queue_checks import look_at_environment
from springtide.cli.subject import subject
from springtide.spec import Cluster, Polling, Slurm, SpecError, environment, load, variables
from springtide.spec.rewrite import reimaged, resized

TEXT = """\
cluster: blue
batch: {kind: torque}
provider: {kind: command, create: [on], delete: [off], list: [list]}
images: {base: {id: base-1}, other: {id: other-1}}
flavors: {small: {cpus: 2, memory: 2G}, large: {cpus: 8, memory: 8G}}
groups: {general: {nodes: "c[1-4]", flavors: [small], image: base}}
partitions: {cloud: {groups: [general]}}
shared: [{path: /home}]
"""


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(environment, "PLACE", tmp_path)
    return tmp_path


def read(place: Path, variables: str, text: str = TEXT) -> Cluster:
    (place / "blue.env").write_text(variables)
    file = place / "cluster.yaml"
    file.write_text(text)
    return load(file)


def refused(place: Path, variables: str, text: str = TEXT) -> str:
    with pytest.raises(SpecError) as caught:
        read(place, variables, text)
    return str(caught.value).replace(f"{place}/", "")


@pytest.mark.accepts("N9", "N14")
def test_variables_of_the_service_before_mean_the_same(place: Path) -> None:
    spec = read(
        place,
        """\
# of the service
CLEANUP_NODE_WAIT_TIME=300
QUEUE_NAME="nightly"
FLAVOR_NAME=large
IMAGE_NAME='other'
NFS_MOUNT_POINT=172.30.2.194:/export
NFS_LOCAL_DIR=/data
""",
    )
    assert spec.timing.idle == 300
    assert list(spec.partitions) == ["nightly"]
    assert spec.partitions["nightly"].groups == ("general",)
    assert spec.groups["general"].flavors == ("large",)
    assert spec.groups["general"].image == "other"
    assert [(str(one.path), one.source) for one in spec.shared] == [
        ("/home", None),
        ("/data", "172.30.2.194:/export"),
    ]


def test_how_it_is_watched_can_be_set_too(place: Path) -> None:
    spec = read(place, "BATCH_SYSTEM=openpbs\nPOLL_INTERVAL=4\nPROVIDER_NAME=command\n")
    assert spec.batch.kind == "openpbs"
    assert spec.polled
    assert spec.batch.polling.every == 4


def test_an_image_that_the_file_does_not_name_is_the_clouds_own(place: Path) -> None:
    spec = read(place, "IMAGE_NAME=10.0.0.1:5001/vcp/base:ubuntu\nNFS_MOUNT_POINT=nas:/export\n")
    assert spec.images[spec.image_of("general")].id == "10.0.0.1:5001/vcp/base:ubuntu"
    assert str(spec.shared[-1].path) == "/mnt"


def test_an_image_that_only_a_cloud_could_know_is_told_with_its_name(place: Path) -> None:
    text = TEXT.replace("{kind: command, create: [on], delete: [off], list: [list]}", "{}")
    said = refused(place, "IMAGE_NAME=debian-12\n", text.replace("id: base-1", "path: /srv/base"))
    assert said == (
        "blue.env:1:1: IMAGE_NAME: 'debian-12' is none of the cluster file's `images`, and "
        "containers needs a path; add one there, such as `images: {base: {path: …}}`, and name it "
        "here"
    )


def test_a_file_without_partitions_gets_the_queue(place: Path) -> None:
    text = TEXT.replace("partitions: {cloud: {groups: [general]}}\n", "")
    found = read(place, "QUEUE_NAME=cloud\n", text).partitions
    assert [(name, one.default) for name, one in found.items()] == [("cloud", True)]


def test_what_is_empty_or_not_ours_changes_nothing(place: Path) -> None:
    plain = read(place, "")
    others = "CLEANUP_NODE_WAIT_TIME=\nAWS_SECRET_ACCESS_KEY=very-secret\n; too\nVC_NAME=x\n"
    assert read(place, others) == plain
    (place / "blue.env").rename(place / "green.env")
    assert load(place / "cluster.yaml") == plain


@pytest.mark.parametrize(
    ("variables", "said"),
    [
        ("CLEANUP_NODE_WAIT_TIME=soon", "blue.env:1:1: CLEANUP_NODE_WAIT_TIME: "),
        ("\nPOLL_INTERVAL=0", "blue.env:2:1: POLL_INTERVAL: "),
        ("BATCH_SYSTEM=lsf", "blue.env:1:1: BATCH_SYSTEM: "),
        ("PROVIDER_NAME=moon", "blue.env:1:1: PROVIDER_NAME: "),
        ("FLAVOR_NAME=larg", "blue.env:1:1: FLAVOR_NAME: group 'general'"),
        ("QUEUE_NAME=a b", "blue.env:1:1: QUEUE_NAME: "),
        ("NFS_MOUNT_POINT=nas:/x\nNFS_LOCAL_DIR=data", "blue.env:2:1: NFS_LOCAL_DIR: "),
        (
            "\nexport QUEUE_NAME=x",
            "blue.env:2:1: QUEUE_NAME: this line is no NAME=VALUE, and systemd passes it over; "
            "take out `export`, or begin it with #",
        ),
        (
            "QUEUE_NAME: x",
            "blue.env:1:1: QUEUE_NAME: this line is no NAME=VALUE, and systemd passes it over; "
            "correct it, or begin it with #",
        ),
        ("X=1\n" * 25_001, "blue.env: the environment of the service cannot be read: it has over"),
    ],
)
def test_what_is_wrong_names_the_variable(place: Path, variables: str, said: str) -> None:
    found = refused(place, variables)
    assert said in found


def test_a_filesystem_of_no_server_is_refused(place: Path) -> None:
    said = refused(place, "NFS_MOUNT_POINT=nonsense")
    assert said == "blue.env:1:1: NFS_MOUNT_POINT: must be SERVER:/DIRECTORY"


def test_a_key_that_another_kind_does_not_know_names_the_variable(place: Path) -> None:
    text = TEXT.replace("{kind: torque}", "{kind: gridengine, root: /opt/sge}")
    said = refused(place, "BATCH_SYSTEM=torque", text)
    assert said.startswith("blue.env:1:1: BATCH_SYSTEM: unknown key 'root' in batch")
    assert "that is for another batch.kind than torque; correct one of them" in said


def test_a_file_that_is_refused_with_variables_in_force_names_them(place: Path) -> None:
    """Grid Engine needs queues, but a Slurm of one's own has one for all."""
    text = TEXT.replace("{kind: torque}", "{kind: slurm}").replace("partitions: ", "#")
    said = refused(place, "BATCH_SYSTEM=gridengine\nOTHER=secret", text).splitlines()
    assert said[0].startswith("blue.env: it goes before the cluster file")
    assert said[0].endswith(": batch.kind is 'gridengine' (BATCH_SYSTEM)")
    assert any("group 'general' serves no queue" in line for line in said[1:])
    assert "BATCH_SYSTEM" not in refused(place, "OTHER=1", text.replace("c[1-4]", "c[1-"))


def test_the_words_are_those_of_the_cluster_file(place: Path) -> None:
    wrong = TEXT + "timing: {idle: soon}\n"
    in_file = refused(place, "", wrong).partition(": ")[2]
    assert refused(place, "CLEANUP_NODE_WAIT_TIME=soon").endswith(in_file)


def test_one_name_for_several_is_refused(place: Path) -> None:
    text = TEXT.replace("groups: {", 'groups: {more: {nodes: "m1", flavors: [small]}, ', 1).replace(
        "partitions: {", "partitions: {more: {groups: [more]}, "
    )
    assert "QUEUE_NAME: the cluster file has several partitions" in refused(
        place, "QUEUE_NAME=x", text
    )
    assert "FLAVOR_NAME: the cluster file has 2 groups" in refused(place, "FLAVOR_NAME=small", text)
    assert read(place, "QUEUE_NAME=more", text) == read(place, "", text)


@pytest.mark.accepts("N15")
def test_lines_that_systemd_passes_over_hinder_nobody_and_are_told_without_their_words(
    place: Path,
) -> None:
    spec = read(place, "my password=hunter2\nCLEANUP_NODE_WAIT_TIME=300\nalso hunter2\n")
    assert spec.timing.idle == 300
    _, told = look_at_environment(subject(spec, place / "cluster.yaml"))
    assert told.ok is None
    assert told.text.startswith(f"{place}/blue.env: no NAME=VALUE in line 1, 3; ")
    assert "hunter2" not in f"{told}{refused(place, 'QUEUE_NAME hunter2')}"


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("A=30\\\n0\n", "300"),
        ("A=a \\\n  b c  \n", "a   b c"),
        (
            'A="-----BEGIN KEY-----\nB=c d\n-----END KEY-----"\n',
            "-----BEGIN KEY-----\nB=c d\n-----END KEY-----",
        ),
        ("A='x\\'\n", "x\\"),
        ('A="say \\"hi\\" for 5\\$ \\n"\n', 'say "hi" for 5$ \\n'),
        ('A="300" # five minutes\n', "300# five minutes"),
        ("A=\"one \"'two'\n", "one two"),
        ("A=it's\n", "it's"),
        ("  A = b \n", "b"),
        ("A=\n", ""),
        ('A="never closed\n', "never closed\n"),
        ("A=end\\", "end"),
    ],
)
def test_values_are_those_that_systemd_reads(text: str, value: str) -> None:
    first, *others = variables.read(f"# one\n\n{text}")
    assert first == variables.Variable("A", value, 3)
    assert others == []


def test_lines_are_counted_over_long_values() -> None:
    found = list(variables.read('A="x\ny"\nB=c\\\nd\n\nexport E=f\nG=h'))
    assert [one.line for one in found] == [1, 3, 6, 7]


def test_a_variable_does_not_have_a_slurm_watched_that_asks_for_nodes(place: Path) -> None:
    slurm = "batch: {kind: slurm, attach: /etc/slurm/slurm.conf}"
    text = TEXT.replace("batch: {kind: torque}", slurm)
    said = refused(place, "POLL_INTERVAL=5\n", text)
    assert said.startswith("blue.env:1:1: POLL_INTERVAL: this Slurm is not watched")
    watched = text.replace("slurm.conf}", "slurm.conf, polling: {}}")
    batch = read(place, "POLL_INTERVAL=5\n", watched).batch
    assert isinstance(batch, Slurm)
    assert batch.polling == Polling(every=5)


def test_a_place_for_no_filesystem_is_told(place: Path) -> None:
    spec = read(place, "NFS_LOCAL_DIR=/data\n")
    (told,) = look_at_environment(subject(spec, place / "cluster.yaml"))
    assert (
        told.text
        == f"NFS_LOCAL_DIR without NFS_MOUNT_POINT of {place}/blue.env: of no meaning here"
    )


@pytest.mark.accepts("N15")
def test_check_tells_what_is_set_and_no_secret(place: Path) -> None:
    spec = read(place, "CLEANUP_NODE_WAIT_TIME=300\nVCP_ACCESSKEY=hunter2\nOS_PASSWORD=hunter2\n")
    done, idle = look_at_environment(subject(spec, place / "cluster.yaml"))
    assert done.text == f"{place}/blue.env: timing.idle is 300 (CLEANUP_NODE_WAIT_TIME)"
    assert idle.ok is None
    assert idle.text == f"VCP_ACCESSKEY of {place}/blue.env: of no meaning here"
    assert "hunter2" not in f"{done}{idle}"


@pytest.mark.parametrize(
    ("variables", "said"),
    [
        ("QUEUE_NAME=nightly", "the partition is 'nightly' (QUEUE_NAME)"),
        ("IMAGE_NAME=debian-12", "groups.general.image is 'debian-12' (IMAGE_NAME)"),
        (
            "NFS_MOUNT_POINT=nas:/export\nNFS_LOCAL_DIR=/data",
            "a path of shared is '/data' (NFS_LOCAL_DIR), its source is 'nas:/export' "
            "(NFS_MOUNT_POINT)",
        ),
    ],
)
def test_check_calls_what_is_set_as_people_do(place: Path, variables: str, said: str) -> None:
    (told,) = look_at_environment(subject(read(place, variables), place / "cluster.yaml"))
    assert told.text == f"{place}/blue.env: {said}"


def test_other_changes_of_the_file_go_on(place: Path) -> None:
    read(place, "CLEANUP_NODE_WAIT_TIME=300\nIMAGE_NAME=other\n")
    assert "min: 2" in resized(TEXT, "cluster.yaml", {"general": 2})
    with pytest.raises(SpecError, match="IMAGE_NAME of the service's environment sets it"):
        reimaged(TEXT, "cluster.yaml", {"general": "base"})


def test_a_file_that_cannot_be_read_is_told(place: Path) -> None:
    read(place, "")
    (place / "blue.env").write_bytes(b"\xff\xfe")
    with pytest.raises(SpecError, match="the environment of the service cannot be read"):
        load(place / "cluster.yaml")


def test_a_file_that_only_root_may_read_says_where_secrets_belong(
    place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def closed(*_: object, **__: object) -> None:
        raise PermissionError(13, "Permission denied")

    found = environment.applied({"cluster": "blue"}, place)
    assert not found.problems
    monkeypatch.setattr(Path, "open", closed)
    (problem,) = environment.applied({"cluster": "blue"}, place).problems
    assert f"move secrets to {place}/blue.secret, and let all read it" in str(problem)
