"""docs/inside.md names what the answers have."""

import re
from collections.abc import Iterator
from typing import Any

import pytest

from pqbroker.broker.web.resources import blobs, partitions, tablets
from pqbroker.pq.log.retention import Hold
from tests.house.sources import ROOT

TEXT = (ROOT / "docs" / "inside.md").read_text(encoding="utf-8")
NAMED = set(re.findall(r"`(\w+)`", TEXT))
PLAIN = {
    "next",
    "limit",
    "after",
    "from",
    "tablet",
    "offset",
    "end_offset",
    "key",
    "group",
    "pool",
    "blobs",
    "keys",
    "tablets",
}
"""Names that explain themselves or stand in the page as part of a path."""


@pytest.mark.parametrize("module", [partitions, tablets, blobs])
def test_every_field_of_the_first_two_levels_is_explained(module: Any) -> None:
    fields = {name for route in module.ROUTES if route.method == "GET" for name in fields_of(route.answer, 2)}
    assert fields - PLAIN - NAMED == set()


def fields_of(schema: Any, depth: int) -> Iterator[str]:
    schema = schema.get("items", schema)
    for name, below in schema.get("properties", {}).items():
        yield name
        if depth > 1:
            yield from fields_of(below, depth - 1)


def test_every_reason_to_hold_data_is_explained() -> None:
    table = TEXT.partition("| held_by | why |")[2].partition("##")[0]
    assert set(re.findall(r"^\| `(\w+)` \|", table, re.MULTILINE)) == {hold.value for hold in Hold}
