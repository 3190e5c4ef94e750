"""One query in this process: what it reads is asked for, DuckDB computes, the answer leaves while it is made.

DuckDB sees Arrow and nothing else: no file, no extension, no setting, none of this process's variables.
"""

import re
import threading
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import Any

import duckdb
import pyarrow

from pqbroker.pq.log.commit_timestamps import milliseconds_of
from pqbroker.pq.log.row_facts import TIMESTAMP
from pqbroker.tables.refusals import nearest
from pqbroker.tables.work.batches import RowRange
from pqbroker.tables.work.catalogs import ColumnKinds
from pqbroker.tables.work.database import forget_database, open_for_query
from pqbroker.tables.work.files.file_scan import FileScan
from pqbroker.tables.work.files.opening import open_file, with_content
from pqbroker.tables.work.kept_columns import KeptColumns
from pqbroker.tables.work.messages import Line, Stopped
from pqbroker.tables.work.parsing import Named, Parsed, parse
from pqbroker.tables.work.ranges import EVERY, Range, runs
from pqbroker.tables.work.refusal import QueryRefused
from pqbroker.tables.work.results import ARROW, WRITERS, send_pieces
from pqbroker.tables.work.scanning import Origin, Tally, TopicScan, scan
from pqbroker.tables.work.shown_columns import as_shown
from pqbroker.tables.work.sorted.table_scan import SortedTableScan
from pqbroker.tables.work.views import registry_view, view_of
from pqbroker.tables.work.watching import Watch

_ROWS_AT_ONCE = 16_384
_NAMED_MAX = 20
"""Tablets that one refusal names."""
_NO_COLUMN = re.compile(r'(?:Referenced column|does not have a column named) "(.+?)"(?: not found|$)')
"""DuckDB's own words name as candidates only columns that the query has rightly."""
Found = Mapping[str, Any]
"""Description of a topic by the broker: its `id`, `bounds` of its partitions, `columns` of its schema; or of a sorted
table: its columns as `sorted`, `pivots`, the `timestamp` of the query; or of a local `file`, where it lies."""
Scan = TopicScan | SortedTableScan | FileScan
NO_FILES: Mapping[str, bytes] = MappingProxyType({})


