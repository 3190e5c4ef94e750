"""Partitions as participants of commits over several tablets: held, prepared, in doubt, finished; nothing torn."""

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import pytest

from pqbroker.pq.log.keys import outcome_key, prepared_key
from pqbroker.pq.log.partition_settings import Closed
from pqbroker.pq.log.sessions import Fence, SessionBatch
from pqbroker.pq.log.write_cycle import Written
from pqbroker.pq.serving import transacted_batches
from pqbroker.pq.serving.joint_write import Share, batches_taken
from pqbroker.pq.serving.offsets import nobody_knows
from pqbroker.pq.serving.partition_server import PartitionServer
from pqbroker.pq.serving.transacted_batches import BatchesPart, await_transactions, under_way
from pqbroker.pq.transactions.participants import CommitPart, Participant
from pqbroker.protocol.errors import ErrorCode, KafkaError
from pqbroker.storage.engine import BlobCorrupt, BlobKey, CommitRefused
from pqbroker.storage.kv.commands import INLINE, Command, Write
from pqbroker.storage.memory import MemoryShard
from pqbroker.storage.pool_status import Colour
from tests.pq.rig import (
    MIB,
    START_MS,
    Node,
    batch,
    check_invariants,
    check_store,
    read_all,
    table_that_keeps_facts,
    write,
)
from tests.pq.serving.transacting import (
    TIMEOUT_S,
    decision,
    head,
    hold,
    part,
    prepare,
    send,
    transaction,
    turns_pass,
    until,
)

FENCE = Fence("spark/0", 7)
LATER = 1 << 62
"""A timestamp of a commit."""


async def alone(config: Mapping[str, str] | None = None) -> tuple[Node, PartitionServer]:
    node = await Node().start()
    return node, await node.topic(config=config)


async def values(partition: PartitionServer) -> list[bytes | None]:
    """The values in order; their offsets are dense."""
    found = await read_all(partition)
    check_invariants(partition.state)
    assert [offset for offset, _ in found] == list(range(partition.start_offset, partition.end_offset))
    return [value for _, value in found]


async def held(node: Node, partition: PartitionServer, *rows: bytes, number: int = 1) -> None:
    """Prepare rows."""
    await prepare(part(partition, node.clock, *rows, prepared=head(number)))


async def refused(outcome: Any) -> BaseException:
    """The error of what is awaited."""
    with pytest.raises((KafkaError, CommitRefused)) as refusal:
        await asyncio.wait_for(outcome, TIMEOUT_S)
    return refusal.value


async def test_they_are_what_a_coordinator_asks_for() -> None:
    node, partition = await alone()
    one: CommitPart = part(partition, node.clock, b"a", b"b")
    (tablet,) = node.topics.get("t").tablets.values()  # type: ignore[union-attr]
    participant: Participant | None = tablet.participant(0)
    assert participant is not None
    assert participant is one.participant
    assert participant.name == "t-0"
    assert participant.participant_id == (tablet.kv.storage.tablet_id, 0)
    assert participant.kv is tablet.kv
    assert participant.is_known
    assert tablet.participant(1) is None
    assert one.row_count == 2
    partition.stop()
    assert not participant.is_known


async def test_a_partition_without_transactions_has_nothing_of_them() -> None:
    node, partition = await alone()
    await write(partition, batch(b"a"))
    await node.restart()
    assert node.partition().known_transactions is None
    assert under_way(node.partition()) is None


async def test_rows_beside_the_decision_are_written_by_its_request() -> None:
    node = await Node().start()
    await node.topic(partitions=2, config={"pq.partitions.per.tablet": "1"}, table=table_that_keeps_facts(2))
    first, second = node.partition(), node.partition(index=1)
    await write(first, batch(b"before"))
    parts = [part(first, node.clock, b"a", b"b", fence=FENCE), part(second, node.clock, b"c")]
    await hold(*parts)
    later = first.write(*batch(b"later"))
    commits = node.cell.stats().commits
    decided = decision(1, LATER)
    await send(parts, LATER, (first.transactions, decided))
    await later
    assert node.cell.stats().commits == commits + 2
    assert [fact.timestamp == LATER for fact in await first.facts.read_stored(0, 4)] == [False, True, True, False]
    await node.restart()
    first, second = node.partition(), node.partition(index=1)
    assert (await values(first), await values(second)) == ([b"before", b"a", b"b", b"later"], [b"c"])
    assert batches_taken([first], "spark/0") == {0: SessionBatch(7, START_MS, 1, 2)}
    assert first.transactions.decisions == {decided.transaction: decided}
    assert second.known_transactions is None


