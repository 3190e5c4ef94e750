"""The write cycle as pure plan, apply and rollback (semantics A.5, A.11, A.12, K.1)."""

from dataclasses import replace

import pytest

from pqbroker.conf.topic import TopicConfig
from pqbroker.pq.log.blob_cycles import plan_batches
from pqbroker.pq.log.partition import Partition
from pqbroker.pq.log.trim_cycles import plan_retention, plan_trim
from pqbroker.pq.log.write_cycle import Cycle, Written
from pqbroker.protocol.errors import ErrorCode, KafkaError
from pqbroker.protocol.produced_batches import check_produced
from pqbroker.storage.kv.commands import Concat, DeleteRange, Piece, Write
from tests.pq.rig import (
    DAY_MS,
    KIB,
    MIB,
    START_MS,
    batch,
    check_crc,
    check_invariants,
    new_partition,
    partition_settings,
)


def store(partition: Partition, *sizes: int, now_ms: int = START_MS) -> Cycle:
    cycle = plan_batches(partition, [batch(size=size) for size in sizes], now_ms)
    partition.apply(cycle)
    check_invariants(partition)
    return cycle


def code_of(outcome: Written | KafkaError) -> ErrorCode:
    assert isinstance(outcome, KafkaError)
    return outcome.code


@pytest.mark.spec("A.1")
def test_offsets_are_dense_in_the_order_of_the_batches() -> None:
    partition = new_partition()
    cycle = plan_batches(partition, [batch(b"a", b"b"), batch(b"c"), batch(b"d", b"e", b"f")], START_MS)
    assert cycle.outcomes == [Written(0, -1, 0), Written(2, -1, 0), Written(3, -1, 0)]
    assert cycle.end_offset == 6


def test_the_end_offset_moves_when_the_cycle_is_durable_and_not_before() -> None:
    partition = new_partition()
    cycle = plan_batches(partition, [batch(b"a")], START_MS)
    assert partition.end_offset == 0
    partition.apply(cycle)
    assert partition.end_offset == 1


@pytest.mark.spec("G.7")
def test_batches_are_stamped_in_place_with_offset_and_generation() -> None:
    partition = new_partition()
    store(partition, 100)
    view, header = batch(b"a")
    plan_batches(partition, [(view, header)], START_MS)
    stamped = check_produced(view, 1 << 20)
    assert (stamped.base_offset, stamped.partition_leader_epoch) == (1, 1)


def test_a_cycle_is_one_write_of_one_key_besides_the_first_with_its_epoch() -> None:
    partition = new_partition()
    first = store(partition, 100)
    assert [type(command) for command in first.as_commands()] == [Write, Write]
    (command,) = store(partition, 100).as_commands()
    assert isinstance(command, Write)
    assert command.key == b"d0000000000_00000000000000000001_00000_0000000001_00000|"


def test_a_refused_cycle_leaves_everything_as_it_was() -> None:
    partition = new_partition()
    store(partition, 100)
    held = partition.head.size, list(partition.head.blobs), partition.head.run.end
    cycle = plan_batches(partition, [batch(b"a", producer=(5, 0, 0))], START_MS)
    partition.rollback(cycle)
    check_invariants(partition)
    assert (partition.head.size, partition.head.blobs, partition.head.run.end) == held
    assert (partition.end_offset, dict(partition.producers)) == (1, {})
    again = plan_batches(partition, [batch(b"a", producer=(5, 0, 0))], START_MS)
    assert again.outcomes == [Written(1, -1, 0)]


def test_levels_merge_by_copy_below_64_kib() -> None:
    partition = new_partition()
    store(partition, 1500)
    delete, write = store(partition, 1500).as_commands()
    assert isinstance(delete, DeleteRange)
    assert isinstance(write, Write)
    assert b"".join(write.buffers) == b"".join(partition.head.run.slices(0, partition.head.run.end))


@pytest.mark.spec("A.6")
def test_large_pieces_merge_by_reference_and_nothing_is_rewritten() -> None:
    partition = new_partition()
    store(partition, 100 * KIB)
    (concat,) = store(partition, 100 * KIB).as_commands()
    assert isinstance(concat, Concat)
    key, piece = concat.inputs
    assert key == b"d0000000000_00000000000000000000_00000_0000000001_00000|"
    assert isinstance(piece, Piece)
    assert 90 * KIB < piece.size < 110 * KIB
    assert partition.head.blobs[0].pieces == 2


