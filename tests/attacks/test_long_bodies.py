"""Bodies of HTTP requests that are small as text and large as rows: they are counted before they become either."""

import http.client
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest

from pqbroker.broker.web.routing.stream_forms import ARROW_STREAM
from tests.broker.web.test_arrow_rows import stream
from tests.support.attacked import TURN_EVER_S_MAX, Attacked, attacked
from tests.support.cpu_time import slowness

MIB = 1 << 20
BODY_BYTES = 2 * MIB
LINES = "application/x-ndjson"
JSON = "application/json"
ROWS = "/v1/tables/t/rows"
RECORDS = "/v1/topics/other/records"
AT_ONCE = 4
LIMIT = "pqbroker.http.body.objects.max"


def repeated(item: bytes, start: bytes = b"", end: bytes = b"", size: int = BODY_BYTES) -> bytes:
    return start + item * ((size - len(start) - len(end)) // len(item)) + end


NESTED = b"[" * 200 + b"]" * 200
ABOVE = {
    "lines of {}": (ROWS, LINES, repeated(b"{}\n")),
    "lines of []": (ROWS, LINES, repeated(b"[]\n")),
    "lines of nested arrays": (ROWS, LINES, repeated(NESTED + b"\n")),
    "an array of {}": (ROWS, JSON, repeated(b"{},", b'{"rows":[', b"{}]}")),
    "an array of []": (ROWS, JSON, repeated(b"[],", b'{"rows":[', b"{}]}")),
    "an array of nested arrays": (ROWS, JSON, repeated(NESTED + b",", b'{"rows":[', b"{}]}")),
    "a row of arrays": (ROWS, LINES, repeated(b"[],", b'{"b":[', b"[]]}")),
    "staged rows": ("/v1/tables/t/staged-rows?session=s&sequence=1", LINES, repeated(b"{}\n")),
    "records": (RECORDS, JSON, repeated(b"{},", b'{"records":[', b"{}]}")),
    "a record of arrays": (RECORDS, JSON, repeated(b"[],", b'{"records":[{"value":{"json":[', b"[]]}}]}")),
    "a query": ("/v1/sql", JSON, repeated(b"[],", b'{"query":[', b"[]]}")),
    "a schema": ("/v1/tables", JSON, repeated(b"{},", b'{"path":"//x","schema":[', b"{}]}")),
    "offsets of a group": ("/v1/groups/g/offsets", JSON, repeated(b"{},", b'{"offsets":[', b"{}]}")),
    "what brackets in texts hide": (ROWS, JSON, repeated(b'{"":"]}\\"["},', b'{"rows":[', b"{}]}", 4 * MIB)),
}
"""Path, content type, body: more objects and arrays than may be."""
BELOW_BYTES = 599_000
BELOW = {
    "lines of {}": (ROWS, LINES, repeated(b"{}\n", size=BELOW_BYTES)),
    "an array of {}": (ROWS, JSON, repeated(b"{},", b'{"rows":[', b"{}]}", BELOW_BYTES)),
    "rows of one field": (ROWS, LINES, repeated(b'{"a":1234}\n', size=BODY_BYTES)),
    "a row of arrays": (ROWS, LINES, repeated(b"[],", b'{"b":[', b"[]]}", BELOW_BYTES)),
    "rows of no objects": (ROWS, LINES, repeated(b"1\n")),
    "empty lines": (ROWS, LINES, repeated(b"\n")),
    "numbers": (ROWS, JSON, repeated(b"1,", b'{"rows":[{"b":[', b"1]}]}")),
    "texts": (ROWS, JSON, repeated(b'"ab",', b'{"rows":[{"b":[', b'""]}]}')),
    "fields": (ROWS, JSON, repeated(b'"":1,', b'{"rows":[{', b'"a":1}]}')),
}
"""As much as is parsed."""


@dataclass(slots=True)
class Cost:
    """Seconds of CPU time, as an ordinary core takes them, and bytes by which the process has grown at most."""

    cpu_s: float = 0.0
    bytes: int = 0


@contextmanager
def cost(node: Attacked) -> Iterator[Cost]:
    Path(f"/proc/{node.broker.pid}/clear_refs").write_text("5", encoding="ascii")  # the peak begins again
    slow, cpu_s, rss_bytes, found = slowness(), node.cpu_s(), node.rss_bytes(), Cost()
    yield found
    found.cpu_s, found.bytes = node.cpu_s() - cpu_s, node.rss_bytes("VmHWM") - rss_bytes
    found.cpu_s /= max(slow, slowness())


def post(node: Attacked, path: str, content_type: str, body: bytes) -> tuple[int, str]:
    """The status and the text."""
    connection = http.client.HTTPConnection(node.broker.http, timeout=60)
    connection.request("POST", path, body, {"Content-Type": content_type})
    answer = connection.getresponse()
    found = answer.status, answer.read().decode()
    connection.close()
    return found


def at_once(node: Attacked, path: str, content_type: str, body: bytes) -> list[tuple[int, str]]:
    """The answers to `AT_ONCE` times the same."""
    found: list[tuple[int, str]] = []
    threads = [
        threading.Thread(target=lambda: found.append(post(node, path, content_type, body))) for _ in range(AT_ONCE)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return found


@pytest.fixture(scope="module")
def node() -> Iterator[Attacked]:
    with attacked({"pqbroker.http.body.bytes.max": str(4 * MIB)}, turn_s_max=TURN_EVER_S_MAX) as running:
        running.create("other", 1)
        table = b'{"path": "//t", "schema": [{"name": "a", "type": "int64"}, {"name": "b", "type": "any"}]}'
        assert post(running, "/v1/tables", JSON, table)[0] == 201
        assert post(running, ROWS, LINES, b'{"a": 1}\n')[0] == 200
        yield running


@pytest.mark.parametrize("name", ABOVE)
def test_more_objects_than_the_limit_are_refused_at_once(node: Attacked, name: str) -> None:
    with cost(node) as found:
        for status, text in at_once(node, *ABOVE[name]):
            assert status == 413, text
            assert LIMIT in text
    print(found)
    assert found.cpu_s < 2.0, found
    assert found.bytes < 48 * MIB, found


@pytest.mark.parametrize("name", BELOW)
def test_as_many_as_the_limit_cost_little_and_four_at_once_no_more_memory(node: Attacked, name: str) -> None:
    path, content_type, body = BELOW[name]
    with cost(node) as found:
        assert post(node, path, content_type, body)[0] in {200, 400, 413}
    print(found)
    assert found.cpu_s < 3.0, found
    assert found.bytes < 96 * MIB, found
    with cost(node) as found:
        for status, text in at_once(node, path, content_type, body):
            assert status in {200, 400, 413}, text
    print(found)
    assert found.bytes < 160 * MIB, found


def test_rows_in_arrow_cost_the_broker_nothing_but_their_bytes(node: Attacked) -> None:
    body = stream(a=[1] * 250_000)
    with cost(node) as found:
        for status, text in at_once(node, ROWS, ARROW_STREAM, body):
            assert status == 413, text
            assert "max.message.bytes" in text
    print(found)
    assert found.cpu_s < 1.0, found
    assert found.bytes < 48 * MIB, found
