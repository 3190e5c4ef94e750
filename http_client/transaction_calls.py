"""One transaction over tables: reads at its start; writes are kept here, and travel with its commit.

A commit is sent until its outcome is known: the broker answers the same request with the same outcome. Pauses between
the requests are steps of the transport's (`Request.delay_s`).
"""

import json
from collections.abc import Iterable, Mapping, Sequence
from random import uniform
from time import monotonic
from typing import Any, Final

from pqbroker.http_client.errors import ANSWER_CUT, CONNECTION_LOST, NO_BROKER, TIMED_OUT, ClientError
from pqbroker.http_client.exchange import Request, Steps, accepted, ask, post, read
from pqbroker.http_client.row_pieces import json_body, key_pieces, row_documents
from pqbroker.http_client.table_calls import Row, TableCalls

CONFLICT: Final = "ROW_LOCK_CONFLICT"
"""Another transaction has written one of the rows since this one started."""
COMMIT_S_MAX: Final = 30.0
"""Seconds for which a commit without an answer is sent again, twice at least; its outcome stays unknown then."""
COMMIT_DELAY_S: Final = 0.1
"""Seconds before a commit is sent the second time, twice as long each time."""
COMMIT_DELAY_S_MAX: Final = 5.0
CONFLICT_DELAY_S: Final = 0.02
"""Seconds that a transaction waits at most before it begins again after a conflict, twice as long after each one."""
_ALL: Final = "/v1/transactions"
_UNAVAILABLE: Final = 503
_UNREAD: Final = "TOO_MUCH_AT_ONCE"
_UNANSWERED: Final = frozenset((CONNECTION_LOST, TIMED_OUT, ANSWER_CUT, "COMMIT_UNKNOWN"))
_STILL_OPEN: Final = frozenset((400, 403, 413, 415))
"""Statuses with which a broker may have refused a commit before it looked at the transaction."""
_ROWS: Final = b'"rows":[%b]'
_FORMS: Final = {"rows": _ROWS, "update": _ROWS + b',"update":true', "delete": b'"delete":[%b]'}
"""Fields of a write by its kind, with a place for rows or keys."""


