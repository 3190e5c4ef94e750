"""A cluster's consumer groups: their state, their members, and how far they have read."""

import struct
from collections.abc import Mapping
from typing import NamedTuple

from pqbroker.cli.kafka.cluster import NOT_YET, Cluster, TopicPartition, settled
from pqbroker.cli.refusals import CommandError, check, near_name, words
from pqbroker.protocol.codec import decoder
from pqbroker.protocol.errors import ErrorCode, ProtocolError
from pqbroker.protocol.messages.consumer_group_describe import Assignment as ConsumerAssignment
from pqbroker.protocol.messages.consumer_group_describe import (
    ConsumerGroupDescribeRequest,
    ConsumerGroupDescribeResponse,
)
from pqbroker.protocol.messages.consumer_group_describe import DescribedGroup as ConsumerGroup
from pqbroker.protocol.messages.consumer_protocol import ConsumerProtocolAssignment
from pqbroker.protocol.messages.describe_groups import (
    DescribedGroup,
    DescribedGroupMember,
    DescribeGroupsRequest,
    DescribeGroupsResponse,
)
from pqbroker.protocol.messages.list_groups import ListedGroup, ListGroupsRequest, ListGroupsResponse
from pqbroker.protocol.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
    OffsetCommitResponse,
)
from pqbroker.protocol.messages.offset_fetch import OffsetFetchRequest, OffsetFetchRequestGroup, OffsetFetchResponse

NAMES_VERSION_MAX = 9
"""The last version of OffsetCommit and OffsetFetch that names topics, not their ids."""
ASSIGNMENT_VERSION_MAX = 3

DEAD = "Dead"
UNUSED = ("Empty", DEAD)
"""The states of a group without members."""

CLASSIC, CONSUMER = "classic", "consumer"
"""Types of groups, as Kafka calls them."""


class Member(NamedTuple):
    """One member, and the partitions it has."""

    id: str
    client: str
    host: str
    partitions: list[TopicPartition]
    epoch: int | None = None
    """Epoch of a member of the consumer protocol."""
    target: list[TopicPartition] | None = None
    """Partitions that it is to have, in a group of the consumer protocol."""


class Group(NamedTuple):
    """A group; of each partition it has read the committed offset, of each assigned one the member."""

    id: str
    state: str
    protocol: str
    members: list[Member]
    offsets: dict[TopicPartition, int]
    type: str = CLASSIC
    epoch: int | None = None
    """Epoch of a group of the consumer protocol (KIP-848)."""
    target_epoch: int | None = None
    """Epoch that the targets of its members are of."""


class OffsetsUnknown(CommandError):
    """The coordinator does not know all offsets of a group now; `group` has the rest."""

    def __init__(self, group: Group, code: ErrorCode) -> None:
        self.group = group
        super().__init__(f"cannot look up the offsets of group {group.id}: {words(code)}")


def list_groups(cluster: Cluster) -> dict[str, ListedGroup]:
    """All groups of all nodes, by id."""
    found: dict[str, ListedGroup] = {}
    for node in cluster.nodes():
        answer = cluster.ask(ListGroupsRequest(), ListGroupsResponse, node)
        check(answer.error_code, "cannot list groups")
        found |= {each.group_id: each for each in answer.groups}
    return dict(sorted(found.items()))


def find_group(cluster: Cluster, group: str, *, must_be: bool = True) -> Group:
    """State, members and offsets; OffsetsUnknown, CommandError with near names when there is no such group and there
    must be."""
    found = _find_classic(cluster, group)
    if found.state == DEAD:
        found = _find_consumer(cluster, group) or found
    offsets = _offsets(cluster, found, cluster.coordinator(group))
    if must_be and found.state == DEAD and not offsets:
        names = list_groups(cluster)
        if group not in names:
            hint = near_name(group, names) or "`pqbroker group list` shows all"
            raise CommandError(f"no group {group} at {cluster.address}; {hint}")
    return found._replace(offsets=offsets)


def _find_classic(cluster: Cluster, group: str) -> Group:
    """A group of the classic protocol, without its offsets; one that is not there, or of another protocol, is dead."""
    described = settled(lambda: _describe(cluster, group), lambda found: found.error_code not in NOT_YET)
    if described.error_code != ErrorCode.GROUP_ID_NOT_FOUND:
        check(described.error_code, f"cannot describe group {group}", described.error_message)
    state = DEAD if described.error_code else described.group_state
    return Group(group, state, described.protocol_data, [_member(each) for each in described.members], {})


