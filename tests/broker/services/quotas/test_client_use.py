"""Use of quotas: who shares it, how much of it is kept, and quotas that are unreadable."""

from pqbroker.broker.ground.access import Principal
from pqbroker.broker.services.quotas.client_quotas import ClientQuotas, ClientUse
from pqbroker.broker.services.quotas.quota_rules import DEFAULT_ENTITY
from pqbroker.conf.broker import BrokerSettings
from pqbroker.storage.tablets.row_sets import Row
from pqbroker.storage.tablets.scheme_quotas import entity_key

ANN, BOB = Principal("User", "ann"), Principal("User", "bob")
VALUES: Row = {"values": {"producer_byte_rate": 1000.0}}


def quotas(**settings: int) -> ClientQuotas:
    return ClientQuotas(BrokerSettings(**settings), lambda: 0.0, lambda: None)  # type: ignore[arg-type]


def use_of(found: ClientQuotas, principal: Principal, client_id: str | None) -> ClientUse:
    use = found.of(principal, client_id)
    assert use is not None
    return use


def test_clients_of_a_user_share_its_quota() -> None:
    found = quotas()
    found.follow(entity_key(("ann", None, None)), VALUES)
    assert use_of(found, ANN, "a").produced is use_of(found, ANN, None).produced
    assert found.of(BOB, "a") is None


def test_users_under_the_default_have_a_share_each() -> None:
    found = quotas()
    found.follow(entity_key((DEFAULT_ENTITY, None, None)), VALUES)
    assert use_of(found, ANN, "a").produced is not use_of(found, BOB, "a").produced


def test_what_was_used_counts_on_when_a_quota_changes() -> None:
    found = quotas()
    key = entity_key(("ann", None, None))
    found.follow(key, VALUES)
    before = use_of(found, ANN, "a").produced
    assert before is not None
    assert before.take(10_000, 0) > 0
    found.follow(key, {"values": {"producer_byte_rate": 100.0}})
    after = use_of(found, ANN, "a").produced
    assert after is before
    assert after.bound == 100.0
    found.follow(key, None)
    assert found.of(ANN, "a") is None


def test_the_use_of_so_many_clients_is_kept_at_most() -> None:
    found = quotas(quota_clients_max=100)
    found.follow(entity_key((None, DEFAULT_ENTITY, None)), VALUES)
    first = use_of(found, ANN, "c0").produced
    for number in range(1, 200):
        assert use_of(found, ANN, f"c{number}").produced is not first
    assert use_of(found, ANN, "c0").produced is not first
    assert use_of(found, ANN, "c199").produced is use_of(found, ANN, "c199").produced


def test_an_unreadable_quota_counts_for_nobody_and_others_do() -> None:
    found = quotas()
    found.load({
        ("what", "", ""): VALUES,
        entity_key(("ann", None, None)): {"values": {"producer_byte_rate": -1.0}},
        entity_key(("bob", None, None)): VALUES,
    })  # fmt: skip
    assert len(found.unreadable) == 2
    assert found.of(ANN, "a") is None
    assert found.of(BOB, "a") is not None
