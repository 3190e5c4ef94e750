"""Commits of tables whose tablets two nodes run, over HTTP at the first one; each of them is stopped or killed."""

import os
import random
import signal
import threading
import time
import urllib.error
import urllib.request
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import suppress
from functools import partial
from typing import Any, NamedTuple

import pytest
from confluent_kafka.admin import AdminClient

from tests.broker.node.test_groups_over_nodes import PARTITIONS, PATIENCE_S, at_node, committed, kill, leaders
from tests.broker.node.test_http_over_nodes import call, is_served_by_both
from tests.broker.node.test_sorted_over_nodes import SPAN, TABLETS, spread
from tests.support.several_nodes import SeveralNodes, several_nodes
from tests.support.waiting import wait_until

SCHEMA = [{"name": "a", "type": "int64"}]
KEYED = [{"name": "id", "type": "int64", "sort_order": "ascending"}, {"name": "a", "type": "int64"}]
LOCKED_S = 5.0
"""The rule: so long rows stay locked whose commit was given up."""


class SpreadTable(NamedTuple):
    """An ordered table of two nodes: its tablets at the first, those at the second, and the cell of each."""

    name: str
    here: list[int]
    there: list[int]
    cells: list[int]


class Asked:
    """A request over HTTP that a thread of its own makes."""

    def __init__(self, nodes: SeveralNodes, path: str, body: Any) -> None:
        self.answer: tuple[int, Any] | None = None
        self._thread = threading.Thread(target=self._ask, args=(nodes, path, body))
        self._thread.start()

    def join(self) -> tuple[int, Any] | None:
        """Return status and answer; None: the connection was lost."""
        self._thread.join(PATIENCE_S)
        return self.answer

    def _ask(self, nodes: SeveralNodes, path: str, body: Any) -> None:
        try:
            self.answer = call(nodes, path, body)
        except OSError:
            self.answer = None


@pytest.fixture(scope="module")
def nodes(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SeveralNodes]:
    settings = {"pqbroker.node.silence.ms": "10000", "pqbroker.test.door": "true"}
    with several_nodes(tmp_path_factory.mktemp("nodes"), settings) as running:
        yield running


def test_rows_for_tablets_of_both_nodes_are_inserted_together(nodes: SeveralNodes) -> None:
    table = make_table(nodes, "inserted")
    every = list(range(PARTITIONS))
    for number in range(3):
        told = until_inserted(nodes, table, number, every)
        assert told["tablets"] == [
            {"tablet_index": index, "first_row_index": number, "row_count": 1} for index in every
        ]
        assert rows_in(nodes, table) == [[*range(number + 1)] for _ in every]


def test_rows_for_tablets_of_the_second_node_alone_are_inserted(nodes: SeveralNodes) -> None:
    table = make_table(nodes, "away")
    for tablets in (table.there[:1], table.there):
        told = until_inserted(nodes, table, 1, tablets)
        assert [one["tablet_index"] for one in told["tablets"]] == tablets
    found = rows_in(nodes, table)
    assert [len(found[index]) for index in table.there] == [2, *[1] * (len(table.there) - 1)]
    assert [found[index] for index in table.here] == [[] for _ in table.here]


def test_a_transaction_over_sorted_and_ordered_tablets_of_both_nodes_has_one_timestamp(nodes: SeveralNodes) -> None:
    table, keyed = make_table(nodes, "joined"), make_sorted(nodes, "keyed")
    transaction = begin(nodes)
    body = {
        "writes": [
            {"table": table.name, "rows": rows_of(7, list(range(PARTITIONS)))},
            {"table": keyed, "rows": [{"id": 1, "a": 7}]},
        ]
    }
    status, told = call(nodes, f"transactions/{transaction}/commit", body)
    assert status == 200, told
    assert told["row_count"] == PARTITIONS + 1
    assert call(nodes, f"transactions/{transaction}/commit", body) == (200, {**told, "duplicate": True})
    wait_until(lambda: rows_in(nodes, table) == [[7]] * PARTITIONS, "rows at both nodes", PATIENCE_S)
    lookup = {"keys": [{"id": 1}], "timestamp": told["timestamp"]}
    assert call(nodes, f"tables/{keyed}/lookup", lookup)[1]["rows"][0]["a"] == 7
    late = begin(nodes)
    assert call(nodes, f"tables/{keyed}/rows", {"rows": [{"id": 1, "a": 8}]})[0] == 200
    status, refused = call(nodes, f"transactions/{late}/commit", body)
    assert (status, refused["error"]["code"]) == (409, "ROW_LOCK_CONFLICT"), refused
    assert rows_in(nodes, table) == [[7]] * PARTITIONS


