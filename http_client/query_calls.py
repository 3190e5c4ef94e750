"""A query in SQL, answered as JSON lines or as an Arrow IPC stream."""

import json
from base64 import b64encode
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from pqbroker.http_client.errors import refusal
from pqbroker.http_client.exchange import Request, Steps, accepted, ask, read

Row = dict[str, Any]
Params = Sequence[Any] | Mapping[str, Any]
FilesByName = Mapping[str, bytes]


@dataclass(frozen=True, slots=True)
class QueryCalls:
    """One query. It only reads: a lost connection is no reason to give up. Sorted tables are read at `timestamp`, or at
    the start of `transaction`; without either as they are. `isolation`: as Kafka's; None: committed records are read.
    `params`: values of `$1`, `$2`, or of `$name`. `files`: the bytes of files that go with it, by name.
    """

    text: str
    timeout_ms: int | None
    timestamp: int | None = None
    transaction: str | None = None
    isolation: str | None = None
    params: Params | None = None
    files: FilesByName | None = None

    def rows(self) -> Steps[list[Row]]:
        """Return the rows as the format `json` of POST /v1/sql has them."""
        answer = yield from ask(self._request({"format": "json"}))
        rows = [json.loads(line) for line in accepted(answer, answer.data).splitlines()]
        if rows and _is_error(rows[-1]):
            raise refusal(answer.address, answer.status, rows[-1])
        return rows

    def arrow(self) -> Steps[bytes]:
        """An Arrow IPC stream."""
        answer = yield from ask(self._request({"format": "arrow"}))
        return accepted(answer, answer.data)

    def explain(self) -> Steps[dict[str, Any]]:
        """The plan, and what a run of the query read."""
        return read((yield from ask(self._request({"explain": True}))))

    def _request(self, more: dict[str, Any]) -> Request:
        given = {
            "timeout_ms": self.timeout_ms, "timestamp": self.timestamp, "transaction": self.transaction,
            "isolation": self.isolation,
            "params": dict(self.params) if isinstance(self.params, Mapping) else self.params,
            "files": None if self.files is None else {
                name: {"base64": b64encode(content).decode()} for name, content in self.files.items()
            },
        }  # fmt: skip
        set_ = {name: value for name, value in given.items() if value is not None}
        body = json.dumps({"query": self.text, **set_, **more}).encode()
        return Request("POST", "/v1/sql", body, is_repeatable=True)


def _is_error(row: Row) -> bool:
    """An error after the first row is the last line."""
    error = row.get("error")
    return len(row) == 1 and isinstance(error, dict) and error.keys() == {"code", "message", "cure"}
