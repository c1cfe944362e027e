"""What is Google's own: bulk launches and their operations, names, spot, families, faults."""

import subprocess
from collections.abc import AsyncIterator
from dataclasses import replace
from random import Random
from typing import Any

import pytest

from springtide.guard import TRIES, Guard
from springtide.ports import (
    CloudError,
    Instance,
    InstanceState,
    Launch,
    NoCapacity,
    QuotaExceeded,
    Rejected,
    Throttled,
    Transient,
)
from springtide.providers.google import rest
from tests.providers.google_world import Place, google_place, spot
from tests.providers.servers.google_state import REGION, ZONES
from tests.providers.world import BLUE, GREEN, delete_until_gone, instances, running, until

BULK = "instances.bulkInsert"


@pytest.fixture
async def place() -> AsyncIterator[Place]:
    async with google_place() as place:
        yield place


def wanted(*nodes: str, cluster: str = BLUE, **more: Any) -> list[Launch]:
    return [Launch(cluster, node, 1, "general", "base", "small", **more) for node in nodes]


def bodies(place: Place) -> list[dict[str, Any]]:
    return [body for method, body in place.server.bodies if method == BULK]


class Instantly(Random):
    """No pause between tries."""

    def uniform(self, a: float, b: float) -> float:
        return 0.0


# --- launches ----------------------------------------------------------------------------


@pytest.mark.accepts("N6")
async def test_a_launch_asks_for_flavor_image_network_disk_and_the_files_own_options(
    place: Place,
) -> None:
    provider = place.open(
        tags=("nodes",),
        disk="20G",
        disk_type="pd-ssd",
        options={"canIpForward": True, "labels": {"team": "x"}, "scheduling": {"minNodeCpus": 2}},
    )
    instances(await provider.create(wanted("n0", "n1", zone=ZONES[1], market="spot")))
    (body,) = bodies(place)
    properties = body["instanceProperties"]
    disk = properties["disks"][0]
    assert (body["count"], body["minCount"]) == ("2", "1")
    assert [*body["perInstanceProperties"]] == [f"{BLUE}-n0-1", f"{BLUE}-n1-1"]
    assert properties["machineType"] == "n2-standard-4"
    assert disk["autoDelete"] is True
    assert disk["initializeParams"]["sourceImage"].endswith("/global/images/debian-12-v1")
    assert disk["initializeParams"]["diskSizeGb"] == "20"
    assert disk["initializeParams"]["diskType"] == "pd-ssd"
    assert "accessConfigs" not in properties["networkInterfaces"][0]
    assert properties["tags"] == {"items": ["nodes"]}
    assert properties["canIpForward"] is True
    assert properties["labels"]["team"] == "x"
    assert properties["labels"]["springtide-cluster"] == BLUE
    assert properties["scheduling"]["provisioningModel"] == "SPOT"
    assert properties["scheduling"]["minNodeCpus"] == 2
    (one, _) = await running(provider, BLUE, 2)
    assert (one.zone, one.id) == (ZONES[1], f"{ZONES[1]}/{BLUE}-n0-1")


@pytest.mark.accepts("C12")
async def test_when_a_zone_has_room_for_some_the_others_are_told_it_is_full(place: Place) -> None:
    place.server.state.room[ZONES[0]] = 2
    provider = place.open()
    answers = await provider.create(wanted("n0", "n1", "n2", "n3"))
    assert [one.node for one in instances(answers)] == ["n0", "n1"]
    full = [answers["n2"], answers["n3"]]
    assert [type(one) for one in full] == [NoCapacity, NoCapacity]
    assert "does not have enough resources" in str(full[0])
    assert len(await running(provider, BLUE, 2)) == 2
    again = await provider.create(wanted("n2", "n3", zone=ZONES[1]))
    assert len(instances(again)) == 2


@pytest.mark.accepts("C12")
async def test_a_full_zone_is_asked_anew_though_google_remembers_the_request(place: Place) -> None:
    place.server.state.room[ZONES[0]] = 0
    provider = place.open()
    assert isinstance((await provider.create(wanted("n0")))["n0"], NoCapacity)
    place.server.state.room[ZONES[0]] = 1
    assert len(instances(await provider.create(wanted("n0")))) == 1
    assert place.server.count(BULK) == 3
    assert len(place.server.state.requests) == 2


