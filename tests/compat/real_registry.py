"""`python -m tests.compat.real_registry`: topics of a broker by the schemas of Apicurio's registry, in three formats at
every door. Maven fetches the registry into `.cache/` once."""

import contextlib
import json
import re
import subprocess
import sys
import tarfile
import tempfile
import urllib.request
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Final

from confluent_kafka import Producer

from pqbroker.client import Client
from pqbroker.testing import Broker, broker
from tests.registry.test_values import PROTO, REFERENCES, TREE, avro
from tests.support.schema_registry import framed
from tests.support.waiting import wait_until

VERSION: Final = "2.6.13.Final"
"""The last one that runs on Java 17."""
_CACHE: Final = Path(__file__).resolve().parents[2] / ".cache"
_ARTIFACT: Final = f"io.apicurio:apicurio-registry-app:{VERSION}:tar.gz:all"
_COPY: Final = "org.apache.maven.plugins:maven-dependency-plugin:3.8.1:copy"
_LISTENS: Final = re.compile(r"Listening on: (http://\S+)")
_LEAF: Final = {"id": 1, "note": "ü", "ratio": 1.5, "is_leaf": True, "kind": "B", "scores": {"a": 1}, "children": []}
MONEY: Final = {"type": "record", "name": "Money", "namespace": "x", "fields": [{"name": "cents", "type": "long"}]}
SALE: Final = {"type": "record", "name": "Sale", "namespace": "x", "fields": [{"name": "sum", "type": "Money"}]}


def main() -> None:
    with (
        tempfile.TemporaryDirectory() as place,
        _registry(Path(place)) as address,
        broker(settings={"pqbroker.registries": f"main={address}"}) as running,
    ):
        topics = sum(_check(running, address, *each) for each in _topics(address))
    print(f"Apicurio {VERSION}: {topics} topics of three formats, decoded over HTTP, in SQL, by consume and export")


def _topics(address: str) -> Iterator[tuple[str, bytes, Any, str, Any]]:
    """Yield topic, value, the value as JSON, a query's expression and its result."""
    tree = _register(address, "tree-value", json.dumps(TREE))
    parent = {**_LEAF, "children": [_LEAF]}
    yield "tree", framed(tree, avro(TREE, parent)), parent, "note", "ü"
    _register(address, "money", json.dumps(MONEY))
    sale = _register(address, "sale-value", json.dumps(SALE), "AVRO", [("x.Money", "money", 1)])
    yield "sale", framed(sale, b"\x0e"), {"sum": {"cents": 7}}, "CAST(sum->>'cents' AS INTEGER)", 7
    _register(address, "other.proto", REFERENCES["other.proto"], "PROTOBUF")
    order = _register(address, "order-value", PROTO, "PROTOBUF", [("other.proto", "other.proto", 1)])
    empty: dict[str, Any] = {
        "name": None, "items": [], "counts": {}, "card": None, "cash": None, "kind": "A", "at": None, "ref": None,
    }  # fmt: skip
    shown = {"id": 5, **empty, "raw": "", "wrapped": None, "ratio": 0.0}
    yield "order", framed(order, b"\0\x08\x05"), shown, "id", 5
    text = json.dumps({"type": "object", "properties": {"id": {"type": "integer"}, "tags": {"type": "array"}}})
    document = _register(address, "document-value", text, "JSON")
    yield "document", framed(document, b'{"id":9,"tags":["a"]}'), {"id": 9, "tags": ["a"]}, "id", 9


def _check(running: Broker, address: str, topic: str, *expected: Any) -> int:
    value, shown, expression, result = expected
    _command(running, "topic", "create", topic, "--config", "value.registry=main")
    producer = Producer({"bootstrap.servers": running.kafka})
    producer.produce(topic, value)
    assert producer.flush(30) == 0
    records = _get(f"http://{running.http}/v1/topics/{topic}/records")["records"]
    assert [each["decoded"]["value"]["content"] for each in records] == [shown], records
    with Client(running.http) as client:
        assert client.sql(f'SELECT {expression} AS x FROM "{topic}"').rows() == [{"x": result}]
    assert json.loads(_command(running, "consume", topic, "--registry", address)) == shown
    with tempfile.TemporaryDirectory() as place:
        file = Path(place) / "rows.jsonl"
        _command(running, "topic", "export", topic, str(file), "--registry", address)
        assert json.loads(json.loads(file.read_text(encoding="utf-8"))["value"]) == shown
    print(f"{topic}: {shown}", flush=True)
    return 1


def _command(running: Broker, *words: str) -> str:
    command = [sys.executable, "-m", "pqbroker", *words, "--broker", running.kafka]
    return subprocess.run(command, check=True, capture_output=True, text=True, timeout=60).stdout


def _register(
    address: str, subject: str, schema: str, kind: str = "AVRO", references: Sequence[tuple[str, str, int]] = ()
) -> int:
    named = [dict(zip(("name", "subject", "version"), each, strict=True)) for each in references]
    body = json.dumps({"schema": schema, "schemaType": kind, "references": named}).encode()
    headers = {"Content-Type": "application/json"}
    return int(_get(urllib.request.Request(f"{address}/subjects/{subject}/versions", body, headers))["id"])


def _get(asked: str | urllib.request.Request) -> Any:
    with urllib.request.urlopen(asked, timeout=30) as answer:
        return json.load(answer)


@contextlib.contextmanager
def _registry(place: Path) -> Iterator[str]:
    """The address of a registry that keeps its schemas in memory."""
    log = place / "log"
    command = ["java", "-Xmx400m", "-Dquarkus.http.port=0", "-Dquarkus.http.host=127.0.0.1", "-jar", str(_jar())]
    with log.open("wb") as output, subprocess.Popen(command, cwd=place, stdout=output, stderr=output) as running:
        try:
            wait_until(
                lambda: running.poll() is not None or _LISTENS.search(log.read_text(errors="replace")),
                "the registry listens", 120.0,
            )
            found = _LISTENS.search(log.read_text(errors="replace"))
            assert found is not None, log.read_text(errors="replace")[-2000:]
            yield f"{found[1]}/apis/ccompat/v7"
        finally:
            running.terminate()


def _jar() -> Path:
    directory = _CACHE / f"apicurio-{VERSION}"
    if not directory.exists():
        _CACHE.mkdir(exist_ok=True)
        with tempfile.TemporaryDirectory(dir=_CACHE) as fresh:
            subprocess.run(
                ["mvn", "-q", "-B", _COPY, f"-Dartifact={_ARTIFACT}", f"-DoutputDirectory={fresh}"], check=True
            )
            (archive,) = Path(fresh).glob("*.tar.gz")
            with tarfile.open(archive) as packed:
                packed.extractall(Path(fresh) / "whole", filter="data")
            (Path(fresh) / "whole").rename(directory)
    (jar,) = directory.glob("*-runner.jar")
    return jar


if __name__ == "__main__":
    main()
