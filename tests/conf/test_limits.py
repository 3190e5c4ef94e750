"""The table of limits: its settings are declared, its tests are there, and no limit is left out."""

import re
from pathlib import Path

from pqbroker.conf.broker import BrokerSettings
from pqbroker.conf.declare import declarations
from pqbroker.conf.topic import TopicConfig
from tests.support.limits import LIMITS, Share

ROOT = Path(__file__).resolve().parents[2]
FILLED = "attacks/test_filled_budgets.py"
LIMITING = re.compile(r"max(\.|$)|slots|size\.limit")
NOT_OF_CLIENTS = {
    "log.message.timestamp.after.max.ms", "log.message.timestamp.before.max.ms", "message.timestamp.after.max.ms",
    "message.timestamp.before.max.ms", "log.cleaner.max.compaction.lag.ms", "max.compaction.lag.ms",
    "add.partitions.to.txn.retry.backoff.max.ms", "sasl.oauthbearer.jwks.endpoint.retry.backoff.max.ms",
}  # fmt: skip
"""What they bound does not grow."""


def test_the_settings_of_every_limit_are_declared() -> None:
    known = declarations(BrokerSettings).keys() | declarations(TopicConfig).keys()
    for limit in LIMITS:
        for name in limit.names:
            path, _, constant = name.partition(":")
            assert name in known or re.search(rf"^{constant}\b[^=]* = ", (ROOT / path).read_text("utf-8"), re.M), limit


def test_the_test_of_every_limit_is_there() -> None:
    for limit in LIMITS:
        path, _, name = limit.test.partition("::")
        assert f"def {name}(" in (ROOT / "tests" / path).read_text(encoding="utf-8"), limit


def test_what_addresses_share_is_filled_from_one_beside_another_by_a_test() -> None:
    for limit in LIMITS:
        assert (limit.share is Share.ADDRESS) == bool(limit.beside), limit
        if limit.beside:
            path, _, name = limit.beside.partition("::")
            source = (ROOT / "tests" / path).read_text(encoding="utf-8")
            assert f"def {name}(" in source, limit
            if path == FILLED:
                assert f'"{limit.names[0]}"' in source, limit


def test_every_setting_that_limits_is_in_the_table() -> None:
    listed = {name for limit in LIMITS for name in limit.names}
    for settings in (BrokerSettings, TopicConfig):
        for one in declarations(settings).values():
            if one.effective and LIMITING.search(one.name) and one.name not in NOT_OF_CLIENTS:
                assert one.name in listed, f"{one.name}: add it to tests/support/limits.py with a test that exceeds it"


def test_nothing_is_listed_twice() -> None:
    assert len({limit.what for limit in LIMITS}) == len(LIMITS)
