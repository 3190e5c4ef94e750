"""`kill -9` of a broker whose groups have living members: they go on where they were, in the same generation."""

import asyncio
import json
import random
import urllib.request
from collections.abc import Iterable
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from confluent_kafka import Producer

from pqbroker.protocol.messages.create_topics import CreatableTopic, CreatableTopicConfig, CreateTopicsRequest
from pqbroker.protocol.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from pqbroker.protocol.messages.offset_fetch import OffsetFetchRequest
from pqbroker.testing import Broker, broker
from tests.broker.services.coordination.classic.test_handlers import beat, form
from tests.broker.wire import Client
from tests.support.drivers.aiokafka_driver import AiokafkaDriver
from tests.support.drivers.librdkafka_driver import LibrdkafkaDriver
from tests.support.drivers.member import Member, await_members
from tests.support.waiting import DEADLINE_S

PARTITIONS, RECORDS = 6, 10
SETTINGS = {"group.initial.rebalance.delay.ms": "0"}
KILLS = 3
_COMMITTING_MAX_S = 0.2


def describe(node: Broker) -> Any:
    """The group g as the HTTP API tells it."""
    with urllib.request.urlopen(f"http://{node.http}/v1/groups/g") as answer:
        return json.load(answer)


def produce(producer: Producer) -> None:
    """Write some records more to each partition."""
    for partition, _ in places([0]):
        producer.produce("t", b"v", partition=partition)
    assert producer.flush(DEADLINE_S) == 0


def places(batches: Iterable[int], partitions: Iterable[int] = range(PARTITIONS)) -> list[tuple[int, int]]:
    """Partition and offset of the records that some calls of `produce` wrote."""
    return sorted((index, n * RECORDS + i) for index in partitions for n in batches for i in range(RECORDS))


def received(members: Iterable[Member]) -> list[tuple[int, int]]:
    return sorted(place for member in members for place in member.received)


def test_members_go_on_after_a_kill_and_nothing_committed_is_lost_or_repeated(tmp_path: Path) -> None:
    with broker(tmp_path, SETTINGS) as node, ExitStack() as stack:
        aiokafka, librdkafka = AiokafkaDriver(node.kafka), LibrdkafkaDriver(node.kafka)
        librdkafka.create_topic("t", partitions=PARTITIONS)
        producer = Producer({"bootstrap.servers": node.kafka, "linger.ms": 0, "log_level": 0})
        members = [
            stack.enter_context(Member(start))
            for start in (
                lambda: librdkafka.consumer("t", "g", "static"),
                lambda: librdkafka.consumer("t", "g"),
                lambda: aiokafka.consumer("t", "g"),
            )
        ]
        await_members(lambda: [len(member.owned) for member in members] == [2, 2, 2], "two partitions for each member")
        produce(producer)
        await_members(lambda: received(members) == places([0]), "all records received, once")
        for member in members:
            member.commit()
        produce(producer)
        await_members(lambda: received(members) == places([0, 1]), "more received, and not committed")
        before = describe(node)
        assert (before["state"], before["member_count"], before["lag"]) == ("Stable", 3, PARTITIONS * RECORDS)

        node.kill()
        node.start()
        assert describe(node) == before
        produce(producer)
        await_members(lambda: received(members) == places([0, 1, 2]), "the records after the kill received, once")
        after = describe(node)
        assert (after["generation"], after["members"]) == (before["generation"], before["members"])

        survivor = members[0]
        inherited = set(range(PARTITIONS)) - survivor.owned
        for member in members[1:]:
            member.leave()
        await_members(lambda: len(survivor.owned) == PARTITIONS, "all partitions for the survivor")
        uncommitted = set(places([1, 2], inherited))
        await_members(lambda: uncommitted <= set(survivor.received), "what nobody has committed received again")
        assert {place for place in survivor.received if place[0] in inherited} == uncommitted
        survivor.commit()
        assert describe(node)["lag"] == 0


def test_acknowledged_commits_survive_kills_and_a_commit_is_whole(tmp_path: Path) -> None:
    seed = random.randrange(1 << 32)
    print(f"seed {seed}")
    with broker(tmp_path, SETTINGS) as node:
        asyncio.run(commit_through_kills(node, random.Random(seed)))


async def commit_through_kills(node: Broker, source: random.Random) -> None:
    """One member commits to two partitions, in tablets of their own, while the broker is killed again and again."""
    client = await connect(node)
    one_each = [CreatableTopicConfig(name="pq.partitions.per.tablet", value="1")]
    topic = CreatableTopic(name="t", num_partitions=2, replication_factor=1, configs=one_each)
    assert (await client.ask(CreateTopicsRequest(topics=[topic]))).topics[0].error_code == 0
    joined = await form(client)
    offset = 0
    for _ in range(KILLS):
        begun = asyncio.Event()
        committing = asyncio.create_task(commit_on(client, joined.member_id, offset, begun))
        await begun.wait()
        await asyncio.sleep(source.uniform(0, _COMMITTING_MAX_S))
        await asyncio.to_thread(node.kill)
        acknowledged = await committing
        client.abort()
        await asyncio.to_thread(node.start)
        client = await connect(node)
        found = (await client.ask(OffsetFetchRequest(group_id="g", topics=None), 7)).topics[0].partitions
        offsets = {partition.committed_offset for partition in found}
        assert len(found) == 2
        assert len(offsets) == 1, "half a commit"
        offset = offsets.pop()
        assert acknowledged <= offset <= acknowledged + 1
        assert await beat(client, joined.member_id, joined.generation_id) == 0
    await client.close()


async def commit_on(client: Client, member_id: str, offset: int, begun: asyncio.Event) -> int:
    """Commit one offset after the other until the connection breaks; the last one acknowledged. Tell of the first."""
    while True:
        states = [
            OffsetCommitRequestPartition(partition_index=index, committed_offset=offset + 1, committed_metadata="")
            for index in range(2)
        ]
        request = OffsetCommitRequest(
            group_id="g", generation_id_or_member_epoch=1, member_id=member_id,
            topics=[OffsetCommitRequestTopic(name="t", partitions=states)],
        )  # fmt: skip
        try:
            response = await client.ask(request, 9)
        except (asyncio.IncompleteReadError, ConnectionError):
            return offset
        assert {state.error_code for state in response.topics[0].partitions} == {0}
        offset += 1
        begun.set()


async def connect(node: Broker) -> Client:
    host, _, port = node.kafka.rpartition(":")
    return await Client.connect(host, int(port))
