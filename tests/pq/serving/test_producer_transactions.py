"""Kafka's transactions of producers in one partition: markers, the last stable offset, what restarts and trims keep."""

import asyncio
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pqbroker.pq.log.partition_settings import Closed
from pqbroker.pq.log.producer_transactions import AbortedBatches, AbortedSpan, AbortedSpans, aborted_between
from pqbroker.pq.reading.query import READ_COMMITTED, READ_UNCOMMITTED, visible_end
from pqbroker.pq.serving.end_markers import MARKERS_AT_ONCE
from pqbroker.pq.serving.offsets import nobody_knows
from pqbroker.pq.serving.partition_server import PartitionServer
from pqbroker.protocol.errors import ErrorCode, KafkaError
from pqbroker.protocol.records import CONTROL, TRANSACTIONAL, batches, decode_records
from pqbroker.storage.pool_status import Colour
from tests.pq.rig import DAY_MS, Node, batch, read, table_that_keeps_facts, transactional
from tests.support.cpu_time import least_s

pytestmark = pytest.mark.spec("4.40")

P, Q = 7, 8


async def started(**config: str) -> tuple[Node, PartitionServer]:
    node = await Node().start()
    return node, await node.topic(config={name.replace("_", "."): value for name, value in config.items()})


def stable(server: PartitionServer) -> int:
    return visible_end(server.state, READ_COMMITTED)


async def spans(server: PartitionServer) -> list[tuple[int, int, int]]:
    aborted = server.state.transactions.aborted
    found = [] if aborted is None else aborted.between(0, server.end_offset)
    return [(each.producer_id, each.first_offset, each.marker_offset) for each in found]


async def test_the_last_stable_offset_stays_before_the_first_open_transaction() -> None:
    node, server = await started()
    await server.write(*batch(b"plain"))
    assert stable(server) == 1
    await server.write(*transactional(b"a", producer=(P, 0, 0)))
    await server.write(*transactional(b"b", producer=(Q, 0, 0)))
    await server.write(*batch(b"plain"))
    assert (stable(server), visible_end(server.state, READ_UNCOMMITTED)) == (1, 4)
    assert await server.end_transaction(P, 0, 0, is_commit=True) == 4
    assert stable(server) == 2
    assert await server.end_transaction(Q, 0, 0, is_commit=False) == 5
    assert stable(server) == server.end_offset == 6
    assert await spans(server) == [(Q, 2, 5)]
    await node.stop()


async def test_spans_know_the_last_stable_offset_behind_them() -> None:
    node, server = await started()
    for number, producer in enumerate((P, Q, 9)):
        await server.write(*transactional(b"%d" % number, producer=(producer, 0, 0)))
    for producer in (Q, P, 9):
        await server.end_transaction(producer, 0, 0, is_commit=False)
    found = server.state.transactions.aborted_between(0, 9)
    assert {span.producer_id: span.stable_offset for span in found} == {Q: 0, P: 2, 9: 6}
    await node.stop()


@given(st.lists(st.tuples(st.integers(1, 4), st.booleans()), max_size=60), st.data())
def test_the_spans_of_a_range_are_those_that_have_records_there(
    steps: list[tuple[int, bool]], data: st.DataObject
) -> None:
    """Each step is an offset: a record of a producer's transaction, or its marker, which aborts."""
    spans, opened = AbortedSpans(), dict[int, int]()
    every: list[AbortedSpan] = []
    for offset, (producer, is_marker) in enumerate(steps):
        if not is_marker:
            opened.setdefault(producer, offset)
        elif producer in opened:
            first_offset = opened.pop(producer)
            every.append(AbortedSpan(offset, producer, first_offset, min(opened.values(), default=offset + 1)))
            spans.append(every[-1])
    begin = data.draw(st.integers(0, 60))
    end = data.draw(st.integers(begin, 61))
    expected = [span for span in every if span.marker_offset >= begin and span.first_offset < end]
    assert spans.between(begin, end) == sorted(expected, key=lambda span: span.first_offset)
    assert spans.has_between(begin, end) is bool(expected)
    most = data.draw(st.integers(1, 5))
    cut = spans.end_of(begin, end, most)
    ended = [span.marker_offset for span in every if begin <= span.marker_offset < end]
    assert cut == (ended[most] if len(ended) > most else end)
    dropped = [span.marker_offset for span in every if data.draw(st.booleans())]
    assert spans.among([*dropped, 99]) == dropped
    trimmed = data.draw(st.integers(0, 60))
    for fewer, is_kept in (
        (spans.without(dropped), lambda span: span.marker_offset not in dropped),
        (spans.since(trimmed), lambda span: span.marker_offset >= trimmed),
    ):  # fmt: skip
        kept = sorted(filter(is_kept, expected), key=lambda span: span.first_offset)
        assert aborted_between(fewer, begin, end) == kept
        assert not every or (fewer is None) == (not any(map(is_kept, every)))
        assert spans.between(begin, end) == sorted(expected, key=lambda span: span.first_offset), "a reader has these"


