"""Regular expressions by which members subscribe: checked, resolved in slices, and what members see of it."""

import asyncio
import threading
from collections.abc import Mapping
from time import thread_time
from typing import Any

import pytest

from pqbroker.broker.ground.turns import SLICE_S, Turns
from pqbroker.broker.services.coordination import topic_expressions
from pqbroker.broker.services.coordination.topic_expressions import TopicExpressions
from pqbroker.protocol.errors import ErrorCode, KafkaError
from pqbroker.protocol.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest
from pqbroker.protocol.messages.delete_topics import DeleteTopicsRequest
from tests.broker.conftest import Node
from tests.broker.wire import Client
from tests.support.cpu_time import no_collector, slowness

TOPICS = ["orders", "orders.eu", "orders.us", "payments"]
CHARACTERS_MAX = 4_096


def anyone(name: str) -> bool:
    return True


async def resolved(expressions: TopicExpressions, *texts: str) -> Mapping[str, frozenset[str]]:
    steps = await expressions.resolve(texts, anyone)
    return await Turns(asyncio.get_running_loop()).finish(steps)


async def test_a_topic_matches_with_its_whole_name() -> None:
    found = await resolved(TopicExpressions(lambda: TOPICS, CHARACTERS_MAX), "orders", r"orders\..*", ".*s", "")
    assert found == {
        "orders": {"orders"}, r"orders\..*": {"orders.eu", "orders.us"}, ".*s": {"orders", "orders.us", "payments"},
        "": frozenset(),
    }  # fmt: skip


async def test_topics_that_the_member_may_not_describe_are_left_out() -> None:
    steps = await TopicExpressions(lambda: TOPICS, CHARACTERS_MAX).resolve([".*"], lambda name: name.startswith("p"))
    assert await Turns(asyncio.get_running_loop()).finish(steps) == {".*": {"payments"}}


@pytest.mark.parametrize("text", ["(", "a(?=b)", r"(a)\1", "x{2,1}", "\udcff", "(?<!a)b"])
async def test_an_expression_that_the_engine_does_not_take_is_refused(text: str) -> None:
    expressions = TopicExpressions(lambda: TOPICS, CHARACTERS_MAX)
    with pytest.raises(KafkaError, match="is not a valid regular expression") as refused:
        await expressions.check(text)
    assert refused.value.code is ErrorCode.INVALID_REGULAR_EXPRESSION
    assert await resolved(expressions, text) == {text: frozenset()}, "stored by a version that took it"


@pytest.mark.parametrize("text", ["a" * 4_097, ".*" * 5_000, r"(?i)\pL" * 1_000, "(x{1000}){1000}", "(a?){1000}" * 100])
async def test_an_expression_that_is_too_long_or_large_is_refused(text: str) -> None:
    with pytest.raises(KafkaError) as refused:
        await TopicExpressions(lambda: TOPICS, CHARACTERS_MAX).check(text)
    assert refused.value.code is ErrorCode.INVALID_REGULAR_EXPRESSION
    assert len(refused.value.message) < 300


async def test_the_last_few_compiled_expressions_are_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    compiled: list[str] = []

    def count(text: str) -> Any:
        compiled.append(text)
        return anyone

    monkeypatch.setattr(topic_expressions, "_compile", count)
    expressions = TopicExpressions(lambda: TOPICS, CHARACTERS_MAX)
    most = topic_expressions.KEPT_EXPRESSIONS_MAX
    for number in [*range(most), *range(most), most, 0]:
        await expressions.check(str(number))
    assert compiled == [*map(str, range(most)), str(most), "0"]


async def test_expressions_are_compiled_one_at_a_time_and_the_same_one_once(monkeypatch: pytest.MonkeyPatch) -> None:
    compiled: list[str] = []
    running = threading.Semaphore(1)

    def count(text: str) -> Any:
        assert running.acquire(blocking=False), "two at a time"
        compiled.append(text)
        running.release()
        return anyone

    monkeypatch.setattr(topic_expressions, "_compile", count)
    expressions = TopicExpressions(lambda: TOPICS, CHARACTERS_MAX)
    await asyncio.gather(*(expressions.check(str(number % 5)) for number in range(50)))
    assert sorted(compiled) == ["0", "1", "2", "3", "4"]


