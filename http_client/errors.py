"""Reasons why a call failed: the broker refused it, or its answer did not come."""

from collections.abc import Mapping
from http.client import HTTPException, IncompleteRead
from typing import Any

NO_BROKER = "NO_BROKER"
"""Nothing was sent: no connection."""
CONNECTION_LOST = "CONNECTION_LOST"
"""Sent, and no answer came."""
ANSWER_CUT = "ANSWER_CUT"
TIMED_OUT = "TIMED_OUT"
NO_PQBROKER = "NO_PQBROKER"
_UNKNOWN = "Whether a change was made is unknown: look before you repeat it."


class ClientError(Exception):
    """`code` for programs; cause and cure for people. `status`: of HTTP, None where no answer came; `number`: that
    of the code in YT, where it has one."""

    rows_inserted = 0
    """Rows that earlier requests of the same insert have written."""

    def __init__(
        self, code: str, message: str, cure: str, *, status: int | None = None, number: int | None = None
    ) -> None:
        super().__init__(code, message, cure)
        self.code = code
        self.message = message
        self.cure = cure
        self.status = status
        self.number = number

    def __str__(self) -> str:
        before = f" ({self.rows_inserted} rows were inserted before)" if self.rows_inserted else ""
        told = f"{self.code}: {self.message}{before}"
        return f"{told}{'' if told.endswith('?') else '.'} {self.cure}"

    def behind(self, rows_inserted: int) -> "ClientError":
        """The error of a request before which others have inserted rows."""
        error = ClientError(self.code, self.message, self.cure, status=self.status, number=self.number)
        error.rows_inserted = rows_inserted
        return error


def refusal(address: str, status: int, document: Any) -> ClientError:
    """Return the error of a call that a broker refuses; `document` None: it is no JSON."""
    error = document.get("error") if isinstance(document, Mapping) else None
    if not isinstance(error, Mapping) or not {"code", "message", "cure"} <= error.keys():
        return no_pqbroker(address, f"status {status}")
    number = error.get("number")
    told = str(error["code"]), str(error["message"]), str(error["cure"])
    return ClientError(*told, status=status, number=number if isinstance(number, int) else None)


def no_broker(address: str, error: Exception) -> ClientError:
    why = getattr(error, "strerror", None) or str(error)
    if getattr(error, "reason", None) == "WRONG_VERSION_NUMBER":  # of an ssl.SSLError
        return ClientError(NO_BROKER, f"{address} does not speak TLS", "Give the address without https://.")
    cure = "Start one with `pqbroker serve`, or give the address that it prints behind http=."
    return ClientError(NO_BROKER, f"no broker answers at {address} over HTTP ({why})", cure)


def failure_of(address: str, error: OSError | HTTPException) -> ClientError:
    """Return the error of a request that was sent, in part or as a whole."""
    if isinstance(error, IncompleteRead):
        text = f"the answer of {address} broke off"
        return ClientError(ANSWER_CUT, text, "The broker's log says why; a query may have met one of its limits.")
    if isinstance(error, OSError):
        text = f"{address} closed the connection without an answer"
        return ClientError(CONNECTION_LOST, text, f"{_UNKNOWN} If it never answers, it may be an address of Kafka's.")
    return no_pqbroker(address, "no HTTP")


def timed_out(address: str, timeout_s: float) -> ClientError:
    text = f"{address} did not answer within timeout_s = {timeout_s:g}"
    return ClientError(TIMED_OUT, text, f"Raise it, or ask for less. {_UNKNOWN}")


def no_pqbroker(address: str, why: str) -> ClientError:
    text = f"the answer of {address} is none of a pqbroker's ({why})"
    return ClientError(NO_PQBROKER, text, "Give the address that `pqbroker serve` prints behind http=.")
