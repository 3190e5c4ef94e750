"""The rules of the cleaner beside a model of ten lines, over logs with hostile keys, windows, times and damage."""

from collections.abc import Sequence
from itertools import pairwise
from typing import NamedTuple

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pqbroker.pq.log.cleaning import CleanedBodies, CleanedTransactions, CleaningRules, clean
from pqbroker.pq.log.cleaning_keys import DIGEST_BYTES, LastOffsets, key_digest
from pqbroker.pq.log.producer_transactions import AbortedBatches
from pqbroker.protocol.cleaned_batches import delete_horizon, place_records
from pqbroker.protocol.control_records import EndMarker
from pqbroker.protocol.errors import ErrorCode, KafkaError
from pqbroker.protocol.produced_batches import check_produced
from pqbroker.protocol.records import (
    CONTROL,
    DELETE_HORIZON,
    TRANSACTIONAL,
    Record,
    batches,
    decode_records,
    encode_batch,
    read_header,
    stamp,
)
from pqbroker.storage.engine import Buffer
from tests.support.depth import examples

DAY_MS = 86_400_000
NOW_MS = 1_700_000_000_000
LONG = bytes(DIGEST_BYTES - 1)
KEYS = (b"", b"a", b"ab", b"a\0", LONG, LONG + b"\0", LONG + b"\1", LONG * 3, LONG * 3 + b"\1", key_digest(LONG * 3))
"""Empty, prefixes of one another, around the length of a digest, and the digest of another one."""


class Step(NamedTuple):
    """A batch to be written: a key's number and whether it has a value, for each record."""

    records: Sequence[tuple[int, bool]]
    codec: int


class Cleaned(NamedTuple):
    """A log after a cleaning, and what was said of each window."""

    log: list[memoryview]
    said: list[CleanedBodies]


STEPS = st.lists(
    st.builds(
        Step,
        st.lists(st.tuples(st.integers(0, len(KEYS) - 1), st.booleans()), min_size=1, max_size=6),
        st.sampled_from([0, 0, 1, 3]),
    ),
    min_size=1,
    max_size=12,
)


def written(steps: Sequence[Step], offset: int = 0) -> list[memoryview]:
    """The batches, one behind the other."""
    found = []
    for keys, codec in steps:
        records = [
            Record(0, NOW_MS + number, KEYS[key], b"%d" % (offset + number) if has_value else None)
            for number, (key, has_value) in enumerate(keys)
        ]
        found.append(memoryview(bytes(encode_batch(records, base_offset=offset, codec=codec, producer_id=5))))
        offset += len(records)
    return found


def records_of(log: Sequence[Buffer]) -> list[Record]:
    return [record for batch in log for record in decode_records(batch)]


def end_of(log: Sequence[Buffer]) -> int:
    return read_header(log[-1]).last_offset + 1


def last_offsets(log: Sequence[memoryview], bound: int) -> LastOffsets:
    """The table has one slot more than there are keys: digests lie in each other's places."""
    found = LastOffsets(len(KEYS), load_factor=1.0)
    for batch in log:
        if read_header(batch).last_offset < bound:
            assert found.take(place_records(batch, 1 << 20).records)
    return found


def rules(log: Sequence[memoryview], bound: int, now_ms: int = NOW_MS, unpacked: int = 1 << 20) -> CleaningRules:
    return CleaningRules(last_offsets(log, bound), bound, now_ms, DAY_MS, unpacked)


def clean_all(log: Sequence[memoryview], cuts: Sequence[int], bound: int, now_ms: int = NOW_MS) -> Cleaned:
    """One pass over the log, in windows that end before the batches `cuts`."""
    borders = sorted({0, len(log), *(cut for cut in cuts if cut < len(log))})
    made: list[memoryview] = []
    said: list[CleanedBodies] = []
    is_clean = True
    for first, last in pairwise(borders):
        window = log[first:last]
        done = clean(window, end_of(window), rules(log, bound, now_ms), is_clean_before=is_clean)
        is_clean = done.is_clean
        made += [memoryview(bytes(batch)) for batch in done.batches]
        said.append(done)
    return Cleaned(made, said)


def model(log: Sequence[Buffer], bound: int, horizons: dict[int, int], now_ms: int) -> list[Record]:
    """Return the records that stay. `horizons`: when tombstones may go, by offset; this pass sets missing ones."""
    below = {one.offset for batch in log if end_of([batch]) <= bound for one in decode_records(batch)}
    last = {one.key: one.offset for one in records_of(log) if one.offset in below}
    stays = [one for one in records_of(log) if one.offset not in below or last[one.key] == one.offset]
    stays = [one for one in stays if one.value is not None or horizons.get(one.offset, now_ms + 1) > now_ms]
    for one in stays:
        if one.value is None and one.offset in below:
            horizons.setdefault(one.offset, now_ms + DAY_MS)
    return stays


