"""Sessions of ordered tables of a broker of two nodes, and rows staged for them: HTTP is at the first, tablets are at
both."""

import contextlib
import os
import signal
import time
import urllib.request
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from tests.broker.node.test_http_over_nodes import call, is_served_by_both
from tests.broker.node.test_ordered_over_nodes import PATIENCE_S, SCHEMA, TABLETS, are, cells, rows, spread
from tests.support.several_nodes import SeveralNodes, several_nodes
from tests.support.waiting import wait_until

ALL = range(TABLETS)


@pytest.fixture(scope="module")
def nodes(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SeveralNodes]:
    settings = {
        "pqbroker.node.silence.ms": "10000", "pqbroker.node.return.ms": "1000", "log.retention.check.interval.ms": "300"
    }  # fmt: skip
    with several_nodes(tmp_path_factory.mktemp("nodes"), settings) as running:
        yield running


def test_a_batch_for_tablets_of_both_nodes_is_taken_once(nodes: SeveralNodes) -> None:
    spread(nodes, "batches")
    first = insert(nodes, "batches", 1, [1, 2, 3, 4])
    assert first[0] == 200
    assert not first[1]["duplicate"]
    again = insert(nodes, "batches", 1, [1, 2, 3, 4])
    assert (again[0], again[1]["tablets"], again[1]["duplicate"]) == (200, first[1]["tablets"], True), again
    assert insert(nodes, "batches", 0, [5])[1]["duplicate"], "an earlier one"
    for number, index in enumerate(ALL):  # each tablet alone knows one of them
        assert not insert(nodes, "batches", 2 + number, [10 + index], index)[1]["duplicate"]
    for number in range(TABLETS):
        assert insert(nodes, "batches", 2 + number, [99])[1]["duplicate"]
    assert ids(nodes, "batches") == sorted([1, 2, 3, 4, *(10 + index for index in ALL)])


