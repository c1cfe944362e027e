"""Instances of Amazon EC2. `compose` calls `provider`; nobody else imports this package."""

from pathlib import Path

from springtide.ports import Provider
from springtide.providers.aws.account import Account
from springtide.providers.aws.driver import Ec2
from springtide.providers.aws.requests import refuse_options
from springtide.providers.cloud import Catalog, Cloud
from springtide.spec.clouds import Aws


def provider(wanted: Aws, catalog: Catalog, state: Path) -> Provider:
    """Nothing is asked of AWS yet, and nothing is kept in `state`."""
    refuse_options(wanted.options)
    return Cloud(Ec2(Account(wanted), catalog))
