"""Sorted tables of a broker of two nodes: HTTP is at the first, tablets are at both."""

import contextlib
import json
import os
import signal
import threading
import urllib.error
import urllib.request
from collections.abc import Iterator
from functools import partial
from typing import Any, Self

import pytest

from tests.broker.node.test_http_over_nodes import call, is_served_by_both, open_stream, until_taken
from tests.support.several_nodes import SeveralNodes, several_nodes
from tests.support.waiting import wait_until

PATIENCE_S = 60.0
SCHEMA = [{"name": "k", "type": "int64", "sort_order": "ascending"}, {"name": "v", "type": "utf8"}]
TABLETS = 4
"""Tablets of tables that lie at both nodes: one in each cell."""
SPAN = 100_000
"""Keys of each of these tablets, but for the first and the last one."""


@pytest.fixture(scope="module")
def nodes(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SeveralNodes]:
    with several_nodes(tmp_path_factory.mktemp("nodes"), {"pqbroker.node.silence.ms": "10000"}) as running:
        yield running


def test_rows_of_both_nodes_are_written_looked_up_and_deleted(nodes: SeveralNodes) -> None:
    at = spread(nodes, "rows")
    keys = [SPAN * index + 5 for index in range(TABLETS)]
    for key in keys:
        status, told = write(nodes, "rows", {key: f"value {key}"})
        assert (status, told["row_count"]) == (200, 1), told
    assert look_up(nodes, "rows", [*reversed(keys), 1]) == [*(f"value {key}" for key in reversed(keys)), None]
    away = next(key for index, key in enumerate(keys) if at[index] == 2)
    status, told = ask(nodes, "DELETE", "tables/rows/rows", {"keys": [{"k": away}]})
    assert (status, told["row_count"]) == (200, 1), told
    assert look_up(nodes, "rows", [away]) == [None]
    status, told = ask(nodes, "POST", "tables/rows/rows?update=true", {"rows": [{"k": away, "v": "again"}]})
    assert status == 200, told
    assert look_up(nodes, "rows", [away]) == ["again"]


def test_keys_that_begin_alike_are_found_at_both_nodes(nodes: SeveralNodes) -> None:
    wait_until(lambda: is_served_by_both(nodes), "both nodes have open cells", PATIENCE_S)
    keys = [{"name": name, "type": "int64", "sort_order": "ascending"} for name in ("a", "b")]
    pivots: list[list[int]] = [[], *([1, SPAN * index] for index in range(1, TABLETS))]
    new = {"path": "//pairs", "schema": [*keys, {"name": "v", "type": "utf8"}], "pivot_keys": pivots}
    assert call(nodes, "tables", new)[0] == 201
    assert {*nodes_of(nodes, "pairs").values()} == {1, 2}
    rows = [{"a": 1, "b": SPAN * index + 1, "v": f"{index}"} for index in range(TABLETS)]
    for row in [*rows, {"a": 0, "b": 1, "v": "less"}, {"a": 2, "b": 1, "v": "more"}]:
        assert call(nodes, "tables/pairs/rows", {"rows": [row]})[0] == 200
    assert call(nodes, "tables/pairs/lookup", {"prefix": {"a": 1}})[1]["rows"] == rows
    part = {"prefix": {"a": 1}, "first_tablet_index": 1, "last_tablet_index": 2, "columns": ["b"]}
    assert call(nodes, "tables/pairs/lookup", part)[1]["rows"] == [{"b": row["b"]} for row in rows[1:3]]
    _, begun = call(nodes, "transactions", {"timeout_ms": 60_000})
    changed = [{**row, "v": "later"} for row in rows]
    for row in changed:
        assert call(nodes, "tables/pairs/rows", {"rows": [row]})[0] == 200
    named = [{"a": row["a"], "b": row["b"]} for row in rows]
    for asked in ({"prefix": {"a": 1}}, {"keys": named}):
        assert call(nodes, "tables/pairs/lookup", asked)[1]["rows"] == changed
        asked["transaction"] = begun["transaction"]
        assert call(nodes, "tables/pairs/lookup", asked)[1]["rows"] == rows


