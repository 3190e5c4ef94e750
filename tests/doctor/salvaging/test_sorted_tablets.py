"""Sorted tables of which a round is lost: what it costs is named by table and keys, and the rest is served."""

from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from pqbroker.doctor.salvaging.losses import CellSalvage, NewBlobs
from pqbroker.doctor.salvaging.node import NodeSalvage, accept_node, salvage_node
from pqbroker.doctor.salvaging.sorted_tablets import GIVEN_UP, SortedSalvage
from pqbroker.doctor.sorted_tablets import ServedSorted
from pqbroker.fixture.http_calls import BrokerRefusedError, HttpCalls
from pqbroker.pq.transactions.stored_forms import TransactionId
from pqbroker.storage.blobs.blob_id import BlobId
from pqbroker.storage.disk import index_rows
from pqbroker.storage.disk.commits.index_changes import GONE
from pqbroker.storage.engine import BlobKey
from pqbroker.storage.ids import TabletId
from pqbroker.storage.kv.rows import Entry
from pqbroker.storage.tablets.tablet import TabletRecord, TabletType, row_prefix
from pqbroker.tables.serving.stored_keys import piece_key, prepared_key
from pqbroker.testing import broker
from tests.doctor.salvaging.directories import Killed
from tests.doctor.salvaging.test_salvaging import tear
from tests.doctor.test_doctor import damages
from tests.doctor.test_sorted_tablets import PATH, SCHEMA, await_tablets, found, text_of
from tests.storage.disk.mending.cells import IN_ROWS, damage

LARGE = 80
"""Rows of one write that is stored as a blob."""


class Written:
    """A table of a tablet whose broker is killed, and the rows of its directory's keys."""

    def __init__(self, data: Path) -> None:
        self.data = data
        self.prefix = b""
        self.last_timestamp = 0

    def write(self, *steps: tuple[int, int] | str) -> None:
        """Write rows from one number to another, or have the table take commands; then the broker is killed."""
        with broker(self.data) as node:
            calls = HttpCalls(lambda: node.http)
            calls.ask("POST", "/v1/tables", {"path": "//books", "schema": SCHEMA})
            (tablet,) = calls.ask("GET", f"{PATH}/tablets")["tablets"]
            self.prefix = row_prefix(TabletId(int(tablet["tablet_id"])))
            for step in steps:
                if isinstance(step, str):
                    calls.ask("POST", f"{PATH}/{step}", {})
                else:
                    self.insert(calls, range(*step))
            node.kill()

    def insert(self, calls: HttpCalls, numbers: range) -> None:
        rows = [{"id": number, "text": text_of(number)} for number in numbers]
        timestamp = calls.ask("POST", f"{PATH}/rows", {"rows": rows})["timestamp"]
        assert timestamp > self.last_timestamp
        self.last_timestamp = timestamp

    def salvage(self) -> list[str]:
        """Perform a salvage, and return what it says of the table."""
        shown = salvage_node(self.data, {}, performs=False)
        assert salvage_node(self.data, {}, performs=True) == shown
        return named(shown)


def named(salvage: NodeSalvage) -> list[str]:
    assert salvage.is_damaged
    return [f"{loss.where}: {loss.what}" for loss in salvage.losses if loss.kind == "sorted rows"]


@pytest.fixture
def written(tmp_path: Path) -> Written:
    return Written(tmp_path / "data")


def serving(data: Path) -> Iterator[HttpCalls]:
    with broker(data) as node:
        calls = HttpCalls(lambda: node.http)
        await_tablets(calls, 0)
        yield calls


def rows_of(calls: HttpCalls, numbers: range) -> list[Any]:
    """Return the numbers whose rows are found, each as it was written."""
    texts = found(calls, *numbers)
    assert all(text in (None, text_of(number)) for number, text in zip(numbers, texts, strict=True))
    return [number for number, text in zip(numbers, texts, strict=True) if text is not None]


def test_a_lost_round_of_the_log_costs_its_rows_alone(written: Written) -> None:
    written.write((0, 1), (1, 2), (2, 3), (3, 4))
    damage(Killed(written.data, {}).round_with(written.prefix + b"l", b"\x02"), IN_ROWS)
    told = "rows written or deleted by what is lost are as before; flushes and compactions may be undone"
    assert f"books, tablet 0: {told}" in written.salvage()
    accept_node(written.data, {})
    for calls in serving(written.data):
        assert 0 < len(rows_of(calls, range(4))) < 4
        written.insert(calls, range(4))
        assert rows_of(calls, range(4)) == [0, 1, 2, 3]
    assert damages(written.data) == []


def test_lost_pieces_of_a_chunk_are_named_by_keys_and_read_as_damage(written: Written) -> None:
    written.write((0, LARGE), "freeze", "unfreeze", (100, 101))
    damage(Killed(written.data, {}).round_with(written.prefix + b"t", last=False), IN_ROWS)
    (line,) = [line for line in written.salvage() if "unreadable" in line]
    assert line.startswith(f"books, tablet 0: some of the rows with keys from [0] to [{LARGE - 1}] are unreadable, in")
    accept_node(written.data, {})
    for calls in serving(written.data):
        with pytest.raises(BrokerRefusedError, match="CHUNK_DAMAGED"):
            found(calls, 0)
        assert rows_of(calls, range(100, 102)) == [100]
        written.insert(calls, range(LARGE))
        assert rows_of(calls, range(LARGE)) == list(range(LARGE)), "rows that are written again are read"


def test_a_torn_write_is_left_out_of_the_log(written: Written) -> None:
    written.write((0, 2), (2, LARGE))
    tear(written.data, Killed(written.data, {}).round_with(written.prefix + b"l"), back=2000)
    (line,) = [line for line in written.salvage() if "bytes" in line]
    assert line.endswith("bytes of rows in its log are lost")
    accept_node(written.data, {})
    for calls in serving(written.data):
        assert rows_of(calls, range(LARGE)) == [0, 1]
        written.insert(calls, range(LARGE))
    assert damages(written.data) == []


def test_prepared_rows_of_which_a_piece_is_lost_are_given_up_and_others_stay() -> None:
    whole, lost = (BlobKey(BlobId(TabletId(1), 0, 1, 1, cookie, 9).key()) for cookie in (1, 2))
    rows: Any = SimpleNamespace(get=lambda keys: [None if key[1:] == lost else b"row" for key in keys])
    salvage = CellSalvage(rows, SimpleNamespace(rounds=(), torn=frozenset()))  # type: ignore[arg-type]
    served = ServedSorted("books, tablet 0", None, b"", None, 1)
    kept, gone = (prepared_key(TransactionId(name * 16)) for name in (b"k", b"g"))
    entries = {kept: Entry.chained(1, whole, 9, shared=False), gone: Entry.chained(1, whole + lost, 18, shared=False)}
    record = TabletRecord(TabletId(1), TabletType.SORTED, 1, (), "owner")
    SortedSalvage(salvage, NewBlobs(salvage, record), b"T", served, entries).plan()
    (loss,) = salvage.losses
    assert loss.what == f"rows that transaction {gone[1:].hex()} has prepared are lost, be it committed or not"
    changes = {key.removeprefix(index_rows.ROW + b"T"): value for key, value in salvage.changes.rows()}
    assert changes[gone] == GONE
    assert kept not in changes
    assert [*Entry.stored(changes[piece_key(GIVEN_UP, 0)]).blobs()] == [whole]  # the next start removes it
