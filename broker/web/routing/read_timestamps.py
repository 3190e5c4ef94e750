"""Timestamps that requests read at: given, or those of transactions, whose modules are loaded with the first one."""

from typing import Any

from pqbroker.broker.web.routing.loading import LoadedLater
from pqbroker.broker.web.routing.problems import bad_request
from pqbroker.broker.web.routing.routes import Call
from pqbroker.broker.web.routing.table_problems import told


def _load() -> Any:
    from pqbroker.broker.services.transactions import transactions

    return transactions


_transactions = LoadedLater(_load)


async def find_read_timestamp(call: Call) -> int | None:
    """Return the timestamp to read at, by the body's `timestamp` or `transaction`; None: as committed now. Problem."""
    timestamp: int | None = call.body.get("timestamp")
    if "transaction" not in call.body:
        return timestamp
    if timestamp is not None:
        raise bad_request("timestamp and transaction are given; a transaction reads at its start, so give one of them")
    started: int = await told(_read_timestamp(call))
    return started


async def _read_timestamp(call: Call) -> int:
    """Return the start of the transaction that the body names. TableError."""
    transactions = await _transactions.get()
    timestamp: int = transactions.read_timestamp(call, call.body["transaction"])
    return timestamp