async def test_prepared_rows_are_invisible_and_finished_before_all_that_came_meanwhile() -> None:
    node, partition = await alone()
    await write(partition, batch(b"before"))
    await held(node, partition, b"a", b"b")
    waiting = [partition.write(*batch(b"%d" % number, producer=(5, 0, number))) for number in range(3)]
    await turns_pass()
    assert not any(outcome.done() for outcome in waiting)
    assert await values(partition) == [b"before"]
    assert partition.why_no_writes() is None
    await partition.transactions.finish(transaction(1), LATER)
    assert (await values(partition))[:3] == [b"before", b"a", b"b"]
    assert [(await outcome).base_offset for outcome in waiting] == [3, 4, 5]
    assert await values(partition) == [b"before", b"a", b"b", b"0", b"1", b"2"]
    await check_store(node, partition)
    await node.restart()
    assert await values(node.partition()) == [b"before", b"a", b"b", b"0", b"1", b"2"]
    assert node.partition().known_transactions is None


async def test_rows_of_an_aborted_transaction_leave_nothing() -> None:
    node, partition = await alone()
    await held(node, partition, b"a", b"x" * MIB)
    waiting = partition.write(*batch(b"later"))
    await partition.transactions.finish(transaction(1), None)
    assert await waiting == Written(0, -1, 0)
    await check_store(node, partition)
    assert under_way(partition) is None
    await node.restart()
    assert await values(node.partition()) == [b"later"]


async def test_finished_rows_are_finished_again_without_harm() -> None:
    node, partition = await alone()
    await held(node, partition, b"a")
    known = partition.transactions
    first, second = known.finish(transaction(1), LATER), known.finish(transaction(1), LATER)
    await first
    await second
    await known.finish(transaction(1), LATER)
    await known.finish(transaction(1), None)
    await known.finish(transaction(2), LATER)
    assert await values(partition) == [b"a"]


async def test_another_transaction_waits_for_the_one_that_is_prepared() -> None:
    node, partition = await alone()
    await held(node, partition, b"a")
    other = part(partition, node.clock, b"b", prepared=head(2))
    entered = asyncio.ensure_future(prepare(other))
    await turns_pass()
    assert set(partition.transactions.prepared) == {transaction(1)}
    await partition.transactions.finish(transaction(1), LATER)
    await asyncio.wait_for(entered, TIMEOUT_S)
    assert set(partition.transactions.prepared) == {transaction(2)}
    await partition.transactions.finish(transaction(2), LATER + 1)
    assert await values(partition) == [b"a", b"b"]


async def test_trims_flushes_and_retention_wait_behind_prepared_rows() -> None:
    node, partition = await alone({"retention.ms": "1000"})
    await write(partition, batch(b"before"))
    await held(node, partition, b"a")
    jobs = [
        asyncio.ensure_future(partition.retention.delete_before(1)), asyncio.ensure_future(partition.flush().wait()),
        asyncio.ensure_future(partition.write_at(9, *batch(b"at"))),
    ]  # fmt: skip
    await turns_pass()
    assert not any(job.done() for job in jobs)
    await partition.transactions.finish(transaction(1), LATER)
    await asyncio.wait_for(asyncio.gather(*jobs), TIMEOUT_S)
    assert await read_all(partition) == [(1, b"a"), (9, b"at")]


