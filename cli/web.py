"""One blocking connection to the HTTP address of a broker of ours: a question in JSON, an answer in JSON."""

import json
from collections.abc import Iterator, Mapping
from http.client import HTTPConnection, HTTPException, HTTPResponse
from types import MappingProxyType, TracebackType
from typing import Any, Self
from urllib.parse import urlencode

from pqbroker.cli.connection_security import http_login, secured_http, why_refused
from pqbroker.cli.http_address import DEFAULT_HTTP as DEFAULT_HTTP
from pqbroker.cli.http_address import http_address, parse_http
from pqbroker.cli.kafka.link import CONNECT_TIMEOUT_S, connect
from pqbroker.cli.notices import announce_wait
from pqbroker.cli.profile_choice import of_profile, other_address
from pqbroker.cli.refusals import CommandError, with_cure

TIMEOUT_S = 60.0
NO_CONTENT, NOT_FOUND = 204, 404
ANSWER_BYTES_MAX = 256 << 20
_PIECE_BYTES = 256 << 10

_LOG_IN = (
    "Log in with --user NAME and the password in PQBROKER_PASSWORD, or with a token in PQBROKER_TOKEN, and no --user."
)
_CURES = {
    "UNKNOWN_TOPIC_OR_PARTITION": "`pqbroker topic list` lists the topics, `pqbroker table list` the tables.",
    "OFFSET_OUT_OF_RANGE": "`pqbroker topic describe` shows where each partition starts and ends.",
    "LEADER_NOT_AVAILABLE": "`pqbroker table mount` mounts the tablets of a table.",
    "NOT_LEADER_OR_FOLLOWER": "Try again in a moment; `pqbroker cell list` shows the cause where a cell is not open.",
    "NO_TABLE": "`pqbroker table create` makes a table; `pqbroker table list` lists them.",
    "NO_MOUNTED_TABLETS": "`pqbroker table mount` mounts tablets; `pqbroker table describe` shows their states.",
    "STATIC_TABLE": "`pqbroker sql` reads it; `pqbroker table alter --dynamic` makes it a topic again.",
    "NOT_SORTED": "`pqbroker table select` and `pqbroker sql` read it; a table with an `ascending` column is sorted.",
    "SORTED_TABLE": "`pqbroker table describe` shows its kind; `pqbroker table lookup` reads it by key.",
    "INVALID_CONFIG": "`pqbroker topic configs TOPIC --all` shows names and values of an existing topic.",
    "NO_TRANSACTION": "`pqbroker transaction list` lists them, with --unfinished those in doubt, but for old ones.",
    "TRANSACTION_ENDED": "`pqbroker transaction describe` says how it ended; start another one.",
    "NO_CELL": "`pqbroker cell list` lists the cells.",
    "NO_BUNDLE": "`pqbroker bundle list` lists the bundles.",
    "BUNDLE_REFUSED": "`pqbroker bundle list` and `pqbroker cell list` show them.",
    "CELL_NOT_OPEN": "`pqbroker cell list` shows the cause; it is tried again by itself.",
    "NOT_A_QUERY": "Give one SELECT over topics; `pqbroker produce` and `pqbroker table insert` write.",
    "UNKNOWN_TABLET": "`pqbroker tablet list` lists the tablets.",
    "MOVE_REFUSED": "`pqbroker tablet show` shows its channels and their pools.",
    "INVALID_REQUEST": "`--help` after the command shows what it takes.",
    "NO_SUCH_KEY": "`pqbroker tablet keys` lists the keys.",
    "TRANSACTIONAL_ID_NOT_FOUND": "`pqbroker transaction list --kafka` lists the transactional ids.",
    "INVALID_UPDATE_VERSION": "`pqbroker features list` lists the features and their levels.",
    "RESOURCE_NOT_FOUND": "`pqbroker user list` lists the users, `pqbroker token list` the tokens.",
    "LOGIN_REQUIRED": _LOG_IN,
    "LOGIN_FAILED": _LOG_IN,
}
"""Cures by the broker's code, where a command is nearer than the path over HTTP that the broker names."""


class BrokerRefusal(CommandError):
    """The broker refuses a request; `code` says why."""

    def __init__(self, text: str, code: str) -> None:
        super().__init__(text)
        self.code = code