@pytest.mark.parametrize("killed", [1, 2])
def test_batches_that_come_again_after_any_error_are_there_once_though_a_node_is_killed(
    nodes: SeveralNodes, killed: int
) -> None:
    name, count = f"killed{killed}", 30
    spread(nodes, name)
    homes = cells(nodes)

    def send(lane: int) -> None:
        for sequence in range(count):
            numbers = [lane * 1000 + sequence * 4 + one for one in ALL]
            until_taken(lambda: insert(nodes, name, sequence, numbers, session=f"s{lane}"))  # noqa: B023

    def stage_and_commit(lane: int) -> None:
        for sequence in range(count // 3):
            numbers = [lane * 1000 + sequence * 4 + one for one in ALL]
            until_taken(lambda: staged_and_committed(nodes, name, sequence, numbers, f"t{lane}"))  # noqa: B023

    with ThreadPoolExecutor(3) as several:
        works = [several.submit(send, 0), several.submit(send, 1), several.submit(stage_and_commit, 2)]
        wait_until(lambda: len(ids(nodes, name)) > 40, "some are there", PATIENCE_S)
        os.kill(nodes.pids()[killed], signal.SIGKILL)
        for work in works:
            work.result(PATIENCE_S)
    per_lane = [count * TABLETS, count * TABLETS, count // 3 * TABLETS]
    assert ids(nodes, name) == [lane * 1000 + one for lane, size in enumerate(per_lane) for one in range(size)]
    wait_until(lambda: are(nodes, homes), "the node has its cells again", PATIENCE_S)


def test_a_producer_keeps_its_session_over_nodes_and_is_fenced_by_the_next_one(nodes: SeveralNodes) -> None:
    spread(nodes, "pushed")
    assert push(nodes, 0, 0, [1])[1]["error"]["code"] == "NO_SESSION"
    status, taken = call(nodes, "queues/pushed/producer-sessions", {**SESSION, "user_meta": {"at": 5}})
    assert (status, taken["epoch"], taken["sequence_number"]) == (200, 0, -1), taken
    for number, index in enumerate(ALL):
        status, told = push(nodes, 0, number * 2, [number, number + 100], index)
        assert (status, told["last_sequence_number"], told["skipped_row_count"]) == (200, number * 2 + 1, 0), told
    status, told = push(nodes, 0, 0, list(range(9)))
    assert (status, told["skipped_row_count"], told["last_sequence_number"]) == (200, 8, 8), told
    status, taken = call(nodes, "queues/pushed/producer-sessions", SESSION)
    assert (status, taken["epoch"], taken["sequence_number"], taken["user_meta"]) == (200, 1, 8, {"at": 5}), taken
    assert push(nodes, 0, 9, [77])[1]["error"]["code"] == "ZOMBIE_EPOCH"
    assert push(nodes, 1, 9, [9])[0] == 200
    assert ids(nodes, "pushed") == sorted([0, 1, 2, 3, 100, 101, 102, 103, 8, 9])
    assert call(nodes, "queues/pushed/producer-sessions", SESSION, "DELETE")[0] == 204
    assert push(nodes, 1, 10, [1])[1]["error"]["code"] == "NO_SESSION"
    assert call(nodes, "queues/pushed/producer-sessions", SESSION)[1]["epoch"] == 0


def test_sessions_of_both_nodes_are_listed_by_name_in_pages(nodes: SeveralNodes) -> None:
    spread(nodes, "listed")
    names = [f"p{number}" for number in range(7)]
    for number, producer in enumerate(names):
        session = {"producer": producer, "session": "s"}
        assert call(nodes, "queues/listed/producer-sessions", session)[0] == 200
        body = {**session, "epoch": 0, "sequence_number": 0, "rows": [{"id": 1, "$tablet_index": number % TABLETS}]}
        assert call(nodes, "queues/listed/push", body)[0] == 200
    found, after = list[tuple[str, int, int]](), ""
    while True:
        told = call(nodes, f"queues/listed/producer-sessions?limit=2{after}")[1]
        found += [(one["producer"], one["epoch"], one["sequence_number"]) for one in told["sessions"]]
        if told["next"] is None:
            break
        after = f"&after_producer={told['next']['producer']}&after_session={told['next']['session']}"
    assert found == [(name, 0, 0) for name in names]


def test_rows_for_both_nodes_are_staged_and_committed_once(nodes: SeveralNodes) -> None:
    spread(nodes, "staged")
    pieces = stage(nodes, "staged", 0, [1, 2, 3, 4])
    assert {piece["tablet_index"] for piece in pieces} == {*ALL}
    assert ids(nodes, "staged") == []
    status, told = commit(nodes, "staged", 0, pieces)
    assert (status, told) == (200, {"row_count": 4, "duplicate": False, "done": True})
    assert ids(nodes, "staged") == [1, 2, 3, 4]
    again = stage(nodes, "staged", 0, [4, 3, 2, 1])
    assert commit(nodes, "staged", 0, pieces)[1]["duplicate"]
    assert commit(nodes, "staged", 0, again)[1]["error"]["code"] == "CHANGED_BATCH", "rows went to other tablets"
    assert commit(nodes, "staged", 0, again, on_changed="keep")[1]["duplicate"]
    assert commit(nodes, "staged", 1, again)[1]["error"]["code"] == "STAGE_LOST", "what another try had staged is gone"
    assert commit(nodes, "staged", 1, stage(nodes, "staged", 1, [5]))[0] == 200
    assert commit(nodes, "staged", 0, pieces)[1]["error"]["code"] == "SESSION_AHEAD"
    assert insert(nodes, "staged", 1, [6], session="q")[1]["duplicate"]
    assert ids(nodes, "staged") == [1, 2, 3, 4, 5]
    assert held(nodes) == 0


def test_a_table_in_one_cell_is_served_at_its_node(nodes: SeveralNodes) -> None:
    wait_until(lambda: is_served_by_both(nodes), "both nodes have open cells", PATIENCE_S)
    for number in range(TABLETS):
        name = f"alone{number}"
        assert call(nodes, "tables", {"path": f"//{name}", "schema": SCHEMA})[0] == 201
        pieces = stage(nodes, name, 0, [1], ())
        assert commit(nodes, name, 0, pieces) == (200, {"row_count": 1, "duplicate": False, "done": True})
        assert insert(nodes, name, 1, [2], 0)[0] == 200
        assert insert(nodes, name, 1, [2], 0)[1]["duplicate"]
        assert [row["id"] for row in rows(nodes, name, 0)[1]["rows"]] == [1, 2]
    at = {call(nodes, f"tables/alone{number}/tablets")[1]["tablets"][0]["node"] for number in range(TABLETS)}
    assert at == {1, 2}


def test_pieces_that_nobody_commits_go_at_both_nodes(nodes: SeveralNodes) -> None:
    spread(nodes, "left")
    assert len(stage(nodes, "left", 0, [1, 2, 3, 4])) == TABLETS
    assert held(nodes) == TABLETS
    status, told = call(nodes, "settings", {"settings": {"producer.id.expiration.ms": "1000"}}, "PATCH")
    assert status == 200, told
    wait_until(lambda: held(nodes) == 0, "no piece is left", PATIENCE_S)


SESSION = {"producer": "loader", "session": "host"}


def push(nodes: SeveralNodes, epoch: int, first: int, numbers: Sequence[int], tablet: int = 0) -> tuple[int, Any]:
    pushed = [{"id": number, "$tablet_index": tablet} for number in numbers]
    body = {**SESSION, "epoch": epoch, "sequence_number": first, "rows": pushed}
    return call(nodes, "queues/pushed/push", body)


def insert(
    nodes: SeveralNodes, name: str, sequence: int, numbers: Sequence[int], tablet: int | None = None, session: str = "q"
) -> tuple[int, Any]:
    """Insert rows in a session, each for the next tablet unless one is named."""
    given = [
        {"id": number, "$tablet_index": one % TABLETS if tablet is None else tablet}
        for one, number in enumerate(numbers)
    ]
    return call(nodes, f"tables/{name}/rows", {"session": session, "sequence": sequence, "rows": given})


def stage(
    nodes: SeveralNodes, name: str, sequence: int, numbers: Sequence[int], tablets: Sequence[int] = ALL,
    session: str = "q",
) -> list[Any]:
    """Stage rows, each for the next of the tablets; return the pieces."""
    status, told = staging(nodes, name, sequence, numbers, tablets, session)
    assert status == 200, told
    pieces: list[Any] = told["pieces"]
    return pieces


def staging(
    nodes: SeveralNodes, name: str, sequence: int, numbers: Sequence[int], tablets: Sequence[int], session: str
) -> tuple[int, Any]:
    places = [{"$tablet_index": tablets[one % len(tablets)]} if tablets else {} for one in range(len(numbers))]
    given = [{"id": number, **place} for number, place in zip(numbers, places, strict=True)]
    return call(nodes, f"tables/{name}/staged-rows", {"session": session, "sequence": sequence, "rows": given})


def commit(
    nodes: SeveralNodes, name: str, sequence: int, pieces: Sequence[Any], session: str = "q", **more: str
) -> tuple[int, Any]:
    body = {"session": session, "sequence": sequence, "pieces": [piece["name"] for piece in pieces], **more}
    return call(nodes, f"tables/{name}/staged-rows/commit", body)


def staged_and_committed(
    nodes: SeveralNodes, name: str, sequence: int, numbers: Sequence[int], session: str
) -> tuple[int, Any]:
    status, told = staging(nodes, name, sequence, numbers, ALL, session)
    if status != 200:
        return status, told
    status, told = commit(nodes, name, sequence, told["pieces"], session)
    return (503, told) if status == 200 and not told["done"] else (status, told)


def until_taken(send: Callable[[], tuple[int, Any]]) -> None:
    """Send a batch until it is taken; a node may be started again meanwhile."""
    end_s = time.monotonic() + PATIENCE_S
    told: Any = "no answer"
    while time.monotonic() < end_s:
        with contextlib.suppress(OSError):
            status, told = send()
            if status == 200:
                return
            assert status == 503, told
    raise AssertionError(told)


def ids(nodes: SeveralNodes, name: str) -> list[int]:
    """Return the ids of all rows, sorted; the tablets may move meanwhile."""
    found = list[int]()
    for index in ALL:
        end_s = time.monotonic() + PATIENCE_S
        while True:
            status, told = 0, dict[str, Any]()
            with contextlib.suppress(OSError):
                status, told = call(nodes, f"tables/{name}/rows?tablet_index={index}&limit=1000")
            if status == 200:
                found += [row["id"] for row in told["rows"]]
                break
            assert time.monotonic() < end_s, told
    return sorted(found)


def held(nodes: SeveralNodes) -> int:
    """Return how many pieces all nodes hold."""
    with contextlib.suppress(OSError), urllib.request.urlopen(f"http://{nodes.http}/metrics") as answer:
        lines = answer.read().decode().splitlines()
        return sum(int(float(line.split()[-1])) for line in lines if line.startswith("pqbroker_staged_pieces"))
    return -1