def answer(
    line: Line, document: Mapping[str, Any], kept: KeptColumns, watch: Watch, sent: Mapping[str, bytes] = NO_FILES
) -> Any:
    """Send the answer, unless it is to be explained: the explanation. `sent`: files that came with the query.
    QueryRefused, Stopped."""
    parsed = parse(document["query"], document["depth_max"], document.get("params"))
    names = sorted({named.topic for named in parsed.topics})
    if parsed.described is not None:
        place = line.ask("check", {"name": parsed.described}).document["file"]
        if place is not None:
            open_file(with_content(place, sent)).close()
    found: Mapping[str, Found] = line.ask("find", {"topics": names}).document["topics"]
    wanted = {named.relation: _wanted(named, found[named.topic], sent) for named in parsed.topics}
    tally = Tally()
    kept_bytes = min(document["columns_bytes_max"], document["memory_bytes_max"] // 4)
    kept.begin(kept_bytes)
    memory_bytes = (document["memory_bytes_max"] - kept_bytes) // 4 * 3
    with open_for_query(memory_bytes) as connection:
        stopping = Stopping(line, connection)
        watch.look = stopping.look
        try:
            for catalog in parsed.catalogs:
                connection.register(catalog.relation, catalog.rows(line, ColumnKinds(connection), sent))
            for named in parsed.topics:
                reads = wanted[named.relation]
                connection.register(named.relation, _rows(named, reads, _read(line, reads, tally, kept)))
            if document["explain"]:
                return _explain(connection, parsed, list(wanted.values()), tally)
            relation = connection.sql(parsed.sql, params=parsed.parameters or None)
            format_, documents = document["format"], frozenset[int]()
            if format_ != ARROW:
                relation, documents = as_shown(relation)
            reader = relation.to_arrow_reader(_ROWS_AT_ONCE)
            for piece in WRITERS[format_](reader.schema, reader, documents):
                send_pieces(line, piece)
        except (duckdb.Error, pyarrow.ArrowException, OSError) as error:  # the latter two: met by the reader of rows
            if stopping.has_stopped or line.is_stopped:
                raise Stopped from None
            if isinstance(error, duckdb.FatalException | duckdb.InternalException):
                forget_database()
            raise tally.refusal or _refusal(error, parsed, list(wanted.values())) from None
        finally:
            watch.look = None
            stopping.end()
            _close(wanted.values())
    return None


class Stopping:
    """Stops DuckDB in the middle of a query, from another thread."""

    def __init__(self, line: Line, connection: Any) -> None:
        self._line = line
        self._connection = connection
        self._lock = threading.Lock()
        self._has_ended = False
        self.has_stopped = False

    def look(self) -> None:
        """Interrupt the query if the broker has said to stop."""
        with self._lock:
            if not self._has_ended and self._line.has_unasked():
                self.has_stopped = True
                self._connection.interrupt()

    def end(self) -> None:
        """The connection is closed next."""
        with self._lock:
            self._has_ended = True


def _wanted(named: Named, found: Found, sent: Mapping[str, bytes]) -> Scan:
    """Return the rows that the query's ranges leave of each tablet, or a file."""
    if "file" in found:
        return FileScan(named.topic, with_content(found["file"], sent), named.used, has_star=named.has_star)
    wanted = SortedTableScan(named, found) if "sorted" in found else _wanted_of_topic(named, found)
    closed = sorted({span.tablet for span in wanted.spans}.intersection(found["unmounted"]))
    if closed:
        raise QueryRefused(
            "WRONG_STATE", f"of {named.topic} tablets are unmounted: {', '.join(map(str, closed[:_NAMED_MAX]))}",
            f"`pqbroker table mount {named.topic}` mounts them; or leave them out by \"$tablet_index\".",
        )  # fmt: skip
    return wanted


def _wanted_of_topic(named: Named, found: Found) -> TopicScan:
    spans: list[RowRange] = []
    tablets = Range(0, len(found["bounds"]) - 1).within(named.tablets)
    wanted = set(range(tablets.least, tablets.most + 1))
    if named.listed_tablets is not None:
        wanted &= named.listed_tablets
    for tablet, (start, end) in enumerate(found["bounds"]):
        if tablet in wanted:
            rows = runs(named.listed_rows, Range(start, end - 1).within(named.rows))
            spans += [RowRange(tablet, run.least, run.most + 1) for run in rows]
    if found["columns"] is None and found.get("decoding"):
        view = registry_view(named.topic, found["decoding"], found["columns_max"])
    else:
        view = view_of(found["columns"], found["formats"])
    times = Range() if view.is_typed("timestamp_ms") else named.times
    commits = None
    if TIMESTAMP in view.filled:
        commits = None if named.commits == Range() else (named.commits.least, named.commits.most)
    elif named.commits.least > 0 and not view.is_typed(TIMESTAMP):  # it is the greatest time that the batch names
        times = times.within(Range(milliseconds_of(named.commits.least)))
    most = None if times.most == EVERY.most else times.most
    columns = view.columns(named.used, has_star=named.has_star)
    origin = Origin(found["id"], found.get("revisions", ()))
    return TopicScan(named.topic, spans, columns, times.least, view, origin, commits, most)


def _read(line: Line, reads: Scan, tally: Tally, kept: KeptColumns) -> Iterator[Any]:
    if isinstance(reads, TopicScan):
        return scan(line, reads, tally, kept)
    return reads.rows(tally) if isinstance(reads, FileScan) else reads.rows(line, tally)


def _close(scans: Iterable[Scan]) -> None:
    for each in scans:
        if isinstance(each, FileScan):
            each.close()


def _rows(named: Named, wanted: Scan, rows: Iterator[Any]) -> Any:
    """The rows, read while DuckDB takes them, or all at once where it may take them twice."""
    schema = wanted.schema()
    if named.is_read_once:
        return pyarrow.RecordBatchReader.from_batches(schema, rows)
    return pyarrow.Table.from_batches(rows, schema)


def _explain(connection: Any, parsed: Parsed, wanted: Sequence[Scan], tally: Tally) -> Any:
    """The plan, and what a run of the query read."""
    parameters = parsed.parameters or None
    plan = "\n".join(row[1] for row in connection.execute(f"EXPLAIN {parsed.sql}", parameters).fetchall())
    for _ in connection.sql(parsed.sql, params=parameters).to_arrow_reader(_ROWS_AT_ONCE):
        pass
    return {
        "plan": plan,
        "blobs_read": len(tally.blobs),
        "rows_read": tally.rows,
        "bytes_read": tally.stored_bytes,
        "scans": [each.explained() for each in wanted],
    }


def _refusal(error: Any, parsed: Parsed, wanted: Collection[Scan]) -> QueryRefused:
    text = str(error).partition("\n\n")[0].partition("\n\tCandidate functions")[0]
    if no_column := _NO_COLUMN.search(text):
        name = no_column[1]
        known = list(dict.fromkeys(known for each in (*wanted, *parsed.catalogs) for known in each.types))
        reasons = [each.view.reason for each in wanted if isinstance(each, TopicScan) and each.view.reason]
        message = "; ".join([f"there is no column {name!r}", *reasons])
        is_text = f'"{name}"' in parsed.sql
        quotes = f" A text has single quotes: '{name}'." if is_text else ""
        return QueryRefused("QUERY_FAILED", message, nearest(name, known) + quotes)
    if "Max expression depth" in text:
        text = "the query has an expression of more than 1000 operators within one another, or as many joins or WITHs"
        return QueryRefused("INVALID_QUERY", text, "Split it: AND, OR, IN and UNION ALL may be of any length.")
    if isinstance(error, duckdb.OutOfMemoryException):
        return QueryRefused(
            "QUERY_TOO_LARGE", f"the query needs more memory than pqbroker.sql.memory.bytes.max leaves it: {text}",
            "Read fewer rows or columns at once, or raise the setting.",
        )  # fmt: skip
    return QueryRefused("QUERY_FAILED", text.rstrip("."), "Correct the query; the message says where.")
