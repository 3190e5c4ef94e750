"""Transactional ids of Kafka producers: list, describe, abort what is open. Transactions over tables are elsewhere."""

from bisect import bisect_right
from typing import Any

from pqbroker.broker.ground.access import AclKind, AclOperation, AclResource, check_access, is_allowed
from pqbroker.broker.services.transactional_producers.listing import Wanted, list_ids, partitions_by_topic
from pqbroker.broker.services.transactional_producers.producers import TransactionalProducers, not_found
from pqbroker.broker.web.resources.contents import TIMESTAMP
from pqbroker.broker.web.routing.problems import bad_request
from pqbroker.broker.web.routing.routes import AFTER_NAME, LIMIT, Call, Parameter, Route
from pqbroker.broker.web.routing.schemas import COUNT, OFFSET, TEXT, array_of, nullable, object_of
from pqbroker.storage.tablets.coordinator_rows import TransactionalIdState, TransactionalImage

_FACTS = {
    "name": TEXT, "state": TEXT, "producer_id": COUNT, "producer_epoch": COUNT, "timeout_ms": COUNT,
    "started": nullable(TIMESTAMP), "changed": TIMESTAMP, "partition_count": COUNT, "groups": array_of(TEXT),
}  # fmt: skip
_PENDING = object_of({"group": TEXT, "topic": TEXT, "partition": COUNT, "offset": OFFSET})
_ID = object_of(
    {
        "cell": TEXT,
        **_FACTS,
        "topics": array_of(object_of({"topic": TEXT, "partitions": array_of(COUNT)})),
        "offsets": array_of(_PENDING),
    }
)  # fmt: skip
_STATES = tuple(state.value for state in TransactionalIdState if state is not TransactionalIdState.DEAD)


async def list_all(call: Call) -> Any:
    state = call.query.get("state")
    if state is not None and state not in _STATES:
        raise bad_request(f"state is {state!r}; give one of {', '.join(_STATES)}")
    wanted = Wanted(frozenset() if state is None else frozenset({state}))
    found = await call.node.turns.finish(list_ids(_producers(call), wanted))
    visible = [image for image in found if is_allowed(call, AclOperation.DESCRIBE, _resource(image.transactional_id))]
    behind = bisect_right(visible, call.query.get("after", ""), key=lambda image: image.transactional_id)
    page, has_more = call.page(visible[behind:])
    return {
        "cell": call.cell.name,
        "transactional_ids": [_facts(image) for image in page],
        "next": page[-1].transactional_id if has_more else None,
    }


async def describe(call: Call) -> Any:
    name = call.path["name"]
    check_access(call, AclOperation.DESCRIBE, _resource(name))
    image = _producers(call).find(name)
    if image is None:
        raise not_found(name)
    topics = call.node.cell.current.topics
    known = ((pending, topics.by_id(pending.partition.topic_id)) for pending in image.offsets)
    return {
        "cell": call.cell.name,
        **_facts(image),
        "topics": [
            {"topic": topic, "partitions": indexes} for topic, indexes in partitions_by_topic(topics, image).items()
        ],
        "offsets": [
            {
                "group": pending.group_id, "topic": topic.record.name,
                "partition": pending.partition.partition_index, "offset": pending.offset,
            }
            for pending, topic in known
            if topic is not None
        ],
    }  # fmt: skip


async def abort(call: Call) -> Any:
    """Abort the open transaction and fence its producer; one that is decided already is left alone."""
    check_access(call, AclOperation.WRITE, _resource(call.path["name"]))
    await _producers(call).abort_whole(call.path["name"])
    return await describe(call)


def _producers(call: Call) -> TransactionalProducers:
    return call.node.cell.current.transactional_producers


def _resource(name: str) -> AclResource:
    return AclResource(AclKind.TRANSACTIONAL_ID, name)


def _facts(image: TransactionalImage) -> dict[str, Any]:
    return {
        "name": image.transactional_id,
        "state": image.state.value,
        "producer_id": image.producer_id,
        "producer_epoch": image.epoch,
        "timeout_ms": image.timeout_ms,
        "started": None if image.started_ms < 0 else image.started_ms,
        "changed": image.changed_ms,
        "partition_count": len(image.partitions),
        "groups": sorted(image.groups),
    }


_FACTS_EXAMPLE = {
    "name": "billing-0", "state": "Ongoing", "producer_id": 4001, "producer_epoch": 7, "timeout_ms": 60000,
    "started": 1767225600000, "changed": 1767225600100, "partition_count": 1, "groups": ["billing"],
}  # fmt: skip
_EXAMPLE = {
    "cell": "0",
    **_FACTS_EXAMPLE,
    "topics": [{"topic": "orders", "partitions": [0]}],
    "offsets": [{"group": "billing", "topic": "payments", "partition": 0, "offset": 42}],
}
_STATE = Parameter("state", TEXT, f"List those in this state: {', '.join(_STATES)}.")

ROUTES = (
    Route(
        "GET", "/v1/transactional-ids", "List transactional ids of Kafka producers by name", list_all,
        object_of({"cell": TEXT, "transactional_ids": array_of(object_of(_FACTS)), "next": nullable(TEXT)}),
        (AFTER_NAME, LIMIT, _STATE), example={"cell": "0", "transactional_ids": [_FACTS_EXAMPLE], "next": None},
    ),
    Route(
        "GET", "/v1/transactional-ids/{name}",
        "Describe a transactional id: its state, producer, and what its transaction has taken in", describe, _ID,
        example=_EXAMPLE,
    ),
    Route(
        "POST", "/v1/transactional-ids/{name}/abort",
        "Abort the open transaction of a transactional id, in all its partitions, and fence its producer", abort, _ID,
        example={**_EXAMPLE, "state": "CompleteAbort", "started": None, "partition_count": 0, "groups": [],
                 "topics": [], "offsets": []},
    ),
)  # fmt: skip
