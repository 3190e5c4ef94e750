"""Plays the scenarios on a broker with access rules."""

import re
from collections.abc import Iterator, Sequence
from functools import lru_cache
from pathlib import Path
from typing import Final

from pqbroker.broker.services.access.rules import ANY_CODE
from pqbroker.conf.access import STANDARD_AUTHORIZER
from pqbroker.protocol.messages.create_acls import AclCreation, CreateAclsRequest
from pqbroker.protocol.messages.create_topics import CreatableTopic, CreateTopicsRequest
from pqbroker.protocol.messages.delete_acls import DeleteAclsFilter, DeleteAclsRequest
from pqbroker.protocol.messages.describe_acls import DescribeAclsRequest
from pqbroker.protocol.messages.find_coordinator import FindCoordinatorRequest
from pqbroker.protocol.messages.init_producer_id import InitProducerIdRequest
from pqbroker.protocol.messages.metadata import MetadataRequest, MetadataRequestTopic
from pqbroker.protocol.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from tests.kafka_comparison.access.scenarios import ADMIN, CALLER, ITSELF, Request, Scenario, everything, requests
from tests.kafka_comparison.connection import Connection
from tests.kafka_comparison.differences import Answer, Difference, compared, listed
from tests.kafka_comparison.rendering import Facts, rendered
from tests.kafka_comparison.run import covering
from tests.kafka_comparison.side import Side

SETTINGS: Final = {"authorizer.class.name": STANDARD_AUTHORIZER, "allow.everyone.if.no.acl.found": "true"}
"""Until the first rules are made everybody may make them."""
_BY_NAME: Final = 9
_CHANGES_NOTHING: Final = re.compile("(ConsumerGroup)?Describe|List|Metadata|Fetch|Find|OffsetF|ApiVersions")
"""Requests whose names begin so leave the topic and the group as they are."""

DIFFERENCES: Final = listed(Path(__file__).with_name("differences.tsv"))
"""Differences that stay, each with its reason, beside those of the comparison of all requests."""


def unlisted(name: str, version: int, ours: Answer, theirs: Answer) -> list[Difference]:
    """Return the fields that differ and are not listed, of the answers to a request in a scenario."""
    return [
        each
        for each in compared(name.split()[0], version, name, ours, theirs)
        if covering(each) is None and not any(line.covers(each) for line in DIFFERENCES)
    ]


class GuardedSide(Side):
    """A broker with access rules. What prepares something comes from the administrator's address."""

    def __init__(self, address: str, facts: Facts) -> None:
        super().__init__(address, facts)
        self.name = "t"
        self._administrator = Connection(address, ADMIN)
        self.ask(CreateAclsRequest(creations=[*everything(ITSELF), *everything(ADMIN)]))
        self._await(lambda: self._coordinates("g"))
        known = InitProducerIdRequest(transactional_id="x", transaction_timeout_ms=1000)
        find = FindCoordinatorRequest(key="x", key_type=1, coordinator_keys=["x"])
        self._await(lambda: not self.ask(find).coordinators[0].error_code and not self.ask(known, 4).error_code)
        self.producer_id()  # Kafka reserves its first ids when it is first asked

    def connection(self) -> Connection:
        """Return the connection from the administrator's address, which stays open."""
        return self._administrator

    def close(self) -> None:
        """Close that connection."""
        self._administrator.close()

    def allow(self, rules: Sequence[AclCreation]) -> None:
        """Have the caller have these rules, and no others."""
        self.ask(DeleteAclsRequest(filters=[DeleteAclsFilter(
            resource_type_filter=ANY_CODE, resource_name_filter=None, pattern_type_filter=ANY_CODE,
            principal_filter=None, host_filter=CALLER, operation=ANY_CODE, permission_type=ANY_CODE,
        )]))  # fmt: skip
        if rules:
            self.ask(CreateAclsRequest(creations=list(rules)))
        self._await(lambda: self._count_rules() == len(rules))

    def prepare(self) -> bytes:
        """Make the topic and the offsets of the group where they are gone; return the topic's id."""
        wanted = MetadataRequest(topics=[MetadataRequestTopic(name="t")], allow_auto_topic_creation=False)
        if self.ask(wanted, _BY_NAME).topics[0].error_code:
            self.ask(CreateTopicsRequest(
                topics=[CreatableTopic(name="t", num_partitions=1, replication_factor=1)], timeout_ms=5000
            ))  # fmt: skip
            self._await(lambda: bool(self._existing(["t"])) and self._is_led("t", 1))
        partitions = [OffsetCommitRequestPartition(partition_index=0, committed_offset=0, committed_metadata="")]
        commit = OffsetCommitRequest(
            group_id="g", generation_id_or_member_epoch=-1, member_id="",
            topics=[OffsetCommitRequestTopic(name="t", partitions=partitions)],
        )  # fmt: skip
        self._await(lambda: not self.ask(commit, _BY_NAME).topics[0].partitions[0].error_code)
        self._await(self._learn_epoch)
        self._await(lambda: any(self.topic_id("t")))
        return self.topic_id("t")

    def _learn_epoch(self) -> bool:
        """Return True once the broker says the first leader epoch of the topic."""
        wanted = MetadataRequest(topics=[MetadataRequestTopic(name="t")], allow_auto_topic_creation=False)
        partitions = [one for topic in self.ask(wanted, _BY_NAME).topics for one in topic.partitions]
        if partitions:
            self.facts.first_epoch = partitions[0].leader_epoch
        return bool(partitions)

    def _count_rules(self) -> int:
        answer = self.ask(DescribeAclsRequest(
            resource_type_filter=ANY_CODE, resource_name_filter=None, pattern_type_filter=ANY_CODE,
            principal_filter=None, host_filter=CALLER, operation=ANY_CODE, permission_type=ANY_CODE,
        ))  # fmt: skip
        return sum(len(resource.acls) for resource in answer.resources)


def made_side(address: str) -> GuardedSide:
    """Return a broker to play scenarios on."""
    return GuardedSide(address, Facts(port=int(address.rpartition(":")[2])))


def play(side: GuardedSide, scenario: Scenario) -> Iterator[tuple[str, int, Answer]]:
    """Yield the name, the version and the answer of each request of a scenario."""
    side.allow(scenario.rules)
    topic_id = side.prepare()
    for number in range(len(_requests(topic_id))):
        request = _requests(topic_id)[number]
        connection = Connection(side.address, CALLER)
        answer = connection.ask(request.asked, request.version)
        connection.close()
        yield request.name, request.version, rendered(answer, request.version, side.facts)
        if not _CHANGES_NOTHING.match(request.name):
            topic_id = side.prepare()
        side.end()


@lru_cache(2)
def _requests(topic_id: bytes) -> Sequence[Request]:
    return requests(topic_id)
