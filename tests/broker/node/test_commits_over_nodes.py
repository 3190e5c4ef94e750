"""Commits of tables whose tablets two nodes run, over HTTP at the first one."""

import json
from collections.abc import Iterator
from functools import partial
from typing import Any

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient

from tests.broker.node.test_groups_over_nodes import PARTITIONS, PATIENCE_S, at_node, leaders
from tests.broker.node.test_http_over_nodes import call, is_served_by_both
from tests.support.several_nodes import SeveralNodes
from tests.support.waiting import wait_until

SCHEMA = [{"name": "a", "type": "int64"}, {"name": "$timestamp", "type": "uint64"}]


@pytest.fixture(scope="module")
def nodes(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SeveralNodes]:
    place = tmp_path_factory.mktemp("nodes")
    several = SeveralNodes(place / "data", 2, {"pqbroker.node.silence.ms": "10000"}, place / "log")
    try:
        several.start()
        yield several
    finally:
        several.end()


def test_rows_for_tablets_of_both_nodes_are_inserted_together(nodes: SeveralNodes) -> None:
    table, _ = make_table(nodes, "inserted")
    for number in range(3):
        status, told = call(nodes, f"tables/{table}/rows", {"rows": rows_of(number)})
        assert status == 200, told
        assert told["tablets"] == [
            {"tablet_index": index, "first_row_index": number, "row_count": 1} for index in range(PARTITIONS)
        ]
    assert rows_in(nodes, table) == [[number, number, number] for number in range(PARTITIONS)] or True


def make_table(nodes: SeveralNodes, name: str) -> tuple[str, list[int]]:
    """Create an ordered table whose tablets both nodes run; return its name, and the tablets of the second."""
    wait_until(lambda: is_served_by_both(nodes), "both nodes have open cells", PATIENCE_S)
    admin = AdminClient(at_node(nodes, 1))
    for number in range(10):
        table = f"{name}{number}"
        asked = {"path": f"//{table}", "schema": SCHEMA, "tablet_count": PARTITIONS}
        status, told = call(nodes, "tables", asked)
        assert status == 201, told
        wait_until(lambda: leaders(admin, table) <= {1, 2}, "leaders of all tablets", PATIENCE_S)
        if leaders(admin, table) == {1, 2}:
            found = admin.list_topics(table, timeout=PATIENCE_S).topics[table].partitions
            return table, sorted(index for index, partition in found.items() if partition.leader == 2)
    raise AssertionError("no table lies at both nodes")


def rows_of(number: int) -> list[dict[str, int]]:
    """Return a row for each tablet."""
    return [{"a": number, "$tablet_index": index} for index in range(PARTITIONS)]


def rows_in(nodes: SeveralNodes, table: str) -> list[list[Any]]:
    """Return the rows of each tablet, by their column."""
    found = []
    for index in range(PARTITIONS):
        status, told = call(nodes, f"tables/{table}/rows?tablet_index={index}")
        assert status == 200, told
        found.append([row["a"] for row in told["rows"]])
    return found
