"""Decoding by a registry: what is asked of it, remembered and forgotten, and what it may cost."""

import socket
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from pqbroker.registry.decoding import ContentDecoder, TopicDecoders, topic_document
from pqbroker.registry.limits import DecodingLimits
from pqbroker.registry.named import NamedRegistry
from pqbroker.registry.properties_file import load_access
from pqbroker.registry.undecodable import Undecodable
from pqbroker.security.errors import SecurityError
from tests.support.schema_registry import TestRegistry, framed, serving


@pytest.fixture(scope="module")
def running() -> Iterator[TestRegistry]:
    with serving() as registry:
        yield registry


@pytest.fixture
def registry(running: TestRegistry) -> TestRegistry:
    running.is_down = False
    running.paths.clear()
    return running


def decoder(registry: TestRegistry, clock: Any = lambda: 0.0, **limits: Any) -> ContentDecoder:
    return ContentDecoder(NamedRegistry("main", registry.address), DecodingLimits(**limits), clock)


def code(decoder: ContentDecoder, content: bytes) -> str:
    with pytest.raises(Undecodable) as refused:
        decoder.decode(content)
    return refused.value.code


def test_references_are_fetched_each_once_and_before_what_needs_them(registry: TestRegistry) -> None:
    registry.add("cents", {"type": "record", "name": "Cents", "fields": [{"name": "n", "type": "long"}]})
    money = {"type": "record", "name": "Money", "fields": [{"name": "sum", "type": "Cents"}]}
    registry.add("money", money, references=[("Cents", "cents", 1)])
    fields = [{"name": "a", "type": "Money"}, {"name": "b", "type": "Cents"}]
    sale = {"type": "record", "name": "Sale", "fields": fields}
    number = registry.add("sale-value", sale, references=[("Money", "money", 1), ("Cents", "cents", 1)])
    found = decoder(registry).decode(framed(number, b"\x02\x04"))
    assert found.value == {"a": {"sum": {"n": 1}}, "b": {"n": 2}}
    assert len(registry.paths) == 3


def test_references_in_a_ring_end(registry: TestRegistry) -> None:
    registry.add("ring", '"int"', references=[("ring", "ring", 1)])
    number = registry.add("ring-value", '"int"', references=[("ring", "ring", 1)])
    assert decoder(registry).decode(framed(number, b"\x02")).value == 1


def test_a_failure_is_remembered_for_a_time(registry: TestRegistry) -> None:
    times = [0.0]
    one = decoder(registry, lambda: times[0], failure_ms=10_000)
    number = registry.add("late-value", '"long"')
    registry.is_down = True
    assert code(one, framed(number, b"\x02")) == code(one, framed(4_000_000, b"")) == "REGISTRY_UNAVAILABLE"
    assert len(registry.paths) == 1, "a registry that is down is not asked for each schema"
    registry.is_down = False
    times[0] = 9.9
    assert code(one, framed(number, b"\x02")) == "REGISTRY_UNAVAILABLE"
    times[0] = 10.0
    assert one.decode(framed(number, b"\x02")).value == 1
    assert code(one, framed(4_000_000, b"")) == code(one, framed(4_000_000, b"")) == "SCHEMA_UNKNOWN"
    assert len(registry.paths) == 3


def test_schemas_are_forgotten_beyond_the_limit(registry: TestRegistry) -> None:
    one = decoder(registry, schemas_max=2)
    numbers = [registry.add("many-value", '"long"') for _ in range(3)]
    for number in (numbers[0], numbers[1], numbers[0], numbers[2], numbers[0], numbers[1]):
        one.decode(framed(number, b"\x02"))
    asked = [int(path.rpartition("/")[2]) for path in registry.paths]
    assert asked == [numbers[0], numbers[1], numbers[2], numbers[1]]


def test_a_schema_of_too_many_bytes_is_refused_with_its_references(registry: TestRegistry) -> None:
    registry.add("part", '"int"' + " " * 600)
    number = registry.add("whole-value", '"int"' + " " * 600, references=[("part", "part", 1)])
    assert code(decoder(registry, schema_bytes_max=1024), framed(number, b"\x02")) == "SCHEMA_TOO_LARGE"


def test_an_unknown_kind_of_schema_is_refused(registry: TestRegistry) -> None:
    assert code(decoder(registry), framed(registry.add("x-value", "?", "THRIFT"), b"")) == "SCHEMA_INVALID"


def test_a_topic_shows_each_part_by_its_registry(registry: TestRegistry) -> None:
    number = registry.add("parts-value", '"long"')
    decoders = TopicDecoders(topic_document({"value": NamedRegistry("main", registry.address)}, DecodingLimits()))
    assert decoders.show("value", framed(number, b"\x02")) == {"schema": number, "type": "AVRO", "content": 1}
    assert decoders.show("key", framed(number, b"\x02")) is None
    assert decoders.show("value", None) is None


@pytest.mark.parametrize(
    "answer",
    [
        b"", b"HTTP/1.1 200 OK\r\n\r\n[]", b"HTTP/1.1 200 OK\r\n\r\n{", b"no HTTP\r\n\r\n",
        b"HTTP/1.1 302 Found\r\nLocation: http://127.0.0.1:1/\r\nContent-Length: 2\r\n\r\n{}",
        b"HTTP/1.1 200 OK\r\n\r\n" + b"[" * 10_000,
    ],
)  # fmt: skip
def test_an_answer_that_is_none_is_no_schema(answer: bytes) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        def serve() -> None:
            with server.accept()[0] as client:
                client.recv(65536)
                client.sendall(answer)

        thread = threading.Thread(target=serve)
        thread.start()
        one = ContentDecoder(NamedRegistry("main", f"http://127.0.0.1:{server.getsockname()[1]}"))
        assert code(one, framed(1, b"")) == "REGISTRY_UNAVAILABLE"
        thread.join()


def test_a_registry_that_answers_byte_by_byte_is_left_at_the_deadline() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        has_ended = threading.Event()

        def serve() -> None:
            with server.accept()[0] as client:
                client.recv(65536)
                client.sendall(b"HTTP/1.1 200 OK\r\nX: ")
                try:
                    while not has_ended.wait(0.01):
                        client.sendall(b"x")
                except OSError:
                    pass

        thread = threading.Thread(target=serve)
        thread.start()
        one = ContentDecoder(
            NamedRegistry("main", f"http://127.0.0.1:{server.getsockname()[1]}"), DecodingLimits(timeout_ms=200)
        )
        with pytest.raises(Undecodable, match=r"it did not answer within pqbroker\.registry\.timeout\.ms = 200"):
            one.decode(framed(1, b""))
        has_ended.set()
        thread.join()


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("basic.auth.user.info = nocolon", "has no colon"), ("colour = red", "unknown name colour"),
        ("basic.auth.user.info = a:b\nbearer.auth.token = c", "has both"),
        ("bearer.auth.token = a\\u000ab", "letters that no header may have"),
    ],
)  # fmt: skip
def test_a_file_of_properties_that_is_wrong_is_named_without_its_secrets(text: str, why: str, tmp_path: Path) -> None:
    file = tmp_path / "registry.properties"
    file.write_text(text)
    with pytest.raises(SecurityError, match=why) as refused:
        load_access(str(file))
    assert "nocolon" not in str(refused.value)
