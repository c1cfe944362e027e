"""What EC2 has of its own: fleets, spot, placement, options, tokens, checks."""

import time
from collections.abc import Sequence
from dataclasses import replace
from random import Random
from typing import Any

import pytest

from springtide.guard import Guard
from springtide.ports import (
    Check,
    Denied,
    Instance,
    InstanceState,
    Launch,
    Need,
    NoCapacity,
    Provider,
    Rejected,
    Throttled,
    Transient,
)
from springtide.providers.cloud import Cloud, Driver
from tests.providers.servers.aws_world import LARGE, SECRET, SMALL, Account
from tests.providers.world import (
    BLUE,
    GREEN,
    delete_until_gone,
    instances,
    nobody,
    remove_until_gone,
    running,
    until,
)


def launches(count: int, flavor: str = "small", **keys: Any) -> list[Launch]:
    one = Launch(BLUE, "n0", 1, "general", "base", flavor)
    return [replace(one, node=f"n{number}", **keys) for number in range(count)]


def driver_of(account: Account) -> Driver:
    """Asked without a look at what there is."""
    opened = account.open()
    assert isinstance(opened, Cloud)
    return opened.driver


def last_request(account: Account) -> dict[str, str]:
    return account.server.ec2.requests[-1]


@pytest.mark.accepts("C12")
async def test_nodes_that_a_full_zone_has_no_room_for_are_made_in_the_next(
    account: Account,
) -> None:
    first, second = account.zones[:2]
    provider = account.open(subnets=account.subnets)
    account.server.ec2.room[SMALL, first] = 2
    answers = await provider.create(launches(5, zone=first))
    assert len(instances(answers)) == 2
    full = [one for one in answers.values() if isinstance(one, NoCapacity)]
    assert len(full) == 3
    assert "room for 2 of 5" in str(full[0])
    left = [one for one in launches(5, zone=second) if not isinstance(answers[one.node], Instance)]
    assert len(instances(await provider.create(left))) == 3
    assert {one.zone for one in await running(provider, BLUE, 5)} == {first, second}


async def test_a_lost_reply_makes_no_second_one_even_if_lists_lag(account: Account) -> None:
    account.server.ec2.lags = True
    account.server.lose_reply()
    lost = await account.open().create(launches(3))
    assert {type(one) for one in lost.values()} == {Transient}
    assert len(instances(await account.open().create(launches(3)))) == 3
    assert len(account.server.ec2.living()) == 3


async def test_the_same_nodes_with_other_user_data_are_waited_for_not_doubled(
    account: Account,
) -> None:
    account.server.ec2.lags = True
    await account.open().create(launches(2))
    again = await account.open().create(launches(2, user_data="say other\n"))
    assert {type(one) for one in again.values()} == {Transient}
    assert len(account.server.ec2.living()) == 2


async def test_a_token_whose_instances_are_gone_has_served(account: Account) -> None:
    provider = account.open()
    (first,) = instances(await provider.create(launches(1)))
    await delete_until_gone(provider, BLUE)
    (second,) = instances(await provider.create(launches(1)))
    assert second.id != first.id
    await running(provider, BLUE, 1)


@pytest.mark.parametrize("flavor", ["small", "any"])
async def test_a_node_whose_instance_died_before_its_launch_was_answered_is_no_lack_of_room(
    account: Account, flavor: str
) -> None:
    driver = driver_of(account)
    made = dict(driver.launch(launches(3, flavor)))
    lost = made["n1"]
    assert isinstance(lost, Instance)
    account.server.ec2.take(lost.id)
    again = dict(driver.launch(launches(3, flavor)))
    assert type(again.pop("n1")) is Transient
    assert {one.id for one in instances(again)} == {one.id for one in instances(made)} - {lost.id}
    (new,) = instances(driver.launch(launches(3, flavor)[1:2]))
    assert (new.node, new.id == lost.id) == ("n1", False)


