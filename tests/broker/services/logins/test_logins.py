"""Logins of a node: how many passwords are remembered, how long, and what an unknown user costs."""

import pytest

from pqbroker.broker.services.logins import logins as logins_module
from pqbroker.broker.services.logins.logins import Logins
from pqbroker.broker.services.logins.scram import SCRAM_SHA_256, SCRAM_SHA_512, ScramMechanism, is_password
from pqbroker.broker.services.logins.users import last_mechanism
from pqbroker.protocol.messages.alter_user_scram_credentials import AlterUserScramCredentialsRequest
from pqbroker.storage.tablets.scheme_users import UserRecord
from tests.broker.conftest import Node
from tests.broker.wire import Client
from tests.support.sasl import credential


@pytest.fixture
async def logins(node: Node, client: Client) -> Logins:
    users = [credential(name, name.upper(), iterations=5000) for name in ("alice", "bob")]
    await client.ask(AlterUserScramCredentialsRequest(upsertions=users))
    return node.server.node.logins


class Computed:
    """Counts passwords that are computed."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.count = 0
        self.mechanisms: list[object] = []
        monkeypatch.setattr(logins_module, "is_password", self)

    def __call__(self, *arguments: object) -> bool:
        self.count += 1
        self.mechanisms.append(arguments[0])
        return is_password(*arguments)  # type: ignore[arg-type]


async def test_passwords_that_were_right_are_remembered_as_many_as_their_limit(
    logins: Logins, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(logins_module, "VERIFIED_MAX", 1)
    computed = Computed(monkeypatch)
    for name, count in (("alice", 1), ("alice", 1), ("bob", 2), ("bob", 2), ("alice", 3)):
        assert await logins.is_password(name, name.upper(), "192.0.2.1")
        assert computed.count == count


async def test_a_wrong_password_is_computed_each_time_and_so_is_one_of_an_unknown_user(
    logins: Logins, monkeypatch: pytest.MonkeyPatch
) -> None:
    computed = Computed(monkeypatch)
    for name in ("alice", "alice", "nobody", "nobody"):
        assert not await logins.is_password(name, "wrong", "192.0.2.1")
    assert computed.count == 4


@pytest.mark.parametrize("mechanism", [SCRAM_SHA_256, SCRAM_SHA_512])
async def test_a_password_of_an_unknown_user_takes_as_long_as_that_of_a_known_one(
    node: Node, client: Client, monkeypatch: pytest.MonkeyPatch, mechanism: ScramMechanism
) -> None:
    """SHA-512 takes more than twice as long as SHA-256."""
    users = [credential("alice", "ALICE", mechanism.name)]
    await client.ask(AlterUserScramCredentialsRequest(upsertions=users))
    computed = Computed(monkeypatch)
    for name in ("alice", "nobody"):
        assert not await node.server.node.logins.is_password(name, "wrong", "192.0.2.1")
    assert computed.mechanisms == [mechanism] * 2


async def test_a_password_made_here_is_checked_by_the_cheapest_mechanism(logins: Logins) -> None:
    made = await logins.make_credentials("secret", 4096, "192.0.2.1")
    assert last_mechanism(UserRecord("carol", made, is_super=False, created_ms=0)) is SCRAM_SHA_256


async def test_a_password_is_forgotten_in_time(logins: Logins, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(logins_module, "VERIFIED_S", 0.0)
    computed = Computed(monkeypatch)
    for _ in range(2):
        assert await logins.is_password("alice", "ALICE", "192.0.2.1")
    assert computed.count == 2


async def test_an_unknown_user_looks_like_a_known_one(logins: Logins) -> None:
    known, unknown = (logins.verifier(SCRAM_SHA_256, name) for name in ("alice", "nobody"))
    assert (known.iterations, unknown.iterations) == (5000, 5000)
    assert (len(unknown.stored_key), len(unknown.salt)) == (32, 20)
    assert logins.verifier(SCRAM_SHA_256, "nobody") == unknown
    other = logins.verifier(SCRAM_SHA_512, "alice")  # which alice has no password for
    assert (other.iterations, len(other.stored_key)) == (4096, 64)