def test_rows_and_offsets_of_a_group_at_both_nodes_are_committed_together(nodes: SeveralNodes) -> None:
    table = make_table(nodes, "consumed")
    every = list(range(PARTITIONS))
    offsets = [{"group": "consumers", "topic": table.name, "partition": index, "offset": 5} for index in every]
    body = {"writes": writes(table, every), "offsets": offsets}
    path, told = until_committed(nodes, body)
    wait_until(lambda: rows_in(nodes, table) == [[1]] * PARTITIONS, "rows at both nodes", PATIENCE_S)
    assert committed(at_node(nodes, 2), "consumers", table.name) == [5] * PARTITIONS
    assert call(nodes, path, body) == (200, {**told, "duplicate": True})


def test_a_commit_whose_node_says_nothing_is_aborted_and_its_rows_go(nodes: SeveralNodes) -> None:
    table = make_table(nodes, "silent")
    both = [table.here[0], table.there[0]]
    second = nodes.pids()[2]
    os.kill(second, signal.SIGSTOP)
    try:
        status, told = call(nodes, f"tables/{table.name}/rows", {"rows": rows_of(1, both)})
        assert (status, told["error"]["code"]) == (503, "COMMIT_TOO_SLOW"), told
    finally:
        os.kill(second, signal.SIGCONT)
    began = time.monotonic()
    until_inserted(nodes, table, 2, both)
    assert time.monotonic() - began < LOCKED_S
    assert [rows_in(nodes, table)[index] for index in both] == [[2], [2]]


def test_a_commit_to_sorted_tablets_of_both_nodes_is_known_after_a_restart(nodes: SeveralNodes) -> None:
    """And so is one that never was."""
    wait_until(lambda: are_at_home(nodes), "cells are back at their nodes", PATIENCE_S)
    spread(nodes, "remembered")
    body = {"writes": [{"table": "remembered", "rows": [{"k": SPAN * index, "v": "x"} for index in range(TABLETS)]}]}
    path, told = until_committed(nodes, body)
    never = f"transactions/{begin(nodes)}/commit"
    kill(nodes, 1)
    wait_until(lambda: nodes.answers(1.0), "the first node serves again", PATIENCE_S)
    answers = list[tuple[int, Any]]()

    def are_known() -> bool:
        answers[:] = [call(nodes, one, body) for one in (path, never)]
        return all(answer.get("error", {}).get("code") != "COMMIT_UNKNOWN" for _, answer in answers)

    wait_until(are_known, "the nodes know what was decided", PATIENCE_S)
    assert answers[0] == (200, {**told, "duplicate": True})
    assert (answers[1][0], answers[1][1]["error"]["code"]) == (404, "NO_TRANSACTION"), answers[1]


def test_a_second_node_that_is_killed_behind_its_part_has_its_rows_nevertheless(nodes: SeveralNodes) -> None:
    table = make_table(nodes, "behind")
    both = [table.here[0], table.there[0]]
    with_held_decision(nodes, table.cells[both[0]], lambda: kill(nodes, 2), insertion(nodes, table, both))
    wait_until(lambda: are_all_or_none(nodes, table, both) == "all", "rows of both tablets", PATIENCE_S)
    until_inserted(nodes, table, 2, both)


def test_a_second_node_that_is_killed_before_it_has_heard_of_the_decision_writes_its_rows(nodes: SeveralNodes) -> None:
    table = make_table(nodes, "unheard")
    both = [table.here[0], table.there[0]]
    stop = lambda: os.kill(nodes.pids()[2], signal.SIGSTOP)  # noqa: E731
    transaction = begin(nodes)
    commit = partial(Asked, nodes, f"transactions/{transaction}/commit", {"writes": writes(table, both)})
    answer = with_held_decision(nodes, table.cells[both[0]], stop, commit)
    assert answer is not None
    assert answer[0] == 200, answer
    kill(nodes, 2)
    wait_until(lambda: are_all_or_none(nodes, table, both) == "all", "rows of both tablets", PATIENCE_S)