def test_adjacent_small_blobs_are_copied_into_one_piece_between_references() -> None:
    partition = new_partition(replace(TopicConfig(), pq_low_watermark_bytes=300 * KIB))
    for size in (140 * KIB, 20 * KIB, 20 * KIB, 20 * KIB):
        store(partition, size)
    *deletes, concat = store(partition, 140 * KIB).as_commands()
    assert [type(command) for command in deletes] == [DeleteRange]
    assert isinstance(concat, Concat)
    assert [type(item) for item in concat.inputs] == [bytes, Piece]
    assert (len(partition.bodies), partition.head.blobs) == (1, [])


def test_copy_mode_never_refers() -> None:
    partition = new_partition(by_reference=False)
    for _ in range(100):
        cycle = store(partition, 100 * KIB)
        assert not any(isinstance(command, Concat) for command in cycle.as_commands())
    assert len(partition.bodies) == 1


@pytest.mark.spec("A.6", "K.1")
@pytest.mark.parametrize(
    ("size", "ratio", "peak_keys"), [(KIB, 3.46, 111), (64 * KIB, 2.48, 48), (200 * KIB, 1.49, 30), (MIB, 1.83, 5)]
)
def test_copy_mode_writes_what_the_oracle_table_says(size: int, ratio: float, peak_keys: int) -> None:
    partition = new_partition(by_reference=False)
    written = payload = peak = 0
    count = 12 * MIB // size
    for _ in range(count):
        view, header = batch(size=size)
        payload += len(view)
        cycle = plan_batches(partition, [(view, header)], START_MS)
        data = [item for item in cycle.as_commands() if isinstance(item, Write) and item.key[:1] == b"d"]
        written += sum(item.size for item in data) - sum(body.size - body.index.data_bytes for body in cycle.bodies)
        partition.apply(cycle)
        peak = max(peak, len(partition.head.blobs))
    check_invariants(partition)
    assert payload == count * size
    assert written / payload == pytest.approx(ratio, abs=0.006)
    assert peak == peak_keys


def test_fifteen_mib_become_two_bodies_that_are_written_once() -> None:
    partition = new_partition()
    cycle = store(partition, *[MIB] * 15)
    assert [round(body.size / MIB) for body in cycle.bodies] == [8, 7]
    assert partition.head.blobs == []


@pytest.mark.spec("G.2")
def test_seven_mib_in_one_cycle_are_one_body_and_no_head() -> None:
    partition = new_partition()
    store(partition, *[MIB] * 7)
    assert (list(partition.bodies.spans()), partition.head.blobs) == ([(0, 7)], [])


def test_a_batch_larger_than_a_blob_is_a_body_of_its_own() -> None:
    partition = new_partition()
    store(partition, KIB)
    cycle = store(partition, 9 * MIB)
    assert [round(body.size / MIB) for body in cycle.bodies] == [0, 9]


def test_a_duplicate_in_the_cycle_being_formed_is_answered_with_it() -> None:
    partition = new_partition()
    cycle = plan_batches(partition, [batch(b"a", producer=(5, 0, 0)), batch(b"a", producer=(5, 0, 0))], START_MS)
    assert cycle.outcomes == [Written(0, -1, 0), Written(0, -1, 0)]
    assert cycle.end_offset == 1


def test_a_durable_duplicate_needs_no_store() -> None:
    partition = new_partition()
    partition.apply(plan_batches(partition, [batch(b"a", producer=(5, 0, 0))], START_MS))
    cycle = plan_batches(partition, [batch(b"a", producer=(5, 0, 0))], START_MS)
    assert (cycle.is_empty, cycle.outcomes) == (True, [Written(0, -1, 0)])


def test_a_refused_batch_does_not_hinder_those_around_it() -> None:
    partition = new_partition()
    batches = [batch(b"a", producer=(5, 0, 0)), batch(b"b", producer=(5, 0, 9)), batch(b"c", producer=(5, 0, 1))]
    first, second, third = plan_batches(partition, batches, START_MS).outcomes
    assert code_of(second) is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    assert (first, third) == (Written(0, -1, 0), Written(1, -1, 0))


def test_without_a_producer_id_the_same_batch_is_stored_twice() -> None:
    partition = new_partition()
    assert plan_batches(partition, [batch(b"a"), batch(b"a")], START_MS).end_offset == 2