@pytest.mark.parametrize("timestamp", [LATER, None])
async def test_after_a_restart_a_partition_is_in_doubt_until_it_is_told(timestamp: int | None) -> None:
    node, partition = await alone({"retention.ms": "1000"})
    await write(partition, batch(b"before"))
    await held(node, partition, b"a")
    await node.restart()
    partition = node.partition()
    known = partition.transactions
    assert known.prepared == {transaction(1): head()}
    known.waits_for = "cell 7, which is not open"
    error = await refused(partition.write(*batch(b"later", producer=(5, 0, 0))))
    assert isinstance(error, KafkaError)
    assert error.code == ErrorCode.NOT_LEADER_OR_FOLLOWER
    told = f"rows of transaction {transaction(1).hex()} are prepared here and wait for cell 7, which is not open"
    assert error.message == f"{told}: retry"
    assert partition.why_no_writes() == ("transaction", told)
    assert isinstance(await refused(partition.flush()), KafkaError)
    assert isinstance(await refused(partition.write_at(9, *batch(b"at"))), KafkaError)
    other = part(partition, node.clock, b"other")
    assert "wait for cell 7" in str(await refused(hold(other)))
    assert await values(partition) == [b"before"]
    node.now_ms += 1000
    await asyncio.wait_for(node.topics.retain(nobody_knows), TIMEOUT_S)
    assert partition.start_offset == 0
    await known.finish(transaction(1), timestamp)
    assert partition.why_no_writes() is None
    await write(partition, batch(b"later", producer=(5, 0, 0)))
    assert await values(partition) == [b"before", *([b"a"] if timestamp else []), b"later"]
    node.now_ms += 1000
    await node.topics.retain(nobody_knows)
    assert partition.start_offset == partition.end_offset


async def test_a_session_may_have_more_in_a_partition_with_prepared_rows() -> None:
    node, partition = await alone()
    await prepare(part(partition, node.clock, b"a", b"b", fence=FENCE, prepared=head()))
    with pytest.raises(KafkaError, match="prepared") as refusal:
        batches_taken([partition], "spark/0")
    assert refusal.value.code == ErrorCode.NOT_LEADER_OR_FOLLOWER
    await node.restart()
    partition = node.partition()
    await partition.transactions.finish(transaction(1), LATER)
    assert batches_taken([partition], "spark/0") == {0: SessionBatch(7, START_MS, 0, 2)}
    await node.restart()
    assert batches_taken([node.partition()], "spark/0") == {0: SessionBatch(7, START_MS, 0, 2)}


async def test_finished_rows_have_the_commits_timestamp_and_their_weights() -> None:
    node = await Node().start()
    partition = await node.topic(table=table_that_keeps_facts(1))
    await write(partition, batch(b"before"))
    rows = [batch(b"a", b"b"), batch(b"c")]
    one = BatchesPart(Share(partition, rows, [[10, 20], None]), None, node.clock)
    one.prepares(head())
    await prepare(one)
    await node.restart()
    partition = node.partition()
    await partition.transactions.finish(transaction(1), LATER)
    facts = list(await partition.facts.read_stored(0, 4))
    assert [fact.timestamp == LATER for fact in facts] == [False, True, True, True]
    weights = [fact.cumulative_weight for fact in facts]
    assert [weights[1] - weights[0], weights[2] - weights[1]] == [10, 20]
    assert weights[3] - weights[2] == len(rows[1][0])


async def test_no_reservation_of_timestamps_is_needed_to_finish() -> None:
    node = await Node().start()
    partition = await node.topic(table=table_that_keeps_facts(1))
    await held(node, partition, b"a")
    rule = node.topics.share.timestamps.rule
    rule.reserved = rule.last + 1
    node.engine.faults.refuse_next(after=1)
    await partition.transactions.finish(transaction(1), LATER)
    assert await values(partition) == [b"a"]


@pytest.mark.parametrize("state", ["inactive", "full", "weight", "disk", "frozen", "unmounted", "old"])
async def test_committed_rows_pass_what_refuses_others(state: str) -> None:
    node, partition = await alone()
    await write(partition, batch(b"before"))
    await held(node, partition, b"a", b"b")
    settings = partition.state.settings
    config = settings.topic
    changed = {
        "inactive": replace(settings, topic=replace(config, pq_inactive_partitions=("0",))),
        "full": replace(settings, topic=replace(config, pq_max_count_in_partition=1, pq_max_size_in_partition=1)),
        "weight": replace(settings, weight_max=1),
        "frozen": replace(settings, closed={0: Closed.WRITES}),
        "unmounted": replace(settings, closed={0: Closed.EVERYTHING}),
        "old": replace(settings, topic=replace(config, message_timestamp_before_max_ms=1)),
    }
    node.now_ms += MIB
    partition.configure(changed.get(state, settings))
    if state == "disk":
        node.engine.tell_colour(Colour.YELLOW_STOP)
    waiting = partition.write(*batch(b"later"))
    await partition.transactions.finish(transaction(1), LATER)
    assert isinstance(await refused(waiting), KafkaError)
    partition.configure(settings)
    assert await values(partition) == [b"before", b"a", b"b"]