@pytest.mark.spec("G.3")
@settings(max_examples=examples(300), deadline=None)
@given(
    STEPS, STEPS, st.lists(st.integers(1, 24), max_size=3),
    st.lists(st.integers(0, 2 * DAY_MS), min_size=1, max_size=4), st.integers(0, 60),
)  # fmt: skip
def test_passes_leave_what_the_model_leaves(
    steps: list[Step], more: list[Step], cuts: list[int], pauses: list[int], bound: int
) -> None:
    log = written(steps)
    horizons: dict[int, int] = {}
    now_ms = NOW_MS
    for number, pause in enumerate(pauses):
        now_ms += pause
        expected = model(log, bound, horizons, now_ms)
        end, first = end_of(log), read_header(log[0]).base_offset
        log = clean_all(log, cuts, bound, now_ms).log
        assert records_of(log) == expected
        assert end_of(log) == end
        assert read_header(log[0]).base_offset >= first
        headers = [read_header(batch) for batch in log]
        assert all(one.last_offset < two.base_offset for one, two in pairwise(headers))
        if not number:
            log += written(more, end)
            bound += len(more)


@settings(max_examples=examples(150), deadline=None)
@given(STEPS, st.lists(st.tuples(st.integers(0, 12), st.integers(1, 12), st.booleans()), max_size=6))
def test_wherever_cleanings_begin_a_deleted_key_never_comes_back(
    steps: list[Step], passes: list[tuple[int, int, bool]]
) -> None:
    """Windows anywhere, with days between them: a reader from 0 sees the final state at each moment."""
    log = written(steps)
    final = {record.key: record.value for record in records_of(log)}
    now_ms = NOW_MS
    for first, count, begins in passes:
        now_ms += 2 * DAY_MS
        first = 0 if begins else min(first, len(log) - 1)
        window = log[first : first + count]
        done = clean(window, end_of(window), rules(log, end_of(log), now_ms), is_clean_before=not first)
        log[first : first + count] = [memoryview(bytes(batch)) for batch in done.batches]
        seen = {record.key: record.value for record in records_of(log)}
        assert {key: value for key, value in seen.items() if value is not None} == {
            key: value for key, value in final.items() if value is not None
        }


@pytest.mark.spec("G.3")
def test_a_tombstone_stays_for_its_time_from_the_first_cleaning_that_left_nothing_before_it() -> None:
    log = written([Step([(1, True)], 0), Step([(2, True)], 0), Step([(1, False)], 0)])
    late = rules(log, 3)
    unsure = clean(log[2:], 3, late, is_clean_before=False)
    assert unsure.batches == log[2:]
    assert delete_horizon(read_header(unsure.batches[0])) is None
    assert unsure.due_ms is None
    first = clean_all(log, [2], 3)
    assert first.said[-1].due_ms == NOW_MS + DAY_MS
    assert delete_horizon(read_header(first.log[-1])) == NOW_MS + DAY_MS
    assert [record.offset for record in records_of(first.log)] == [1, 2]
    soon = clean_all(first.log, [1], 3, NOW_MS + DAY_MS - 1)
    assert soon.log == first.log
    gone = clean_all(soon.log, [1], 3, NOW_MS + DAY_MS)
    assert [record.offset for record in records_of(gone.log)] == [1]
    assert [(header.base_offset, header.record_count) for _, header in batches(b"".join(gone.log))][-1] == (2, 0)
    assert sum(said.tombstones_gone for said in gone.said) == 1
    assert clean_all(gone.log, [], 3).log == gone.log


def test_a_batch_that_cannot_be_read_stays_and_so_do_tombstones_behind_it() -> None:
    log = written([Step([(1, True)], 3), Step([(1, True), (2, True)], 0), Step([(1, False)], 0)])
    damaged = bytearray(log[0])
    damaged[-1] ^= 1
    log[0] = memoryview(bytes(damaged))
    known = LastOffsets(100)
    for batch in log[1:]:
        known.take(place_records(batch, 1 << 20).records)
    for now_ms in (NOW_MS, NOW_MS + 2 * DAY_MS, NOW_MS + 4 * DAY_MS):
        done = clean(log, 4, CleaningRules(known, 4, now_ms, DAY_MS, 1 << 20), is_clean_before=True)
        assert done.batches[0] == log[0]
        assert done.unread == [0]
        assert not done.is_clean
        assert [record.offset for record in records_of(done.batches[1:])] == [2, 3]
        log = [memoryview(bytes(batch)) for batch in done.batches]


