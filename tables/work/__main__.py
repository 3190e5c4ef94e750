"""`python -m pqbroker.tables.work FD`: a worker, which serves the queries, encodes the rows, merges the chunks, cleans
and searches the logs, decodes and makes rows of the records that come over a socket until that closes."""

import contextlib
import gc
import os
import socket
import sys

from pqbroker.tables.refusals import TableError
from pqbroker.tables.schema import read_schema
from pqbroker.tables.sorted.schema import read_sorted_schema
from pqbroker.tables.work.kept_columns import KeptColumns
from pqbroker.tables.work.messages import STOP, STOPPED, Line, Message, Stopped
from pqbroker.tables.work.refusal import QueryRefused
from pqbroker.tables.work.sorted.refusal import MergeRefused
from pqbroker.tables.work.unwanted import refuse_unwanted
from pqbroker.tables.work.watching import Watch, resident_bytes

NICENESS = 5
"""The broker goes first where processors are few."""
CLEANING_NICENESS = 15
"""A worker that cleans logs, which hurries nobody, gives way to producers too."""
RECURSION_MAX = 20_000
"""Calls of Python within one another: the parser of SQL takes about 50 for each level of a query."""
LIBRARIES = frozenset(("duckdb", "numpy", "pyarrow", "sqlglot"))
NO_LIBRARIES = {
    "code": "TABLES_NOT_INSTALLED",
    "message": "SQL, Arrow and sorted tables need duckdb, numpy, pyarrow and sqlglot; at least one is not installed",
    "cure": "Install them beside the broker: pip install duckdb numpy pyarrow sqlglot.",
}


def main(number: int) -> None:
    """Serve queries one after another. Records are many small objects without cycles: collecting waits for the end."""
    os.nice(NICENESS)
    gc.disable()
    refuse_unwanted()
    sys.setrecursionlimit(RECURSION_MAX)
    connection = socket.socket(fileno=number)
    watch = Watch(connection)
    watch.start()
    line = Line(connection)
    kept = KeptColumns()
    with contextlib.suppress(EOFError, ConnectionError):
        while True:
            _serve(line, watch, kept, line.begin())
            gc.collect()
            gc.freeze()  # what is left is kept, or of modules: the next collecting, 50 ms of it, need not look there


def _serve(line: Line, watch: Watch, kept: KeptColumns, message: Message) -> None:
    if message.kind == STOP:  # it came when the query was over
        line.send(STOPPED, {"resident_bytes": resident_bytes()})
        return
    watch.memory_bytes_max = message.document["memory_bytes_max"]
    try:
        if message.kind == "rows":
            _encode(line, message)
        elif message.kind == "sorted_rows":
            _pack(line, message)
        elif message.kind == "merge":
            _merge(line, message)
        elif message.kind == "clean":
            _clean(line, message)
        elif message.kind == "scan":
            _scan(line, message)
        elif message.kind == "materialize":
            _materialize(line, message)
        elif message.kind == "decode":
            _decode(line, message)
        elif message.kind == "search":
            _search(line, message)
        else:
            _answer(line, watch, kept, message)
    except Stopped:
        line.finish_stop()
        line.send(STOPPED, {"resident_bytes": resident_bytes()})
    except MergeRefused as refusal:
        line.send("refused", refusal.document())
    except (QueryRefused, TableError) as refusal:
        line.send("refused", {"code": refusal.code, "message": refusal.message, "cure": refusal.cure})
    except ModuleNotFoundError as missing:
        if missing.name not in LIBRARIES:
            raise
        line.send("refused", NO_LIBRARIES)


def _answer(line: Line, watch: Watch, kept: KeptColumns, message: Message) -> None:
    from pqbroker.tables.work.files.opening import sent_files
    from pqbroker.tables.work.query import answer

    sent = sent_files(message.document["files"], message.payload)
    explanation = answer(line, message.document, kept, watch, sent)
    line.send("done", {"resident_bytes": resident_bytes(), "explanation": explanation})


def _merge(line: Line, message: Message) -> None:
    from pqbroker.tables.work.sorted.merging import merge

    line.send("merged", {**merge(line, message), "resident_bytes": resident_bytes()})


def _clean(line: Line, message: Message) -> None:
    from pqbroker.tables.work.log_cleaning import CleaningRefused, clean_log

    os.nice(CLEANING_NICENESS - os.nice(0))
    try:
        line.send("cleaned", {**clean_log(line, message), "resident_bytes": resident_bytes()})
    except CleaningRefused as refusal:
        line.send("refused", {"message": str(refusal)})


def _scan(line: Line, message: Message) -> None:
    from pqbroker.tables.work.sorted.scanning import answer_scan

    line.send("done", {**answer_scan(line, message), "resident_bytes": resident_bytes()})


def _materialize(line: Line, message: Message) -> None:
    from pqbroker.tables.work.materializing import materialize

    line.send("done", {**materialize(line, message), "resident_bytes": resident_bytes()})


def _decode(line: Line, message: Message) -> None:
    from pqbroker.tables.work.decoding import decode_records

    decoded = decode_records(message)
    line.send("decoded", {"resident_bytes": resident_bytes()}, decoded)
def _search(line: Line, message: Message) -> None:
    from pqbroker.tables.work.searching import search_records

    search_records(line, message)
    line.send("done", {"resident_bytes": resident_bytes()})


def _encode(line: Line, message: Message) -> None:
    from pqbroker.tables.work.arrow_rows import encode_stream

    asked = message.document
    schema = read_schema(asked["schema"], len(asked["schema"]), asked["formats"])
    encoded = encode_stream(schema, message.payload, asked["now_ms"], asked["batch_bytes_max"])
    tablets = [(one.tablet_index, one.row_count, len(one.batch)) for one in encoded.batches]
    document = {"tablets": tablets, "weight": encoded.weight, "resident_bytes": resident_bytes()}
    line.send("encoded", document, b"".join(one.batch for one in encoded.batches))


def _pack(line: Line, message: Message) -> None:
    from pqbroker.tables.work.sorted.row_packing import pack_stream

    asked = message.document
    schema = read_sorted_schema(asked["schema"], len(asked["schema"]))
    packed = pack_stream(schema, message.payload, is_update=asked["is_update"])
    line.send("packed", {"rows": len(packed.keys), "resident_bytes": resident_bytes()}, packed.payload())


if __name__ == "__main__":
    main(int(sys.argv[1]))
