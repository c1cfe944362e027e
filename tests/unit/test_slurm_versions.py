"""What versions of Slurm do, and what nodes are told of their instances on each."""

import pytest

from springtide.batch.slurm_instances import render_updates
from springtide.batch.slurm_versions import (
    NEWEST,
    OLDEST,
    Change,
    TooOldError,
    check_version,
    one_job_at_a_time,
    untried,
)
from springtide.cli.attach_checks import judge_version

INSTANCES = {"c1": ("i-1", "m1"), "c2": ("i-2", "m1"), "c3": ("i-3", "big")}


def test_every_change_came_between_the_oldest_and_the_newest_that_were_tried() -> None:
    assert all(OLDEST < change.value.release <= NEWEST for change in Change)
    assert all(change.applies(NEWEST) and not change.applies(OLDEST) for change in Change)


def test_a_version_that_lacks_what_we_need_is_refused() -> None:
    check_version((22, 5))
    with pytest.raises(TooOldError, match=r"21\.08 is too old; install Slurm 22\.05 or newer"):
        check_version((21, 8))


def test_a_version_that_nobody_tried_is_used_with_a_warning() -> None:
    assert untried(NEWEST) == ""
    assert untried((27, 5)).startswith("newer than Slurm 26.05, the newest that")
    check = judge_version("27.05.1")
    assert (check.ok, check.text.partition(":")[0]) == (None, "27.05.1")
    assert judge_version("26.05.5").ok is True
    assert judge_version("20.11.4").ok is False


def test_partitions_of_whole_nodes_are_said_as_the_version_wants_it() -> None:
    assert one_job_at_a_time((24, 11)) == {"OverSubscribe": "EXCLUSIVE"}
    assert one_job_at_a_time((26, 5)) == {"Exclusive": "NODE"}


@pytest.mark.parametrize(
    ("release", "told"),
    [
        ((22, 5), []),
        (
            (24, 11),
            [
                "update nodename=c[1-2] instancetype=m1",
                "update nodename=c3 instancetype=big",
                "update nodename=c1 instanceid=i-1",
                "update nodename=c2 instanceid=i-2",
                "update nodename=c3 instanceid=i-3",
            ],
        ),
        (
            (26, 5),
            [
                "update nodename=c[1-2] instancetype=m1",
                "update nodename=c3 instancetype=big",
                "update nodename=c[1-3] instanceid=i-1,i-2,i-3",
            ],
        ),
    ],
)
def test_instances_are_told_where_slurm_has_a_place_for_them(
    release: tuple[int, int], told: list[str]
) -> None:
    assert render_updates(INSTANCES, release) == told


def test_ids_in_any_order_reach_their_nodes() -> None:
    shuffled = {"c10": ("i-10", "m"), "c2": ("i-2", "m"), "c9": ("i-9", "m")}
    assert "update nodename=c[2,9-10] instanceid=i-2,i-9,i-10" in render_updates(shuffled, (26, 5))


def test_what_could_be_taken_for_more_than_an_id_is_not_told() -> None:
    strange = {"c1": ("i-1 state=down", "m1|m2"), "c2": ("i-2\nupdate", "m1")}
    assert render_updates(strange, (26, 5)) == ["update nodename=c2 instancetype=m1"]
