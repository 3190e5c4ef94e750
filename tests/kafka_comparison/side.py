"""One of the two brokers as a script sees it: what is made for a case and removed behind it, and what is compared."""

import time
from collections.abc import Mapping
from typing import Any, Final

from pqbroker.broker.kafka.served import APIS
from pqbroker.protocol.messages.consumer_group_describe import ConsumerGroupDescribeRequest
from pqbroker.protocol.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest
from pqbroker.protocol.messages.create_topics import CreatableTopic, CreatableTopicConfig, CreateTopicsRequest
from pqbroker.protocol.messages.delete_groups import DeleteGroupsRequest
from pqbroker.protocol.messages.delete_topics import DeleteTopicsRequest, DeleteTopicState
from pqbroker.protocol.messages.describe_groups import DescribeGroupsRequest
from pqbroker.protocol.messages.find_coordinator import FindCoordinatorRequest
from pqbroker.protocol.messages.init_producer_id import InitProducerIdRequest
from pqbroker.protocol.messages.leave_group import LeaveGroupRequest
from pqbroker.protocol.messages.list_offsets import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from pqbroker.protocol.messages.metadata import MetadataRequest, MetadataRequestTopic
from pqbroker.protocol.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from pqbroker.protocol.records import Record, encode_batch
from tests.kafka_comparison.connection import Connection
from tests.kafka_comparison.rendering import Facts, rendered

LATEST: Final = {api.request: api.version_max for api in APIS}
BORDER_NAMES: Final = ("", "nobody", "n" * 250, "a b/é")
"""Names that varied cases give to groups."""
SHARED: Final = "shared"
"""A topic with two partitions and three records in the first one, for cases that only read."""
T0_MS: Final = 1_600_000_000_000
_WAIT_S: Final = 10.0
_BY_NAME: Final = 12
_PRODUCED_BY_NAME: Final = 9
_LEFT_ALONE: Final = 2
"""The last version of LeaveGroup that names one member."""


class NotAnsweredError(Exception):
    """A request that only prepares something had no answer."""


