"""Key columns of encoded keys, by whole columns (`tables/sorted/keys.py` has the form)."""

from collections.abc import Sequence
from typing import Any, Final

import numpy
import pyarrow

from pqbroker.tables.sorted.keys import key_decoder
from pqbroker.tables.work.sorted.version_columns import STORED_TYPES, arrow_array

_SIGN = numpy.uint64(1 << 63)
_WORD_BYTES = 8
_TEXTS: Final = frozenset(("string", "utf8"))


def decode_keys(keys: Any, types: Sequence[str]) -> list[Any]:
    """Return an array of Arrow for each key column, given keys as binary of Arrow. ValueError for bytes that are
    none."""
    try:
        return _decoded(keys, types)
    except IndexError:
        return _one_by_one(keys, types)


def _decoded(keys: Any, types: Sequence[str]) -> list[Any]:
    offsets, data = _parts(keys)
    positions = offsets[:-1].copy()
    columns = []
    for kind in types:
        is_valid = data[positions] != 0
        positions = positions + 1
        if kind in _TEXTS:
            found = _texts(data, positions, is_valid, kind)
            if found is None:
                return _one_by_one(keys, types)
            array, positions = found
        elif kind == "boolean":
            bits = numpy.packbits(data[positions] == 1, bitorder="little")
            array = arrow_array(kind, len(positions), is_valid, [pyarrow.py_buffer(bits)])
            positions = positions + is_valid
        else:
            windows = numpy.ndarray(len(data) - _WORD_BYTES + 1, f"V{_WORD_BYTES}", data, strides=(1,))
            words = windows[positions].view(">u8").astype(numpy.uint64)
            array = arrow_array(kind, len(positions), is_valid, [pyarrow.py_buffer(_numbers(words, kind))])
            positions = positions + is_valid * _WORD_BYTES
        columns.append(array)
    if (positions != offsets[1:]).any():
        return _one_by_one(keys, types)
    return columns


def _parts(keys: Any) -> tuple[Any, Any]:
    """Return offsets and bytes, with room behind for reading 8 bytes at any position."""
    _, offsets, data = keys.buffers()
    ends = numpy.frombuffer(offsets, numpy.int32)[keys.offset : keys.offset + len(keys) + 1].astype(numpy.int64)
    content = numpy.frombuffer(data, numpy.uint8)[ends[0] : ends[-1]] if data is not None else ends[:0]
    return ends - ends[0], numpy.concatenate([content, numpy.zeros(_WORD_BYTES + 1, numpy.uint8)]).astype(numpy.uint8)


def _numbers(words: Any, kind: str) -> Any:
    """Return the values of encoded words, as wide as the column's type."""
    if kind == "double":
        bits = words ^ numpy.where(words & _SIGN, _SIGN, ~numpy.uint64(0))
        return bits.view(numpy.float64)
    if kind.startswith("int"):
        words = (words ^ _SIGN).view(numpy.int64)
    return words.astype(STORED_TYPES[kind].to_pandas_dtype())


def _texts(data: Any, positions: Any, is_valid: Any, kind: str) -> tuple[Any, Any] | None:
    """Return an array of strings and the positions behind them; None where one has a zero within it."""
    zeros = numpy.flatnonzero(data == 0)
    ends = numpy.where(is_valid, zeros[numpy.minimum(numpy.searchsorted(zeros, positions), len(zeros) - 1)], positions)
    if (data[numpy.minimum(ends + 1, len(data) - 1)][is_valid] != 0).any():
        return None
    offsets = numpy.empty(2 * len(positions), numpy.int32)
    offsets[::2] = positions
    offsets[1::2] = ends
    buffers = [None, pyarrow.py_buffer(offsets), pyarrow.py_buffer(data)]
    items = pyarrow.Array.from_buffers(STORED_TYPES[kind], max(2 * len(positions) - 1, 0), buffers)
    array = items.take(pyarrow.array(numpy.arange(0, 2 * len(positions), 2)))
    return arrow_array(kind, len(positions), is_valid, array.buffers()[1:]), ends + 2 * is_valid


def _one_by_one(keys: Any, types: Sequence[str]) -> list[Any]:
    decode = key_decoder(types)
    rows = [decode(key) for key in keys.to_pylist()]
    return [pyarrow.array([row[at] for row in rows], STORED_TYPES[kind]) for at, kind in enumerate(types)]
