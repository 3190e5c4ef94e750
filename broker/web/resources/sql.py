"""SQL over topics: one query, its answer while it is made."""

import asyncio
import json
from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from difflib import get_close_matches
from itertools import islice
from typing import TYPE_CHECKING, Any

from pqbroker.broker.ground.access import AclOperation, check_access
from pqbroker.broker.services.sql.files import missing_file, place_of
from pqbroker.broker.services.sql.listing import Listing
from pqbroker.broker.services.sql.query import OtherReads, Query, Question, check_files, check_params
from pqbroker.broker.services.sql.topic_reads import NodeReads, TopicParts, TopicReads
from pqbroker.broker.services.topics.finding import every_topic, find_topic, topic_resource
from pqbroker.broker.services.topics.partitions import unknown_topic
from pqbroker.broker.web.resources.away_reads import AwayReads
from pqbroker.broker.web.resources.contents import CONTENT, read
from pqbroker.broker.web.resources.isolation import read_isolation
from pqbroker.broker.web.routing.problems import ENDING, Problem, bad_request, of_error
from pqbroker.broker.web.routing.read_timestamps import find_read_timestamp
from pqbroker.broker.web.routing.routes import Call, Route, Stream, StreamCut
from pqbroker.broker.web.routing.schemas import COUNT, TEXT, array_of, object_of
from pqbroker.broker.web.routing.stream_forms import ARROW_STREAM, LINES
from pqbroker.pq.reading.query import Isolation
from pqbroker.pq.serving.topic import Topic
from pqbroker.protocol.errors import ErrorCode, KafkaError
from pqbroker.storage.tablets.scheme_objects import SORTED_TABLE
from pqbroker.tables.serving.open_reads import OpenReads
from pqbroker.tables.work.refusal import QueryRefused

if TYPE_CHECKING:
    from pqbroker.tables.serving.table import SortedTable

JSON = "application/json"
CONTENT_TYPES = {"json": "application/x-ndjson", "csv": "text/csv", "arrow": ARROW_STREAM}
"""Content types by `format`."""
_LIKENESS_MIN = 0.8
"""Likeness of a name that is suggested in place of one that is missing."""
_NEAR_AMONG = 300
"""Names that one of no topic is compared with: more would take the loop too long."""
_STATUSES = {
    "TOO_MANY_QUERIES": 503, "WORKER_LOST": 503, "QUERY_TOO_LONG": 504, "QUERY_TOO_LARGE": 413, "RESULT_TOO_LARGE": 413,
    "TABLES_NOT_INSTALLED": 501, "CORRUPT_MESSAGE": 500, "WRONG_STATE": 409,
    "NO_TABLE": 404, "TABLE_CHANGED": 409, "TABLET_BUSY": 503, "TABLET_DAMAGED": 409, "TABLET_NOT_OPEN": 409,
    "TABLET_STARTING": 503, "ROW_LOCKED": 503, "NO_FILE": 404, "FILE_TOO_LARGE": 413, "NODE_SILENT": 503,
    "OTHER_NODE": 503, "NOT_LEADER_OR_FOLLOWER": 503, "KAFKA_STORAGE_ERROR": 503, "UNKNOWN_TOPIC_OR_PARTITION": 404,
    "TOPIC_AUTHORIZATION_FAILED": 403,
}  # fmt: skip
"""HTTP status of refusals before the first byte, by code; others have 400."""


async def query(call: Call) -> Stream:
    """Problem where the question is none; what the query is refused for comes with its first piece."""
    body = call.body
    format_ = body.get("format", "json")
    if format_ not in CONTENT_TYPES:
        raise bad_request(f"body.format is {format_[:100]!r}; give {', '.join(CONTENT_TYPES)}")
    timestamp = await find_read_timestamp(call)
    isolation = read_isolation(body.get("isolation", "read_committed"), "body.isolation")
    question = Question(
        body["query"], format_, call.holder, body.get("timeout_ms"), body.get("explain", False), timestamp, isolation,
        body.get("params"), await _read_files(body.pop("files")) if body.get("files") else {},
    )  # fmt: skip
    settings = call.node.settings
    try:
        check_params(question.params, settings)
        if question.files:
            check_files(question.files, settings)
    except QueryRefused as refusal:
        raise _problem(refusal) from None
    targets = CallersTargets(call)
    asked = Query(call.node.workers, settings, targets, question)
    if question.explain:
        return Stream(JSON, _explained(asked), has_end=True)
    return Stream(CONTENT_TYPES[format_], _answered(asked, format_, targets), has_end=True)


