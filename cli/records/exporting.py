"""Files that `topic export` writes: JSON lines as `consume --json` prints them, or Parquet, which needs pyarrow."""

import json
from collections.abc import Callable, Sequence
from json.encoder import encode_basestring
from pathlib import Path
from types import ModuleType
from typing import Any, Protocol

from pqbroker.cli.records.columns import Columns
from pqbroker.cli.refusals import CommandError, WrongInput
from pqbroker.protocol.record_json import show_content, show_headers

ROW_GROUP_RECORDS = 100_000
"""Rows of a row group of a Parquet file: as many are in memory at once."""
NO_PYARROW = (
    "a Parquet file needs pyarrow, which is not installed: `pip install pyarrow`, or install pqbroker with its extra"
    " `tables`; or export to a .jsonl file"
)


class Writer(Protocol):
    """A file being written."""

    def add(self, partition: int, columns: Columns) -> None:
        """Records of a partition."""

    def close(self) -> None:
        """All records were added."""


def writer_for(path: Path, suffix: str, topic: str) -> Writer:
    """Return a writer of that kind of file to `path`. Raises WrongInput for another kind, CommandError
    without pyarrow."""
    if suffix not in _WRITERS:
        raise WrongInput(f"{suffix or 'no suffix'!r} is no kind of file: end its name in {' or '.join(_WRITERS)}")
    return _WRITERS[suffix](path, topic)


class JsonLines:
    """One object a line."""

    def __init__(self, path: Path, topic: str) -> None:
        self._topic = encode_basestring(topic)
        self._file = path.open("wb")

    def add(self, partition: int, columns: Columns) -> None:
        head = f'{{"topic": {self._topic}, "partition": {partition}, "offset": '
        self._file.write("".join([f"{head}{line}\n" for line in map(_json, *columns)]).encode())

    def close(self) -> None:
        self._file.close()


def _json(offset: int, timestamp: int, key: bytes | None, value: bytes | None, headers: Sequence[Any]) -> str:
    """A record behind its offset's name."""
    when = timestamp if timestamp >= 0 else "null"
    shown = _dump(show_headers(headers)) if headers else "[]"
    return f'{offset}, "timestamp": {when}, "key": {_text(key)}, "value": {_text(value)}, "headers": {shown}}}'


def _text(content: bytes | None) -> str:
    if content is None:
        return "null"
    try:
        return encode_basestring(content.decode())
    except UnicodeDecodeError:
        return _dump(show_content(content))


_dump = json.JSONEncoder(ensure_ascii=False).encode


class Parquet:
    """Columns partition, offset, timestamp, key, value, headers; bytes that are no text in key_bytes, value_bytes."""

    def __init__(self, path: Path, topic: str) -> None:
        try:
            import pyarrow
            import pyarrow.parquet
        except ImportError:
            raise CommandError(NO_PYARROW) from None
        self._arrow: ModuleType = pyarrow
        header = pyarrow.struct([("key", pyarrow.string()), ("value", pyarrow.binary())])
        fields = {
            "partition": pyarrow.int32(), "offset": pyarrow.int64(), "timestamp": pyarrow.timestamp("ms", tz="UTC"),
            "key": pyarrow.string(), "value": pyarrow.string(), "key_bytes": pyarrow.binary(),
            "value_bytes": pyarrow.binary(), "headers": pyarrow.list_(header),
        }  # fmt: skip
        self._schema = pyarrow.schema(fields, metadata={"topic": topic})
        self._file = pyarrow.parquet.ParquetWriter(str(path), self._schema, compression="zstd")
        self._waiting: list[Any] = []
        self._records = 0

    def add(self, partition: int, columns: Columns) -> None:
        count = len(columns.offsets)
        keys, key_bytes = self._contents(columns.keys)
        values, value_bytes = self._contents(columns.values)
        times: list[int | None] = [*columns.timestamps]
        if min(columns.timestamps, default=0) < 0:
            times = [None if each < 0 else each for each in columns.timestamps]
        headers: list[list[Any]] = [[]] * count
        if any(columns.headers):
            headers = [[{"key": name, "value": content} for name, content in each] for each in columns.headers]
        arrays = [[partition] * count, columns.offsets, times, keys, values, key_bytes, value_bytes, headers]
        made = [self._array(each, field.type) for each, field in zip(arrays, self._schema, strict=True)]
        self._waiting.append(self._arrow.record_batch(made, schema=self._schema))
        self._records += count
        if self._records >= ROW_GROUP_RECORDS:
            self._write()

    def close(self) -> None:
        self._write()
        self._file.close()

    def _write(self) -> None:
        self._file.write_table(self._arrow.Table.from_batches(self._waiting, self._schema))
        self._waiting, self._records = [], 0

    def _contents(self, contents: list[bytes | None]) -> tuple[Any, Any]:
        """Text, and beside it what is none."""
        try:
            text = self._arrow.array(contents, self._arrow.binary()).cast(self._arrow.string())
            return text, self._arrow.nulls(len(contents), self._arrow.binary())
        except self._arrow.ArrowInvalid:
            shown = [show_content(each) for each in contents]
            text = [each if isinstance(each, str) else None for each in shown]
            return text, [one if isinstance(each, dict) else None for one, each in zip(contents, shown, strict=True)]

    def _array(self, values: Any, kind: Any) -> Any:
        return self._arrow.array(values, kind) if isinstance(values, list) else values


_WRITERS: dict[str, Callable[[Path, str], Writer]] = {".jsonl": JsonLines, ".parquet": Parquet}
