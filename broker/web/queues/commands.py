"""Commands of queues: consumers, pulled rows, producers' sessions, auto trim."""

from bisect import bisect_right
from dataclasses import replace
from typing import Any, Final

from pqbroker.broker.ground.access import AclKind, AclOperation, AclResource, check_access
from pqbroker.broker.services.coordination.classic.states import GroupState
from pqbroker.broker.services.coordination.consumer_groups import describe_group
from pqbroker.broker.services.queues import consumers, producers, trimming
from pqbroker.broker.services.queues.consumers import Advance
from pqbroker.broker.services.queues.finding import find_queue
from pqbroker.broker.services.queues.producers import Push, SessionName, SessionState
from pqbroker.broker.services.queues.registrations import registered
from pqbroker.broker.services.tables.finding import check_tablet
from pqbroker.broker.services.tables.inserting import GivenRows
from pqbroker.broker.services.topics.finding import every_topic
from pqbroker.broker.web.queues.queue_routes import PULL
from pqbroker.broker.web.resources.topic_parts import bounds_of_partitions
from pqbroker.broker.web.resources.topics import DESCRIBE
from pqbroker.broker.web.routing.forwarded_calls import forward
from pqbroker.broker.web.routing.problems import bad_request
from pqbroker.broker.web.routing.routes import Call
from pqbroker.broker.web.tables.rows import RowsWanted, read_rows
from pqbroker.pq.serving.topic import Topic
from pqbroker.tables.paths import table_path
from pqbroker.tables.queues import disposition_of

PULLED_ROWS: Final = 1000
PULLED_BYTES: Final = 16 << 20
"""Rows and bytes of one pull at most, unless it says otherwise."""


async def list_queues(call: Call) -> Any:
    consumer = call.query.get("consumer")
    topics = {topic.record.name: topic for topic in every_topic(call, AclOperation.DESCRIBE)}
    names = sorted(name for name, topic in topics.items() if _is_listed(topic, consumer))
    page, has_more = call.page(names[bisect_right(names, call.query.get("after", "")) :])
    return {"queues": [_shown(topics[name]) for name in page], "next": page[-1] if has_more else None}


async def describe(call: Call) -> Any:
    return _shown(_queue(call, AclOperation.DESCRIBE))


async def set_auto_trim(call: Call) -> Any:
    return _shown(await trimming.set_auto_trim(call, call.path["name"], call.body["auto_trim_config"]))


async def register(call: Call) -> Any:
    body = call.body
    return _shown(await consumers.register(call, call.path["name"], body["consumer"], is_vital=body["vital"]))


async def unregister(call: Call) -> None:
    await consumers.unregister(call, call.path["name"], call.path["consumer"])


async def describe_consumer(call: Call) -> Any:
    """Show a consumer's places; any group may be looked at, registered or not."""
    topic, consumer = _queue(call, AclOperation.DESCRIBE), call.path["consumer"]
    check_access(call, AclOperation.DESCRIBE, AclResource(AclKind.GROUP, consumer))
    known, described = registered(topic.config), describe_group(call.node, consumer)
    page, has_more = call.page(range(len(topic.partitions))[call.query.get("after", -1) + 1 :])
    bounds = await bounds_of_partitions(call, DESCRIBE, topic)
    return {
        "queue": topic.record.name,
        "consumer": consumer,
        "registered": consumer in known,
        "vital": known.get(consumer, False),
        "group_state": GroupState.EMPTY if described is None else described.state,
        "tablets": [_place(call, topic, consumer, index, *bounds(index)) for index in page],
        "next": page[-1] if has_more else None,
    }


async def advance(call: Call) -> Any:
    body = call.body
    wanted = Advance(body["consumer"], body["tablet_index"], body.get("old_offset"), body["new_offset"])
    done = await consumers.advance(call, call.path["name"], wanted)
    return {
        "consumer": wanted.consumer, "tablet_index": wanted.tablet_index, "old_offset": done.before,
        "new_offset": done.after,
    }  # fmt: skip


