"""One login by SASL: the tokens of a client in one mechanism, and whom they prove the client to be.

    SCRAM         first message -> challenge; final message -> proved, or refused
    PLAIN         the one message -> proved, or refused
    OAUTHBEARER   the token -> proved, or denied; an answer to that -> ended (`bearer_tokens.py`)
"""

from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from pqbroker.broker.services.logins.logins import Logins, is_listed_password
from pqbroker.broker.services.logins.password_checks import TooManyChecks
from pqbroker.broker.services.logins.plain import PlainRefused, read_plain
from pqbroker.broker.services.logins.scram import (
    SCRAM_MECHANISMS,
    Challenge,
    ScramMechanism,
    ScramRefused,
    final_answer,
    read_client_first,
)
from pqbroker.conf.logins import SASL_PLAIN
from pqbroker.conf.oauth import OAUTHBEARER

if TYPE_CHECKING:
    from pqbroker.broker.services.logins.bearer_tokens import BearerTokens

_OTHER_ID = "Authentication failed: Client requested an authorization id that is different from username"


class LoginRefused(Exception):
    """A login failed. `message` is for the client, in Kafka's words; `reason` for the broker's log; `kind`, a word, for
    its metrics; `name`, empty where there is none, that of the user that the client named, for the audit log."""

    def __init__(self, kind: str, reason: str, message: str, name: str = "") -> None:
        super().__init__(reason)
        self.kind = kind
        self.name = name
        self.reason = reason
        self.message = message


class LoginEnded(Exception):
    """A login that was denied has come to its end. `message` is for the client."""

    def __init__(self, message: str) -> None:
        super().__init__(message)
        self.message = message


class LoginBusy(Exception):
    """Too many passwords wait for their check: the client is to come again."""


@dataclass(frozen=True, slots=True)
class Proved:
    """The end of a login: the user's name, and the last bytes for the client."""

    name: str
    token: bytes
    lifetime_ms: int | None = None
    """Milliseconds for which the proof counts; None: no end."""


@dataclass(frozen=True, slots=True)
class Denied:
    """A login that failed, where the mechanism tells the client so by a token that it answers. `kind` and `reason` as
    those of LoginRefused."""

    token: bytes
    kind: str
    reason: str


class SaslLogin(Protocol):
    """A login in one mechanism, from its first token on."""

    def answer(self, token: bytes) -> bytes | Proved | Awaitable[Denied | Proved]:
        """Return the next token for the client, or the end; or a check that becomes it, and raises LoginBusy, or
        LoginEnded behind Denied. Both raise LoginRefused."""


@dataclass(frozen=True, slots=True)
class LoginParts:
    """Parts of a node and of a listener that a login needs."""

    logins: Logins
    nonce: Callable[[], str]
    """Makes a server's nonce."""
    plain_users: Mapping[str, str]
    """Users of PLAIN that the listener's settings list, with their passwords."""
    holder: str
    """The key under which the client has its shares of the node's limits."""
    bearer: "BearerTokens | None" = None
    """Checks the tokens of OAUTHBEARER; None: the listener takes none."""


def begin_login(mechanism: str, parts: LoginParts) -> SaslLogin:
    """Begin a login in a mechanism that is served."""
    if mechanism == OAUTHBEARER:
        assert parts.bearer is not None, "a listener without keys of tokens does not offer it"
        return parts.bearer.begin(parts.holder)
    if mechanism == SASL_PLAIN:
        return _PlainLogin(parts)
    return _ScramLogin(SCRAM_MECHANISMS[mechanism], parts)


class _PlainLogin:
    """PLAIN: the password is looked up in the listener's settings, and then among the users."""

    def __init__(self, parts: LoginParts) -> None:
        self._parts = parts

    async def answer(self, token: bytes) -> Proved:
        try:
            message = read_plain(token)
        except PlainRefused as refused:
            raise LoginRefused("message", str(refused), invalid_credentials(SASL_PLAIN)) from None
        name, password, parts = message.name, message.password, self._parts
        is_right = is_listed_password(parts.plain_users, name, password)
        if is_right is None:
            try:
                is_right = await parts.logins.is_password(name, password, parts.holder)
            except TooManyChecks:
                raise LoginBusy from None
        elif not is_right:
            with suppress(TooManyChecks):  # a user that is listed costs what others cost
                await parts.logins.is_password("", password, parts.holder)
        if not is_right:
            text = "Authentication failed: Invalid username or password"
            raise LoginRefused("credentials", "wrong password or unknown user", text, name)
        if message.authorization_id not in ("", name):
            raise LoginRefused("message", "it asked to act as another user", _OTHER_ID, name)
        return Proved(name, b"")


class _ScramLogin:
    """SCRAM: a challenge, and its proof."""

    def __init__(self, mechanism: ScramMechanism, parts: LoginParts) -> None:
        self._mechanism = mechanism
        self._parts = parts
        self._challenge: Challenge | None = None

    def answer(self, token: bytes) -> bytes | Proved:
        try:
            if self._challenge is None:
                return self._begin(token)
            return Proved(self._challenge.first.name, final_answer(self._challenge, token))
        except ScramRefused as refused:
            message = invalid_credentials(self._mechanism.name)
            if self._challenge is None:
                raise LoginRefused("message", str(refused), message) from None
            raise LoginRefused("credentials", str(refused), message, self._challenge.first.name) from None

    def _begin(self, token: bytes) -> bytes:
        first = read_client_first(token)
        if first.authorization_id not in ("", first.name):
            raise LoginRefused("message", "it asked to act as another user", _OTHER_ID, first.name)
        verifier = self._parts.logins.verifier(self._mechanism, first.name)
        nonce = first.nonce + self._parts.nonce()
        self._challenge = Challenge(self._mechanism, first, verifier, nonce)
        return self._challenge.text.encode()


def invalid_credentials(mechanism: str) -> str:
    """Return Kafka's words for a login that proves nothing."""
    return f"Authentication failed during authentication due to invalid credentials with SASL mechanism {mechanism}"
