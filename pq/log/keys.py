"""Keys of a PQ tablet in its KV tablet (semantics A.3): fixed-width text, so that byte order is logical order.

A key's form is its version: another form would take other letters. A key that is none of these is a ValueError.

d<partition:10>_<offset:20>_<part:5>_<count:10>_<internal parts:5>[|]   record batches; `|` marks a head blob
x<partition:10>_<offset:20>_<part:5>_<count:10>_<internal parts:5>     a slice of a batch that is being stored in parts
i<partition:10>                                                        partition meta
c<partition:10>                                                        how far the log was cleaned
m<partition:10>p<producer id:20>                                       what is remembered of a producer
m<partition:10>c<group id>                                             how far a consumer has read
m<partition:10>s<session>                                              the last batch of rows of a session
a<partition:10>_<offset of its marker:20>                              an aborted Kafka transaction
f<partition:10>_<offset:20>_<weight before:20>_<weight after:20>       the facts of the rows of a blob
s<partition:10>_<session:32>_<sequence:20>_<rows:10>_<digest:32>_<piece:16>   rows staged for a batch of a session
t<partition:10>_<session:32>_<sequence:20>                             a batch whose staged rows are being written
p<partition:10>_<transaction:32>                                       rows that wait for their transaction's decision
q<partition:10>_<transaction:32>                                       the decision of a transaction whose home this is
u…                                                                     what users of a test broker put there
"""

import re
from collections.abc import Iterable, Iterator
from typing import NamedTuple

from pqbroker.pq.transactions.stored_forms import TransactionId

OFFSET_MAX = (1 << 63) - 1
"""The largest end offset; Kafka's offsets are signed."""
COUNT_MAX = 10**10 - 1
"""Records of one blob, by the width of a key's count."""
_DATA_KEY = re.compile(rb"d([0-9]{10})_([0-9]{20})_00000_([0-9]{10})_00000(\|?)").fullmatch
_FACTS_KEY = re.compile(rb"f[0-9]{10}_([0-9]{20})_([0-9]{20})_([0-9]{20})").fullmatch
_PRODUCER_KEY = re.compile(rb"m[0-9]{10}p([0-9]{20})").fullmatch
_ABORTED_KEY = re.compile(rb"a[0-9]{10}_([0-9]{20})").fullmatch
_TRANSACTION_KEY = re.compile(rb"[pq][0-9]{10}_([0-9a-f]{32})").fullmatch
TRANSACTIONS, TRANSACTIONS_END = b"p", b"r"
"""Bounds lo <= key < hi of what transactions have in all partitions of a tablet."""
USERS = b"u"
"""First byte of keys that are not the tablet's own."""


class DataKey(NamedTuple):
    """A data key taken apart: the records [offset, offset + records) of one partition."""

    partition: int
    offset: int
    records: int
    is_head: bool


def body_key(partition: int, offset: int, count: int) -> bytes:
    return b"d%010d_%020d_00000_%010d_00000" % (partition, offset, count)


def head_key(partition: int, offset: int, count: int) -> bytes:
    return b"d%010d_%020d_00000_%010d_00000|" % (partition, offset, count)


def part_key(partition: int, offset: int, part: int) -> bytes:
    """Return the key of a part that is not the last: no record ends in it."""
    return b"x%010d_%020d_%05d_0000000000_00001" % (partition, offset, part)


def part_range(partition: int) -> tuple[bytes, bytes]:
    """Bounds lo <= key < hi of the parts of a partition's unfinished batch."""
    return b"x%010d_" % partition, b"x%010d`" % partition


def parse_data_key(key: bytes) -> DataKey:
    """Take a data key apart. ValueError for one that no tablet writes."""
    found = _DATA_KEY(key)
    if found is None:
        raise ValueError(f"{_text(key)} is no data key")
    partition, offset, count, suffix = found.groups()
    parsed = DataKey(int(partition), int(offset), int(count), bool(suffix))
    if not parsed.records or parsed.offset + parsed.records > OFFSET_MAX:
        raise ValueError(f"{_text(key)} counts {parsed.records} records from offset {parsed.offset}")
    return parsed


def data_range(partition: int) -> tuple[bytes, bytes]:
    """Bounds lo <= key < hi of a partition's data keys."""
    return b"d%010d_" % partition, b"d%010d`" % partition


def data_start(partition: int, offset: int) -> bytes:
    """Bound below the data keys from an offset on."""
    return b"d%010d_%020d" % (partition, offset)


def meta_key(partition: int) -> bytes:
    return b"i%010d" % partition


def cleaned_key(partition: int) -> bytes:
    """Return the key of what is known of the cleanings of a partition."""
    return b"c%010d" % partition


def aborted_key(partition: int, marker_offset: int) -> bytes:
    """Return the key of the aborted transaction whose marker is at an offset."""
    return b"a%010d_%020d" % (partition, marker_offset)


def aborted_range(partition: int) -> tuple[bytes, bytes]:
    """Bounds lo <= key < hi of a partition's aborted transactions."""
    return b"a%010d_" % partition, b"a%010d`" % partition


