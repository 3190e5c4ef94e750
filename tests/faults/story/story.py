"""The story that the long runs share: one client that stores hostile bytes in everything a broker keeps, over HTTP.

It writes records to topics in two cells, offsets of groups, rows of sessions into both tablets of a table, staged
rows, some of which it commits, and transactions over that table and a sorted one; it moves a tablet between the cells,
and makes backups. Every request is asked until it
is answered, or until the broker is gone: `patience_s` says how long that may be.
"""

import random
import time
from base64 import b64encode
from collections.abc import Callable, Mapping, Sequence
from http.client import HTTPException
from typing import Any

from pqbroker.fixture.http_calls import BrokerRefusedError, HttpCalls
from pqbroker.pq.log.sessions import Fence
from tests.faults.hostile import NAMES, payload
from tests.faults.story.book import SOMEWHERE, Answer, Backup, Book, Staged, TopicPartition

PARTITIONS = 2
TABLE = "rows"
PAIRS = "pairs"
"""The sorted table, in the second cell."""
TOPICS = (*NAMES, "moved")
SCHEMA = [
    {"name": "n", "type": "int64"}, {"name": "data", "type": "string"}, {"name": "note", "type": "utf8"},
    {"name": "$timestamp", "type": "uint64"},
]  # fmt: skip
PAIRS_SCHEMA = [{"name": "n", "type": "int64", "sort_order": "ascending"}, {"name": "data", "type": "string"}]
SETTINGS = {"pqbroker.ballast.bytes": "0", "pqbroker.segment.bytes": str(1 << 20)}
"""Settings of the brokers of a story. The caller says where backups go."""
_BODIES = {"pq.low.watermark.bytes": "60000"}
_CONFIG = {**_BODIES, "pq.partitions.per.tablet": "1"}
_SIZES = (0, 40, 600, 3_000, 9_000, 40_000, 120_000)
_ROW_SIZES = (0, 40, 600, 9_000, 40_000)
_TRY_AGAIN_S = 0.02
_BUSY_S = 10.0
"""Seconds for which a broker may refuse what it takes later: rows of a transaction are being written."""
_SERVER_ERROR = 500


class BrokerGone(Exception):
    """The broker does not answer any more."""


