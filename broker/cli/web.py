"""One blocking connection to the HTTP address of a broker of ours: a question in JSON, an answer in JSON."""

import json
from collections.abc import Iterator, Mapping
from http.client import HTTPConnection, HTTPException, HTTPResponse
from types import TracebackType
from typing import Any, Self
from urllib.parse import urlencode

from pqbroker.broker.addresses import AddressError, parse_address
from pqbroker.broker.cli.link import CONNECT_TIMEOUT_S, connect
from pqbroker.broker.cli.refusals import CommandError, WrongInput
from pqbroker.broker.cli.telling import told

TIMEOUT_S = 60.0
ANSWER_BYTES_MAX = 256 << 20
DEFAULT_HTTP = "127.0.0.1:8092"


_CURES = {
    "UNKNOWN_TABLET": "`pqbroker tablet list` lists the tablets.",
    "MOVE_REFUSED": "`pqbroker tablet show` shows its channels and their pools.",
    "INVALID_REQUEST": "`pqbroker tablet keys` lists keys as they are written.",
    "NO_SUCH_KEY": "`pqbroker tablet keys` lists the keys.",
}
"""By the broker's code, where a command of ours is nearer than the path over HTTP that the broker names."""


class Web:
    """A context manager; everything may raise CommandError."""

    def __init__(self, address: str) -> None:
        try:
            self._address = parse_address(address)
        except AddressError as error:
            raise WrongInput(f"--http {error}") from None
        self._connection = HTTPConnection(self._address.host, self._address.port, timeout=TIMEOUT_S)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._connection.close()

    def get(self, path: str, name: str, **query: object) -> dict[str, Any]:
        """What stands at a path; a broker's answer has the field `name`."""
        return self._ask("GET", f"{path}?{urlencode(query)}" if query else path, None, name)

    def post(self, path: str, body: Mapping[str, object], name: str) -> dict[str, Any]:
        """Have something done; what became of it, with the field `name`."""
        return self._ask("POST", path, json.dumps(body).encode(), name)

    def items(self, path: str, name: str, parameter: str, **query: object) -> Iterator[dict[str, Any]]:
        """The items called `name` of a list and of its next pages, which begin where `parameter` says."""
        while True:
            page = self.get(path, name, **query)
            yield from page[name]
            if page.get("next") is None:
                return
            query[parameter] = page["next"]

    def _ask(self, method: str, path: str, body: bytes | None, name: str) -> dict[str, Any]:
        headers = {} if body is None else {"Content-Type": "application/json"}
        try:
            if self._connection.sock is None:
                self._connection.sock = connect(self._address, CONNECT_TIMEOUT_S)
                self._connection.sock.settimeout(TIMEOUT_S)
            with told(f"waiting for an answer of {self._address}", TIMEOUT_S):
                self._connection.request(method, path, body, headers)
                response = self._connection.getresponse()
                data = response.read(ANSWER_BYTES_MAX)
        except HTTPException:
            raise self._foreign("it does not speak HTTP") from None
        except (OSError, UnicodeError) as error:
            raise self._nobody(getattr(error, "strerror", None) or str(error)) from None
        document = self._document(response, data)
        if name not in document:
            raise self._foreign(f"an answer without {name}")
        return document

    def _document(self, response: HTTPResponse, data: bytes) -> dict[str, Any]:
        """The answer; CommandError with cause and cure for an error of the broker's."""
        try:
            document = json.loads(data)
        except ValueError:
            document = None
        if not isinstance(document, dict):
            raise self._foreign(f"{response.status} {response.reason}")
        if response.status < 400:
            return document
        error = document.get("error")
        if not isinstance(error, dict) or not {"message", "cure"} <= error.keys():
            raise self._foreign(f"{response.status} {response.reason}")
        raise CommandError(f"{error['message']}. {_CURES.get(str(error.get('code')), error['cure'])}")

    def _nobody(self, why: str) -> CommandError:
        at = "" if str(self._address) == DEFAULT_HTTP else f" --http {self._address}"
        return CommandError(
            f"no broker answers at {self._address} over HTTP ({why}); start one with `pqbroker serve{at}`, "
            "or name another with --http HOST:PORT or in PQBROKER_HTTP"
        )

    def _foreign(self, what: str) -> CommandError:
        return CommandError(
            f"what answers at {self._address} is no pqbroker ({what}); "
            "give the address that `pqbroker serve` prints behind http="
        )