class Side:
    """A broker for one case at one version. `name` is new for each case, the same on both sides."""

    def __init__(self, address: str, facts: Facts) -> None:
        self.address = address
        self._settle_s = 0.0
        self.facts = facts
        self.version = 0
        self.name = ""
        self.answers: list[tuple[str, dict[str, str]]] = []
        self._connections: list[Connection] = []
        self._topics: list[str] = []
        self._groups: list[str] = []

    def begin(self, name: str, version: int, settle_s: float) -> None:
        """Begin a case; `settle` takes `settle_s`."""
        self.name, self.version, self.answers, self._settle_s = name, version, [], settle_s

    def end(self) -> None:
        """Remove what the case made, and close its connections."""
        try:
            self._remove()
        finally:
            for each in self._connections:
                each.close()
            self._connections, self._groups, self._topics = [], [], []

    # What a script compares.

    def compare(self, request: Any, label: str = "", on: Connection | None = None) -> Any:
        """Ask at the case's version, keep the answer for the comparison, and return it."""
        answer = (on or self.connection()).ask(request, self.version)
        return self.keep(answer, label)

    def keep(self, answer: Any, label: str = "") -> Any:
        """Keep an answer for the comparison; a label that is given again is numbered."""
        before = sum(known.partition(" #")[0] == label for known, _ in self.answers)
        label = f"{label} #{before + 1}" if before else label
        self.answers.append((label, rendered(answer, self.version, self.facts)))
        return answer

    # What a script prepares.

    def ask(self, request: Any, version: int | None = None) -> Any:
        """Ask without a comparison, at the greatest version unless told otherwise. NotAnsweredError."""
        answer = self.connection().ask(request, LATEST[type(request)] if version is None else version)
        if isinstance(answer, str):
            raise NotAnsweredError(f"{type(request).__name__}: {answer}")
        return answer

    def connection(self) -> Connection:
        """Open another connection; it is closed at the case's end."""
        made = Connection(self.address)
        self._connections.append(made)
        return made

    def settle(self) -> None:
        """Wait until the broker shows what it was told: Kafka's metadata reach its own broker a little later."""
        time.sleep(self._settle_s)

    def topic(self, partitions: int = 1, configs: Mapping[str, str] | None = None, suffix: str = "") -> str:
        """Create a topic of this case and return its name."""
        name = self.own_topic(suffix)
        wanted = [CreatableTopicConfig(name=key, value=value) for key, value in (configs or {}).items()]
        topic = CreatableTopic(name=name, num_partitions=partitions, replication_factor=1, configs=wanted)
        self.ask(CreateTopicsRequest(topics=[topic], timeout_ms=5000))
        self._await(lambda: bool(self._existing([name])) and self._is_led(name, partitions))
        return name

    def end_of_topic(self, name: str) -> None:
        """Delete a topic and wait until it is gone."""
        self.ask(DeleteTopicsRequest(topics=[DeleteTopicState(name=name)], timeout_ms=5000))
        self._await(lambda: not self._existing([name]))
        self.settle()

    def own_topic(self, suffix: str = "") -> str:
        """Return a name for a topic of this case, which is deleted behind it if it exists then."""
        name = f"{self.name}{suffix}"
        self._topics.append(name)
        return name

    def group(self, suffix: str = "") -> str:
        """Return a name for a group of this case, which is deleted behind it; its coordinator is found."""
        name = f"{self.name}{suffix}"
        self._groups += [name, *BORDER_NAMES]
        self._await(lambda: self._coordinates(name))
        return name

    def topic_id(self, name: str) -> bytes:
        """Return the id of a topic that exists."""
        (topic,) = self.ask(MetadataRequest(topics=[MetadataRequestTopic(name=name)], allow_auto_topic_creation=False),
                            _BY_NAME).topics  # fmt: skip
        self.facts.names[topic.topic_id] = f"<id of {name}>"
        found: bytes = topic.topic_id
        return found

    def producer_id(self) -> int:
        """Return the id of a new idempotent producer."""
        found: list[int] = []

        def ask() -> bool:
            answer = self.ask(InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=1000))
            found.append(answer.producer_id)
            return not answer.error_code

        self._await(ask)
        return found[-1]

    def write(self, topic: str, batch: bytes | bytearray, partition: int = 0) -> Any:
        """Produce a batch and return the answer."""
        data = [PartitionProduceData(index=partition, records=memoryview(batch))]
        topics = [TopicProduceData(name=topic, partition_data=data)]
        return self.ask(ProduceRequest(acks=-1, timeout_ms=5000, topic_data=topics), _PRODUCED_BY_NAME)

    def share(self) -> None:
        """Make the topic for all cases, and learn the broker's first leader epoch from it."""
        self.name = SHARED
        self.topic(partitions=2)
        self._topics = []
        for number in range(3):
            self.write(SHARED, batch(number))
        self.topic_id(SHARED)
        self.producer_id()  # Kafka reserves its first ids when it is first asked
        request = MetadataRequest(topics=[MetadataRequestTopic(name=SHARED)])
        self.facts.first_epoch = self.ask(request).topics[0].partitions[0].leader_epoch

    def _remove(self) -> None:
        if self._groups:
            self._remove_groups(list(dict.fromkeys(self._groups)))
        if self._topics:
            topics = [DeleteTopicState(name=topic) for topic in self._topics]
            self.ask(DeleteTopicsRequest(topics=topics, timeout_ms=5000))
            self._await(lambda: not self._existing(self._topics))

    def _remove_groups(self, names: list[str]) -> None:
        for described in self.ask(ConsumerGroupDescribeRequest(group_ids=names)).groups:
            for each in described.members:
                leaving = ConsumerGroupHeartbeatRequest(
                    group_id=described.group_id, member_id=each.member_id, member_epoch=-1,
                    instance_id=each.instance_id,
                )  # fmt: skip
                self.ask(leaving)
        for group in self.ask(DescribeGroupsRequest(groups=names)).groups:
            for member in group.members:
                self.ask(LeaveGroupRequest(group_id=group.group_id, member_id=member.member_id), _LEFT_ALONE)
        self.ask(DeleteGroupsRequest(groups_names=names))

    def _existing(self, names: list[str]) -> list[str]:
        topics = [MetadataRequestTopic(name=name) for name in names if name]
        found = self.ask(MetadataRequest(topics=topics, allow_auto_topic_creation=False), _BY_NAME).topics
        for each in found:
            if not each.error_code:
                self.facts.names[each.topic_id] = f"<id of {each.name}>"
        return [each.name for each in found if each.error_code.name not in _MISSING]

    def _is_led(self, topic: str, partitions: int) -> bool:
        """Return True if the broker knows that it leads all partitions; Kafka's does a little later."""
        asked = [ListOffsetsPartition(partition_index=index, timestamp=-1) for index in range(partitions)]
        topics = [ListOffsetsTopic(name=topic, partitions=asked)]
        found = self.ask(ListOffsetsRequest(replica_id=-1, topics=topics)).topics
        return all(not each.error_code for each in found[0].partitions)

    def _coordinates(self, group: str) -> bool:
        answer = self.ask(FindCoordinatorRequest(key_type=0, coordinator_keys=[group]))
        return not answer.coordinators[0].error_code

    def _await(self, is_so: Any) -> None:
        deadline = time.monotonic() + _WAIT_S
        while not is_so() and time.monotonic() < deadline:
            time.sleep(0.005)


_MISSING: Final = {"UNKNOWN_TOPIC_OR_PARTITION", "INVALID_TOPIC_EXCEPTION"}


def batch(number: int = 0, **how: Any) -> bytearray:
    """Return a batch of one record with a key, a value and a time of its own."""
    record = Record(0, T0_MS + 1000 * number, f"key{number}".encode(), f"value{number}".encode())
    return encode_batch([record], **how)