def test_rows_for_tablets_of_both_nodes_are_written_together(nodes: SeveralNodes) -> None:
    at = spread(nodes, "together")
    keys = [SPAN * index for index in range(TABLETS)]
    status, told = write(nodes, "together", dict.fromkeys(keys, "x"))
    assert (status, told["row_count"]) == (200, TABLETS), told
    assert look_up(nodes, "together", keys) == ["x"] * TABLETS
    status, told = call(nodes, "tables/together/rows", {"keys": [{"k": key} for key in keys[:-1]]}, "DELETE")
    assert (status, told["row_count"]) == (200, TABLETS - 1), told
    assert look_up(nodes, "together", keys) == [*[None] * (TABLETS - 1), "x"]
    away = next(index for index, node in at.items() if node == 2)
    one = {"first_tablet_index": away, "last_tablet_index": away}
    assert call(nodes, "tables/together/freeze", one)[0] == 200
    status, told = write(nodes, "together", dict.fromkeys(keys, "y"))
    assert (status, told["error"]["code"]) == (409, "WRONG_STATE"), told
    assert look_up(nodes, "together", keys) == [*[None] * (TABLETS - 1), "x"]


def test_tablets_of_the_other_node_are_unmounted_mounted_and_frozen(nodes: SeveralNodes) -> None:
    at = spread(nodes, "states")
    keys = [SPAN * index for index in range(TABLETS)]
    for key in keys:
        assert write(nodes, "states", {key: "kept"})[0] == 200
    away = next(index for index, node in at.items() if node == 2)
    one = {"first_tablet_index": away, "last_tablet_index": away}
    status, told = call(nodes, "tables/states/unmount", one)
    assert (status, told["state"]) == (200, "mixed"), told
    for status, told in (write(nodes, "states", {keys[away]: "x"}), lookup(nodes, "states", [keys[away]])):
        assert (status, told["error"]["code"]) == (409, "WRONG_STATE"), told
    assert call(nodes, "tables/states/mount", {"freeze": True, **one})[0] == 200
    assert look_up(nodes, "states", keys) == ["kept"] * TABLETS
    status, told = write(nodes, "states", {keys[away]: "x"})
    assert (status, told["error"]["code"]) == (409, "WRONG_STATE"), told
    assert call(nodes, "tables/states/unfreeze", one)[0] == 200
    assert write(nodes, "states", {keys[away]: "changed"})[0] == 200
    assert call(nodes, "tables/states/freeze", one)[0] == 200
    assert look_up(nodes, "states", [keys[away]]) == ["changed"]
    assert call(nodes, "tables/states/unmount", {})[1]["state"] == "unmounted"
    homes = [tablet["home_cell_id"] for tablet in call(nodes, "tables/states/tablets")[1]["tablets"]]
    here = next(home for index, home in enumerate(homes) if at[index] == 1)
    until_taken(nodes, "tables/states/mount", {**one, "cell_id": here})
    moved = call(nodes, "tables/states/tablets")[1]["tablets"][away]
    assert (moved["home_cell_id"], moved["node"]) == (here, 1)
    assert look_up(nodes, "states", [keys[away]]) == ["changed"]
    assert call(nodes, "tables/states/unmount", one)[0] == 200
    until_taken(nodes, "tables/states/mount", {**one, "cell_id": homes[away]})
    moved = call(nodes, "tables/states/tablets")[1]["tablets"][away]
    assert (moved["home_cell_id"], moved["node"]) == (homes[away], 2)
    assert call(nodes, "tables/states/unmount", one)[0] == 200
    columns = [*SCHEMA, {"name": "w", "type": "int64"}]
    assert call(nodes, "tables/states/alter", {"schema": columns})[0] == 200
    assert call(nodes, "tables/states/mount", {})[1]["state"] == "mounted"
    status, told = ask(nodes, "POST", "tables/states/rows", {"rows": [{"k": keys[away], "v": "wide", "w": 7}]})
    assert status == 200, told
    assert lookup(nodes, "states", [keys[away]])[1]["rows"] == [{"k": keys[away], "v": "wide", "w": 7}]


