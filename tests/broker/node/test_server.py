import asyncio
import json
from collections.abc import Awaitable, Callable

import pytest

from pqbroker.broker.ground.listeners import Address, CannotListen
from pqbroker.broker.node.server import Server
from pqbroker.conf.broker import BrokerSettings
from pqbroker.protocol.errors import ErrorCode
from pqbroker.protocol.messages.metadata import MetadataRequest
from pqbroker.storage.memory import MemoryEngine
from tests.broker.conftest import ENGINE_BYTES, Node, make_batch, produce_request, until
from tests.broker.kafka.handlers.test_fetch import LONG_MS, fetch_request, offsets
from tests.broker.wire import Client

Start = Callable[..., Awaitable[Node]]


async def test_stopping_answers_a_parked_fetch_and_closes_cleanly(node: Node, client: Client) -> None:
    await node.create_topic("t")
    client.send(fetch_request((0, 0), max_wait_ms=LONG_MS), 12)
    await until(lambda: any(route.api == "Fetch" for route in node.server.node.metrics.routes))
    stopping = asyncio.ensure_future(node.server.stop())
    response = await client.receive()
    assert response.responses[0].partitions[0].error_code == 0
    assert await client.is_closed_by_peer()
    await stopping


async def test_stopping_answers_a_produce_in_work(node: Node, client: Client) -> None:
    await node.create_topic("t")
    node.engine.faults.hold()
    client.send(produce_request("t", make_batch()), 9)
    partition = node.server.node.cell.current.topics.get("t").partitions[0]  # type: ignore[union-attr]
    await until(lambda: any(route.api == "Produce" for route in node.server.node.metrics.routes))
    stopping = asyncio.ensure_future(node.server.stop())
    await asyncio.sleep(0)
    assert partition.end_offset == 0
    node.engine.faults.release()
    assert (await client.receive()).responses[0].partition_responses[0].error_code == 0
    await stopping


async def test_a_connection_that_does_not_drain_is_cut(start: Start) -> None:
    node = await start(drain_timeout_ms=10)
    await node.create_topic("t")
    client = await node.connect()
    node.engine.faults.hold()
    client.send(produce_request("t", make_batch()), 9)
    await until(lambda: any(route.api == "Produce" for route in node.server.node.metrics.routes))
    stopping = asyncio.ensure_future(node.server.stop())
    with pytest.raises((ConnectionError, asyncio.IncompleteReadError)):
        await client.receive()
    node.engine.faults.release()
    await stopping


async def test_a_store_that_fails_is_opened_again_with_a_new_leader_epoch(node: Node, client: Client) -> None:
    await node.create_topic("t")
    await node.produce("t", b"a")
    before = (await client.ask(MetadataRequest(topics=None))).topics[0]
    node.engine.faults.lose_next()
    lost = await node.produce("t", b"b")
    assert lost.error_code in (ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.KAFKA_STORAGE_ERROR)
    await until(lambda: node.server.node.metrics.cell_openings == 2)
    after = (await client.ask(MetadataRequest(topics=None))).topics[0]
    assert after.topic_id == before.topic_id
    assert after.partitions[0].leader_epoch > before.partitions[0].leader_epoch
    written = await node.produce("t", b"c")
    assert written.error_code == 0
    response = await client.ask(fetch_request((0, 0)), 12)
    assert offsets(response.responses[0].partitions[0])[0] == 0


async def test_a_fetch_parked_at_the_loss_of_the_cell_is_answered(node: Node, client: Client) -> None:
    await node.create_topic("t")
    client.send(fetch_request((0, 0), max_wait_ms=LONG_MS), 12)
    await until(lambda: any(route.api == "Fetch" for route in node.server.node.metrics.routes))
    node.engine.faults.lose_next()
    await node.produce("t", b"a")
    answer = (await client.receive()).responses[0].partitions[0]
    assert answer.error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER


async def test_topics_of_a_lost_cell_stay_known_until_it_is_open_again(node: Node, client: Client) -> None:
    await node.create_topic("t")
    node.engine.faults.lose_next()
    await node.produce("t", b"a")
    while node.server.node.metrics.cell_openings == 1:
        topics = (await client.ask(MetadataRequest(topics=None))).topics
        assert [topic.name for topic in topics] == ["t"]
        listed = (await client.ask(fetch_request((0, 0)), 12)).responses[0].partitions[0]
        assert listed.error_code in (0, ErrorCode.NOT_LEADER_OR_FOLLOWER)


