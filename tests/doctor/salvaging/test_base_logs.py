"""A base tablet's log of which a change is lost: the others are read, and written again as one log."""

from typing import Any

import pytest

from pqbroker.doctor.salvaging.base_logs import ReadLog, read_log, write_log
from pqbroker.doctor.salvaging.losses import CellSalvage, NewBlobs
from pqbroker.storage.blobs.blob_id import BlobId
from pqbroker.storage.disk import index_rows
from pqbroker.storage.disk.mending.salvage import Lost
from pqbroker.storage.engine import BlobKey
from pqbroker.storage.ids import TabletId
from pqbroker.storage.tablets.base_tablet import encode_record
from pqbroker.storage.tablets.channel_profiles import begin_channels
from pqbroker.storage.tablets.row_sets import Operation, snapshot
from pqbroker.storage.tablets.tablet import LOG_CHANNEL, SNAPSHOT_CHANNEL, TabletRecord, TabletType
from pqbroker.storage.tablets.value_encoding import encode
from tests.doctor.salvaging.test_lost_offsets import Stored

TABLET = TabletId(1)
CREATE: list[Any] = [Operation.CREATE, "rows", [["name", "str"]], ["value"]]


def put(name: str, value: Any = 1) -> list[Any]:
    return [Operation.PUT, "rows", [name], {"value": value}]


class Log(Stored):
    """The log of a tablet, chain by chain."""

    def __init__(self) -> None:
        super().__init__()
        self.keys: list[BlobKey] = []
        self.first: BlobKey | None = None

    def write(self, *operations: list[Any], begins: bool = False, parts: tuple[BlobKey, ...] = ()) -> BlobKey:
        first = None if begins or self.first is None else self.first
        previous = None if first is None else self.keys[-1]
        key = self.blob(LOG_CHANNEL, encode_record(first, previous, parts, encode(list(operations))))
        self.first = first or key
        self.keys.append(key)
        return key

    def blob(self, channel: int, content: bytes) -> BlobKey:
        self.step += 1
        key = BlobId(TABLET, channel, 1, self.step, 0, len(content)).key()
        self.index[index_rows.BLOB + key] = index_rows.inline_row([content])
        return key

    def lose(self, key: BlobKey) -> None:
        del self.index[index_rows.BLOB + key]

    def read(self, *newer: BlobKey) -> ReadLog:
        rewritten = frozenset(index_rows.BLOB + key for key in newer)
        self.salvage = CellSalvage(self, Lost(1, 100, rewritten))
        return read_log(self.salvage, TABLET)


def names(log: ReadLog) -> list[str]:
    return [str(key[0]) for key, _ in log.row_sets.get("rows", ())]


@pytest.fixture
def log() -> Log:
    found = Log()
    found.write(CREATE, put("a"))
    for name in "bcd":
        found.write(put(name))
    return found


def test_a_whole_log_is_not_broken(log: Log) -> None:
    found = log.read()
    assert names(found) == ["a", "b", "c", "d"]
    assert not found.is_broken
    assert not found.is_settled
    assert log.read(log.keys[-1]).is_settled
    assert not log.read(log.keys[-2]).is_settled


def test_a_lost_change_between_others_costs_itself_alone(log: Log) -> None:
    log.lose(log.keys[2])
    found = log.read()
    assert names(found) == ["a", "b", "d"]
    assert found.is_broken
    assert found.misfits == 0


def test_unreadable_log_blobs_are_counted(log: Log) -> None:
    assert log.read().unreadable == 0
    log.index[index_rows.BLOB + log.keys[3]] = index_rows.inline_row([b"damaged"])
    found = log.read()
    assert found.is_broken
    assert found.unreadable == 1
    assert names(found) == ["a", "b", "c"]


def test_changes_that_do_not_fit_without_the_lost_one_are_counted(log: Log) -> None:
    log.lose(log.keys[0])
    found = log.read()
    assert found.is_broken
    assert found.misfits == 3
    assert names(found) == []


def test_a_chain_without_its_beginning_begins_with_the_snapshot_that_it_named(log: Log) -> None:
    whole = log.read().row_sets
    part = log.blob(SNAPSHOT_CHANNEL, encode(list(snapshot(whole))))
    for key in log.keys:
        log.lose(key)
    begin = log.write(begins=True, parts=(part,))
    log.write(put("e"))
    assert names(log.read()) == ["a", "b", "c", "d", "e"]
    log.lose(begin)
    found = log.read()
    assert found.is_broken
    assert names(found) == ["a", "b", "c", "d", "e"]


def test_a_chain_without_its_beginning_continues_the_one_before_it_if_that_is_still_there(log: Log) -> None:
    part = log.blob(SNAPSHOT_CHANNEL, b"damaged")
    begin = log.write(begins=True, parts=(part,))
    log.write(put("e"))
    log.lose(begin)
    assert names(log.read()) == ["a", "b", "c", "d", "e"]


@pytest.mark.parametrize("size", [10, 9 << 20])
def test_what_is_written_again_is_a_whole_log(log: Log, size: int) -> None:
    log.lose(log.keys[1])
    log.write(put("large", bytes(size)))
    found = log.read()
    assert log.salvage is not None
    record = TabletRecord(TABLET, TabletType.SCHEME, 7, begin_channels(TabletType.SCHEME), "")
    write_log(NewBlobs(log.salvage, record), found.row_sets)
    log.salvage.changes.apply(log)
    again = log.read()
    assert not again.is_broken
    assert names(again) == ["a", "c", "d", "large"]
    assert again.row_sets["rows"].get(("large",)) == {"value": bytes(size)}
