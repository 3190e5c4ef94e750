"""Tokens as a listener takes them: how many are remembered, and what hostile ones come to."""

import asyncio
from base64 import urlsafe_b64encode
from collections.abc import AsyncIterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pqbroker.broker.services.logins import bearer_tokens
from pqbroker.broker.services.logins.bearer_rules import (
    BearerRefused,
    TokenRefused,
    TokenRules,
    check_claims,
    read_bearer,
)
from pqbroker.broker.services.logins.bearer_tokens import BearerTokens
from pqbroker.broker.services.logins.password_checks import PasswordChecks
from pqbroker.broker.services.logins.web_keys import KeyAddress, WebKeys
from pqbroker.security.errors import SecurityError
from pqbroker.security.web_tokens import TokenHeader, keys_for, read_claims, read_header, read_web_keys
from tests.broker.conftest import Clock
from tests.support.depth import examples
from tests.support.web_tokens import AUDIENCE, ISSUER, SigningKey, bearer, key_set, publish

NOW_S = Clock().now_ms / 1000
KEY = SigningKey(clock=lambda: NOW_S)
RULES = TokenRules(ISSUER, (AUDIENCE,), skew_s=30, sub_claim="sub", name_bytes_max=256)
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3), max_leaves=5,
)  # fmt: skip


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
async def tokens(tmp_path: Path, clock: Clock) -> AsyncIterator[BearerTokens]:
    loop = asyncio.get_running_loop()
    keys = WebKeys(loop, KeyAddress(publish(tmp_path / "keys", KEY), 3_600_000, 100, 10_000, None))
    await keys.load()
    checks = PasswordChecks(loop, lambda: 100)
    yield BearerTokens(loop, keys, checks, RULES, clock)
    checks.close()
    keys.close()


async def test_tokens_that_were_right_are_remembered_as_many_as_their_limit(
    tokens: BearerTokens, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bearer_tokens, "KEPT_TOKENS_MAX", 1)
    computed: list[str] = []

    def counted(token: str, header: TokenHeader, keys: Any) -> Any:
        computed.append(token)
        return read_claims(token, header, keys)

    monkeypatch.setattr(bearer_tokens, "read_claims", counted)
    alice, bob = KEY.token("alice"), KEY.token("bob")
    for token, count in ((alice, 1), (alice, 1), (bob, 2), (bob, 2), (alice, 3)):
        assert (await tokens.check(token, "192.0.2.1")).name == ("bob" if token == bob else "alice")
        assert len(computed) == count


async def test_a_remembered_token_expires(tokens: BearerTokens, clock: Clock) -> None:
    token = KEY.token(exp=NOW_S + 1)
    assert (await tokens.check(token, "192.0.2.1")).name == "alice"
    clock.now_ms += 31_000
    with pytest.raises(TokenRefused, match="the token expired 30 s ago"):
        await tokens.check(token, "192.0.2.1")


@given(st.binary(max_size=200) | st.text(max_size=50).map(lambda text: bearer(text)))
def test_a_message_is_read_or_refused(message: bytes) -> None:
    with suppress(BearerRefused):
        assert read_bearer(message).token


@given(st.text(max_size=300) | st.text("eyJ.-_A0", max_size=100))
def test_a_text_is_no_token_unless_it_is_signed(text: str) -> None:
    keys = read_web_keys(key_set(KEY))
    with suppress(SecurityError):
        header = read_header(text)
        assert read_claims(text, header, keys_for(header, keys)) is None


@pytest.mark.parametrize(
    "text", ["[" * 100_000, "{" * 100_000, '{"alg":' * 20_000, '{"alg":"ES256","kid":[]}', "9" * 9_999]
)
def test_a_header_of_a_hostile_form_is_refused(text: str) -> None:
    coded = urlsafe_b64encode(text.encode()).decode().rstrip("=")
    with pytest.raises(SecurityError):
        read_header(f"{coded}.{coded}.{coded}")


@settings(max_examples=examples(400))
@given(st.dictionaries(st.sampled_from(["sub", "iss", "aud", "exp", "iat", "nbf"]), JSON))
def test_claims_are_right_or_refused(given_claims: dict[str, Any]) -> None:
    usual = {"sub": "alice", "iss": ISSUER, "aud": AUDIENCE, "exp": 2_000_000_000, "iat": 1}
    for claims in (given_claims, usual | given_claims):
        try:
            found = check_claims(claims, RULES, 1_900_000_000_000)
        except TokenRefused:
            continue
        assert found.name
        assert 0 < found.lifetime_ms(1_900_000_000_000) < 1 << 63
