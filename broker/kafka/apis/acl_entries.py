"""Access rules as the three APIs for them have them in requests and answers."""

from collections.abc import Mapping
from typing import Any, Protocol

from pqbroker.broker.services.access.rules import RuleFilter


class FilterEntry(Protocol):
    """The fields of a filter, in a request to show rules or to remove them."""

    resource_type_filter: int
    pattern_type_filter: int
    resource_name_filter: str | None
    principal_filter: str | None
    host_filter: str | None
    operation: int
    permission_type: int


def filter_of(entry: FilterEntry) -> RuleFilter:
    """Return the filter that an entry asks for."""
    return RuleFilter(
        entry.resource_type_filter, entry.pattern_type_filter, entry.resource_name_filter, entry.principal_filter,
        entry.host_filter, entry.operation, entry.permission_type,
    )  # fmt: skip


def asked_rule(entry: Any) -> Mapping[str, Any]:
    """Return the rule that an entry of CreateAcls asks for, by field."""
    return {
        "kind": entry.resource_type, "pattern": entry.resource_pattern_type, "name": entry.resource_name,
        "principal": entry.principal, "host": entry.host, "operation": entry.operation,
        "permission": entry.permission_type,
    }  # fmt: skip
