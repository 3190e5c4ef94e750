"""Numbered changes of row sets: what other nodes take from the scheme and the hive, to mirror them (`mirror.py`).

Each durable commit has a number: the generation and the step of its log blob. So a number is never given twice, rises
over restarts and over owners, and costs no byte on disk; numbers have gaps, and each change names the one before it.
A snapshot goes out in portions, since a scheme of thousands of topics outgrows one frame and one turn of the loop.
"""

from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from pqbroker.storage.blobs.blob_id import BlobId
from pqbroker.storage.engine import BlobKey
from pqbroker.storage.tablets.row_sets import RowSet, RowSetSchema, creation, put_operation
from pqbroker.storage.tablets.value_encoding import decode, encode
from pqbroker.storage.unreadable import check_version

NO_CHANGE = 0
"""Number of row sets that nothing was ever put into."""
CHANGES_KEPT_MAX = 1024
CHANGES_KEPT_BYTES = 1 << 20
"""Changes that are kept in memory for nodes that fall behind, and their size; one that is behind these takes a
snapshot."""
PORTION_BYTES = 16 << 10
"""Size at which a portion of a snapshot ends: one row more at most."""

_CHANGE_FORM = 1
_PORTION_FORM = 1
_STEP_BITS = 32
_NUMBER_BITS = 64


def number_of(key: BlobKey | None) -> int:
    """Return the number of the commit with this log blob; None: there was none yet."""
    if key is None:
        return NO_CHANGE
    blob = BlobId.from_key(key)
    return blob.generation << _STEP_BITS | blob.step


@dataclass(frozen=True, slots=True)
class NumberedChange:
    """One commit."""

    previous: int
    """Number of the commit before it."""
    number: int
    operations: Sequence[Sequence[Any]]

    def encode(self) -> bytes:
        return bytes((_CHANGE_FORM,)) + encode([self.previous, self.number, self.operations])

    @classmethod
    def decode(cls, data: bytes | bytearray | memoryview) -> "NumberedChange":
        """ValueError for bytes that are no change of this version; the operations are checked when they are applied."""
        previous, number, operations = _fields(data, _CHANGE_FORM, 3)
        if not _number(previous) < _number(number):
            raise ValueError(f"change {number} follows change {previous}")
        return cls(previous, number, _operations(operations))


@dataclass(frozen=True, slots=True)
class SnapshotPortion:
    """Some of the operations that make the row sets as they were at one number out of none."""

    number: int
    position: int
    """Operations in the portions before it."""
    count: int
    """Operations in all portions."""
    operations: Sequence[Sequence[Any]]

    @property
    def is_last(self) -> bool:
        return self.position + len(self.operations) == self.count

    def encode(self) -> bytes:
        return bytes((_PORTION_FORM,)) + encode([self.number, self.position, self.count, self.operations])

    @classmethod
    def decode(cls, data: bytes | bytearray | memoryview) -> "SnapshotPortion":
        """ValueError for bytes that are no portion of this version; as `NumberedChange.decode`."""
        number, position, count, stored = _fields(data, _PORTION_FORM, 4)
        operations = _operations(stored)
        if _number(position) + len(operations) > _number(count) or (not operations and count):
            raise ValueError(f"a portion of {len(operations)} at {position} of {count}")
        return cls(_number(number), position, count, operations)


class NumberedSnapshot:
    """Row sets as they were at one number. They may be changed while it is sent."""

    def __init__(self, number: int, row_sets: Mapping[str, RowSet]) -> None:
        self.number = number
        # Rows are replaced, never changed, so references are a copy. dict's own items: in no order, which costs least.
        self._rows = [(name, one.schema, list(dict.items(one.rows))) for name, one in row_sets.items()]

    def portions(self, bytes_max: int = PORTION_BYTES) -> Iterator[SnapshotPortion]:
        """Yield portions, at least one, each of them encoded about `bytes_max` long: a row each beyond that."""
        count = sum(1 + len(rows) for _, _, rows in self._rows)
        position = size = 0
        some: list[list[Any]] = []
        for operation in self._operations():
            some.append(operation)
            size += len(encode(operation))
            if size >= bytes_max:
                yield SnapshotPortion(self.number, position, count, some)
                position, size, some = position + len(some), 0, []
        if some or not count:
            yield SnapshotPortion(self.number, position, count, some)

    def _operations(self) -> Iterator[list[Any]]:
        rows: Sequence[Any]
        schema: RowSetSchema
        for name, schema, rows in self._rows:
            yield creation(name, schema)
            for key, row in rows:
                yield put_operation(name, key, row)


class ChangeLog:
    """The latest changes of a base tablet, over the instances of it that run one after another.

    None is kept before the first follower: a node that is alone pays for the number only.
    """

    def __init__(self, changes_max: int = CHANGES_KEPT_MAX, bytes_max: int = CHANGES_KEPT_BYTES) -> None:
        self._changes_max = changes_max
        self._bytes_max = bytes_max
        self._row_sets: Mapping[str, RowSet] = {}
        self._changes: deque[tuple[NumberedChange, int]] = deque()
        self._bytes = 0
        self._number = NO_CHANGE
        self._followers: list[Callable[[NumberedChange], None]] = []
        self._is_kept = False

    @property
    def number(self) -> int:
        """Return the number of the last durable change."""
        return self._number

    def snapshot(self) -> NumberedSnapshot:
        """Return the row sets as they are now."""
        return NumberedSnapshot(self._number, self._row_sets)

    def since(self, number: int) -> Sequence[NumberedChange] | None:
        """Return the changes behind a number, in order, none for the last one; None: too old, or no number that was
        given here, so that only a snapshot helps."""
        if number == self._number:
            return ()
        found = []
        for change, _ in reversed(self._changes):
            found.append(change)
            if change.previous == number:
                return found[::-1]
        return None

    def follow(self, follower: Callable[[NumberedChange], None]) -> Callable[[], None]:
        """Have each change from now on reported in the turn in which it becomes durable; return what ends that."""
        self._is_kept = True
        self._followers.append(follower)
        return lambda: self._followers.remove(follower)

    def begin(self, number: int, row_sets: Mapping[str, RowSet]) -> None:
        """An instance runs, which has replayed all that is durable."""
        self._row_sets = row_sets
        if number != self._number:
            self._changes.clear()
            self._bytes, self._number = 0, number

    def add(self, number: int, operations: Sequence[Sequence[Any]], size: int) -> None:
        """A change is durable, and the row sets have it; `size` is that of its log blob."""
        previous, self._number = self._number, number
        if not self._is_kept:
            return
        change = NumberedChange(previous, number, operations)
        self._changes.append((change, size))
        self._bytes += size
        while len(self._changes) > self._changes_max or self._bytes > self._bytes_max:
            self._bytes -= self._changes.popleft()[1]
        for follower in tuple(self._followers):
            follower(change)


def _fields(data: bytes | bytearray | memoryview, form: int, count: int) -> list[Any]:
    check_version(data, form)
    fields: Any = decode(memoryview(data)[1:])
    if not isinstance(fields, list) or len(fields) != count:
        raise ValueError(f"{count} fields were expected")
    return fields


def _number(value: Any) -> int:
    if type(value) is not int or not 0 <= value < 1 << _NUMBER_BITS:
        raise ValueError(f"{value!r} is no number")
    return value


def _operations(value: Any) -> Sequence[Sequence[Any]]:
    if not isinstance(value, list) or not all(isinstance(operation, list) for operation in value):
        raise ValueError("a list of operations was expected")
    return value
