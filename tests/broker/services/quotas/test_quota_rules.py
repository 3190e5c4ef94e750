"""Quotas: whom they are for, which one counts, and the pauses above them."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pqbroker.broker.services.quotas.quota_rules import (
    DEFAULT_ENTITY,
    FoundQuota,
    QuotaEntity,
    QuotaFilter,
    check_value,
    find_quota,
    ip_quota,
    quota_entity,
)
from pqbroker.broker.services.quotas.rates import USE_PAUSE_MS_MAX, UseBucket
from pqbroker.protocol.errors import KafkaError
from tests.support.depth import examples

KEY = "producer_byte_rate"
BY_PRECEDENCE = [
    (QuotaEntity("ann", "app"), ("ann", "app")),
    (QuotaEntity("ann", DEFAULT_ENTITY), ("ann", "app")),
    (QuotaEntity("ann"), ("ann", "")),
    (QuotaEntity(DEFAULT_ENTITY, "app"), ("ann", "app")),
    (QuotaEntity(DEFAULT_ENTITY, DEFAULT_ENTITY), ("ann", "app")),
    (QuotaEntity(DEFAULT_ENTITY), ("ann", "")),
    (QuotaEntity(None, "app"), ("", "app")),
    (QuotaEntity(None, DEFAULT_ENTITY), ("", "app")),
]
"""Entities of a client, the one that counts before the others first, and whom each is shared by (KIP-55)."""


@pytest.mark.parametrize("first", range(len(BY_PRECEDENCE)))
def test_the_most_specific_entity_counts(first: int) -> None:
    others = {
        QuotaEntity("bob"): {KEY: 1.0}, QuotaEntity("ann", "other"): {KEY: 2.0}, QuotaEntity(None, "x"): {KEY: 3.0},
    }  # fmt: skip
    quotas = {entity: {KEY: 10.0 + number} for number, (entity, _) in enumerate(BY_PRECEDENCE) if number >= first}
    assert find_quota({**others, **quotas}, KEY, "ann", "app") == FoundQuota(10.0 + first, BY_PRECEDENCE[first][1])
    assert find_quota(others, KEY, "ann", "app") is None


def test_each_key_counts_by_itself() -> None:
    quotas = {QuotaEntity("ann", "app"): {"consumer_byte_rate": 1.0}, QuotaEntity("ann"): {KEY: 2.0}}
    assert find_quota(quotas, KEY, "ann", "app") == FoundQuota(2.0, ("ann", ""))


def test_an_address_has_its_own_quota_or_the_default() -> None:
    quotas = {QuotaEntity(ip="1.1.1.1"): {"connection_creation_rate": 1.0}}
    assert ip_quota(quotas, "1.1.1.1") == 1.0
    assert ip_quota(quotas, "2.2.2.2") is None
    assert ip_quota({**quotas, QuotaEntity(ip=DEFAULT_ENTITY): {"connection_creation_rate": 9.0}}, "2.2.2.2") == 9.0


@pytest.mark.parametrize(
    ("parts", "text"),
    [
        ([], "Invalid empty client quota entity"),
        ([("topic", "t")], "Unhandled client quota entity type: topic"),
        ([("user", "")], "Empty user not supported"),
        ([("user", "a"), ("ip", "1.1.1.1")], "Invalid empty client quota entity"),
        ([("ip", "not an address")], "is not a valid IP"),
    ],
)
def test_an_entity_that_is_none_is_refused(parts: list[tuple[str, str | None]], text: str) -> None:
    with pytest.raises(KafkaError) as refused:
        quota_entity(parts)
    assert text in refused.value.message


@pytest.mark.parametrize(
    ("entity", "key", "value"),
    [
        (QuotaEntity("a"), "connection_creation_rate", 1.0), (QuotaEntity("a"), "nothing", 1.0),
        (QuotaEntity("a"), KEY, 0.0), (QuotaEntity("a"), KEY, -1.0), (QuotaEntity("a"), KEY, 1.5),
        (QuotaEntity("a"), KEY, float("nan")), (QuotaEntity("a"), "request_percentage", float("inf")),
        (QuotaEntity(ip="1.1.1.1"), KEY, 1.0),
    ],
)  # fmt: skip
def test_a_value_that_is_no_limit_is_refused(entity: QuotaEntity, key: str, value: float) -> None:
    with pytest.raises(KafkaError):
        check_value(entity, key, value)
    check_value(entity, key, None)


def test_a_filter_matches_by_name_by_default_and_any() -> None:
    every = [QuotaEntity("a"), QuotaEntity(DEFAULT_ENTITY), QuotaEntity("a", "c"), QuotaEntity(None, "c")]

    def matching(strict: bool = False, **components: tuple[int, str | None]) -> list[QuotaEntity]:
        named = {kind.replace("_", "-"): way for kind, way in components.items()}
        return [entity for entity in every if QuotaFilter(named, strict).matches(entity)]

    assert matching() == every
    assert matching(user=(0, "a")) == [every[0], every[2]]
    assert matching(strict=True, user=(0, "a")) == [every[0]]
    assert matching(user=(1, None)) == [every[1]]
    assert matching(user=(2, None)) == every[:3]
    assert matching(user=(2, None), client_id=(2, None)) == [every[2]]


@settings(max_examples=examples(200))
@given(st.lists(st.tuples(st.integers(0, 3000), st.integers(1, 5000)), min_size=1, max_size=60), st.integers(10, 5000))
def test_a_client_that_pauses_as_it_is_told_keeps_to_its_rate(uses: list[tuple[int, int]], bound: int) -> None:
    bucket, now_ms, total = UseBucket(bound, 0.25, 0), 0, 0
    for wait_ms, amount in uses:
        now_ms += wait_ms
        pause_ms = bucket.take(amount, now_ms)
        assert 0 <= pause_ms <= USE_PAUSE_MS_MAX
        now_ms += pause_ms
        assert bucket.owed_ms(now_ms) == 0
        total += amount
        assert total <= bound * (now_ms / 1000 + 0.25) + 1e-6 * total


@pytest.mark.parametrize("size", [10, 1000, 50_000])
@pytest.mark.parametrize("rest_ms", [0, 60_000])
def test_a_producer_that_never_rests_keeps_within_five_percent_over_ten_seconds(size: int, rest_ms: int) -> None:
    bucket = UseBucket(100_000, 0.25, 0)
    now_ms, total = float(rest_ms), 0
    while now_ms < rest_ms + 10_000:
        total += size
        now_ms += 0.01 + bucket.take(size, now_ms)
    assert total / 10 == pytest.approx(100_000, rel=0.05)


def test_partitions_are_made_up_to_what_was_saved_and_then_at_the_rate() -> None:
    bucket = UseBucket(2, 11, 0)
    bucket.count(30, 0)  # accepted whole
    assert bucket.owed_ms(0) == 4001
    assert bucket.owed_ms(4000) == 0
    bucket.count(1, 4000)
    assert bucket.owed_ms(4000) == 501


def test_the_longest_pause_is_an_hour() -> None:
    assert UseBucket(0.001, 1, 0).take(1 << 40, 0) == USE_PAUSE_MS_MAX
