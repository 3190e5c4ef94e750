"""Events of the node, as they happen: its figures every second, which topics, groups and tablets changed, which tasks
of sorted tables began or ended, which of these tables take no writes, which topics feed them, in which tablets
transactions are in doubt, which of these operators have resolved, and which compacted partitions are cleaned.

Of a broker with several nodes the first one asks the others each second what they run (`events_elsewhere.py`)."""

import asyncio
from collections import Counter
from collections.abc import AsyncGenerator, Callable, Generator, Mapping
from itertools import islice
from typing import Any

from pqbroker.broker.ground.access import AclKind, AclOperation, AclResource, is_allowed
from pqbroker.broker.ground.refusals import REFUSED
from pqbroker.broker.services.coordination.consumer_groups import visible_groups
from pqbroker.broker.services.topics.finding import every_topic
from pqbroker.broker.web.resources.cleaning import visible
from pqbroker.broker.web.resources.contents import TIMESTAMP
from pqbroker.broker.web.resources.events_elsewhere import StatesElsewhere, shown_states
from pqbroker.broker.web.resources.node import CONDITION
from pqbroker.broker.web.routing.every_node import nowhere_else
from pqbroker.broker.web.routing.routes import Call, Route, Stream
from pqbroker.broker.web.routing.schemas import COUNT, OFFSET, TEXT, Schema, array_of, nullable, object_of
from pqbroker.broker.web.routing.stream_forms import choose_form
from pqbroker.storage.tablets.scheme_objects import MATERIALIZATIONS

EVENT_PERIOD_S = 1.0
NAMES_MAX = 100
"""Names in a list of an event; the counts are of all."""
FIGURES = "figures"
TASKS = "table_tasks"
_State = Mapping[str, object]
"""Values by name; a change shows as a difference between two states."""
_Look = Generator[None, None, _State]
"""A state, once it has ended; others may have their turns between its steps."""


async def follow(call: Call) -> Any:
    """The figures come first, and are the heartbeat too. All changes after the first figures follow them. The first
    node asks for the states of this one, if they are others than those of a digest."""
    if "digest" in call.query:
        states = {kind: await call.node.turns.finish(_LOOKS[kind](call)) for kind in OF_EACH_NODE}
        return await shown_states(states, _visible_tasks(call), call.query["digest"])
    form = choose_form(call.headers.get("Accept", ""))
    return Stream(form.content_type, _pieces(call, form.write))


async def _pieces(call: Call, write: Callable[..., bytes]) -> AsyncGenerator[bytes, None]:
    states: dict[tuple[int, str], _State] = {}
    number, elsewhere = call.node.leaders.number, StatesElsewhere(FOLLOW_NODE)
    seen = {(number, task["task"]): _has_ended(task) for task in _visible_tasks(call)}
    try:
        changed = [*await _look(call, states), *await _look_elsewhere(call, elsewhere, states, seen)]
        while is_allowed(call, AclOperation.DESCRIBE):  # rules may have changed
            yield write([_figures(call)], FIGURES, "")
            if news := _news(seen, number, _visible_tasks(call)):
                yield write([_task_event(call, number, news)], TASKS, "")
            for event in changed:
                yield write([event], event["event"], "")
            await asyncio.sleep(EVENT_PERIOD_S)
            changed = [*await _look(call, states), *await _look_elsewhere(call, elsewhere, states, seen)]
    finally:
        await elsewhere.close()


async def _look_elsewhere(
    call: Call, elsewhere: StatesElsewhere, states: dict[tuple[int, str], _State],
    seen: dict[tuple[int, int], bool],
) -> list[dict[str, Any]]:  # fmt: skip
    """Return events as `_look` does, of what other nodes have told since. The first word of a node is no news."""
    changed = list[dict[str, Any]]()
    for node, told in (await elsewhere.look(call, EVENT_PERIOD_S)).items():
        is_first = not any(of == node for of, _ in states)
        news = _news(seen, node, told.tasks)
        if news and not is_first:
            changed.append(_task_event(call, node, news))
        for kind, found in told.states.items():
            before = states.get((node, kind), found)
            if before != found:
                changed.append(_changes(call, (node, kind), before, found))
            states[node, kind] = found
    return changed


