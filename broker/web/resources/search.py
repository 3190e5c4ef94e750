"""Search in all partitions of a topic: what matches as it is found, how far the search is, and why it ended."""

import json
from collections.abc import AsyncGenerator, Mapping, Sequence
from dataclasses import replace
from typing import Any, Final

from pqbroker.broker.ground.access import AclOperation
from pqbroker.broker.ground.refusals import REFUSED
from pqbroker.broker.services.search.topic_search import SearchQuestion, SearchSpan, TopicSearch
from pqbroker.broker.services.topics.named_registries import decoding_of
from pqbroker.broker.services.topics.partitions import find_readable
from pqbroker.broker.web.resources.contents import CONTENT, RECORD
from pqbroker.broker.web.resources.isolation import read_isolation
from pqbroker.broker.web.resources.joined_search import JoinedLimits, join_searches
from pqbroker.broker.web.resources.read_positions import offset_in, read_position
from pqbroker.broker.web.routing.problems import Problem, bad_request, of_error
from pqbroker.broker.web.routing.routes import Call, Route, Stream
from pqbroker.broker.web.routing.schemas import COUNT, OFFSET, TEXT, array_of, object_of
from pqbroker.broker.web.routing.stream_forms import LINES
from pqbroker.pq.reading.query import Isolation, visible_end
from pqbroker.pq.serving.topic import Topic
from pqbroker.protocol.positions import EARLIEST, LATEST, Position
from pqbroker.tables.work.refusal import QueryRefused

MATCHES_DEFAULT: Final = 1000
SEARCH_STATUSES: Final[Mapping[str, int]] = {
    "TOO_MANY_SEARCHES": 503, "WORKER_LOST": 503, "SEARCH_TOO_LONG": 504, "SEARCH_TOO_LARGE": 413,
}  # fmt: skip
"""HTTP status of refusals before the first byte, by code; others have 400."""
_TERMS: Final = ("text", "regex", "ignore_case", "key", "headers", "where")
_BEGINNING: Final = Position("beginning", timestamp=EARLIEST)
_END: Final = Position("end", timestamp=LATEST)


async def search(call: Call) -> Stream:
    """Problem, KafkaError for what cannot be searched; what its terms are refused for comes with the first piece."""
    topic = call.topic(AclOperation.READ, ())
    parts = call.node.leaders.by_number(topic, _searched(call))
    if len(parts) <= 1 or call.node.others() is None:
        return await _search_here(call)
    calls = {
        node: replace(call, body={**call.body, "partitions": partitions}) for node, partitions in parts.items()
    }  # fmt: skip
    settings = call.node.settings
    limits = JoinedLimits(
        _matches_max(call), settings.search_bytes_max, settings.search_decompressed_bytes_max,
        settings.search_answer_bytes_max,
    )  # fmt: skip
    return Stream(LINES.content_type, join_searches(ROUTES[0], calls, _search_here, limits), has_end=True)


async def _search_here(call: Call) -> Stream:
    """Search in partitions of this node."""
    body, settings, searched = call.body, call.node.settings, _searched(call)
    topic = call.topic(AclOperation.READ, searched)
    isolation = read_isolation(body.get("isolation", "read_committed"), "body.isolation")
    terms = {name: body[name] for name in _TERMS if name in body}
    matches_max = _matches_max(call)
    timeout_ms = min(body.get("timeout_ms", settings.search_time_ms_max), settings.search_time_ms_max)
    spans = await _spans(call, topic, isolation)
    decoding = decoding_of(topic, settings) if body.get("decode", True) else None
    question = SearchQuestion(topic, terms, spans, isolation, call.holder, matches_max, timeout_ms, decoding)
    asked = TopicSearch(call.node.searchers, settings, lambda: call.topic(AclOperation.READ, searched), question)
    return Stream(LINES.content_type, _lines(asked), has_end=True)


def _matches_max(call: Call) -> int:
    """Return how many matches a search may find. Problem."""
    most = call.node.settings.search_matches_max
    wanted: int = call.body.get("limit", min(MATCHES_DEFAULT, most))
    if wanted > most:
        raise bad_request(f"body.limit is {wanted}; the most allowed is {most} (pqbroker.search.matches.max)")
    return wanted


def _searched(call: Call) -> Sequence[int] | None:
    """Return the partitions that a search names; None: all. Problem."""
    offsets = _offsets(call.body, "offsets")
    named: list[int] | None = call.body.get("partitions")
    if named is None:
        return sorted(offsets) or None
    return sorted(set(named).intersection(offsets) if offsets else set(named))


