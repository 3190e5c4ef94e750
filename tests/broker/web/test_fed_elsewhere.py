"""Parts of a materialization at another node: what it answers, what it refuses, and lies."""

import json
from dataclasses import replace
from typing import Any

import pytest

from pqbroker.broker.ground.other_nodes import NodeSilent
from pqbroker.broker.services.materializing.fed_elsewhere import FedElsewhere
from pqbroker.broker.services.materializing.fed_partitions import read_slice, span_of
from pqbroker.broker.web.peer_calls import PeerCalls
from pqbroker.pq.serving.topic import Topic
from pqbroker.protocol.records import Record, encode_batch
from pqbroker.tables.refusals import TableError
from pqbroker.tables.serving.feed_progress import DeadLetter, FeedMove, RunLetters
from pqbroker.tables.serving.table import SortedTable
from pqbroker.tables.sorted.log_entries import NewRow
from tests.broker.web.conftest import Web
from tests.broker.web.test_materializations import COLUMNS, create, produce, rows_of
from tests.broker.web.test_peer_queries import Linked

RUN = bytes(range(16))
LETTERS = RunLetters(RUN.hex(), 2, (DeadLetter(0, 4, "no key"), DeadLetter(0, 5, "no key")))


def elsewhere(web: Web, *answers: Any) -> FedElsewhere:
    """Return the node as another one, reached over a link; `answers` stand in for its own."""
    node = web.node.server.node
    linked = Linked(PeerCalls(node), *answers)
    return FedElsewhere(replace(node, others=lambda: linked), 2)


def topic_of(web: Web) -> Topic:
    found = web.node.server.node.cell.current.topics.get("orders")
    assert found is not None
    return found


def table_of(web: Web) -> SortedTable:
    found = web.node.server.node.cell.current.sorted_tables.get("latest")
    assert found is not None
    return found


async def refused(asking: Any) -> str:
    with pytest.raises(TableError) as refusal:
        await asking
    return refusal.value.code


async def make(web: Web) -> None:
    """Make topic and table, but nothing that feeds: the other node would be the same."""
    await create(web)
    await web.ask("DELETE", "/v1/materializations/latest", None)


async def test_partitions_are_told_and_read_as_here(web: Web) -> None:
    await make(web)
    await produce(web, ("a", "1"), ("b", "2"))
    topic, there = topic_of(web), elsewhere(web)
    partition = topic.partitions[0]
    assert await there.spans(topic, [0]) == [span_of(partition)] == [(0, 0, 2)]
    mine, theirs = await read_slice(partition, 0), await there.slice(topic, 0, 0)
    assert (mine.end, b"".join(mine.records)) == (theirs.end, b"".join(theirs.records))
    assert theirs.end == 2


async def test_rows_and_progress_are_written_together_and_once(web: Web) -> None:
    await make(web)
    await produce(web, ("k", "v"))
    there, table = elsewhere(web), table_of(web)
    assert (await web.ask("POST", "/v1/tables/latest/rows", {"rows": [{"key": "k", "value": "v"}]}))[0] == 200
    (store,) = table.tablets[0].stores
    assert store.row_count == 1
    move = FeedMove(RUN, 0, 0, 5, LETTERS)
    await there.write(table, {0: ()}, move)
    known = table.tablets[0].progress
    assert (known.offset_of(RUN, 0), known.letters) == (5, LETTERS)
    told = await there.progress(table, RUN)
    assert (told.offset_of(RUN, 0), told.offset_of(RUN, 1), told.letters_of(RUN)) == (5, None, LETTERS)
    assert (await there.progress(table, bytes(16))).offsets_of(bytes(16)) == []
    assert await refused(there.write(table, {0: ()}, move)) == "FEED_MOVED"
    assert known.offset_of(RUN, 0) == 5
    await there.write(table, {0: ()}, FeedMove(RUN, 0, 5, 6))
    assert (await there.progress(table, RUN)).offset_of(RUN, 0) == 6
    assert await rows_of(web, {"key": "k"}) == [{"key": "k", "value": "v", "timestamp_ms": None}]


async def test_dead_letters_are_written_there_as_here(web: Web) -> None:
    await make(web)
    await web.node.create_topic("letters", 1)
    letters = web.node.server.node.cell.current.topics.get("letters")
    assert letters is not None
    batch = encode_batch([Record(key=b"k", value=b"no row"), Record(key=None, value=b"no key")])
    for count in (1, 2):
        await elsewhere(web).letters(letters, memoryview(batch))
        assert letters.partitions[0].state.end_offset == 2 * count
    assert await refused(elsewhere(web).letters(letters, memoryview(bytes(61)))) == "INVALID_RECORD"
    another = Topic(replace(letters.record, topic_id=bytes(16)), letters.config, web.node.server.node.settings)
    assert await refused(elsewhere(web).letters(another, memoryview(batch))) == "UNKNOWN_TOPIC_OR_PARTITION"
    assert letters.partitions[0].state.end_offset == 4


