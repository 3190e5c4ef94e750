"""`pqbroker consume --json | pqbroker produce --json`: exact copies of records, and lines that are no records."""

import json
import random
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from aiokafka import ConsumerRecord
from hypothesis import given
from hypothesis import strategies as st

from pqbroker.cli.kafka.link import Link
from pqbroker.cli.records.formats import parse_form
from pqbroker.cli.records.lines import LineError, NewRecord, json_lines
from pqbroker.conf.addresses import parse_address
from pqbroker.protocol.messages.produce import (
    PartitionProduceData,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
)
from pqbroker.protocol.records import Record, decode_records, encode_batch
from tests.cli.shell import Shell
from tests.support.wire import Wire

NAMES_VERSION_MAX = 12
CONTENTS = st.none() | st.binary(max_size=20) | st.text(max_size=10).map(str.encode)
HEADERS = st.lists(st.tuples(st.text(max_size=5), CONTENTS), max_size=3)


def read(record: NewRecord) -> ConsumerRecord[bytes | None, bytes | None]:
    """As aiokafka returns it."""
    return ConsumerRecord(
        "t", 3, 7, record.timestamp, 0, record.key, record.value, None, 0, 0, tuple(record.headers)
    )  # fmt: skip


@given(st.builds(NewRecord, CONTENTS, CONTENTS, HEADERS, st.just(3), st.integers(-1, 1 << 62)))
def test_what_is_printed_as_json_is_read_as_it_was(record: NewRecord) -> None:
    line = parse_form("json")(read(record))
    assert b"\n" not in line
    assert json_lines([])(line) == record


def random_records(chance: random.Random) -> Iterator[Record]:
    contents = [None, b"", b"\xff", b"\\xff", b"a\r", b"line\nline", "\u2028ü".encode(), b"\x1b[31m", b'{"a": 1}']
    for _ in range(300):
        headers = [(chance.choice(["", "h", "ü"]), chance.choice(contents)) for _ in range(chance.randrange(3))]
        key, value = chance.choice(contents), chance.choice([*contents, chance.randbytes(40)])
        yield Record(0, chance.choice([-1, 0, 1, 1_700_000_000_000]), key, value, tuple(headers))


def write(address: str, topic: str, partition: int, records: list[Record]) -> None:
    data = PartitionProduceData(index=partition, records=memoryview(encode_batch(records)))
    request = ProduceRequest(acks=-1, timeout_ms=1000, topic_data=[TopicProduceData(name=topic, partition_data=[data])])
    link = Link(parse_address(address), 5, 5)
    answer = link.ask(request, ProduceResponse, NAMES_VERSION_MAX)
    link.close()
    assert answer.responses[0].partition_responses[0].error_code == 0


def stored(address: str, topic: str, partition: int) -> list[Record]:
    with Wire(address) as wire:
        return [record for _, batch in wire.log(topic, partition) for record in decode_records(batch)]


@pytest.mark.parametrize("seed", range(3))
def test_a_copy_is_equal_byte_for_byte(our_shell: Shell, fresh_name: Callable[[], str], seed: int) -> None:
    kafka, original, copy = our_shell.kafka, fresh_name(), fresh_name()
    for name in (original, copy):
        assert our_shell("topic", "create", name, "--partitions", "3").status == 0
    chance = random.Random(seed)
    for partition in range(3):
        write(kafka, original, partition, list(random_records(chance)))
    command = f"{sys.executable} -P -m pqbroker"
    pipe = f"{command} consume --json {original} -b {kafka} | {command} produce --json {copy} -b {kafka}"
    done = subprocess.run(["sh", "-c", pipe], capture_output=True, text=True)
    assert (done.returncode, done.stdout) == (0, ""), done.stderr
    assert json.loads(done.stderr)["records"] == 900
    for partition in range(3):
        assert stored(kafka, copy, partition) == stored(kafka, original, partition)


def test_a_line_may_hold_a_json_document_and_old_headers_and_no_more_than_a_value(
    our_shell: Shell, fresh_name: Callable[[], str], tmp_path: Path
) -> None:
    topic, file = fresh_name(), tmp_path / "lines"
    document = '{"value": {"json": {"id": 7, "name": "ü"}}, "headers": [["h", "1"]]}'
    file.write_text(f'{document}\n\n{{"value": null, "key": "k"}}')
    said = our_shell("produce", topic, "--json", "--file", str(file), "--header", "g=2")
    assert (said.status, said.output) == (0, "")
    first, second = our_shell("consume", topic, "--json").objects
    assert (first["key"], first["value"]) == (None, '{"id":7,"name":"ü"}')
    assert first["headers"] == [{"key": "h", "value": "1"}, {"key": "g", "value": "2"}]
    assert (second["key"], second["value"]) == ("k", None)


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("text", "is no JSON: "),
        ("[1]", "it is no object; give"),
        ("{}", "it has no value"),
        ('{"value": 7}', "value is neither text nor null"),
        ('{"value": {"base64": "?"}}', "value.base64 is no base64"),
        ('{"value": "", "key": {"base64": 1}}', "key.base64 is no base64"),
        ('{"value": "\\ud800"}', "value is no text"),
        ('{"value": "", "keys": "k"}', "unknown field 'keys'; did you mean key?"),
        ('{"value": "", "partition": -1}', "partition is -1; give a whole number"),
        ('{"value": "", "timestamp": true}', "timestamp is True; give a whole number"),
        ('{"value": "", "headers": {"h": 1}}', "headers is no list"),
        ('{"value": "", "headers": ["h"]}', "headers[0] is no header"),
    ],
)
def test_a_line_that_is_no_record_is_refused(line: str, words: str) -> None:
    with pytest.raises(LineError, match="is no") as refused:
        json_lines([])(line.encode())
    assert words in str(refused.value)


def test_a_partition_that_the_copy_does_not_have_is_named_with_its_line(
    our_shell: Shell, fresh_name: Callable[[], str], tmp_path: Path
) -> None:
    topic, file = fresh_name(), tmp_path / "lines"
    our_shell("topic", "create", topic)
    file.write_text('{"value": "a", "partition": 0}\n{"value": "b", "partition": 5}\n')
    refused = our_shell("produce", topic, "--json", "--file", str(file))
    assert (refused.status, refused.output) == (1, "")
    assert refused.errors.startswith(f"pqbroker: line 2 names partition 5, but topic {topic} has 1; ")
    assert our_shell("produce", topic, "--json", "--file", str(file), "--partition", "0").status == 0
    assert our_shell("consume", topic).output == "a\na\nb\n"