def parse_aborted_key(key: bytes) -> int:
    """The offset of the marker of an aborted transaction; ValueError."""
    found = _ABORTED_KEY(key)
    if found is None:
        raise ValueError(f"{_text(key)} is no key of an aborted transaction")
    return int(found[1])


def producer_key(partition: int, producer_id: int) -> bytes:
    return b"m%010dp%020d" % (partition, producer_id)


def producer_range(partition: int) -> tuple[bytes, bytes]:
    """Bounds lo <= key < hi of a partition's producer keys."""
    return b"m%010dp" % partition, b"m%010dq" % partition


def is_producer_key(key: bytes) -> bool:
    """Return True for the row of a producer, in any partition."""
    return key[:1] == b"m" and key[11:12] == b"p"


def parse_producer_key(key: bytes) -> int:
    """The producer id of a producer key; ValueError."""
    found = _PRODUCER_KEY(key)
    if found is None:
        raise ValueError(f"{_text(key)} is no producer key")
    return int(found[1])


def consumer_key(partition: int, group_id: str) -> bytes:
    return b"m%010dc%s" % (partition, group_id.encode())


def consumer_range(partition: int) -> tuple[bytes, bytes]:
    """Bounds lo <= key < hi of a partition's consumer keys."""
    return b"m%010dc" % partition, b"m%010dd" % partition


def parse_consumer_key(key: bytes) -> str:
    """The group id of a consumer key; ValueError."""
    return key[12:].decode()


def session_key(partition: int, session: str) -> bytes:
    return b"m%010ds%s" % (partition, session.encode())


def producer_keys(partition: int, producer_ids: Iterable[int]) -> list[bytes]:
    return [producer_key(partition, producer_id) for producer_id in producer_ids]


def session_keys(partition: int, sessions: Iterable[str]) -> list[bytes]:
    return [session_key(partition, session) for session in sessions]


def session_range(partition: int) -> tuple[bytes, bytes]:
    """Bounds lo <= key < hi of a partition's session keys."""
    return b"m%010ds" % partition, b"m%010dt" % partition


def parse_session_key(key: bytes) -> str:
    """The session's name of a session key; ValueError."""
    return key[12:].decode()


def facts_key(partition: int, offset: int, weight_before: int, weight_after: int) -> bytes:
    """Return the key of the facts of the blob that begins at the offset."""
    return b"f%010d_%020d_%020d_%020d" % (partition, offset, weight_before, weight_after)


def facts_start(partition: int, offset: int) -> bytes:
    """Bound below the facts of the blobs from an offset on."""
    return b"f%010d_%020d" % (partition, offset)


def facts_range(partition: int) -> tuple[bytes, bytes]:
    """Bounds lo <= key < hi of a partition's facts of rows."""
    return b"f%010d_" % partition, b"f%010d`" % partition


def parse_facts_key(key: bytes) -> tuple[int, int, int]:
    """Offset and weights of a key of facts; ValueError."""
    found = _FACTS_KEY(key)
    if found is None:
        raise ValueError(f"{_text(key)} is no key of facts")
    offset, before, after = map(int, found.groups())
    if before >= after:
        raise ValueError(f"{_text(key)} has rows that weigh {after - before}")
    return offset, before, after


def prepared_key(partition: int, transaction: TransactionId) -> bytes:
    """Return the key of the rows that a transaction has prepared."""
    return b"p%010d_%s" % (partition, transaction.hex().encode())


def prepared_range(partition: int) -> tuple[bytes, bytes]:
    """Bounds lo <= key < hi of a partition's prepared rows."""
    return b"p%010d_" % partition, b"p%010d`" % partition


def outcome_key(partition: int, transaction: TransactionId) -> bytes:
    """Return the key of a transaction's decision in its home."""
    return b"q%010d_%s" % (partition, transaction.hex().encode())


def outcome_range(partition: int) -> tuple[bytes, bytes]:
    """Bounds lo <= key < hi of the decisions whose home a partition is."""
    return b"q%010d_" % partition, b"q%010d`" % partition


def parse_transaction_key(key: bytes) -> TransactionId:
    """The transaction of a key of prepared rows, or of a decision; ValueError."""
    found = _TRANSACTION_KEY(key)
    if found is None:
        raise ValueError(f"{_text(key)} is no key of a transaction")
    return TransactionId(bytes.fromhex(found[1].decode()))


def foreign_ranges(partition: int) -> Iterator[tuple[bytes, bytes]]:
    """Bounds lo <= key < hi of the keys of all partitions but this one."""
    for letter in b"acdfimpqstx":
        yield b"%c" % letter, b"%c%010d" % (letter, partition)
        yield b"%c%010d" % (letter, partition + 1), b"%c" % (letter + 1)


def renumbered(key: bytes, partition: int) -> bytes:
    """The key with another partition's number."""
    return key[:1] + b"%010d" % partition + key[11:]


def _text(key: bytes) -> str:
    return key.decode("ascii", "backslashreplace")