async def test_a_fenced_node_fails_and_acknowledges_nothing_more(node: Node) -> None:
    await node.create_topic("t")
    await node.engine.open()
    refused = await node.produce("t", b"a")
    assert refused.error_code != 0
    lost = await node.server.failed
    assert "another process" in str(lost)
    assert node.server.node.metrics.cell_openings == 1


async def test_an_idle_connection_is_closed_with_a_clean_end(start: Start) -> None:
    node = await start(connections_max_idle_ms=40)
    client = await node.connect()
    assert await client.is_closed_by_peer()


async def test_one_connection_too_many_is_closed_at_once(start: Start) -> None:
    node = await start(max_connections=1)
    first = await node.connect()
    await first.ask(MetadataRequest(topics=None))
    second = await node.connect()
    assert await second.is_closed_by_peer()
    await first.ask(MetadataRequest(topics=None))


async def test_a_frame_above_the_limit_closes_the_connection(start: Start) -> None:
    node = await start(socket_request_max_bytes=2000)
    client = await node.connect()
    client.send_bytes((2001).to_bytes(4, "big"))
    assert await client.is_closed_by_peer()


async def test_localhost_is_served_on_both_loopbacks_and_told_as_reached() -> None:
    server = Server(BrokerSettings(), MemoryEngine(ENGINE_BYTES), Address("localhost", 0))
    await server.start()
    for host in ("127.0.0.1", "::1"):
        try:
            client = await Client.connect(host, server.kafka_address.port)
        except OSError:
            assert host == "::1"
            continue
        response = await client.ask(MetadataRequest(topics=[]))
        assert (response.brokers[0].host, response.brokers[0].port) == (host, server.kafka_address.port)
        await client.close()
    await server.stop()


async def test_a_start_that_fails_leaves_nothing_open(node: Node) -> None:
    engine = MemoryEngine(ENGINE_BYTES)
    taken = node.server.kafka_address
    for kafka, http in ((taken, None), (Address("127.0.0.1", 0), taken)):
        with pytest.raises(CannotListen, match="in use"):
            await Server(BrokerSettings(), engine, kafka, http).start()
    server = Server(BrokerSettings(), engine, Address("127.0.0.1", 0))
    await server.start()
    await server.stop()


async def get(address: Address | None, path: str) -> tuple[int, str]:
    assert address is not None
    reader, writer = await asyncio.open_connection(address.host, address.port)
    writer.write(f"GET {path} HTTP/1.0\r\n\r\n".encode())
    head, _, body = (await reader.read()).decode().partition("\r\n\r\n")
    writer.close()
    return int(head.split()[1]), body


async def test_health_is_told_and_follows_the_cell(start: Start) -> None:
    node = await start(http=Address("127.0.0.1", 0))
    await node.create_topic("t")
    status, body = await get(node.server.http_address, "/health")
    assert (status, json.loads(body)["status"]) == (200, "ok")
    await node.engine.open()
    await node.produce("t", b"a")
    status, body = await get(node.server.http_address, "/health")
    assert (status, json.loads(body)["status"]) == (503, "cell lost")


async def test_metrics_count_requests_errors_and_offsets(start: Start) -> None:
    node = await start(http=Address("127.0.0.1", 0))
    await node.create_topic("t")
    await node.produce("t", b"a")
    await node.produce("u", b"a")
    status, body = await get(node.server.http_address, "/metrics")
    assert status == 200
    lines = body.splitlines()
    assert 'pqbroker_request_seconds_count{api="Produce",version="9"} 2.0' in lines
    assert 'pqbroker_errors_total{error="UNKNOWN_TOPIC_OR_PARTITION"} 1.0' in lines
    assert 'pqbroker_partition_end_offset{partition="0",topic="t"} 1.0' in lines
    assert "pqbroker_parked_fetch_overstay_worst_seconds 0.0" in lines


async def test_what_is_not_there_is_not_found(start: Start) -> None:
    node = await start(http=Address("127.0.0.1", 0))
    assert (await get(node.server.http_address, "/nowhere"))[0] == 404