def test_a_deleted_table_may_be_made_again(nodes: SeveralNodes) -> None:
    for number in range(3):
        spread(nodes, "again")
        assert look_up(nodes, "again", [SPAN * index for index in range(TABLETS)]) == [None] * TABLETS
        for index in range(TABLETS):
            assert write(nodes, "again", {SPAN * index: f"{number}"})[0] == 200
        assert ask(nodes, "DELETE", "tables/again", None)[0] == 204


def test_facts_of_tablets_come_from_their_nodes(nodes: SeveralNodes) -> None:
    at = spread(nodes, "shown")
    for index in range(TABLETS):
        assert write(nodes, "shown", {SPAN * index: "x" * 100})[0] == 200
    listed = call(nodes, "tables/shown/tablets")[1]["tablets"]
    assert {tablet["index"]: tablet["node"] for tablet in listed} == at
    assert [tablet["state"] for tablet in listed] == ["mounted"] * TABLETS
    assert [tablet["statistics"]["store_count"] for tablet in listed] == [1] * TABLETS
    second = call(nodes, "tables/shown/tablets?after=0&limit=2")[1]
    assert ([tablet["index"] for tablet in second["tablets"]], second["next"]) == ([1, 2], 2)
    assert call(nodes, "tables/shown/unmount", {})[0] == call(nodes, "tables/shown/mount", {})[0] == 200
    inside = call(nodes, "tables/shown/inside")[1]
    assert {tablet["index"]: tablet["node"] for tablet in inside["tablets"]} == at
    assert [tablet["rows"] for tablet in inside["tablets"]] == [1] * TABLETS
    assert (inside["flushed_rows"], len(inside["ended"])) == (TABLETS, TABLETS)
    for index in range(TABLETS):
        status, told = call(nodes, f"tables/shown/tablets/{index}/inside")
        assert (status, told["index"], len(told["chunks"])) == (200, index, 1), told
    explained = call(nodes, "tables/shown/compaction")[1]
    assert sum(one["chunk_count"] for one in explained["left_out"]) >= TABLETS, explained
    assert explained["rests"] == []
    away = next(tablet for tablet in listed if tablet["node"] == 2)
    shown = call(nodes, f"tree//sys/tablets/{away['tablet_id']}/@node")[1]
    assert shown == 2


def test_events_tell_of_tablets_and_tasks_of_both_nodes(nodes: SeveralNodes) -> None:
    wait_until(lambda: is_served_by_both(nodes), "both nodes have open cells", PATIENCE_S)
    with open_stream(nodes, "events") as stream:
        events = (json.loads(line) for line in stream)
        next(event for event in events if event["event"] == "figures")
        at = spread(nodes, "followed")
        tablets = {one["index"]: str(one["tablet_id"]) for one in call(nodes, "tables/followed/tablets")[1]["tablets"]}
        missing = {(tablets[index], node) for index, node in at.items()}
        while missing:
            event = next(event for event in events if event["event"] == "tablets")
            missing -= {(tablet, event["node"]) for tablet in event["created"]}
        for index in range(TABLETS):
            assert write(nodes, "followed", {SPAN * index: "x"})[0] == 200
        assert call(nodes, "tables/followed/unmount", {})[0] == 200
        missing = {(tablets[index], node) for index, node in at.items()}
        while missing:
            event = next(event for event in events if event["event"] == "table_tasks")
            ended = {str(task["tablet_id"]) for task in event["tasks"] if task["ended_ms"] is not None}
            missing -= {(tablet, event["node"]) for tablet in ended}
        assert ask(nodes, "DELETE", "tables/followed", None)[0] == 204
        missing = {(tablets[index], node) for index, node in at.items()}
        while missing:
            event = next(event for event in events if event["event"] == "tablets")
            missing -= {(tablet, event["node"]) for tablet in event["deleted"]}


