"""Topics that feed sorted tables of a broker of two nodes: partitions and tablets lie at both."""

import os
import signal
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import pytest
from confluent_kafka.admin import AdminClient

from tests.broker.node.test_groups_over_nodes import at_node, leaders
from tests.broker.node.test_http_over_nodes import call, is_led, is_served_by_both
from tests.broker.node.test_http_over_nodes import spread as spread_topic
from tests.broker.node.test_sorted_over_nodes import PATIENCE_S, ask, nodes_of
from tests.support.several_nodes import SeveralNodes, several_nodes
from tests.support.waiting import wait_until

SCHEMA = [{"name": "key", "type": "utf8", "sort_order": "ascending", "required": True}, {"name": "v", "type": "utf8"}]
COLUMNS = {"key": "key", "v": "value"}
PARTITIONS = 4
PIVOTS: list[list[str]] = [[], ["b"], ["c"], ["d"]]
KEYS = [f"{letter}{number}" for letter in "abcd" for number in range(PARTITIONS)]
"""Keys of each tablet, in each partition: the number says which."""


@pytest.fixture(scope="module")
def nodes(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SeveralNodes]:
    with several_nodes(tmp_path_factory.mktemp("nodes"), {"pqbroker.node.silence.ms": "10000"}) as running:
        yield running


def test_partitions_of_both_nodes_feed_tablets_of_both(nodes: SeveralNodes) -> None:
    whole = make(nodes, "whole", PIVOTS, lambda at: at[0] == 1 and {*at.values()} == {1, 2})
    produce(nodes, whole, dict.fromkeys(KEYS, "1"))
    told = feed(nodes, whole)
    assert told["state"] == "running", told
    wait_until(partial(is_fed, nodes, whole, len(KEYS)), "all is fed", PATIENCE_S)
    assert rows(nodes, whole) == dict.fromkeys(KEYS, "1")
    produce(nodes, whole, {"a1": "2", "b3": None, "d0": "2"})
    wait_until(partial(is_fed, nodes, whole, len(KEYS) + 3), "the rest is fed", PATIENCE_S)
    assert rows(nodes, whole) == {**dict.fromkeys(KEYS, "1"), "a1": "2", "b3": None, "d0": "2"}


def test_a_table_of_the_second_node_is_fed_exactly_once_beside_its_death(nodes: SeveralNodes) -> None:
    there = make(nodes, "there", [[]], lambda at: at == {0: 2})
    produce(nodes, there, {**dict.fromkeys(KEYS, "1"), "": None})
    assert feed(nodes, there)["table"] == there
    wait_until(partial(is_fed, nodes, there, len(KEYS) + 1), "all is fed", PATIENCE_S)
    assert rows(nodes, there) == dict.fromkeys(KEYS, "1")
    unusable = [{"value": "no key", "partition": number} for number in range(PARTITIONS)]
    assert call(nodes, f"topics/{there}-in/records", {"records": unusable})[0] == 201
    wait_until(partial(is_fed, nodes, there, len(KEYS) + 1 + PARTITIONS), "letters are counted", PATIENCE_S)
    assert describe(nodes, there)["dead_letter_count"] == PARTITIONS
    os.kill(nodes.pids()[2], signal.SIGKILL)
    produce(nodes, there, dict.fromkeys(KEYS, "2"))
    wait_until(partial(is_fed, nodes, there, 2 * len(KEYS) + 1 + PARTITIONS), "all is fed again", PATIENCE_S)
    assert rows(nodes, there) == dict.fromkeys(KEYS, "2")
    assert describe(nodes, there)["dead_letter_count"] == PARTITIONS
    wait_until(lambda: is_served_by_both(nodes), "the cells are back", PATIENCE_S)


def test_dead_letters_go_to_a_topic_of_the_second_node(nodes: SeveralNodes) -> None:
    lettered = make(nodes, "lettered", [[]], lambda at: at == {0: 1})
    for number in range(10):
        letters = f"letters{number}"
        assert call(nodes, "topics", {"name": letters, "partitions": 1})[0] == 201
        admin = AdminClient(at_node(nodes, 1))
        wait_until(partial(is_led, admin, letters), "a leader", PATIENCE_S)
        if leaders(admin, letters) == {2}:
            break
    new = {"topic": f"{lettered}-in", "table": lettered, "columns": COLUMNS, "dead_letter_topic": letters}
    assert call(nodes, "materializations", new)[0] == 201
    unusable = [{"value": f"no key {number}", "partition": number} for number in range(PARTITIONS)]
    assert call(nodes, f"topics/{lettered}-in/records", {"records": unusable})[0] == 201
    wait_until(partial(is_fed, nodes, lettered, PARTITIONS), "letters are counted", PATIENCE_S)
    assert describe(nodes, lettered)["dead_letter_count"] == PARTITIONS
    status, told = call(nodes, f"topics/{letters}/records?partition=0")
    assert status == 200, told
    assert sorted(record["value"] for record in told["records"]) == [one["value"] for one in unusable]


