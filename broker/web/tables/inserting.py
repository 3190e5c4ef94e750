"""Rows that are inserted, or staged for a batch of a session."""

import asyncio
from typing import Any

from pqbroker.broker.ground.access import AclOperation
from pqbroker.broker.services.tables import inserting, staging
from pqbroker.broker.services.tables.finding import find_typed
from pqbroker.broker.services.tables.inserting import GivenRows
from pqbroker.broker.services.topics.staged_places import PIECES_MAX
from pqbroker.broker.services.topics.staged_rows import OnChanged
from pqbroker.broker.web.routing.problems import bad_request
from pqbroker.broker.web.routing.routes import Call
from pqbroker.broker.web.tables.commands import of_sorted_alone
from pqbroker.pq.log.sessions import SESSION_NAME_BYTES_MAX, Fence
from pqbroker.pq.log.staged_rows import Piece


async def insert(call: Call) -> Any:
    fence = _read_fence(call)
    if "update" in call.query:
        raise of_sorted_alone(call, "updates of rows")
    done = await inserting.insert(call, call.path["name"], _rows(call), fence)
    return {
        "tablets": [some._asdict() for some in done.tablets],
        "data_weight": done.weight,
        "duplicate": done.is_duplicate,
    }


async def stage(call: Call) -> Any:
    find_typed(call, AclOperation.WRITE, call.path["name"])  # who may not write is not told what is missing
    fence, hint = _fence(call), call.query.get("tablet_hint")
    pieces = await staging.stage(call, call.path["name"], _rows(call), fence, hint)
    shown = [
        {"name": piece.name, "tablet_index": piece.partition, "row_count": piece.total.row_count} for piece in pieces
    ]
    return {"pieces": shown}


async def commit(call: Call) -> Any:
    names, on_changed = call.body["pieces"], call.body.get("on_changed", OnChanged.FAIL.value)
    if len(names) > PIECES_MAX:
        raise bad_request(f"body.pieces has {len(names)} pieces; a batch has at most {PIECES_MAX}")
    if on_changed not in set(OnChanged):
        raise bad_request(f"body.on_changed is {on_changed[:100]!r}; give {', '.join(OnChanged)}")
    try:
        pieces = await asyncio.to_thread(lambda: [Piece.named(name) for name in names])
    except ValueError as wrong:
        raise bad_request(f"body.pieces: {wrong}") from None
    done = await staging.commit(call, call.path["name"], pieces, _fence(call), OnChanged(on_changed))
    return {"row_count": done.total.row_count, "duplicate": done.is_duplicate, "done": done.is_done}


def _rows(call: Call) -> GivenRows:
    """Return the rows of the body: an Arrow IPC stream, or JSON."""
    if isinstance(call.body, bytes):
        return GivenRows(call.body, call.looks)
    if not call.body["rows"]:
        raise bad_request("body.rows is empty; give at least one row")
    return GivenRows(call.body["rows"], call.looks, "body.rows")


def _fence(call: Call) -> Fence:
    fence = _read_fence(call)
    if fence is None:
        raise bad_request("session and sequence are missing; give both")
    return fence


def _read_fence(call: Call) -> Fence | None:
    """Return what the request is known by: fields of a JSON body, or of the query."""
    given = {**call.query, **call.body} if isinstance(call.body, dict) else call.query
    session, sequence = given.get("session"), given.get("sequence")
    if session is None and sequence is None:
        return None
    if session is None or sequence is None:
        raise bad_request("of session and sequence one is missing; give both, or neither")
    if not 1 <= len(session.encode(errors="surrogatepass")) <= SESSION_NAME_BYTES_MAX or not session.isprintable():
        raise bad_request(f"session is {session[:100]!r}; give 1 to {SESSION_NAME_BYTES_MAX} bytes of printable text")
    return Fence(session, sequence)
