"""Transactions over HTTP: started, shown, pinged, committed with their writes, aborted."""

from collections.abc import Mapping
from typing import Any

from pqbroker.broker.services.commits.elsewhere import WantedParts
from pqbroker.broker.services.commits.in_doubt import Position, UnfinishedKind, UnfinishedPart
from pqbroker.broker.services.commits.open_transactions import OpenTransaction, TransactionState
from pqbroker.broker.services.tables.inserting import GivenRows
from pqbroker.broker.services.transactions import resolving, transactions
from pqbroker.broker.services.transactions.kafka_side import GivenOffset
from pqbroker.broker.services.transactions.unfinished import TabletPlace, places_of, unfinished
from pqbroker.broker.services.transactions.writes import TableWrite, WriteKind
from pqbroker.broker.web.routing.problems import bad_request
from pqbroker.broker.web.routing.routes import Call
from pqbroker.pq.transactions.stored_forms import ParticipantId, TransactionId
from pqbroker.storage.ids import TabletId
from pqbroker.tables.paths import ROOT, topic_name


async def start(call: Call) -> Any:
    producer = call.body.get("transactional_id", "")
    return _shown(call, await transactions.start(call, call.holder, call.body.get("timeout_ms"), producer))


async def list_all(call: Call) -> Any:
    state, after = call.query.get("state"), call.query.get("after", -1)
    if state is not None and state not in set(TransactionState):
        raise bad_request(f"state is {state[:100]!r}; give {', '.join(TransactionState)}")
    known = sorted(transactions.every_transaction(call), key=lambda one: one.start_timestamp)
    page, has_more = call.page([one for one in known if one.start_timestamp > after and state in (None, one.state)])
    shown = [_shown(call, one) for one in page]
    return {"transactions": shown, "next": page[-1].start_timestamp if has_more else None}


async def list_unfinished(call: Call) -> Any:
    after = _position(call.query["after"]) if "after" in call.query else None
    limit = call.limit()
    some = await unfinished(call, WantedParts(limit + 1, after))
    page = some[:limit]
    places = places_of(call.node.cell.current.scheme, {place for one in page for place in (one.participant, one.home)})
    shown = [
        {
            "transaction": one.transaction.hex(),
            "what": one.kind.value,
            "participant": _place(places[one.participant]),
            "home": _place(places[one.home]),
            "since": one.since_ms,
            "waits_for": one.waits_for or None,
            "rows": one.row_count,
            "bytes": one.byte_count,
        }
        for one in page
    ]
    return {"unfinished": shown, "next": _shown_position(page[-1]) if len(some) > limit else None}


async def describe(call: Call) -> Any:
    return _shown(call, transactions.describe(call, _name(call)))


async def ping(call: Call) -> Any:
    return _shown(call, transactions.ping(call, _name(call)))


async def commit(call: Call) -> Any:
    writes = [_write(call, each, f"body.writes[{number}]") for number, each in enumerate(call.body["writes"])]
    given = call.body.get("offsets", ())
    offsets = [_offset(each, f"body.offsets[{number}]") for number, each in enumerate(given)]
    done = await transactions.commit(call, _name(call), writes, offsets, call.holder)
    return {"timestamp": done.timestamp, "row_count": done.row_count, "duplicate": done.is_repeated}


async def abort(call: Call) -> None:
    if call.body.get("force", False):
        transactions.abort_any(call, _name(call))
    else:
        transactions.abort(call, _name(call))