def test_log_append_time_is_stamped_and_answered() -> None:
    partition = new_partition(replace(TopicConfig(), message_timestamp_type="LogAppendTime"))
    view, header = batch(b"a", timestamps=[5])
    assert plan_batches(partition, [(view, header)], START_MS).outcomes == [Written(0, START_MS, 0)]
    stamped = check_crc(view)
    assert (stamped.max_timestamp, stamped.is_log_append_time) == (START_MS, True)


@pytest.mark.parametrize("timestamp", [START_MS - 2000, START_MS + 2000])
def test_timestamps_outside_the_limits_are_refused(timestamp: int) -> None:
    config = replace(TopicConfig(), message_timestamp_before_max_ms=1000, message_timestamp_after_max_ms=1000)
    partition = new_partition(config)
    (outcome,) = plan_batches(partition, [batch(b"a", timestamps=[timestamp])], START_MS).outcomes
    assert code_of(outcome) is ErrorCode.INVALID_TIMESTAMP


def test_records_without_a_timestamp_are_taken() -> None:
    config = replace(TopicConfig(), message_timestamp_before_max_ms=1000)
    partition = new_partition(config)
    assert plan_batches(partition, [batch(b"a", timestamps=[-1])], START_MS).outcomes == [Written(0, -1, 0)]


def test_a_partition_full_of_records_refuses_until_some_are_deleted() -> None:
    partition = new_partition(replace(TopicConfig(), pq_max_count_in_partition=10))
    cycle = plan_batches(partition, [batch(b"a") for _ in range(11)], START_MS)
    assert code_of(cycle.outcomes[10]) is ErrorCode.POLICY_VIOLATION
    partition.apply(cycle)
    partition.apply(plan_trim(partition, 3, START_MS))
    assert plan_batches(partition, [batch(b"a")], START_MS).outcomes == [Written(10, -1, 3)]


@pytest.mark.spec("A.12.1", "G.2", "G.5", "H9")
def test_a_partition_full_of_bytes_refuses() -> None:
    partition = new_partition(replace(TopicConfig(), pq_max_size_in_partition=1000))
    cycle = plan_batches(partition, [batch(size=600) for _ in range(3)], START_MS)
    assert [isinstance(outcome, Written) for outcome in cycle.outcomes] == [True, True, False]


def test_trimming_moves_the_start_inside_a_blob_and_deletes_whole_ones() -> None:
    partition = new_partition()
    for _ in range(14):
        store(partition, MIB)
    assert [end for _, end in partition.bodies.spans()] == [6, 12]
    partition.apply(plan_trim(partition, 8, START_MS))
    check_invariants(partition)
    assert (partition.start_offset, [end for _, end in partition.bodies.spans()]) == (8, [12])
    partition.apply(plan_trim(partition, 13, START_MS))
    check_invariants(partition)
    assert (partition.start_offset, len(partition.bodies), partition.head.blobs[0].offset) == (13, 0, 13)
    partition.apply(plan_trim(partition, 14, START_MS))
    check_invariants(partition)
    assert (partition.start_offset, partition.size_bytes) == (14, 0)


def retain(partition: Partition, now_ms: int) -> None:
    cycle = plan_retention(partition, now_ms, {})
    if not cycle.is_empty:
        partition.apply(cycle)
    check_invariants(partition)


def test_retention_by_time_takes_whole_old_bodies() -> None:
    partition = new_partition(replace(TopicConfig(), retention_ms=1000))
    for number in range(14):
        store(partition, MIB, now_ms=START_MS + 100 * number)
    retain(partition, START_MS + 1499)
    assert partition.start_offset == 0
    retain(partition, START_MS + 1500)
    assert partition.start_offset == 6


@pytest.mark.spec("H8", "K.1")
def test_an_idle_expired_partition_empties() -> None:
    partition = new_partition(replace(TopicConfig(), retention_ms=1000))
    for _ in range(14):
        store(partition, MIB)
    retain(partition, START_MS + 1000)
    assert (partition.start_offset, partition.end_offset, partition.size_bytes) == (14, 14, 0)


def test_a_head_with_a_young_record_stays() -> None:
    partition = new_partition(replace(TopicConfig(), retention_ms=1000))
    store(partition, KIB)
    store(partition, KIB, now_ms=START_MS + 900)
    retain(partition, START_MS + 1500)
    assert partition.start_offset == 0