class TransactionCalls:
    """Calls of one transaction. `name` is empty before its beginning."""

    def __init__(self, timeout_ms: int | None, transactional_id: str | None = None) -> None:
        self.name = ""
        self.start_timestamp = 0
        self.timestamp: int | None = None
        """Timestamp of the commit, once it is known."""
        self._timeout_ms = timeout_ms
        self._transactional_id = transactional_id
        """The producer of Kafka's whose transaction ends with this one; None: none does."""
        self._tables: dict[str, TableCalls] = {}
        self._writes: dict[tuple[str, str], list[bytes]] = {}
        """Rows or keys by table and kind of write."""
        self._offsets: dict[tuple[str, str, int], dict[str, Any]] = {}
        """Offsets by group, topic and partition."""
        self._is_over = False
        """True once it was aborted, or its commit was sent."""
        self._body: bytes | None = None
        """The body of the commit, once it was sent: it is the same each time."""

    @property
    def is_over(self) -> bool:
        return self._is_over

    def begin(self, conflicts: int = 0) -> Steps[None]:
        """`conflicts`: how many attempts before this one have met another transaction: the next one waits a little."""
        given = {"timeout_ms": self._timeout_ms, "transactional_id": self._transactional_id}
        body = {name: value for name, value in given.items() if value is not None}
        delay_s = uniform(0.0, CONFLICT_DELAY_S * 2 ** (conflicts - 1)) if conflicts else 0.0
        request = Request("POST", _ALL, json.dumps(body).encode(), is_repeatable=True, delay_s=delay_s)
        started = read((yield from ask(request)))
        self.name, self.start_timestamp = started["transaction"], started["start_timestamp"]

    def lookup(
        self, table: str, keys: Iterable[Mapping[str, Any]], columns: Sequence[str] | None
    ) -> Steps[list[Row | None]]:
        """Return the rows of keys of a sorted table, in their order; None where there is none."""
        return self._table(table).lookup(key_pieces(keys, self._read_fields(columns)))

    def lookup_prefix(self, table: str, prefix: Mapping[str, Any], columns: Sequence[str] | None) -> Steps[list[Row]]:
        """Return the rows of a sorted table whose keys begin with some values, in the order of their keys."""
        return self._table(table).lookup_prefix(json_body({"prefix": prefix, **self._read_fields(columns)}))

    def keep(self, kind: str, table: str, rows: Iterable[Mapping[str, Any]]) -> None:
        """Keep rows or keys for the commit; `kind`: rows, update or delete. TypeError for a value that has no JSON
        form; ValueError outside the transaction."""
        self._check_open()
        if hasattr(rows, "__arrow_c_stream__"):
            raise TypeError("a transaction takes rows as mappings; Table.insert takes Arrow")
        self._writes.setdefault((self._table(table).name, kind), []).extend(row_documents(rows))

    def keep_offset(self, group: str, topic: str, partition: int, offset: int, metadata: str) -> None:
        """Keep an offset of a consumer group for the commit, in place of an earlier one. ValueError outside the
        transaction."""
        self._check_open()
        self._offsets[group, topic, partition] = {
            "group": group, "topic": topic, "partition": partition, "offset": offset, "metadata": metadata,
        }  # fmt: skip

    def _check_open(self) -> None:
        if not self.name or self._is_over:
            raise ValueError(f"the transaction {'is over' if self._is_over else 'has not begun'}: nothing was written")

    def ping(self) -> Steps[None]:
        """Keep it open for its timeout again."""
        yield from post(f"{_ALL}/{self.name}/ping", {}, is_repeatable=True)

    def abort(self) -> Steps[None]:
        """Abort it; what was kept for the commit is dropped."""
        self._is_over = True
        self._writes.clear()
        self._offsets.clear()
        answer = yield from ask(Request("POST", f"{_ALL}/{self.name}/abort", b"{}", is_repeatable=True))
        accepted(answer, None)

    def commit(self) -> Steps[None]:
        """Commit it with its writes, and learn the outcome; called again after an unknown outcome it asks again."""
        self._is_over = True
        if self._body is None:
            self._body = self._written()
        until_s = monotonic() + COMMIT_S_MAX
        delay_s = 0.0
        while True:
            try:
                answer = read((yield Request("POST", f"{_ALL}/{self.name}/commit", self._body, delay_s=delay_s)))
            except ClientError as failure:
                if not _may_repeat(failure, is_unknown=delay_s > 0):
                    yield from self._leave(failure)
                    raise
                if delay_s and monotonic() >= until_s:
                    raise
                delay_s = min(max(2 * delay_s, COMMIT_DELAY_S), COMMIT_DELAY_S_MAX)
            else:
                self.timestamp = answer["timestamp"]
                return

    def _leave(self, refusal: ClientError) -> Steps[None]:
        """Abort what a refused commit may have left open: its rows keep others from being cleaned up."""
        if refusal.status in _STILL_OPEN:
            try:
                yield from self.abort()
            except ClientError:
                return  # its timeout aborts it

    def _written(self) -> bytes:
        """Return the body of the commit."""
        writes = (
            b'{"table":%b,%b}' % (json.dumps(table).encode(), _FORMS[kind] % b",".join(rows))
            for (table, kind), rows in self._writes.items() if rows
        )  # fmt: skip
        offsets = b',"offsets":%b' % json.dumps(list(self._offsets.values())).encode() if self._offsets else b""
        return b'{"writes":[%b]%b}' % (b",".join(writes), offsets)

    def _table(self, name: str) -> TableCalls:
        calls = TableCalls(name)
        return self._tables.setdefault(calls.name, calls)

    def _read_fields(self, columns: Sequence[str] | None) -> dict[str, Any]:
        """Return the fields of a lookup beside its keys."""
        return {"transaction": self.name, **({} if columns is None else {"columns": list(columns)})}


def _may_repeat(failure: ClientError, *, is_unknown: bool) -> bool:
    """Return True if a commit is to be sent again. `is_unknown`: an earlier request of it may have been performed."""
    if failure.code in _UNANSWERED or failure.code == _UNREAD:
        return True
    return is_unknown and (failure.status == _UNAVAILABLE or failure.code == NO_BROKER)
