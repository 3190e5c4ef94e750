"""Keys and values of records are those that whole records have."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pqbroker.protocol.compression import CODECS
from pqbroker.protocol.errors import KafkaError
from pqbroker.protocol.record_parts import decode_parts, keyless_records
from pqbroker.protocol.records import BATCH_HEADER_BYTES, Record, decode_records, encode_batch

PARTS = st.one_of(st.none(), st.binary(max_size=200), st.sampled_from([b"x" * 63, b"x" * 64, b"x" * 8191, b"x" * 8192]))
RECORDS = st.builds(
    Record, st.just(0), st.integers(-1, 1 << 42), PARTS, PARTS,
    st.sampled_from([(), (), (("name", b"value"), ("", None))]),
)  # fmt: skip


@given(st.lists(RECORDS, min_size=1, max_size=80), st.sampled_from([0, *CODECS]), st.integers(0, 1 << 40))
def test_parts_are_those_of_the_records(records: list[Record], codec: int, base: int) -> None:
    batch = encode_batch(records, base_offset=base, codec=codec)
    assert list(decode_parts(batch)) == [(record.key, record.value) for record in records]
    assert keyless_records(batch) == [index for index, record in enumerate(records) if record.key is None]


def test_numbers_of_three_bytes() -> None:
    batch = encode_batch([Record(0, 0, None, b"%d" % number) for number in range(8200)])
    assert [value for _, value in decode_parts(batch)] == [b"%d" % number for number in range(8200)]
    assert keyless_records(batch) == list(range(8200))


@pytest.mark.parametrize("size", [63, 64, 8191, 8192, 1 << 20])
def test_sizes_of_another_length_are_read(size: int) -> None:
    records = [Record(0, 0, b"k" * size, None), Record(0, 0, None, b"v" * size), Record(0, 0, b"k" * 9, b"v" * size)]
    assert keyless_records(encode_batch(records)) == [1]


@given(st.lists(RECORDS, min_size=1, max_size=5), st.data())
def test_what_is_no_run_of_records_is_refused_as_ever(records: list[Record], data: st.DataObject) -> None:
    batch = encode_batch(records)
    at = data.draw(st.integers(BATCH_HEADER_BYTES, len(batch) - 1))
    batch[at] = data.draw(st.integers(0, 255))
    try:
        whole = list(decode_records(batch))
    except KafkaError:
        with pytest.raises(KafkaError):
            list(decode_parts(batch))
        with pytest.raises(KafkaError):
            keyless_records(batch)
        return
    if [record.offset for record in whole] == list(range(len(records))):
        assert list(decode_parts(batch)) == [(record.key, record.value) for record in whole]
        assert keyless_records(batch) == [index for index, record in enumerate(whole) if record.key is None]
    else:
        with pytest.raises(KafkaError):
            list(decode_parts(batch))
        with pytest.raises(KafkaError):
            keyless_records(batch)


def test_records_follow_one_another() -> None:
    batch = encode_batch([Record(value=b"a"), Record(value=b"b")])
    record_bytes = (len(batch) - BATCH_HEADER_BYTES) // 2
    batch[BATCH_HEADER_BYTES + record_bytes + 3] = 0  # the second one's offset delta
    for look in (lambda: list(decode_parts(batch)), lambda: keyless_records(batch)):
        with pytest.raises(KafkaError, match="record 1 of the batch says that it is record 0"):
            look()
