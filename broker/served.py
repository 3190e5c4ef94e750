"""Every Kafka API this broker serves. ApiVersions and the dispatcher read this one table."""

from typing import Final

from pqbroker.broker.apis import Api
from pqbroker.broker.handlers import api_versions, fetch, list_offsets, metadata, produce

APIS: Final[tuple[Api, ...]] = (produce.API, fetch.API, list_offsets.API, metadata.API, api_versions.API)
