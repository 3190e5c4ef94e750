"""SCRAM on a server's side (RFC 5802, KIP-84), pure: messages, verifiers, proofs. Nonces and salts are arguments.

The grammar is Kafka's: only the header `n` (no channel binding), extensions are read and passed over, and a password is
its UTF-8 bytes as they stand. SASLprep, which libraries of SCRAM apply, would change passwords that Kafka's clients
send unchanged. Names may have any character but NUL; Kafka's are ASCII.
"""

import base64
import hashlib
import hmac
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

ITERATIONS_MIN: Final = 4096
ITERATIONS_MAX: Final = 16_384
"""Bounds that Kafka's controller has for iterations."""
SALT_BYTES: Final = 20

_VALUE = r"[\x01-\x2b\x2d-\x7f]+"
_NONCE = r"[\x21-\x2b\x2d-\x7e]+"
_NAME = r"(?:[^\x00=,]|=2C|=3D)+"
_BASE64 = r"(?:[a-zA-Z0-9/+]{4})*(?:[a-zA-Z0-9/+]{3}=|[a-zA-Z0-9/+]{2}==)?"
_EXTENSIONS = rf"(?:,[A-Za-z]+={_VALUE})*"
_CLIENT_FIRST = re.compile(
    rf"n,(?:a=(?P<authzid>{_NAME}))?,(?P<bare>(?:m={_VALUE},)?n=(?P<name>{_NAME}),r=(?P<nonce>{_NONCE}){_EXTENSIONS})"
)
_CLIENT_FINAL = re.compile(
    rf"(?P<unproved>c=(?P<binding>{_BASE64}),r=(?P<nonce>{_NONCE}){_EXTENSIONS}),p=(?P<proof>{_BASE64})"
)


class ScramRefused(ValueError):
    """A message that is no SCRAM, or proves nothing; the text is for the broker's log, not for the client."""


@dataclass(frozen=True, slots=True)
class ScramMechanism:
    """One of the mechanisms; `number` is Kafka's (KIP-554)."""

    name: str
    number: int
    digest: str

    @property
    def key_bytes(self) -> int:
        return hashlib.new(self.digest).digest_size


SCRAM_SHA_256: Final = ScramMechanism("SCRAM-SHA-256", 1, "sha256")
SCRAM_SHA_512: Final = ScramMechanism("SCRAM-SHA-512", 2, "sha512")
SCRAM_MECHANISMS: Final[Mapping[str, ScramMechanism]] = {one.name: one for one in (SCRAM_SHA_256, SCRAM_SHA_512)}


@dataclass(frozen=True, slots=True)
class ScramVerifier:
    """The server's part of a password: it verifies a proof, and nobody can log in with it."""

    salt: bytes
    stored_key: bytes
    server_key: bytes
    iterations: int

    def __repr__(self) -> str:
        return f"ScramVerifier(iterations={self.iterations})"  # nothing of a secret reaches a log


@dataclass(frozen=True, slots=True)
class ClientFirst:
    """The first message of a client."""

    name: str
    authorization_id: str
    nonce: str
    bare: str
    """The message without its header: part of what is proved."""


@dataclass(frozen=True, slots=True)
class Challenge:
    """The server's first message, and what the client's proof is checked against."""

    mechanism: ScramMechanism
    first: ClientFirst
    verifier: ScramVerifier
    nonce: str
    """The client's nonce, followed by the server's."""

    @property
    def text(self) -> str:
        salt = base64.b64encode(self.verifier.salt).decode()
        return f"r={self.nonce},s={salt},i={self.verifier.iterations}"


def salted_password(mechanism: ScramMechanism, password: str, salt: bytes, iterations: int) -> bytes:
    """Derive the salted password: milliseconds of computation, outside of the interpreter lock."""
    return hashlib.pbkdf2_hmac(mechanism.digest, password.encode(), salt, iterations)


def verifier_of(mechanism: ScramMechanism, salted: bytes, salt: bytes, iterations: int) -> ScramVerifier:
    """Return the verifier of a salted password."""
    client_key = _hmac(mechanism, salted, b"Client Key")
    stored_key = hashlib.new(mechanism.digest, client_key).digest()
    return ScramVerifier(salt, stored_key, _hmac(mechanism, salted, b"Server Key"), iterations)


def is_password(mechanism: ScramMechanism, verifier: ScramVerifier, password: str) -> bool:
    """Return True if a verifier is that of a password: milliseconds of computation."""
    salted = salted_password(mechanism, password, verifier.salt, verifier.iterations)
    found = verifier_of(mechanism, salted, verifier.salt, verifier.iterations)
    return hmac.compare_digest(found.stored_key, verifier.stored_key)


def unknown_verifier(mechanism: ScramMechanism, secret: bytes, name: str, iterations: int) -> ScramVerifier:
    """Return a verifier that nothing proves, the same for a name each time: an unknown user looks like a known one."""
    seed = hmac.digest(secret, f"{mechanism.name}\0{name}".encode(), "sha512")
    key = hmac.digest(secret, seed, mechanism.digest)
    return ScramVerifier(seed[:SALT_BYTES], key, key, iterations)


def read_client_first(message: bytes) -> ClientFirst:
    """Read a client's first message. ScramRefused."""
    found = _CLIENT_FIRST.fullmatch(_text(message))
    if found is None:
        raise ScramRefused("its first message is no SCRAM message")
    name = _unescaped(found["name"])
    authorization_id = _unescaped(found["authzid"] or "")
    return ClientFirst(name, authorization_id, found["nonce"], found["bare"])


def final_answer(challenge: Challenge, message: bytes) -> bytes:
    """Check the proof in a client's final message, and return the server's final one. ScramRefused."""
    found = _CLIENT_FINAL.fullmatch(_text(message))
    if found is None:
        raise ScramRefused("its final message is no SCRAM message")
    # librdkafka before 2.6.1 sends its own nonce twice; what makes it fresh, the server's, is behind it all the same.
    if found["nonce"] not in (challenge.nonce, challenge.first.nonce + challenge.nonce):
        raise ScramRefused("its final message has another nonce")
    mechanism, verifier = challenge.mechanism, challenge.verifier
    proved = f"{challenge.first.bare},{challenge.text},{found['unproved']}".encode()
    signature = _hmac(mechanism, verifier.stored_key, proved)
    proof = base64.b64decode(found["proof"])
    client_key = bytes(left ^ right for left, right in zip(proof, signature, strict=False))
    stored_key = hashlib.new(mechanism.digest, client_key).digest()
    is_proved = hmac.compare_digest(stored_key, verifier.stored_key) and len(proof) == len(signature)
    if not is_proved:
        raise ScramRefused("wrong password or unknown user")
    return b"v=" + base64.b64encode(_hmac(mechanism, verifier.server_key, proved))


def _hmac(mechanism: ScramMechanism, key: bytes, message: bytes) -> bytes:
    return hmac.digest(key, message, mechanism.digest)


def _text(message: bytes) -> str:
    try:
        return message.decode()
    except UnicodeDecodeError:
        raise ScramRefused("a message that is not UTF-8") from None


def _unescaped(name: str) -> str:
    return name.replace("=2C", ",").replace("=3D", "=")