class Story:
    """Told by one thread. `address`: HOST:PORT of the broker's HTTP, asked for at each request."""

    def __init__(
        self, address: Callable[[], str], book: Book, source: random.Random, *, patience_s: float = 0.0
    ) -> None:
        self.book = book
        self._calls = HttpCalls(address)
        self._source = source
        self._patience_s = patience_s
        self._sequence = 0
        self._waiting: list[Staged] = []
        self._home = 0
        self._backups = 0

    def begin(self) -> None:
        """Make cells, topics and the table, unless they exist. BrokerGone."""
        self._make("/v1/topics", {"name": TOPICS[0], "partitions": PARTITIONS, "config": _CONFIG}, TOPICS[0])
        if len(self._ask("GET", "/v1/cells", None, _nothing)["cells"]) == 1:
            self._ask("POST", "/v1/cells", {"bundle": "default"}, _nothing)
        for name in TOPICS[1:]:
            self._make("/v1/topics", {"name": name, "partitions": PARTITIONS, "config": _CONFIG}, name)
        table = {"path": f"//{TABLE}", "schema": SCHEMA, "tablet_count": PARTITIONS, "config": _BODIES}
        self._make("/v1/tables", table, TABLE)
        self._make("/v1/tables", {"path": f"//{PAIRS}", "schema": PAIRS_SCHEMA}, PAIRS)
        self._ask("POST", f"/v1/tables/{PAIRS}/mount", {"cell_id": "1"}, _nothing)

    def write(self, *, is_transacting: bool = True) -> None:
        """A few requests that store something. BrokerGone."""
        steps = [self._produce, self._insert, self._commit_offset, self._stage, self._insert, self._look]
        if is_transacting:
            steps.append(self._transact)
        for step in self._source.sample(steps, self._source.randint(2, len(steps))):
            step()

    def move(self) -> None:
        """Move a tablet of the table to the other cell. BrokerGone."""
        self._home = 1 - self._home
        body = {"cell_id": str(self._home), "first_tablet_index": 1, "last_tablet_index": 1}
        self._ask("POST", f"/v1/tables/{TABLE}/mount", body, _nothing)

    def back_up(self) -> None:
        """Make a backup. BrokerGone."""
        before = len(self.book.answers)

        def made(document: Mapping[str, Any]) -> Answer:
            return Answer(backups=(Backup(document["directory"], before),))

        while True:
            self._backups += 1
            try:
                self._ask("POST", "/v1/backups", {"name": f"backup-{self._backups}"}, made)
                return
            except BrokerRefusedError as refusal:
                if "exists" not in str(refusal):  # its answer was lost
                    raise

    def _produce(self) -> None:
        topic = self._source.choice(TOPICS)
        begin = len(self.book.sent)
        records: list[dict[str, Any]] = []
        for _ in range(self._source.randint(1, 4)):
            partition = self._source.randrange(PARTITIONS)
            value = b"%d:" % len(self.book.sent) + payload(self._source, self._source.choice(_SIZES))
            self.book.send((topic, partition), value)
            records.append({"partition": partition, "key": self._source.choice(NAMES), "value": _shown(value)})

        def written(document: Mapping[str, Any]) -> Answer:
            return Answer(written={begin + at: one["offset"] for at, one in enumerate(document["offsets"])})

        self._ask("POST", f"/v1/topics/{topic}/records", {"records": records}, written, is_repeatable=False)

    def _commit_offset(self) -> None:
        group, place = self._source.choice(NAMES), (self._source.choice(TOPICS), self._source.randrange(PARTITIONS))
        self._set_offset(group, place, ())

    def _set_offset(self, group: str, place: TopicPartition, used: Sequence[Staged]) -> None:
        offset = len(self.book.answers) + 1
        body = {"offsets": [{"topic": place[0], "partition": place[1], "offset": offset}]}
        answer = Answer(offsets={(group, place): offset}, used=used)
        self._ask("POST", f"/v1/groups/{group}/offsets", body, lambda _: answer)

    def _insert(self) -> None:
        tablet, session = self._source.randrange(PARTITIONS), self._source.choice(NAMES)
        numbers, rows = self._rows(tablet)
        sequence = self._next_sequence()
        body = {"rows": rows, "session": session, "sequence": sequence}

        def written(document: Mapping[str, Any]) -> Answer:
            offsets = dict.fromkeys(numbers, SOMEWHERE)
            for one in document["tablets"]:  # the only one
                offsets = {number: one["first_row_index"] + at for at, number in enumerate(numbers)}
            return Answer(written=offsets, batches={session: sequence})

        self._ask("POST", f"/v1/tables/{TABLE}/rows", body, written)

    def _stage(self) -> None:
        """Stage a batch in both tablets. Half of the batches are committed; the others wait for ever."""
        session = f"staged-{self._source.choice(NAMES)}-{len(self.book.sent)}"
        fence = Fence(session, self._next_sequence())
        staged = [self._stage_piece(fence, tablet) for tablet in range(PARTITIONS)]
        if self._source.random() < 0.5:
            return
        self._set_offset(NAMES[0], (TOPICS[0], 0), staged)
        names = [piece.name for piece in staged]
        numbers = [number for piece in staged for number in piece.numbers]
        answer = Answer(written=dict.fromkeys(numbers, SOMEWHERE), batches={session: fence.sequence})
        body = {"session": session, "sequence": fence.sequence, "pieces": names}
        path = f"/v1/tables/{TABLE}/staged-rows/commit"
        while not self._ask("POST", path, body, lambda document: answer if document["done"] else None)["done"]:
            continue

    def _stage_piece(self, fence: Fence, tablet: int) -> Staged:
        numbers, rows = self._rows(tablet)

        def staged(document: Mapping[str, Any]) -> Answer:
            (piece,) = document["pieces"]
            return Answer(staged=(Staged(piece["name"], fence, numbers),))

        body = {"rows": rows, "session": fence.session, "sequence": fence.sequence}
        self._ask("POST", f"/v1/tables/{TABLE}/staged-rows", body, staged)
        (piece,) = self.book.answers[-1].staged
        return piece

    def _transact(self) -> None:
        """Write rows of both tablets and of the sorted table by one transaction."""
        numbers, rows = self._rows(0)
        more_numbers, more_rows = self._rows(1)
        pair = len(self.book.sent)
        data = payload(self._source, self._source.choice(_ROW_SIZES))
        self.book.send((PAIRS, 0), {"n": pair, "data": data})
        every = (*numbers, *more_numbers, pair)
        self.book.transactions.append(every)
        name = self._ask("POST", "/v1/transactions", {}, _nothing)["transaction"]
        writes = [
            {"table": TABLE, "rows": [*rows, *more_rows]},
            {"table": PAIRS, "rows": [{"n": pair, "data": _shown(data)}]},
        ]
        answer = Answer(written=dict.fromkeys(every, SOMEWHERE))
        try:
            self._ask("POST", f"/v1/transactions/{name}/commit", {"writes": writes}, lambda _: answer)
        except BrokerRefusedError as refusal:
            if refusal.code not in ("NO_TRANSACTION", "TRANSACTION_ENDED"):
                raise
            self.book.answers[-1] = Answer(refused=every)

    def _look(self) -> None:
        """Read the commit timestamps of some rows: they are the same ever after."""
        tablet = self._source.randrange(PARTITIONS)

        def seen(document: Mapping[str, Any]) -> Answer:
            return Answer(timestamps={row["n"]: row["$timestamp"] for row in document["rows"]})

        path = f"/v1/tables/{TABLE}/rows?tablet_index={tablet}&first_row_index={self._source.randrange(40)}&limit=20"
        self._ask("GET", path, None, seen)

    def _rows(self, tablet: int) -> tuple[tuple[int, ...], list[dict[str, Any]]]:
        """New rows of a tablet, and their numbers."""
        begin, rows = len(self.book.sent), []
        for _ in range(self._source.randint(1, 3)):
            data = payload(self._source, self._source.choice(_ROW_SIZES))
            row = {"n": len(self.book.sent), "note": self._source.choice((*NAMES, "PQC2", "\0" * 600, None))}
            self.book.send((TABLE, tablet), {**row, "data": data})
            rows.append({**row, "data": _shown(data), "$tablet_index": tablet})
        return tuple(range(begin, len(self.book.sent))), rows

    def _next_sequence(self) -> int:
        self._sequence += 1
        return self._sequence

    def _make(self, path: str, body: Mapping[str, Any], name: str) -> None:
        try:
            self._ask("POST", path, body, lambda _: Answer(names=(name,)))
        except BrokerRefusedError as refusal:
            if "exist" not in str(refusal):
                raise
            self.book.answers[-1] = Answer(names=(name,))

    def _ask(
        self,
        method: str,
        path: str,
        body: Mapping[str, Any] | None,
        answered: Callable[[Mapping[str, Any]], Answer | None],
        *,
        is_repeatable: bool = True,
    ) -> Mapping[str, Any]:
        """Ask until there is an answer, and note what it promises, which of a refusal is nothing. BrokerGone,
        BrokerRefusedError."""
        until = time.monotonic() + self._patience_s
        busy_until = max(until, time.monotonic() + _BUSY_S)
        while True:
            try:
                document: Mapping[str, Any] = self._calls.ask(method, path, body)
            except (OSError, HTTPException) as loss:
                failure: Exception = loss
            except BrokerRefusedError as refusal:
                self.book.answers.append(Answer())
                if refusal.status < _SERVER_ERROR:
                    raise
                failure = refusal
            else:
                self.book.answers.append(answered(document) or Answer())
                return document
            if time.monotonic() > (busy_until if isinstance(failure, BrokerRefusedError) else until):
                raise BrokerGone(f"{method} {path}: {failure}") from failure
            if not is_repeatable:
                return {}
            time.sleep(_TRY_AGAIN_S)


def _nothing(_: Mapping[str, Any]) -> Answer:
    return Answer()


def _shown(content: bytes) -> dict[str, str]:
    return {"base64": b64encode(content).decode()}