def test_tablets_of_the_other_node_are_resharded_there(nodes: SeveralNodes) -> None:
    at = spread(nodes, "split")
    rows = {SPAN * index + number: f"{number}" for index in range(TABLETS) for number in range(4)}
    for index in range(TABLETS):
        assert write(nodes, "split", {SPAN * index + number: f"{number}" for number in range(4)})[0] == 200
    away = next(index for index, node in at.items() if node == 2)
    one = {"first_tablet_index": away, "last_tablet_index": away}
    pivots = [call(nodes, "tables/split/tablets")[1]["tablets"][away]["pivot_key"], [SPAN * away + 2]]
    status, told = call(nodes, "tables/split/reshard", {**one, "pivot_keys": pivots})
    assert (status, told["error"]["code"]) == (409, "WRONG_STATE"), told
    assert call(nodes, "tables/split/unmount", {})[0] == 200
    status, told = call(nodes, "tables/split/reshard", {**one, "pivot_keys": pivots, "dry_run": True})
    assert (status, told["tablet_count"]) == (200, TABLETS), told
    assert told["rewritten_bytes"] > 0
    status, told = call(nodes, "tables/split/reshard", {**one, "pivot_keys": pivots})
    assert (status, told["tablet_count"]) == (200, TABLETS + 1), told
    after = nodes_of(nodes, "split")
    assert (after[away], after[away + 1]) == (2, 2)
    assert call(nodes, "tables/split/mount", {})[0] == 200
    assert are_read(nodes, "split", rows)
    for index in (away, away + 1):
        status, told = call(nodes, f"tables/split/tablets/{index}/inside")
        assert (status, told["rows"]) == (200, 2), told
    assert write(nodes, "split", {SPAN * away + 2: "new"})[0] == 200
    assert call(nodes, "tables/split/unmount", {})[0] == 200
    both = {"first_tablet_index": away, "last_tablet_index": away + 1}
    status, told = call(nodes, "tables/split/reshard", {**both, "tablet_count": 1})
    assert (status, told["tablet_count"]) == (200, TABLETS), told
    assert call(nodes, "tables/split/mount", {})[0] == 200
    assert are_read(nodes, "split", rows | {SPAN * away + 2: "new"})
    here = next(index for index, node in at.items() if node == 1)
    one = {"first_tablet_index": here, "last_tablet_index": here}
    assert call(nodes, "tables/split/unmount", one)[0] == 200
    status, told = call(nodes, "tables/split/reshard", {**one, "tablet_count": 2})
    assert (status, told["tablet_count"]) == (200, TABLETS + 1), told
    after = nodes_of(nodes, "split")
    assert (after[here], after[here + 1]) == (1, 1)
    assert call(nodes, "tables/split/mount", {})[0] == 200
    assert are_read(nodes, "split", rows | {SPAN * away + 2: "new"})


def test_tablets_of_both_nodes_are_resharded_together(nodes: SeveralNodes) -> None:
    spread(nodes, "joined")
    rows = {SPAN * index + number: f"{number}" for index in range(TABLETS) for number in range(4)}
    for index in range(TABLETS):
        assert write(nodes, "joined", {SPAN * index + number: f"{number}" for number in range(4)})[0] == 200
    homes = cells(nodes)
    status, told = call(nodes, "tables/joined/reshard", {"tablet_count": 2})
    assert (status, told["error"]["code"]) == (409, "WRONG_STATE"), told
    assert call(nodes, "tables/joined/unmount", {})[0] == 200
    assert until_taken(nodes, "tables/joined/reshard", {"tablet_count": 2})["tablet_count"] == 2
    assert cells(nodes) == homes
    assert call(nodes, "tables/joined/mount", {})[0] == 200
    assert are_read(nodes, "joined", rows)


