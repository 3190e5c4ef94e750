"""Logins of both clients: a password, a token, what the environment says."""

from collections.abc import Iterator
from typing import Any

import pytest

from pqbroker.client import AsyncClient, Client, ClientError
from pqbroker.fixture.http_calls import HttpCalls
from pqbroker.testing import Broker, memory_broker
from tests.http_client.conftest import done

USERS = {"root": "Root-secret", "älice": "p:ä"}


@pytest.fixture(scope="module")
def locked() -> Iterator[Broker]:
    with memory_broker(users=USERS) as running:
        yield running


@pytest.mark.parametrize("kind", [Client, AsyncClient])
async def test_a_client_logs_in(kind: Any, locked: Broker, monkeypatch: pytest.MonkeyPatch) -> None:
    calls = HttpCalls(lambda: locked.http, "root", "Root-secret")
    token = calls.ask("POST", "/v1/tokens", {})["token"]
    for login in (("root", "Root-secret"), ("älice", "p:ä"), token):
        client = kind(locked.http, login=login)
        assert await done(client.tables()) == []
        await done(client.close())
    for login in (None, ("root", "wrong"), "pqb_unknown"):
        client = kind(locked.http, login=login)
        with pytest.raises(ClientError) as refused:
            await done(client.tables())
        assert refused.value.code in ("LOGIN_REQUIRED", "LOGIN_FAILED")
        assert "wrong" not in repr(client)
        await done(client.close())
    for variables in ({"PQBROKER_TOKEN": token}, {"PQBROKER_USER": "root", "PQBROKER_PASSWORD": "Root-secret"}):
        with monkeypatch.context() as patched:
            for name, text in variables.items():
                patched.setenv(name, text)
            client = kind(locked.http)
        assert await done(client.tables()) == []
        await done(client.close())
