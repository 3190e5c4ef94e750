"""docs/on-disk.md is true of sorted tablets: a directory with two is taken apart by it, and each key has a name."""

import re
from pathlib import Path
from typing import Any
from urllib.request import urlopen

import pytest

from pqbroker.fixture.http_calls import BrokerRefusedError, HttpCalls
from pqbroker.storage.disk.offline import look_into
from pqbroker.storage.engine import BlobKey
from pqbroker.testing import broker
from tests.support.on_disk import explain_row
from tests.support.on_disk_page import PAGE, index_rows
from tests.support.sorted_on_disk import RECORD_FACTS, explain_tablet

pytestmark = pytest.mark.spec("C.2")
SCHEMA = [
    {"name": "id", "type": "int64", "sort_order": "ascending", "required": True},
    {"name": "text", "type": "utf8"}, {"name": "price", "type": "double"},
]  # fmt: skip
TYPES = ["utf8", "double"]
TABLE = "/v1/tables/books"
ROWS = 2000
SORTED = 5
ATTRIBUTES = {
    "min_partition_data_size": 4_000, "desired_partition_data_size": 8_000, "max_partition_data_size": 12_000,
    "min_partitioning_data_size": 2_000, "min_data_ttl": 0, "max_data_ttl": 0,
}  # fmt: skip


@pytest.fixture(scope="module")
def directory(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A stopped broker's, after a flush, a compaction or partitioning, and further writes."""
    path = tmp_path_factory.mktemp("sorted") / "data"
    with broker(path, {"pqbroker.ballast.bytes": "0"}) as node:
        calls = HttpCalls(lambda: node.http)
        new = {"path": "//books", "schema": SCHEMA, "attributes": ATTRIBUTES, "pivot_keys": [[], [ROWS // 2]]}
        calls.ask("POST", "/v1/tables", new)
        for _ in range(3):
            insert(calls, range(ROWS))
            for verb in ("freeze", "unfreeze"):
                calls.ask("POST", f"{TABLE}/{verb}", {})
        while any(tablet["statistics"]["partition_count"] < 2 for tablet in tablets(calls)):
            pass
        while not all(is_cleaned(calls, number) for number in (0, ROWS - 1)) or runs_tasks(node.http):
            pass
        insert(calls, range(ROWS))
        calls.ask("DELETE", f"{TABLE}/rows", {"keys": [{"id": number} for number in range(5)]})
        calls.ask("POST", f"{TABLE}/rows?update=true", {"rows": [{"id": 7, "price": 1.5}]})
    return path


def insert(calls: HttpCalls, numbers: range) -> None:
    rows = [{"id": number, "text": f"{number * 7919 % 10007:x}" * 8, "price": None} for number in numbers]
    calls.ask("POST", f"{TABLE}/rows", {"rows": rows})


def runs_tasks(address: str) -> bool:
    """Return True while a merge is under way: the tablet has facts once it ends."""
    with urlopen(f"http://{address}/metrics") as answer:
        text = answer.read().decode()
    return any(float(count) > 0 for count in re.findall(r"^pqbroker_sorted_tasks_under_way\{.*\} (\S+)$", text, re.M))


def is_cleaned(calls: HttpCalls, number: int) -> bool:
    """Return True if a merge cleans the tablet of a row, or has."""
    try:
        calls.ask("POST", f"{TABLE}/lookup", {"keys": [{"id": number}], "timestamp": 1})
    except BrokerRefusedError as refusal:
        return refusal.code == "TIMESTAMP_TOO_OLD"
    return False


def tablets(calls: HttpCalls) -> Any:
    return calls.ask("GET", f"{TABLE}/tablets")["tablets"]


def values_of(path: Path) -> dict[int, dict[bytes, bytes]]:
    """Keys and values of each sorted tablet, read by what the page says of the index."""
    rows = dict(index_rows(path))
    of_type = {key[2:]: value[1] for key, value in rows.items() if key[:2] == b"rT"}
    found: dict[int, dict[bytes, bytes]] = {}
    with look_into(path, {}) as cell:
        for key, value in rows.items():
            if key[:2] == b"rK" and of_type[key[2:10]] == SORTED and len(key) > 10:
                parts = [value[9:]] if value[0] == 1 else [
                    bytes(cell.content(BlobKey(value[at : at + 24]))) for at in range(9, len(value), 24)
                ]  # fmt: skip
                found.setdefault(int.from_bytes(key[2:10], "big"), {})[key[10:]] = b"".join(parts)
    return found


def test_every_key_of_a_sorted_tablet_is_what_the_page_says(directory: Path) -> None:
    (first, second) = (explain_tablet(values, TYPES) for _, values in sorted(values_of(directory).items()))
    for found in (first, second):
        assert {"facts", "pivots", "log values", "chunks"} <= found.keys() <= {
            "facts", "pivots", "log values", "chunks", "logged rows", "chunk rows", "pieces",
        }  # fmt: skip
        assert found["chunk rows"] >= ROWS // 2
    assert first["logged rows"] == ROWS // 2 + 6
    assert second["logged rows"] == ROWS // 2


def test_the_tablets_are_of_the_type_that_the_page_says(directory: Path) -> None:
    told = [explain_row(key, value) for key, value in index_rows(directory) if key[:2] == b"rT"]
    types = [meaning for row in told for name, _, meaning in row.value.found if name == "type"]
    assert sum("sorted" in meaning for meaning in types) == 2


def test_the_page_names_each_key_and_each_fact() -> None:
    page = PAGE.read_text(encoding="utf-8").partition("## Rows of a sorted tablet")[2].partition("\n## ")[0]
    assert re.findall(r"^\| `(\w)`", page, re.MULTILINE) == [*"fplcdtsexy"]
    named = set(re.findall(r"`(\w+)`", page))
    assert {*RECORD_FACTS, "retained_timestamp", "pivots", "store", "entry", "chunk", "task", "piece"} <= named

