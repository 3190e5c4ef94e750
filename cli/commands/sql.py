"""`pqbroker sql`: SQL over the topics and tables of a pqbroker, over its HTTP address."""

import json as encoding
import os
import sys
from base64 import b64encode
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Annotated, Any

from pqbroker.cli.command import Family, declare
from pqbroker.cli.kafka.isolation import ReadIsolation
from pqbroker.cli.options import INT32_MAX, Http, InTransaction, IsolationOption, Json, read_at
from pqbroker.cli.output import say, show_bytes, show_table, write
from pqbroker.cli.parsing import Argument, option
from pqbroker.cli.query_parameters import read_params
from pqbroker.cli.query_shell import QueryShell
from pqbroker.cli.query_terminal import OFFERS_MAX, Completion, history_path, quoted, with_terminal
from pqbroker.cli.refusals import CommandError, WrongInput, with_cure
from pqbroker.cli.web import DEFAULT_HTTP, Web

_TIMEOUT_S = 3600.0
"""The broker has a limit of its own, which is less."""
TIMESTAMP_MAX = (1 << 64) - 1
_COMPLETION_MS = 2000
"""Time that names for a completion may take."""
_BEGINNING = (
    "SELECT table_name FROM information_schema.tables WHERE starts_with(lower(table_name), lower($1)) LIMIT $2"
)
_ERROR = {"code", "message", "cure"}

app = Family()
Text = Annotated[
    str | None,
    Argument(
        metavar="QUERY",
        help="One SELECT in DuckDB's SQL. Without it and --file: a shell on a terminal, else standard input.",
    ),
]
Explain = Annotated[
    bool, option("--explain", help="Run the query, and print its plan and what it read instead of its rows.")
]
Uploads = Annotated[
    list[Path],
    option(
        "--upload", metavar="FILE",
        help="Send this CSV or Parquet file with the query, which names it files.NAME, as in files.prices.csv; "
        "repeatable. The broker keeps it in memory for this query alone.",
    ),
]  # fmt: skip
TextFile = Annotated[Path | None, option("--file", "-f", metavar="FILE", help="Read the query from this file.")]