def test_a_first_node_that_is_killed_before_the_decision_leaves_nothing(nodes: SeveralNodes) -> None:
    table = make_table(nodes, "undecided")
    both = [table.here[0], table.there[0]]
    path, body = f"transactions/{begin(nodes)}/commit", {"writes": writes(table, both)}
    ask = partial(Asked, nodes, path, body)
    assert with_held_decision(nodes, table.cells[both[0]], lambda: kill(nodes, 1), ask) is None
    wait_until(lambda: nodes.answers(1.0), "the first node serves again", PATIENCE_S)
    began = time.monotonic()
    until_inserted(nodes, table, 2, [table.there[0]])
    assert time.monotonic() - began < LOCKED_S
    wait_until(lambda: is_served_by_both(nodes), "both nodes have open cells", PATIENCE_S)
    until_inserted(nodes, table, 3, both)
    found = rows_in(nodes, table)
    assert (found[both[0]], found[both[1]]) == ([3], [2, 3])
    status, told = call(nodes, path, body)
    assert (status, told["error"]["code"]) == (404, "NO_TRANSACTION"), told


@pytest.mark.parametrize("has_part_here", [True, False])
def test_a_first_node_that_is_killed_behind_the_decision_has_it_carried_out(
    nodes: SeveralNodes, has_part_here: bool
) -> None:
    table = make_table(nodes, f"decided{int(has_part_here)}of")
    both = [table.here[0] if has_part_here else table.there[-1], table.there[0]]
    body = {"writes": writes(table, both)}
    transaction = begin(nodes)
    path = f"transactions/{transaction}/commit"
    second = nodes.pids()[2]
    cell = table.cells[both[0]] if has_part_here else 0
    answer = with_held_decision(nodes, cell, lambda: os.kill(second, signal.SIGSTOP), partial(Asked, nodes, path, body))
    assert answer is not None
    assert answer[0] == 200, answer
    kill(nodes, 1)
    os.kill(second, signal.SIGCONT)
    wait_until(lambda: are_all_or_none(nodes, table, both) == "all", "rows of both tablets", PATIENCE_S)
    wait_until(lambda: is_repeated(nodes, path, body), "the same commit is known", PATIENCE_S)
    until_inserted(nodes, table, 2, both)


def test_rows_in_doubt_at_the_second_node_are_listed_and_keep_their_tables(nodes: SeveralNodes) -> None:
    table = make_table(nodes, "listed")
    both = [table.here[0], table.there[0]]
    spread(nodes, "listed-rows")
    name = begin(nodes)
    rows = [{"k": SPAN * index, "v": "x"} for index in range(TABLETS)]
    body = {"writes": [*writes(table, both), {"table": "listed-rows", "rows": rows}]}

    def listed() -> list[Any]:
        """Return what is unfinished, read page by page."""
        pages, after = list[Any](), ""
        while after is not None:
            status, page = call(nodes, f"transactions/unfinished?limit=1{after and '&after=' + after}")
            assert status == 200, page
            pages += page["unfinished"]
            after = page["next"]
        return pages

    def places() -> set[tuple[str, int]]:
        return {(one["participant"]["table"], one["participant"]["tablet_index"]) for one in listed()}

    def look() -> None:
        wait_until(lambda: (table.name, both[1]) in places(), "rows in doubt", PATIENCE_S)
        found = listed()
        assert call(nodes, "transactions/unfinished?limit=100")[1] == {"unfinished": found, "next": None}
        assert {one["transaction"] for one in found} == {name}
        assert {(one["what"], one["waits_for"]) for one in found} == {("prepared", None)}
        for path, code in (("listed-rows", "TRANSACTION_UNDER_WAY"), (table.name, "REQUEST_TIMED_OUT")):
            _, told = call(nodes, f"tables/{path}", method="DELETE")
            assert (told["error"]["code"], name in told["error"]["message"]) == (code, True), told
            assert "node 2" in told["error"]["message"] or path == "listed-rows", told

    ask = partial(Asked, nodes, f"transactions/{name}/commit", body)
    answer = with_held_decision(nodes, table.cells[both[0]], look, ask)
    assert answer is not None
    assert answer[0] == 200, answer
    wait_until(lambda: are_all_or_none(nodes, table, both) == "all", "rows of both tablets", PATIENCE_S)
    assert call(nodes, "tables/listed-rows/lookup", {"keys": [{"k": row["k"]} for row in rows]})[1]["rows"] == rows
    for path in ("listed-rows", table.name):
        wait_until(partial(is_deleted, nodes, path), "the table is deleted", PATIENCE_S)


