"""Calls of one queue: a topic, most often an ordered table, with consumers and sessions of producers."""

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final
from urllib.parse import quote, urlencode

from pqbroker.http_client.exchange import Request, Steps, ask, get, post, read
from pqbroker.http_client.row_pieces import json_body, row_documents
from pqbroker.http_client.table_calls import Row, TableCalls

_LISTED: Final = 1000


@dataclass(frozen=True, slots=True)
class AutoTrim:
    """The auto trim of a queue. `retained_lifetime_duration`: milliseconds, in whole seconds; None: no such bound."""

    enable: bool
    retained_rows: int | None = None
    retained_lifetime_duration: int | None = None


@dataclass(frozen=True, slots=True)
class QueueDescription:
    """A queue. `consumers`: those that are registered; True for vital ones, which auto trim waits for."""

    name: str
    path: str
    tablet_count: int
    is_table: bool
    consumers: Mapping[str, bool]
    auto_trim: AutoTrim

    @classmethod
    def read(cls, document: Mapping[str, Any]) -> "QueueDescription":
        consumers = {one["consumer"]: one["vital"] for one in document["consumers"]}
        trim = AutoTrim(**document["auto_trim_config"])
        count = document["tablet_count"]
        return cls(document["name"], document["path"], count, document["is_table"], consumers, trim)


@dataclass(frozen=True, slots=True)
class ConsumerPlace:
    """A consumer's place in one tablet. `offset`: the first row that it has not read; None: it never said.
    `disposition`: up_to_date, pending_consumption, expired (its next row was trimmed) or ahead (of all rows)."""

    tablet_index: int
    offset: int | None
    first_row_index: int
    end_row_index: int
    disposition: str
    unread_row_count: int


@dataclass(frozen=True, slots=True)
class PulledRows:
    """Rows of one tablet. `next_offset`: where to pull next; no rows: there is nothing at `offset` yet."""

    rows: list[Row]
    offset: int
    next_offset: int


@dataclass(frozen=True, slots=True)
class ProducerSession:
    """A session as it was taken: pushes carry its `epoch`, and `sequence_number` is that of its last row, or -1."""

    producer: str
    session: str
    epoch: int
    sequence_number: int
    user_meta: Any

    @classmethod
    def read(cls, document: Mapping[str, Any]) -> "ProducerSession":
        return cls(
            document["producer"], document["session"], document["epoch"], document["sequence_number"],
            document["user_meta"],
        )  # fmt: skip


@dataclass(frozen=True, slots=True)
class PushedRows:
    """The outcome of a push. `skipped_row_count`: rows that the session had taken before."""

    last_sequence_number: int
    skipped_row_count: int


def list_queues(consumer: str | None) -> Steps[list[QueueDescription]]:
    """All queues with consumers or auto trim, or those of one consumer."""
    query: dict[str, Any] = {"limit": _LISTED} | ({} if consumer is None else {"consumer": consumer})
    found: list[QueueDescription] = []
    while True:
        page = yield from get(f"/v1/queues?{urlencode(query)}")
        found += map(QueueDescription.read, page["queues"])
        if page["next"] is None:
            return found
        query["after"] = page["next"]