async def pull(call: Call) -> Any:
    """Rows of one tablet; looks further where one look finds none, so that an empty answer means the end."""
    topic = _queue(call, AclOperation.READ)
    index = check_tablet(topic, call.query.get("tablet_index", 0))
    offset = _first(call, topic, index)
    others, node = call.node.others(), call.node.leaders.only_node(topic, (index,))
    if others is not None and node is not None:
        return await forward(others, node, PULL, replace(call, query={**call.query, "offset": offset}))
    settings = call.node.settings
    call.node.metrics.tables.pulls += 1
    count = call.query.get("max_row_count", min(PULLED_ROWS, settings.http_items_max))
    if count > settings.http_items_max:
        raise bad_request(
            f"max_row_count is {count}; the most allowed is {settings.http_items_max} (pqbroker.http.items.max)"
        )
    size_bytes = min(call.query.get("max_data_weight", PULLED_BYTES), settings.http_answer_bytes_max)
    wanted = RowsWanted(index, count, size_bytes, call.query.get("view"))
    found = await read_rows(call, topic, wanted, offset)
    while not found.rows and not found.is_at_end:
        await call.node.turns.turn()
        found = await read_rows(call, topic, wanted, found.next_row_index)
    return {"rows": found.rows, "offset": offset, "next_offset": found.next_row_index}


async def take_session(call: Call) -> Any:
    name = _session(call)
    return _shown_session(name, await producers.take_session(call, call.path["name"], name, call.body.get("user_meta")))


async def end_session(call: Call) -> None:
    await producers.end_session(call, call.path["name"], _session(call))


async def list_sessions(call: Call) -> Any:
    topic = _queue(call, AclOperation.DESCRIBE)
    after = (call.query.get("after_producer", ""), call.query.get("after_session", ""))
    found = await producers.list_sessions(call, topic, call.limit() + 1, after)
    page, has_more = call.page(found)
    last = {"producer": page[-1].producer, "session": page[-1].session} if has_more else None
    return {
        "sessions": [_shown_session(SessionName(each.producer, each.session), each.state) for each in page],
        "next": last,
    }


async def push(call: Call) -> Any:
    body = call.body
    if not body["rows"]:
        raise bad_request("body.rows is empty; give at least one row")
    rows = GivenRows(body["rows"], call.looks, "body.rows")
    given = Push(body["epoch"], rows, body.get("sequence_number"), body.get("user_meta"))
    done = await producers.push(call, call.path["name"], _session(call), given)
    return {
        "last_sequence_number": done.last_sequence_number,
        "skipped_row_count": done.skipped,
        "tablets": [some._asdict() for some in done.tablets],
        "data_weight": done.weight,
    }


def _queue(call: Call, operation: AclOperation) -> Topic:
    return find_queue(call, operation, call.path["name"])


def _first(call: Call, topic: Topic, index: int) -> int:
    """Return the first row to pull: the one asked for, or where the consumer stands. TableError NO_CONSUMER."""
    consumer, offset = call.query.get("consumer"), call.query.get("offset")
    if consumer is not None:
        consumers.find_registered(call, topic, consumer)
        if offset is None:
            stored = call.node.cell.current.topics.offsets.at(consumer, (topic.record.name, index))
            offset = 0 if stored is None else stored.offset
    return max(offset or 0, 0)


def _session(call: Call) -> SessionName:
    return SessionName(call.body["producer"], call.body["session"])


def _is_listed(topic: Topic, consumer: str | None) -> bool:
    known = registered(topic.config)
    return consumer in known if consumer is not None else bool(known) or topic.config.pq_auto_trim


def _shown(topic: Topic) -> dict[str, Any]:
    return {
        "name": topic.record.name,
        "path": table_path(topic.record.name),
        "tablet_count": len(topic.partitions),
        "is_table": topic.record.table is not None,
        "consumers": [{"consumer": name, "vital": vital} for name, vital in registered(topic.config).items()],
        "auto_trim_config": trimming.auto_trim_of(topic.config),
    }


def _place(call: Call, topic: Topic, consumer: str, index: int, start: int, end: int) -> dict[str, Any]:
    """Return where a consumer stands in a tablet with rows from `start` to `end`; without an offset it stands at
    row 0."""
    stored = call.node.cell.current.topics.offsets.at(consumer, (topic.record.name, index))
    offset = 0 if stored is None else stored.offset
    return {
        "tablet_index": index,
        "offset": None if stored is None else stored.offset,
        "first_row_index": start,
        "end_row_index": end,
        "disposition": disposition_of(offset, start, end),
        "unread_row_count": max(end - max(offset, start), 0),
        "committed": None if stored is None else stored.commit_ms,
    }


def _shown_session(name: SessionName, state: SessionState) -> dict[str, Any]:
    return {
        "producer": name.producer,
        "session": name.session,
        "epoch": state.epoch,
        "sequence_number": state.sequence_number,
        "user_meta": state.user_meta,
        "written": state.written_ms,
    }
