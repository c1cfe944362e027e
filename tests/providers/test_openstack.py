"""The provider for OpenStack against a real one, as far as all providers are alike."""

from collections.abc import Iterator

import pytest

from tests.openstack.cloud import Cloud
from tests.openstack.plugin import MARKS
from tests.providers.conformance import Conformance
from tests.providers.openstack_world import world_of
from tests.providers.world import World

pytestmark = MARKS


@pytest.mark.accepts("C30")
class TestOpenStack(Conformance):
    @pytest.fixture
    def world(self, openstack_cloud: Cloud) -> Iterator[World]:
        with world_of(openstack_cloud) as world:
            yield world
