"""Records that a reader over HTTP sees: `isolation`, in Kafka's words; committed ones unless it says else."""

from typing import Final

from pqbroker.broker.web.routing.problems import bad_request
from pqbroker.broker.web.routing.routes import Call, Parameter
from pqbroker.broker.web.routing.schemas import TEXT
from pqbroker.pq.reading.query import READ_COMMITTED, READ_UNCOMMITTED, Isolation

ISOLATIONS: Final = {"read_committed": READ_COMMITTED, "read_uncommitted": READ_UNCOMMITTED}

ISOLATION = Parameter(
    "isolation", TEXT,
    "Isolation level: read_committed (default) leaves out records of aborted Kafka transactions, and ends before the "
    "first open one; read_uncommitted shows all records.", example="read_uncommitted",
)  # fmt: skip


def isolation_of(call: Call) -> Isolation:
    """Return the isolation of a request with ISOLATION. Problem."""
    return read_isolation(call.query.get("isolation", "read_committed"), "isolation")


def read_isolation(text: str, where: str) -> Isolation:
    """Problem, which names the field and the words that it takes."""
    found = ISOLATIONS.get(text)
    if found is None:
        raise bad_request(f"{where} is {text[:100]!r}; give {' or '.join(ISOLATIONS)}")
    return found
