"""Transfers of `pqbroker crashtest`: transactions over two sorted tables and a log, each in a cell of its own.

A transfer reads two accounts, and commits both and its row of the log. However the broker is killed: the balances of
each moment add up to the same sum, each transfer that was acknowledged has one row, none that was refused has any, and
the rows explain the balances.
"""

import json
import random
import threading
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from http.client import HTTPException
from types import TracebackType
from typing import Any, Final, Self, TypeVar

from pqbroker.cli.crashtest.book import Broken
from pqbroker.fixture.http_calls import BrokerRefusedError, HttpCalls

ACCOUNTS: Final = 12
"""Accounts of each of the two tables."""
FIRST_BALANCE: Final = 1000
SIDES: Final = ("crashtest-left", "crashtest-right")
TRANSFER_LOG: Final = "crashtest-transfers"
PATIENCE_S: Final = 60.0
PAUSE_S: Final = 0.02
"""Seconds between requests while the broker is away, or refuses for now."""
_PAGE: Final = 500
_ENDED = frozenset(
    ("NO_TRANSACTION", "TRANSACTION_ENDED", "ROW_LOCK_CONFLICT", "COMMIT_TOO_SLOW", "TIMESTAMP_TOO_OLD")
)
"""Refusals after which a transaction is not committed, and never will be."""
_PASSING = frozenset(("TABLET_NOT_OPEN", "WRONG_STATE", "NOT_LEADER_OR_FOLLOWER", "ROW_LOCKED", "COMMIT_UNKNOWN"))
T = TypeVar("T")


class TransferLoad:
    """A context manager: inside it a thread transfers without a pause; leaving it waits for the last answer."""

    def __init__(self, calls: HttpCalls, seed: int) -> None:
        self._calls = calls
        self._source = random.Random(f"{seed}:transfers")
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name="transfers", daemon=True)
        self.acknowledged: set[str] = set()
        self.refused: set[str] = set()
        self.failure = ""

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stopping.set()
        if error is None:
            self._thread.join()

    def _run(self) -> None:
        try:
            while not self._stopping.is_set():
                self._transfer()
        except (Broken, BrokerRefusedError) as broken:
            self.failure = f"a transfer failed: {broken}"

    def _transfer(self) -> None:
        try:
            name, writes = self._begin()
        except (OSError, HTTPException):
            time.sleep(PAUSE_S)
        except BrokerRefusedError as refusal:
            if not (_is_passing(refusal) or refusal.code in _ENDED):
                raise
            time.sleep(PAUSE_S)
        else:
            is_committed = patiently(lambda: self._commit(name, writes))
            (self.acknowledged if is_committed else self.refused).add(name)

    def _begin(self) -> tuple[str, Sequence[Mapping[str, Any]]]:
        """Start a transfer and read two accounts: its name and its writes."""
        name = self._calls.ask("POST", "/v1/transactions", {"timeout_ms": 30_000})["transaction"]
        every = [(side, number) for side in SIDES for number in range(ACCOUNTS)]
        amount = self._source.randint(1, 100)
        moves, writes = [], []
        for (side, number), change in zip(self._source.sample(every, 2), (-amount, amount), strict=True):
            (row,) = _lookup(self._calls, side, [number], name)
            writes.append({"table": side, "rows": [{"id": number, "balance": row["balance"] + change}]})
            moves.append([side, number, change])
        writes.append({"table": TRANSFER_LOG, "rows": [{"transfer": name, "moves": json.dumps(moves)}]})
        return name, writes

    def _commit(self, name: str, writes: Sequence[Mapping[str, Any]]) -> bool:
        """Return True if the transfer is committed; another answer is sent for again."""
        try:
            self._calls.ask("POST", f"/v1/transactions/{name}/commit", {"writes": writes})
        except BrokerRefusedError as refusal:
            if refusal.code in _ENDED:
                return False
            raise
        return True


