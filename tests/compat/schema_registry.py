"""A program that keeps its state in a compacted topic as Confluent's schema registry does in `_schemas`.

It has the records of that topic and the registry's way with it: keys and values in JSON, a reader that applies each
record from the first offset on, writes that return once the reader has reached them, and a record without meaning,
NOOP, by whose offset a start knows that it has read all there is. Maven Central and PyPI have no such registry.
"""

import json
import time
from types import TracebackType
from typing import Any, Final, Self

from confluent_kafka import Consumer, KafkaException, Producer, TopicPartition

TOPIC: Final = "_schemas"
CONFIGS: Final = {"cleanup.policy": "compact", "min.cleanable.dirty.ratio": "1", "pq.low.watermark.bytes": "1024"}
_PATIENCE_S: Final = 30.0
_NOOP: Final = {"keytype": "NOOP", "magic": 0}


class SchemaRegistry:
    """One registry, which has read its topic to the end; a context manager."""

    def __init__(self, address: str) -> None:
        self.schemas: dict[tuple[str, int], dict[str, Any]] = {}
        """Schemas by subject and version; one that is deleted softly says so."""
        self.levels: dict[str, str] = {}
        """Compatibility by subject."""
        self.read = 0
        """Records that it has read."""
        self._reached = -1
        self._producer = Producer({"bootstrap.servers": address, "log_level": 0, "acks": -1, "linger.ms": 0})
        self._consumer = Consumer(
            {
                "bootstrap.servers": address, "log_level": 0, "group.id": "schema-registry",
                "enable.auto.commit": False, "auto.offset.reset": "error",
            }
        )  # fmt: skip
        self._consumer.assign([TopicPartition(TOPIC, 0, 0)])
        self._write(_NOOP, None)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._consumer.close()

    def register(self, subject: str, schema: str) -> tuple[int, int]:
        """Add a version of a subject; return its id and version."""
        identity = 1 + max((each["id"] for each in self.schemas.values()), default=0)
        version = 1 + max((number for name, number in self.schemas if name == subject), default=0)
        self._put(subject, version, {"id": identity, "schema": schema, "deleted": False})
        return identity, version

    def delete_softly(self, subject: str, version: int) -> None:
        """Write the version again, as deleted."""
        self._put(subject, version, {**self.schemas[subject, version], "deleted": True})

    def delete(self, subject: str, version: int) -> None:
        """Remove a version for good, with a tombstone."""
        self._write(_schema_key(subject, version), None)

    def set_level(self, subject: str, level: str) -> None:
        """Set the compatibility of a subject."""
        self._write({"keytype": "CONFIG", "subject": subject, "magic": 0}, {"compatibilityLevel": level})

    def _put(self, subject: str, version: int, of: dict[str, Any]) -> None:
        self._write(_schema_key(subject, version), {"subject": subject, "version": version, **of})

    def _write(self, key: dict[str, Any], value: dict[str, Any] | None) -> None:
        """Write a record and wait until the reader has reached it. KafkaException."""
        done: list[Any] = []
        self._producer.produce(
            TOPIC, None if value is None else json.dumps(value).encode(), json.dumps(key).encode(), 0,
            on_delivery=lambda error, sent: done.append(error or sent.offset()),
        )  # fmt: skip
        self._producer.flush(_PATIENCE_S)
        assert done, "the record was not acknowledged"
        if not isinstance(done[0], int):
            raise KafkaException(done[0])
        self._read_to(done[0])

    def _read_to(self, offset: int) -> None:
        deadline = time.monotonic() + _PATIENCE_S
        while self._reached < offset:
            assert time.monotonic() < deadline, f"the record at {offset} is not read, the last was {self._reached}"
            record = self._consumer.poll(1.0)
            if record is None:
                continue
            if record.error() is not None:
                raise KafkaException(record.error())
            self._apply(json.loads(record.key() or b""), record.value())
            self._reached = record.offset() or 0
            self.read += 1

    def _apply(self, key: dict[str, Any], value: bytes | None) -> None:
        if key["keytype"] == "CONFIG":
            assert value is not None
            self.levels[key["subject"]] = json.loads(value)["compatibilityLevel"]
        elif key["keytype"] == "SCHEMA":
            place = key["subject"], key["version"]
            if value is None:
                self.schemas.pop(place, None)
            else:
                self.schemas[place] = json.loads(value)


def _schema_key(subject: str, version: int) -> dict[str, Any]:
    return {"keytype": "SCHEMA", "subject": subject, "version": version, "magic": 1}
