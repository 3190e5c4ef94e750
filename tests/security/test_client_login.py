"""Logins of our clients: what properties ask for, what is proved, and servers that prove nothing."""

import pytest

from pqbroker.broker.services.logins.scram import (
    SCRAM_MECHANISMS,
    Challenge,
    ScramRefused,
    final_answer,
    read_client_first,
    salted_password,
    verifier_of,
)
from pqbroker.security.client_login import ClientLogin, ServerNotProved, login_of, proof
from pqbroker.security.client_properties import client_security
from pqbroker.security.errors import SecurityError
from pqbroker.security.jaas import PLAIN_MODULE, SCRAM_MODULE

JAAS = f'{SCRAM_MODULE} required username="alice" password="Secret1";'


def challenge_of(login: ClientLogin, first: bytes, password: str, iterations: int = 4096) -> Challenge:
    mechanism = SCRAM_MECHANISMS[login.mechanism]
    verifier = verifier_of(mechanism, salted_password(mechanism, password, b"salt", iterations), b"salt", iterations)
    read = read_client_first(first)
    return Challenge(mechanism, read, verifier, read.nonce + "server")


@pytest.mark.parametrize("mechanism", sorted(SCRAM_MECHANISMS))
@pytest.mark.parametrize("user", ["alice", "a,b=c", "ünïcode"])
def test_client_and_server_prove_themselves_to_each_other(mechanism: str, user: str) -> None:
    login = ClientLogin(mechanism, user, "Secret1")
    messages = proof(login, "nonce")
    challenge = challenge_of(login, next(messages), "Secret1")
    final = messages.send(challenge.text.encode())
    with pytest.raises(StopIteration):
        messages.send(final_answer(challenge, final))


def test_a_server_that_does_not_know_the_password_is_found_out() -> None:
    login = ClientLogin("SCRAM-SHA-256", "alice", "Secret1")
    messages = proof(login, "nonce")
    challenge = challenge_of(login, next(messages), "another")
    final = messages.send(challenge.text.encode())
    with pytest.raises(ScramRefused):
        final_answer(challenge, final)
    with pytest.raises(ServerNotProved):
        messages.send(b"v=AAAA")


@pytest.mark.parametrize(
    "first",
    [
        b"", b"r=other,s=AAAA,i=4096", b"r=nonceX,s=AAAA,i=4095", b"r=nonceX,s=AAAA,i=99999999", b"\xff",
        b"r=nonceX,i=4096", b"r=nonceX,s=AAAA,i=4096\n",
    ],
)
def test_a_first_message_that_nobody_should_answer_is_not_answered(first: bytes) -> None:
    messages = proof(ClientLogin("SCRAM-SHA-256", "alice", "Secret1"), "nonce")
    next(messages)
    with pytest.raises(ServerNotProved):
        messages.send(first)


def test_plain_sends_one_token() -> None:
    messages = proof(ClientLogin("PLAIN", "alice", "Secret1"), "nonce")
    assert next(messages) == b"\0alice\0Secret1"
    with pytest.raises(StopIteration):
        messages.send(b"")


def test_properties_say_who_logs_in() -> None:
    texts = {"security.protocol": "SASL_PLAINTEXT", "sasl.mechanism": "SCRAM-SHA-512", "sasl.jaas.config": JAAS}
    found = client_security(texts)
    assert found.login == ClientLogin("SCRAM-SHA-512", "alice", "Secret1")
    assert "Secret1" not in repr(found)
    assert client_security({**texts, "security.protocol": "PLAINTEXT"}).login is None


@pytest.mark.parametrize(
    ("texts", "cause"),
    [
        ({}, "sasl.mechanism is GSSAPI; choose from PLAIN, SCRAM-SHA-256, SCRAM-SHA-512"),
        ({"sasl.mechanism": "PLAIN"}, "sasl.jaas.config is missing"),
        ({"sasl.mechanism": "PLAIN", "sasl.jaas.config": JAAS}, f"PLAIN takes {PLAIN_MODULE}"),
        ({"sasl.mechanism": "SCRAM-SHA-256", "sasl.jaas.config": JAAS.replace("password", "pass")}, "has no password"),
        ({"sasl.mechanism": "SCRAM-SHA-256", "sasl.jaas.config": JAAS[:-1]}, "must be one login module"),
    ],
)  # fmt: skip
def test_properties_that_name_nobody_are_refused(texts: dict[str, str], cause: str) -> None:
    with pytest.raises(SecurityError, match=cause) as refused:
        login_of(texts)
    assert "Secret1" not in str(refused.value)