async def test_rows_for_which_the_store_has_no_room_stay_prepared() -> None:
    node, partition = await alone()
    await held(node, partition, b"a", b"x" * 5000)
    waiting = partition.write(*batch(b"later"))
    node.engine.faults.fill()
    assert isinstance(await refused(partition.transactions.finish(transaction(1), LATER)), CommitRefused)
    error = await refused(waiting)
    assert isinstance(error, KafkaError)
    assert error.code == ErrorCode.NOT_LEADER_OR_FOLLOWER, "it may take long"
    assert partition.transactions.prepared == {transaction(1): head()}
    assert isinstance(await refused(partition.write(*batch(b"later"))), KafkaError)
    assert await values(partition) == []
    node.engine.faults.make_room()
    await partition.transactions.finish(transaction(1), LATER)
    await write(partition, batch(b"later"))
    assert await values(partition) == [b"a", b"x" * 5000, b"later"]
    await check_store(node, partition)


async def test_an_abort_that_is_refused_is_repeated() -> None:
    node, partition = await alone()
    await held(node, partition, b"a")
    node.engine.faults.refuse_next()
    assert isinstance(await refused(partition.transactions.finish(transaction(1), None)), CommitRefused)
    await partition.transactions.finish(transaction(1), None)
    await write(partition, batch(b"later"))
    assert await values(partition) == [b"later"]


@pytest.mark.parametrize("stored", [False, True])
@pytest.mark.parametrize("step", ["prepare", "finish", "abort"])
async def test_a_cell_that_is_lost_leaves_all_or_nothing(step: str, stored: bool) -> None:
    node, partition = await alone()
    await write(partition, batch(b"before"))
    one = part(partition, node.clock, b"a", b"b", prepared=head())
    await hold(one)
    if step == "prepare":
        node.engine.faults.lose_next(stored=stored)
        error = await refused(send([one], None))
    else:
        await send([one], None)
        node.engine.faults.lose_next(stored=stored)
        error = await refused(partition.transactions.finish(transaction(1), LATER if step == "finish" else None))
    assert isinstance(error, KafkaError)
    assert error.code == ErrorCode.NOT_LEADER_OR_FOLLOWER
    assert isinstance(await refused(partition.transactions.finish(transaction(1), LATER)), KafkaError)
    await node.restart()
    partition = node.partition()
    is_prepared = stored if step == "prepare" else not stored
    assert under_way(partition) == (transaction(1) if is_prepared else None)
    assert await values(partition) == [b"before", *([b"a", b"b"] if step == "finish" and stored else [])]
    await partition.transactions.finish(transaction(1), LATER)
    found = await values(partition)
    assert found == [b"before", *([b"a", b"b"] if is_prepared or step == "finish" else [])]


@pytest.mark.parametrize("prepared", [True, False])
async def test_a_prepare_that_is_refused_is_taken_back(prepared: bool) -> None:
    node, partition = await alone()
    one = part(partition, node.clock, b"a", prepared=head() if prepared else None)
    await hold(one)
    waiting = partition.write(*batch(b"later"))
    node.engine.faults.refuse_next()
    assert isinstance(await refused(send([one], None if prepared else LATER)), KafkaError)
    await waiting
    assert await values(partition) == [b"later"]
    assert under_way(partition) is None


async def test_a_part_that_leaves_has_no_trace_and_others_continue() -> None:
    node, partition = await alone()
    holding, behind = (part(partition, node.clock, b"a", prepared=known) for known in (None, head()))
    await hold(holding)
    behind.enter(lambda error: pytest.fail(f"it has left: {error}"))
    waiting = partition.write(*batch(b"later"))
    await turns_pass()
    assert not waiting.done()
    for one in (behind, behind, holding, holding):
        one.leave()
    await waiting
    assert await values(partition) == [b"later"]
    await check_store(node, partition)


