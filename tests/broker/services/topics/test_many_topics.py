"""Topics of one request are one change of the scheme; each is refused by itself, where it alone is wrong."""

from collections.abc import Awaitable, Callable, Sequence

import pytest

from pqbroker.broker.services.topics.topics import WEIGHT_AT_ONCE_MAX
from pqbroker.protocol.errors import ErrorCode
from pqbroker.protocol.messages.create_topics import CreatableTopic, CreatableTopicConfig, CreateTopicsRequest
from tests.broker.conftest import Node
from tests.broker.wire import Client

Start = Callable[..., Awaitable[Node]]


def topic(name: str, partitions: int = 1, **configs: str) -> CreatableTopic:
    entries = [CreatableTopicConfig(name=key.replace("_", "."), value=value) for key, value in configs.items()]
    return CreatableTopic(name=name, num_partitions=partitions, replication_factor=1, configs=entries)


async def create(client: Client, topics: Sequence[CreatableTopic], *, only: bool = False) -> list[tuple[str, str]]:
    """Return the name and the error of each, in the order of the answer."""
    request = CreateTopicsRequest(topics=list(topics), validate_only=only)
    return [(each.name, ErrorCode(each.error_code).name) for each in (await client.ask(request)).topics]


def commits(node: Node) -> int:
    return node.server.node.cell.current.cells.system.cell.stats().commits


def names(node: Node) -> set[str]:
    return set(node.server.node.cell.current.topics.names())


async def test_topics_of_a_request_are_one_change_of_the_scheme(node: Node, client: Client) -> None:
    await node.create_topic("first")
    before = commits(node)
    wanted = [topic(f"t{number}", 1 + number % 3) for number in range(100)]
    assert await create(client, wanted) == [(each.name, "NONE") for each in wanted]
    assert commits(node) - before == 2, "names in the scheme, then all tablets"
    topics = node.server.node.cell.current.topics
    served = [topics.get(each.name) for each in wanted]
    assert [len(each.partitions) for each in served if each is not None] == [each.num_partitions for each in wanted]
    tablets = [tablet for each in served if each is not None for tablet in each.record.tablets]
    assert len(set(tablets)) == len(tablets)
    assert (await node.produce("t7", b"a")).error_code == 0


async def test_what_is_wrong_in_one_topic_refuses_that_one_alone(node: Node, client: Client) -> None:
    await node.create_topic("known")
    wanted = [
        topic("a.b"), topic("known"), topic("twice"), topic("a_b"), topic("none", 0), topic("twice"), topic("c"),
        topic("bundle", pq_bundle="absent"), topic("config", retention_ms="x"), topic("d", 2),
    ]  # fmt: skip
    assert await create(client, wanted) == [
        ("a.b", "NONE"), ("known", "TOPIC_ALREADY_EXISTS"), ("twice", "INVALID_REQUEST"),
        ("a_b", "INVALID_TOPIC_EXCEPTION"), ("none", "INVALID_PARTITIONS"), ("c", "NONE"),
        ("bundle", "POLICY_VIOLATION"), ("config", "INVALID_CONFIG"), ("d", "NONE"),
    ]  # fmt: skip
    assert names(node) == {"known", "a.b", "c", "d"}


async def test_topics_for_whose_partitions_there_is_no_room_are_refused(start: Start) -> None:
    node = await start(partitions_max=5)
    client = await node.connect()
    wanted = [topic("a", 2), topic("b", 4), topic("c", 3), topic("d")]
    assert [error for _, error in await create(client, wanted)] == [
        "NONE", "POLICY_VIOLATION", "NONE", "POLICY_VIOLATION",
    ]  # fmt: skip
    assert names(node) == {"a", "c"}


@pytest.mark.parametrize("refused", [0, 1])
async def test_topics_whose_commit_is_refused_are_none_of_them(start: Start, refused: int) -> None:
    node = await start(partitions_max=4)
    client = await node.connect()
    await node.create_topic("known")
    node.engine.faults.refuse_next(after=refused)
    wanted = [topic("a", 2), topic("b")]
    first = await create(client, wanted)
    assert [error != "NONE" for _, error in first] == [True, True]
    assert names(node) == {"known"}
    assert await create(client, wanted) == [("a", "NONE"), ("b", "NONE")]


async def test_topics_that_are_only_validated_are_not_created(node: Node, client: Client) -> None:
    wanted = [topic("a.b"), topic("a_b"), topic("c")]
    assert [error for _, error in await create(client, wanted, only=True)] == [
        "NONE", "INVALID_TOPIC_EXCEPTION", "NONE"
    ]  # fmt: skip
    assert not names(node)


async def test_more_topics_than_a_change_takes_are_a_few_changes(node: Node, client: Client) -> None:
    await node.create_topic("first")
    before = commits(node)
    wanted = [topic(f"t{number}", retention_ms="1000") for number in range(WEIGHT_AT_ONCE_MAX + 1)]
    assert {error for _, error in await create(client, wanted)} == {"NONE"}
    assert commits(node) - before == 4
    assert len(names(node)) == len(wanted) + 1
