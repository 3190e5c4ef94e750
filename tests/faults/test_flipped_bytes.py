"""A byte that changed on disk is never served: what is read is right, or refused while the log names the blob."""

import random
import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest

from pqbroker.fixture.http_calls import BrokerRefusedError, HttpCalls
from pqbroker.testing import broker
from tests.support.depth import examples
from tests.support.drivers.driver import Message
from tests.support.drivers.librdkafka_driver import LibrdkafkaDriver
from tests.support.wire import StoredBatch, Wire

pytestmark = pytest.mark.spec("J.2")

CORRUPT_MESSAGE = 2
TOPIC = "flipped"
PARTITIONS = 3
SUMS = 'SELECT count(*) AS n, max(octet_length(value)) AS longest FROM "{}"'
RECORDS = 54
LOW_WATERMARK = {"pq.low.watermark.bytes": "1000000"}
"""So that some of the records are in bodies, and some still in the head."""
VALUE_BYTES = 70_000
RANDOM_PLACES = 6
_NAMED_BLOB = re.compile(r"blob [0-9a-f]+ is corrupt")


@dataclass(frozen=True, slots=True)
class Written:
    """A stopped broker's directory and every batch in it, in order, by partition."""

    directory: Path
    batches: dict[int, list[tuple[StoredBatch, bytes]]]


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> Written:
    """Batches of incompressible bytes, of several pages each: some in bodies, some still in the head."""
    directory = tmp_path_factory.mktemp("flipped") / "data"
    source = random.Random(5)
    with broker(directory) as node:
        client = LibrdkafkaDriver(node.kafka)
        client.create_topic(TOPIC, partitions=PARTITIONS, config=LOW_WATERMARK)
        for partition in range(PARTITIONS):
            client.produce(TOPIC, [Message(source.randbytes(VALUE_BYTES)) for _ in range(RECORDS)], partition=partition)
        with Wire(node.kafka) as wire:
            return Written(directory, {partition: list(wire.log(TOPIC, partition)) for partition in range(PARTITIONS)})


def test_a_flipped_byte_of_a_record_is_refused_and_named(written: Written) -> None:
    """In the first batch of a partition, and in the last."""
    ends = [written.batches[1][0], written.batches[1][-1]]
    found = [find(written.directory, batch[-4096:-2048]) for _, batch in ends]
    refused, log = read_with_flips(written, [(segment, position + 1000) for segment, position in found])
    assert {(1, header.base_offset) for header, _ in ends} <= refused, "a batch was served, though a byte had changed"
    assert all(partition == 1 for partition, _ in refused)
    assert len(set(_NAMED_BLOB.findall(log))) >= len(ends), "the log does not name each corrupt blob"


@pytest.mark.parametrize("seed", range(examples(RANDOM_PLACES, least=2)))
def test_a_flipped_byte_anywhere_is_never_served(written: Written, seed: int) -> None:
    source = random.Random(seed)
    segments = sorted(path for path in written.directory.rglob("*.segment") if path.stat().st_size)
    segment = source.choices(segments, weights=[path.stat().st_size for path in segments])[0]
    refused, log = read_with_flips(written, [(segment, source.randrange(segment.stat().st_size))])
    assert not refused or _NAMED_BLOB.search(log), "the log does not name the corrupt blob"


def test_flipped_bytes_everywhere_are_never_served(written: Written) -> None:
    source = random.Random(23)
    segments = [path for path in written.directory.rglob("*.segment") if path.stat().st_size]
    places = [(path, source.randrange(path.stat().st_size)) for path in segments for _ in range(50)]
    refused, log = read_with_flips(written, places)
    assert refused, "fifty flipped bytes in every segment, and none was noticed"
    assert _NAMED_BLOB.search(log), "the log does not name the corrupt blobs"


def test_sql_answers_with_no_flipped_byte(tmp_path: Path) -> None:
    """SQL's worker reads segments itself, and a batch's checksum does not cover its offset and length."""
    places = [(1, 0), (3, 7), (3, 8), (1, 11), (1, 20), (3, 22), (1, 60), (3, 5000)]
    names = [f"flipped-{batch}-{byte}" for batch, byte in places]
    data, source, flips = tmp_path / "data", random.Random(6), list[tuple[Path, int]]()
    with broker(data) as node:
        client = LibrdkafkaDriver(node.kafka)
        for name in ("whole", *names):
            client.create_topic(name, config=LOW_WATERMARK)
            client.produce(name, [Message(source.randbytes(VALUE_BYTES)) for _ in range(RECORDS)])
        with Wire(node.kafka) as wire:
            stored = [list(wire.log(name, 0)) for name in names]
    for batches, (batch, byte) in zip(stored, places, strict=True):
        segment, position = find(data, batches[batch][1][21:400])
        flips.append((segment, position - 21 + byte))
    with flipped(flips), broker(data) as node:
        calls = HttpCalls(lambda: node.http)
        assert calls.ask("POST", "/v1/sql", {"query": SUMS.format("whole")})["n"] == RECORDS
        for name in names:
            before = node.log
            with pytest.raises(BrokerRefusedError) as refused:
                calls.ask("POST", "/v1/sql", {"query": SUMS.format(name)})
            assert refused.value.code == "CORRUPT_MESSAGE", name
            assert _NAMED_BLOB.search(node.log[len(before) :]), f"the log does not name the corrupt blob of {name}"


def test_bytes_that_are_as_they_were_are_served(written: Written) -> None:
    refused, _log = read_with_flips(written, [])
    assert not refused


def read_with_flips(written: Written, places: Sequence[tuple[Path, int]]) -> tuple[set[tuple[int, int]], str]:
    """Flip bytes, start the broker, and fetch each batch: (partition, base offset) of those refused, and the log.

    AssertionError when a batch is neither refused as corrupt nor just as it was written.
    """
    refused = set()
    with flipped(places), broker(written.directory) as node, Wire(node.kafka) as wire:
        for partition, batches in written.batches.items():
            for header, batch in batches:
                fetched = wire.fetch(TOPIC, partition, header.base_offset, bytes_max=1)
                if fetched.error_code == CORRUPT_MESSAGE:
                    refused.add((partition, header.base_offset))
                    continue
                assert fetched.error_code == 0, fetched.error_code
                served = next(fetched.batches(), None)
                assert served is not None, f"partition {partition}: nothing at offset {header.base_offset}"
                assert beyond_epoch(served[1]) == beyond_epoch(batch), "other bytes than were written"
        log = node.log
    return refused, log


@contextmanager
def flipped(places: Sequence[tuple[Path, int]]) -> Iterator[None]:
    """One bit changed at each place, for a while."""
    for path, position in places:
        flip(path, position)
    try:
        yield
    finally:
        for path, position in places:
            if path.exists():
                flip(path, position)


def flip(path: Path, position: int) -> None:
    """Change one bit; the second time it is as it was."""
    with path.open("r+b") as file:
        file.seek(position)
        (byte,) = file.read(1)
        file.seek(position)
        file.write(bytes([byte ^ 0x10]))


def find(directory: Path, data: bytes) -> tuple[Path, int]:
    """Where these bytes lie on disk."""
    for path in directory.rglob("*.segment"):
        position = path.read_bytes().find(data)
        if position >= 0:
            return path, position
    raise AssertionError("the batch is in no segment file")


def beyond_epoch(batch: bytes) -> bytes:
    """All that the checksum covers, and the checksum."""
    return batch[16:]