@pytest.mark.parametrize("end", ["left", "held"])
async def test_a_part_that_ends_while_its_batch_is_stored_in_parts_does_not_hold(end: str) -> None:
    node, partition = await alone()
    one = BatchesPart(Share(partition, [batch(size=20 * MIB)]), None, node.clock)
    turns: list[BaseException | None] = []
    one.enter(turns.append)
    await until(lambda: partition.state.is_writing)
    if end == "left":
        one.leave()
        await write(partition, batch(b"later"))
        assert turns == []
        assert await values(partition) == [b"later"]
        await check_store(node, partition)
    else:
        await asyncio.wait_for(partition.hold(), TIMEOUT_S)
        (error,) = turns
        assert isinstance(error, KafkaError)
        assert error.code == ErrorCode.NOT_LEADER_OR_FOLLOWER
    assert not partition.state.is_writing


@pytest.mark.parametrize("prepared", [True, False])
async def test_what_would_refuse_a_write_refuses_a_part_in_its_turn(prepared: bool) -> None:
    node, partition = await alone({"pq.inactive.partitions": "0"})
    error = await refused(hold(part(partition, node.clock, b"a", prepared=head() if prepared else None)))
    assert isinstance(error, KafkaError)
    assert error.code == ErrorCode.POLICY_VIOLATION
    assert not partition.state.is_writing
    node, partition = await alone({"pq.max.size.in.partition": "100"})
    error = await refused(hold(part(partition, node.clock, b"a" * 99, b"b", prepared=head() if prepared else None)))
    assert "pq.max.size.in.partition" in str(error)
    assert not partition.state.is_writing
    await write(partition, batch(b"later"))
    assert await values(partition) == [b"later"]
    await check_store(node, partition)
    node.engine.tell_colour(Colour.YELLOW_STOP)
    assert "full" in str(await refused(hold(part(partition, node.clock, b"a"))))
    partition.stop()
    error = await refused(hold(part(partition, node.clock, b"a")))
    assert isinstance(error, KafkaError)
    assert error.code == ErrorCode.NOT_LEADER_OR_FOLLOWER


async def test_what_comes_after_the_turn_is_said_by_the_refusal() -> None:
    node, partition = await alone()
    one = part(partition, node.clock, b"a")
    await hold(one)
    assert one.refusal() is None
    settings = partition.state.settings
    partition.configure(replace(settings, closed={0: Closed.WRITES}))
    assert "unfreeze" in str(one.refusal())
    partition.configure(replace(settings, topic=replace(settings.topic, pq_inactive_partitions=("0",))))
    assert "inactive" in str(one.refusal())
    partition.configure(replace(settings, topic=replace(settings.topic, pq_max_count_in_partition=0)))
    assert "pq.max.count.in.partition" in str(one.refusal())
    partition.configure(settings)
    node.engine.tell_colour(Colour.YELLOW_STOP)
    assert "full" in str(one.refusal())
    node.engine.tell_colour(None)
    await asyncio.wait_for(partition.hold(), TIMEOUT_S)
    refusal = one.refusal()
    assert isinstance(refusal, KafkaError)
    assert refusal.code == ErrorCode.NOT_LEADER_OR_FOLLOWER
    one.leave()
    assert not partition.state.is_writing


async def test_a_part_that_was_sent_is_waited_for() -> None:
    node, partition = await alone()
    one = part(partition, node.clock, b"a", prepared=head())
    await hold(one)
    node.engine.faults.hold()
    sent = asyncio.ensure_future(send([one], None))
    await turns_pass()
    holding = asyncio.ensure_future(partition.hold())
    await turns_pass()
    assert not holding.done()
    one.leave()
    node.engine.faults.release()
    await asyncio.wait_for(sent, TIMEOUT_S)
    await asyncio.wait_for(holding, TIMEOUT_S)
    assert partition.transactions.prepared == {transaction(1): head()}


@pytest.mark.parametrize("end", ["restart", "stop"])
async def test_a_tablet_that_ends_while_rows_wait_leaves_them_to_the_next_instance(end: str) -> None:
    node, partition = await alone()
    await held(node, partition, b"a")
    waiting = partition.write(*batch(b"later"))
    (tablet_id,) = node.topics.get("t").tablets  # type: ignore[union-attr]
    if end == "restart":
        await asyncio.wait_for(node.host.restart(tablet_id), TIMEOUT_S)
    else:
        finishing = partition.transactions.finish(transaction(1), LATER)
        partition.stop()
        error = await refused(finishing)
        assert isinstance(error, KafkaError)
        assert error.code == ErrorCode.NOT_LEADER_OR_FOLLOWER
    assert isinstance(await refused(waiting), KafkaError)
    if end == "stop":
        await node.restart()
    partition = node.partition()
    assert partition.transactions.is_in_doubt
    await partition.transactions.finish(transaction(1), LATER)
    assert await values(partition) == [b"a"]


