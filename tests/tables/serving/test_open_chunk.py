"""Indexes of chunks: large ones are decoded beside the loop."""

import threading
from typing import Any

import pytest

from pqbroker.storage.kv.tablet import KeyValueTablet
from pqbroker.tables.serving import open_chunk
from pqbroker.tables.serving.chunk_records import ChunkRecord
from pqbroker.tables.serving.open_chunk import OpenChunk
from pqbroker.tables.sorted.chunks import ChunkIndex, ChunkSummary, Place, encode_index, filter_words

FACTS = ChunkSummary(1, 1, 0, 0, 0, 0, b"9".hex(), (("k", "string"),), (), ())
INDEX = encode_index([Place(0, 10, 100, 1, 0, 0, b"0")], bytes(8 * filter_words(1)), FACTS)


class Values:
    """A tablet whose only value is the index of a chunk."""

    async def read(self, ranges: Any) -> list[list[bytes]]:
        return [[INDEX]]


@pytest.mark.parametrize("excess", [0, 1])
async def test_a_large_index_is_decoded_in_another_thread(monkeypatch: pytest.MonkeyPatch, excess: int) -> None:
    decode, threads = ChunkIndex.decode, []

    def noted(data: bytes) -> ChunkIndex:
        threads.append(threading.get_ident())
        return decode(data)

    monkeypatch.setattr(ChunkIndex, "decode", noted)
    monkeypatch.setattr(open_chunk, "INDEX_BYTES_AT_ONCE", len(INDEX) - excess)
    record = ChunkRecord(0, 0, 10 + len(INDEX), len(INDEX), 100, 1, 1, 0, 0, 0, b"0".hex(), b"9".hex())
    kv: KeyValueTablet = Values()  # type: ignore[assignment]
    index = await OpenChunk(1, record).read_index(kv)
    assert len(index.places) == 1
    assert (threads == [threading.get_ident()]) == (not excess)
