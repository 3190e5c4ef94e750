"""Gate before the dispatcher, on listeners with a login: what a client may ask for before it has logged in, and until
when afterwards. Listeners without a login have none.

| login          | passes                                                              |
|----------------|---------------------------------------------------------------------|
| opened         | ApiVersions, SaslHandshake                                          |
| versioned      | SaslHandshake                                                       |
| authenticating | SaslAuthenticate; after version 0 of SaslHandshake a token, no more |
| logged in      | everything, until the session ends; then SaslHandshake              |
| failed         | nothing                                                             |
"""

import asyncio
from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Final

from pqbroker.broker.kafka.apis.context import Peer
from pqbroker.broker.kafka.apis.exchange import Exchange, Output
from pqbroker.broker.kafka.apis.login import Login, LoginState
from pqbroker.broker.kafka.apis.metering import Beginner
from pqbroker.broker.kafka.net.receiving import Receiving
from pqbroker.conf.broker import BrokerSettings
from pqbroker.protocol.errors import LastAnswer, ProtocolError
from pqbroker.protocol.frames import frame as framed

if TYPE_CHECKING:
    from pqbroker.broker.kafka.net.connection import Connection

SASL_HANDSHAKE: Final = 17
SASL_AUTHENTICATE: Final = 36
_API_VERSIONS: Final = 18
_PASSES: Final[Mapping[LoginState, frozenset[int]]] = {
    LoginState.OPENED: frozenset((_API_VERSIONS, SASL_HANDSHAKE)),
    LoginState.VERSIONED: frozenset((SASL_HANDSHAKE,)),
    LoginState.AUTHENTICATING: frozenset((SASL_AUTHENTICATE,)),
    LoginState.LOGGED_IN: frozenset((SASL_HANDSHAKE,)),
    LoginState.FAILED: frozenset(),
}
"""API keys that pass in each state; once logged in, those that pass at the end of the session."""


def receiving_before_login(settings: BrokerSettings, loop: asyncio.AbstractEventLoop) -> Receiving:
    """Make the receiving side of all connections whose clients have not logged in: a budget of its own."""
    size = settings.login_bytes_max
    limits = replace(settings, node_bytes_max=size, reserved_bytes=size // 4, unfinished_bytes_max=size // 2)
    return Receiving(limits, loop, settings.sasl_bytes_max)


class LoginEntrance:
    """Entrance of the listeners with a login, in the place of a `Dispatcher`."""

    def __init__(self, dispatcher: Beginner, receiving: Receiving) -> None:
        """`receiving`: that of clients that have logged in."""
        self._dispatcher = dispatcher
        self._receiving = receiving

    def enter(self, connection: "Connection") -> "LoginGate":
        """Return the gate of a new connection."""
        admit = partial(connection.admit, self._receiving)
        login = Login(connection.peer, connection.listener_name, admit, connection.abort)
        connection.peer.login = login
        return LoginGate(self._dispatcher, login)


class LoginGate:
    """One connection's gate."""

    __slots__ = ("_dispatcher", "_login")

    def __init__(self, dispatcher: Beginner, login: Login) -> None:
        self._dispatcher = dispatcher
        self._login = login

    def begin(self, peer: Peer, frame: memoryview) -> Exchange:
        """Serve a request that may pass. ProtocolError for any other: the connection must close."""
        login = self._login
        if login.state is LoginState.LOGGED_IN and not (login.expires_s and login.is_expired):
            return self._dispatcher.begin(peer, frame)
        return self._begin_guarded(peer, frame)

    def _begin_guarded(self, peer: Peer, frame: memoryview) -> Exchange:
        login, settings = self._login, peer.node.settings
        if len(frame) > settings.sasl_bytes_max:
            raise ProtocolError(f"{len(frame)} bytes before a login; sasl.server.max.receive.size is the most allowed")
        if login.state is LoginState.AUTHENTICATING and login.is_headless:
            return HeadlessToken(login, frame)
        key = int.from_bytes(frame[:2])
        if key not in _PASSES[login.state]:
            if login.state is LoginState.LOGGED_IN:
                peer.node.metrics.sessions_expired += 1
                login.note_expired()
                raise ProtocolError("the client did not log in again within the time of its session")
            login.note_early(key)
            raise ProtocolError(
                f"a request of API key {key} before a login; its client may be set to another security.protocol"
            )
        return self._dispatcher.begin(peer, frame)


class HeadlessToken:
    """An `Exchange` of a token without a header: the answer has none either, and a refusal is no answer."""

    def __init__(self, login: Login, token: memoryview) -> None:
        self.frame_bytes = len(token)
        self.is_produce = self.is_parked = self.is_charged = False
        self.is_begun = True
        self.is_done = False
        self.must_close = False
        self.pause_ms = 0
        self.hurried_at = 0.0
        self.output: Output | None = None
        self.listener: Callable[[], None] | None = None
        self._task = asyncio.ensure_future(login.answer(bytes(token)))
        self._task.add_done_callback(self._finish)

    def hurry(self) -> None:
        """Do nothing: a token is never parked."""

    def leave(self) -> None:
        self._task.cancel()

    def _finish(self, task: "asyncio.Future[bytes]") -> None:
        error = None if task.cancelled() else task.exception()
        if task.cancelled() or isinstance(error, LastAnswer | ProtocolError):
            self.must_close = True
        elif error is not None:
            raise error
        else:
            self.output = [*framed([task.result()])]
        self.is_done = True
        if self.listener is not None:
            self.listener()
