"""Rows of tables, and keys of rows, as they are typed and printed."""

from collections.abc import Callable, Iterable, Iterator
from itertools import islice
from json import dumps, loads
from typing import Any

from pqbroker.cli.refusals import CommandError, WrongInput

ROWS_PER_REQUEST = 1000
"""Rows, or keys, of one request."""
_SHOWN = 60


def json_objects(lines: Iterable[str], what: str) -> Iterator[dict[str, Any]]:
    """Yield the object of each line; empty lines are left out. WrongInput for one that is no JSON object."""
    for number, line in enumerate(lines, start=1):
        if line.strip():
            yield json_object(line, f"{what} {number}")


def json_object(text: str, what: str) -> dict[str, Any]:
    """Return the object of a text; WrongInput for one that is no JSON object."""
    try:
        found = loads(text)
    except ValueError:
        found = None
    if not isinstance(found, dict):
        raise WrongInput(f"{what} is no JSON object: {text.strip()[:_SHOWN]}")
    return found


def send_rows(
    given: Iterator[dict[str, Any]], send: Callable[[list[dict[str, Any]], int], dict[str, Any]], done: str
) -> Iterator[tuple[int, dict[str, Any]]]:
    """Send rows, or keys, ROWS_PER_REQUEST at once; yield how many each request had, and its answer.

    `send` has those of a request, and how many are done before. A refusal says that too, in the words of `done`:
    `rows were pushed`.
    """
    count = 0
    while some := list(islice(given, ROWS_PER_REQUEST)):
        try:
            answer = send(some, count)
        except CommandError as refusal:
            before = f" ({count} {done} before)" if count else ""
            raise CommandError(f"{refusal}{before}") from None
        count += len(some)
        yield len(some), answer


def shown_cell(value: object) -> object:
    """Return a value as a cell of a table for people."""
    if isinstance(value, bool):
        return "yes" if value else "no"
    return dumps(value, ensure_ascii=False) if isinstance(value, dict | list) else value