def test_rows_that_were_acknowledged_outlive_the_node_that_has_them(nodes: SeveralNodes) -> None:
    spread(nodes, "kept")
    kept = {SPAN * index + number: f"{index} {number}" for index in range(TABLETS) for number in range(5)}
    for key, value in kept.items():
        assert write(nodes, "kept", {key: value})[0] == 200
    os.kill(nodes.pids()[2], signal.SIGKILL)
    wait_until(partial(are_read, nodes, "kept", kept), "the rows are served again", PATIENCE_S)
    wait_until(lambda: is_served_by_both(nodes), "the cells are back", PATIENCE_S)
    wait_until(partial(are_read, nodes, "kept", kept), "the rows are served where they were", PATIENCE_S)
    for key in kept:
        kept[key] = f"new {key}"
        wait_until(partial(is_written, nodes, "kept", key, kept[key]), "the row is written", PATIENCE_S)  # a cell moves
    wait_until(partial(are_read, nodes, "kept", kept), "the new rows are served", PATIENCE_S)


def test_rows_that_are_written_amid_moves_and_kills_are_kept(nodes: SeveralNodes) -> None:
    spread(nodes, "amid")
    given = {int(one["home_cell_id"]): one["node"] for one in call(nodes, "tables/amid/tablets")[1]["tablets"]}
    with Writer(nodes, "amid") as writer:
        for homes in (dict.fromkeys(given, 1), dict.fromkeys(given, 2), given):
            for cell, node in homes.items():
                wait_until(partial(is_moved, nodes, cell, node), f"cell {cell} is at node {node}", PATIENCE_S)
            writer.wait_for_more()
        for number in (2, 1):
            killed = nodes.pids()[number]
            os.kill(killed, signal.SIGKILL)
            wait_until(partial(is_another, nodes, number, killed), "another process", PATIENCE_S)
            writer.wait_for_more()
            wait_until(partial(are_served, nodes), "the cells are back", PATIENCE_S)
        for command in ("unmount", "mount"):
            wait_until(partial(is_done, nodes, f"tables/amid/{command}"), command, PATIENCE_S)
        writer.wait_for_more()
    wait_until(partial(are_read, nodes, "amid", writer.acknowledged), "what was acknowledged", PATIENCE_S)


