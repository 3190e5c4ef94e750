"""Every Kafka API this broker serves. ApiVersions and the dispatcher read this one table."""

from typing import Final

from pqbroker.broker.apis import Api
from pqbroker.broker.handlers import (
    api_versions,
    create_partitions,
    create_topics,
    delete_groups,
    delete_topics,
    describe_cluster,
    describe_configs,
    describe_groups,
    fetch,
    find_coordinator,
    heartbeat,
    init_producer_id,
    join_group,
    leave_group,
    list_groups,
    list_offsets,
    metadata,
    offset_for_leader_epoch,
    produce,
    sync_group,
)

APIS: Final[tuple[Api, ...]] = (
    produce.API,
    fetch.API,
    list_offsets.API,
    metadata.API,
    find_coordinator.API,
    join_group.API,
    heartbeat.API,
    leave_group.API,
    sync_group.API,
    describe_groups.API,
    list_groups.API,
    api_versions.API,
    create_topics.API,
    delete_topics.API,
    init_producer_id.API,
    offset_for_leader_epoch.API,
    describe_configs.API,
    create_partitions.API,
    delete_groups.API,
    describe_cluster.API,
)