def _place(call: Call) -> int | None:
    return call.node_of(AclOperation.READ, _searched(call))


async def _spans(call: Call, topic: Topic, isolation: Isolation) -> list[SearchSpan]:
    """Return the parts of partitions to search, those without offsets left out. Problem, KafkaError."""
    body = call.body
    first = read_position(call, body["from"], "body.from") if "from" in body else _BEGINNING
    until = read_position(call, body["until"], "body.until") if "until" in body else _END
    offsets, ends = _offsets(body, "offsets"), _offsets(body, "end_offsets")
    searched = _searched(call)
    indexes = range(len(topic.partitions)) if searched is None else searched
    spans: list[SearchSpan] = []
    for index in indexes:
        await call.node.turns.breathe()
        partition = find_readable(topic, index)
        start = await offset_in(partition, first, isolation, is_clamped=True)
        if index in offsets:
            start = min(max(start, offsets[index]), visible_end(partition.state, isolation))
        end = await offset_in(partition, until, isolation, is_clamped=True)
        end = min(end, ends.get(index, end))
        if start < end:
            spans.append((index, start, end))
    return spans


def _offsets(body: Mapping[str, Any], field: str) -> dict[int, int]:
    """Return the offsets of a field by partition. Problem."""
    given = body.get(field, {})
    for name, offset in given.items():
        if not (name.isascii() and name.isdigit() and len(name) < 10 and type(offset) is int and offset >= 0):
            raise bad_request(f"body.{field} has {name[:100]!r}; give partitions and offsets, as next_offsets has them")
    return {int(name): offset for name, offset in given.items()}


async def _lines(asked: TopicSearch) -> AsyncGenerator[bytes, None]:
    """Problem before the first piece; later a line names the error."""
    has_begun = False
    try:
        async with asked:
            while (piece := await asked.piece()) is not None:
                has_begun = True
                yield piece
        return
    except QueryRefused as refusal:
        status = SEARCH_STATUSES.get(refusal.code, 400)
        problem = Problem(status, refusal.code, refusal.message, refusal.cure)
    except REFUSED as error:
        problem = of_error(error)
    if not has_begun:
        raise problem
    yield (json.dumps(problem.document()) + "\n").encode()


_STATE: Any = {
    "matches": COUNT, "records": COUNT, "offsets": COUNT, "offsets_total": COUNT, "bytes": COUNT, "bytes_total": COUNT,
    "decompressed_bytes": COUNT, "unread": COUNT, "next_offsets": {"type": "object"},
}  # fmt: skip
_UNDECODED: Any = {
    "undecoded": object_of({"records": COUNT, "code": TEXT, "reason": TEXT, "partition": COUNT, "offset": OFFSET})
}
_LINE = object_of(
    {},
    {
        "match": RECORD,
        "unread": object_of({"partition": COUNT, "offset": OFFSET, "end_offset": OFFSET, "reason": TEXT}),
        "progress": object_of(_STATE, _UNDECODED),
        "end": object_of({"reason": TEXT, **_STATE}, _UNDECODED),
        "error": {"type": "object"},
    },
)
_MATCH: Any = {
    "match": {
        "topic": "orders", "partition": 3, "offset": 41, "timestamp": 1767225600000, "key": "k1",
        "value": '{"total": 9}', "headers": [],
    }
}  # fmt: skip

ROUTES = (
    Route(
        "POST", "/v1/topics/{name}/search",
        "Search all partitions of a topic; the answer is JSON lines: matches, progress, and the end with its reason",
        search,
        None,
        body=object_of(
            {},
            {
                "text": TEXT, "regex": TEXT, "ignore_case": {"type": "boolean"}, "key": CONTENT,
                "headers": array_of(object_of({"key": TEXT}, {"value": CONTENT})), "where": array_of(TEXT),
                "partitions": array_of(COUNT), "from": TEXT, "until": TEXT, "offsets": {"type": "object"},
                "end_offsets": {"type": "object"}, "limit": {"type": "integer", "minimum": 1},
                "timeout_ms": {"type": "integer", "minimum": 1},
                "isolation": TEXT, "decode": {"type": "boolean"},
            },
        ),
        place=_place,
        body_example={"text": "Berlin", "where": ["total > 5"], "from": "2h", "limit": 10},
        streams=(_LINE, _MATCH),
        forms=(LINES,),
    ),
)  # fmt: skip
