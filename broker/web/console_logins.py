"""Logins of the console's pages: what a cookie stands for. Pure: time and random bytes are given.

A cookie alone changes nothing: a request that changes something carries the page token as a header too, which pages of
other sites cannot read.
"""

import hmac
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass
from hashlib import sha256


@dataclass(frozen=True, slots=True)
class ConsoleLogin:
    """One browser's login."""

    user: str
    fingerprint: bytes
    """Digest of the user's credential: the login ends when that changes."""
    page_token: str
    ends_s: float

    def has_page_token(self, given: str) -> bool:
        return hmac.compare_digest(self.page_token.encode(), given.encode(errors="replace"))


class ConsoleLogins:
    """Logins by the digest of their cookies; the oldest goes for one more than there may be."""

    def __init__(
        self, clock: Callable[[], float], random_text: Callable[[], str], count_max: Callable[[], int]
    ) -> None:
        """`clock`: seconds; `random_text`: makes a text that nobody guesses."""
        self._clock = clock
        self._random_text = random_text
        self._count_max = count_max
        self._logins: OrderedDict[bytes, ConsoleLogin] = OrderedDict()

    def __len__(self) -> int:
        return len(self._logins)

    def begin(self, user: str, fingerprint: bytes, lifetime_s: float) -> tuple[str, ConsoleLogin]:
        """Return the cookie of a new login, and the login."""
        while len(self._logins) >= self._count_max():
            self._logins.popitem(last=False)
        cookie = self._random_text()
        login = ConsoleLogin(user, fingerprint, self._random_text(), self._clock() + lifetime_s)
        self._logins[_digest(cookie)] = login
        return cookie, login

    def find(self, cookie: str) -> ConsoleLogin | None:
        """Return the login of a cookie; None if there is none, or its time is over."""
        key = _digest(cookie)
        login = self._logins.get(key)
        if login is not None and login.ends_s <= self._clock():
            del self._logins[key]
            return None
        return login

    def end(self, cookie: str) -> None:
        self._logins.pop(_digest(cookie), None)


def _digest(cookie: str) -> bytes:
    return sha256(cookie.encode(errors="replace")).digest()
