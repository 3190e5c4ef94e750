"""Transactions over HTTP: started, shown, pinged, committed with their writes, aborted."""

from collections.abc import Mapping
from typing import Any

from pqbroker.broker.services.commits.open_transactions import OpenTransaction, TransactionState
from pqbroker.broker.services.tables.inserting import GivenRows
from pqbroker.broker.services.transactions import transactions
from pqbroker.broker.services.transactions.writes import TableWrite, WriteKind
from pqbroker.broker.web.routing.problems import bad_request
from pqbroker.broker.web.routing.routes import Call
from pqbroker.tables.paths import ROOT, topic_name


async def start(call: Call) -> Any:
    return _shown(call, await transactions.start(call, call.holder, call.body.get("timeout_ms")))


async def list_all(call: Call) -> Any:
    state, after = call.query.get("state"), call.query.get("after", -1)
    if state is not None and state not in set(TransactionState):
        raise bad_request(f"state is {state[:100]!r}; give {', '.join(TransactionState)}")
    known = sorted(transactions.every_transaction(call), key=lambda one: one.start_timestamp)
    page, has_more = call.page([one for one in known if one.start_timestamp > after and state in (None, one.state)])
    shown = [_shown(call, one) for one in page]
    return {"transactions": shown, "next": page[-1].start_timestamp if has_more else None}


async def describe(call: Call) -> Any:
    return _shown(call, transactions.describe(call, _name(call)))


async def ping(call: Call) -> Any:
    return _shown(call, transactions.ping(call, _name(call)))


async def commit(call: Call) -> Any:
    writes = [_write(call, each, f"body.writes[{number}]") for number, each in enumerate(call.body["writes"])]
    done = await transactions.commit(call, _name(call), writes)
    return {"timestamp": done.timestamp, "row_count": done.row_count, "duplicate": done.is_repeated}


async def abort(call: Call) -> None:
    if call.body.get("force", False):
        transactions.abort_any(call, _name(call))
    else:
        transactions.abort(call, _name(call))


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
    }


def _name(call: Call) -> str:
    name: str = call.path["transaction"]
    return name
