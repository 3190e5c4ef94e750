"""Logins by tokens of an authorization server (OAUTHBEARER) over a connection: proofs, refusals, ends of sessions."""

import asyncio
import hashlib
import hmac
import json
import logging
from base64 import urlsafe_b64encode
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from pqbroker.broker.ground.access import Principal
from pqbroker.broker.ground.seldom_log import SeldomLog
from pqbroker.broker.kafka.apis import login
from pqbroker.protocol.errors import ErrorCode
from pqbroker.protocol.messages.metadata import MetadataRequest
from pqbroker.protocol.messages.sasl_authenticate import SaslAuthenticateRequest
from pqbroker.protocol.messages.sasl_handshake import SaslHandshakeRequest
from tests.broker.conftest import Node, until
from tests.broker.kafka.net.test_logins import LISTENERS
from tests.broker.wire import Client
from tests.support.web_tokens import AUDIENCE, ISSUER, SigningKey, bearer, key_set, publish, unsigned

Start = Callable[..., Awaitable[Node]]
NOW_S = 1_700_000_000
"""Time of the node's clock."""
DENIED = b'{"status":"invalid_token"}'


def signing(key_id: str = "key-1", algorithm: str = "ES256") -> SigningKey:
    return SigningKey(key_id, algorithm, clock=lambda: NOW_S)


KEY, OTHER = signing(), signing()


@pytest.fixture
def keys(tmp_path: Path) -> Path:
    publish(tmp_path / "keys.json", KEY)
    return tmp_path / "keys.json"


async def start_locked(start: Start, url: str, **settings: Any) -> Node:
    """Start a node whose first listener takes tokens."""
    given = {
        "sasl.oauthbearer.jwks.endpoint.url": url, "sasl.oauthbearer.expected.issuer": ISSUER,
        "sasl.oauthbearer.expected.audience": (AUDIENCE,),
    }  # fmt: skip
    given |= settings.pop("oauth", {})
    settings = {"sasl_mechanisms": ("OAUTHBEARER",), "failed_login_delay_ms": 1, **settings}
    return await start(listeners=LISTENERS, oauth=tuple(given.items()), **settings)


async def say(client: Client, message: bytes) -> Any:
    """Send a login's first message."""
    assert (await client.ask(SaslHandshakeRequest(mechanism="OAUTHBEARER"))).error_code == ErrorCode.NONE
    return await client.ask(SaslAuthenticateRequest(auth_bytes=message))


async def test_a_token_is_a_login_as_the_user_that_it_names_until_it_expires(start: Start, keys: Path) -> None:
    node = await start_locked(start, keys.as_uri())
    client = await node.connect()
    answer = await say(client, bearer(KEY.token("alice"), extensions="traceId=1\x01"))
    assert (answer.error_code, answer.error_message, answer.auth_bytes) == (ErrorCode.NONE, "", b"")
    assert answer.session_lifetime_ms == 300_000
    assert (await client.ask(MetadataRequest())).brokers
    (connection,) = [each for each in node.server.node.connections if each.listener_name == "LOCKED"]
    assert connection.peer.principal == Principal("User", "alice")
    assert node.server.node.metrics.logins == {"OAUTHBEARER": 1}


def hs256() -> str:
    """Return a token that is signed with the public key as a secret."""
    parts = [
        urlsafe_b64encode(json.dumps(part).encode()).rstrip(b"=")
        for part in ({"alg": "HS256", "kid": "key-1"}, {"sub": "alice", "exp": NOW_S + 60, "iat": 0})
    ]
    signature = hmac.digest(key_set(KEY), b".".join(parts), hashlib.sha256)
    return b".".join([*parts, urlsafe_b64encode(signature).rstrip(b"=")]).decode()


def tampered() -> str:
    header, _, signature = KEY.token("alice").split(".")
    return f"{header}.{KEY.token('root').split('.')[1]}.{signature}"


REFUSED: dict[str, tuple[Callable[[], str], str, str]] = {
    "expired": (lambda: KEY.token(exp=NOW_S - 60), "time", "the token expired"),
    "another issuer": (lambda: KEY.token(iss="https://other.example"), "issuer", "the issuer is 'https://other.example'"),
    "another audience": (lambda: KEY.token(aud=["billing"]), "audience", "the audience is ['billing']"),
    "no audience": (lambda: KEY.token(aud=None), "audience", "the audience is missing"),
    "algorithm none": (lambda: unsigned(KEY.token()), "algorithm", "the algorithm 'none' proves nothing"),
    "HS256 with the public key": (hs256, "algorithm", "the algorithm 'HS256' proves nothing"),
    "another key of the same name": (lambda: OTHER.token(), "signature", "signature is wrong"),
    "an unknown key": (lambda: signing("key-9").token(), "signature", "by a key 'key-9' that"),
    "other claims": (tampered, "signature", "signature is wrong"),
    "no user": (lambda: KEY.token(None), "claims", "the token names no user (claim sub)"),
    "a long name": (lambda: KEY.token("x" * 257), "claims", "the user's name has 257 bytes"),
    "a name with a line's end": (lambda: KEY.token("alice\nroot"), "claims", "the user's name has 10 bytes"),
    "no end": (lambda: KEY.token(exp=float("inf")), "claims", "the token has no time exp"),
    "a later begin": (lambda: KEY.token(nbf=NOW_S + 600), "time", "the token does not count for 600 s"),
    "made later": (lambda: KEY.token(iat=NOW_S + 31), "time", "the token does not count for 31 s"),
    "no token": (lambda: "no-token", "message", "it is no JSON Web Token"),
    "an extension": (lambda: KEY.token(headers={"crit": ["b64"], "b64": True}), "message", "JSON Web Token that"),
}  # fmt: skip