def test_retention_by_size_keeps_at_least_its_bytes_and_the_last_blob() -> None:
    partition = new_partition(replace(TopicConfig(), retention_bytes=7 * MIB))
    for _ in range(20):
        store(partition, MIB)
    retain(partition, START_MS)
    assert partition.start_offset == 12
    partition.settings = partition_settings(replace(TopicConfig(), retention_bytes=0))
    retain(partition, START_MS)
    assert (partition.start_offset, len(partition.bodies)) == (18, 0)


def test_retention_by_size_deletes_a_blob_when_exactly_its_bytes_are_left_without_it() -> None:
    partition = new_partition()
    for _ in range(8):
        store(partition, MIB)
    partition.settings = partition_settings(replace(TopicConfig(), retention_bytes=partition.head.size + 1))
    retain(partition, START_MS)
    assert partition.start_offset == 0
    partition.settings = partition_settings(replace(TopicConfig(), retention_bytes=partition.head.size))
    retain(partition, START_MS)
    assert partition.start_offset == 6


@pytest.mark.spec("H8", "K.1")
def test_retention_by_size_keeps_the_last_body_of_an_empty_head() -> None:
    partition = new_partition(replace(TopicConfig(), retention_bytes=0))
    for _ in range(12):
        store(partition, MIB)
    retain(partition, START_MS)
    assert list(partition.bodies.spans()) == [(6, 12)]


@pytest.mark.parametrize("config", [{"retention_ms": -1}, {"cleanup_policy": ("compact",), "retention_ms": 0}])
def test_without_limits_or_deletion_everything_stays(config: dict[str, object]) -> None:
    partition = new_partition(replace(TopicConfig(), **config))  # type: ignore[arg-type]
    store(partition, MIB)
    retain(partition, START_MS + 1000 * DAY_MS)
    assert partition.start_offset == 0


def test_retention_forgets_producers_without_data_that_were_idle_long_enough() -> None:
    partition = new_partition(replace(TopicConfig(), retention_ms=-1))
    partition.apply(plan_batches(partition, [batch(b"a", producer=(5, 0, 0))], START_MS))
    partition.apply(plan_trim(partition, 1, START_MS))
    partition.settings = partition_settings(partition.settings.topic, producer_id_expiration_ms=1000)
    retain(partition, START_MS + 999)
    assert dict(partition.producers)
    retain(partition, START_MS + 1000)
    assert not dict(partition.producers)


@pytest.mark.spec("A.12.1", "G.2", "G.5", "H9")
def test_a_full_partition_answers_what_the_topic_wants() -> None:
    config = replace(TopicConfig(), pq_max_count_in_partition=0, pq_partition_full_error="KAFKA_STORAGE_ERROR")
    (outcome,) = plan_batches(new_partition(config), [batch(b"a")], START_MS).outcomes
    assert code_of(outcome) is ErrorCode.KAFKA_STORAGE_ERROR


@pytest.mark.spec("A.15")
def test_an_inactive_partition_takes_no_new_records_and_knows_its_duplicates() -> None:
    partition = new_partition()
    partition.apply(plan_batches(partition, [batch(b"a", producer=(5, 0, 0))], START_MS))
    partition.settings = partition_settings(replace(TopicConfig(), pq_inactive_partitions=("3", "0")))
    outcomes = plan_batches(partition, [batch(b"a", producer=(5, 0, 0)), batch(b"b")], START_MS).outcomes
    assert outcomes[0] == Written(0, -1, 0)
    assert code_of(outcomes[1]) is ErrorCode.POLICY_VIOLATION
    partition.settings = partition_settings(replace(TopicConfig(), pq_inactive_partitions=("3",)))
    assert plan_batches(partition, [batch(b"b")], START_MS).outcomes == [Written(1, -1, 0)]


@pytest.mark.spec("A.7", "H4", "K.1")
def test_the_lifetime_of_producer_ids_only_ever_keeps_producers_longer() -> None:
    for lifetime_ms, kept_ms in ((10, 1000), (3000, 3000)):
        config = replace(TopicConfig(), retention_ms=-1, pq_producer_id_lifetime_ms=lifetime_ms)
        partition = new_partition(config)
        partition.settings = partition_settings(config, producer_id_expiration_ms=1000)
        partition.apply(plan_batches(partition, [batch(b"a", producer=(5, 0, 0))], START_MS))
        partition.apply(plan_trim(partition, 1, START_MS))
        retain(partition, START_MS + kept_ms - 1)
        assert dict(partition.producers)
        retain(partition, START_MS + kept_ms)
        assert not dict(partition.producers)
