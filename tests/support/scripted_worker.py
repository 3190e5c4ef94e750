"""A worker whose queries, and rows to encode, are names of what it then does: what the broker does around them is
tested with it."""

import contextlib
import hashlib
import json
import os
import socket
import sys
import threading
from collections.abc import Callable

from pqbroker.protocol.records import Record, encode_batch
from pqbroker.tables.work.messages import STOP, STOPPED, Line, Message, Stopped
from pqbroker.tables.work.watching import Watch, resident_bytes

PIECE = b"x" * (64 << 10)


def main(number: int) -> None:
    connection = socket.socket(fileno=number)
    watch = Watch(connection)
    watch.start()
    line = Line(connection)
    with contextlib.suppress(EOFError, ConnectionError):
        while True:
            message = line.begin()
            if message.kind == STOP:
                line.send(STOPPED, {"resident_bytes": resident_bytes()})
                continue
            watch.memory_bytes_max = message.document["memory_bytes_max"]
            asked = message.document
            text = asked.get("query") or asked.get("terms", {}).get("text") or bytes(message.payload).decode()
            name, _, argument = text.partition(" ")
            try:
                _ACTS[name](line, message, argument)
            except Stopped:
                line.finish_stop()
                line.send(STOPPED, {"resident_bytes": resident_bytes()})


def _say(line: Line, message: Message, argument: str) -> None:
    line.send("result", {}, f"{json.dumps({'said': argument, 'pid': os.getpid()})}\n".encode())
    _end(line, {"plan": argument})


def _params(line: Line, message: Message, argument: str) -> None:
    _say(line, message, json.dumps(message.document["params"]))


def _files(line: Line, message: Message, argument: str) -> None:
    _say(line, message, json.dumps([message.document["files"], bytes(message.payload).decode()]))


def _explain(line: Line, message: Message, argument: str) -> None:
    _end(line, {"plan": argument, "blobs_read": 1, "rows_read": 2, "bytes_read": 3, "scans": []})


def _nothing(line: Line, message: Message, argument: str) -> None:
    _end(line)


def _refuse(line: Line, message: Message, argument: str) -> None:
    line.send("refused", {"code": argument, "message": "no", "cure": "none"})


def _begin_and_refuse(line: Line, message: Message, argument: str) -> None:
    line.send("result", {}, b'{"n":1}\n')
    _refuse(line, message, argument)


def _wait(line: Line, message: Message, argument: str) -> None:
    threading.Event().wait()


def _begin_and_wait(line: Line, message: Message, argument: str) -> None:
    line.send("result", {}, b'{"n":1}\n')
    _wait(line, message, argument)


def _flood(line: Line, message: Message, argument: str) -> None:
    while True:
        line.send("result", {}, PIECE)


def _grow(line: Line, message: Message, argument: str) -> None:
    held = []
    while True:
        held.append(bytearray(os.urandom(1 << 20)))


def _exit(line: Line, message: Message, argument: str) -> None:
    os._exit(int(argument))


def _bloat(line: Line, message: Message, argument: str) -> None:
    line.send("done", {"resident_bytes": message.document["memory_bytes_max"], "explanation": None})


def _encode(line: Line, message: Message, argument: str) -> None:
    """One row."""
    batch = encode_batch([Record(0, message.document["now_ms"], None, b'{"id":1}')])
    document = {"tablets": [[None, 1, len(batch)]], "weight": 9, "resident_bytes": resident_bytes()}
    line.send("encoded", document, batch)


def _read(line: Line, message: Message, argument: str) -> None:
    """Every row of a topic, with a hash of its value."""
    from pqbroker.tables.work.batches import RowRange
    from pqbroker.tables.work.kept_columns import KeptColumns
    from pqbroker.tables.work.scanning import Tally, TopicScan, scan

    found = line.ask("find", {"topics": [argument]}).document["topics"][argument]["bounds"]
    spans = [RowRange(tablet, start, end) for tablet, (start, end) in enumerate(found)]
    tally = Tally()
    wanted = TopicScan(argument, spans, ("$tablet_index", "$row_index", "value"), -(1 << 62))
    for batch in scan(line, wanted, tally, KeptColumns()):
        for row in batch.to_pylist():
            shown = [row["$tablet_index"], row["$row_index"], hashlib.sha256(row["value"]).hexdigest()]
            line.send("result", {}, f"{json.dumps(shown)}\n".encode())
    _end(line)


def _end(line: Line, explanation: object = None) -> None:
    line.send("done", {"resident_bytes": resident_bytes(), "explanation": explanation})


_ACTS: dict[str, Callable[[Line, Message, str], None]] = {
    "say": _say, "files": _files, "params": _params, "explain": _explain, "nothing": _nothing, "refuse": _refuse,
    "begin-refuse": _begin_and_refuse,
    "wait": _wait, "begin-wait": _begin_and_wait, "flood": _flood, "grow": _grow, "exit": _exit, "bloat": _bloat,
    "read": _read, "encode": _encode,
}  # fmt: skip

if __name__ == "__main__":
    main(int(sys.argv[1]))
