"""A Kafka cluster as the commands ask it: who leads what, which topics there are, where their records begin and end."""

import time
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from types import TracebackType
from typing import NamedTuple, Self, TypeVar

from pqbroker.cli.kafka.isolation import ReadIsolation
from pqbroker.cli.kafka.link import ANSWER_TIMEOUT_S, ANY_VERSION, CONNECT_TIMEOUT_S, Link, NoBroker, parse_brokers
from pqbroker.cli.notices import announce_wait
from pqbroker.cli.refusals import CommandError, check, near_name
from pqbroker.conf.addresses import Address
from pqbroker.protocol.errors import ErrorCode
from pqbroker.protocol.messages.describe_configs import (
    DescribeConfigsRequest,
    DescribeConfigsResource,
    DescribeConfigsResponse,
)
from pqbroker.protocol.messages.fetch import FetchPartition, FetchRequest, FetchResponse, FetchTopic
from pqbroker.protocol.messages.find_coordinator import FindCoordinatorRequest, FindCoordinatorResponse
from pqbroker.protocol.messages.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsPartitionResponse,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopic,
)
from pqbroker.protocol.messages.metadata import MetadataRequest, MetadataRequestTopic, MetadataResponse
from pqbroker.protocol.positions import EARLIEST, LATEST

T = TypeVar("T")
UNCOMMITTED = ReadIsolation.UNCOMMITTED

TopicPartition = tuple[str, int]
"""A topic's name and the index of one of its partitions."""

SETTLE_TIMEOUT_S = 10.0
"""Seconds in which a request is repeated whose answer says "not yet": a new topic's leader, a coordinator that
starts."""
SETTLE_PAUSE_S = 0.1

_TOPIC = 2
"""The kind of resource."""
_OWN_CONFIG = "pq.partitions.per.tablet"
"""A config that topics of a pqbroker have, and no others."""
_NAMED_MAX = 20

NOT_YET = frozenset(
    {
        ErrorCode.LEADER_NOT_AVAILABLE,
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
        ErrorCode.COORDINATOR_NOT_AVAILABLE,
        ErrorCode.NOT_COORDINATOR,
    }
)

_UNSERVED = frozenset(
    {
        ErrorCode.LEADER_NOT_AVAILABLE,
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.REPLICA_NOT_AVAILABLE,
        ErrorCode.KAFKA_STORAGE_ERROR,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    }
)
_FETCH_BY_NAME_MAX = 12
"""The last version of Fetch that names topics."""


class Partition(NamedTuple):
    """One partition of a topic; leader and replicas are node ids."""

    number: int
    leader: int
    leader_epoch: int
    replicas: list[int]
    isr: list[int]
    error_code: ErrorCode
    offline: Sequence[int] = ()
    """Replicas whose brokers are down, as Apache Kafka says."""

    @property
    def is_unmounted(self) -> bool:
        """Return True if it waits for a mount. Where its node does not serve, a pqbroker knows no leader epoch of it.
        """
        return self.leader < 0 <= self.leader_epoch and not self.offline


class Topic(NamedTuple):
    """One topic with its partitions by index."""

    name: str
    is_internal: bool
    partitions: dict[int, Partition]


class OffsetRange(NamedTuple):
    """The offset where a partition's records begin, and the one that the next record gets."""

    start: int
    end: int


class Node(NamedTuple):
    """One broker process of a cluster."""

    id: int
    address: Address
    rack: str | None
    is_controller: bool


class About(NamedTuple):
    """A cluster's id and nodes."""

    id: str | None
    nodes: list[Node]


