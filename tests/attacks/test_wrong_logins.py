"""A flood of wrong logins: an honest login still takes less than two seconds, and who has logged in is served."""

import statistics
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping

import pytest

from pqbroker.protocol.messages.metadata import MetadataRequest
from pqbroker.protocol.messages.sasl_authenticate import SaslAuthenticateRequest
from pqbroker.protocol.messages.sasl_handshake import SaslHandshakeRequest
from pqbroker.testing import Broker, broker
from tests.attacks.wrong_logins import BASIC, BASIC_KEPT
from tests.support.attacked import Caller
from tests.support.crowding import Crowding
from tests.support.sasl import next_token, proof

USERS: Mapping[str, str] = {"root": "Root-secret", "alice": "Alice-secret"}
RATE, SECONDS = 300, 2
LOGIN_S_MAX = 2.0
ANSWER_S_MAX = 0.25
"""Times how crowded the machine is."""


@pytest.fixture(scope="module")
def locked() -> Iterator[Broker]:
    with broker(users=USERS) as running:
        yield running


def log_in(address: str, mechanism: str) -> Caller:
    """Log in as alice, again and again while the broker closes the connection without a word."""
    for _ in range(100):
        caller = Caller(address)
        try:
            caller.ask(SaslHandshakeRequest(mechanism=mechanism))
            messages = proof(mechanism, "alice", USERS["alice"])
            token: bytes | None = next(messages)
            while token is not None:
                answer = caller.ask(SaslAuthenticateRequest(auth_bytes=token))
                assert not answer.error_code, answer
                token = next_token(messages, answer.auth_bytes)
        except ConnectionError:
            caller.close()
            time.sleep(0.02)
        else:
            return caller
    raise AssertionError("a hundred logins found no room")


def answer_s(caller: Caller) -> float:
    begun = time.perf_counter()
    caller.ask(MetadataRequest())
    return time.perf_counter() - begun


@pytest.mark.parametrize("kind", ["SCRAM-SHA-256", "PLAIN", BASIC, BASIC_KEPT])
def test_an_honest_login_takes_less_than_two_seconds_beside_a_flood(locked: Broker, kind: str) -> None:
    address = locked.http if kind.startswith(BASIC) else locked.kafka
    command = [sys.executable, "-m", "tests.attacks.wrong_logins", kind, address, str(RATE), str(SECONDS)]
    with (
        Crowding() as crowding,
        log_in(locked.kafka, "SCRAM-SHA-512") as settled,
        subprocess.Popen(command, stdout=subprocess.PIPE) as flood,
    ):
        time.sleep(0.5)
        answers: list[float] = []
        while flood.poll() is None:
            begun = time.perf_counter()
            mechanism = "PLAIN" if kind.startswith(BASIC) else kind
            log_in(locked.kafka, mechanism).close()
            assert time.perf_counter() - begun < LOGIN_S_MAX * crowding.times
            answers += [answer_s(settled) for _ in range(5)]
        assert flood.stdout is not None
        assert int(flood.stdout.read()) >= RATE * SECONDS / 10
    assert statistics.median(answers) < ANSWER_S_MAX * crowding.times