def _news(seen: dict[tuple[int, int], bool], node: int, tasks: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return those of a node's tasks that began or ended since; note them."""
    news = [task for task in tasks if seen.get((node, task["task"])) is not _has_ended(task)]
    for key in [key for key in seen if key[0] == node]:
        del seen[key]
    seen.update({(node, task["task"]): _has_ended(task) for task in tasks})
    return news


async def _look(call: Call, states: dict[tuple[int, str], _State]) -> list[dict[str, Any]]:
    """Return an event for each kind of object that differs from its state in `states`; note the new ones there."""
    changed, number = [], call.node.leaders.number
    for kind, look in _LOOKS.items():
        at = number, kind
        try:
            found = await call.node.turns.finish(look(call))
        except REFUSED:
            continue  # the cell is being opened again: what changed shows afterwards
        if at in states and states[at] != found:
            changed.append(_changes(call, at, states[at], found))
        states[at] = found
    return changed


def _figures(call: Call) -> dict[str, Any]:
    node, cell = call.node, call.cell
    damages = len(cell.quarantine.damages)
    return {
        "event": FIGURES,
        "cell": cell.name,
        "node": node.settings.node_id,
        "time": node.clock(),
        "started": node.started_ms,
        "generation": cell.generation,
        **node.health.document(node),
        "unreadable_places": damages,
        "figures": node.series.read(),
    }


def _visible_tasks(call: Call) -> list[dict[str, Any]]:
    """Tasks of sorted tables that run, and the last that ended, of tables that the caller may see."""
    background = call.node.cell.current.sorted_tables.used_background
    if background is None:
        return []
    history, now_ms = background.history, call.node.clock()
    tasks = [*history.ended, *history.running.values()]
    visible = {
        table: is_allowed(call, AclOperation.DESCRIBE, AclResource(AclKind.TOPIC, table))
        for table in {task.table for task in tasks}
    }
    return [task.document(now_ms) for task in tasks if visible[task.table]]


def _has_ended(task: Mapping[str, Any]) -> bool:
    return task["ended_ms"] is not None


def _task_event(call: Call, node: int, tasks: list[dict[str, Any]]) -> dict[str, Any]:
    head = {"event": TASKS, "cell": call.cell.name, **_node_of(call, node)}
    return {**head, "count": len(tasks), "tasks": tasks[:NAMES_MAX]}


def _node_of(call: Call, node: int) -> dict[str, int]:
    """Return the number of a node as an event has it; nothing where there is one node."""
    return {"node": node} if len(call.node.leaders.nodes) > 1 else {}


def _blocked(call: Call) -> _Look:
    """Tables that take no writes, by the causes of their tablets."""
    background = call.node.cell.current.sorted_tables.used_background
    found: dict[str, Counter[str]] = {}
    tablets = {} if background is None else background.blocks.tablets
    for tablet, refusal in tablets.items():
        table = tablet.config.table
        if table not in found and is_allowed(call, AclOperation.DESCRIBE, AclResource(AclKind.TOPIC, table)):
            found[table] = Counter()
        if table in found:
            found[table][refusal.code] += 1
        yield
    return found


def _materializations(call: Call) -> _Look:
    """Sorted tables that topics feed, by state and reason."""
    found: dict[str, object] = {}
    if call.node.cell.current.scheme.rows(MATERIALIZATIONS):
        from pqbroker.broker.services.materializing.making import every_materialization

        for view in every_materialization(call):
            found[view.table.record.name] = (view.state, view.refusal and view.refusal.code)
    yield
    return found


def _transactions_in_doubt(call: Call) -> _Look:
    """Tablets with rows or decisions of transactions that have waited long for what is not open: how many each."""
    found: dict[str, object] = {}
    opened = call.node.cell.current
    if opened.commits.unfinished_count:
        from pqbroker.broker.services.transactions.unfinished import in_doubt, places_of

        waiting = in_doubt(call)
        for participant, place in places_of(opened.scheme, set(waiting)).items():
            if is_allowed(call, AclOperation.DESCRIBE, AclResource(AclKind.TOPIC, place.table)):
                found[f"{place.table}/{place.tablet_index}"] = waiting[participant]
    yield
    return found


def _transactions_resolved(call: Call) -> _Look:
    """Transactions in doubt that operators have resolved, and what their homes say against it."""
    known = call.node.cell.current.commits.resolutions.known()
    yield
    return {one.transaction.hex(): one.home_says for one in known}


def _cleanings(call: Call) -> _Look:
    """Partitions of compacted topics that passes go over, or have gone over lately: when, and how it ended."""
    cleaner = call.node.cleaner
    records = [*cleaner.history.ended, *cleaner.running.values()]
    yield
    return {
        f"{one.topic}-{one.partition}": (one.begun_ms, one.ended_ms, one.failure) for one in visible(call, records)
    }


def _topics(call: Call) -> _Look:
    found = {}
    for name in call.node.cell.current.topics.names():
        for topic in every_topic(call, AclOperation.DESCRIBE, (name,)):
            found[name] = len(topic.partitions)
        yield
    return found


def _groups(call: Call) -> _Look:
    groups = yield from visible_groups(call)
    return {group.group_id: (group.state, group.members) for group in groups}


def _tablets(call: Call) -> _Look:
    found = {}
    for cell in call.cells:
        for tablet, one in tuple(cell.tablets().items()):
            found[str(tablet)] = one.generation, one.dropping
            yield
    return found


_LOOKS: Mapping[str, Callable[[Call], _Look]] = {
    "topics": _topics, "groups": _groups, "tablets": _tablets, "blocked_tables": _blocked,
    "materializations": _materializations, "transactions_in_doubt": _transactions_in_doubt,
    "transactions_resolved": _transactions_resolved, "cleanings": _cleanings,
}  # fmt: skip
OF_EACH_NODE = ("tablets", "blocked_tables", "transactions_in_doubt", "cleanings")
"""Kinds of objects that each node knows of what it runs; the first one knows all of the others."""


def _changes(call: Call, at: tuple[int, str], before: _State, after: _State) -> dict[str, Any]:
    node, kind = at
    return {
        "event": kind,
        "cell": call.cell.name,
        **_node_of(call, node),
        "count": len(after),
        "created": list(islice((name for name in after if name not in before), NAMES_MAX)),
        "changed": list(islice((name for name in after if name in before and before[name] != after[name]), NAMES_MAX)),
        "deleted": list(islice((name for name in before if name not in after), NAMES_MAX)),
    }


TABLE_TASK = object_of(
    {
        "task": COUNT, "kind": TEXT, "table": TEXT, "tablet_id": COUNT, "reason": TEXT, "inputs": array_of(COUNT),
        "outputs": array_of(COUNT), "begun_ms": OFFSET, "ended_ms": nullable(OFFSET), "input_bytes": COUNT,
        "bytes_read": COUNT, "bytes_written": COUNT, "bytes_per_s": COUNT, "rows_read": COUNT, "rows_written": COUNT,
        "failure": TEXT,
    }
)  # fmt: skip
_EVENT: Schema = {
    "anyOf": [
        object_of(
            {
                "event": TEXT, "cell": TEXT, "node": COUNT, "time": TIMESTAMP, "started": TIMESTAMP,
                "generation": COUNT, "status": TEXT, "conditions": array_of(CONDITION), "unreadable_places": COUNT,
                "figures": {"type": "object", "additionalProperties": {"type": "number"}},
            }
        ),
        object_of(
            {
                "event": TEXT, "cell": TEXT, "count": COUNT, "created": array_of(TEXT), "changed": array_of(TEXT),
                "deleted": array_of(TEXT),
            },
            {"node": COUNT},
        ),
        object_of({"event": TEXT, "cell": TEXT, "count": COUNT, "tasks": array_of(TABLE_TASK)}, {"node": COUNT}),
    ]
}  # fmt: skip

FOLLOW_NODE = Route(
    "GET", "/v1/events",
    "Follow the node: figures every second (names as in /v1/series), changes of topics, groups and tablets, tasks "
    "of sorted tables, those that take no writes, and those that topics feed, tablets with transactions in doubt, "
    "compacted partitions that are cleaned; of several nodes those of all, `node` says which; "
    "JSON lines or server-sent events, by Accept",
    follow, None, cluster=AclOperation.DESCRIBE,
    streams=(
        _EVENT,
        {
            "event": "topics", "cell": "0", "count": 5, "created": ["orders"], "changed": [], "deleted": [],
        },
    ),
    place=nowhere_else,
)  # fmt: skip
ROUTES = (FOLLOW_NODE,)
