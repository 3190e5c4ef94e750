"""The queue of a name: any topic, and so any ordered table."""

from pqbroker.broker.ground.access import AclKind, AclOperation, AclResource, check_access
from pqbroker.broker.services.tables.callers import TablesCaller
from pqbroker.broker.services.tables.finding import find_rows
from pqbroker.pq.serving.topic import Topic
from pqbroker.storage.tablets.scheme_objects import SORTED_TABLE
from pqbroker.tables.refusals import TableError


def find_queue(caller: TablesCaller, operation: AclOperation, name: str) -> Topic:
    """KafkaError as `find_topic`; TableError STATIC_TABLE, SORTED_TABLE."""
    if caller.node.cell.current.scheme.kind_of(name) == SORTED_TABLE:
        check_access(caller, operation, AclResource(AclKind.TOPIC, name))
        text = f"{name} is a sorted table, and a queue is an ordered one, or a topic"
        raise TableError("SORTED_TABLE", text, "Look up its rows, or give it a change feed and read that topic.")
    return find_rows(caller, operation, name)