def make_tables(calls: HttpCalls) -> bool:
    """Make the tables with their first balances; False: the broker is installed without what tables need."""
    account = [
        {"name": "id", "type": "int64", "sort_order": "ascending"}, {"name": "balance", "type": "int64"},
    ]  # fmt: skip
    try:
        for name in SIDES:
            calls.ask("POST", "/v1/bundles", {"name": name})
            calls.ask("POST", "/v1/cells", {"bundle": name})
            calls.ask("POST", "/v1/tables", {"path": f"//{name}", "schema": account, "bundle": name})
            rows = {"rows": [{"id": number, "balance": FIRST_BALANCE} for number in range(ACCOUNTS)]}
            patiently(partial(calls.ask, "POST", f"/v1/tables/{name}/rows", rows))
        log = [{"name": name, "type": "utf8"} for name in ("transfer", "moves")]
        calls.ask("POST", "/v1/tables", {"path": f"//{TRANSFER_LOG}", "schema": log})
    except BrokerRefusedError as refusal:
        if refusal.code == "TABLES_NOT_INSTALLED":
            return False
        raise
    return True


def check_sum(calls: HttpCalls) -> None:
    """Check that the balances of one moment add up. Broken."""
    total = sum(patiently(lambda: _balances(calls)).values())
    if total != 2 * ACCOUNTS * FIRST_BALANCE:
        raise Broken(f"the balances add up to {total}, not {2 * ACCOUNTS * FIRST_BALANCE}: a transfer is torn")


def check_transfers(calls: HttpCalls, load: TransferLoad) -> int:
    """Return how many transfers were acknowledged, each of which has its row; the rows explain the balances. Broken."""
    if load.failure:
        raise Broken(load.failure)
    rows = patiently(lambda: _log_rows(calls))
    counts = Counter(row["transfer"] for row in rows)
    for found, what in (
        ({name for name, count in counts.items() if count > 1}, "were written twice"),
        (load.acknowledged - counts.keys(), "were acknowledged and are gone"),
        (load.refused & counts.keys(), "were refused and are there"),
    ):
        if found:
            raise Broken(f"{len(found)} transfers {what}, the first: {min(found)}")
    expected = {(side, number): FIRST_BALANCE for side in SIDES for number in range(ACCOUNTS)}
    for row in rows:
        for side, number, change in json.loads(row["moves"]):
            expected[side, number] += change
    if (balances := patiently(lambda: _balances(calls))) != expected:
        wrong = next(account for account in expected if balances[account] != expected[account])
        text = f"account {wrong[1]} of {wrong[0]} has {balances[wrong]}, and {expected[wrong]} by its transfers"
        raise Broken(text)
    return len(load.acknowledged)


def patiently(ask: Callable[[], T]) -> T:
    """Ask until the broker serves. Broken after `PATIENCE_S`."""
    deadline = time.monotonic() + PATIENCE_S
    while True:
        try:
            return ask()
        except BrokerRefusedError as refusal:
            if not _is_passing(refusal):
                raise
            cause = str(refusal)
        except (OSError, HTTPException) as failure:
            cause = str(failure)
        if time.monotonic() > deadline:
            raise Broken(f"the broker did not answer for {PATIENCE_S:g} s: {cause}")
        time.sleep(PAUSE_S)


def _is_passing(refusal: BrokerRefusedError) -> bool:
    return refusal.status == 503 or refusal.code in _PASSING


def _balances(calls: HttpCalls) -> dict[tuple[str, int], int]:
    """Return the balances of one moment."""
    name = calls.ask("POST", "/v1/transactions", {})["transaction"]
    found = {
        (side, row["id"]): int(row["balance"])
        for side in SIDES for row in _lookup(calls, side, range(ACCOUNTS), name)
    }  # fmt: skip
    calls.ask("POST", f"/v1/transactions/{name}/abort", {})
    return found


def _lookup(calls: HttpCalls, table: str, ids: Sequence[int], transaction: str) -> list[dict[str, Any]]:
    body = {"keys": [{"id": number} for number in ids], "transaction": transaction}
    rows: list[dict[str, Any]] = calls.ask("POST", f"/v1/tables/{table}/lookup", body)["rows"]
    return rows


def _log_rows(calls: HttpCalls) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = []
    while True:
        place = f"tablet_index=0&first_row_index={len(rows)}&limit={_PAGE}"
        page = calls.ask("GET", f"/v1/tables/{TRANSFER_LOG}/rows?{place}")["rows"]
        if not page:
            return rows
        rows += page