def test_a_tombstone_of_a_key_that_the_cleaning_does_not_know_gets_no_horizon() -> None:
    log = written([Step([(1, True)], 0), Step([(1, False)], 0), Step([(2, True)], 0)])
    unknowing = CleaningRules(last_offsets(log[2:], 3), 3, NOW_MS, DAY_MS, 1 << 20)
    done = clean(log, 3, unknowing, is_clean_before=True)
    assert (done.batches, done.due_ms) == (log, None)


def test_a_batch_that_unpacks_over_the_limit_stays_as_it_is() -> None:
    large = memoryview(bytes(encode_batch([Record(0, 1, b"a", bytes(5000))] * 2, codec=3)))
    done = clean([large], 2, CleaningRules(last_offsets([large], 2), 2, NOW_MS, DAY_MS, 5000), is_clean_before=True)
    assert (done.batches, done.unread, done.is_clean) == ([large], [0], False)


def test_control_batches_and_records_without_a_key_stay() -> None:
    control = memoryview(bytes(encode_batch([Record(0, 1, b"a", b"b")], attributes=CONTROL)))
    keyless = memoryview(bytes(encode_batch([Record(0, 1, None, b"x"), Record(0, 1, None, None)], base_offset=1)))
    log = [control, keyless, *written([Step([(1, True)], 0)], 3)]
    known = last_offsets(log[1:], 4)
    done = clean(log, 4, CleaningRules(known, 4, NOW_MS, DAY_MS, 1 << 20), is_clean_before=True)
    assert (done.batches, done.keyless, done.records_gone) == (log, 2, 0)


def transacted(*steps: tuple[int, int, bytes | None]) -> list[memoryview]:
    """Batches of one record: offset, producer, key; None for its marker."""
    found = []
    for offset, producer, key in steps:
        if key is None:
            one = EndMarker(producer, 0, 0, is_commit=False).batch(NOW_MS)
            stamp(memoryview(one), offset, 0)
        else:
            record = Record(0, NOW_MS, key, b"%d" % offset)
            one = encode_batch([record], base_offset=offset, producer_id=producer, attributes=TRANSACTIONAL)
        found.append(memoryview(bytes(one)))
    return found


def clean_transactions(
    log: list[memoryview], end: int, spans: list[tuple[int, int, int]], now_ms: int = NOW_MS, bound: int = 100
) -> tuple[CleanedBodies, list[memoryview], list[int]]:
    """One pass over the log in windows of two batches; its batches then, and the markers without a batch."""
    aborted, met = AbortedBatches(spans), CleanedTransactions()
    met.aborted = aborted
    known = last_offsets([batch for batch in log if not aborted.has(read_header(batch))], bound)
    wanted = CleaningRules(known, bound, now_ms, DAY_MS, 1 << 20, met)
    made: list[memoryview] = []
    is_clean = True
    for number in range(0, len(log), 2):
        window = log[number : number + 2]
        done = clean(window, end_of(window), wanted, is_clean_before=is_clean)
        is_clean = done.is_clean
        made += [memoryview(bytes(batch)) for batch in done.batches]
    assert end_of(made) == end
    return done, made, met.emptied


def shown(log: list[memoryview]) -> list[tuple[int, bool, int]]:
    """Offset, whether it is a marker, and records of each batch."""
    headers = [read_header(batch) for batch in log]
    return [(one.base_offset, one.is_control, one.record_count) for one in headers]


def test_aborted_records_go_and_hide_no_others() -> None:
    log = transacted((0, 1, b"a"), (1, 2, b"a"), (2, 2, None), (3, 1, None), (4, 1, b"b"), (5, 1, None))
    _, made, emptied = clean_transactions(log, 6, [(2, 2, 1)])
    kept = [one for one in shown(made) if one[2]]
    assert kept == [(0, False, 1), (2, True, 1), (3, True, 1), (4, False, 1), (5, True, 1)]
    assert emptied == []