async def test_a_hold_while_rows_wait_for_their_decision_does_not_wait() -> None:
    node, partition = await alone()
    await held(node, partition, b"a")
    finishing = partition.transactions.finish(transaction(1), LATER)
    await asyncio.wait_for(partition.hold(), TIMEOUT_S)
    assert isinstance(await refused(finishing), KafkaError)
    assert isinstance(await refused(partition.transactions.finish(transaction(1), LATER)), KafkaError)
    await turns_pass()
    assert await values(partition) == []


async def test_a_hold_waits_for_a_finish_that_is_on_its_way() -> None:
    node, partition = await alone()
    await held(node, partition, b"a")
    node.engine.faults.hold()
    finishing = partition.transactions.finish(transaction(1), LATER)
    await turns_pass()
    assert partition.state.is_writing
    holding = asyncio.ensure_future(partition.hold())
    await turns_pass()
    node.engine.faults.release()
    await asyncio.wait_for(holding, TIMEOUT_S)
    await finishing
    assert under_way(partition) is None


@pytest.mark.parametrize("prepared", [True, False])
async def test_batches_in_parts_are_transacted_too(prepared: bool) -> None:
    node, partition = await alone()
    one = BatchesPart(Share(partition, [batch(size=20 * MIB), batch(b"b")]), None, node.clock)
    if prepared:
        one.prepares(head())
        await prepare(one)
        await node.restart()
        partition = node.partition()
        await partition.transactions.finish(transaction(1), LATER)
    else:
        await hold(one)
        await send([one], LATER)
    assert len(await values(partition)) == 2
    await node.restart()
    assert len(await values(node.partition())) == 2
    await check_store(node, node.partition())


async def test_the_head_is_loaded_where_finished_rows_are_put_behind_it() -> None:
    node, partition = await alone({"pq.low.watermark.bytes": "3800"})
    for _ in range(3):
        await write(partition, batch(size=1000))
    await held(node, partition, b"a" * 800)
    await node.restart()
    partition = node.partition()
    assert not partition.state.head.is_warm
    await partition.transactions.finish(transaction(1), LATER)
    assert len(await values(partition)) == 4


async def test_prepared_rows_that_are_unreadable_stay(monkeypatch: pytest.MonkeyPatch) -> None:
    node, partition = await alone()
    await held(node, partition, b"a" * 5000)
    with monkeypatch.context() as patch:
        patch.setattr(MemoryShard, "read", damaged_read)
        error = await refused(partition.transactions.finish(transaction(1), LATER))
    assert f"rows of transaction {transaction(1).hex()} cannot be read" in str(error)
    assert partition.transactions.is_in_doubt
    await partition.transactions.finish(transaction(1), LATER)
    assert await values(partition) == [b"a" * 5000]


