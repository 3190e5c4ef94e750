"""Login of one connection: its state, from before the handshake to the session that ends or is renewed (KIP-368).

    opened          ApiVersions -> versioned; SaslHandshake -> authenticating
    versioned       SaslHandshake -> authenticating
    authenticating  SaslAuthenticate, or tokens without a header after version 0 of the handshake -> logged in
    logged in       SaslHandshake, at most once a second -> authenticating
    failed          by whatever proves nothing; the connection closes behind the answer

The table is `LOGIN_STATES`. What a state lets pass is the gate's business (`net/login_gate.py`).
"""

import asyncio
import logging
import os
from base64 import b64encode
from collections.abc import Awaitable, Callable, Mapping
from enum import IntEnum, auto
from typing import Final, NoReturn

from pqbroker.broker.ground.access import Principal, audit_login
from pqbroker.broker.ground.seldom_log import SeldomLog
from pqbroker.broker.ground.turns import Turns
from pqbroker.broker.kafka.apis.context import Peer
from pqbroker.broker.services.logins.listener_logins import listed_users, mechanisms_of, session_ms_of
from pqbroker.broker.services.logins.sasl_login import (
    Denied,
    LoginBusy,
    LoginEnded,
    LoginParts,
    LoginRefused,
    Proved,
    SaslLogin,
    begin_login,
)
from pqbroker.conf.oauth import OAUTHBEARER
from pqbroker.protocol.errors import ErrorCode, KafkaError, LastAnswer, ProtocolError

REAUTH_PERIOD_S: Final = 1.0
"""Least time between two logins on one connection, as in Kafka."""
_NONCE_BYTES: Final = 24

seldom = SeldomLog(logging.getLogger(__name__))


class LoginState(IntEnum):
    """States of a login."""

    OPENED = auto()
    VERSIONED = auto()
    AUTHENTICATING = auto()
    LOGGED_IN = auto()
    FAILED = auto()


class LoginEvent(IntEnum):
    LIST_VERSIONS = auto()
    SHAKE_HANDS = auto()
    PROVE = auto()
    FAIL = auto()


LOGIN_STATES: Final[Mapping[tuple[LoginState, LoginEvent], LoginState]] = {
    (LoginState.OPENED, LoginEvent.LIST_VERSIONS): LoginState.VERSIONED,
    (LoginState.LOGGED_IN, LoginEvent.LIST_VERSIONS): LoginState.LOGGED_IN,
    (LoginState.OPENED, LoginEvent.SHAKE_HANDS): LoginState.AUTHENTICATING,
    (LoginState.VERSIONED, LoginEvent.SHAKE_HANDS): LoginState.AUTHENTICATING,
    (LoginState.LOGGED_IN, LoginEvent.SHAKE_HANDS): LoginState.AUTHENTICATING,
    (LoginState.AUTHENTICATING, LoginEvent.PROVE): LoginState.LOGGED_IN,
    **{(state, LoginEvent.FAIL): LoginState.FAILED for state in LoginState},
}