def _find_consumer(cluster: Cluster, group: str) -> Group | None:
    """A group of the consumer protocol, without its offsets; None if there is none, or the broker knows no such
    groups."""
    if not cluster.serves(ConsumerGroupDescribeRequest):
        return None
    request = ConsumerGroupDescribeRequest(group_ids=[group])

    def ask() -> ConsumerGroup:
        answer = cluster.ask(request, ConsumerGroupDescribeResponse, cluster.coordinator(group))
        return answer.groups[0]

    described = settled(ask, lambda found: found.error_code not in NOT_YET)
    if described.error_code == ErrorCode.GROUP_ID_NOT_FOUND:
        return None
    check(described.error_code, f"cannot describe group {group}", described.error_message)
    members = [
        Member(
            each.member_id, each.client_id, each.client_host, _partitions_of(each.assignment), each.member_epoch,
            _partitions_of(each.target_assignment),
        )
        for each in described.members
    ]
    return Group(
        group, described.group_state, described.assignor_name, members, {}, CONSUMER, described.group_epoch,
        described.assignment_epoch,
    )  # fmt: skip


def _partitions_of(assignment: ConsumerAssignment) -> list[TopicPartition]:
    return sorted((each.topic_name, index) for each in assignment.topic_partitions for index in each.partitions)


def commit(cluster: Cluster, group: str, offsets: Mapping[TopicPartition, int]) -> None:
    """Set the offsets of a group without members; CommandError."""
    topics = [
        OffsetCommitRequestTopic(
            name=topic,
            partitions=[
                OffsetCommitRequestPartition(partition_index=index, committed_offset=offset, committed_metadata="")
                for (name, index), offset in offsets.items()
                if name == topic
            ],
        )
        for topic in dict.fromkeys(name for name, _ in offsets)
    ]
    request = OffsetCommitRequest(group_id=group, topics=topics)
    answer = cluster.ask(request, OffsetCommitResponse, cluster.coordinator(group), NAMES_VERSION_MAX)
    for each in answer.topics:
        for one in each.partitions:
            check(one.error_code, f"cannot set the offset of group {group} in {each.name}-{one.partition_index}")


def _describe(cluster: Cluster, group: str) -> DescribedGroup:
    request = DescribeGroupsRequest(groups=[group])
    return cluster.ask(request, DescribeGroupsResponse, cluster.coordinator(group)).groups[0]


def _offsets(cluster: Cluster, group: Group, node: int) -> dict[TopicPartition, int]:
    """All that the group has committed."""
    request = OffsetFetchRequest(
        group_id=group.id, topics=None, groups=[OffsetFetchRequestGroup(group_id=group.id, topics=None)]
    )
    answer = cluster.ask(request, OffsetFetchResponse, node, NAMES_VERSION_MAX)
    found = answer.groups[0] if answer.groups else answer
    if found.error_code in NOT_YET:
        raise OffsetsUnknown(group, found.error_code)
    if found.error_code != ErrorCode.GROUP_ID_NOT_FOUND:
        check(found.error_code, f"cannot look up the offsets of group {group.id}")
    partitions = {
        (topic.name, one.partition_index): one.committed_offset for topic in found.topics for one in topic.partitions
    }
    return {partition: offset for partition, offset in sorted(partitions.items()) if offset >= 0}


def _member(described: DescribedGroupMember) -> Member:
    partitions = _assigned(memoryview(described.member_assignment))
    return Member(described.member_id, described.client_id, described.client_host, partitions)


def _assigned(assignment: memoryview) -> list[TopicPartition]:
    """Return the partitions that a consumer got; none where the group is not one of consumers, or is rebalancing."""
    if len(assignment) < 2:
        return []
    (version,) = struct.unpack_from(">h", assignment)
    decode = decoder(ConsumerProtocolAssignment, min(version, ASSIGNMENT_VERSION_MAX))
    try:
        topics = decode(assignment[2:]).assigned_partitions
    except ProtocolError:
        return []
    return sorted((each.topic, index) for each in topics for index in each.partitions)