async def test_an_instance_of_a_fleet_that_is_not_to_be_seen_yet_is_what_was_asked_for(
    account: Account,
) -> None:
    account.server.ec2.lags = True
    began = time.time()
    zone = account.zones[0]
    provider = account.open()
    (made,) = instances(await provider.create(launches(1, "any", zone=zone)))
    assert (made.cluster, made.image, made.flavor, made.zone) == (BLUE, "base", "any", zone)
    assert made.created_at >= began
    assert await provider.list(BLUE) == [made]


@pytest.mark.accepts("X11")
async def test_a_spot_instance_that_the_cloud_takes_is_gone_and_is_replaced(
    account: Account,
) -> None:
    provider = account.open()
    (made,) = instances(await provider.create(launches(1, market="spot")))
    assert last_request(account)["InstanceMarketOptions.SpotOptions.SpotInstanceType"] == "one-time"
    await running(provider, BLUE, 1)
    account.server.ec2.take(made.id)
    listed = await provider.list(BLUE)
    assert {one.state for one in listed} <= {InstanceState.DELETING}
    await until(provider, BLUE, lambda found: not found)
    (new,) = instances(await provider.create(launches(1, market="spot", generation=2)))
    assert [one.id for one in await running(provider, BLUE, 1)] == [new.id]


async def test_a_spot_instance_is_rebooted_with_the_user_data_it_has(account: Account) -> None:
    provider = account.open()
    (made,) = instances(await provider.create(launches(1, market="spot", user_data="say a\n")))
    await running(provider, BLUE, 1)
    (after,) = instances(await provider.reboot(launches(1, user_data="say b\n")))
    assert after.id == made.id
    assert account.server.calls["RebootInstances"] == 1
    assert account.word_of("n0") == "a"


async def test_a_reboot_with_the_same_user_data_stops_nothing(account: Account) -> None:
    provider = account.open()
    await provider.create(launches(2, user_data="say a\n"))
    await running(provider, BLUE, 2)
    await provider.reboot(launches(2, user_data="say a\n"))
    assert account.server.calls["RebootInstances"] == 2
    assert account.server.calls["StopInstances"] == 0


async def test_several_types_are_a_fleet_whose_instances_get_names(account: Account) -> None:
    provider = account.open()
    zone = account.zones[0]
    account.server.ec2.room[SMALL, zone] = 2
    made = instances(await provider.create(launches(5, "any", user_data="say a\n")))
    assert [one.node for one in made] == [f"n{number}" for number in range(5)]
    listed = await running(provider, BLUE, 5)
    assert [one.id for one in listed] == [one.id for one in made]
    assert {one.flavor for one in listed} == {"any"}
    assert len({one.address for one in listed}) == 5
    types = [one.instance_type for one in account.server.ec2.living()]
    assert (types.count(SMALL), types.count(LARGE)) == (2, 3)
    assert account.word_of("n3") == "a"
    calls = account.server.calls
    assert (calls["CreateFleet"], calls["CreateLaunchTemplate"], calls["CreateTags"]) == (1, 1, 5)


async def test_a_fleet_that_is_full_answers_for_each_node(account: Account) -> None:
    provider = account.open()
    for size in (SMALL, LARGE):
        account.server.ec2.room[size, account.zones[0]] = 1
    answers = await provider.create(launches(4, "any", market="spot"))
    assert len(instances(answers)) == 2
    assert [type(answers[f"n{number}"]) for number in (2, 3)] == [NoCapacity, NoCapacity]
    assert last_request(account)["SpotOptions.AllocationStrategy"] == "price-capacity-optimized"


async def test_a_fleet_that_could_not_be_named_is_named_when_asked_again(
    account: Account,
) -> None:
    account.server.refuse("RequestLimitExceeded", ["CreateTags"], 503, times=1)
    lost = await account.open().create(launches(3, "any"))
    assert {type(one) for one in lost.values()} == {Throttled}
    provider = account.open()
    made = instances(await provider.create(launches(3, "any")))
    assert [one.node for one in made] == ["n0", "n1", "n2"]
    assert [one.id for one in await running(provider, BLUE, 3)] == [one.id for one in made]
    assert len(account.server.ec2.living()) == 3
    assert account.server.calls["CreateFleet"] == 1


