"""Logins of a node through any door: verifiers of users, checks of passwords, passwords that were right lately.

An unknown user costs what a known one costs, and looks like one: it has a verifier that nothing proves.
"""

import asyncio
import hmac
import os
from collections.abc import Callable, Mapping
from functools import partial
from types import MappingProxyType
from typing import TYPE_CHECKING, Final

from pqbroker.broker.services.logins.password_checks import CheckKey, PasswordChecks
from pqbroker.broker.services.logins.scram import (
    ITERATIONS_MIN,
    SALT_BYTES,
    SCRAM_SHA_256,
    ScramMechanism,
    ScramVerifier,
    is_password,
    unknown_verifier,
)
from pqbroker.broker.services.logins.tokens import user_of
from pqbroker.broker.services.logins.users import credentials_of, find_user, last_mechanism, nearest_user, verifier_in
from pqbroker.conf.broker import BrokerSettings
from pqbroker.conf.shares import address_of
from pqbroker.storage.tablets.scheme import Scheme
from pqbroker.storage.tablets.scheme_users import StoredCredential, UserChanges, UserRecord

if TYPE_CHECKING:
    from pqbroker.broker.services.logins.bearer_tokens import BearerTokens
    from pqbroker.broker.services.logins.web_keys import ListenerKeys

VERIFIED_S: Final = 60.0
"""Seconds for which a password that was right is not computed again."""
VERIFIED_MAX: Final = 10_000
"""Passwords remembered at most, as digests under a key of this process."""
NO_KEYS: "Final[Mapping[str, ListenerKeys]]" = MappingProxyType({})
UNKNOWN_USERS: Final = "unknown users"
"""Name of the stored secret from which unknown users have their salts."""
_SECRET_BYTES: Final = 32


class Logins:
    """The users of a node as its doors ask for them."""

    def __init__(
        self, loop: asyncio.AbstractEventLoop, scheme: Callable[[], Scheme], settings: Callable[[], BrokerSettings],
        clock: Callable[[], int], keys: "Mapping[str, ListenerKeys]" = NO_KEYS,
    ) -> None:  # fmt: skip
        """`scheme`, `settings`: those of now; `clock`: ms since 1970; `keys`: those of the listeners that take tokens
        of an authorization server."""
        self._loop = loop
        self._clock = clock
        self._scheme = scheme
        self.checks = PasswordChecks(loop, lambda: settings().login_checks_max)
        self._secret = os.urandom(_SECRET_BYTES)
        """Until `load` has the stored one."""
        self._digest_key = os.urandom(_SECRET_BYTES)
        self._verified: dict[bytes, float] = {}
        """Digests of passwords that were right, with the loop time until which they are remembered."""
        self.bearers = self._bearers(keys) if keys else {}
        """Checks of OAUTHBEARER's tokens, by the name of the listener that takes them."""

    async def load(self) -> None:
        """Take the stored secret, which is made with the first call. Raises as `Scheme.change`."""
        self._secret = await UserChanges(self._scheme()).keep_secret(UNKNOWN_USERS, self._secret)

    def close(self) -> None:
        self.checks.close()
        for bearer in self.bearers.values():
            bearer.close()

    def verifier(self, mechanism: ScramMechanism, name: str) -> ScramVerifier:
        """Return a user's verifier; that of an unknown user if there is none for the mechanism."""
        scheme = self._scheme()
        user = find_user(scheme, name)
        known = None if user is None else verifier_in(user, mechanism)
        return known or self._unknown(user or nearest_user(scheme, name), mechanism, name)

    async def is_password(self, name: str, password: str, holder: str) -> bool:
        """Return True if it is a user's password: that of the credential which was changed last. TooManyChecks.

        `holder`: the key under which the client has its shares of the node's limits.
        """
        scheme = self._scheme()
        user = find_user(scheme, name)
        like = user or nearest_user(scheme, name)
        mechanism = (None if like is None else last_mechanism(like)) or SCRAM_SHA_256
        verifier = None if user is None else verifier_in(user, mechanism)
        digest = b""
        if verifier is not None:
            digest = self._digest(name, password, verifier)
            if self._verified.get(digest, 0.0) > self._loop.time():
                return True
        key = CheckKey(address_of(holder), name if verifier is not None else "")
        asked = verifier or self._unknown(like, mechanism, name)
        is_right = await self.checks.run(key, partial(is_password, mechanism, asked, password))
        if is_right and digest:
            self._remember(digest)
        return is_right

    async def make_credentials(self, password: str, iterations: int, holder: str) -> Mapping[str, StoredCredential]:
        """Make a user's verifiers of a new password. TooManyChecks."""
        work = partial(credentials_of, password, os.urandom(SALT_BYTES), iterations)
        return await self.checks.run(CheckKey(address_of(holder), ""), work)

    def fingerprint(self, name: str) -> bytes:
        """Return a digest of a user's credentials, which changes with its password; empty for an unknown user."""
        user = find_user(self._scheme(), name)
        keys = () if user is None else sorted(one.stored_key for one in user.credentials.values())
        return hmac.digest(self._digest_key, b"".join(keys), "sha256") if keys else b""

    def user_of_token(self, token: str) -> str | None:
        """Return the user that a token stands for; None if it is unknown, its time is over, or its user is gone."""
        return user_of(self._scheme(), token, self._clock())

    def _bearers(self, keys: "Mapping[str, ListenerKeys]") -> "dict[str, BearerTokens]":
        from pqbroker.broker.services.logins.bearer_tokens import BearerTokens  # loaded where it is needed

        return {
            name: BearerTokens(self._loop, own.keys, self.checks, own.rules, self._clock) for name, own in keys.items()
        }  # fmt: skip

    def _unknown(self, like: UserRecord | None, mechanism: ScramMechanism, name: str) -> ScramVerifier:
        """Return a verifier with as many iterations as that of a known user, `like`."""
        known = None if like is None else verifier_in(like, mechanism)
        return unknown_verifier(mechanism, self._secret, name, ITERATIONS_MIN if known is None else known.iterations)

    def _digest(self, name: str, password: str, verifier: ScramVerifier) -> bytes:
        """Digest a password with its verifier: another password, or no user, ends what was remembered."""
        parts = (name.encode(), password.encode(), verifier.stored_key)
        return hmac.digest(self._digest_key, b"".join(len(part).to_bytes(4) + part for part in parts), "sha256")

    def _remember(self, digest: bytes) -> None:
        while len(self._verified) >= VERIFIED_MAX:
            del self._verified[next(iter(self._verified))]
        self._verified.pop(digest, None)
        self._verified[digest] = self._loop.time() + VERIFIED_S


def is_listed_password(users: Mapping[str, str], name: str, password: str) -> bool | None:
    """Return True if the password is that of a list in the settings; None if the list does not have the user."""
    known = users.get(name)
    return None if known is None else hmac.compare_digest(known.encode(), password.encode())
