"""Ordered tables of a broker of two nodes: HTTP is at the first, tablets are at both."""

import contextlib
import os
import signal
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any

import pytest

from tests.broker.node.test_http_over_nodes import call, is_served_by_both, until_taken
from tests.support.several_nodes import SeveralNodes, several_nodes
from tests.support.waiting import wait_until

PATIENCE_S = 60.0
SCHEMA = [{"name": "id", "type": "int64"}]
TABLETS = 4
"""Tablets of tables that lie at both nodes: one in each cell."""
BORROWED = "for a request that needs them here"


@pytest.fixture(scope="module")
def nodes(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SeveralNodes]:
    with several_nodes(
        tmp_path_factory.mktemp("nodes"), {"pqbroker.node.silence.ms": "10000", "pqbroker.node.return.ms": "1000"}
    ) as running:
        yield running


def test_tablets_of_both_nodes_are_unmounted_frozen_and_mounted(nodes: SeveralNodes) -> None:
    at = spread(nodes, "states")
    for index in range(TABLETS):
        assert insert(nodes, "states", index)[0] == 200
    away = next(index for index, node in at.items() if node == 2)
    one = {"first_tablet_index": away, "last_tablet_index": away}
    status, told = call(nodes, "tables/states/unmount", one)
    assert (status, told["state"]) == (200, "mixed"), told
    assert insert(nodes, "states", away)[1]["error"]["code"] == "WRONG_STATE"
    assert rows(nodes, "states", away)[1]["error"]["code"] == "WRONG_STATE"
    assert insert(nodes, "states", next(index for index in at if index != away))[0] == 200
    assert call(nodes, "tables/states/mount", {"freeze": True, **one})[0] == 200
    assert rows(nodes, "states", away)[1]["rows"] == [{"id": away}]
    assert insert(nodes, "states", away)[1]["error"]["code"] == "WRONG_STATE"
    assert call(nodes, "tables/states/unfreeze", one)[0] == 200
    assert insert(nodes, "states", away)[0] == 200
    for command, state in (("freeze", "frozen"), ("unmount", "unmounted"), ("mount", "mounted")):
        status, told = call(nodes, f"tables/states/{command}", {})
        assert (status, told["state"]) == (200, state), told
    assert rows(nodes, "states", away)[1]["rows"] == [{"id": away}] * 2


def test_an_unmount_writes_the_rows_of_all_nodes_into_bodies(nodes: SeveralNodes) -> None:
    spread(nodes, "bodies")
    for index in range(TABLETS):
        assert insert(nodes, "bodies", index)[0] == 200
    assert call(nodes, "tables/bodies/unmount", {})[0] == 200
    shown = [call(nodes, f"topics/bodies/partitions/{index}")[1] for index in range(TABLETS)]
    assert [(one["end_offset"], one["head"]["size_bytes"]) for one in shown] == [(1, 0)] * TABLETS
    assert call(nodes, "tables/bodies/alter", {"schema": [*SCHEMA, {"name": "more", "type": "int64"}]})[0] == 200


def test_tables_of_both_nodes_are_resharded_and_converted(nodes: SeveralNodes) -> None:
    homes = cells(nodes)
    at = spread(nodes, "resharded")
    for index in at:
        assert insert(nodes, "resharded", index)[0] == 200
    status, told = call(nodes, "tables/resharded/reshard", {"tablet_count": 6})
    assert (status, told["error"]["code"]) == (409, "WRONG_STATE"), told
    assert call(nodes, "tables/resharded/unmount", {})[0] == 200
    assert until_taken(nodes, "tables/resharded/reshard", {"tablet_count": 6})["tablet_count"] == 6
    assert cells(nodes) == homes
    assert until_taken(nodes, "tables/resharded/reshard", {"tablet_count": 2})["tablet_count"] == 2
    assert cells(nodes) == homes
    assert call(nodes, "tables/resharded/mount", {})[0] == 200
    glued = [{"id": index} for index in range(1, TABLETS)]
    assert [rows(nodes, "resharded", index)[1]["rows"] for index in (0, 1)] == [[{"id": 0}], glued]
    assert call(nodes, "tables/resharded/unmount", {})[0] == 200
    until_taken(nodes, "tables/resharded/alter", {"dynamic": False})
    status, told = call(nodes, "sql", {"query": "SELECT list(id ORDER BY id) AS ids FROM resharded"})
    assert (status, told) == (200, {"ids": [*range(TABLETS)]}), told
    until_taken(nodes, "tables/resharded/alter", {"dynamic": True})
    assert call(nodes, "tables/resharded/mount", {})[0] == 200
    assert cells(nodes) == homes


