"""Access rules of a Kafka cluster: shown, added and removed."""

from collections.abc import Mapping, Sequence
from typing import Final, NamedTuple

from pqbroker.cli.kafka.cluster import Cluster
from pqbroker.cli.refusals import check
from pqbroker.protocol.messages.create_acls import AclCreation, CreateAclsRequest, CreateAclsResponse
from pqbroker.protocol.messages.delete_acls import DeleteAclsFilter, DeleteAclsRequest, DeleteAclsResponse
from pqbroker.protocol.messages.describe_acls import DescribeAclsRequest, DescribeAclsResponse

ANY_CODE: Final = 1
"""Code of a filter for every value."""
RESOURCE_KINDS: Final[Mapping[str, int]] = {
    "topic": 2, "group": 3, "cluster": 4, "transactional-id": 5, "delegation-token": 6, "user": 7,
}  # fmt: skip
PATTERN_TYPES: Final[Mapping[str, int]] = {"any": ANY_CODE, "match": 2, "literal": 3, "prefixed": 4}
ACL_OPERATIONS: Final[Mapping[str, int]] = {
    "all": 2, "read": 3, "write": 4, "create": 5, "delete": 6, "alter": 7, "describe": 8, "cluster-action": 9,
    "describe-configs": 10, "alter-configs": 11, "idempotent-write": 12, "create-tokens": 13, "describe-tokens": 14,
    "two-phase-commit": 15,
}  # fmt: skip
ACL_PERMISSIONS: Final[Mapping[str, int]] = {"deny": 2, "allow": 3}


class AclEntry(NamedTuple):
    """One rule, in Kafka's codes."""

    kind: int
    name: str
    pattern: int
    principal: str
    host: str
    operation: int
    permission: int

    def shown(self) -> dict[str, str]:
        """Return what is printed, by column."""
        return {
            "permission": _word(ACL_PERMISSIONS, self.permission), "principal": self.principal,
            "operation": _word(ACL_OPERATIONS, self.operation), "kind": _word(RESOURCE_KINDS, self.kind),
            "name": self.name, "pattern": _word(PATTERN_TYPES, self.pattern), "host": self.host,
        }  # fmt: skip


class AclFilter(NamedTuple):
    """Rules that a command names; None and ANY_CODE: whatever the value."""

    kind: int = ANY_CODE
    name: str | None = None
    pattern: int = ANY_CODE
    principal: str | None = None
    host: str | None = None
    operation: int = ANY_CODE
    permission: int = ANY_CODE


def describe_acls(cluster: Cluster, wanted: AclFilter) -> list[AclEntry]:
    """Return the rules that a filter matches; CommandError."""
    request = DescribeAclsRequest(
        resource_type_filter=wanted.kind, resource_name_filter=wanted.name, pattern_type_filter=wanted.pattern,
        principal_filter=wanted.principal, host_filter=wanted.host, operation=wanted.operation,
        permission_type=wanted.permission,
    )  # fmt: skip
    answer = cluster.ask(request, DescribeAclsResponse)
    check(answer.error_code, "cannot list access rules", answer.error_message)
    return sorted(
        AclEntry(
            found.resource_type, found.resource_name, found.pattern_type, rule.principal, rule.host, rule.operation,
            rule.permission_type,
        )
        for found in answer.resources
        for rule in found.acls
    )  # fmt: skip


def create_acls(cluster: Cluster, rules: Sequence[AclEntry]) -> None:
    """Add rules; CommandError for the first that is refused."""
    creations = [
        AclCreation(
            resource_type=rule.kind, resource_name=rule.name, resource_pattern_type=rule.pattern,
            principal=rule.principal, host=rule.host, operation=rule.operation, permission_type=rule.permission,
        )
        for rule in rules
    ]  # fmt: skip
    answer = cluster.ask_controller(CreateAclsRequest(creations=creations), CreateAclsResponse)
    for rule, result in zip(rules, answer.results, strict=True):
        check(result.error_code, f"cannot add the access rule for {rule.principal}", result.error_message)


def delete_acls(cluster: Cluster, wanted: Sequence[AclFilter]) -> list[AclEntry]:
    """Remove the rules that filters match, and return them; CommandError."""
    filters = [
        DeleteAclsFilter(
            resource_type_filter=one.kind, resource_name_filter=one.name, pattern_type_filter=one.pattern,
            principal_filter=one.principal, host_filter=one.host, operation=one.operation,
            permission_type=one.permission,
        )
        for one in wanted
    ]  # fmt: skip
    answer = cluster.ask_controller(DeleteAclsRequest(filters=filters), DeleteAclsResponse)
    removed: set[AclEntry] = set()
    for result in answer.filter_results:
        check(result.error_code, "cannot remove access rules", result.error_message)
        for rule in result.matching_acls:
            check(rule.error_code, "cannot remove an access rule", rule.error_message)
            removed.add(AclEntry(
                rule.resource_type, rule.resource_name, rule.pattern_type, rule.principal, rule.host, rule.operation,
                rule.permission_type,
            ))  # fmt: skip
    return sorted(removed)


def _word(words: Mapping[str, int], code: int) -> str:
    return next((word for word, known in words.items() if known == code), str(code))