def test_many_aborted_transactions_behind_one_that_was_open_long_are_searched_in_a_turn() -> None:
    """A transaction at offset 0 ends last, so that the search has to look at each of 100 000 others."""
    spans = AbortedSpans(AbortedSpan(2 + 2 * number, Q, 1 + 2 * number, 0) for number in range(100_000))
    spans.append(AbortedSpan(200_002, P, 0, 200_003))

    def search() -> None:
        assert [span.producer_id for span in spans.between(0, 1)] == [P]
        assert spans.has_between(0, 1)

    assert least_s(search, 0.02) < 0.02


async def test_a_marker_is_kafkas_control_batch() -> None:
    node, server = await started()
    await server.write(*transactional(b"a", producer=(P, 3, 0)))
    await server.end_transaction(P, 3, 9, is_commit=False)
    await server.end_transaction(P, 4, 9, is_commit=True)
    data = b"".join((await read(server, 1, 1000)).in_memory())
    found = [(header, list(decode_records(data[at : at + header.size_bytes]))) for at, header in batches(data)]
    assert [(header.attributes, header.producer_id, header.producer_epoch) for header, _ in found] == [
        (0x30, P, 3), (0x30, P, 4),
    ]  # fmt: skip
    assert {header.base_sequence for header, _ in found} == {-1}
    shown = [(record.key, record.value) for _, (record,) in found]
    assert shown == [(bytes([0, 0, 0, 0]), bytes([0, 0, 0, 0, 0, 9])), (bytes([0, 0, 0, 1]), bytes([0, 0, 0, 0, 0, 9]))]
    await node.stop()


async def test_markers_that_come_together_share_a_cycle() -> None:
    node, server = await started()
    for number, producer in enumerate((P, Q, 9)):
        await server.write(*transactional(b"%d" % number, producer=(producer, 1, 0)))
    node.engine.faults.hold()
    first = server.end_transaction(P, 1, 0, is_commit=False)
    await asyncio.sleep(0)  # a cycle is planned at the end of the turn
    cycles = server.writer.counters.cycles
    others = [server.end_transaction(Q, epoch, 0, is_commit=False) for epoch in (1, 0, 1)]
    others += [server.end_transaction(9, 1, 0, is_commit=False) for _ in range(MARKERS_AT_ONCE)]
    node.engine.faults.release()
    assert await first == 3
    assert [await others[0], await others[2], await others[-1]] == [4, 5, 5 + MARKERS_AT_ONCE]
    with pytest.raises(KafkaError, match="INVALID_PRODUCER_EPOCH"):
        await others[1]
    assert server.writer.counters.cycles - cycles == 3
    assert await spans(server) == [(P, 0, 3), (Q, 1, 4), (9, 2, 6)]
    await node.restart()
    assert await spans(node.partition()) == [(P, 0, 3), (Q, 1, 4), (9, 2, 6)]
    await node.stop()


async def test_markers_that_wait_for_a_lost_cell_are_refused() -> None:
    node, server = await started()
    node.engine.faults.lose_next(stored=False)
    markers = [server.end_transaction(P, 0, 0, is_commit=True) for _ in range(MARKERS_AT_ONCE + 3)]
    for marker in [*markers, server.end_transaction(Q, 0, 0, is_commit=True)]:
        with pytest.raises(KafkaError, match="NOT_LEADER"):
            await marker
    with pytest.raises(KafkaError, match="NOT_LEADER"):
        await server.end_transaction(P, 0, 0, is_commit=True)
    await node.restart()
    await node.stop()


async def test_open_and_aborted_transactions_survive_a_restart() -> None:
    node, server = await started()
    await server.write(*transactional(b"a", producer=(P, 0, 0)))
    await server.end_transaction(P, 0, 5, is_commit=False)
    node.now_ms += 77
    await server.write(*transactional(b"b", producer=(P, 0, 1)))
    await node.restart()
    server = node.partition()
    assert stable(server) == 2
    assert server.state.transactions.open == {P: 2}
    assert await spans(server) == [(P, 0, 1)]
    state = server.state.producers.producers[P].transactional
    assert state is not None
    assert (state.coordinator_epoch, state.open_offset, state.open_ms) == (5, 2, node.now_ms)
    await server.end_transaction(P, 0, 5, is_commit=True)
    assert stable(server) == 4
    await node.stop()


