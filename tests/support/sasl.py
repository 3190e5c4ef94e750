"""A client's part of SASL, of a few lines: what a user proves a password with."""

import base64
import hashlib
import hmac
import os
from collections.abc import Generator

from pqbroker.protocol.messages.alter_user_scram_credentials import ScramCredentialUpsertion

DIGESTS = {"SCRAM-SHA-256": "sha256", "SCRAM-SHA-512": "sha512"}
NUMBERS = {"SCRAM-SHA-256": 1, "SCRAM-SHA-512": 2}


def credential(
    name: str, password: str, mechanism: str = "SCRAM-SHA-256", iterations: int = 4096, salt: bytes = b"salt"
) -> ScramCredentialUpsertion:
    """Return what an administrator sends to give a user a password."""
    salted = hashlib.pbkdf2_hmac(DIGESTS[mechanism], password.encode(), salt, iterations)
    return ScramCredentialUpsertion(
        name=name, mechanism=NUMBERS[mechanism], iterations=iterations, salt=salt, salted_password=salted
    )


def plain(name: str, password: str, authorization_id: str = "") -> bytes:
    return f"{authorization_id}\0{name}\0{password}".encode()


def proof(mechanism: str, name: str, password: str) -> Generator[bytes, bytes, bool]:
    """Yield the messages of a client, sent the answers of the server; return True if the server proves what it has to.
    """
    if mechanism in DIGESTS:
        return (yield from scram(mechanism, name, password))
    return (yield plain(name, password)) == b""


def next_token(messages: Generator[bytes, bytes, bool], answer: bytes) -> bytes | None:
    """Return what a client sends next; None at the end, where the server must have proved itself."""
    try:
        return messages.send(answer)
    except StopIteration as done:
        proved: bool = done.value
    assert proved, "the server proved nothing"
    return None


def scram(mechanism: str, name: str, password: str, *, before_nonce: str | None = "") -> Generator[bytes, bytes, bool]:
    """Yield the messages of a client, sent the answers of the server; return True if the server proves itself too.

    `before_nonce`: what stands before the nonce of the second message; None: the client's own, as librdkafka before
    2.6.1 sends it.
    """
    digest = DIGESTS[mechanism]
    escaped = name.replace("=", "=3D").replace(",", "=2C")
    nonce = base64.b64encode(os.urandom(12)).decode()
    bare = f"n={escaped},r={nonce}"
    answer = (yield f"n,,{bare}".encode()).decode()
    fields = dict(part.split("=", 1) for part in answer.split(","))
    salt, iterations = base64.b64decode(fields["s"]), int(fields["i"])
    salted = hashlib.pbkdf2_hmac(digest, password.encode(), salt, iterations)
    client_key = hmac.digest(salted, b"Client Key", digest)
    unproved = f"c=biws,r={nonce if before_nonce is None else before_nonce}{fields['r']}"
    proved = f"{bare},{answer},{unproved}".encode()
    signature = hmac.digest(hashlib.new(digest, client_key).digest(), proved, digest)
    proof = bytes(left ^ right for left, right in zip(client_key, signature, strict=True))
    final = yield f"{unproved},p={base64.b64encode(proof).decode()}".encode()
    expected = hmac.digest(hmac.digest(salted, b"Server Key", digest), proved, digest)
    return final == b"v=" + base64.b64encode(expected)
