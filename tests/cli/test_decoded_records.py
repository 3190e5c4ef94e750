"""`consume` and `topic export` with a schema registry, at any broker."""

import io
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import fastavro
import pytest

from pqbroker.testing import memory_broker
from tests.cli.shell import Shell
from tests.support.schema_registry import TestRegistry, framed, serving

ORDER: dict[str, Any] = {"type": "record", "name": "Order", "fields": [{"name": "id", "type": "long"}]}


@pytest.fixture
def registry() -> Iterator[TestRegistry]:
    with serving() as running:
        yield running


def order(number: int) -> bytes:
    content = io.BytesIO()
    fastavro.schemaless_writer(content, fastavro.parse_schema(ORDER), {"id": number})
    return content.getvalue()


def written(shell: Shell, topic: str, tmp_path: Path, *values: bytes) -> None:
    file = tmp_path / "values.bin"
    file.write_bytes(b"\n".join(values))
    said = shell("produce", topic, "--file", str(file), "--partition", "0")
    assert said.status == 0, said.errors


def test_values_become_json_for_lines_and_filters(
    shell: Shell, topic: str, tmp_path: Path, registry: TestRegistry
) -> None:
    number = registry.add("orders-value", ORDER)
    written(shell, topic, tmp_path, framed(number, order(1)), framed(number, order(70)), b"plain", framed(99, b""))
    said = shell("consume", topic, "--registry", registry.address)
    assert said.output.encode("utf-8", "surrogateescape") == b'{"id":1}\n{"id":70}\nplain\n' + framed(99, b"") + b"\n"
    assert "records stay as they are: the registry" in said.errors
    assert "/schemas/ids/99" in said.errors
    chosen = shell("consume", topic, "--registry", registry.address, "--where", "id>1", "--json")
    assert [each["value"] for each in chosen.objects] == ['{"id":70}']


def test_an_export_has_the_same_json(
    our_shell: Shell, fresh_name: Any, tmp_path: Path, registry: TestRegistry
) -> None:
    topic, file = fresh_name(), tmp_path / "orders.jsonl"
    assert our_shell("topic", "create", topic).status == 0
    written(our_shell, topic, tmp_path, framed(registry.add("orders-value", ORDER), order(3)))
    said = our_shell("topic", "export", topic, str(file), "--registry", registry.address)
    assert said.status == 0, said.errors
    assert json.loads(file.read_text())["value"] == '{"id":3}'


def test_a_broker_that_searches_decodes_by_the_registry_of_the_topic(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, registry: TestRegistry
) -> None:
    with memory_broker({"pqbroker.registries": f"main={registry.address}"}) as running:
        shell = Shell(running.kafka, capsys)
        assert shell("topic", "create", "orders", "--config", "value.registry=main").status == 0
        number = registry.add("orders-value", ORDER)
        written(shell, "orders", tmp_path, framed(number, order(1)), framed(number, order(70)), b'{"id": 8}')
        said = shell("consume", "orders", "--where", "id > 5")
        assert (said.status, said.output) == (0, '{"id":70}\n{"id": 8}\n')
        assert "records of orders that were not decoded: 1; the first because the content does not" in said.errors
        assert shell("consume", "orders", "--grep", '"id":7').output == '{"id":70}\n'
        (found,) = shell("consume", "orders", "--grep", "/:1}$/", "--json").objects
        assert (found["offset"], found["value"]) == (0, '{"id":1}')


def test_credentials_come_from_a_file(
    our_shell: Shell, fresh_name: Any, tmp_path: Path, registry: TestRegistry
) -> None:
    topic, file = fresh_name(), tmp_path / "registry.properties"
    assert our_shell("topic", "create", topic).status == 0
    registry.authorization = "Bearer abc"
    written(our_shell, topic, tmp_path, framed(registry.add("orders-value", ORDER), order(3)))
    file.write_text("bearer.auth.token = abc")
    assert our_shell("consume", topic, "--registry", registry.address).errors.count("it answered 401") == 1
    options = ["--registry", registry.address, "--registry-config", str(file)]
    assert our_shell("consume", topic, *options).output == '{"id":3}\n'
    assert our_shell("consume", topic, "--registry", "http://me:pw@localhost").status == 2
    assert our_shell("consume", topic, "--registry-config", str(file)).status == 2
    refused = our_shell("consume", topic, *options[:3], str(tmp_path / "none"))
    assert (refused.status, refused.output) == (2, "")
    assert f"--registry-config: cannot read {tmp_path / 'none'}: No such file" in refused.errors