async def test_a_marker_of_a_newer_epoch_fences_older_ones_without_a_batch() -> None:
    node, server = await started()
    await server.end_transaction(P, 5, 0, is_commit=False)
    await node.restart()
    server = node.partition()
    with pytest.raises(KafkaError, match="INVALID_PRODUCER_EPOCH"):
        await server.write(*transactional(b"a", producer=(P, 4, 0)))
    with pytest.raises(KafkaError, match="OUT_OF_ORDER"):
        await server.write(*transactional(b"a", producer=(P, 5, 3)))
    await server.write(*transactional(b"a", producer=(P, 5, 0)))
    await server.write(*transactional(b"b", producer=(P, 5, 1)))
    assert (await server.write(*transactional(b"a", producer=(P, 5, 0)))).base_offset == 1
    await node.stop()


async def test_sequences_continue_behind_a_marker_of_the_same_epoch() -> None:
    node, server = await started()
    await server.write(*transactional(b"a", producer=(P, 0, 0)))
    await server.end_transaction(P, 0, 0, is_commit=True)
    await server.write(*transactional(b"b", producer=(P, 0, 1)))
    assert server.state.transactions.open == {P: 2}
    await node.stop()


@pytest.mark.parametrize(
    ("epoch", "coordinator_epoch", "code"),
    [(2, 4, ErrorCode.INVALID_PRODUCER_EPOCH), (3, 3, ErrorCode.TRANSACTION_COORDINATOR_FENCED)],
)
async def test_markers_of_older_epochs_are_refused(epoch: int, coordinator_epoch: int, code: ErrorCode) -> None:
    node, server = await started()
    await server.write(*transactional(b"a", producer=(P, 3, 0)))
    await server.end_transaction(P, 3, 4, is_commit=True)
    end_offset = server.end_offset
    with pytest.raises(KafkaError) as refused:
        await server.end_transaction(P, epoch, coordinator_epoch, is_commit=True)
    assert refused.value.code is code
    assert server.end_offset == end_offset
    await server.end_transaction(P, 3, 4, is_commit=True)
    await node.stop()


async def test_a_plain_batch_of_a_producer_with_an_open_transaction_is_refused() -> None:
    node, server = await started()
    await server.write(*transactional(b"a", producer=(P, 0, 0)))
    with pytest.raises(KafkaError, match="INVALID_TXN_STATE"):
        await server.write(*batch(b"b", producer=(P, 0, 1)))
    await server.write(*batch(b"b", producer=(Q, 0, 0)))
    await node.stop()


async def test_a_producer_with_an_open_transaction_is_never_forgotten() -> None:
    node, server = await started(pq_producer_ids_max="2")
    await server.write(*transactional(b"a", producer=(P, 0, 0)))
    await server.write(*transactional(b"b", producer=(Q, 0, 0)))
    await server.end_transaction(Q, 0, 0, is_commit=True)
    for other in (20, 21, 22):
        await server.write(*batch(b"c", producer=(other, 0, 0)))
    await server.retention.delete_before(server.end_offset)
    node.now_ms += 40 * DAY_MS
    await node.topics.retain(nobody_knows)
    assert set(server.state.producers.producers) == {P}
    await server.write(*transactional(b"d", producer=(P, 0, 1)))
    await node.stop()


async def test_more_open_transactions_than_producers_are_kept_are_refused() -> None:
    node, server = await started(pq_producer_ids_max="1")
    one = server.write(*transactional(b"a", producer=(P, 0, 0)))
    other = server.write(*transactional(b"b", producer=(Q, 0, 0)))
    await one
    with pytest.raises(KafkaError, match="POLICY_VIOLATION: 1 producers have open transactions in partition 0"):
        await other
    await server.write(*transactional(b"c", producer=(P, 0, 1)))
    await server.end_transaction(P, 0, 0, is_commit=True)
    await server.write(*transactional(b"b", producer=(Q, 0, 0)))
    await node.stop()