@pytest.mark.parametrize("case", REFUSED)
async def test_a_token_that_proves_nothing_is_denied(
    start: Start, keys: Path, case: str, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(login, "seldom", SeldomLog(logging.getLogger(login.__name__)))
    token, kind, reason = REFUSED[case]
    node = await start_locked(start, keys.as_uri())
    client = await node.connect()
    answer = await say(client, bearer(token()))
    assert (answer.error_code, answer.auth_bytes) == (ErrorCode.NONE, DENIED)
    (said,) = [record.getMessage() for record in caplog.records if "refused (" in record.getMessage()]
    assert said.startswith(f"login from 127.0.0.1 on listener LOCKED refused (OAUTHBEARER, {kind}): ")
    assert reason in said
    answer = await client.ask(SaslAuthenticateRequest(auth_bytes=b"\x01"))
    assert (answer.error_code, answer.error_message) == (ErrorCode.SASL_AUTHENTICATION_FAILED, DENIED.decode())
    assert await client.is_closed_by_peer()
    assert node.server.node.metrics.login_refusals == {("OAUTHBEARER", kind): 1}


@pytest.mark.parametrize(
    "message",
    [b"", b"\x01", b"n,,\x01\x01", b"n,,\x01auth=Basic abc\x01\x01", b"y,,\x01auth=Bearer abc\x01\x01", b"\xff" * 100,
     b"n,,\x01auth=Bearer a b\x01\x01", b"n,,\x01auth=Bearer abc\x01"],
)  # fmt: skip
async def test_a_message_of_no_form_is_refused(start: Start, keys: Path, message: bytes) -> None:
    node = await start_locked(start, keys.as_uri())
    client = await node.connect()
    answer = await say(client, message)
    assert answer.error_code == ErrorCode.SASL_AUTHENTICATION_FAILED
    assert answer.error_message == (
        "Authentication failed during authentication due to invalid credentials with SASL mechanism OAUTHBEARER"
    )
    assert await client.is_closed_by_peer()


async def test_a_client_does_not_act_as_another_than_its_token_names(start: Start, keys: Path) -> None:
    node = await start_locked(start, keys.as_uri())
    client = await node.connect()
    answer = await say(client, bearer(KEY.token("alice"), "root"))
    assert answer.error_message == (
        "Authentication failed: Client requested an authorization id (root) that is different from the token's "
        "principal name (alice)"
    )


async def test_a_new_key_counts_as_soon_as_a_token_names_it(start: Start, keys: Path) -> None:
    oauth = {"sasl.oauthbearer.jwks.endpoint.retry.backoff.ms": 1}
    node = await start_locked(start, keys.as_uri(), oauth=oauth)
    later = signing("key-2", "RS256")
    client = await node.connect()
    assert (await say(client, bearer(later.token()))).auth_bytes == DENIED
    publish(keys, later)

    async def logs_in(key: SigningKey) -> bool:
        client = await node.connect()
        found: bool = (await say(client, bearer(key.token()))).auth_bytes == b""
        await client.close()
        return found

    for _ in range(200):
        if await logs_in(later):
            break
        await asyncio.sleep(0.005)
    assert await logs_in(later)
    assert not await logs_in(KEY)


async def test_unknown_keys_have_the_keys_read_seldom(start: Start, keys: Path) -> None:
    node = await start_locked(start, keys.as_uri())
    (tokens,) = node.server.node.logins.bearers.values()
    for number in range(20):
        client = await node.connect()
        assert (await say(client, bearer(signing(f"key-{number + 2}").token()))).auth_bytes == DENIED
        await client.close()
    assert tokens.keys.reads <= 8  # one at the start; 100 ms, 200 ms, 400 ms and more between the others


async def test_a_session_ends_with_its_token(start: Start, keys: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("pqbroker.broker.kafka.apis.login.REAUTH_PERIOD_S", 0.0)
    node = await start_locked(start, keys.as_uri())
    renewed, lapsed = await node.connect(), await node.connect()
    for client in (renewed, lapsed):
        assert (await say(client, bearer(KEY.token(exp=NOW_S + 0.3)))).session_lifetime_ms == 300
    loop = asyncio.get_running_loop()
    ends_s = loop.time() + 0.3
    await until(lambda: loop.time() > ends_s)
    assert (await say(renewed, bearer(KEY.token()))).session_lifetime_ms == 300_000
    assert (await renewed.ask(MetadataRequest())).brokers
    lapsed.send(MetadataRequest())
    assert await lapsed.is_closed_by_peer()


async def test_a_token_counts_for_the_seconds_of_skew_behind_its_end(start: Start, keys: Path) -> None:
    node = await start_locked(start, keys.as_uri(), oauth={"sasl.oauthbearer.clock.skew.seconds": 5})
    node.clock.now_ms += 302_000
    assert (await say(await node.connect(), bearer(KEY.token()))).session_lifetime_ms == 3000
    node.clock.now_ms += 3_000
    assert (await say(await node.connect(), bearer(KEY.token()))).auth_bytes == DENIED


async def test_a_session_is_not_longer_than_connections_max_reauth_ms(start: Start, keys: Path) -> None:
    node = await start_locked(start, keys.as_uri(), reauth_ms_max=5000)
    assert (await say(await node.connect(), bearer(KEY.token()))).session_lifetime_ms == 5000


async def test_a_client_stays_the_user_of_its_first_token(
    start: Start, keys: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("pqbroker.broker.kafka.apis.login.REAUTH_PERIOD_S", 0.0)
    node = await start_locked(start, keys.as_uri())
    client = await node.connect()
    await say(client, bearer(KEY.token("alice")))
    answer = await say(client, bearer(KEY.token("bob")))
    assert answer.error_message == "Cannot change principals during re-authentication from User.alice: User.bob"