class Login:
    """The login of one connection. `admit` is called when the client has logged in, `give_up` when it took too long."""

    __slots__ = (
        "_admit", "_began_s", "_give_up", "_listener", "_mechanism", "_peer", "_sasl", "_timer", "_user", "expires_s",
        "is_admitted", "is_headless", "lifetime_ms", "state", "turns",
    )  # fmt: skip

    def __init__(
        self, peer: Peer, listener: str, turns: Turns, admit: Callable[[], None], give_up: Callable[[], None]
    ) -> None:
        """`turns`: those that all logins of the listener share."""
        self._peer = peer
        self._listener = listener
        self._admit = admit
        self._give_up = give_up
        self._mechanism = ""
        self._user: str | None = None
        """The user that has logged in; it stays the same."""
        self._sasl: SaslLogin | None = None
        self._began_s = 0.0
        self.state = LoginState.OPENED
        self.turns = turns
        self.is_admitted = False
        """True once the client has logged in for the first time."""
        self.is_headless = False
        """True if tokens come without the header of SaslAuthenticate."""
        self.expires_s = 0.0
        """Loop time at which the session ends; 0: never."""
        self.lifetime_ms = 0
        """Milliseconds that the session had when it began; 0: no end."""
        self._timer: asyncio.TimerHandle | None = None
        self._begin_timer()

    @property
    def mechanisms(self) -> tuple[str, ...]:
        """Return the mechanisms that the client may choose."""
        node = self._peer.node
        enabled = mechanisms_of(node.settings, self._listener)
        if self._listener in node.logins.bearers:
            return enabled
        return tuple(each for each in enabled if each != OAUTHBEARER)

    @property
    def is_under_way(self) -> bool:
        return self.state is LoginState.AUTHENTICATING

    @property
    def is_expired(self) -> bool:
        return 0.0 < self.expires_s < self._peer.node.loop.time()

    def list_versions(self) -> None:
        """Note that the client was sent what is served."""
        self.state = LOGIN_STATES[self.state, LoginEvent.LIST_VERSIONS]

    def choose(self, mechanism: str, version: int) -> tuple[str, ...] | Awaitable[NoReturn]:
        """Begin a login in a mechanism, and return those that are on. Where it is off, return what raises LastAnswer
        late; KafkaError where none may begin now."""
        now_s = self._peer.node.loop.time()
        if self.state is LoginState.LOGGED_IN and now_s - self._began_s < REAUTH_PERIOD_S:
            raise KafkaError(ErrorCode.ILLEGAL_SASL_STATE, "the client has logged in less than a second ago")
        enabled = self.mechanisms
        if mechanism not in enabled:
            refused = LoginRefused("mechanism", f"the mechanism {mechanism[:40]!r} is off", "")
            return self._refuse(ErrorCode.UNSUPPORTED_SASL_MECHANISM, refused)
        if self._user is not None and mechanism != self._mechanism:
            text = (
                f"SASL mechanism '{mechanism}' requested by client is not supported for re-authentication of mechanism "
                f"'{self._mechanism}'"
            )
            return self._refuse(ErrorCode.SASL_AUTHENTICATION_FAILED, LoginRefused("mechanism", text, text))
        self.state = LOGIN_STATES[self.state, LoginEvent.SHAKE_HANDS]
        self.is_headless = version == 0
        self._began_s = now_s
        self._mechanism = mechanism
        node = self._peer.node
        users, bearer = listed_users(node.settings, self._listener), node.logins.bearers.get(self._listener)
        self._sasl = begin_login(mechanism, LoginParts(node.logins, _nonce, users, self._peer.holder, bearer))
        self._begin_timer()
        return enabled

    def answer(self, token: bytes) -> bytes | Awaitable[bytes]:
        """Return the bytes that answer a token of the client, who has logged in with the last one; or what becomes them
        where a check takes its time, and where the answer is late. That raises LastAnswer where the token proves
        nothing, ProtocolError where the broker is too busy to know.
        """
        sasl = self._sasl
        assert sasl is not None, "the gate lets no token pass before a mechanism is chosen"
        try:
            step = sasl.answer(token)
            if isinstance(step, bytes):
                return step
            if isinstance(step, Proved):
                return self._take(step)
        except LoginRefused as refused:
            return self._refuse(ErrorCode.SASL_AUTHENTICATION_FAILED, refused)
        return self._awaited(step)

    def note_early(self, api_key: int) -> None:
        """Log a request that came before the login, behind which the connection closes."""
        seldom.warning(
            "connection from %s to listener %s closed: a request of API key %d before a login; its client may be set "
            "to another security.protocol", self._peer.host, self._listener, api_key,
        )  # fmt: skip
        self._audit_refusal(f"a request of API key {api_key} before a login")

    def note_expired(self) -> None:
        """Log a session that was not renewed, behind which the connection closes."""
        seldom.warning(
            "connection from %s to listener %s closed: its client did not log in again within the time of its session, "
            "by connections.max.reauth.ms or its token", self._peer.host, self._listener,
        )  # fmt: skip
        self._audit_refusal("it did not log in again within the time of its session")

    def leave(self) -> None:
        """End the timer: the connection has closed."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    async def _awaited(self, check: Awaitable[Denied | Proved]) -> bytes:
        """Return what answers a token once it is checked; raises as what `answer` returns."""
        try:
            step = await check
            if isinstance(step, Proved):
                return self._take(step)
        except LoginRefused as refused:
            await self._refuse(ErrorCode.SASL_AUTHENTICATION_FAILED, refused)
        except LoginEnded as ended:
            self._end()
            raise LastAnswer(ErrorCode.SASL_AUTHENTICATION_FAILED, ended.message) from None
        except LoginBusy:
            self._peer.node.metrics.count_login_refusal(self._mechanism, "busy")
            self._audit_refusal("too many passwords wait for their check")
            raise ProtocolError("too many passwords wait for their check; see pqbroker.login.checks.max") from None
        self._tell_refusal(LoginRefused(step.kind, step.reason, ""))
        await self._delay()
        return step.token

    def _take(self, proved: Proved) -> bytes:
        """Begin the session of a client that has proved who it is, and return the last bytes for it. LoginRefused."""
        self._check_same_user(proved.name)
        self._begin_session(proved)
        return proved.token

    def _begin_session(self, proved: Proved) -> None:
        peer, name = self._peer, proved.name
        node = peer.node
        self._user = name
        self.state = LOGIN_STATES[self.state, LoginEvent.PROVE]
        self._sasl = None
        self.leave()
        limits_ms = (session_ms_of(node.settings, self._listener, self._mechanism), proved.lifetime_ms or 0)
        self.lifetime_ms = min(filter(None, limits_ms), default=0)
        self.expires_s = node.loop.time() + self.lifetime_ms / 1000 if self.lifetime_ms else 0.0
        peer.principal = Principal("User", name)
        peer.lanes.clear()
        node.metrics.count_login(self._mechanism)
        audit_login(peer, self._place, self._mechanism)
        if not self.is_admitted:
            self.is_admitted = True
            self._admit()

    def _check_same_user(self, name: str) -> None:
        if self._user not in (None, name):
            text = f"Cannot change principals during re-authentication from User.{self._user}: User.{name}"
            raise LoginRefused("credentials", "it logged in as another user than before", text)

    def _refuse(self, code: ErrorCode, refused: LoginRefused) -> Awaitable[NoReturn]:
        """End the login; what is returned raises LastAnswer late, so that nobody tries passwords fast."""
        self._end()
        self._tell_refusal(refused)
        return self._raise_late(LastAnswer(code, refused.message))

    async def _raise_late(self, answer: LastAnswer) -> NoReturn:
        await self._delay()
        raise answer

    async def _delay(self) -> None:
        """Return after the time by which the answer to a login that failed is late: in a turn without another such
        answer, since many of them may be due at once."""
        await asyncio.sleep(self._peer.node.settings.failed_login_delay_ms / 1000)
        await self.turns.alone()

    def _end(self) -> None:
        self.state = LOGIN_STATES[self.state, LoginEvent.FAIL]
        self._sasl = None

    def _tell_refusal(self, refused: LoginRefused) -> None:
        """Count and log a login that failed."""
        node, mechanism = self._peer.node, self._mechanism
        node.metrics.count_login_refusal(mechanism, refused.kind)
        seldom.warning(
            f"login from %s on listener %s refused ({mechanism or 'no mechanism'}, {refused.kind}): %s",
            self._peer.host, self._listener, refused.reason,
        )  # fmt: skip
        named = f" (it named the user {refused.name!r})" if refused.name else ""
        self._audit_refusal(f"{refused.reason}{named}")

    def _audit_refusal(self, reason: str) -> None:
        audit_login(self._peer, self._place, self._mechanism or "no mechanism", refusal=reason)

    @property
    def _place(self) -> str:
        """Return the listener as the audit log names it."""
        return f"listener {self._listener}"

    def _begin_timer(self) -> None:
        node = self._peer.node
        self.leave()
        self._timer = node.loop.call_later(node.settings.login_timeout_ms / 1000, self._end_late)

    def _end_late(self) -> None:
        self._timer = None
        self._peer.node.metrics.count_login_refusal(self._mechanism, "time")
        seldom.warning(
            "connection from %s to listener %s closed: its client did not log in within pqbroker.login.timeout.ms",
            self._peer.host, self._listener,
        )  # fmt: skip
        self._audit_refusal("it did not log in within pqbroker.login.timeout.ms")
        self._give_up()


def _nonce() -> str:
    return b64encode(os.urandom(_NONCE_BYTES)).decode()