def test_a_marker_goes_a_day_after_the_first_cleaning_that_meets_nothing_of_its_transaction() -> None:
    log = transacted((0, 1, b"a"), (1, 1, None), (2, 2, b"a"), (3, 2, None), (4, 3, b"z"), (5, 3, None))
    spans = [(1, 1, 0)]
    done, log, emptied = clean_transactions(log, 6, spans)
    assert (emptied, done.due_ms) == ([], None)
    _, log, emptied = clean_transactions(log, 6, spans, NOW_MS + 1)
    assert emptied == [1]
    (first,) = [read_header(batch) for batch in log if read_header(batch).base_offset == 1]
    assert delete_horizon(first) == NOW_MS + 1 + DAY_MS
    assert first.is_control
    _, log, _ = clean_transactions(log, 6, [], NOW_MS + DAY_MS)
    assert 1 in [offset for offset, is_control, _ in shown(log) if is_control]
    _, log, _ = clean_transactions(log, 6, [], NOW_MS + 1 + DAY_MS)
    assert [offset for offset, is_control, _ in shown(log) if is_control] == [3, 5]
    assert [record.offset for record in records_of(log) if record.key in (b"a", b"z")] == [2, 4]


def test_a_marker_outlives_the_note_of_its_transaction() -> None:
    """The first cleaning is cut short before it has the transaction forgotten; so may be the others."""
    log = transacted((0, 1, b"a"), (1, 1, None), (2, 2, b"z"), (3, 2, None), (4, 1, b"b"), (5, 1, None))
    spans = [(1, 1, 0)]
    for now_ms in (NOW_MS, NOW_MS + 1, NOW_MS + 2 * DAY_MS, NOW_MS + 3 * DAY_MS):
        _, log, emptied = clean_transactions(log, 6, spans, now_ms)
        assert (1, True, 1) in shown(log)
    assert emptied == [1]
    later = [(5, 1, 4)]
    _, log, _ = clean_transactions(log, 6, later, NOW_MS + 3 * DAY_MS)
    assert (1, True, 1) not in shown(log), "a later one of its producer is noted"


def test_a_marker_behind_a_batch_that_cannot_be_read_stays() -> None:
    log = transacted((0, 1, b"a"), (1, 1, None))
    damaged = bytearray(log[0])
    damaged[-1] ^= 1
    log[0] = memoryview(bytes(damaged))
    met = CleanedTransactions()
    wanted = CleaningRules(LastOffsets(9), 9, NOW_MS, DAY_MS, 1 << 20, met)
    assert clean(log, 2, wanted, is_clean_before=True).batches == log
    assert clean(log[1:], 2, wanted, is_clean_before=False).batches == log[1:]
    assert met.emptied == []


def test_a_marker_that_reaches_the_bound_stays() -> None:
    log = transacted((0, 1, None), (1, 1, None))
    _, made, emptied = clean_transactions(log, 2, [], bound=1)
    assert emptied == [0]
    assert made[1] == log[1]


def test_what_reaches_the_bound_is_not_looked_at() -> None:
    log = written([Step([(1, True)], 0), Step([(1, True), (1, True)], 0), Step([(1, True)], 0)])
    done = clean(log, 4, rules(log, 2), is_clean_before=True)
    assert done.batches == log
    assert not done.is_clean
    assert not clean(log[:2], 3, rules(log, 2), is_clean_before=True).is_clean
    done = clean(log, 4, rules(log, 3), is_clean_before=True)
    assert [record.offset for record in records_of(done.batches)] == [2, 3]


def test_a_batch_of_which_all_stays_is_the_same_bytes() -> None:
    log = written([Step([(1, True), (2, True)], 1)])
    done = clean(log, 2, rules(log, 2), is_clean_before=True)
    assert done.batches[0] is log[0]
    assert (done.records, done.records_gone, done.due_ms) == (2, 0, None)


def test_keys_are_bounded_and_a_batch_is_taken_whole_or_not() -> None:
    known = LastOffsets(3)
    first, second, third = (
        place_records(batch, 1 << 20).records
        for batch in written(
            [Step([(0, True), (1, True)], 0), Step([(1, True), (2, True)], 0), Step([(0, True), (3, True)], 0)]
        )
    )
    assert known.take(first)
    assert known.take(second)
    assert not known.take(third)
    assert [len(known), known.last(KEYS[0]), known.last(KEYS[1]), known.last(KEYS[3])] == [3, 0, 2, -1]


@given(st.binary(max_size=40), st.binary(max_size=40))
def test_different_keys_are_told_apart(one: bytes, other: bytes) -> None:
    assert (key_digest(one) == key_digest(other)) == (one == other)
    assert len(key_digest(one)) <= DIGEST_BYTES


def test_clients_may_not_set_a_delete_horizon() -> None:
    batch = memoryview(encode_batch([Record(0, 1, b"a", None)], attributes=DELETE_HORIZON))
    with pytest.raises(KafkaError) as refusal:
        check_produced(batch, 1 << 20)
    assert refusal.value.code is ErrorCode.INVALID_RECORD