@pytest.mark.parametrize("reads_first", [True, False])
async def test_a_damaged_head_becomes_a_body_while_the_partition_is_in_doubt(
    reads_first: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    node, partition = await alone({"pq.low.watermark.bytes": "3800"})
    await write(partition, *[batch(size=1000) for _ in range(3)])
    before = await values(partition)
    await held(node, partition, b"a" * 800)
    await node.restart()
    partition = node.partition()
    finishing = None if reads_first else partition.transactions.finish(transaction(1), LATER)
    with monkeypatch.context() as patch:
        patch.setattr(MemoryShard, "read", damaged_read)
        if finishing is None:
            with pytest.raises((KafkaError, BlobCorrupt)):
                await asyncio.wait_for(values(partition), TIMEOUT_S)
        else:
            await finishing
    assert partition.state.bodies.offsets[0] == 0
    if finishing is None:
        assert await values(partition) == before
        assert partition.transactions.is_in_doubt
        await partition.transactions.finish(transaction(1), LATER)
    assert await values(partition) == [*before, b"a" * 800]


async def test_a_head_that_is_not_read_leaves_the_rows_prepared(monkeypatch: pytest.MonkeyPatch) -> None:
    node, partition = await alone({"pq.low.watermark.bytes": "3800"})
    await write(partition, *[batch(size=1000) for _ in range(3)])
    before = await values(partition)
    await held(node, partition, b"a" * 800)
    await node.restart()
    partition = node.partition()
    with monkeypatch.context() as patch:

        async def fails(shard: MemoryShard, ranges: object) -> None:
            raise OSError("no file descriptor is left")

        patch.setattr(MemoryShard, "read", fails)
        assert "no file descriptor" in str(await refused(partition.transactions.finish(transaction(1), LATER)))
    await partition.transactions.finish(transaction(1), LATER)
    assert await values(partition) == [*before, b"a" * 800]


async def damaged_read(shard: MemoryShard, ranges: Sequence[tuple[BlobKey, int, int]]) -> None:
    raise BlobCorrupt(ranges[0][0], 0, "a test")


async def test_decisions_are_kept_replaced_and_dropped() -> None:
    node, partition = await alone()
    known = partition.transactions
    other = known.participant_id._replace(partition=5)
    first, second = decision(1, LATER, [other]), decision(2, LATER + 1)
    await known.kv.execute([known.decision_command(first), known.decision_command(second)])
    known.take_decision(first)
    known.take_decision(second)
    assert under_way(partition) == first.transaction
    await node.restart()
    partition = node.partition()
    known = partition.transactions
    assert known.decisions == {first.transaction: first, second.transaction: second}
    assert not known.is_in_doubt
    assert "1 of its tablets" in known.why_held
    await known.kv.execute([known.decision_command(first.finished)])
    known.take_decision(first.finished)
    assert under_way(partition) is None
    await write(partition, batch(b"a"))
    node.engine.faults.refuse_next()
    assert isinstance(await refused(known.drop_decisions([first.transaction])), CommitRefused)
    assert first.transaction in known.decisions
    await known.drop_decisions([first.transaction, second.transaction])
    assert known.decisions == {}
    await node.restart()
    assert node.partition().known_transactions is None


async def test_a_change_waits_for_transactions_for_a_while(monkeypatch: pytest.MonkeyPatch) -> None:
    node, partition = await alone()
    assert await await_transactions([partition]) is None
    await held(node, partition, b"a")
    with monkeypatch.context() as patch:
        patch.setattr(transacted_batches, "WAIT_S", 0.001)
        told = await await_transactions([partition])
    assert told is not None
    assert f"partition 0: rows of transaction {transaction(1).hex()}" in told
    waiting = asyncio.ensure_future(await_transactions([partition]))
    await turns_pass()
    await partition.transactions.finish(transaction(1), LATER)
    assert await asyncio.wait_for(waiting, TIMEOUT_S) is None


def row(key: bytes, value: bytes) -> Command:
    return Write(key, (value,), len(value), INLINE)


@pytest.mark.parametrize("damage", ["cut", "flipped", "another", "two", "decision", "its key"])
async def test_damaged_rows_of_transactions_refuse_the_partition_alone(damage: str) -> None:
    node = await Node().start()
    await node.topic(partitions=2)
    partition = node.partition()
    await write(partition, batch(b"before"))
    await held(node, partition, b"a")
    kv, key = partition.transactions.kv, prepared_key(0, transaction(1))
    entry = kv.entry(key)
    assert entry is not None
    value, decided = bytes(entry.value), decision(3, LATER)
    flipped = value[:-1] + bytes((value[-1] ^ 1,))
    rows = {
        "cut": row(key, value[:-1]), "flipped": row(key, flipped),
        "another": row(key, head(2).encode() + value[48:]),
        "two": row(prepared_key(0, transaction(2)), head(2).encode() + value[48:]),
        "decision": row(outcome_key(0, decided.transaction), b"PQD2" + decided.encode()[4:]),
        "its key": row(outcome_key(0, transaction(4)), decided.encode()),
    }  # fmt: skip
    await kv.execute([rows[damage]])
    await node.restart()
    assert node.partition().state.unreadable is not None
    assert isinstance(await refused(node.partition().write(*batch(b"x"))), KafkaError)
    await write(node.partition(index=1), batch(b"x"))
