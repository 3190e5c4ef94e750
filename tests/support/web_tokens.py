"""An authorization server of a few lines: keys, the key set that it publishes, and the tokens that it signs."""

import json
import time
from base64 import urlsafe_b64encode
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jwt
from cryptography.hazmat.primitives.asymmetric import ec, ed25519, rsa
from jwt.algorithms import ECAlgorithm, OKPAlgorithm, RSAAlgorithm

ISSUER, AUDIENCE = "https://issuer.example", "kafka"
_CURVES = {"ES256": ec.SECP256R1(), "ES384": ec.SECP384R1(), "ES512": ec.SECP521R1()}


class SigningKey:
    """A key pair with a name."""

    def __init__(
        self, key_id: str | None = "key-1", algorithm: str = "ES256", rsa_bits: int = 2048,
        clock: Callable[[], float] = time.time,
    ) -> None:  # fmt: skip
        self.key_id = key_id
        self.algorithm = algorithm
        self._clock = clock
        self.private: Any
        maker: Any
        if algorithm in _CURVES:
            self.private, maker = ec.generate_private_key(_CURVES[algorithm]), ECAlgorithm
        elif algorithm == "EdDSA":
            self.private, maker = ed25519.Ed25519PrivateKey.generate(), OKPAlgorithm
        else:
            self.private, maker = rsa.generate_private_key(65537, rsa_bits), RSAAlgorithm
        named = {} if key_id is None else {"kid": key_id}
        self.public: dict[str, Any] = {**maker.to_jwk(self.private.public_key(), as_dict=True), **named}

    def token(self, user: str | None = "alice", *, headers: dict[str, Any] | None = None, **claims: Any) -> str:
        """Sign a token of five minutes; a claim of None is left out."""
        now_s = int(self._clock())
        usual = {"iss": ISSUER, "aud": AUDIENCE, "sub": user, "iat": now_s, "exp": now_s + 300}
        given = {name: value for name, value in (usual | claims).items() if value is not None}
        named = {} if self.key_id is None else {"kid": self.key_id}
        payload = json.dumps(given).encode()
        return jwt.PyJWS().encode(payload, self.private, self.algorithm, headers={**named, **(headers or {})})


def key_set(*keys: SigningKey) -> bytes:
    return json.dumps({"keys": [key.public for key in keys]}).encode()


def publish(path: Path, *keys: SigningKey) -> str:
    """Write a key set; return its address."""
    made = path.with_suffix(".new")
    made.write_bytes(key_set(*keys))
    made.replace(path)
    return path.as_uri()


def unsigned(token: str) -> str:
    """Return a token with the same claims and no signature, by the algorithm `none`."""
    return f"{_coded({'alg': 'none', 'kid': 'key-1'})}.{token.split('.')[1]}."


def bearer(token: str, authorization_id: str = "", extensions: str = "") -> bytes:
    """Return the first message of a client (RFC 7628)."""
    name = f"a={authorization_id}" if authorization_id else ""
    return f"n,{name},\x01auth=Bearer {token}\x01{extensions}\x01".encode()


def _coded(fields: dict[str, Any]) -> str:
    return urlsafe_b64encode(json.dumps(fields).encode()).decode().rstrip("=")