ParamOptions = Annotated[
    list[str],
    option(
        "--param", metavar="VALUE",
        help="Value for $1, the next one for $2; or NAME=VALUE for $NAME. It is JSON, or else a text; repeatable.",
    ),
]  # fmt: skip
Timeout = Annotated[
    int | None,
    option("--timeout", metavar="SECONDS", least=1, most=INT32_MAX // 1000, help="Time that it may take."),
]


@declare(app, "sql", "pqbroker sql 'SELECT \"$row_index\", key FROM orders LIMIT 10'")
def sql(
    query: Text = None,
    file: TextFile = None,
    param: ParamOptions = [],  # noqa: B006
    upload: Uploads = [],  # noqa: B006
    csv: Annotated[bool, option("--csv", help="Print CSV, with a line of names.")] = False,
    arrow: Annotated[
        Path | None, option("--arrow", metavar="FILE", help="Write an Arrow IPC stream to this new file.")
    ] = None,
    explain: Explain = False,
    timeout: Timeout = None,
    at: Annotated[
        int | None,
        option("--at", metavar="TIMESTAMP", least=0, most=TIMESTAMP_MAX,
               help="Read sorted tables as they were at this timestamp, as writes and --explain print it."),
    ] = None,
    transaction: InTransaction = None,
    isolation: IsolationOption = ReadIsolation.COMMITTED,
    http: Http = DEFAULT_HTTP,
    json: Json = False,
) -> None:
    """Query topics and tables with SQL.

    A topic is a table: FROM orders, FROM "a.b.c" or FROM [//a/b/c]. Columns: "$tablet_index" (the partition),
    "$row_index" (the offset), "$timestamp", timestamp_ms, key, value, headers. key and value are bytes: decode(value)
    makes text, decode(value)->>'$.name' takes a field of a JSON document. Ranges of "$tablet_index", "$row_index" and
    timestamp_ms read only what they name. A sorted table has its own columns; comparisons of the first key columns
    read only those keys.
    """
    if csv + json + explain + (arrow is not None) > 1:
        raise WrongInput("give one of --json, --csv, --arrow and --explain")
    body: dict[str, object] = {} if timeout is None else {"timeout_ms": 1000 * timeout}
    body |= read_at(at, transaction) | _seen(isolation)
    params = read_params(param)
    if query is None and file is None and sys.stdin is not None and sys.stdin.isatty():
        if explain or arrow is not None or params is not None or upload:
            raise WrongInput("--explain, --arrow, --param and --upload need a query: as an argument or by --file FILE")
        _serve(http, body, "json" if json else "csv" if csv else "table")
        return
    body |= {"query": _text(query, file), "explain": explain} | ({} if params is None else {"params": params})
    body |= {"files": {file.name: _content(file) for file in upload}} if upload else {}
    with Web(http, _TIMEOUT_S) as web:
        if explain:
            _explain(web, body)
        elif arrow is not None:
            _save(web, body, arrow)
        else:
            _answer(web, body, "json" if json else "csv" if csv else "table")


def _serve(http: str, body: dict[str, object], form: str) -> None:
    """Answer what is typed on a terminal. A connection is one query's: its end stops the query."""

    def answer(text: str, wanted: str) -> None:
        with Web(http, _TIMEOUT_S) as web:
            _answer(web, {**body, "query": text}, wanted)

    shell = QueryShell(input, answer, form)
    completion = Completion(partial(_find_names, http), lambda: shell.typed)
    with_terminal(shell.run, completion, history_path(os.environ))


def _find_names(http: str, kind: str, name: str) -> list[str]:
    """Return `tables` that begin so, or `columns` of a table."""
    body: dict[str, object] = {"query": f"DESCRIBE {quoted(name)}"}
    if kind == "tables":
        body = {"query": _BEGINNING, "params": [name, OFFERS_MAX]}
    with Web(http, _COMPLETION_MS / 1000) as web:
        rows = [encoding.loads(line) for line in _lines(web, {**body, "timeout_ms": _COMPLETION_MS})]
    return [str(next(iter(row.values()))) for row in rows]


def _answer(web: Web, body: dict[str, object], form: str) -> None:
    """Print the answer to one query."""
    if form == "csv":
        for piece in web.stream("/v1/sql", {**body, "format": "csv"}):
            write(piece)
    elif form == "json":
        for line in _lines(web, body):
            write(line)
    else:
        _show(web, body)


def _text(query: str | None, file: Path | None) -> str:
    """Return the query, wherever it stands."""
    if query is not None and file is not None:
        raise WrongInput("give the query as an argument or by --file, not both")
    if query is not None:
        return query
    if file is None:
        if sys.stdin is None:
            raise WrongInput("the query is missing: give it as an argument, by --file FILE or on standard input")
        return sys.stdin.read()
    try:
        return file.read_text("utf-8")
    except UnicodeDecodeError:
        raise CommandError(f"{file} is not UTF-8 text: give a file that holds one SELECT") from None
    except OSError as failure:
        raise CommandError(f"{file} is unreadable: {failure.strerror or failure}") from None


def _content(file: Path) -> dict[str, str]:
    """Return the bytes of a file as a request has them. CommandError."""
    try:
        return {"base64": b64encode(file.read_bytes()).decode()}
    except OSError as failure:
        raise CommandError(f"{file} is unreadable: {failure.strerror or failure}") from None


def _seen(isolation: ReadIsolation) -> dict[str, object]:
    """Return what the question says of its isolation; brokers of earlier releases know no word for the usual one."""
    return {} if isolation is ReadIsolation.COMMITTED else {"isolation": str(isolation)}


def _explain(web: Web, body: dict[str, object]) -> None:
    found = web.post("/v1/sql", body, "plan")
    say(found["plan"])
    say(f"{found['rows_read']} rows and {show_bytes(found['bytes_read'])} read from {found['blobs_read']} blobs")
    for scan in found.get("scans", ()):
        if "timestamp" in scan:
            read = ", ".join(f"{scan[f'{each}_read']} of {scan[each]} {each}" for each in ("chunks", "blocks"))
            tablets = f"{len(scan['tablets'])} of {scan['tablet_count']} tablets"
            say(f"{scan['topic']} at {scan['timestamp']}: {tablets}, {read}")


def _save(web: Web, body: dict[str, object], file: Path) -> None:
    """The file appears when it is whole."""
    if file.exists():
        raise CommandError(f"{file} exists: choose another name, or delete it first")
    draft = file.with_name(f"{file.name}.unfinished")
    try:
        with draft.open("wb") as output:
            for piece in web.stream("/v1/sql", {**body, "format": "arrow"}):
                output.write(piece)
        os.rename(draft, file)
    except OSError as failure:
        raise CommandError(f"{file} cannot be written: {failure.strerror or failure}") from None
    finally:
        draft.unlink(missing_ok=True)
    say(f"{file}: {show_bytes(file.stat().st_size)}")


def _show(web: Web, body: dict[str, object]) -> None:
    rows = [encoding.loads(line) for line in _lines(web, body)]
    if rows:
        show_table([*rows[0]], ([_cell(value) for value in row.values()] for row in rows))
    else:
        say("no rows")


def _lines(web: Web, body: dict[str, object]) -> Iterator[bytes]:
    """Rows as JSON; CommandError for a last line that is an error."""
    rest = b""
    for piece in web.stream("/v1/sql", {**body, "format": "json"}):
        *lines, rest = (rest + piece).split(b"\n")
        for line in lines:
            _check(line)
            yield line + b"\n"


def _check(line: bytes) -> None:
    if not line.startswith(b'{"error":'):
        return
    error = encoding.loads(line)["error"]
    if isinstance(error, dict) and error.keys() == _ERROR:
        raise CommandError(with_cure(error["message"], error["cure"]))


def _cell(value: Any) -> object:
    return encoding.dumps(value, ensure_ascii=False) if isinstance(value, dict | list) else value
