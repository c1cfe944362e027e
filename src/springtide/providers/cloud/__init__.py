"""What clouds have in common, whatever their SDKs: their adapters use it, nobody else does.

A cloud's adapter is a `Driver`: blocking calls over its SDK, one translator of its errors.
`Cloud` makes a `ports.Provider` of it: threads of its own, launches in bulk, none made twice.
"""

from springtide.providers.cloud.catalog import Catalog
from springtide.providers.cloud.cloud import Cloud
from springtide.providers.cloud.driver import Driver

__all__ = ["Catalog", "Cloud", "Driver"]
