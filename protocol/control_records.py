"""Control batches: markers that end a transaction of a producer in a partition, as Kafka writes them."""

import struct
from typing import Final, NamedTuple

from pqbroker.protocol.primitives import Buffer
from pqbroker.protocol.records import CONTROL, TRANSACTIONAL, Record, decode_records, encode_batch

_KEY: Final = struct.Struct(">hh")
_VALUE: Final = struct.Struct(">hi")
_VERSION: Final = 0
MARKER_BYTES_MAX: Final = 128
"""Bytes of a control batch with one marker: 78, and a byte more for each varint that grows."""
_ABORT: Final = 0
_COMMIT: Final = 1


class EndMarker(NamedTuple):
    """A marker that ends the transaction of a producer, sent by a coordinator of some epoch."""

    producer_id: int
    epoch: int
    coordinator_epoch: int
    is_commit: bool

    def batch(self, now_ms: int) -> bytearray:
        """Return the control batch, with one record."""
        key = _KEY.pack(_VERSION, _COMMIT if self.is_commit else _ABORT)
        record = Record(0, now_ms, key, _VALUE.pack(_VERSION, self.coordinator_epoch))
        return encode_batch(
            [record], attributes=TRANSACTIONAL | CONTROL, producer_id=self.producer_id, producer_epoch=self.epoch
        )


def is_abort(batch: Buffer) -> bool:
    """Return True if a control batch is a marker that aborts a transaction. KafkaError for a batch that is damaged."""
    return any(record.key == _KEY.pack(_VERSION, _ABORT) for record in decode_records(batch))
