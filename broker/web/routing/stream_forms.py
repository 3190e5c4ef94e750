"""Forms of an answer without an end: JSON lines, or server-sent events, as the client accepts."""

import json
from collections.abc import Callable, Iterable, Sequence
from typing import Any, Final, NamedTuple

from pqbroker.broker.web.routing.problems import Problem

ARROW_STREAM = "application/vnd.apache.arrow.stream"
PROBLEM = "problem"
"""Name of the event, and the end of the stream, that says why it ends."""


class StreamForm(NamedTuple):
    """`write` gives documents, which are of one kind; the id says where a later request continues."""

    content_type: str
    write: Callable[[Sequence[Any], str, str], bytes]
    heartbeat: bytes
    """Says that there is nothing to say, and finds out whether the client still listens."""


def _lines(documents: Sequence[Any], _kind: str, _id: str) -> bytes:
    return _encode(f"{json.dumps(each, ensure_ascii=False)}\n" for each in documents)


def _events(documents: Sequence[Any], kind: str, event_id: str) -> bytes:
    """The id stands at the last event: a client that was cut before it gets them all again. Without events it comes
    alone."""
    name = f"event: {kind}\n" if kind else ""
    events = [f"{name}data: {json.dumps(each, ensure_ascii=False)}\n\n" for each in documents]
    if event_id and not events:
        events = ["\n"]
    if event_id:
        events[-1] = f"id: {event_id}\n{events[-1]}"
    return _encode(events)


def _encode(texts: Iterable[str]) -> bytes:
    return "".join(texts).encode(errors="backslashreplace")


LINES: Final = StreamForm("application/x-ndjson", _lines, b"\n")
EVENTS: Final = StreamForm("text/event-stream", _events, b":\n\n")
_FORMS = {"*/*": LINES, "application/*": LINES, LINES.content_type: LINES}
_FORMS |= {EVENTS.content_type: EVENTS, "text/*": EVENTS}


def choose_form(accept: str) -> StreamForm:
    """The first form that the client accepts, JSON lines for one that does not say; Problem."""
    if not accept:
        return LINES
    for item in accept.split(","):
        media_type = item.partition(";")[0].strip().lower()
        if media_type in _FORMS:
            return _FORMS[media_type]
    raise Problem(
        406, "NOT_ACCEPTABLE", f"the request accepts {accept[:100]!r}, and a stream has other types",
        f"Accept {LINES.content_type} or {EVENTS.content_type}.",
    )  # fmt: skip