def test_a_table_whose_first_tablet_alone_is_elsewhere_says_what_to_do(nodes: SeveralNodes) -> None:
    apart = make(nodes, "apart", PIVOTS, lambda at: at[0] == 2 and {*at.values()} == {1, 2})
    produce(nodes, apart, dict.fromkeys(KEYS, "1"))
    told = feed(nodes, apart)
    assert (told["state"], told["reason"]["code"], told["lag"]) == ("stopped", "OTHER_NODE", len(KEYS)), told
    cell = int(call(nodes, f"tables/{apart}/tablets")[1]["tablets"][0]["home_cell_id"])
    assert f"`pqbroker cell move {cell} --node 1`" in told["reason"]["cure"]
    assert call(nodes, f"cells/{cell}/move", {"node": 1})[0] == 200
    try:
        wait_until(partial(is_fed, nodes, apart, len(KEYS)), "it is fed", PATIENCE_S)
        assert rows(nodes, apart) == dict.fromkeys(KEYS, "1")
    finally:
        assert call(nodes, f"cells/{cell}/move", {"node": 2})[0] == 200


def make(nodes: SeveralNodes, name: str, pivots: Any, fits: Callable[[dict[int, int]], bool]) -> str:
    """Create a topic of both nodes, and a table whose tablets lie as asked; return the name of both."""
    wait_until(lambda: is_served_by_both(nodes), "both nodes have open cells", PATIENCE_S)
    for number in range(10):
        table = f"{name}{number}"
        status, told = ask(nodes, "POST", "tables", {"path": f"//{table}", "schema": SCHEMA, "pivot_keys": pivots})
        assert status == 201, told
        if fits(nodes_of(nodes, table)):
            spread_topic(nodes, table + "-in")
            return table
        if number % 2:  # the next one begins in another cell
            assert ask(nodes, "POST", "tables", {"path": f"//{table}-beside", "schema": SCHEMA})[0] == 201
    raise AssertionError("the tablets do not lie as they are to")


def feed(nodes: SeveralNodes, name: str) -> Any:
    status, told = call(nodes, "materializations", {"topic": f"{name}-in", "table": name, "columns": COLUMNS})
    assert status == 201, told
    return describe(nodes, name)


def produce(nodes: SeveralNodes, name: str, values: dict[str, str | None]) -> None:
    """Write a record for each key, to the partition that its last digit names."""
    records = [{"key": key, "value": value, "partition": int(key[-1:] or 0)} for key, value in values.items()]

    def is_written() -> bool:  # its node may have been killed: nothing was written then
        status, told = call(nodes, f"topics/{name}-in/records", {"records": records})
        return status == 201 and all("error" not in one for one in told["offsets"])

    wait_until(is_written, "records are written", PATIENCE_S)


def describe(nodes: SeveralNodes, name: str) -> Any:
    status, told = call(nodes, f"materializations/{name}")
    assert status == 200, told
    (listed,) = call(nodes, f"materializations?table={name}")[1]["materializations"]
    assert {**told, **listed, "lag": 0, "reason": None, "state": ""} == {**told, "lag": 0, "reason": None, "state": ""}
    return told


def is_fed(nodes: SeveralNodes, name: str, count: int) -> bool:
    """Return True once all records are fed, and `count` of them or more."""
    status, told = call(nodes, f"materializations/{name}")
    if status != 200 or (told["lag"], told["state"]) != (0, "running"):
        return False
    return bool(sum(one["offset"] for one in told["partitions"]) >= count)


def rows(nodes: SeveralNodes, name: str) -> dict[str, Any]:
    status, told = call(nodes, f"tables/{name}/lookup", {"keys": [{"key": key} for key in KEYS]})
    assert status == 200, told
    return {key: row and row["v"] for key, row in zip(KEYS, told["rows"], strict=True)}
