"""Logins by tokens (OAUTHBEARER) beside Apache Kafka's: python -m tests.kafka_comparison.bearer_logins

Both check the same messages by the same keys, and are compared by all that they answer.
"""

import asyncio
import sys
import tempfile
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from pqbroker.protocol.messages.sasl_authenticate import SaslAuthenticateRequest
from pqbroker.protocol.messages.sasl_handshake import SaslHandshakeRequest
from pqbroker.testing import broker
from tests.broker.wire import Client
from tests.support.kafka.broker import ApacheKafka
from tests.support.kafka.jars import QUICK_START
from tests.support.web_tokens import AUDIENCE, ISSUER, SigningKey, bearer, publish, unsigned

DIFFERENT: Final[Mapping[str, str]] = {
    "another scheme": "Kafka closes the connection without an answer; here it is the answer to other wrong messages",
}
"""Reasons of differences, by case."""
_MODULES: Final = "org.apache.kafka.common.security.oauthbearer"
_ANSWER_S: Final = 30.0
_MINUTE_MS: Final = 60_000


def cases(key: SigningKey, other: SigningKey) -> Mapping[str, bytes]:
    """Return first messages of clients; both servers know `key`, and `other` under another name."""
    now_s, right = time.time(), key.token()
    strange = SigningKey(key.key_id, key.algorithm)
    of_claims: dict[str, dict[str, Any]] = {
        "expired": {"exp": now_s - 60}, "within the skew": {"exp": now_s + 0.5}, "another issuer": {"iss": "x"},
        "no issuer": {"iss": None}, "two audiences": {"aud": ["a", AUDIENCE]}, "another audience": {"aud": "b"},
        "no audience": {"aud": None}, "no user": {"sub": None}, "a blank user": {"sub": "  "},
        "a user with blanks": {"sub": " alice "}, "a number as user": {"sub": 7}, "no end": {"exp": None},
        "no begin": {"iat": None}, "made later": {"iat": now_s + 6000}, "begins later": {"nbf": now_s + 6000},
        "a number as scope": {"scope": 5}, "scopes": {"scope": ["a", "b"]}, "a text as end": {"exp": "soon"},
    }  # fmt: skip
    return {
        "right": bearer(right), "by a curve": bearer(other.token()), "extensions": bearer(right, extensions="a=b\x01"),
        "the same user": bearer(right, "alice"), "another user": bearer(right, "bob"),
        "small letters": bearer(right).replace(b"Bearer", b"bearer"),
        "several blanks": bearer(right).replace(b"Bearer ", b"Bearer   "),
        "none": bearer(unsigned(right)), "another key": bearer(strange.token()),
        "an unknown key": bearer(SigningKey("unknown").token()), "no token": bearer("abc"), "empty": b"",
        "an end alone": b"\x01", "another scheme": b"n,,\x01auth=Basic abc\x01\x01",
        "channel binding": b"y,,\x01auth=Bearer abc\x01\x01", "no fields": b"n,,\x01\x01",
        **{name: bearer(key.token(**claims)) for name, claims in of_claims.items()},
    }  # fmt: skip


async def answers(address: str, message: bytes) -> list[Any]:
    """Return all that a server answers to a login's messages."""
    host, _, port = address.partition(":")
    client = await Client.connect(host, int(port))
    found: list[Any] = []
    try:
        async with asyncio.timeout(_ANSWER_S):
            await client.ask(SaslHandshakeRequest(mechanism="OAUTHBEARER"))
            answer = await client.ask(SaslAuthenticateRequest(auth_bytes=message))
            lifetime_minutes = answer.session_lifetime_ms // _MINUTE_MS
            found = [answer.error_code, answer.error_message, answer.auth_bytes, lifetime_minutes]
            if answer.auth_bytes:
                last = await client.ask(SaslAuthenticateRequest(auth_bytes=b"\x01"))
                found += [last.error_code, last.error_message]
    except (OSError, EOFError):
        found.append("closed")
    finally:
        await client.close()
    return found


async def compare(theirs: str, ours: str, messages: Mapping[str, bytes]) -> list[str]:
    """Return the differences that have no reason."""
    wrong: list[str] = []
    for name, message in messages.items():
        expected, found = await answers(theirs, message), await answers(ours, message)
        if (expected != found) != (name in DIFFERENT):
            wrong.append(f"{name}: Kafka answers {expected}, and here it is {found}")
    return wrong


def main() -> None:
    key, other = SigningKey(algorithm="RS256"), SigningKey("curve")
    with tempfile.TemporaryDirectory() as directory:
        path = Path(directory) / "keys.json"
        url = publish(path, key, other)
        tokens = {
            "sasl.enabled.mechanisms": "OAUTHBEARER", "sasl.oauthbearer.jwks.endpoint.url": url,
            "sasl.oauthbearer.expected.issuer": ISSUER, "sasl.oauthbearer.expected.audience": AUDIENCE,
        }  # fmt: skip
        own = {
            "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT,SSL:SASL_PLAINTEXT",
            "listener.name.ssl.oauthbearer.sasl.jaas.config": f"{_MODULES}.OAuthBearerLoginModule required;",
            "listener.name.ssl.oauthbearer.sasl.server.callback.handler.class":
                f"{_MODULES}.OAuthBearerValidatorCallbackHandler",
        }  # fmt: skip
        allowed = [f"-Dorg.apache.kafka.sasl.oauthbearer.allowed.{kind}={text}"
                   for kind, text in (("urls", url), ("files", str(path)))]  # fmt: skip
        kafka = ApacheKafka(jvm=(*QUICK_START, *allowed), encrypted={**tokens, **own})
        with kafka, broker(users={"root": "Root-secret"}, settings=tokens) as running:
            messages = cases(key, other)
            wrong = asyncio.run(compare(kafka.encrypted, running.kafka, messages))
    print("\n".join([*wrong, f"{len(messages)} logins by tokens, {len(DIFFERENT)} different with a reason"]))
    sys.exit(1 if wrong else 0)


if __name__ == "__main__":
    main()
