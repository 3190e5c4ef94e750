"""kcat writes, reads and lists; compressed when told so."""

import json
import random
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.support.drivers.driver import RECENT_MS, Driver, Message
from tests.support.drivers.librdkafka_driver import LibrdkafkaDriver
from tests.support.wire import CODECS, Wire

TIMEOUT_S = 30
LINES = [f"line {number} of some that compress well, well, well" for number in range(50)]


@pytest.fixture
def kcat(kafka: str) -> Callable[..., str]:
    """Runs kcat against the broker and returns its standard output; whatever it complains of fails the test."""
    program = shutil.which("kcat")
    assert program, "kcat is missing; install it (on Debian: apt-get install kcat)"

    def run(*arguments: str | Path, stdin: str = "", output: str = "stdout") -> str:
        done = subprocess.run(
            [program, "-b", kafka, "-X", "broker.address.family=v4", *map(str, arguments)],
            input=stdin, capture_output=True, text=True, timeout=TIMEOUT_S, check=False,
        )  # fmt: skip
        assert done.returncode == 0, done.stderr
        return str(getattr(done, output))

    return run


@pytest.fixture
def reader(kafka: str) -> Driver:
    """Another client, to check what kcat wrote and write what it reads."""
    return LibrdkafkaDriver(kafka)


@pytest.mark.parametrize("codec", CODECS)
def test_kcat_compresses_as_told(kcat: Callable[..., str], kafka: str, topic: str, codec: str) -> None:
    produce = ["-P", "-t", topic, "-p", "0", "-z", codec, "-X", "linger.ms=100", "-X", "debug=msg"]
    log = kcat(*produce, stdin="\n".join(LINES), output="stderr")
    assert "not compressing" not in log
    with Wire(kafka) as wire:
        assert {header.codec for header, _ in wire.log(topic, 0)} == {CODECS[codec]}
    assert kcat("-C", "-t", topic, "-p", "0", "-o", "beginning", "-e", "-q").splitlines() == LINES


def test_kcat_writes_keys_headers_and_tombstones(kcat: Callable[..., str], reader: Driver, topic: str) -> None:
    produce = ["-P", "-t", topic, "-p", "0", "-Z", "-K:", "-H", "source=kcat", "-X", "enable.idempotence=true"]
    kcat(*produce, stdin="one:first\ntwo:\nthree:third")
    found = [message for _, message in reader.read(topic, count=3)]
    assert [(message.key, message.value) for message in found] == [
        (b"one", b"first"), (b"two", None), (b"three", b"third")
    ]  # fmt: skip
    assert all(message.headers == (("source", b"kcat"),) for message in found)


def test_kcat_reads_keys_headers_times_and_tombstones(kcat: Callable[..., str], reader: Driver, topic: str) -> None:
    reader.produce(topic, [Message(b"value", b"key", (("a", b"1"), ("b", b"2"))), Message(None, b"gone")])
    lines = kcat("-C", "-t", topic, "-p", "0", "-o", "beginning", "-e", "-q", "-J").splitlines()
    first, second = map(json.loads, lines)
    assert (first["key"], first["payload"], first["headers"]) == ("key", "value", ["a", "1", "b", "2"])
    assert (first["offset"], first["ts"]) == (0, RECENT_MS)
    assert (second["key"], second["payload"], second["offset"]) == ("gone", None, 1)


def test_kcat_reads_from_an_offset_from_the_end_and_from_a_time(
    kcat: Callable[..., str], reader: Driver, topic: str
) -> None:
    reader.produce(topic, [Message(b"%d" % number, timestamp_ms=RECENT_MS + number) for number in range(10)])
    read = ["-C", "-t", topic, "-p", "0", "-e", "-q"]
    assert kcat(*read, "-o", "7").split() == ["7", "8", "9"]
    assert kcat(*read, "-o", "-2").split() == ["8", "9"]
    assert kcat(*read, "-o", f"s@{RECENT_MS + 6}").split() == ["6", "7", "8", "9"]


def test_kcat_asks_for_offsets_by_time(kcat: Callable[..., str], reader: Driver, topic: str) -> None:
    reader.produce(topic, [Message(b"%d" % number, timestamp_ms=RECENT_MS + number) for number in range(10)])
    assert kcat("-Q", "-t", f"{topic}:0:{RECENT_MS + 4}").strip() == f"{topic} [0] offset 4"


def test_kcat_carries_a_million_bytes(kcat: Callable[..., str], topic: str, tmp_path: Path) -> None:
    text = "".join(random.Random(3).choices("0123456789abcdef", k=1_000_000))
    file = tmp_path / "large"
    file.write_text(text)
    kcat("-P", "-t", topic, "-p", "0", "-X", "message.max.bytes=1048588", file)
    assert kcat("-C", "-t", topic, "-p", "0", "-o", "beginning", "-e", "-q") == text + "\n"


def test_kcat_lists_topics_and_partitions(
    kcat: Callable[..., str], reader: Driver, kafka: str, fresh_name: Callable[[], str]
) -> None:
    name = fresh_name()
    reader.create_topic(name, partitions=3)
    reader.produce(name, [Message(b"makes sure that the topic is there")], partition=2)
    listed = json.loads(kcat("-L", "-J"))
    assert [broker["name"] for broker in listed["brokers"]] == [kafka]
    partitions = {topic["topic"]: topic["partitions"] for topic in listed["topics"]}[name]
    assert [partition["partition"] for partition in partitions] == [0, 1, 2]
    assert all(partition["leader"] == listed["brokers"][0]["id"] for partition in partitions)