async def _read_files(given: Mapping[str, Any]) -> dict[str, bytes]:
    """Return the files of a body, in a thread: they may be long. Problem."""
    return await asyncio.to_thread(
        lambda: {name: read(content, f"body.files[{name[:100]!r}]") or b"" for name, content in given.items()}
    )


class CallersTargets:
    """Topics, sorted tables and local files that the caller of a query may read."""

    def __init__(self, call: Call) -> None:
        self._call = call
        self._names: set[str] = set()
        self._listings: dict[tuple[str, ...] | None, Listing] = {}
        access = call.node.access
        self._revision = None if access is None else access.revision

    def check(self) -> None:
        """KafkaError where the caller may not read all that the query names any more: rules may have changed."""
        access = self._call.node.access
        if access is not None and access.revision != self._revision:
            self._revision = access.revision
            for name in self._names:
                check_access(self._call, AclOperation.READ, topic_resource(name))

    def is_sorted(self, name: str) -> bool:
        return self._call.node.cell.current.scheme.kind_of(name) == SORTED_TABLE

    def topic(self, name: str) -> Topic:
        """KafkaError with a name that is near, among those that the caller may see."""
        call = self._call
        self._names.add(name)
        try:
            topic = find_topic(call, AclOperation.READ, name, or_static=True)
        except KafkaError as refusal:
            if refusal.code is not ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
                raise
            names = islice(call.node.cell.current.topics.names(or_static=True), _NEAR_AMONG)
            known = [each.record.name for each in every_topic(call, AclOperation.DESCRIBE, names, or_static=True)]
            near = get_close_matches(name, known, 1, _LIKENESS_MIN)
            hint = f"; did you mean {near[0]!r}?" if near else ""
            raise unknown_topic(name, hint or missing_file(name, call.node.settings)) from None
        return topic

    def parts_away(self, names: Sequence[str]) -> Mapping[int, TopicParts]:
        """KafkaError, NOT_LEADER_OR_FOLLOWER while no node runs some of them."""
        leaders = self._call.node.leaders
        found: dict[int, dict[str, tuple[Topic, Sequence[int]]]] = {}
        for name in names if len(leaders.nodes) > 1 else ():
            topic = self.topic(name)
            for node, indexes in leaders.by_number(topic).items():
                if node != leaders.number:
                    found.setdefault(node, {})[name] = topic, indexes
        return found

    def parts_here(self, names: Sequence[str]) -> TopicParts:
        """KafkaError, Problem as `Call.check_served`."""
        leaders = self._call.node.leaders
        found: dict[str, tuple[Topic, Sequence[int]]] = {}
        for name in names:
            topic = self.topic(name)
            found[name] = topic, range(len(topic.partitions))
            if len(leaders.nodes) > 1:
                own = leaders.by_number(topic).get(leaders.number, ())
                self._call.check_served(topic, own)
                found[name] = topic, own
        return found

    def node_of(self, name: str, partition: int) -> int | None:
        leaders = self._call.node.leaders
        return None if len(leaders.nodes) == 1 else leaders.only_node(self.topic(name), (partition,))

    def reads_here(self, isolation: Isolation) -> NodeReads:
        return TopicReads(self.served_topic, isolation)

    def reads_at(self, node: int, isolation: Isolation) -> OtherReads:
        return AwayReads(self._call, node, isolation)

    def nodes_of(self, table: "SortedTable", indexes: Sequence[int]) -> Sequence[int | None]:
        leaders, record = self._call.node.leaders, table.record
        return [leaders.other_node(record.cell_of(index)) for index in indexes]

    def open_reads(self) -> OpenReads:
        return self._call.node.cell.current.sorted_tables.share.reads

    def served_topic(self, name: str, partitions: Sequence[int]) -> Topic:
        """Return a topic of which this node runs some partitions. KafkaError, Problem as `Call.check_served`."""
        topic = self.topic(name)
        self._call.check_served(topic, partitions)
        return topic

    def sorted_table(self, name: str) -> "SortedTable":
        """TableError, KafkaError."""
        self._names.add(name)
        from pqbroker.broker.services.sorted_tables.finding import find_sorted

        return find_sorted(self._call, AclOperation.READ, name)

    def file(self, name: str) -> Mapping[str, Any] | None:
        """Return the local file that the name means; None: it means none. KafkaError."""
        opening = self._call.node.cell.current
        place = place_of(name, self._call.node.settings)
        if place is None or self.is_sorted(name) or opening.topics.get(name, or_static=True) is not None:
            return None
        self._names.add(name)
        check_access(self._call, AclOperation.READ, topic_resource(name))
        return place

    async def listed(self, after: str, names: Sequence[str] | None, *, has_columns: bool) -> dict[str, Any]:
        return await self._listing(names).page(after, names, has_columns=has_columns)

    def _listing(self, names: Sequence[str] | None) -> Listing:
        key = None if names is None else tuple(names)
        return self._listings.setdefault(key, Listing(self._call))

    def moment(self, names: Sequence[str]) -> AbstractAsyncContextManager[None]:
        """Return a moment at which no transaction over these is visible in a part. TableError ROW_LOCKED."""
        return self._call.node.cell.current.commits.moments.take(names)


