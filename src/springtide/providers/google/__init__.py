"""Google Compute Engine, over its REST API with google-auth: a provider of the cluster file.

`springtide.compose` imports this when the file says `kind: google`, and nobody else does.
"""

from pathlib import Path

from springtide.ports import Provider
from springtide.providers.cloud import Catalog, Cloud
from springtide.providers.google.credentials import ENDPOINT, credentials
from springtide.providers.google.driver import Compute
from springtide.providers.google.rest import Api
from springtide.spec.clouds import Google


def provider(wanted: Google, catalog: Catalog, state: Path) -> Provider:
    """Makes no call; raises CloudError if the credentials cannot be used."""
    endpoint = wanted.endpoint or ENDPOINT
    who = credentials(wanted.credentials, endpoint)
    return Cloud(Compute(wanted, catalog, Api(endpoint, wanted.project, who, wanted.timeout)))