class Cluster:
    """A context manager; everything may raise CommandError."""

    def __init__(self, address: str, timeout_s: float | None = None) -> None:
        """`address` may list several, of which the first that answers is asked; WrongInput when it is none.

        `timeout_s` stands for both, to connect and to be answered.
        """
        self._addresses = parse_brokers(address)
        self._timeouts = (timeout_s or CONNECT_TIMEOUT_S, timeout_s or ANSWER_TIMEOUT_S)
        self._links: dict[Address, Link] = {}
        self._nodes: dict[int, Address] = {}
        self._controller = -1

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Close the connections; the next question opens others."""
        for link in self._links.values():
            link.close()
        self._links.clear()

    @property
    def address(self) -> Address:
        """The broker that was named, or of several the one that is asked."""
        return self._addresses[0]

    @property
    def brokers(self) -> str:
        """All that were named, each with its port, for a client of its own."""
        return ",".join(map(str, self._addresses))

    def ask(self, request: object, response: type[T], node: int | None = None, version_max: int = ANY_VERSION) -> T:
        """Ask a node, or the one that was named."""
        link = self._first_link() if node is None else self._link(self._nodes[node])
        return link.ask(request, response, version_max)

    def serves(self, request: type) -> bool:
        """Return True if the first node serves an API, in a version that is known here."""
        return self._first_link().serves(request)

    def ask_controller(self, request: object, response: type[T]) -> T:
        """Ask the node that creates, alters and deletes topics."""
        if self._controller not in self._nodes:
            self._metadata([])
        return self.ask(request, response, self._controller if self._controller in self._nodes else None)

    def about(self) -> About:
        """Return the cluster's id and its nodes."""
        answer = self.ask(MetadataRequest(topics=[], allow_auto_topic_creation=False), MetadataResponse)
        nodes = (
            Node(each.node_id, Address(each.host, each.port), each.rack, each.node_id == answer.controller_id)
            for each in answer.brokers
        )
        return About(answer.cluster_id, sorted(nodes))

    def topics(self) -> dict[str, Topic]:
        """All topics by name."""
        return {topic.name: topic for topic in self._metadata(None).values() if isinstance(topic, Topic)}

    def topic(self, name: str) -> Topic:
        """One topic, its partitions led by somebody, or unmounted; CommandError with near names when there is none."""
        found = self._metadata([name])[name]
        if not _topic_settles(found) and not self._has_unmounted(found):
            found = settled(lambda: self._metadata([name])[name], _topic_settles)
        if isinstance(found, Topic):
            return found
        if found != ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
            check(found, f"cannot look up topic {name}")
        cure = f"`pqbroker topic create {name}` makes it, `pqbroker topic list` shows all"
        hint = near_name(name, self.topics()) or cure
        raise CommandError(f"no topic {name} at {self.address}; {hint}")

    def lacks(self, name: str) -> bool:
        """Return True if no such topic exists, though one might: the name is valid for a topic."""
        return self._metadata([name])[name] == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION

    def created(self, name: str, partitions: int = 1) -> Topic:
        """A topic that is being created or grown, when that many of its partitions are known; CommandError."""
        settled(
            lambda: self._metadata([name])[name],
            lambda found: isinstance(found, Topic) and len(found.partitions) >= partitions,
        )
        return self.topic(name)

    def await_deletion(self, name: str) -> None:
        """Return when a topic that is being deleted is not known any more."""
        settled(lambda: self._metadata([name])[name], lambda found: found == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)

    def offsets(
        self, topic: Topic, timestamps: Mapping[int, int], isolation: ReadIsolation = UNCOMMITTED
    ) -> dict[int, int]:
        """Return by partition the first offset at or after a time in ms, or the end that EARLIEST and LATEST name.

        -1 when no record that a reader of `isolation` sees is that late.
        """
        check_led(topic, timestamps)
        found: dict[int, int] = {}
        for leader, partitions in self.by_leader(topic, timestamps).items():
            asked = [ListOffsetsPartition(partition_index=index, timestamp=timestamps[index]) for index in partitions]
            topics = [ListOffsetsTopic(name=topic.name, partitions=asked)]
            request = ListOffsetsRequest(replica_id=-1, isolation_level=isolation.level, topics=topics)
            for each in self._settled_offsets(request, leader):
                check(each.error_code, f"cannot look up offsets of {topic.name}-{each.partition_index}")
                found[each.partition_index] = each.offset
        return found

    def spans(
        self, topic: Topic, partitions: Iterable[int] | None = None, isolation: ReadIsolation = UNCOMMITTED
    ) -> dict[int, OffsetRange]:
        """Return the span of each partition, from the first record on, as far as a reader of `isolation` sees; of all
        partitions unless some are named."""
        chosen = list(topic.partitions if partitions is None else partitions)
        starts = self.offsets(topic, dict.fromkeys(chosen, EARLIEST), isolation)
        ends = self.offsets(topic, dict.fromkeys(chosen, LATEST), isolation)
        return {index: OffsetRange(starts[index], ends[index]) for index in chosen}

    def unserved(self, offsets: Mapping[TopicPartition, int]) -> dict[TopicPartition, ErrorCode]:
        """Return the errors of partitions, by topic and number, from which nobody serves a Fetch at that offset."""
        topics = self._metadata(sorted({name for name, _ in offsets}))
        missing: dict[TopicPartition, ErrorCode] = {}
        asked: dict[int, dict[str, list[FetchPartition]]] = defaultdict(lambda: defaultdict(list))
        for (name, index), offset in offsets.items():
            topic = topics[name]
            if isinstance(topic, ErrorCode) or index not in topic.partitions:
                missing[name, index] = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
            elif (leader := topic.partitions[index].leader) not in self._nodes:
                missing[name, index] = ErrorCode.LEADER_NOT_AVAILABLE
            else:
                partition = FetchPartition(partition=index, fetch_offset=offset, partition_max_bytes=1)
                asked[leader][name].append(partition)
        for leader, partitions in asked.items():
            wanted = [FetchTopic(topic=name, partitions=each) for name, each in partitions.items()]
            request = FetchRequest(max_wait_ms=0, min_bytes=0, max_bytes=1, topics=wanted)
            for one in self.ask(request, FetchResponse, leader, _FETCH_BY_NAME_MAX).responses:
                found = {(one.topic, each.partition_index): each.error_code for each in one.partitions}
                missing |= {partition: code for partition, code in found.items() if code in _UNSERVED}
        return missing

    def by_leader(self, topic: Topic, partitions: Iterable[int]) -> dict[int, list[int]]:
        """The partitions by the node that leads them."""
        leaders: dict[int, list[int]] = defaultdict(list)
        for index in partitions:
            leaders[topic.partitions[index].leader].append(index)
        return leaders

    def nodes(self) -> list[int]:
        """All nodes, for what each of them knows in part."""
        self._metadata([])
        return sorted(self._nodes)

    def coordinator(self, group: str) -> int:
        """The node that coordinates a consumer group."""

        def find() -> tuple[ErrorCode, int, str | None, Address]:
            request = FindCoordinatorRequest(key=group, coordinator_keys=[group])
            answer = self.ask(request, FindCoordinatorResponse)
            one = answer.coordinators[0] if answer.coordinators else answer
            return one.error_code, one.node_id, one.error_message, Address(one.host, one.port)

        code, node, message, address = settled(find, lambda found: found[0] not in NOT_YET)
        check(code, f"cannot find the coordinator of group {group}", message)
        self._nodes[node] = address
        return node

    def _has_unmounted(self, found: Topic | ErrorCode) -> bool:
        """Return True if all partitions of a topic without a leader wait for a mount: a pqbroker has no elections."""
        if not isinstance(found, Topic):
            return False
        if not all(one.is_unmounted for one in found.partitions.values() if one.leader < 0):
            return False
        resource = DescribeConfigsResource(
            resource_type=_TOPIC, resource_name=found.name, configuration_keys=[_OWN_CONFIG]
        )
        answer = self.ask(DescribeConfigsRequest(resources=[resource]), DescribeConfigsResponse)
        return any(each.name == _OWN_CONFIG for one in answer.results for each in one.configs)

    def config_of(self, topic: str, name: str) -> str | None:
        """Return the value of a topic's config; None where the cluster does not show it."""
        resource = DescribeConfigsResource(resource_type=_TOPIC, resource_name=topic, configuration_keys=[name])
        answer = self.ask(DescribeConfigsRequest(resources=[resource]), DescribeConfigsResponse)
        return next((each.value for one in answer.results for each in one.configs if each.name == name), None)

    def _settled_offsets(self, request: ListOffsetsRequest, leader: int) -> list[ListOffsetsPartitionResponse]:
        """Return the answers of a leader, which may not know yet that it leads partitions just created."""
        not_yet = NOT_YET | {ErrorCode.UNKNOWN_TOPIC_OR_PARTITION}
        return settled(
            lambda: self.ask(request, ListOffsetsResponse, leader).topics[0].partitions,
            lambda found: all(each.error_code not in not_yet for each in found),
        )

    def _metadata(self, names: list[str] | None) -> dict[str, Topic | ErrorCode]:
        """Topics by name, or the error there is instead; refreshes what is known of the nodes."""
        topics = None if names is None else [MetadataRequestTopic(name=name) for name in names]
        answer = self.ask(MetadataRequest(topics=topics, allow_auto_topic_creation=False), MetadataResponse)
        self._nodes = {each.node_id: Address(each.host, each.port) for each in answer.brokers}
        self._controller = answer.controller_id
        return {
            each.name or "": each.error_code
            if each.error_code
            else Topic(
                each.name or "",
                each.is_internal,
                {
                    one.partition_index: Partition(
                        one.partition_index, one.leader_id, one.leader_epoch, one.replica_nodes, one.isr_nodes,
                        one.error_code, one.offline_replicas,
                    )
                    for one in sorted(each.partitions, key=lambda one: one.partition_index)
                },
            )
            for each in answer.topics
        }  # fmt: skip

    def _first_link(self) -> Link:
        """A link to the first broker named that answers; it is named first from then on."""
        for index, address in enumerate(self._addresses):
            try:
                link = self._link(address)
            except NoBroker:
                if index == len(self._addresses) - 1:
                    raise
            else:
                self._addresses.insert(0, self._addresses.pop(index))
                return link
        raise AssertionError("no broker is named")

    def _link(self, address: Address) -> Link:
        if address not in self._links:
            self._links[address] = Link(address, *self._timeouts)
        return self._links[address]


