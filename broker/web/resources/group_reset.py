"""Moving the offsets of a group without members to a place, a time among them; with a look before."""

from collections.abc import Sequence
from typing import Any

from pqbroker.broker.ground.access import AclKind, AclOperation, AclResource, check_access
from pqbroker.broker.services.coordination.consumer_groups import set_offsets
from pqbroker.broker.services.topics.finding import find_topic
from pqbroker.broker.services.topics.partitions import find_readable
from pqbroker.broker.web.resources.read_positions import offset_in, read_position
from pqbroker.broker.web.routing.problems import bad_request
from pqbroker.broker.web.routing.routes import Call, Route
from pqbroker.broker.web.routing.schemas import COUNT, OFFSET, TEXT, Schema, array_of, nullable, object_of
from pqbroker.pq.log.consumers import ConsumerOffset
from pqbroker.pq.serving.offsets import TopicPartition
from pqbroker.pq.serving.topic import Topic
from pqbroker.protocol.errors import KafkaError

_BOOLEAN: Schema = {"type": "boolean"}


async def reset(call: Call) -> Any:
    """Reset offsets of a group, as `pqbroker group reset --to` does."""
    group_id: str = call.path["name"]
    check_access(call, AclOperation.READ, AclResource(AclKind.GROUP, group_id))
    topic = find_topic(call, AclOperation.READ, call.body["topic"])
    position = read_position(call, call.body["to"], "body.to")
    is_dry = call.body.get("dry_run", False)
    found: dict[TopicPartition, int] = {}
    partitions = _partitions(call, topic)
    call.check_served(topic, partitions)
    for index in partitions:
        await call.node.turns.breathe()
        found[topic.record.name, index] = await offset_in(find_readable(topic, index), position, is_clamped=True)
    before = call.node.cell.current.topics.offsets.of(group_id)
    shown = [
        {
            "topic": topic_partition[0],
            "partition": topic_partition[1],
            "before": before[topic_partition].offset if topic_partition in before else None,
            "offset": offset,
        }
        for topic_partition, offset in found.items()
    ]
    if not is_dry:
        await _commit(call, group_id, found)
    return {"cell": call.cell.name, "group": group_id, "dry_run": is_dry, "offsets": shown}


def _partitions(call: Call, topic: Topic) -> Sequence[int]:
    """Return the partitions asked for, or all. Raise Problem for more than one answer lists."""
    asked = sorted(set(call.body.get("partitions", ()))) or range(len(topic.partitions))
    most = call.node.settings.http_items_max
    if len(asked) > most:
        raise bad_request(
            f"body.partitions: {len(asked)} partitions, and one request resets {most} (pqbroker.http.items.max); "
            "name some of them at a time"
        )
    return asked


async def _commit(call: Call, group_id: str, found: dict[TopicPartition, int]) -> None:
    """KafkaError NON_EMPTY_GROUP, and what a partition refuses."""
    now_ms = call.node.clock()
    states = {
        partition: ConsumerOffset(offset, commit_ms=now_ms, creator=call.holder) for partition, offset in found.items()
    }
    outcomes = await set_offsets(call.node, group_id, states)
    for (topic, partition), refusal in outcomes.items():
        if refusal is not None:
            raise KafkaError(refusal.code, f"partition {partition} of {topic}: {refusal.message}")


ROUTES = (
    Route(
        "POST", "/v1/groups/{name}/reset",
        "Move the offsets of a consumer group without members to a position, or show where they would go (dry_run)",
        reset,
        object_of(
            {
                "cell": TEXT, "group": TEXT, "dry_run": _BOOLEAN,
                "offsets": array_of(
                    object_of({"topic": TEXT, "partition": COUNT, "before": nullable(OFFSET), "offset": OFFSET})
                ),
            }
        ),
        body=object_of({"topic": TEXT, "to": TEXT}, {"partitions": array_of(COUNT), "dry_run": _BOOLEAN}),
        example={
            "cell": "0", "group": "billing", "dry_run": True,
            "offsets": [{"topic": "orders", "partition": 0, "before": 41, "offset": 17}],
        },
        body_example={"topic": "orders", "to": "2h", "dry_run": True},
    ),
)  # fmt: skip
