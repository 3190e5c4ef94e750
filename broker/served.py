"""Every Kafka API this broker serves. ApiVersions and the dispatcher read this one table."""

from typing import Final

from pqbroker.broker.apis import Api
from pqbroker.broker.handlers import (
    api_versions,
    create_partitions,
    create_topics,
    delete_topics,
    describe_cluster,
    describe_configs,
    fetch,
    find_coordinator,
    init_producer_id,
    list_offsets,
    metadata,
    offset_commit,
    offset_delete,
    offset_fetch,
    offset_for_leader_epoch,
    produce,
)

APIS: Final[tuple[Api, ...]] = (
    produce.API,
    fetch.API,
    list_offsets.API,
    metadata.API,
    offset_commit.API,
    offset_fetch.API,
    find_coordinator.API,
    api_versions.API,
    create_topics.API,
    delete_topics.API,
    init_producer_id.API,
    offset_for_leader_epoch.API,
    describe_configs.API,
    create_partitions.API,
    offset_delete.API,
    describe_cluster.API,
)