def test_commits_are_whole_while_nodes_are_killed_at_any_moment(nodes: SeveralNodes) -> None:
    table = make_table(nodes, "killed")
    every, seed = list(range(PARTITIONS)), random.randrange(1 << 30)
    rng, known, unknown = random.Random(seed), list[int](), list[int]()
    for number in range(8):
        until_inserted(nodes, table, -1, every)
        transaction = begin(nodes)
        body = {"writes": [{"table": table.name, "rows": rows_of(number, every)}]}
        asked = Asked(nodes, f"transactions/{transaction}/commit", body)
        time.sleep(rng.random() * 0.06)  # the moment of the kill
        kill(nodes, 1 + number % 2)
        answer = asked.join()
        if answer is not None and answer[0] == 200:
            known.append(number)
        elif answer is None or answer[0] >= 500:
            unknown.append(number)
    until_inserted(nodes, table, -1, every)
    found = rows_in(nodes, table)
    seen = {tuple(row for row in rows if row >= 0) for rows in found}
    assert len(seen) == 1, (seed, found)
    (rows,) = seen
    assert set(known) <= set(rows) <= {*known, *unknown}, (seed, known, unknown)
    assert len(rows) == len(set(rows)), (seed, rows)


def make_table(nodes: SeveralNodes, name: str) -> SpreadTable:
    """Create an ordered table whose tablets both nodes run, the second one two or more, each in a cell of its own."""
    wait_until(lambda: are_at_home(nodes), "cells are back at their nodes", PATIENCE_S)
    for number in range(10):
        table = f"{name}{number}"
        asked = {"path": f"//{table}", "schema": SCHEMA, "tablet_count": PARTITIONS}
        wait_until(partial(is_created, nodes, asked), "a table", PATIENCE_S)
        wait_until(partial(is_led, nodes, table), "leaders of all tablets", PATIENCE_S)
        found = AdminClient(at_node(nodes, 1)).list_topics(table, timeout=PATIENCE_S).topics[table].partitions
        here, there = ([index for index in sorted(found) if found[index].leader == node] for node in (1, 2))
        if here and len(there) > 1:
            tablets = call(nodes, f"tables/{table}/tablets")[1]["tablets"]
            return SpreadTable(table, here, there, [int(tablet["home_cell_id"]) for tablet in tablets])
    raise AssertionError("no table lies at both nodes")


def until_committed(nodes: SeveralNodes, body: Any) -> tuple[str, Any]:
    """Commit in a new transaction, and again while offsets of a new topic are not known; return the path and answer."""
    answers = list[tuple[str, Any]]()

    def is_committed() -> bool:
        path = f"transactions/{begin(nodes)}/commit"
        status, told = call(nodes, path, body)
        assert status in (200, 503), told
        answers.append((path, told))
        return status == 200

    wait_until(is_committed, "rows and offsets are committed", PATIENCE_S)
    return answers[-1]


def are_at_home(nodes: SeveralNodes) -> bool:
    """Return True once all cells are open, and each node has as many: none is on its way back to a node."""
    found = Counter(cell["node"] for cell in call(nodes, "cells")[1]["cells"] if cell["id"])
    return is_served_by_both(nodes) and found[1] == found[2]


def is_created(nodes: SeveralNodes, asked: Any) -> bool:
    """Return True once a table is created; a cell that comes back to its node refuses it for a moment."""
    status, told = call(nodes, "tables", asked)
    assert status in (201, 409, 503), told
    return status in (201, 409)


def is_led(nodes: SeveralNodes, topic: str) -> bool:
    """Return True once the first node knows the leaders of all partitions: a new client asks no other one."""
    return leaders(AdminClient(at_node(nodes, 1)), topic) <= {1, 2}


def make_sorted(nodes: SeveralNodes, name: str) -> str:
    """Create a sorted table that the first node runs."""
    for number in range(10):
        table = f"{name}{number}"
        wait_until(partial(is_created, nodes, {"path": f"//{table}", "schema": KEYED}), "a table", PATIENCE_S)
        cell = int(call(nodes, f"tables/{table}/tablets")[1]["tablets"][0]["home_cell_id"])
        homes = {one["id"]: one["node"] for one in call(nodes, "cells")[1]["cells"]}
        if homes[cell] == 1:
            wait_until(partial(is_looked_up, nodes, table), "the sorted table serves", PATIENCE_S)
            return table
    raise AssertionError("no sorted table lies at the first node")