def test_a_cell_of_the_other_node_is_emptied_and_removed(nodes: SeveralNodes) -> None:
    status, made = call(nodes, "cells", {"bundle": "default"})
    assert status == 201, made
    cell = made["id"]
    until_taken(nodes, f"cells/{cell}/move", {"node": 2})
    homes = cells(nodes)
    status, told = call(nodes, "tables", {"path": "//emptied", "schema": SCHEMA, "tablet_count": TABLETS})
    assert status == 201, told
    tablets = call(nodes, "tables/emptied/tablets")[1]["tablets"]
    assert cell in {int(tablet["home_cell_id"]) for tablet in tablets}
    for index in range(TABLETS):
        assert insert(nodes, "emptied", index)[0] == 200
    status, told = call(nodes, f"cells/{cell}", method="DELETE")
    assert (status, told["error"]["code"]) == (409, "BUNDLE_REFUSED"), told
    wait_until(lambda: are(nodes, homes), "the cell is where it was", PATIENCE_S)
    until_taken(nodes, f"cells/{cell}?evacuate=true", method="DELETE")
    del homes[cell]
    assert cells(nodes) == homes
    for index in range(TABLETS):
        assert rows(nodes, "emptied", index)[1]["rows"] == [{"id": index}]
    assert call(nodes, "tables/emptied", method="DELETE")[0] == 204  # else later tables lie at one node alone


@pytest.mark.parametrize("killed", [1, 2])
def test_a_reshard_over_nodes_is_whole_or_undone_if_a_node_is_killed(nodes: SeveralNodes, killed: int) -> None:
    """Cells that the first node has borrowed go back to their nodes."""
    name = f"cut{killed}"
    at = spread(nodes, name)
    for index in at:
        assert insert(nodes, name, index)[0] == 200
    assert call(nodes, f"tables/{name}/unmount", {})[0] == 200
    homes, borrowed = cells(nodes), nodes.log.count(BORROWED)
    with ThreadPoolExecutor(1) as threads:
        resharding = threads.submit(is_done, nodes, f"tables/{name}/reshard", {"tablet_count": 1})
        wait_until(lambda: nodes.log.count(BORROWED) > borrowed, "cells are borrowed", PATIENCE_S)
        os.kill(nodes.pids()[killed], signal.SIGKILL)
        resharding.result()
    wait_until(lambda: are(nodes, homes), "the cells are back", PATIENCE_S)
    again = partial(is_done, nodes, f"tables/{name}/reshard", {"tablet_count": 1})
    wait_until(again, "the table has one tablet", PATIENCE_S)
    wait_until(partial(is_done, nodes, f"tables/{name}/mount", {}), "the tablet is mounted", PATIENCE_S)
    assert rows(nodes, name, 0)[1]["rows"] == [{"id": index} for index in range(TABLETS)]
    assert cells(nodes) == homes


def test_rows_of_both_nodes_are_trimmed(nodes: SeveralNodes) -> None:
    at = spread(nodes, "trimmed")
    for index in at:
        assert insert(nodes, "trimmed", index)[0] == 200
        assert call(nodes, "tables/trimmed/trim", {"tablet_index": index, "trimmed_row_count": 1})[0] == 200
        assert rows(nodes, "trimmed", index)[1]["rows"] == []


