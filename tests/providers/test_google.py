"""Google Compute Engine passes the tests of all providers, against the API's own description."""

from collections.abc import AsyncIterator

import pytest

from tests.providers.conformance import Conformance
from tests.providers.google_world import google_world
from tests.providers.world import World


@pytest.mark.accepts("C30")
class TestGoogle(Conformance):
    """See tests/providers/servers/google.py for what stands in for Google."""

    @pytest.fixture
    async def world(self) -> AsyncIterator[World]:
        async with google_world() as world:
            yield world