class Writer:
    """Writes rows to all tablets of a table, each key once, while a block runs."""

    def __init__(self, nodes: SeveralNodes, table: str) -> None:
        self.acknowledged: dict[int, str] = {}
        self._nodes = nodes
        self._table = table
        self._is_over = threading.Event()
        self._thread = threading.Thread(target=self._run)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._is_over.set()
        self._thread.join()

    def wait_for_more(self) -> None:
        """Wait until each tablet has taken rows from now on."""
        known = set(self.acknowledged)
        wait_until(lambda: len(self._tablets_of(set(self.acknowledged) - known)) == TABLETS, "more rows", PATIENCE_S)

    def _tablets_of(self, keys: set[int]) -> set[int]:
        return {min(key // SPAN, TABLETS - 1) for key in keys}

    def _run(self) -> None:
        for number in range(SPAN):
            for index in range(TABLETS):
                key, value = SPAN * index + number, f"{number} of {index}"
                if self._is_over.is_set():
                    return
                with contextlib.suppress(OSError, ValueError):  # the first node is started again
                    if write(self._nodes, self._table, {key: value})[0] == 200:
                        self.acknowledged[key] = value


def is_moved(nodes: SeveralNodes, cell: int, node: int) -> bool:
    """Return True once a cell is at a node."""
    call(nodes, f"cells/{cell}/move", {"node": node})
    return any(one["id"] == cell and one["node"] == node for one in call(nodes, "cells")[1]["cells"])


def are_served(nodes: SeveralNodes) -> bool:
    """Return True once HTTP answers, and both nodes have open cells."""
    with contextlib.suppress(OSError):
        return is_served_by_both(nodes)
    return False


def is_another(nodes: SeveralNodes, number: int, killed: int) -> bool:
    """Return True once another process than the killed one is a node."""
    return nodes.pids()[number] != killed


def is_done(nodes: SeveralNodes, path: str) -> bool:
    """Return True once a command of a table is taken."""
    with contextlib.suppress(OSError):
        return call(nodes, path, {})[0] == 200
    return False


def cells(nodes: SeveralNodes) -> dict[str, tuple[str, int]]:
    """Return health and node of each cell."""
    return {cell["id"]: (cell["health"], cell["node"]) for cell in call(nodes, "cells")[1]["cells"]}


def spread(nodes: SeveralNodes, name: str) -> dict[int, int]:
    """Create a table of which both nodes run tablets; return the node of each tablet."""
    wait_until(lambda: is_served_by_both(nodes), "both nodes have open cells", PATIENCE_S)
    pivots: list[list[int]] = [[], *([SPAN * index] for index in range(1, TABLETS))]
    new = {"path": f"//{name}", "schema": SCHEMA, "pivot_keys": pivots}
    for _ in range(10):
        status, told = call(nodes, "tables", new)
        assert status == 201, told
        found = nodes_of(nodes, name)
        if {*found.values()} == {1, 2}:
            return found
        assert ask(nodes, "DELETE", f"tables/{name}", None)[0] == 204
    raise AssertionError("the tablets are all at one node")


def nodes_of(nodes: SeveralNodes, name: str) -> dict[int, int]:
    """Return the node of each tablet of a table."""
    homes = {str(cell["id"]): cell["node"] for cell in call(nodes, "cells")[1]["cells"]}
    tablets = call(nodes, f"tables/{name}/tablets")[1]["tablets"]
    return {tablet["index"]: homes[tablet["home_cell_id"]] for tablet in tablets}


def write(nodes: SeveralNodes, name: str, values: dict[int, str]) -> tuple[int, Any]:
    return call(nodes, f"tables/{name}/rows", {"rows": [{"k": key, "v": value} for key, value in values.items()]})


def is_written(nodes: SeveralNodes, name: str, key: int, value: str) -> bool:
    return write(nodes, name, {key: value})[0] == 200


def lookup(nodes: SeveralNodes, name: str, keys: list[int]) -> tuple[int, Any]:
    return call(nodes, f"tables/{name}/lookup", {"keys": [{"k": key} for key in keys]})


def look_up(nodes: SeveralNodes, name: str, keys: list[int]) -> list[str | None]:
    """Return the values of keys, which are served."""
    status, told = lookup(nodes, name, keys)
    assert status == 200, told
    return [None if row is None else row["v"] for row in told["rows"]]


def are_read(nodes: SeveralNodes, name: str, values: dict[int, str]) -> bool:
    """Return True if all rows are served, and have these values."""
    status, told = lookup(nodes, name, list(values))
    return status == 200 and [row and row["v"] for row in told["rows"]] == list(values.values())


def ask(nodes: SeveralNodes, method: str, path: str, asked: Any) -> tuple[int, Any]:
    """Return status and answer of a request to the HTTP of the broker."""
    body, headers = None if asked is None else json.dumps(asked).encode(), {"content-type": "application/json"}
    request = urllib.request.Request(f"http://{nodes.http}/v1/{path}", body, headers, method=method)
    try:
        with urllib.request.urlopen(request, timeout=PATIENCE_S) as answer:
            text = answer.read()
            return answer.status, json.loads(text) if text else None
    except urllib.error.HTTPError as refused:
        return refused.code, json.load(refused)
