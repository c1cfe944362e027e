"""A provider of machines that exist without us refuses to make or start them."""

from springtide.ports import Instance, InstanceState, Launch, Rejected
from springtide.providers.none import NoProvider


async def test_nothing_is_made_and_nothing_rebooted() -> None:
    wanted = [Launch("blue", node, 1, "general", "host", "default") for node in ("n0", "n1")]
    provider = NoProvider()
    for answers in (await provider.create(wanted), await provider.reboot(wanted)):
        assert sorted(answers) == ["n0", "n1"]
        for answer in answers.values():
            assert isinstance(answer, Rejected)
            assert "provider `none`" in str(answer)
    assert await provider.list("blue") == ()


async def test_machines_that_exist_without_us_have_no_console_here() -> None:
    known = Instance("n0", "blue", "n0", 1, InstanceState.RUNNING)
    assert await NoProvider().console([known]) == {}
