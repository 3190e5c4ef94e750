"""OAUTHBEARER on a server's side, pure: the message of a client (RFC 7628), and what a token must claim (KIP-768).

The signature is checked before: `security/web_tokens.py`.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

ERROR_END: Final = b"\x01"
"""A client's answer to the error that it was sent."""
TOKEN_ERROR: Final = b'{"status":"invalid_token"}'
"""Kafka's words for a token that is refused, whatever the reason."""
_TIME_S_MAX: Final = 253_402_300_799
"""Last second of the year 9999: a later time is none."""
_SHOWN_CHARACTERS: Final = 100
_MESSAGE: Final = re.compile(
    rb"n,(?:a=(?P<name>(?:[\x02-\x2b\x2d-\x3c\x3e-\x7f]|=2C|=3D)+))?,\x01"
    rb"(?P<fields>(?:[A-Za-z]+=[\x21-\x7e \t\r\n]+\x01)*)\x01"
)
_AUTH: Final = re.compile(rb"(?i:bearer) +(?P<token>[-_.A-Za-z0-9]+)")


class BearerRefused(ValueError):
    """A message that is no message of OAUTHBEARER; the text is for the broker's log."""


class TokenRefused(ValueError):
    """A token that proves nothing; the text is for the broker's log, not for the client. `kind`, a word, is for its
    metrics: time, issuer, audience, algorithm, signature, claims or message."""

    def __init__(self, kind: str, reason: str) -> None:
        super().__init__(reason)
        self.kind = kind


class BearerMessage(NamedTuple):
    """First message of a client."""

    authorization_id: str
    token: str

    def __repr__(self) -> str:
        return f"BearerMessage({self.authorization_id!r})"


@dataclass(frozen=True, slots=True)
class TokenRules:
    """Demands on the claims of a token."""

    issuer: str | None
    audiences: tuple[str, ...]
    skew_s: int
    sub_claim: str
    name_bytes_max: int


class VerifiedToken(NamedTuple):
    """A token that is right: its user, the time at which it expires, and until when it counts, in ms since 1970."""

    name: str
    expires_ms: int
    counts_until_ms: int

    def lifetime_ms(self, now_ms: int) -> int:
        """Return the ms for which a session lasts: until the token expires, then for as long as it counts."""
        left_ms = self.expires_ms - now_ms
        return left_ms if left_ms > 0 else max(self.counts_until_ms - now_ms, 1)


def read_bearer(message: bytes) -> BearerMessage:
    """Read `n,[a=NAME],^Aauth=Bearer TOKEN^A^A`; other fields are passed over. BearerRefused."""
    found = _MESSAGE.fullmatch(message)
    if found is None:
        raise BearerRefused("its message is no message of OAUTHBEARER")
    fields = dict(field.split(b"=", 1) for field in found["fields"].split(b"\x01")[:-1])
    auth = _AUTH.fullmatch(fields.get(b"auth", b""))
    if auth is None:
        raise BearerRefused("its message has no auth=Bearer TOKEN")
    name = (found["name"] or b"").decode("ascii").replace("=2C", ",").replace("=3D", "=")
    return BearerMessage(name, auth["token"].decode("ascii"))


def check_claims(claims: Mapping[str, Any], rules: TokenRules, now_ms: int) -> VerifiedToken:
    """Return what a token proves. TokenRefused."""
    expires_ms, issued_ms = _time_ms(claims, "exp"), _time_ms(claims, "iat")
    counts_until_ms = expires_ms + rules.skew_s * 1000
    if counts_until_ms <= now_ms:
        raise TokenRefused("time", f"the token expired {(now_ms - expires_ms) / 1000:.0f} s ago")
    begins_ms = issued_ms if claims.get("nbf") is None else max(issued_ms, _time_ms(claims, "nbf"))
    if begins_ms - rules.skew_s * 1000 > now_ms:
        wait_s = (begins_ms - now_ms) / 1000
        raise TokenRefused("time", f"the token does not count for {wait_s:.0f} s (claims iat, nbf)")
    issuer, audience = claims.get("iss"), claims.get("aud")
    if rules.issuer is not None and issuer != rules.issuer:
        raise TokenRefused(
            "issuer", f"the issuer is {_shown(issuer)}; sasl.oauthbearer.expected.issuer is {rules.issuer!r}"
        )
    named = audience if isinstance(audience, list) else [audience]
    if rules.audiences and not any(one in named for one in rules.audiences):
        raise TokenRefused(
            "audience",
            f"the audience is {_shown(audience)}; sasl.oauthbearer.expected.audience is {','.join(rules.audiences)!r}",
        )
    return VerifiedToken(_name(claims, rules), expires_ms, counts_until_ms)


def _name(claims: Mapping[str, Any], rules: TokenRules) -> str:
    given = claims.get(rules.sub_claim)
    name = given.strip() if isinstance(given, str) else ""
    if not name:
        raise TokenRefused("claims", f"the token names no user (claim {rules.sub_claim})")
    size = len(name.encode(errors="replace"))
    if size > rules.name_bytes_max or not name.isprintable():
        raise TokenRefused(
            "claims",
            f"the user's name has {size} bytes; give printable characters, and {rules.name_bytes_max} bytes at most "
            "(pqbroker.user.name.bytes.max)",
        )
    return name


def _time_ms(claims: Mapping[str, Any], name: str) -> int:
    """Return a time of a token, in ms since 1970. TokenRefused."""
    found = claims.get(name)
    if isinstance(found, bool) or not isinstance(found, int | float) or not 0 <= found <= _TIME_S_MAX:
        raise TokenRefused("claims", f"the token has no time {name}, or none of seconds since 1970")
    return int(found * 1000)


def _shown(given: object) -> str:
    return "missing" if given is None else repr(given)[:_SHOWN_CHARACTERS]
