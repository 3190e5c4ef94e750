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
from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Final

from pqbroker.broker.ground.turns import Turns
from pqbroker.broker.kafka.apis.context import Peer
from pqbroker.broker.kafka.apis.exchange import Exchange
from pqbroker.broker.kafka.apis.login import Login, LoginState
from pqbroker.broker.kafka.apis.metering import Beginner
from pqbroker.broker.kafka.net.awaited_answer import AwaitedAnswer, AwaitedEnding
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
    """Entrance of a listener with a login, in the place of a `Dispatcher`."""

    def __init__(self, dispatcher: Beginner, receiving: Receiving, turns: Turns) -> None:
        """`receiving`: that of clients that have logged in; `turns`: those that its logins share."""
        self._dispatcher = dispatcher
        self._receiving = receiving
        self._turns = turns

    def enter(self, connection: "Connection") -> "LoginGate":
        """Return the gate of a new connection."""
        admit = partial(connection.admit, self._receiving)
        login = Login(connection.peer, connection.listener_name, self._turns, admit, connection.abort)
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
            return AwaitedAnswer(len(frame), _ending(login, frame))
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


async def _ending(login: Login, token: memoryview) -> AwaitedEnding:
    """Return the answer to a token without a header: it has none either, and a refusal is no answer."""
    try:
        answered = login.answer(bytes(token))
        return [*framed([answered if isinstance(answered, bytes) else await answered])], False
    except (LastAnswer, ProtocolError):
        return None, True
