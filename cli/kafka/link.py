"""One blocking connection to a broker, for the requests of administration: one question, one answer.

Of the versions that both sides know the latest is spoken. Records do not come this way, they go through aiokafka.
"""

import itertools
import os
import queue
import socket
import struct
import threading
from base64 import b64encode
from dataclasses import replace
from typing import TypeVar

from pqbroker.cli.connection_security import secured, security, use_mechanism, why_refused
from pqbroker.cli.notices import announce_wait
from pqbroker.cli.profile_choice import of_profile, other_address
from pqbroker.cli.refusals import CommandError, WrongInput
from pqbroker.conf.addresses import Address, AddressError, parse_address
from pqbroker.protocol.codec import decoder, encoder
from pqbroker.protocol.errors import ErrorCode, ProtocolError
from pqbroker.protocol.frames import frame
from pqbroker.protocol.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse
from pqbroker.protocol.messages.sasl_authenticate import SaslAuthenticateRequest, SaslAuthenticateResponse
from pqbroker.protocol.messages.sasl_handshake import SaslHandshakeRequest, SaslHandshakeResponse
from pqbroker.protocol.primitives import ELEMENTS_MAX, skip_tagged_fields
from pqbroker.protocol.schema import is_flexible, message
from pqbroker.security.client_login import SASL_PLAIN, SCRAM, ClientLogin, ServerNotProved, proof
from pqbroker.security.errors import SecurityError

T = TypeVar("T")

CONNECT_TIMEOUT_S = 5.0
"""Seconds to resolve a name and connect."""
FIRST_ANSWER_TIMEOUT_S = 10.0
"""Seconds to the first answer: a broker that is starting takes connections before it answers."""
ANSWER_TIMEOUT_S = 60.0
ANSWER_BYTES_MAX = 256 << 20
KAFKA_PORT = 9092
DEFAULT_KAFKA = f"127.0.0.1:{KAFKA_PORT}"
ANY_VERSION = 1 << 15

_CLIENT_ID = b"pqbroker-cli"
_API_VERSIONS_KEY = 18
_CLOSED = "it closed the connection"


class NoBroker(CommandError):
    """Nothing answers at the address."""

    def __init__(self, address: Address, why: str) -> None:
        self.why = why
        at = "" if str(address) == DEFAULT_KAFKA else f" --kafka {address}"
        super().__init__(
            f"no broker answers at {address}{of_profile()} ({why}); start one with `pqbroker serve{at}`, "
            f"or {other_address('--broker', 'PQBROKER_BROKER')}"
        )


def parse_brokers(text: str) -> list[Address]:
    """HOST or HOST:PORT, several with commas between them; WrongInput."""
    return [parse_host("--broker", part.strip(), KAFKA_PORT) for part in text.split(",")]


def parse_host(option: str, text: str, default_port: int) -> Address:
    """HOST or HOST:PORT; WrongInput, which names the option."""
    is_host = bool(text) and (":" not in text or text.endswith("]"))
    try:
        return parse_address(f"{text}:{default_port}" if is_host else text)
    except AddressError as error:
        raise WrongInput(f"{option} {error}") from None