def leaderless(topic: Topic, partitions: Iterable[int]) -> list[int]:
    """Return the given partitions that have no leader."""
    return [index for index in partitions if topic.partitions[index].leader < 0]


def check_led(topic: Topic, partitions: Iterable[int]) -> None:
    """Check that every partition has a leader. CommandError."""
    if missing := leaderless(topic, partitions):
        raise CommandError(f"{tell_leaderless(topic, missing)}; --partition, where a command has it, names others")


def tell_leaderless(topic: Topic, partitions: Sequence[int]) -> str:
    """Return the cause of partitions without a leader, and the cure."""
    unmounted = [index for index in partitions if topic.partitions[index].is_unmounted]
    others = [index for index in partitions if index not in unmounted]
    told = []
    if unmounted:
        cure = f"`pqbroker table mount {topic.name}` mounts them"
        told.append(f"tablets of {topic.name} are unmounted: {_first(unmounted)}; {cure}")
    if others:
        nodes = ", ".join(map(str, sorted({node for index in others for node in topic.partitions[index].replicas})))
        brokers = f"the brokers that have them ({nodes}) do not serve them" if nodes else "no broker serves them"
        told.append(f"partitions of {topic.name} have no leader: {_first(others)}; {brokers} now, try again later")
    return "; ".join(told)


def _first(partitions: Sequence[int]) -> str:
    return ", ".join(map(str, partitions[:_NAMED_MAX]))


def settled(ask: Callable[[], T], is_settled: Callable[[T], bool], within_s: float = SETTLE_TIMEOUT_S) -> T:
    """Ask again while the answer is "not yet", for a while; the last answer."""
    if is_settled(answer := ask()):
        return answer
    deadline = time.monotonic() + within_s
    with announce_wait("the cluster is not ready for this yet: asking again", within_s):
        while not is_settled(answer) and time.monotonic() < deadline:
            time.sleep(SETTLE_PAUSE_S)
            answer = ask()
    return answer


def _topic_settles(found: Topic | ErrorCode) -> bool:
    if isinstance(found, Topic):
        return all(one.leader >= 0 for one in found.partitions.values())
    return found not in NOT_YET