async def _explained(asked: Query) -> AsyncGenerator[bytes, None]:
    try:
        async with asked:
            while await asked.piece() is not None:
                pass
    except QueryRefused as refusal:
        raise _problem(refusal) from None
    yield (json.dumps(asked.explanation, ensure_ascii=False) + "\n").encode()


async def _answered(asked: Query, format_: str, targets: CallersTargets) -> AsyncGenerator[bytes, None]:
    """Problem before the first piece. Later, JSON lines end with one that names the error, and other formats break off.
    """
    has_begun = False
    try:
        async with asked:
            while (piece := await asked.piece()) is not None:
                targets.check()
                has_begun = True
                yield piece
        return
    except QueryRefused as refusal:
        problem = _problem(refusal)
    except ENDING as error:
        problem = of_error(error)
    if not has_begun:
        raise problem
    if format_ != "json":
        raise StreamCut
    yield (json.dumps(problem.document()) + "\n").encode()


def _problem(refusal: QueryRefused) -> Problem:
    return Problem(_STATUSES.get(refusal.code, 400), refusal.code, refusal.message, refusal.cure)


_TIMESTAMP: Any = {"type": "integer", "minimum": 0, "maximum": (1 << 64) - 1}
_ROW: Any = {"$row_index": 42, "key": "k1"}
_EXPLANATION: Any = {
    "plan": "ARROW_SCAN …", "blobs_read": 1, "rows_read": 12, "bytes_read": 4096,
    "scans": [{"topic": "orders", "tablets": [0], "columns": ["$row_index", "key"]}],
}  # fmt: skip

ROUTES = (
    Route(
        "POST", "/v1/sql",
        "Query topics as tables with SQL; the answer has the format asked for, JSON lines unless told otherwise",
        query,
        object_of(
            {
                "plan": TEXT, "blobs_read": COUNT, "rows_read": COUNT, "bytes_read": COUNT,
                "scans": array_of({"type": "object"}),
            }
        ),
        body=object_of(
            {"query": TEXT},
            {
                "format": TEXT, "timeout_ms": {"type": "integer", "minimum": 1}, "explain": {"type": "boolean"},
                "timestamp": _TIMESTAMP, "transaction": TEXT, "isolation": TEXT,
                "params": {"type": ["array", "object", "null"]},
                "files": {"type": "object", "properties": {}, "additionalProperties": CONTENT},
            },
        ),
        body_example={"query": 'SELECT "$row_index", key FROM "orders" WHERE "$row_index" > 41', "format": "json"},
        example=_EXPLANATION,
        streams=({"type": "object"}, _ROW),
        forms=(LINES,),
        other_types=(CONTENT_TYPES["csv"], CONTENT_TYPES["arrow"]),
    ),
)  # fmt: skip
