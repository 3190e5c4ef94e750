"""Produce to compacted topics: long batches are looked into beside the loop, and order stays."""

import threading

import pytest

from pqbroker.broker.kafka.lanes.produce_answers import API_KEY
from pqbroker.broker.services.topics import record_checks
from pqbroker.broker.services.topics.record_checks import ALIKE_BYTES_MAX, ALIKE_RECORDS_MAX, LONG_RECORDS
from pqbroker.protocol.errors import ErrorCode
from pqbroker.protocol.produced_batches import check_keys
from pqbroker.protocol.records import Record, encode_batch, read_header
from tests.broker.conftest import Node, produce_request, until
from tests.broker.kafka.handlers.test_produce import keyed_batch
from tests.broker.kafka.lanes.roads import note_taken
from tests.broker.wire import Client

LONG = [b"k" * (number % 3) for number in range(LONG_RECORDS + 1)]
"""Keys of more records than the loop walks through; no two neighbours have the same size."""


async def test_long_batches_for_a_compacted_topic_are_looked_into_beside_the_loop_and_order_stays(
    node: Node, client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    await node.create_topic("c", partitions=2, cleanup_policy="compact")
    looked_in: list[tuple[int, bool]] = []
    in_loop = threading.get_ident()

    def look(records: memoryview) -> None:
        looked_in.append((read_header(records).record_count, threading.get_ident() == in_loop))
        check_keys(records)

    monkeypatch.setattr(record_checks, "check_keys", look)
    long, faulty, short = [*LONG], [*LONG[:-1], None], [b"k"]
    sent: list[tuple[int, list[bytes | None]]] = [
        (0, [*short]), (0, [*long]), (0, [*short]), (0, faulty), (1, [*short]), (0, [None]), (0, [*long]),
        (0, [*short]),
    ]  # fmt: skip
    for partition, keys in sent:
        client.send(produce_request("c", keyed_batch(*keys), partition), 12)
    told = [(await client.receive()).responses[0].partition_responses[0] for _ in sent]
    refused, at = ErrorCode.INVALID_RECORD, len(long)
    assert [(each.error_code, each.base_offset) for each in told] == [
        (0, 0), (0, 1), (0, 1 + at), (refused, -1), (0, 0), (refused, -1), (0, 2 + at), (0, 2 + 2 * at),
    ]  # fmt: skip
    assert [error.batch_index for error in told[3].record_errors] == [LONG_RECORDS]
    assert {(count > 1, beside) for count, beside in looked_in} == {(True, False), (False, True)}
    assert not node.server.node.record_checks.waiting


async def test_what_waits_for_a_look_into_it_fails_when_the_cell_is_lost(node: Node, client: Client) -> None:
    await node.create_topic("c", cleanup_policy="compact")
    before = node.server.node.cell.current.topics
    node.engine.faults.lose_next()
    client.send(produce_request("c", keyed_batch(*LONG)), 12)
    client.send(produce_request("c", keyed_batch(b"k")), 12)
    told = [(await client.receive()).responses[0].partition_responses[0].error_code for _ in range(2)]
    assert told == [ErrorCode.NOT_LEADER_OR_FOLLOWER] * 2
    await until(lambda: node.server.node.cell.current.topics is not before)
    response = await client.ask(produce_request("c", keyed_batch(*LONG)), 12)
    assert response.responses[0].partition_responses[0].error_code == 0


async def test_a_lane_that_is_opened_while_a_batch_waits_does_not_overtake_it(
    node: Node, client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    await node.create_topic("c", cleanup_policy="compact")
    waiting, topics = node.server.node.record_checks.waiting, node.server.node.cell.current.topics
    gate = threading.Event()
    monkeypatch.setattr(record_checks, "check_keys", lambda records: gate.wait())
    client.send(produce_request("c", keyed_batch(*LONG)), 12)
    await until(lambda: bool(waiting))
    await topics.reconfigure("c", lambda _: {})
    for _ in "12":
        client.send(produce_request("c", keyed_batch(b"k")), 12)
    (partition,) = waiting
    await until(lambda: len(waiting[partition]) == 3 or partition.end_offset > 0)
    gate.set()
    told = [(await client.receive()).responses[0].partition_responses[0] for _ in "123"]
    assert [(each.error_code, each.base_offset) for each in told] == [(0, 0), (0, len(LONG)), (0, len(LONG) + 1)]


async def test_lanes_are_taken_while_a_batch_for_another_partition_waits(
    node: Node, client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    await node.create_topic("c", cleanup_policy="compact")
    await node.create_topic("plain")
    gate, taken = threading.Event(), list[bool]()
    for topic in ("plain", "c"):
        await client.ask(produce_request(topic, keyed_batch(b"k")), 12)
    note_taken(monkeypatch, API_KEY, taken)
    monkeypatch.setattr(record_checks, "check_keys", lambda records: gate.wait())
    client.send(produce_request("c", keyed_batch(*LONG)), 12)
    await until(lambda: bool(node.server.node.record_checks.waiting))
    client.send(produce_request("plain", keyed_batch(b"k")), 12)
    await until(lambda: len(taken) == 2)
    gate.set()
    assert [(await client.receive()).responses[0].partition_responses[0].base_offset for _ in "12"] == [1, 1]
    assert taken == [True, True]


@pytest.mark.parametrize("has_key", [True, False])
async def test_keys_of_many_records_that_are_alike_are_looked_at_in_the_loop(
    node: Node, client: Client, monkeypatch: pytest.MonkeyPatch, has_key: bool
) -> None:
    await node.create_topic("c", cleanup_policy="compact")
    looked_in: list[bool] = []
    in_loop = threading.get_ident()

    def look(records: memoryview) -> None:
        looked_in.append(threading.get_ident() == in_loop)
        check_keys(records)

    monkeypatch.setattr(record_checks, "check_keys", look)
    for count in (LONG_RECORDS + 1, ALIKE_RECORDS_MAX):
        batch = keyed_batch(*[b"k"] * count) if has_key else keyed_batch(*[b"k"] * (count - 1), None)
        answer = (await client.ask(produce_request("c", batch), 12)).responses[0].partition_responses[0]
        assert answer.error_code == (0 if has_key else ErrorCode.INVALID_RECORD)
        assert [error.batch_index for error in answer.record_errors] == ([] if has_key else [count - 1])
    assert looked_in == ([] if has_key else [False] * 2)  # a thread finds the one that has none
    await client.ask(produce_request("c", keyed_batch(*[b"k"] * (ALIKE_RECORDS_MAX + 1))), 12)
    assert looked_in[-1:] == [False]


@pytest.mark.parametrize("content", ["alike", "larger than the loop looks at", "headers"])
async def test_only_keys_of_records_that_are_alike_are_looked_at_in_large_batches_in_the_loop(
    node: Node, client: Client, monkeypatch: pytest.MonkeyPatch, content: str
) -> None:
    """Headers are looked at one by one: half a second for two megabytes of them."""
    await node.create_topic("c", cleanup_policy="compact", max_message_bytes=str(4 << 20))
    looked_in: list[bool] = []
    in_loop = threading.get_ident()
    monkeypatch.setattr(record_checks, "check_keys", lambda records: looked_in.append(threading.get_ident() == in_loop))
    size = ALIKE_BYTES_MAX if content.startswith("larger") else 100_000
    headers = [("", b"")] * 20_000 if content == "headers" else []
    batch = encode_batch([Record(key=b"k", value=bytes(size), headers=tuple(headers))])
    answer = (await client.ask(produce_request("c", batch), 12)).responses[0].partition_responses[0]
    assert answer.error_code == 0
    assert looked_in == ([] if content == "alike" else [False])