async def test_a_lost_reply_of_a_fleet_makes_no_second_one_even_if_lists_lag(
    account: Account,
) -> None:
    account.server.ec2.lags = True
    account.server.lose_reply()
    lost = await account.open().create(launches(3, "any"))
    assert {type(one) for one in lost.values()} == {Transient}
    made = instances(await account.open().create(launches(3, "any")))
    assert [one.node for one in made] == ["n0", "n1", "n2"]
    assert len(account.server.ec2.living()) == 3


async def test_templates_of_fleets_are_made_once_and_go_with_the_cluster(
    account: Account,
) -> None:
    provider = account.open()
    await provider.create(launches(1, "any"))
    await account.open().create(launches(3, "any"))
    await provider.create(launches(4, "any", user_data="say b\n"))
    calls = account.server.calls
    assert (calls["CreateLaunchTemplate"], calls["CreateLaunchTemplateVersion"]) == (2, 1)
    await delete_until_gone(provider, BLUE)
    await provider.remove(BLUE)
    assert account.server.ec2.backend.launch_templates == {}


async def test_groups_without_zones_use_all_subnets_and_others_their_own(
    account: Account,
) -> None:
    provider = account.open(subnets=account.subnets)
    first = account.zones[0]
    account.server.ec2.room[SMALL, first] = 1
    await provider.create(launches(3))
    assert len({one.zone for one in await running(provider, BLUE, 3)}) > 1
    answer = (await provider.create(launches(4, zone="mars-1a")))["n3"]
    assert isinstance(answer, Rejected)
    assert "mars-1a" in str(answer)


@pytest.mark.accepts("N6")
async def test_an_instance_is_made_with_all_that_the_file_says_of_it(account: Account) -> None:
    zone = account.zones[0]
    cost = {"ResourceType": "instance", "Tags": [{"Key": "cost", "Value": 4711}]}
    provider = account.open(
        disk="20G",
        placement=True,
        options={"EbsOptimized": True, "TagSpecifications": [cost]},
    )
    await provider.prepare(BLUE)
    await provider.prepare(BLUE)
    await provider.create(launches(1, zone=zone))
    sent = last_request(account)
    assert sent["ImageId"] == account.images["base"]
    assert sent["InstanceType"] == SMALL
    assert sent["SubnetId"] == account.subnets[zone]
    assert sent["Placement.GroupName"] == f"springtide-{BLUE}"
    assert sent["MetadataOptions.HttpTokens"] == "required"
    assert sent["BlockDeviceMapping.1.Ebs.VolumeSize"] == "20"
    assert sent["BlockDeviceMapping.1.Ebs.DeleteOnTermination"] == "true"
    assert sent["EbsOptimized"] == "true"
    (one,) = account.server.ec2.living()
    labels = {tag["key"]: tag["value"] for tag in one.get_tags()}
    assert labels.items() >= {"cost": "4711", "springtide-cluster": BLUE}.items()
    assert SECRET not in str(sent)


@pytest.mark.parametrize("flavor", ["small", "any"])
async def test_launches_start_from_the_template_of_the_site(account: Account, flavor: str) -> None:
    backend = account.server.ec2.backend
    backend.create_launch_template("site", "", {"KeyName": "ops", "UserData": None}, {})
    provider = account.open(template="site")
    await provider.create(launches(2, flavor, user_data="say a\n"))
    await running(provider, BLUE, 2)
    assert {one.key_name for one in account.server.ec2.living()} == {"ops"}
    assert account.word_of("n1") == "a"


async def test_options_that_ec2_does_not_know_are_rejected_with_their_name(
    account: Account,
) -> None:
    answer = (await account.open(options={"Wings": 2}).create(launches(1)))["n0"]
    assert isinstance(answer, Rejected)
    assert "Wings" in str(answer)


