"""Tokens of an authorization server as one listener takes them (OAUTHBEARER, KIP-255 and KIP-768): checked by its keys.

Signatures are computed in the thread of password checks, in turns of addresses. A token that was right is remembered
for a while, as a digest under a key of this process, unless it expires before.
"""

import asyncio
import hmac
import os
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, Final

from pqbroker.broker.services.logins.bearer_rules import (
    ERROR_END,
    TOKEN_ERROR,
    BearerRefused,
    TokenRefused,
    TokenRules,
    VerifiedToken,
    check_claims,
    read_bearer,
)
from pqbroker.broker.services.logins.password_checks import CheckKey, PasswordChecks, TooManyChecks
from pqbroker.broker.services.logins.sasl_login import (
    Denied,
    LoginBusy,
    LoginEnded,
    LoginRefused,
    Proved,
    invalid_credentials,
)
from pqbroker.broker.services.logins.web_keys import WebKeys
from pqbroker.conf.oauth import JWKS_URL, OAUTHBEARER
from pqbroker.conf.shares import address_of
from pqbroker.security.errors import SecurityError
from pqbroker.security.web_tokens import ALGORITHMS, TokenHeader, keys_for, read_claims, read_header

KEPT_TOKENS_MAX: Final = 10_000
"""Tokens remembered at most, as digests."""
_KEPT_S: Final = 60.0
"""Seconds for which a token that was right is not computed again."""
_SECRET_BYTES: Final = 32
_SHOWN_CHARACTERS: Final = 100


class BearerTokens:
    """Checks tokens by the settings of one listener."""

    def __init__(
        self, loop: asyncio.AbstractEventLoop, keys: WebKeys, checks: PasswordChecks,
        rules: TokenRules, clock: Callable[[], int],
    ) -> None:  # fmt: skip
        """`clock`: ms since 1970."""
        self._loop = loop
        self.keys = keys
        self._checks = checks
        self._rules = rules
        self._clock = clock
        self._secret = os.urandom(_SECRET_BYTES)
        self._kept: dict[bytes, tuple[VerifiedToken, float]] = {}
        """Tokens that were right, by digest, with the loop time until which they are remembered."""

    async def check(self, token: str, holder: str) -> VerifiedToken:
        """Return what a token proves. TokenRefused, TooManyChecks.

        `holder`: the key under which the client has its shares of the node's limits.
        """
        digest = hmac.digest(self._secret, token.encode(errors="replace"), "sha256")
        kept, until_s = self._kept.get(digest, (None, 0.0))
        now_ms = self._clock()
        if kept is not None and until_s > self._loop.time() and now_ms < kept.counts_until_ms:
            return kept
        key = CheckKey(address_of(holder), "")
        try:
            header = await self._checks.run(key, partial(read_header, token))
            claims = await self._claims(token, header, key)
        except SecurityError as wrong:
            raise TokenRefused("message", str(wrong)) from None
        found = check_claims(claims, self._rules, self._clock())
        self._keep(digest, found)
        return found

    def begin(self, holder: str) -> "BearerLogin":
        """Begin a client's login."""
        return BearerLogin(self, holder, self._clock)

    def close(self) -> None:
        self.keys.close()

    async def _claims(self, token: str, header: TokenHeader, key: CheckKey) -> Mapping[str, Any]:
        """Return what a token claims, if it is signed with one of the keys. TokenRefused, SecurityError."""
        if header.algorithm not in ALGORITHMS:
            raise TokenRefused("algorithm", f"the algorithm {header.algorithm[:_SHOWN_CHARACTERS]!r} proves nothing")
        known = self.keys.known
        claims = await self._proved(token, header, key)
        if claims is None and (header.key_id is None or not keys_for(header, known)):
            await self.keys.look_for_unknown()
            if self.keys.known is not known:
                claims = await self._proved(token, header, key)
        if claims is None:
            raise TokenRefused("signature", self._cause(header))
        return claims

    async def _proved(self, token: str, header: TokenHeader, key: CheckKey) -> Mapping[str, Any] | None:
        keys = keys_for(header, self.keys.known)
        return await self._checks.run(key, partial(read_claims, token, header, keys)) if keys else None

    def _cause(self, header: TokenHeader) -> str:
        """Return why no key proves a token."""
        if not self.keys.known:
            return f"no keys of tokens are known: {self.keys.failure or 'they are being read'}"
        if keys_for(header, self.keys.known):
            return "the token's signature is wrong"
        named = "of its algorithm" if header.key_id is None else f"{header.key_id[:_SHOWN_CHARACTERS]!r}"
        return f"the token is signed with {header.algorithm} by a key {named} that {JWKS_URL} does not have"

    def _keep(self, digest: bytes, found: VerifiedToken) -> None:
        while len(self._kept) >= KEPT_TOKENS_MAX:
            del self._kept[next(iter(self._kept))]
        self._kept.pop(digest, None)
        self._kept[digest] = (found, self._loop.time() + _KEPT_S)


class BearerLogin:
    """One login: the token -> proved, or the error as JSON; the client's answer to that -> refused."""

    def __init__(self, tokens: BearerTokens, holder: str, clock: Callable[[], int]) -> None:
        self._tokens = tokens
        self._holder = holder
        self._clock = clock
        self._is_denied = False

    async def answer(self, token: bytes) -> Denied | Proved:
        if self._is_denied:
            is_usual = token == ERROR_END
            raise LoginEnded(TOKEN_ERROR.decode() if is_usual else invalid_credentials(OAUTHBEARER))
        try:
            message = read_bearer(token)
            found = await self._tokens.check(message.token, self._holder)
        except BearerRefused as refused:
            raise LoginRefused("message", str(refused), invalid_credentials(OAUTHBEARER)) from None
        except TokenRefused as refused:
            self._is_denied = True
            return Denied(TOKEN_ERROR, refused.kind, str(refused))
        except TooManyChecks:
            raise LoginBusy from None
        if message.authorization_id not in ("", found.name):
            text = (
                f"Authentication failed: Client requested an authorization id ({message.authorization_id}) that is "
                f"different from the token's principal name ({found.name})"
            )
            raise LoginRefused("message", "it asked to act as another user", text, found.name)
        return Proved(found.name, b"", found.lifetime_ms(self._clock()))