def test_rows_of_both_nodes_are_pulled_and_marked_as_read(nodes: SeveralNodes) -> None:
    at = spread(nodes, "pulled")
    assert call(nodes, "queues/pulled/consumers", {"consumer": "reader", "vital": True})[0] == 200
    for index in at:
        for _ in range(2):
            assert insert(nodes, "pulled", index)[0] == 200
        advance = {"consumer": "reader", "tablet_index": index, "new_offset": 1}
        # until the first node has the offsets of the other one's tablets it says so, and that it is to be asked again
        wait_until(partial(_is_advanced, nodes, advance), "the consumer is advanced", PATIENCE_S)
        status, told = call(nodes, f"queues/pulled/rows?consumer=reader&tablet_index={index}")
        row = {"$tablet_index": index, "$row_index": 1, "id": index}
        assert (status, told) == (200, {"rows": [row], "offset": 1, "next_offset": 2})
    status, told = call(nodes, "queues/pulled/consumers/reader")
    places = [(one["offset"], one["first_row_index"], one["end_row_index"]) for one in told["tablets"]]
    assert (status, places) == (200, [(1, 0, 2)] * TABLETS), told


def test_a_silent_node_keeps_its_tablets_from_an_unmount_and_serves_them_afterwards(nodes: SeveralNodes) -> None:
    at = spread(nodes, "silent")
    pid = nodes.pids()[2]
    os.kill(pid, signal.SIGSTOP)
    try:
        status, told = call(nodes, "tables/silent/unmount", {})
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGCONT)
    assert (status, told["error"]["code"]) == (503, "NODE_SILENT"), told
    wait_until(lambda: is_served_by_both(nodes), "both nodes have open cells", PATIENCE_S)
    for index in at:
        end_s = time.monotonic() + PATIENCE_S
        while (told := insert(nodes, "silent", index))[0] != 200:
            assert time.monotonic() < end_s, told


def _is_advanced(nodes: SeveralNodes, advance: dict[str, Any]) -> bool:
    status, told = call(nodes, "queues/pulled/advance", advance)
    assert status == 200 or told["error"]["code"] == "COORDINATOR_LOAD_IN_PROGRESS", told
    return status == 200


def is_done(nodes: SeveralNodes, path: str, body: dict[str, Any]) -> bool:
    """Return True if a command is taken; the first node may be started again meanwhile."""
    with contextlib.suppress(OSError):
        return call(nodes, path, body)[0] == 200
    return False


def are(nodes: SeveralNodes, homes: dict[str, tuple[str, int]]) -> bool:
    """Return True once the cells are open at these nodes."""
    with contextlib.suppress(OSError):
        return cells(nodes) == homes
    return False


def cells(nodes: SeveralNodes) -> dict[str, tuple[str, int]]:
    """Return health and node of each cell."""
    return {cell["id"]: (cell["health"], cell["node"]) for cell in call(nodes, "cells")[1]["cells"]}


def spread(nodes: SeveralNodes, name: str) -> dict[int, int]:
    """Make an ordered table at both nodes; return the node of each tablet. Behind a move of a cell the first node does
    not know for a while how many tablets it has."""
    found: dict[int, int] = {}

    def is_spread() -> bool:
        wait_until(lambda: is_served_by_both(nodes), "both nodes have open cells", PATIENCE_S)
        status, told = call(nodes, "tables", {"path": f"//{name}", "schema": SCHEMA, "tablet_count": TABLETS})
        assert status == 201, told
        tablets = call(nodes, f"tables/{name}/tablets")[1]["tablets"]
        found.update({tablet["index"]: tablet["node"] for tablet in tablets})
        if {*found.values()} == {1, 2}:
            return True
        assert call(nodes, f"tables/{name}", None, "DELETE")[0] == 204
        return False

    wait_until(is_spread, "a table is made at both nodes", PATIENCE_S)
    return found


def insert(nodes: SeveralNodes, name: str, tablet: int) -> tuple[int, Any]:
    return call(nodes, f"tables/{name}/rows", {"rows": [{"id": tablet, "$tablet_index": tablet}]})


def rows(nodes: SeveralNodes, name: str, tablet: int) -> tuple[int, Any]:
    status, told = call(nodes, f"tables/{name}/rows?tablet_index={tablet}")
    if status == 200:
        told["rows"] = [{"id": row["id"]} for row in told["rows"]]
    return status, told
