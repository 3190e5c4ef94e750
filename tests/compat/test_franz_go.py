"""franz-go reads compacted topics while their logs are cleaned, and behind a cleaning."""

import pytest

from pqbroker.fixture.http_calls import HttpCalls
from tests.compat.churn import END, Churn, Log, last_of_each_key, write_all_codecs
from tests.support.cleaning import clean_topic
from tests.support.drivers.driver import Message
from tests.support.drivers.franz_go_driver import BUILD_TIMEOUT_S, FranzGoDriver
from tests.support.drivers.librdkafka_driver import LibrdkafkaDriver
from tests.support.serving import is_ours

pytestmark = [
    pytest.mark.skipif(not is_ours(), reason="only our broker cleans on command"),
    pytest.mark.timeout(BUILD_TIMEOUT_S + 120),
]


@pytest.fixture
def franz_go(kafka: str) -> FranzGoDriver:
    return FranzGoDriver(kafka)


@pytest.fixture
def other(kafka: str) -> LibrdkafkaDriver:
    return LibrdkafkaDriver(kafka)


def write_to_end(other: LibrdkafkaDriver, topic: str, count: int) -> Log:
    """Write batches of all codecs and the record at which the program ends; return what was written by offset."""
    written = write_all_codecs(other, topic, count)
    end = Message(b"", END)
    (offset,) = other.produce(topic, [end])
    return {**written, offset: end}


def test_franz_go_reads_through_cleaning_and_misses_no_last_value(
    franz_go: FranzGoDriver, other: LibrdkafkaDriver, calls: HttpCalls, compacted: str
) -> None:
    with Churn(calls, compacted, write_all_codecs(other, compacted, 60)) as churn:
        found = franz_go.read_to_end(compacted, offset=0)
    offsets = [offset for offset, _ in found]
    assert offsets == sorted(set(offsets))
    assert all(churn.log[offset] == message for offset, message in found)
    last = last_of_each_key(churn.log)
    assert {offset: message for offset, message in found if offset in last} == last


def test_franz_go_reads_what_a_cleaning_leaves_from_any_offset(
    franz_go: FranzGoDriver, other: LibrdkafkaDriver, calls: HttpCalls, compacted: str
) -> None:
    written = write_to_end(other, compacted, 40)
    clean_topic(calls, compacted)
    left = last_of_each_key(written)
    for offset in (0, 50, max(left)):
        assert franz_go.read_to_end(compacted, offset=offset) == [each for each in left.items() if each[0] >= offset]


def test_franz_go_resumes_where_its_group_committed_a_cleaned_offset(
    franz_go: FranzGoDriver, other: LibrdkafkaDriver, calls: HttpCalls, compacted: str
) -> None:
    written = write_to_end(other, compacted, 20)
    reader = other.reader(compacted, compacted)
    reader.seek(40)
    reader.commit()
    reader.close()
    clean_topic(calls, compacted)
    left = last_of_each_key(written)
    assert 40 not in left
    found = franz_go.read_to_end(compacted, group=compacted)
    assert found == [each for each in left.items() if each[0] >= 40]
    assert other.committed(compacted, compacted) == {0: max(left) + 1}