async def test_markers_pass_limits() -> None:
    node, server = await started(pq_max_count_in_partition="1")
    await server.write(*transactional(b"a", producer=(P, 0, 0)))
    with pytest.raises(KafkaError, match="POLICY_VIOLATION"):
        await server.write(*batch(b"full"))
    assert await server.end_transaction(P, 0, 0, is_commit=False) == 1
    await node.stop()


async def test_markers_pass_a_full_disk() -> None:
    node, server = await started()
    await server.write(*transactional(b"a", producer=(P, 0, 0)))
    node.engine.tell_colour(Colour.YELLOW_STOP)
    with pytest.raises(KafkaError, match="STORAGE"):
        await server.write(*batch(b"full"))
    assert await server.end_transaction(P, 0, 0, is_commit=False) == 1
    await node.stop()


@pytest.mark.parametrize("closed", list(Closed))
async def test_markers_pass_mount_states(closed: Closed) -> None:
    node, server = await started()
    await server.write(*transactional(b"a", producer=(P, 0, 0)))
    server.configure(replace(server.state.settings, closed={0: closed}))
    with pytest.raises(KafkaError):
        await server.write(*batch(b"closed"))
    assert await server.end_transaction(P, 0, 0, is_commit=False) == 1
    await node.stop()


async def test_a_partition_that_keeps_facts_takes_markers() -> None:
    node = await Node().start()
    config = {"pq.partitions.per.tablet": "1"}
    server = await node.topic(table=table_that_keeps_facts(1), config=config)
    await server.write(*transactional(b"a", b"b", producer=(P, 0, 0)), [3, 4])
    await server.end_transaction(P, 0, 0, is_commit=True)
    await server.write(*batch(b"c"), [5])
    facts = list(await server.facts.read(0, server.end_offset))
    assert [fact.row_index for fact in facts] == [0, 1, 2, 3]
    stamps = [fact.timestamp for fact in facts]
    assert stamps == sorted(stamps)
    assert server.state.settings.keeps_facts
    await node.stop()


async def test_a_refused_marker_leaves_the_transaction_open() -> None:
    node, server = await started()
    await server.write(*transactional(b"a", producer=(P, 0, 0)))
    node.engine.faults.refuse_next()
    with pytest.raises(KafkaError, match="STORAGE"):
        await server.end_transaction(P, 0, 0, is_commit=False)
    assert (stable(server), server.end_offset) == (0, 1)
    assert await server.end_transaction(P, 0, 0, is_commit=False) == 1
    assert await spans(server) == [(P, 0, 1)]
    await node.stop()


async def test_a_trim_takes_spans_along_and_moves_the_last_stable_offset() -> None:
    node, server = await started()
    for number in range(3):
        await server.write(*transactional(b"a", producer=(P, 0, number)))
        await server.end_transaction(P, 0, 0, is_commit=False)
        await server.flush()
    await server.write(*transactional(b"a", b"b", producer=(Q, 0, 0)))
    await server.retention.delete_before(5)
    assert await spans(server) == [(P, 4, 5)]
    await node.restart()
    server = node.partition()
    assert await spans(server) == [(P, 4, 5)]
    await server.retention.delete_before(7)
    assert (stable(server), server.start_offset) == (7, 7)
    await node.restart()
    server = node.partition()
    assert (stable(server), server.start_offset, await spans(server)) == (7, 7, [])
    await node.stop()


def test_batches_of_aborted_transactions_are_told_from_others() -> None:
    aborted = AbortedBatches([(9, P, 4), (20, P, 15), (30, Q, 2)])
    cases = {(P, 4): True, (P, 8): True, (P, 10): False, (P, 15): True, (Q, 1): False, (Q, 3): True, (P, 21): False}
    for (producer_id, offset), is_aborted in cases.items():
        _, header = transactional(b"x", producer=(producer_id, 0, 0))
        assert aborted.has(header._replace(base_offset=offset)) is is_aborted
        assert not aborted.has(header._replace(base_offset=offset, attributes=0))
    _, header = transactional(b"x", producer=(P, 0, 0))
    assert not aborted.has(header._replace(base_offset=9, attributes=TRANSACTIONAL | CONTROL))


def test_a_stored_span_reads_back_and_others_are_refused() -> None:
    span = AbortedSpan(20, P, 15, 21)
    assert AbortedSpan.decode(20, span.encode()) == span
    for marker_offset, stored in ((15, span.encode()), (20, span.encode()[:-1]), (20, b"\x02" + span.encode()[1:])):
        with pytest.raises(ValueError, match=r"says of itself|bytes|version"):
            AbortedSpan.decode(marker_offset, stored)
