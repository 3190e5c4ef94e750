"""Client libraries on compacted topics whose logs are cleaned: while they read, and behind a cleaning."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest

from pqbroker.fixture.http_calls import HttpCalls
from tests.compat.churn import COMPACTED, END, PASSES, Churn, last_of_each_key, write_all_codecs
from tests.support.cleaning import clean_topic
from tests.support.drivers.driver import RECENT_MS, Driver, Message, PartitionReader
from tests.support.drivers.librdkafka_driver import LibrdkafkaDriver
from tests.support.serving import is_ours
from tests.support.waiting import DEADLINE_S, wait_until
from tests.support.wire import CODECS, StoredBatch, Wire

pytestmark = pytest.mark.skipif(not is_ours(), reason="only our broker cleans on command")



@contextmanager
def reading(driver: Driver, topic: str, group: str) -> Iterator[PartitionReader]:
    reader = driver.reader(topic, group)
    try:
        yield reader
    finally:
        reader.close()


def has_lost_some(header: StoredBatch) -> bool:
    return 0 < header.record_count < header.next_offset - header.base_offset


def read_to(reader: PartitionReader, last: int) -> list[tuple[int, Message]]:
    """Read up to a record's offset. The position never lies before what was returned."""
    found: list[tuple[int, Message]] = []

    def take() -> bool:
        found.extend(reader.poll(0.5))
        return bool(found) and found[-1][0] >= last

    wait_until(take, f"the record at {last}")
    assert reader.position() == last + 1
    return found


def test_a_client_reads_through_cleaning_and_misses_no_last_value(
    client: Driver, calls: HttpCalls, compacted: str
) -> None:
    written = write_all_codecs(client, compacted, 60)
    found: list[tuple[int, Message]] = []

    def take() -> bool:
        found.extend(reader.poll(0.1))
        return bool(found) and found[-1][1].key == END

    with Churn(calls, compacted, written) as churn:
        assert churn.passed.acquire(timeout=DEADLINE_S)  # else a client that reads ahead may have had all before
        with reading(client, compacted, compacted) as reader:
            for _ in range(PASSES - 1):
                take()
                assert churn.passed.acquire(timeout=DEADLINE_S)
            wait_until(take, "the last record")
            position = reader.position()
    assert churn.gone > 200
    offsets = [offset for offset, _ in found]
    assert offsets == sorted(set(offsets))
    assert all(churn.log[offset] == message for offset, message in found)
    last = last_of_each_key(churn.log)
    assert {offset: message for offset, message in found if offset in last} == last
    assert len(found) < len(churn.log)
    assert position == max(churn.log) + 1 == client.bounds(compacted)[1]


def test_what_a_cleaning_leaves_is_unchanged_and_at_its_offsets(
    client: Driver, others: list[Driver], kafka: str, calls: HttpCalls, compacted: str
) -> None:
    written = write_all_codecs(client, compacted, 40)
    clean_topic(calls, compacted)
    left = list(last_of_each_key(written).items())
    with Wire(kafka) as wire:
        cleaned = [header for header, _ in wire.log(compacted, 0) if has_lost_some(header)]
    assert {header.codec for header in cleaned} == set(CODECS.values())
    for driver in others:
        assert driver.read(compacted, count=len(left)) == left, type(driver).__name__
        assert driver.bounds(compacted) == (0, len(written))


def test_a_client_that_seeks_to_a_cleaned_offset_reads_on_behind_it(
    client: Driver, calls: HttpCalls, compacted: str
) -> None:
    written = {**write_all_codecs(client, compacted, 20)}
    clean_topic(calls, compacted)
    left = last_of_each_key(written)
    cleaned = [offset for offset in written if offset not in left and offset < max(left)]
    with reading(client, compacted, compacted) as reader:
        reader.poll(0.1)
        for offset in (cleaned[0], cleaned[len(cleaned) // 2], cleaned[-1]):
            reader.seek(offset)
            assert reader.position() == offset
            found = read_to(reader, max(left))
            assert found == [(place, message) for place, message in left.items() if place >= offset]


def test_a_group_that_committed_a_cleaned_offset_resumes_behind_it(
    client: Driver, calls: HttpCalls, compacted: str
) -> None:
    written = write_all_codecs(client, compacted, 40)
    with reading(client, compacted, compacted) as reader:
        found: list[tuple[int, Message]] = []
        def take() -> bool:
            found.extend(reader.poll(0.5))
            return len(found) > 5

        wait_until(take, "some records")
        at = found[-1][0] + 1
        assert reader.position() == at
        reader.commit()
    clean_topic(calls, compacted)
    left = last_of_each_key(written)
    assert at not in left
    assert at < max(left), "the offset committed was cleaned"
    assert client.committed(compacted, compacted) == {0: at}
    with reading(client, compacted, compacted) as reader:
        assert read_to(reader, max(left)) == [each for each in left.items() if each[0] >= at]
        reader.commit()
    assert client.committed(compacted, compacted) == {0: client.bounds(compacted)[1]}


def test_a_time_leads_to_the_next_record_that_is_left(client: Driver, calls: HttpCalls, compacted: str) -> None:
    written = write_all_codecs(client, compacted, 20)
    clean_topic(calls, compacted)
    left = last_of_each_key(written)
    for offset, message in written.items():
        if offset % 9 == 0:
            behind = [place for place in left if left[place].timestamp_ms >= message.timestamp_ms]
            assert client.offset_at(compacted, message.timestamp_ms) == behind[0]


def test_a_log_that_lost_its_last_records_has_its_end_and_takes_more(
    client: Driver, kafka: str, calls: HttpCalls, fresh_name: Callable[[], str]
) -> None:
    topic = fresh_name()
    with LibrdkafkaDriver(kafka) as driver:
        driver.create_topic(topic, config={**COMPACTED, "delete.retention.ms": "0"})
    kept = Message(b"1", b"kept", timestamp_ms=RECENT_MS)
    client.produce(topic, [kept, *(Message(b"2", b"gone") for _ in range(20)), Message(None, b"gone")])
    clean_topic(calls, topic)
    end = 1 if isinstance(client, LibrdkafkaDriver) else 22  # librdkafka's position is that behind the last record
    with reading(client, topic, topic) as reader:
        found: list[tuple[int, Message]] = []

        def take(position: int) -> bool:
            found.extend(reader.poll(0.5))
            return reader.position() == position

        wait_until(lambda: take(end), "all that is left is read")
        assert client.bounds(topic) == (0, 22)
        client.produce(topic, [kept])
        wait_until(lambda: take(23), "the record behind the gap")
        assert found == [(0, kept), (22, kept)]


def test_times_that_the_broker_gave_stay_when_a_log_is_cleaned(
    client: Driver, kafka: str, calls: HttpCalls, fresh_name: Callable[[], str]
) -> None:
    topic = fresh_name()
    with LibrdkafkaDriver(kafka) as driver:
        driver.create_topic(topic, config={**COMPACTED, "message.timestamp.type": "LogAppendTime"})
        written = write_all_codecs(driver, topic, 20)
        stored = dict(driver.read(topic, count=len(written)))
    assert min(message.timestamp_ms for message in stored.values()) > max(one.timestamp_ms for one in written.values())
    clean_topic(calls, topic)
    left = list(last_of_each_key(stored).items())
    assert client.read(topic, count=len(left)) == left
    assert client.offset_at(topic, left[0][1].timestamp_ms) == left[0][0]
