"""Signatures of JSON Web Tokens (RFC 7515) by keys of a JSON Web Key Set (RFC 7517). The only importer of PyJWT, loaded
with the first listener that takes tokens. What a token claims is not judged here.

Keys are public ones alone: RSA, elliptic curves, Ed25519. So no key fits a token without a signature (`none`), or one
that is signed with a public key as if it were a secret (HS256).
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple

from pqbroker.security.errors import SecurityError

try:
    from cryptography.exceptions import UnsupportedAlgorithm
    from jwt import PyJWS
    from jwt.algorithms import ECAlgorithm, OKPAlgorithm, RSAAlgorithm
    from jwt.exceptions import PyJWTError
except ImportError as error:  # an installation without its dependencies
    cure = "`pip install 'pyjwt[crypto]'`, or install pqbroker with its extra `oauth`"
    raise SecurityError(f"OAUTHBEARER needs the libraries PyJWT and cryptography: {cure}") from error

WEB_KEYS_MAX: Final = 100
"""Keys of a set at most: a token that names none is tried with each."""
_RSA_BITS: Final = range(2048, 8192 + 1)
"""Bits of an RSA key: fewer are broken, more take milliseconds a token."""
_OF_RSA: Final = ("RS256", "RS384", "RS512", "PS256", "PS384", "PS512")
_OF_CURVES: Final[Mapping[str, str]] = {"P-256": "ES256", "P-384": "ES384", "P-521": "ES512"}
ALGORITHMS: Final = frozenset((*_OF_RSA, *_OF_CURVES.values(), "EdDSA"))
"""Algorithms that a token may be signed by: all have a public key and a private one."""
_WRONG: Final = (PyJWTError, UnsupportedAlgorithm, ValueError, TypeError, KeyError, AttributeError, RecursionError)
"""Errors of the libraries for texts of others."""


class TokenHeader(NamedTuple):
    """Facts of a token that say which key it is signed with; not proved by anything."""

    algorithm: str
    key_id: str | None


@dataclass(frozen=True, slots=True)
class WebKey:
    """A public key, and the algorithms that it may sign with."""

    key_id: str | None
    algorithms: tuple[str, ...]
    key: Any = field(repr=False, compare=False)
    text: str = field(repr=False)
    """The key's JSON, by which two are compared."""


def read_web_keys(data: bytes) -> tuple[WebKey, ...]:
    """Read a key set; keys that sign no tokens are left out. SecurityError."""
    try:
        found = json.loads(data)
        listed = found["keys"]
    except (ValueError, KeyError, TypeError, RecursionError):
        raise SecurityError('it is no JSON Web Key Set, as {"keys": […]}') from None
    if not isinstance(listed, list) or len(listed) > WEB_KEYS_MAX:
        raise SecurityError(f'its "keys" is no list of at most {WEB_KEYS_MAX} keys')
    keys = tuple(key for one in listed if isinstance(one, dict) and (key := _read_key(one)) is not None)
    if not keys:
        raise SecurityError("it has no public key for tokens: RSA of 2048 bits or more, P-256, P-384, P-521 or Ed25519")
    return keys


def read_header(token: str) -> TokenHeader:
    """Read a token's header. SecurityError."""
    try:
        header = PyJWS().get_unverified_header(token)
    except _WRONG:
        raise SecurityError("it is no JSON Web Token that this broker can read") from None
    algorithm, key_id = header.get("alg"), header.get("kid")
    if not isinstance(algorithm, str) or not isinstance(key_id, str | None):
        raise SecurityError("its header has no algorithm")
    if "crit" in header or "b64" in header:
        raise SecurityError("its header has extensions (crit) that this broker does not know")
    return TokenHeader(algorithm, key_id)


def keys_for(header: TokenHeader, keys: Sequence[WebKey]) -> list[WebKey]:
    """Return the keys that a token may be signed with."""
    named = keys if header.key_id is None else [key for key in keys if key.key_id == header.key_id]
    return [key for key in named if header.algorithm in key.algorithms]


def read_claims(token: str, header: TokenHeader, keys: Sequence[WebKey]) -> Mapping[str, Any] | None:
    """Return what a token claims; None if no key proves that it is signed. SecurityError if it claims nothing."""
    for key in keys:
        try:
            payload = PyJWS().decode(token, key.key, algorithms=[header.algorithm])
        except _WRONG:
            continue
        try:
            claims = json.loads(payload)
        except (ValueError, RecursionError):
            claims = None
        if not isinstance(claims, dict):
            raise SecurityError("it has no claims")
        return claims
    return None


def _read_key(fields: Mapping[str, Any]) -> WebKey | None:
    """Return a key that signs tokens; None for another one."""
    kind, key_id, named = fields.get("kty"), fields.get("kid"), fields.get("alg")
    if fields.get("use", "sig") != "sig" or not isinstance(key_id, str | None):
        return None
    algorithms: tuple[str, ...]
    try:
        if kind == "RSA":
            key, algorithms = _public(RSAAlgorithm, fields, "e", "n"), _OF_RSA
            if key.key_size not in _RSA_BITS:
                return None
        elif kind == "EC":
            key, algorithms = _public(ECAlgorithm, fields, "crv", "x", "y"), (_OF_CURVES[fields["crv"]],)
        elif kind == "OKP" and fields.get("crv") == "Ed25519":
            key, algorithms = _public(OKPAlgorithm, fields, "crv", "x"), ("EdDSA",)
        else:
            return None
    except _WRONG:
        return None
    if named is not None:
        algorithms = tuple(one for one in algorithms if one == named)
    return WebKey(key_id, algorithms, key, json.dumps(fields, sort_keys=True)) if algorithms else None


def _public(algorithm: Any, fields: Mapping[str, Any], *names: str) -> Any:
    """Make the public key of a JSON key, also of one that has the private part beside it."""
    return algorithm.from_jwk({"kty": fields["kty"], **{name: fields[name] for name in names}})
