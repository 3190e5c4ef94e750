"""Materializations over HTTP: topics that feed sorted tables, made, shown, paused, resumed, dropped."""

import asyncio
from bisect import bisect_right
from contextlib import suppress
from typing import Any

from pqbroker.broker.services.materializing import making
from pqbroker.broker.services.materializing.making import NewMaterialization
from pqbroker.broker.services.materializing.views import MaterializationView, look_at_all
from pqbroker.broker.web.routing.routes import Call
from pqbroker.protocol.errors import KafkaError
from pqbroker.tables.paths import table_path, topic_name
from pqbroker.tables.refusals import TableError

PARTITIONS_SHOWN = 100
"""Partitions that an answer shows, those with the greatest lag."""


async def list_all(call: Call) -> Any:
    known = {
        view.table.record.name: view
        for view in making.every_materialization(call)
        if call.query.get("table", view.table.record.name) == view.table.record.name
        and call.query.get("topic", view.record.topic) == view.record.topic
    }
    names = list(known)
    page, has_more = call.page(names[bisect_right(names, call.query.get("after", "")) :])
    shown = [_facts(view) for view in await asyncio.gather(*(look_at_all(call.node, known[name]) for name in page))]
    return {"materializations": shown, "next": page[-1] if has_more else None}


async def create(call: Call) -> Any:
    body = call.body
    new = NewMaterialization(
        body["topic"], _table_name(body["table"]), body.get("columns"), body.get("dead_letter_topic", "")
    )
    return await _changed(call, await making.create_materialization(call, new))


async def describe(call: Call) -> Any:
    return _shown(await look_at_all(call.node, making.find_materialization(call, call.path["name"])))


async def pause(call: Call) -> Any:
    return await _changed(call, await making.pause(call, call.path["name"]))


async def resume(call: Call) -> Any:
    from_start = call.body.get("from_start", False)
    return await _changed(call, await making.resume(call, call.path["name"], from_start=from_start))


async def drop(call: Call) -> None:
    await making.drop(call, call.path["name"])


def _table_name(text: str) -> str:
    """Return the name of a table that is given by name or path."""
    return topic_name(text) if text.startswith("//") else text


def _facts(view: MaterializationView) -> dict[str, Any]:
    record, refusal = view.record, view.refusal
    return {
        "table": view.table.record.name,
        "path": table_path(view.table.record.name),
        "topic": record.topic,
        "state": view.state,
        "reason": None if refusal is None else refusal._asdict(),
        "lag": view.lag,
        "dead_letter_count": view.letters.count,
        "dead_letter_topic": record.letter_topic or None,
    }


async def _changed(call: Call, view: MaterializationView) -> dict[str, Any]:
    """Return a materialization that was changed: what another node does not tell now is shown as it was."""
    with suppress(KafkaError, TableError):
        view = await look_at_all(call.node, view)
    return _shown(view)


def _shown(view: MaterializationView) -> dict[str, Any]:
    worst = sorted(view.progress(), key=lambda each: (-each.lag, each.partition))[:PARTITIONS_SHOWN]
    return {
        **_facts(view),
        "columns": dict(view.record.origins),
        "created": view.record.created_ms,
        "partitions": [{**each._asdict(), "lag": each.lag} for each in sorted(worst)],
        "dead_letters": [each._asdict() for each in view.letters.last],
    }
