"""Commands of tables: to list, make, describe, change, mount, reshard and trim them."""

from bisect import bisect_right
from collections.abc import Mapping
from typing import Any

from pqbroker.broker.ground.access import AclOperation
from pqbroker.broker.services.tables import altering, attributes, conversion, making, mounting, resharding, trimming
from pqbroker.broker.services.tables.finding import TabletRange, find_table, find_typed
from pqbroker.broker.services.tables.making import NewTable
from pqbroker.broker.services.tables.mounting import MountChange
from pqbroker.broker.services.tables.resharding import ReshardChange
from pqbroker.broker.services.topics.finding import visible_topics
from pqbroker.broker.services.topics.topic_schemas import typed_schema_of
from pqbroker.broker.services.topics.topics import delete_topic
from pqbroker.broker.web.resources.configs import config_texts
from pqbroker.broker.web.resources.topic_parts import with_other_tablets
from pqbroker.broker.web.routing.problems import bad_request
from pqbroker.broker.web.routing.routes import Accepted, Call
from pqbroker.broker.web.tables.routes import SORTED, TABLETS
from pqbroker.broker.web.tables.showing import facts, shown, shown_tablet, tablets_of
from pqbroker.pq.serving.topic import Topic
from pqbroker.tables.mount import MountCommand
from pqbroker.tables.paths import table_path
from pqbroker.tables.refusals import TableError
from pqbroker.tables.sorted.schema import is_sorted

_SORTED_CURE = "Read rows by GET …/rows or SQL; a table is sorted if columns of its schema have a sort_order."


async def list_tables(call: Call) -> Any:
    known = await visible_topics(call, AclOperation.DESCRIBE, or_static=True)
    topics: dict[str, Topic] = {}
    for topic in known:
        await call.node.turns.breathe()
        if typed_schema_of(topic):
            topics[topic.record.name] = topic
    has_sorted = bool(call.node.cell.current.sorted_tables.tables)
    sorted_facts: Mapping[str, Any] = (await SORTED.get()).facts_of_all(call) if has_sorted else {}
    names = sorted([*topics, *sorted_facts])
    page, has_more = call.page(names[bisect_right(names, call.query.get("after", "")) :])
    shown_page = [sorted_facts[name] if name in sorted_facts else facts(topics[name]) for name in page]
    return {"tables": shown_page, "next": page[-1] if has_more else None}


async def delete_rows(call: Call) -> Any:
    raise of_sorted_alone(call, "deletes of rows by key")


async def look_up(call: Call) -> Any:
    raise of_sorted_alone(call, "lookups")


async def inside(call: Call) -> Any:
    raise of_sorted_alone(call, "stores and chunks")


async def tablet_inside(call: Call) -> Any:
    raise of_sorted_alone(call, "stores and chunks")


async def explain_compaction(call: Call) -> Any:
    raise of_sorted_alone(call, "compactions")


def of_sorted_alone(call: Call, what: str) -> TableError:
    """Return the refusal of what sorted tables alone have. KafkaError as `find_topic`."""
    path = table_path(find_typed(call, AclOperation.DESCRIBE, _name(call), or_static=True)[0].record.name)
    return TableError("NOT_SORTED", f"{path} is no sorted table, and {what} are for these", _SORTED_CURE)


async def create(call: Call) -> Any:
    body = call.body
    if is_sorted(body["schema"]):
        return await (await SORTED.get()).create(call)
    if "pivot_keys" in body:
        text = "pivot_keys is given, and no column of schema has a sort_order"
        raise TableError("INVALID_TABLE", text, "Give tablet_count, or make the table a sorted one by sort_order.")
    new = NewTable(
        body["path"],
        body["schema"],
        body.get("attributes", {}),
        config_texts(body.get("config", {})),
        body.get("bundle"),
        body.get("tablet_count"),
        body.get("trimmed_row_counts"),
        body.get("mount"),
        not body.get("dynamic", True),
    )
    return shown(await making.create(call, new))


async def describe(call: Call) -> Any:
    return shown(find_typed(call, AclOperation.DESCRIBE, _name(call), or_static=True)[0])


async def delete(call: Call) -> None:
    topic, _ = find_table(call, AclOperation.DELETE, _name(call), or_static=True)
    await delete_topic(call.node, topic.record.name)


async def set_attributes(call: Call) -> Any:
    return shown(await attributes.set_attributes(call, _name(call), call.body["attributes"]))


async def remount(call: Call) -> Any:
    return shown(await attributes.remount(call, _name(call), _tablets(call.body)))


async def alter(call: Call) -> Any:
    """Another schema, or another kind."""
    if ("schema" in call.body) == ("dynamic" in call.body):
        raise bad_request("give one of schema and dynamic")
    if "dynamic" in call.body:
        return shown(await conversion.convert(call, _name(call), is_static=not call.body["dynamic"]))
    return shown(await altering.alter_schema(call, _name(call), call.body["schema"]))


async def list_tablets(call: Call) -> Any:
    topic, _ = find_typed(call, AclOperation.DESCRIBE, _name(call), or_static=True)
    page, has_more = call.page(tablets_of(topic)[call.query.get("after", -1) + 1 :])
    own = [shown_tablet(topic, partition) for partition in page]
    return {
        "tablets": await with_other_tablets(call, TABLETS, topic, own),
        "next": page[-1].index if has_more else None,
    }


async def trim(call: Call) -> Any:
    partition = await trimming.trim(call, _name(call), call.body["tablet_index"], call.body["trimmed_row_count"])
    return {"tablet_index": partition.index, "trimmed_row_count": partition.start_offset}


async def reshard(call: Call) -> Any:
    body = call.body
    for name in ("pivot_keys", "dry_run"):
        if name in body:
            raise of_sorted_alone(call, f"reshards with {name}")
    if "tablet_count" not in body:
        raise bad_request("body.tablet_count is missing")
    change = ReshardChange(body["tablet_count"], _tablets(body), body.get("trimmed_row_counts"))
    return facts(await resharding.reshard(call, _name(call), change))


async def mount(call: Call) -> Any:
    is_frozen = call.body.get("freeze", False)
    return await _change_state(call, MountCommand.MOUNT_FROZEN if is_frozen else MountCommand.MOUNT)


async def unmount(call: Call) -> Any:
    return await _change_state(call, MountCommand.UNMOUNT)


async def freeze(call: Call) -> Any:
    return await _change_state(call, MountCommand.FREEZE)


async def unfreeze(call: Call) -> Any:
    return await _change_state(call, MountCommand.UNFREEZE)


async def _change_state(call: Call, command: MountCommand) -> Any:
    body, is_awaited = call.body, call.query.get("wait", True)
    change = MountChange(command, _tablets(body), body.get("cell_id"), body.get("force", False))
    topic = await mounting.change_state(call, _name(call), change, is_awaited=is_awaited)
    return facts(topic) if is_awaited else Accepted(facts(topic))


def _name(call: Call) -> str:
    name: str = call.path["name"]
    return name


def _tablets(body: Mapping[str, Any]) -> TabletRange:
    return TabletRange(body.get("first_tablet_index"), body.get("last_tablet_index"))