async def test_the_placement_group_goes_when_its_instances_are_gone(account: Account) -> None:
    provider = account.open(placement=True)
    await provider.prepare(BLUE)
    await provider.create(launches(2))
    await delete_until_gone(provider, BLUE)
    await provider.remove(BLUE)
    assert account.server.ec2.groups == {}


async def test_one_unknown_instance_does_not_keep_the_others_alive(account: Account) -> None:
    provider = account.open()
    made = instances(await provider.create(launches(7)))
    ghosts = [replace(made[0], id="i-0123456789abcdef0"), replace(made[0], id="nothing")]
    assert await provider.delete([*made[:3], *ghosts, *made[3:]]) == {}
    await until(provider, BLUE, lambda found: not found)


async def test_a_refused_deletion_is_told_for_each(account: Account) -> None:
    provider = account.open()
    made = instances(await provider.create(launches(2)))
    account.server.denied.add("TerminateInstances")
    refused = await provider.delete(made)
    assert refused.keys() == {one.id for one in made}
    account.server.denied.clear()


async def test_a_protected_instance_does_not_keep_the_others_alive(account: Account) -> None:
    provider = account.open()
    made = instances(await provider.create(launches(8)))
    account.server.ec2.protected.add(made[3].id)
    refused = await provider.delete(made)
    assert [(id, type(error)) for id, error in refused.items()] == [(made[3].id, Rejected)]
    account.server.ec2.protected.clear()
    await delete_until_gone(provider, BLUE)


@pytest.mark.parametrize("code", ["InvalidParameterValue", "InternalError"])
async def test_a_deletion_that_fails_for_no_single_instance_is_asked_for_once(
    account: Account, code: str
) -> None:
    provider = account.open()
    made = instances(await provider.create(launches(8)))
    account.server.refuse(code, ["TerminateInstances"], times=100)
    assert (await provider.delete(made)).keys() == {one.id for one in made}
    assert account.server.calls["TerminateInstances"] == 1
    account.server.faults.clear()


async def test_a_cloud_where_nothing_listens_is_asked_again_later(account: Account) -> None:
    made = instances(await account.open().create(launches(2)))
    with nobody() as address:
        provider = account.open(endpoint=f"http://{address}")
        with pytest.raises(Transient):
            await provider.list(BLUE)
        refused = await provider.delete(made)
    assert [type(refused[one.id]) for one in made] == [Transient, Transient]


@pytest.mark.parametrize("flavor", ["small", "any"])
async def test_what_was_just_made_is_not_taken_for_gone_if_it_is_not_found_yet(
    account: Account, flavor: str
) -> None:
    account.server.ec2.lags = True
    provider = account.open()
    made = instances(await provider.create(launches(2, flavor)))
    refused = await provider.delete(made)
    assert {id: type(error) for id, error in refused.items()} == {one.id: Transient for one in made}
    assert [one.id for one in await provider.list(BLUE)] == [one.id for one in made]
    account.server.ec2.lags = False
    await delete_until_gone(provider, BLUE)
    assert account.server.ec2.living() == []


async def test_a_site_is_not_removed_before_instances_without_a_name_are_gone(
    account: Account,
) -> None:
    provider = account.open(placement=True)
    await provider.prepare(BLUE)
    account.server.refuse("RequestLimitExceeded", ["CreateTags"], 503, times=3)
    await provider.create(launches(3, "any"))
    await account.open().create([replace(one, cluster=GREEN) for one in launches(1)])
    assert await provider.list(BLUE) == []
    assert len(account.server.ec2.living()) == 4
    with pytest.raises(Transient, match=f"3 instances of {BLUE} are still going"):
        await provider.remove(BLUE)
    await remove_until_gone(provider, BLUE)
    assert len(account.server.ec2.living()) == 1
    assert account.server.ec2.groups == {}