class Link:
    """A connection, opened at once. NoBroker if nothing listens there, or does not speak Kafka's protocol."""

    def __init__(self, address: Address, connect_timeout_s: float, answer_timeout_s: float) -> None:
        self._address = address
        self._correlation_ids = itertools.count(1)
        self._open(connect_timeout_s, answer_timeout_s)
        login = security().login
        try:
            if login is not None and (other := self._log_in(login)):
                self.close()
                use_mechanism(other)
                self._open(connect_timeout_s, answer_timeout_s)
                self._log_in(replace(login, mechanism=other))
        except CommandError:
            self.close()
            raise
        self._socket.settimeout(answer_timeout_s)

    def _open(self, connect_timeout_s: float, answer_timeout_s: float) -> None:
        try:
            self._socket = secured(connect(self._address, connect_timeout_s), self._address.host)
        except (OSError, UnicodeError) as error:
            raise NoBroker(self._address, why_refused(error)) from None
        self._socket.settimeout(min(FIRST_ANSWER_TIMEOUT_S, answer_timeout_s))
        self._versions = {_API_VERSIONS_KEY: (0, 0)}
        try:
            served = self.ask(ApiVersionsRequest(), ApiVersionsResponse)
        except CommandError:
            self.close()
            raise
        self._versions = {each.api_key: (each.min_version, each.max_version) for each in served.api_keys}

    def _log_in(self, login: ClientLogin) -> str:
        """Log in. Return nothing, or else the mechanism that the broker has in place of the login's; CommandError."""
        shaken = self.ask(SaslHandshakeRequest(mechanism=login.mechanism), SaslHandshakeResponse)
        if shaken.error_code == ErrorCode.ILLEGAL_SASL_STATE:
            raise CommandError(f"the listener {self._address} has no login; leave --user out, or use another listener")
        if shaken.error_code != ErrorCode.NONE:
            # PLAIN is used under TLS only: without it, an impostor in the broker's place would learn the password.
            usable = (*SCRAM, SASL_PLAIN) if security().protocol.is_encrypted else tuple(SCRAM)
            known = [mechanism for mechanism in shaken.mechanisms if mechanism in usable and login.user]
            if not known or login.mechanism in known:
                offered = ", ".join(shaken.mechanisms) or "none"
                raise CommandError(f"{self._address} offers no mechanism that this command has; it has {offered}")
            return known[0]
        messages = proof(login, b64encode(os.urandom(24)).decode())
        try:
            token = next(messages)
            while True:
                answer = self.ask(SaslAuthenticateRequest(auth_bytes=token), SaslAuthenticateResponse)
                if answer.error_code != ErrorCode.NONE:
                    who = f"by the token in {login.token_file}" if login.token_file else f"as {login.user}"
                    raise CommandError(f"{self._address} refused the login {who}: {answer.error_message}")
                token = messages.send(answer.auth_bytes)
        except StopIteration:
            return ""
        except SecurityError as error:
            raise CommandError(str(error)) from None
        except ServerNotProved as unproved:
            raise CommandError(f"{self._address} is not the broker that knows {login.user}: {unproved}") from None

    def ask(self, request: object, response: type[T], version_max: int = ANY_VERSION) -> T:
        """The answer; CommandError when the broker does not serve this or goes away."""
        version = self._version(type(request), version_max)
        try:
            with announce_wait(f"waiting for an answer of {self._address}", self._socket.gettimeout() or 0):
                return self._exchange(request, response, version)
        except (OSError, ProtocolError) as error:
            why = why_refused(error) or _CLOSED
            if why == _CLOSED and security().login is None and len(self._versions) > 1:
                why = f"{why}; a listener with a login wants --user or --command-config"
            raise NoBroker(self._address, why) from None

    def serves(self, request: type) -> bool:
        """Return True if the broker serves an API, in a version that is known here."""
        low, high = self._shared_versions(request, ANY_VERSION)
        return low <= high

    def close(self) -> None:
        """Close the connection."""
        self._socket.close()

    def _version(self, request: type, version_max: int) -> int:
        low, high = self._shared_versions(request, version_max)
        if low > high:
            name = request.__name__.removesuffix("Request")
            raise CommandError(f"the broker at {self._address} does not serve {name}, which this needs")
        return high

    def _shared_versions(self, request: type, version_max: int) -> tuple[int, int]:
        """Return the versions that both sides know; the first is above the second if there are none."""
        ours = message(request)
        assert ours.api_key is not None
        low, high = self._versions.get(ours.api_key, (1, 0))
        return max(low, ours.versions.low), min(high, ours.versions.high, version_max)

    def _exchange(self, request: object, response: type[T], version: int) -> T:
        key, correlation_id = message(type(request)).api_key, next(self._correlation_ids)
        assert key is not None
        flexible = is_flexible(key, version)
        header = struct.pack(">hhih", key, version, correlation_id, len(_CLIENT_ID)) + _CLIENT_ID + b"\0" * flexible
        self._socket.sendall(b"".join(frame([header, *encoder(type(request), version)(request)])))
        (size,) = struct.unpack(">i", self._receive(4))
        if not 4 <= size <= ANSWER_BYTES_MAX:
            raise ProtocolError("it does not speak Kafka's protocol")
        body = memoryview(self._receive(size))
        if struct.unpack_from(">i", body)[0] != correlation_id:
            raise ProtocolError("it does not speak Kafka's protocol")
        start = 4
        if flexible and key != _API_VERSIONS_KEY:
            start, _ = skip_tagged_fields(body, start, len(body), ELEMENTS_MAX)
        return decoder(response, version)(body[start:])

    def _receive(self, size: int) -> bytearray:
        data = bytearray(size)
        rest = memoryview(data)
        while rest:
            count = self._socket.recv_into(rest)
            if not count:
                raise ProtocolError(_CLOSED)
            rest = rest[count:]
        return data


def connect(address: Address, timeout_s: float) -> socket.socket:
    """A connection; OSError, UnicodeError.

    A thread makes it: the system may take longer to resolve a name than anybody waits, and no signal ends that.
    """
    made: queue.SimpleQueue[socket.socket | OSError | UnicodeError] = queue.SimpleQueue()
    is_awaited = True

    def make() -> None:
        try:
            connection = socket.create_connection((address.host, address.port), timeout_s)
        except (OSError, UnicodeError) as error:
            made.put(error)
        else:
            made.put(connection)
            if not is_awaited:
                connection.close()

    threading.Thread(target=make, daemon=True).start()
    with announce_wait(f"waiting for {address} to take a connection", timeout_s):
        try:
            found = made.get(timeout=timeout_s)
        except queue.Empty:
            is_awaited = False
            raise TimeoutError("timed out") from None
    if isinstance(found, socket.socket):
        return found
    raise found
