"""The group of `pqbroker crashtest`: members of the consumer protocol that heartbeat and commit through every kill.

A killed broker owes them that they continue in their epoch: it may not have forgotten a member, an epoch, who has which
partition, or an offset that it acknowledged.
"""

import threading
import time
import uuid
from types import TracebackType
from typing import Final, Self

from pqbroker.cli.crashtest.book import Broken
from pqbroker.cli.kafka.cluster import NOT_YET, Cluster
from pqbroker.cli.kafka.groups import NAMES_VERSION_MAX, find_group
from pqbroker.cli.notices import NOTICE_AFTER_S
from pqbroker.cli.refusals import CommandError, words
from pqbroker.protocol.errors import ErrorCode
from pqbroker.protocol.messages.consumer_group_heartbeat import (
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
    TopicPartitions,
)
from pqbroker.protocol.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
    OffsetCommitResponse,
)

_GROUP: Final = "crashtest"
MEMBERS: Final = 3
_PAUSE_S = 0.05
_TIMEOUT_S = 0.75 * NOTICE_AFTER_S
"""Time for an answer: a broker that is killed meanwhile is nothing to report."""
_REBALANCE_MS = 300_000
_EARLIER = {ErrorCode.STALE_MEMBER_EPOCH}
"""Answers to a commit of a member that has to heartbeat first."""


class _Member:
    """One member, as far as it knows."""

    def __init__(self) -> None:
        self.id = str(uuid.uuid4())
        self.epoch = 0
        self.owned: dict[bytes, list[int]] = {}

    @property
    def partitions(self) -> list[int]:
        return [index for indexes in self.owned.values() for index in indexes]


class GroupLoad:
    """A context manager: inside it a thread has the members beat and commit; leaving it waits for the last answer."""

    def __init__(self, address: str, topic: str) -> None:
        self._address = address
        self._topic = topic
        self._members = [_Member() for _ in range(MEMBERS)]
        self._owners: dict[tuple[int, int], str] = {}
        """Members by partition and epoch."""
        self._committed: dict[int, int] = {}
        """The last offset that was acknowledged, by partition."""
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name="group", daemon=True)
        self.commits = 0
        self.failure = ""

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stopping.set()
        if error is None:
            self._thread.join()

    def check(self) -> int:
        """Return the number of commits that were acknowledged, none of which is lost. Broken."""
        if self.failure:
            raise Broken(self.failure)
        with Cluster(self._address) as cluster:
            found = find_group(cluster, _GROUP).offsets
        for partition, offset in self._committed.items():
            if found.get((self._topic, partition), -1) < offset:
                raise Broken(f"group {_GROUP} has committed offset {offset} of partition {partition}, and it is lost")
        return self.commits

    def _run(self) -> None:
        while not self._stopping.is_set():
            try:
                with Cluster(self._address, _TIMEOUT_S) as cluster:
                    self._work(cluster)
            except Broken as broken:
                self.failure = str(broken)
                return
            except CommandError:  # the broker was killed
                time.sleep(_PAUSE_S)

    def _work(self, cluster: Cluster) -> None:
        while not self._stopping.is_set():
            for member in self._members:
                self._beat(cluster, member)
                self._commit(cluster, member)
            time.sleep(_PAUSE_S)

    def _beat(self, cluster: Cluster, member: _Member) -> None:
        owned = [TopicPartitions(topic_id=topic_id, partitions=indexes) for topic_id, indexes in member.owned.items()]
        request = ConsumerGroupHeartbeatRequest(
            group_id=_GROUP, member_id=member.id, member_epoch=member.epoch, topic_partitions=owned,
            rebalance_timeout_ms=-1 if member.epoch else _REBALANCE_MS,
            subscribed_topic_names=None if member.epoch else [self._topic],
        )  # fmt: skip
        answer = cluster.ask(request, ConsumerGroupHeartbeatResponse)
        if answer.error_code in NOT_YET:
            return
        if answer.error_code:
            raise Broken(f"a member in epoch {member.epoch} of group {_GROUP} was told: {words(answer.error_code)}")
        if answer.member_epoch < member.epoch:
            raise Broken(f"a member of group {_GROUP} went from epoch {member.epoch} back to {answer.member_epoch}")
        member.epoch = answer.member_epoch
        if answer.assignment is not None:
            member.owned = {each.topic_id: list(each.partitions) for each in answer.assignment.topic_partitions}
        for partition in member.partitions:
            owner = self._owners.setdefault((partition, member.epoch), member.id)
            if owner != member.id:
                raise Broken(f"partition {partition} has two owners in epoch {member.epoch} of group {_GROUP}")

    def _commit(self, cluster: Cluster, member: _Member) -> None:
        partitions = member.partitions
        if not partitions:
            return
        asked = [
            OffsetCommitRequestPartition(partition_index=index, committed_offset=self._committed.get(index, -1) + 1)
            for index in partitions
        ]
        request = OffsetCommitRequest(
            group_id=_GROUP, generation_id_or_member_epoch=member.epoch, member_id=member.id,
            topics=[OffsetCommitRequestTopic(name=self._topic, partitions=asked)],
        )  # fmt: skip
        answer = cluster.ask(request, OffsetCommitResponse, version_max=NAMES_VERSION_MAX)
        for each, wanted in zip(answer.topics[0].partitions, asked, strict=True):
            if each.error_code in NOT_YET or each.error_code in _EARLIER:
                continue
            if each.error_code:
                raise Broken(f"a commit in epoch {member.epoch} of group {_GROUP} was told: {words(each.error_code)}")
            self._committed[each.partition_index] = wanted.committed_offset
            self.commits += 1
