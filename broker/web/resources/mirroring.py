"""A native write (semantics A.5): one batch at an offset of the writer's choosing, for mirroring a partition."""

import asyncio
from typing import Any

from pqbroker.broker.ground.access import AclOperation
from pqbroker.broker.services.topics.partitions import check_batch, find_partition
from pqbroker.broker.services.topics.record_checks import Preparation, preparation_of
from pqbroker.broker.web.resources.contents import CONTENT
from pqbroker.broker.web.resources.producing import RECORD_FIELDS, parse_record
from pqbroker.broker.web.routing.problems import bad_request
from pqbroker.broker.web.routing.routes import Call, Route
from pqbroker.broker.web.routing.schemas import OFFSET, array_of, object_of
from pqbroker.pq.log.row_facts import Weighed
from pqbroker.protocol.records import encode_batch, read_header

_OFFSET_MAX = (1 << 63) - 1
_RECORD = object_of({"value": CONTENT}, RECORD_FIELDS)


async def write(call: Call) -> Any:
    asked = call.body["records"]
    if not asked:
        raise bad_request("body.records is empty; give at least one record")
    topic = call.topic(AclOperation.WRITE, (call.path["partition"],))
    partition = find_partition(topic, call.path["partition"])
    batch, weights = await asyncio.to_thread(_encode, asked, call.node.clock(), preparation_of(topic))
    written = await partition.write_at(call.body["offset"], batch, check_batch(topic, batch), weights)
    return {"offset": written.base_offset, "end_offset": written.base_offset + len(asked)}


def _encode(asked: list[Any], now_ms: int, preparation: Preparation | None) -> tuple[memoryview, Weighed]:
    """Runs in a thread."""
    records = [parse_record(item, f"body.records[{number}]", now_ms) for number, item in enumerate(asked)]
    batch = memoryview(encode_batch(records))
    if preparation is None:
        return batch, None
    prepared = preparation.apply(batch, read_header(batch))
    return prepared.records, prepared.weights


ROUTES = (
    Route(
        "POST", "/v1/topics/{name}/partitions/{partition}/records",
        "Write one batch at an offset at or behind the partition's end; what it leaves out becomes a gap", write,
        object_of({"offset": OFFSET, "end_offset": OFFSET}),
        body=object_of({"offset": {**OFFSET, "maximum": _OFFSET_MAX}, "records": array_of(_RECORD)}), status=201,
        place=lambda call: call.node_of(AclOperation.WRITE, (call.path["partition"],)),
    ),
)  # fmt: skip