@pytest.mark.accepts("C2")
async def test_two_clusters_in_one_account_do_not_touch_each_other(account: Account) -> None:
    blue, green = account.open(placement=True), account.open(placement=True)
    await blue.prepare(BLUE)
    await green.prepare(GREEN)
    await blue.create(launches(2, "any"))
    await green.create([replace(one, cluster=GREEN) for one in launches(2, "any")])
    greens = await running(green, GREEN, 2)
    await delete_until_gone(blue, BLUE)
    await blue.remove(BLUE)
    assert await green.list(GREEN) == greens
    assert list(account.server.ec2.groups) == [f"springtide-{GREEN}"]
    assert len(account.server.ec2.backend.launch_templates) == 1


class AtOnce(Random):
    """Jitter that makes no pause."""

    def uniform(self, a: float, b: float) -> float:
        return 0.0


async def ask_all(provider: Provider) -> None:
    """Each call of the port that has an effect or an answer, through the guard."""
    await provider.prepare(BLUE)
    for error in (await provider.create(launches(1))).values():
        if not isinstance(error, Instance):
            raise error


@pytest.mark.accepts("C11")
async def test_a_throttled_call_works_the_tenth_time_and_is_given_up_after_it(
    account: Account,
) -> None:
    provider = Guard(account.open(placement=True), AtOnce())
    refuse = account.server.refuse
    for actions in (["CreatePlacementGroup"], ["DescribeInstances"], ["RunInstances"]):
        account.server.ec2.groups.clear()
        refuse("RequestLimitExceeded", actions, 503, times=9)
        await ask_all(provider)
        await delete_until_gone(provider, BLUE)
        account.server.ec2.groups.clear()
        refuse("RequestLimitExceeded", actions, 503, times=10)
        with pytest.raises(Throttled, match="tried 10 times"):
            await ask_all(provider)
    refuse("RequestLimitExceeded", ["DescribeInstanceTypes"], 503, times=9)
    assert await provider.flavors()


async def test_flavors_come_from_all_pages_with_prices_where_they_are_told(
    account: Account,
) -> None:
    account.server.prices[SMALL] = 0.096
    provider = account.open()
    found = await provider.flavors()
    assert (found[SMALL].cpus, found[SMALL].memory, found[SMALL].threads) == (2, 4096, 2)
    assert (found[SMALL].price, found[LARGE].price) == (0.096, None)
    assert found["g4dn.xlarge"].gpus == 1
    assert found["c6g.large"].arch == "aarch64"
    asked = account.server.calls["GetProducts"]
    await provider.flavors()
    assert account.server.calls["GetProducts"] == asked
    account.server.denied.add("GetProducts")
    assert (await account.open().flavors())[SMALL].price is None


def need(count: int = 2, **keys: Any) -> Need:
    return replace(Need("general", count, "base", ("small",)), **keys)


def by_name(checks: Sequence[Check]) -> dict[str, Check]:
    return {one.name: one for one in checks}


@pytest.mark.accepts("C5")
async def test_a_check_finds_all_in_order_and_counts_what_others_use(account: Account) -> None:
    account.server.quotas |= {"L-1216C47A": 8.0, "L-34B43A08": 64.0}
    provider = account.open()
    await provider.create([replace(one, cluster=GREEN) for one in launches(2)])
    await provider.create(launches(1))
    wanted = need(markets=("spot", "on-demand"))
    checks = by_name(await provider.check(BLUE, [wanted]))
    assert [one for one in checks.values() if one.ok is False] == []
    assert checks["right to create instances"].ok
    assert checks["right to delete instances"].ok
    assert "4 are used by others, of 8" in checks["quota of standard on-demand vCPUs"].text
    over = by_name(await provider.check(BLUE, [need(3)]))["quota of standard on-demand vCPUs"]
    assert over.ok is False
    assert "--desired-value 10" in over.todo
    assert len(account.server.ec2.living()) == 3