def is_looked_up(nodes: SeveralNodes, table: str) -> bool:
    """Return True once a sorted table answers."""
    return call(nodes, f"tables/{table}/lookup", {"keys": [{"id": 0}]})[0] == 200


def rows_of(number: int, tablets: list[int]) -> list[dict[str, int]]:
    """Return a row for each of the tablets."""
    return [{"a": number, "$tablet_index": index} for index in tablets]


def writes(table: SpreadTable, tablets: list[int]) -> list[dict[str, Any]]:
    """Return the writes of a transaction: a row for each of the tablets."""
    return [{"table": table.name, "rows": rows_of(1, tablets)}]


def insertion(nodes: SeveralNodes, table: SpreadTable, tablets: list[int]) -> Callable[[], Asked]:
    """Return what begins an insertion of a row for each of the tablets."""
    return partial(Asked, nodes, f"tables/{table.name}/rows", {"rows": rows_of(1, tablets)})


def begin(nodes: SeveralNodes) -> str:
    """Return the name of a new transaction."""
    status, started = call(nodes, "transactions", {"timeout_ms": 60_000})
    assert status == 201, started
    name: str = started["transaction"]
    return name


def rows_in(nodes: SeveralNodes, table: SpreadTable) -> list[list[int]]:
    """Return the rows of each tablet."""
    found = []
    for index in range(PARTITIONS):
        status, told = call(nodes, f"tables/{table.name}/rows?tablet_index={index}&limit=1000")
        assert status == 200, told
        found.append([row["a"] for row in told["rows"]])
    return found


def are_all_or_none(nodes: SeveralNodes, table: SpreadTable, tablets: list[int]) -> str:
    """Return "all" or "none" of the tablets that have their one row, "some" meanwhile, and "" while one is not read."""
    found = []
    for index in tablets:
        try:
            status, told = call(nodes, f"tables/{table.name}/rows?tablet_index={index}")
        except OSError:
            return ""
        if status != 200:
            return ""
        found.append(len(told["rows"]))
        assert len(told["rows"]) < 2
    return "some" if len(set(found)) > 1 else "all" if found[0] else "none"


def is_repeated(nodes: SeveralNodes, path: str, body: Any) -> bool:
    """Return True once a commit that is sent again is known to be committed."""
    status, told = call(nodes, path, body)
    assert status in (200, 503), told
    return bool(status == 200 and told["duplicate"])


def is_deleted(nodes: SeveralNodes, table: str) -> bool:
    """Return True once a table is deleted."""
    body, headers = None, {"content-type": "application/json"}
    request = urllib.request.Request(f"http://{nodes.http}/v1/tables/{table}", body, headers, method="DELETE")
    try:
        with urllib.request.urlopen(request, timeout=PATIENCE_S) as answer:
            return bool(answer.status == 204)
    except urllib.error.HTTPError as refused:
        return refused.code == 404


def until_inserted(nodes: SeveralNodes, table: SpreadTable, number: int, tablets: list[int]) -> Any:
    """Insert rows, again while a node is away; refusals write nothing, so they are inserted once. Return the answer."""
    answers = list[Any]()

    def is_inserted() -> bool:
        try:
            status, told = call(nodes, f"tables/{table.name}/rows", {"rows": rows_of(number, tablets)})
        except OSError:
            return False
        assert status in (200, 409, 503), told
        answers.append(told)
        return status == 200

    wait_until(is_inserted, "rows are inserted", PATIENCE_S)
    return answers[-1]


def with_held_decision(
    nodes: SeveralNodes, cell: int, then: Callable[[], None], ask: Callable[[], Asked]
) -> tuple[int, Any] | None:
    """Ask for a commit, do something while its decision waits for the store, let it be stored; return its answer."""

    def cue(fault: str) -> bool:
        status, told = call(nodes, "test/store", {"fault": fault, "cell": cell})
        assert status == 200, told
        return bool(told["waiting"])

    cue("hold")
    asked = ask()
    wait_until(lambda: cue("hold"), "the decision's request waits for the store", PATIENCE_S)
    then()
    with suppress(OSError):  # its node was killed, and what it held with it
        cue("release")
    return asked.join()