class QueueCalls:
    """Calls of the queue `name`, which may be a path: //shop/orders is shop.orders."""

    def __init__(self, name: str) -> None:
        self._table = TableCalls(name)
        self.name = self._table.name
        self._path = f"/v1/queues/{quote(self.name, safe='')}"

    def describe(self) -> Steps[QueueDescription]:
        return QueueDescription.read((yield from get(self._path)))

    def set_auto_trim(self, trim: AutoTrim) -> Steps[QueueDescription]:
        fields = {name: getattr(trim, name) for name in ("enable", "retained_rows", "retained_lifetime_duration")}
        body = json.dumps({"auto_trim_config": fields}).encode()
        return QueueDescription.read(read((yield from ask(Request("PATCH", self._path, body, is_repeatable=True)))))

    def register(self, consumer: str, *, is_vital: bool) -> Steps[QueueDescription]:
        body = {"consumer": consumer, "vital": is_vital}
        return QueueDescription.read((yield from post(f"{self._path}/consumers", body, is_repeatable=True)))

    def unregister(self, consumer: str) -> Steps[None]:
        answer = yield from ask(Request("DELETE", self._consumer(consumer)))
        if answer.data:
            read(answer)

    def places(self, consumer: str) -> Steps[list[ConsumerPlace]]:
        """Return where a consumer stands, by tablet."""
        query: dict[str, Any] = {"limit": _LISTED}
        found: list[ConsumerPlace] = []
        while True:
            page = yield from get(f"{self._consumer(consumer)}?{urlencode(query)}")
            for one in page["tablets"]:
                found.append(ConsumerPlace(*(one[name] for name in _PLACE_FIELDS)))
            if page["next"] is None:
                return found
            query["after"] = page["next"]

    def advance(self, consumer: str, tablet_index: int, new_offset: int, old_offset: int | None) -> Steps[None]:
        """Commit how far a consumer has read. The request is sent once: after a lost answer `places` says what
        became of it."""
        body = {"consumer": consumer, "tablet_index": tablet_index, "new_offset": new_offset, "old_offset": old_offset}
        yield from post(f"{self._path}/advance", body)

    def pull(self, tablet_index: int, query: Mapping[str, Any]) -> Steps[PulledRows]:
        """`query`: offset, consumer, max_row_count, max_data_weight; those that are None are left out."""
        given = {name: value for name, value in query.items() if value is not None}
        document = yield from get(f"{self._path}/rows?{urlencode({'tablet_index': tablet_index, **given})}")
        rows = yield from self._table.read_rows(document["rows"])
        return PulledRows(rows, document["offset"], document["next_offset"])

    def take_session(self, producer: str, session: str, user_meta: Any) -> Steps[ProducerSession]:
        body = {"producer": producer, "session": session} | ({} if user_meta is None else {"user_meta": user_meta})
        return ProducerSession.read((yield from post(f"{self._path}/producer-sessions", body, is_repeatable=True)))

    def end_session(self, producer: str, session: str) -> Steps[None]:
        body = json.dumps({"producer": producer, "session": session}).encode()
        answer = yield from ask(Request("DELETE", f"{self._path}/producer-sessions", body))
        if answer.data:
            read(answer)

    def sessions(self) -> Steps[list[ProducerSession]]:
        """All sessions of producers, by name."""
        query: dict[str, Any] = {"limit": _LISTED}
        found: list[ProducerSession] = []
        while True:
            page = yield from get(f"{self._path}/producer-sessions?{urlencode(query)}")
            found += map(ProducerSession.read, page["sessions"])
            if page["next"] is None:
                return found
            query |= {f"after_{name}": text for name, text in page["next"].items()}

    def push(
        self, held: ProducerSession, rows: Iterable[Mapping[str, Any]], more: Mapping[str, Any]
    ) -> Steps[PushedRows]:
        """Sent again after a lost answer: rows that were taken are left out. `more`: sequence_number, user_meta."""
        fields = {"producer": held.producer, "session": held.session, "epoch": held.epoch}
        fields |= {name: value for name, value in more.items() if value is not None}
        head = json_body(fields)[:-1]
        body = b'%b,"rows":[%b]}' % (head, b",".join(row_documents(rows)))
        request = Request("POST", f"{self._path}/push", body, is_repeatable=True)
        document = read((yield from ask(request)))
        return PushedRows(document["last_sequence_number"], document["skipped_row_count"])

    def _consumer(self, consumer: str) -> str:
        return f"{self._path}/consumers/{quote(consumer, safe='')}"


_PLACE_FIELDS: Final = (
    "tablet_index", "offset", "first_row_index", "end_row_index", "disposition", "unread_row_count",
)  # fmt: skip
