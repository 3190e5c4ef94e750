"""Rights of a caller, and its requests under them: each request under each set of rights.

Nobody logs in: the caller is told from the administrator by its address. Every single right is given alone, and every
right is denied alone to one who has all others; so each right is seen to be enough, or needed, or neither.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final

from pqbroker.broker.ground.access import CLUSTER, AclKind, AclOperation
from pqbroker.broker.services.access.rules import AclPattern, AclPermission
from pqbroker.protocol.messages import (
    delete_topics,
    describe_cluster,
    describe_groups,
    init_producer_id,
    list_groups,
    list_transactions,
    metadata,
    offset_fetch,
)
from pqbroker.protocol.messages.create_acls import AclCreation
from tests.broker.access_cases import CASES
from tests.broker.wire import BY_REQUEST

ADMIN: Final = "127.0.0.2"
CALLER: Final = "127.0.0.3"
ITSELF: Final = "127.0.0.1"
"""Address from which Kafka's broker calls its controller, which asks the rules too."""
TOPICS: Final = ("t", "u")
"""A topic that exists, and one that never does."""
NAMES: Final = {
    AclKind.TOPIC: TOPICS, AclKind.GROUP: ("g",), AclKind.CLUSTER: (CLUSTER.name,), AclKind.TRANSACTIONAL_ID: ("x",),
}  # fmt: skip
_OPERATIONS: Final = {
    AclKind.TOPIC: "READ WRITE CREATE DELETE ALTER DESCRIBE DESCRIBE_CONFIGS ALTER_CONFIGS",
    AclKind.GROUP: "READ DELETE DESCRIBE DESCRIBE_CONFIGS ALTER_CONFIGS",
    AclKind.CLUSTER: "CREATE ALTER DESCRIBE CLUSTER_ACTION DESCRIBE_CONFIGS ALTER_CONFIGS IDEMPOTENT_WRITE",
    AclKind.TRANSACTIONAL_ID: "WRITE DESCRIBE",
}


LEAVES: Final = -1
"""Epoch of a member that goes: one that came would keep the group from taking offsets for 45 s."""
_LEFT_ALONE: Final = {"DescribeUserScramCredentials"}
"""APIs that Kafka does not answer at all where it refuses them."""


@dataclass(frozen=True, slots=True)
class Scenario:
    """Rules of the caller, by the name under which answers are kept."""

    name: str
    rules: tuple[AclCreation, ...]


def rule(
    kind: AclKind, name: str, operation: AclOperation, permission: AclPermission = AclPermission.ALLOW,
    host: str = CALLER, pattern: AclPattern = AclPattern.LITERAL,
) -> AclCreation:  # fmt: skip
    """Return a rule for whoever does not log in."""
    return AclCreation(
        resource_type=kind, resource_name=name, resource_pattern_type=pattern, principal="User:ANONYMOUS", host=host,
        operation=operation, permission_type=permission,
    )  # fmt: skip


def everything(host: str) -> list[AclCreation]:
    """Return rules that allow a host everything."""
    return [
        rule(kind, CLUSTER.name if kind is AclKind.CLUSTER else "*", AclOperation.ALL, host=host) for kind in NAMES
    ]


def scenarios() -> Iterator[Scenario]:
    """Yield every set of rights: none, all, each alone, each denied alone."""
    yield Scenario("nothing", ())
    yield Scenario("everything", tuple(everything(CALLER)))
    for kind, words in _OPERATIONS.items():
        for operation in map(AclOperation.__getitem__, words.split()):
            allowed = tuple(rule(kind, name, operation) for name in NAMES[kind])
            yield Scenario(f"{operation.name} on {kind.name}", allowed)
            denied = tuple(rule(kind, name, operation, AclPermission.DENY) for name in NAMES[kind])
            yield Scenario(f"all but {operation.name} on {kind.name}", (*everything(CALLER), *denied))
    yield Scenario("a prefix", (rule(AclKind.TOPIC, "t", AclOperation.READ, pattern=AclPattern.PREFIXED),))
    denied = (rule(AclKind.TOPIC, "*", AclOperation.ALL, AclPermission.DENY),)
    yield Scenario("all topics denied", (*everything(CALLER), *denied))


@dataclass(frozen=True, slots=True)
class Request:
    """A request in a version, and a name for its answers."""

    name: str
    asked: Any
    version: int


def requests(topic_id: bytes) -> Sequence[Request]:
    """Return what is asked in each scenario. `topic_id`: that of the topic that exists."""
    found: dict[str, Request] = {}
    for case in CASES:
        if case.api in _LEFT_ALONE:
            continue
        asked = case.make(topic_id)
        version = BY_REQUEST[type(asked)].version_max if case.version is None else case.version
        if case.api == "CreateTopics":
            asked.topics[0].name = "u"
        if hasattr(asked, "timeout_ms"):
            asked.timeout_ms = 5000
        if case.api == "ConsumerGroupHeartbeat":
            asked.member_epoch = LEAVES
        name = f"{case.api} v{version}" + ("" if case.api not in ("Produce", "OffsetFetch") else f" {case.resource}")
        while name in found and found[name].asked != asked:
            name += " again"
        found[name] = Request(name, asked, version)
    return [*found.values(), *_further(topic_id)]


def _further(topic_id: bytes) -> Iterator[Request]:
    named = metadata.MetadataRequestTopic(name="t")
    unknown = metadata.MetadataRequestTopic(name="u")
    by_id = metadata.MetadataRequestTopic(name=None, topic_id=topic_id)
    for label, topics in {"all": None, "by id": [by_id], "an unknown name": [unknown], "two": [named, unknown]}.items():
        asked = metadata.MetadataRequest(
            topics=topics, allow_auto_topic_creation=False, include_topic_authorized_operations=True
        )
        yield Request(f"Metadata {label}", asked, 13)
    operations = metadata.MetadataRequest(
        topics=[], allow_auto_topic_creation=False, include_cluster_authorized_operations=True
    )
    yield Request("Metadata of the cluster", operations, 9)
    yield Request("DescribeCluster", describe_cluster.DescribeClusterRequest(
        include_cluster_authorized_operations=True, endpoint_type=1), 1)  # fmt: skip
    yield Request("DescribeGroups with operations", describe_groups.DescribeGroupsRequest(
        groups=["g"], include_authorized_operations=True), 5)  # fmt: skip
    yield Request("ListGroups", list_groups.ListGroupsRequest(), 4)
    yield Request("ListTransactions", list_transactions.ListTransactionsRequest(), 1)
    groups = [offset_fetch.OffsetFetchRequestGroup(group_id="g", topics=None)]
    yield Request("OffsetFetch of all topics", offset_fetch.OffsetFetchRequest(groups=groups), 9)
    yield Request("InitProducerId without an id", init_producer_id.InitProducerIdRequest(
        transactional_id=None, transaction_timeout_ms=1000), 4)
    yield Request("DeleteTopics by id", delete_topics.DeleteTopicsRequest(
        topics=[delete_topics.DeleteTopicState(name=None, topic_id=topic_id)], timeout_ms=5000), 6)  # fmt: skip
    yield Request("DeleteTopics unknown", delete_topics.DeleteTopicsRequest(
        topics=[delete_topics.DeleteTopicState(name="u")], timeout_ms=5000), 6)  # fmt: skip