LONG = ("(a|b)*" * 682, "|".join(f"t.*{number}" for number in range(580)), "a?" * 2_000)


@pytest.mark.parametrize("text", LONG, ids=("stars", "branches", "options"))
async def test_the_longest_expressions_over_ten_thousand_topics_leave_the_loop_to_others(text: str) -> None:
    names = [f"topic-{number}" for number in range(10_000)]
    expressions = TopicExpressions(lambda: names, CHARACTERS_MAX)
    work = asyncio.ensure_future(resolved(expressions, text))
    gaps, last = [], thread_time()
    with no_collector():
        while not work.done():
            await asyncio.sleep(0)
            gaps.append(thread_time() - last)
            last = thread_time()
    assert text in await work
    assert sorted(gaps)[len(gaps) * 9 // 10] < 3 * SLICE_S * slowness()


@pytest.fixture
async def node(start: Any) -> Node:
    """A node whose groups need not wait between two targets."""
    started: Node = await start(group_consumer_assignment_interval_ms=0)
    return started


@pytest.fixture
async def client(node: Node) -> Client:
    return await node.connect()


async def heartbeat(client: Client, member_id: str, epoch: int, expression: str | None = None) -> Any:
    request = ConsumerGroupHeartbeatRequest(
        group_id="g", member_id=member_id, member_epoch=epoch, rebalance_timeout_ms=60_000,
        subscribed_topic_regex=expression, topic_partitions=None if epoch else [],
    )  # fmt: skip
    return await client.ask(request, 1)


async def assigned(client: Client, member_id: str, epoch: int, *, topics: int) -> tuple[int, set[bytes]]:
    """Beat until the member has partitions of so many topics. Return its epoch and their ids."""
    for _ in range(2_000):
        answer = await heartbeat(client, member_id, epoch)
        assert answer.error_code == ErrorCode.NONE
        epoch = answer.member_epoch
        if answer.assignment is not None:
            found = {each.topic_id for each in answer.assignment.topic_partitions if each.partitions}
            if len(found) == topics:
                return epoch, found
        await asyncio.sleep(0.002)
    raise AssertionError(f"{member_id} was not given {topics} topics")


async def test_a_member_is_given_the_topics_that_match(node: Node, client: Client) -> None:
    ids = {name: await node.create_topic(name) for name in ("orders", "orders.eu", "payments")}
    joined = await heartbeat(client, "m", 0, "orders.*")
    assert (joined.error_code, joined.member_epoch > 0) == (ErrorCode.NONE, True)
    _, found = await assigned(client, "m", joined.member_epoch, topics=2)
    assert found == {ids["orders"], ids["orders.eu"]}


async def test_a_wrong_expression_is_refused_and_makes_no_group(client: Client) -> None:
    answer = await heartbeat(client, "m", 0, "(orders")
    assert answer.error_code == ErrorCode.INVALID_REGULAR_EXPRESSION
    assert "(orders" in answer.error_message
    assert (await heartbeat(client, "m", 1)).error_code == ErrorCode.GROUP_ID_NOT_FOUND


async def test_topics_that_come_and_go_change_what_a_member_reads(node: Node, client: Client) -> None:
    await node.create_topic("orders")
    epoch, _ = await assigned(client, "m", (await heartbeat(client, "m", 0, "orders.*")).member_epoch, topics=1)
    added = await node.create_topic("orders.eu")
    node.clock.now_ms += 10_001
    epoch, found = await assigned(client, "m", epoch, topics=2)
    assert added in found
    await client.ask(DeleteTopicsRequest(topic_names=["orders"]), 5)
    node.clock.now_ms += 10_001
    assert (await assigned(client, "m", epoch, topics=1))[1] == {added}


async def test_the_expression_of_a_second_member_counts_at_once(node: Node, client: Client) -> None:
    ids = [await node.create_topic(name) for name in ("a", "b")]
    first, _ = await assigned(client, "m", (await heartbeat(client, "m", 0, "a")).member_epoch, topics=1)
    second = await heartbeat(client, "n", 0, "b")
    assert (await assigned(client, "n", second.member_epoch, topics=1))[1] == {ids[1]}
    assert (await heartbeat(client, "m", first)).error_code == ErrorCode.NONE
