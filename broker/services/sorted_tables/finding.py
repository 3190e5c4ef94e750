"""Sorted tables that a caller names, looked up where access to them is checked."""

from pqbroker.broker.ground.access import AclKind, AclOperation, AclResource, check_access, is_allowed
from pqbroker.broker.services.tables.callers import TablesCaller
from pqbroker.tables.refusals import TableError
from pqbroker.tables.serving.table import SortedTable


def is_sorted_table(caller: TablesCaller, name: str) -> bool:
    """Return True if the name is a sorted table's; who may use it is not asked."""
    return caller.node.cell.current.sorted_tables.get(name) is not None


def find_sorted(caller: TablesCaller, operation: AclOperation, name: str) -> SortedTable:
    """KafkaError TOPIC_AUTHORIZATION_FAILED; TableError NO_TABLE."""
    check_access(caller, operation, AclResource(AclKind.TOPIC, name))
    table = caller.node.cell.current.sorted_tables.get(name)
    if table is None:
        raise TableError("NO_TABLE", f"there is no sorted table {name[:300]!r}", "GET /v1/tables lists the tables.")
    return table


def every_sorted_table(caller: TablesCaller, operation: AclOperation) -> list[SortedTable]:
    """Return the sorted tables that the caller may use so."""
    tables = caller.node.cell.current.sorted_tables.tables
    return [
        table for name, table in tables.items() if is_allowed(caller, operation, AclResource(AclKind.TOPIC, name))
    ]
