"""SCRAM: the exchange of RFC 7677, any names and passwords, and messages that prove nothing."""

import base64

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pqbroker.broker.services.logins.plain import PlainRefused, read_plain
from pqbroker.broker.services.logins.scram import (
    SCRAM_MECHANISMS,
    SCRAM_SHA_256,
    Challenge,
    ClientFirst,
    ScramMechanism,
    ScramRefused,
    final_answer,
    is_password,
    read_client_first,
    salted_password,
    unknown_verifier,
    verifier_of,
)
from tests.support.depth import examples
from tests.support.sasl import next_token, plain, scram

ITERATIONS = 1
TEXTS = st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"]), min_size=1, max_size=20)


def challenge_of(mechanism: ScramMechanism, password: str, first: ClientFirst, nonce: str = "server") -> Challenge:
    salted = salted_password(mechanism, password, b"salt", ITERATIONS)
    verifier = verifier_of(mechanism, salted, b"salt", ITERATIONS)
    return Challenge(mechanism, first, verifier, first.nonce + nonce)


def test_the_exchange_of_rfc_7677() -> None:
    salt = base64.b64decode("W22ZaJ0SNY7soEsUEjb6gQ==")
    verifier = verifier_of(SCRAM_SHA_256, salted_password(SCRAM_SHA_256, "pencil", salt, 4096), salt, 4096)
    first = read_client_first(b"n,,n=user,r=rOprNGfwEbeRWgbNEkqO")
    challenge = Challenge(SCRAM_SHA_256, first, verifier, "rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0")
    assert challenge.text == "r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,s=W22ZaJ0SNY7soEsUEjb6gQ==,i=4096"
    final = (
        b"c=biws,r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,p=dHzbZapWIk4jUhN+Ute9ytag9zjfMHgsqmmiz7AndVQ="
    )
    assert final_answer(challenge, final) == b"v=6rriTRBi23WpRR/wtup+mMhUZUn/dB5nLTJRsjl95G4="
    assert is_password(SCRAM_SHA_256, verifier, "pencil")
    assert not is_password(SCRAM_SHA_256, verifier, "Pencil")


@settings(max_examples=examples(200))
@given(name=TEXTS, password=TEXTS, other=TEXTS, mechanism=st.sampled_from(sorted(SCRAM_MECHANISMS)))
def test_a_password_proves_itself_and_no_other(name: str, password: str, other: str, mechanism: str) -> None:
    for tried in (password, other):
        client = scram(mechanism, name, tried)
        first = read_client_first(next(client))
        assert first.name == name
        challenge = challenge_of(SCRAM_MECHANISMS[mechanism], password, first)
        final = client.send(challenge.text.encode())
        if tried == password:
            assert next_token(client, final_answer(challenge, final)) is None
        else:
            with pytest.raises(ScramRefused):
                final_answer(challenge, final)


@pytest.mark.parametrize(
    "message",
    [
        b"", b"n", b"n,,", b"n,,n=a", b"n,,n=,r=x", b"n,,r=x,n=a", b"y,,n=a,r=x", b"p=tls-unique,,n=a,r=x",
        b"n,,n=a=2,r=x", b"n,,n=a\0b,r=x", b"n,,n=a,r=x\n", b"n,,n=a,r=", b"n,,n=a,r=\xff", b"\xff\xfe", b"n,,n=a,r=x,",
    ],
)  # fmt: skip
def test_a_first_message_that_is_none_is_refused(message: bytes) -> None:
    with pytest.raises(ScramRefused):
        read_client_first(message)


@pytest.mark.parametrize("message", [b"n,a=a,n=a,r=x", b"n,,n=a,r=x,tokenauth=true", b"n,,m=z,n=a,r=x"])
def test_extensions_and_an_authorization_id_are_read(message: bytes) -> None:
    first = read_client_first(message)
    assert (first.name, first.nonce) == ("a", "x")
    assert message.endswith(first.bare.encode())


@pytest.mark.parametrize(
    "change",
    [
        lambda final: final[:-1], lambda final: b"", lambda final: final.replace(b"r=", b"r=x"),
        lambda final: final.partition(b",p=")[0] + b",p=", lambda final: final + b"AAAA",
        lambda final: final.partition(b",p=")[0] + b",p=" + base64.b64encode(bytes(32)), lambda final: final + b"\xff",
    ],
)  # fmt: skip
def test_a_final_message_that_proves_nothing_is_refused(change: object) -> None:
    assert callable(change)
    client = scram("SCRAM-SHA-256", "alice", "secret")
    challenge = challenge_of(SCRAM_SHA_256, "secret", read_client_first(next(client)))
    final = client.send(challenge.text.encode())
    final_answer(challenge, final)
    with pytest.raises(ScramRefused):
        final_answer(challenge, change(final))


def test_the_doubled_nonce_of_older_clients_is_taken() -> None:
    client = scram("SCRAM-SHA-256", "alice", "secret", before_nonce=None)
    challenge = challenge_of(SCRAM_SHA_256, "secret", read_client_first(next(client)))
    final = client.send(challenge.text.encode())
    assert challenge.nonce.encode() not in final.replace(challenge.first.nonce.encode() * 2, b"")
    assert next_token(client, final_answer(challenge, final)) is None


def test_a_proof_with_another_nonce_is_refused() -> None:
    client = scram("SCRAM-SHA-256", "alice", "secret", before_nonce="x")
    challenge = challenge_of(SCRAM_SHA_256, "secret", read_client_first(next(client)))
    with pytest.raises(ScramRefused, match="another nonce"):
        final_answer(challenge, client.send(challenge.text.encode()))


def test_an_unknown_user_has_the_same_salt_each_time_and_one_of_its_own() -> None:
    salts = {
        unknown_verifier(mechanism, secret, name, 4096).salt
        for mechanism in SCRAM_MECHANISMS.values() for secret in (b"one", b"two") for name in ("a", "b")
        for _ in range(2)
    }  # fmt: skip
    assert len(salts) == 8
    assert {len(salt) for salt in salts} == {20}


def test_no_secret_is_in_the_text_of_a_verifier() -> None:
    verifier = unknown_verifier(SCRAM_SHA_256, b"secret", "a", 4096)
    assert repr(verifier) == "ScramVerifier(iterations=4096)"
    assert "secret" not in repr(read_plain(plain("a", "secret")))


@pytest.mark.parametrize("message", [b"", b"a", b"\0a", b"\0a\0", b"\0\0b", b"\0a\0b\0c", b"\0a\0\xff"])
def test_a_plain_message_that_is_none_is_refused(message: bytes) -> None:
    with pytest.raises(PlainRefused):
        read_plain(message)
