"""A cell's directory in the form of format 1: RocksDB's own log has the last rows, and there is no commit log."""

import json
import shutil
from collections.abc import Sequence

from rocksdict import Options, Rdict, WriteBatch

from pqbroker.storage.disk.index_rows import ROW, last_number, located_row, number_keys, number_row, segment_key
from pqbroker.storage.disk.index_rows import segment_row as row_of_segment
from pqbroker.storage.disk.mending.facts_copy import FACTS_COPY
from pqbroker.storage.disk.segments import Location, encode_record, record_bytes, segment_name
from tests.storage.cells import RocksCell, blob_key, content

BLOB_BYTES = 5_000


async def make_earlier(living: RocksCell, cell: RocksCell, values: Sequence[bytes]) -> list[int]:
    """In `cell`, what kill -9 left of a broker of that form: rows K00, K01 … of these values, a round and a blob each.

    Where each round begins in the log.
    """
    await (await living.open()).close()
    shutil.rmtree(living.index() / "commits")
    (living.path / FACTS_COPY).unlink()
    facts = living.path / "cell"
    facts.write_text(json.dumps({**json.loads(facts.read_text()), "format": 1}))
    rows = Rdict(str(living.index()), Options(raw_mode=True))
    number = last_number([rows.get(key) for key in number_keys()])
    segment = b""
    begins: list[int] = []
    for index, value in enumerate(values):
        number += 1
        at = Location("main", 1, 1, len(segment), BLOB_BYTES)
        record = encode_record(blob_key(index), [content(index, BLOB_BYTES)], BLOB_BYTES, number, 0)
        segment += b"".join(record)
        (living.path / "blobs" / segment_name(1, 1)).write_bytes(segment)
        rows.flush_wal(True)
        begins.append(max(file.stat().st_size for file in living.index().glob("*.log")))
        batch = WriteBatch(raw_mode=True)
        batch.put(ROW + b"K%02d" % index, value)
        batch.put(b"b" + blob_key(index), located_row(at))
        batch.put(segment_key("main", 1, 1), row_of_segment(len(segment), len(segment)))
        batch.put(*number_row(number))
        rows.write(batch)
    rows.flush_wal(True)
    assert len(segment) == len(values) * record_bytes(BLOB_BYTES)
    shutil.copytree(living.path, cell.path)
    rows.close()
    return begins