async def resolve(call: Call) -> Any:
    outcome, timestamp = call.body["outcome"], call.body.get("timestamp")
    if outcome not in ("abort", "commit") or (outcome == "commit") is (timestamp is None):
        raise bad_request('give "outcome": "abort", or "outcome": "commit" with a timestamp')
    is_dry = call.body.get("dry_run", True)
    done = await resolving.resolve(call, _name(call), timestamp, is_dry=is_dry)
    home, trace = done.parts[0].home, done.trace
    places = places_of(call.node.cell.current.scheme, {home, *(one.participant for one in done.parts)})
    return {
        "transaction": done.transaction.hex(),
        "outcome": outcome,
        "timestamp": timestamp,
        "dry_run": is_dry,
        "home": _place(places[home]),
        "waits_for": done.parts[0].waits_for,
        "known": None if trace is None else {"committed": trace.is_committed or None, "timestamp": trace.timestamp},
        "participants": [
            {"participant": _place(places[one.participant]), "since": one.since_ms, "bytes": one.byte_count}
            for one in done.parts
        ],
        "left": done.left,
    }


async def list_resolved(call: Call) -> Any:
    after = call.query.get("after", "")
    known = sorted(resolving.every_resolution(call), key=lambda one: one.transaction)
    page, has_more = call.page([one for one in known if one.transaction.hex() > after])
    places = places_of(call.node.cell.current.scheme, {one.home for one in page})
    shown = [
        {
            "transaction": one.transaction.hex(),
            "outcome": "abort" if one.timestamp is None else "commit",
            "timestamp": one.timestamp,
            "home": _place(places[one.home]),
            "resolved": one.resolved_ms,
            "principal": one.principal,
            "home_says": one.home_says or None,
        }
        for one in page
    ]
    return {"resolved": shown, "next": page[-1].transaction.hex() if has_more else None}


def _place(place: TabletPlace) -> dict[str, Any]:
    return {
        "table": place.table or None, "tablet_index": place.tablet_index,
        "tablet_id": place.participant.tablet_id, "cell": place.cell,
    }  # fmt: skip


def _shown_position(one: UnfinishedPart) -> str:
    tablet_id, partition = one.participant
    return f"{tablet_id}.{partition}.{one.kind.value}.{one.transaction.hex()}"


def _position(text: str) -> Position:
    """Return the position that `next` of a page was. Problem."""
    try:
        tablet_id, partition, kind, transaction = text.split(".")
        number = TransactionId(bytes.fromhex(transaction))
        return ParticipantId(TabletId(int(tablet_id)), int(partition)), UnfinishedKind(kind), number
    except ValueError:
        raise bad_request(f"after is {text[:100]!r}; give next of the page before") from None


def _write(call: Call, given: Mapping[str, Any], place: str) -> TableWrite:
    """Return a write; `place` is what refusals call it. Problem, TableError INVALID_PATH."""
    if ("rows" in given) is ("delete" in given):
        raise bad_request(f"{place} has {'both' if 'rows' in given else 'none'} of rows and delete; give one of them")
    if "update" in given and "delete" in given:
        raise bad_request(f"{place} has update and delete; update is for rows")
    table, field = given["table"], "rows" if "rows" in given else "delete"
    kind = WriteKind.UPDATE if given.get("update", False) else WriteKind(field)
    name = topic_name(table) if table.startswith(ROOT) else table
    return TableWrite(name, kind, GivenRows(given[field], call.looks, f"{place}.{field}"))


def _offset(given: Mapping[str, Any], place: str) -> GivenOffset:
    return GivenOffset(
        given["group"], given["topic"], given["partition"], given["offset"], given.get("leader_epoch", -1),
        given.get("metadata", ""), place,
    )  # fmt: skip


def _shown(call: Call, one: OpenTransaction) -> dict[str, Any]:
    age_ms_max = call.node.cell.current.commits.limits.age_ms_max
    return {
        "transaction": one.name,
        "state": one.state.value,
        "principal": str(one.client.principal),
        "start_timestamp": one.start_timestamp,
        "started": one.started_ms,
        "timeout_ms": one.timeout_ms,
        "expires": min(one.expires_ms, one.started_ms + age_ms_max) if one.state is TransactionState.OPEN else None,
        "cause": one.cause or None,
        "commit_timestamp": None if one.decision is None else one.decision.timestamp,
        "transactional_id": None if one.producer is None else one.producer.transactional_id,
    }


def _name(call: Call) -> str:
    name: str = call.path["transaction"]
    return name