class NobodyAnswers(CommandError):
    """No broker answers at an address over HTTP."""


class Web:
    """A context manager; everything may raise CommandError."""

    def __init__(
        self, address: str, timeout_s: float | None = None, cures: Mapping[str, str] = MappingProxyType({}),
        broker: str | None = None,
    ) -> None:
        """`timeout_s`: how long an answer may take, where it is not the usual time; `cures`: of the command itself, by
        the broker's code; `broker`: the Kafka address of a command that has one. An address that was not given is
        learnt from it."""
        self._cures = {**_CURES, **cures}
        address, self._cluster = http_address(address, broker)
        self._address, self._is_encrypted = parse_http("--http", address)
        self._timeout_s = timeout_s or TIMEOUT_S
        self._connection = HTTPConnection(self._address.host, self._address.port, timeout=self._timeout_s)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._connection.close()

    def get(self, path: str, name: str, **query: object) -> dict[str, Any]:
        """Return the object at a path; a broker's answer has the field `name`."""
        return self._ask("GET", f"{path}?{urlencode(query)}" if query else path, None, name)

    def state(self, path: str, name: str) -> dict[str, Any]:
        """Return the object at a path whose answer is one whatever its status, with the field `name`."""
        response, data = self._told("GET", path, None)
        try:
            found = json.loads(data)
        except ValueError:
            found = None
        if not isinstance(found, dict) or name not in found:
            raise self._foreign(f"{response.status} {response.reason}")
        return found

    def post(self, path: str, body: Mapping[str, object], name: str) -> dict[str, Any]:
        """Have something done; what became of it, with the field `name`."""
        return self._ask("POST", path, json.dumps(body).encode(), name)

    def command(self, path: str, body: Mapping[str, object]) -> None:
        """Have something done that is answered without words."""
        self._ask("POST", path, json.dumps(body).encode(), None)

    def patch(self, path: str, body: Mapping[str, object], name: str) -> dict[str, Any]:
        """Change what stands at a path; how it is then, with the field `name`."""
        return self._ask("PATCH", path, json.dumps(body).encode(), name)

    def delete(self, path: str) -> None:
        """Have what stands at a path deleted."""
        self._ask("DELETE", path, None, None)

    def delete_named(self, path: str, body: Mapping[str, object]) -> None:
        """Have what the body names deleted, of what stands at a path."""
        self._ask("DELETE", path, json.dumps(body).encode(), None)

    def delete_part(self, path: str, body: Mapping[str, object], name: str) -> dict[str, Any]:
        """Have a part of what stands at a path deleted; what became of it, with the field `name`."""
        return self._ask("DELETE", path, json.dumps(body).encode(), name)

    def value(self, method: str, path: str, body: Any = None) -> Any:
        """Return the value at a path, or the one that it is set to with `body`: any JSON value."""
        sent = None if method == "GET" else json.dumps(body).encode()
        return self._parsed(*self._told(method, path, sent))

    def exists(self, path: str) -> bool:
        """Return False if the broker answers that nothing stands at the path."""
        response, data = self._told("GET", path, None)
        if response.status != NOT_FOUND:
            self._parsed(response, data)
        return response.status != NOT_FOUND

    def stream(self, path: str, body: Mapping[str, object]) -> Iterator[bytes]:
        """The pieces of an answer of any length, as they come."""
        try:
            response = self._begun(path, body)
            if response.status >= 400:
                self._document(response, response.read(ANSWER_BYTES_MAX))
            while piece := response.read1(_PIECE_BYTES):
                yield piece
        except HTTPException:
            raise CommandError(f"the answer of {self._address} broke off; the log of the broker says why") from None
        except (OSError, UnicodeError) as error:
            raise self._nobody(why_refused(error)) from None

    def _begun(self, path: str, body: Mapping[str, object]) -> HTTPResponse:
        """The head of an answer of any length."""
        try:
            with announce_wait(f"waiting for an answer of {self._address}", self._timeout_s):
                return self._requested("POST", path, json.dumps(body).encode())
        except ConnectionResetError:  # http.client's own RemoteDisconnected too
            raise self._closed() from None
        except HTTPException:
            raise self._foreign("it does not speak HTTP") from None

    def items(self, path: str, name: str, parameter: str, **query: object) -> Iterator[dict[str, Any]]:
        """The items called `name` of a list and of its next pages, which begin where `parameter` says."""
        while True:
            page = self.get(path, name, **query)
            yield from page[name]
            if page.get("next") is None:
                return
            query[parameter] = page["next"]

    def _check_cluster(self, wanted: str) -> None:
        """CommandError where the address belongs to another cluster than the Kafka address that was named."""
        found = self.state("/health", "status").get("cluster")
        if found is not None and found != wanted:
            raise CommandError(
                f"{self._address}{of_profile()} over HTTP is of cluster {found}, but its Kafka address (--broker, "
                f"PQBROKER_BROKER or a profile) is of cluster {wanted}: name two addresses of one cluster, or leave "
                "--http and PQBROKER_HTTP out"
            )

    def _requested(self, method: str, path: str, body: bytes | None) -> HTTPResponse:
        if self._cluster is not None:
            wanted, self._cluster = self._cluster, None
            self._check_cluster(wanted)
        headers = {} if body is None else {"Content-Type": "application/json"}
        headers |= http_login()
        if self._connection.sock is None:
            connected = connect(self._address, CONNECT_TIMEOUT_S)
            if self._is_encrypted:
                connected = secured_http(connected, self._address.host)
            self._connection.sock = connected
            self._connection.sock.settimeout(self._timeout_s)
        self._connection.request(method, path, body, headers)
        return self._connection.getresponse()

    def _ask(self, method: str, path: str, body: bytes | None, name: str | None) -> dict[str, Any]:
        """The answer, which has the field `name`; None: there is none to have."""
        response, data = self._told(method, path, body)
        if name is None and response.status == NO_CONTENT:
            return {}
        document = self._document(response, data)
        if name is None or name not in document:
            raise self._foreign(f"an answer without {name}")
        return document

    def _told(self, method: str, path: str, body: bytes | None) -> tuple[HTTPResponse, bytes]:
        """The answer and its body."""
        try:
            with announce_wait(f"waiting for an answer of {self._address}", self._timeout_s):
                response = self._requested(method, path, body)
                return response, response.read(ANSWER_BYTES_MAX)
        except ConnectionResetError:  # http.client's own RemoteDisconnected too
            raise self._closed() from None
        except HTTPException:
            raise self._foreign("it does not speak HTTP") from None
        except (OSError, UnicodeError) as error:
            raise self._nobody(why_refused(error)) from None

    def _document(self, response: HTTPResponse, data: bytes) -> dict[str, Any]:
        """The answer, an object; CommandError as `_parsed`."""
        document = self._parsed(response, data)
        if not isinstance(document, dict):
            raise self._foreign(f"{response.status} {response.reason}")
        return document

    def _parsed(self, response: HTTPResponse, data: bytes) -> Any:
        """The answer; CommandError with cause and cure for an error of the broker's."""
        try:
            document = json.loads(data)
        except ValueError:
            raise self._foreign(f"{response.status} {response.reason}") from None
        if response.status < 400:
            return document
        error = document.get("error") if isinstance(document, dict) else None
        if not isinstance(error, dict) or not {"message", "cure"} <= error.keys():
            raise self._foreign(f"{response.status} {response.reason}")
        code = str(error.get("code"))
        raise BrokerRefusal(with_cure(error["message"], self._cures.get(code) or error["cure"]), code)

    def _nobody(self, why: str) -> NobodyAnswers:
        at = "" if str(self._address) == DEFAULT_HTTP else f" --http {self._address}"
        return NobodyAnswers(
            f"no broker answers at {self._address}{of_profile()} over HTTP ({why}); start one with "
            f"`pqbroker serve{at}`, or {other_address('--http', 'PQBROKER_HTTP')}"
        )

    def _closed(self) -> NobodyAnswers:
        return NobodyAnswers(
            f"{self._address} closed the connection without an answer: the broker there ended, or the address is not "
            "the one that `pqbroker serve` prints behind http="
        )

    def _foreign(self, what: str) -> CommandError:
        return CommandError(
            f"what answers at {self._address} is no pqbroker ({what}); "
            "give the address that `pqbroker serve` prints behind http="
        )
