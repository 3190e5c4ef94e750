"""Records of a topic: a look at those of a partition, or all of them as they come."""

from typing import Any

from pqbroker.broker.ground.access import AclOperation
from pqbroker.broker.services.topics.partitions import find_readable
from pqbroker.broker.web.resources.contents import RECORD, read_text
from pqbroker.broker.web.resources.decoded_records import ShownRecords
from pqbroker.broker.web.resources.following import follow, followed
from pqbroker.broker.web.resources.isolation import ISOLATION, isolation_of
from pqbroker.broker.web.resources.read_positions import START, first_position, offset_in
from pqbroker.broker.web.resources.record_search import Search, Sought
from pqbroker.broker.web.routing.problems import bad_request
from pqbroker.broker.web.routing.routes import LIMIT, Call, Parameter, Route
from pqbroker.broker.web.routing.schemas import COUNT, OFFSET, TEXT, array_of, object_of


async def read(call: Call) -> Any:
    if call.query.get("follow", False):
        return await follow(call, ROUTES[0])
    if "offsets" in call.query:
        raise bad_request("offsets is for follow=true; give from or offset")
    return await _look(call)


async def _look(call: Call) -> Any:
    index: int = call.query.get("partition", 0)
    topic = call.topic(AclOperation.READ, (index,))
    partition = find_readable(topic, index)
    settings, key = call.node.settings, call.query.get("key")
    records = ShownRecords(call, topic, partition.index)
    sought = Sought(
        records.show,
        None if key is None else read_text(key, "key"),
        call.limit(),
        settings.http_answer_bytes_max,
        settings.http_look_bytes_max,
        isolation_of(call),
    )
    search = Search(sought, await offset_in(partition, first_position(call), sought.isolation))
    await search.look_through(partition, call.looks)
    await records.decode(search.shown)
    return {
        "cell": call.cell.name,
        "partition": partition.index,
        "start_offset": partition.start_offset,
        "end_offset": partition.end_offset,
        "records": search.shown,
        "next_offset": search.next_offset,
    }


def _place(call: Call) -> int | None:
    partitions = followed(call) if call.query.get("follow", False) else (call.query.get("partition", 0),)
    return call.node_of(AclOperation.READ, partitions)


_RECORD = {
    "topic": "orders", "partition": 0, "offset": 41, "timestamp": 1767225600000, "key": "k1", "value": '{"total": 9}',
    "headers": [{"key": "trace", "value": {"base64": "AP8="}}],
}  # fmt: skip

ROUTES = (
    Route(
        "GET", "/v1/topics/{name}/records",
        "Read records of a partition, or follow a topic (follow=true): JSON lines or server-sent events, by Accept",
        read,
        object_of(
            {
                "cell": TEXT, "partition": COUNT, "start_offset": OFFSET, "end_offset": OFFSET,
                "records": array_of(RECORD), "next_offset": OFFSET,
            }
        ),
        (
            Parameter("partition", COUNT, "Read this partition; without it: 0, and with follow=true all."),
            *START,
            Parameter("key", TEXT, "Read only records with this key; continue from `next_offset` for more."),
            LIMIT,
            ISOLATION,
            Parameter(
                "decode", {"type": "boolean"},
                "Show keys and values decoded as well (`decoded`) where the topic names a registry; default: true.",
            ),
            Parameter(
                "follow", {"type": "boolean"},
                "Send records as they come, until the client closes, or `limit` of them; one record a line or event.",
            ),
            Parameter(
                "offsets", TEXT,
                "With follow=true: begin in these partitions at these offsets, as the id of an event has them "
                "(`Last-Event-ID` does the same).", example="0:41,1:7",
            ),
        ),
        example={
            "cell": "0", "partition": 0, "start_offset": 0, "end_offset": 42, "records": [_RECORD], "next_offset": 42,
        },
        streams=(RECORD, _RECORD), place=_place,
    ),
)  # fmt: skip
