"""Deleting the first rows of a tablet."""

from pqbroker.broker.ground.access import AclOperation
from pqbroker.broker.services.tables.callers import TablesCaller
from pqbroker.broker.services.tables.finding import check_tablet, find_table
from pqbroker.pq.serving.partition_server import PartitionServer
from pqbroker.tables.refusals import TableError


async def trim(caller: TablesCaller, name: str, tablet_index: int, first_kept: int) -> PartitionServer:
    """Delete the rows before `first_kept`; none that are gone come back (E.4).

    KafkaError as `find_topic` and of the store; TableError NO_TABLE, NO_TABLET, CANNOT_TRIM.
    """
    topic, _ = find_table(caller, AclOperation.DELETE, name)
    partition = topic.partitions[check_tablet(topic, tablet_index)]
    if partition.is_loaded and first_kept > partition.end_offset:
        text = f"cannot trim tablet {partition.index} at {first_kept}: its rows end at {partition.end_offset}"
        raise TableError("CANNOT_TRIM", text, "Give the index of the first row to keep.")
    await partition.retention.delete_before(max(first_kept, 0))
    return partition