async def test_what_exceeds_the_quota_is_told_for_each_node(place: Place) -> None:
    place.server.state.limits["INSTANCES"] = 3
    answers = await place.open().create(wanted(*(f"n{i}" for i in range(5))))
    kinds = [type(answers[f"n{i}"]) for i in range(5)]
    assert kinds == [Instance, Instance, Instance, QuotaExceeded, QuotaExceeded]


async def test_a_lost_reply_and_a_list_that_lags_make_no_second_instance_for_a_new_client(
    place: Place,
) -> None:
    place.server.state.lag = 3
    place.server.lost.append(BULK)
    first = place.open()
    lost = await first.create(wanted("n0", "n1"))
    assert {type(one) for one in lost.values()} == {Transient}
    other = place.open()
    made = instances(await other.create(wanted("n0", "n1")))
    assert {one.id for one in made} == {f"{ZONES[0]}/{BLUE}-n{i}-1" for i in range(2)}
    assert len(place.server.state.machines) == 2
    assert len(place.server.state.requests) == 1, "the request id is the same"
    assert {one.id for one in await running(other, BLUE, 2)} == {one.id for one in made}


async def test_a_launch_that_takes_too_long_is_waited_for_by_the_next_and_made_once(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    state = place.server.state
    state.stuck, state.lag = True, 1000
    provider = place.open()
    with monkeypatch.context() as hasty:
        hasty.setattr(rest, "OPERATION_S", 0.1)
        slow = (await provider.create(wanted("n0")))["n0"]
    assert type(slow) is Transient
    assert "still at work" in str(slow)
    (operation,) = (state.operations[name] for name in state.requests.values())
    operation.stuck = False
    assert len(instances(await provider.create(wanted("n0")))) == 1
    assert (len(state.machines), len(state.requests)) == (1, 1)


async def test_an_operation_is_waited_for_longer_than_a_call_may_take(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Only calls that wait for it have little time here: any other may take long."""
    waited = rest.Api._waited

    def hasty(api: rest.Api, path: str, what: str) -> rest.Answer | None:
        before, api._timeout_s = api._timeout_s, 0.5
        try:
            return waited(api, path, what)
        finally:
            api._timeout_s = before

    monkeypatch.setattr(rest.Api, "_waited", hasty)
    place.server.slow.append("zoneOperations.wait")
    provider = place.open()
    assert len(instances(await provider.create(wanted("n0")))) == 1
    assert place.server.count("zoneOperations.wait") >= 2


async def test_one_that_went_and_is_wanted_again_is_made_though_google_remembers(
    place: Place,
) -> None:
    provider = place.open()
    for _ in range(3):
        (made,) = instances(await provider.create(wanted("n0")))
        assert made.address is not None
        await delete_until_gone(provider, BLUE)
    assert len(place.server.state.requests) == 3


async def test_a_name_that_is_ours_already_is_found_however_it_is_told(place: Place) -> None:
    provider = place.open()
    for late in (False, True):
        place.server.state.late_conflicts = late
        place.server.state.lag = 8
        node = f"n{late:d}"
        await provider.create(wanted(node))
        place.server.state.requests.clear()  # Google forgets them after a while
        (found,) = instances(await place.open().create(wanted(node)))
        assert found.id == f"{ZONES[0]}/{BLUE}-{node}-1"
    assert len(place.server.state.machines) == 2


@pytest.mark.accepts("C2")
async def test_a_name_that_another_cluster_has_is_refused_and_nothing_of_it_touched(
    place: Place,
) -> None:
    """`c` with node `a-n0` and `c-a` with node `n0` would call theirs the same."""
    provider = place.open()
    (theirs,) = instances(await provider.create(wanted("n0", cluster="c-a")))
    answers = await provider.create(wanted("a-n0", "a-n1", cluster="c"))
    assert isinstance(answers["a-n0"], Rejected)
    assert "not this cluster's" in str(answers["a-n0"])
    assert type(answers["a-n1"]) is Transient
    assert len(instances(await provider.create(wanted("a-n1", cluster="c")))) == 1
    await delete_until_gone(provider, "c")
    assert [one.id for one in await provider.list("c-a")] == [theirs.id]


async def test_nodes_with_odd_names_are_known_again_exactly(place: Place) -> None:
    odd = ["Node.01", "node_02", "x" * 63, f"{'y' * 60}.{'z' * 60}", "n1"]
    provider = place.open()
    made = instances(await provider.create(wanted(*odd)))
    assert {one.node for one in made} == {*odd}
    assert all(len(name) <= 63 for _, name in place.server.state.machines)
    other = place.open()
    assert {one.node for one in await running(other, BLUE, 5)} == {*odd}
    assert instances(await other.create(wanted(*odd))) == await other.list(BLUE)


async def test_an_instance_that_only_has_our_label_is_not_ours(place: Place) -> None:
    provider = place.open()
    await provider.create(wanted("n0", "n1"))
    machine = place.server.state.machine(f"{ZONES[0]}/{BLUE}-n1-1")
    machine.shown["description"] = "made by hand"
    assert [one.node for one in await running(place.open(), BLUE, 1)] == ["n0"]


def run_as(script: str, name: str, path: str) -> str:
    """What the script says, on an instance of this name."""
    curl = f"curl() {{ echo {name}; }}\n"
    env = {"PATH": path}
    done = subprocess.run(
        ["sh", "-c", curl + script], capture_output=True, text=True, env=env, check=True
    )
    return done.stdout.strip()


async def test_the_script_of_a_launch_knows_which_node_it_is_on(place: Place) -> None:
    say = 'echo "$TIDE_CLUSTER $TIDE_NODE $TIDE_GENERATION"\n'
    nodes = ["n0", "a-b-7", "Odd_1", "Odd.x"]
    made = wanted(*nodes, user_data=say)
    await place.open().create([replace(one, generation=i) for i, one in enumerate(made, 3)])
    found = {
        run_as(one.script, name, "/usr/bin:/bin")
        for (_, name), one in place.server.state.machines.items()
    }
    assert found == {f"{BLUE} {node} {i}" for i, node in enumerate(nodes, 3)}


# --- lists -------------------------------------------------------------------------------


async def test_a_list_without_a_zone_that_cannot_be_reached_is_an_error(place: Place) -> None:
    provider = place.open()
    await provider.create(wanted("n0"))
    place.server.state.unreachable = ZONES[2]
    with pytest.raises(Transient, match="UNREACHABLE"):
        await provider.list(BLUE)
    place.server.state.unreachable = None
    assert len(await running(provider, BLUE, 1)) == 1


async def test_instances_of_all_zones_are_listed_with_one_call(place: Place) -> None:
    provider = place.open()
    for number, zone in enumerate(ZONES[:3]):
        await provider.create(wanted(f"n{number}", zone=zone))
    await running(provider, BLUE, 3)
    before = place.server.count("instances.aggregatedList")
    listed = await provider.list(BLUE)
    assert [one.zone for one in listed] == [*ZONES[:3]]
    assert place.server.count("instances.aggregatedList") == before + 1


@pytest.mark.accepts("X11")
async def test_a_preempted_spot_instance_goes_and_its_node_can_be_made_again(place: Place) -> None:
    provider = place.open()
    (made,) = instances(await provider.create([spot(one) for one in wanted("n0")]))
    await running(provider, BLUE, 1)
    place.server.state.preempt(made.id)
    (going,) = await provider.list(BLUE)
    assert going.state is InstanceState.DELETING
    await until(provider, BLUE, lambda found: not found)
    again = [replace(spot(one), generation=2) for one in wanted("n0")]
    (new,) = instances(await provider.create(again))
    assert new.id != made.id


async def test_an_instance_that_was_stopped_says_so_and_when_it_started_again(place: Place) -> None:
    provider = place.open()
    (made,) = instances(await provider.create(wanted("n0")))
    place.server.state.stop(made.id)
    await until(provider, BLUE, lambda found: found[0].state is InstanceState.STOPPED)
    (started,) = instances(await provider.reboot(wanted("n0")))
    assert place.server.count("instances.start") == 1
    assert started.booted_at > started.created_at


# --- images ------------------------------------------------------------------------------


async def test_a_family_that_moved_on_shows_old_instances_as_of_another_image(
    place: Place,
) -> None:
    provider = place.open()
    await provider.create(wanted("n0"))
    assert [one.image for one in await running(provider, BLUE, 1)] == ["base"]
    asked = place.server.count("images.getFromFamily")
    assert asked == 1, "what a family leads to is remembered"
    place.server.state.add_image("debian-12-v2", family="debian-12")
    fresh = place.open()
    await fresh.create(wanted("n1"))
    images = {one.node: one.image for one in await running(fresh, BLUE, 2)}
    assert images == {"n0": "projects/tide-test/global/images/debian-12-v1", "n1": "base"}


async def test_an_image_that_does_not_exist_is_rejected(place: Place) -> None:
    answer = (await place.open().create([replace(wanted("n0")[0], image="none")]))["n0"]
    assert type(answer) is Rejected
    assert "no-such-image" in str(answer)


async def test_two_clusters_call_their_images_the_same(place: Place) -> None:
    provider = place.open()
    for cluster in (BLUE, GREEN):
        (made,) = instances(await provider.create(wanted("n0", cluster=cluster)))
        image = await provider.snapshot(made, "Golden 1")
        assert (image.name, image.cluster, image.ready) == ("Golden 1", cluster, False)
    (mine,) = await provider.images(BLUE)
    (mine,) = await provider.images(BLUE)
    assert mine.ready
    await provider.forget(mine)
    assert len(await provider.images(GREEN)) == 1


# --- deletes, throttles ------------------------------------------------------------------


async def test_deletes_stop_when_throttled_and_the_rest_is_told(place: Place) -> None:
    provider = place.open()
    made = instances(await provider.create(wanted(*(f"n{i:02}" for i in range(40)))))
    place.server.refuse("instances.delete", 403, "rateLimitExceeded", times=40)
    refused = await provider.delete(made)
    assert {type(one) for one in refused.values()} == {Throttled}
    assert len(refused) == 40
    assert place.server.count("instances.delete") <= 32
    place.server.refusals.clear()
    assert await provider.delete(made) == {}
    await until(provider, BLUE, lambda found: not found)


async def test_one_that_is_going_is_not_asked_again(place: Place) -> None:
    provider = place.open()
    await provider.delete(instances(await provider.create(wanted("n0"))))
    (going,) = await provider.list(BLUE)
    assert going.state is InstanceState.DELETING
    await provider.delete([going])
    assert place.server.count("instances.delete") == 1


@pytest.mark.accepts("C11")
@pytest.mark.parametrize(("status", "reason"), [(429, "any"), (403, "rateLimitExceeded")])
async def test_nine_throttled_tries_of_any_call_and_a_tenth_that_works(
    place: Place, status: int, reason: str
) -> None:
    guard = Guard(place.open(), Instantly())

    def throttle() -> None:
        place.server.refuse("*", status, reason, times=TRIES - 1)

    throttle()
    (made,) = instances(await guard.create(wanted("n0")))
    throttle()
    assert len(await guard.list(BLUE)) == 1
    throttle()
    assert instances(await guard.reboot(wanted("n0")))
    throttle()
    image = await guard.snapshot(made, "one")
    throttle()
    assert len(await guard.images(BLUE)) == 1
    throttle()
    await guard.forget(image)
    throttle()
    assert "small" not in await guard.flavors()
    throttle()
    assert (await guard.console([made]))[made.id]
    throttle()
    assert await guard.delete([made]) == {}
    assert place.server.refusals == []


@pytest.mark.accepts("C11")
async def test_ten_throttled_tries_fail_with_the_reason(place: Place) -> None:
    guard = Guard(place.open(), Instantly())
    place.server.refuse("*", 429, "rateLimitExceeded", times=TRIES)
    with pytest.raises(CloudError, match=r"rateLimitExceeded.*tried 10 times"):
        await guard.list(BLUE)


async def test_a_server_that_is_not_there_is_a_transient_error(place: Place) -> None:
    gone = place.open(endpoint="http://127.0.0.1:9")
    with pytest.raises(Transient, match="not reached"):
        await gone.list(BLUE)


# --- sizes -------------------------------------------------------------------------------


async def test_machine_types_are_told_on_all_pages_with_their_cards(place: Place) -> None:
    found = await place.open().flavors()
    assert found.keys() == {"n2-standard-4", "e2-standard-2", "t2a-standard-4", "a2-highgpu-1g"}
    arm, gpu = found["t2a-standard-4"], found["a2-highgpu-1g"]
    assert (arm.arch, arm.threads, arm.memory) == ("aarch64", 1, 16384)
    assert (gpu.gpus, gpu.threads, gpu.price) == (1, 2, None)


async def test_the_end_of_the_console_is_told(place: Place) -> None:
    provider = place.open()
    (made,) = instances(await provider.create(wanted("n0")))
    said = (await provider.console([made]))[made.id]
    assert said.endswith(f"login: {BLUE}-n0-1\n")
    assert len(said) == 16 << 10
    assert REGION in made.id