async def test_a_check_says_what_is_wrong_and_what_to_do(account: Account) -> None:
    account.images["base"] = "ami-0123456789abcdef0"
    account.server.denied.add("RunInstances")
    first, second = account.zones[:2]
    provider = account.open(subnets={first: account.subnets[second], second: "subnet-none"})
    checks = by_name(await provider.check(BLUE, [need(10**6, zones=("mars",), flavors=("big",))]))
    wrong = {name for name, one in checks.items() if one.ok is False}
    assert wrong >= {"flavor big", "zone mars", "subnet subnet-none", "addresses"}
    assert all(checks[name].todo for name in wrong)
    checks = by_name(await provider.check(BLUE, [need()]))
    assert "copy it there" in checks["image base"].todo


async def test_a_check_tells_rights_that_are_missing(account: Account) -> None:
    account.server.denied |= {"RunInstances", "DescribeSubnets"}
    checks = by_name(await account.open().check(BLUE, [need()]))
    assert checks["right to create instances"].ok is False
    assert checks["subnets"].ok is False
    assert "docs/providers/aws.md" in checks["right to create instances"].todo
    assert "AAAA-secret" not in str(checks)


FLEET_RIGHTS = {
    "right to create fleets": "CreateFleet",
    "right to create launch templates": "CreateLaunchTemplate",
    "right to change launch templates": "CreateLaunchTemplateVersion",
    "right to name instances": "CreateTags",
}


@pytest.mark.parametrize(
    ("flavors", "zones"), [(("small", "any"), True), (("small",), False)], ids=["types", "subnets"]
)
async def test_a_check_tries_the_rights_that_fleets_need(
    account: Account, flavors: tuple[str, ...], zones: bool
) -> None:
    provider = account.open(subnets=account.subnets)
    wanted = need(flavors=flavors, zones=account.zones[:1] if zones else ())
    before = by_name(await provider.check(BLUE, [need(zones=account.zones), wanted]))
    assert before["right to create launch templates"].ok
    assert "before there is" in before["right to change launch templates"].text
    assert account.server.ec2.backend.launch_templates == {}
    await provider.create(launches(1, "any"))
    checks = by_name(await provider.check(BLUE, [wanted]))
    assert [checks[right].ok for right in FLEET_RIGHTS] == [True] * len(FLEET_RIGHTS)
    account.server.denied |= set(FLEET_RIGHTS.values())
    checks = by_name(await provider.check(BLUE, [wanted]))
    assert [checks[right].ok for right in FLEET_RIGHTS] == [False] * len(FLEET_RIGHTS)
    assert len(account.server.ec2.living()) == 1


async def test_a_check_does_not_ask_for_rights_of_fleets_that_nobody_makes(
    account: Account,
) -> None:
    checks = by_name(
        await account.open(subnets=account.subnets).check(BLUE, [need(zones=account.zones)])
    )
    assert not FLEET_RIGHTS.keys() & checks.keys()


@pytest.mark.accepts("A25")
async def test_credentials_that_others_can_read_are_complained_about(account: Account) -> None:
    account.credentials.chmod(0o644)
    checks = by_name(await account.open().check(BLUE, [need()]))
    assert checks["credentials file"].ok is False
    assert "chmod 600" in checks["credentials file"].todo
    assert SECRET not in str(checks)


async def test_nothing_else_is_asked_without_credentials(account: Account) -> None:
    account.server.refuse("InvalidClientTokenId", ["GetCallerIdentity"], 403)
    (only,) = await account.open().check(BLUE, [need()])
    assert (only.name, only.ok) == ("credentials", False)
    assert only.todo


async def test_credentials_that_come_later_are_found_without_a_new_start(
    account: Account, monkeypatch: pytest.MonkeyPatch
) -> None:
    later = account.directory / "later"
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_PROFILE"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", str(later))
    monkeypatch.setenv("AWS_CONFIG_FILE", str(account.directory / "none"))
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    provider = account.open(credentials=None)
    with pytest.raises(Denied, match=r"provider\.credentials"):
        await provider.list(BLUE)
    later.write_text(account.credentials.read_text())
    assert await provider.list(BLUE) == []