async def test_a_table_that_was_altered_or_takes_no_rows_refuses_them(web: Web) -> None:
    await make(web)
    there, known = elsewhere(web), table_of(web)
    move, row = FeedMove(RUN, 0, 0, 1), NewRow(b"k", b"x")
    await web.ask("POST", "/v1/tables/latest/freeze", {})
    assert await refused(there.write(known, {0: [row]}, move)) == "WRONG_STATE"
    await web.ask("POST", "/v1/tables/latest/unmount", {})
    assert await refused(there.write(known, {0: [row]}, move)) == "WRONG_STATE"
    before = SortedTable(known.record, known.tablets[0].share)
    columns = [*COLUMNS, {"name": "more", "type": "int64"}]
    assert (await web.ask("POST", "/v1/tables/latest/alter", {"schema": columns}))[0] == 200
    await web.ask("POST", "/v1/tables/latest/mount", {})
    assert await refused(there.write(before, {0: [row]}, move)) == "TABLE_CHANGED"
    assert known.tablets[0].progress.offset_of(RUN, 0) is None
    other = SortedTable(replace(known.record, table_id=bytes(16)), known.tablets[0].share)
    assert await refused(there.write(other, {0: [row]}, move)) == "TABLE_CHANGED"


async def test_another_topic_of_the_name_is_not_read(web: Web) -> None:
    await make(web)
    known = topic_of(web)
    another = Topic(replace(known.record, topic_id=bytes(16)), known.config, web.node.server.node.settings)
    assert await refused(elsewhere(web).spans(another, [0])) == "UNKNOWN_TOPIC_OR_PARTITION"
    assert await refused(elsewhere(web).slice(known, 7, 0)) == "UNKNOWN_TOPIC_OR_PARTITION"


@pytest.mark.parametrize(
    "answer",
    [
        (5, b""), ({}, b""), ({"refused": ["A"]}, b""), ({"spans": [[0, 0]]}, b""), ({"spans": [[1, 0, 0]]}, b""),
        ({"end": 1, "aborted": 5}, b""), ({"offsets": [[0, 1]], "letters": {"count": "x"}}, b""),
        NodeSilent("node 2 says nothing"),
    ],
)  # fmt: skip
async def test_a_node_that_is_away_or_lies_is_named(web: Web, answer: Any) -> None:
    await make(web)
    topic, table = topic_of(web), table_of(web)
    for asking in (
        elsewhere(web, answer).spans(topic, [0]), elsewhere(web, answer).slice(topic, 0, 0),
        elsewhere(web, answer).progress(table, RUN),
    ):  # fmt: skip
        with pytest.raises(TableError, match="node 2") as refusal:
            await asking
        assert refusal.value.code == "NODE_SILENT"


@pytest.mark.parametrize(
    "asked",
    [
        {"feed": "dance"}, {"feed": 5}, {"feed": "spans"}, {"feed": "spans", "topic": "x", "partitions": [0]},
        {"feed": "progress", "table": None}, {"feed": "progress", "table": "x"},
    ],
)  # fmt: skip
async def test_what_is_no_question_is_refused(web: Web, asked: Any) -> None:
    with pytest.raises(ValueError):  # noqa: PT011
        await PeerCalls(web.node.server.node).answer(json.loads(json.dumps(asked)), b"")


@pytest.mark.parametrize(
    "wrong",
    [
        {"move": [RUN.hex(), 0, 0, 1]}, {"move": [5, 0, 0, 1, None]}, {"move": [RUN.hex(), 0, 0, 1, {"count": "x"}]},
        {"tablets": 5}, {"tablets": [[1]]},
    ],
)  # fmt: skip
async def test_what_is_no_write_is_refused(web: Web, wrong: Any) -> None:
    await make(web)
    table = table_of(web)
    asked = {
        "feed": "write", "table": table.record.table_id.hex(), "columns": [*table.record.columns], "tablets": [],
        "move": [RUN.hex(), 0, 0, 1, None], **wrong,
    }  # fmt: skip
    with pytest.raises(ValueError):  # noqa: PT011
        await PeerCalls(web.node.server.node).answer(json.loads(json.dumps(asked)), b"")
    assert table.tablets[0].progress.offset_of(RUN, 0) is None


@pytest.mark.parametrize(
    "wrong",
    [
        {"feed": "spans", "partitions": 5}, {"feed": "spans", "partitions": ["x"]},
        {"feed": "slice", "partition": "x", "start": 0}, {"feed": "slice", "partition": 0},
    ],
)  # fmt: skip
async def test_what_is_no_read_is_refused(web: Web, wrong: Any) -> None:
    await make(web)
    asked = {"topic": topic_of(web).record.topic_id.hex(), **wrong}
    with pytest.raises(ValueError):  # noqa: PT011
        await PeerCalls(web.node.server.node).answer(asked, b"")
