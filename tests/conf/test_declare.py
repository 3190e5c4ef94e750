"""What a declaration accepts and how it shows a value."""

from dataclasses import dataclass, fields
from typing import Any

import pytest

from pqbroker.conf.broker import BrokerSettings
from pqbroker.conf.declare import (
    ConfigError,
    Effect,
    Kind,
    declarations,
    declared,
    parse,
    rows,
    set_in_vain,
    setting,
    stored_names,
    superseded,
    without_effect,
)
from pqbroker.conf.listener_settings import listener_value, tls_texts
from pqbroker.conf.topic import TopicConfig


@dataclass(frozen=True, slots=True)
class _Example:
    on: bool = setting("on", Kind.BOOLEAN, False, "")
    short: int = setting("short", Kind.SHORT, 1, "")
    level: int = setting("level", Kind.INT, 1, "", low=-1, high=9)
    ratio: float = setting("ratio", Kind.DOUBLE, 0.5, "")
    policies: tuple[str, ...] = setting("policies", Kind.LIST, ("a",), "", choices=("a", "b"))
    places: tuple[str, ...] = setting("places", Kind.LIST, (), "", low=0)
    unset: int | None = setting("unset", Kind.LONG, None, "")
    vain: str = without_effect("vain", Kind.STRING, "", "")
    others: tuple[tuple[str, Any], ...] = rows(
        "# For others.\nother.size | int | 4 | 1..9\nother.name | string | null\n! No lock.\nlock | list | a"
    )


def test_texts_become_values_of_the_declared_kind() -> None:
    texts = {"on": "TRUE", "short": " 3 ", "level": "-1", "ratio": "1e-1", "policies": "a, b", "vain": "x"}
    expected = _Example(True, 3, -1, 0.1, ("a", "b"), ("0", "12"), None, "x")
    assert parse(_Example, {**texts, "places": "0,12"}) == expected


def test_a_row_of_a_table_is_a_setting_like_any_other() -> None:
    known = declarations(_Example)
    given = parse(_Example, {"other.size": "5", "lock": "a"})
    assert [known[name].of(given) for name in ("other.size", "other.name", "lock")] == ["5", "", "a"]
    assert (known["other.size"].doc, known["other.size"].effect) == ("For others.", Effect.NONE)
    assert (known["lock"].doc, known["lock"].effect) == ("No lock.", Effect.REFUSED)
    assert set_in_vain(given) == ["other.size"]


def test_what_is_not_given_keeps_its_default() -> None:
    assert parse(_Example, {}) == _Example()


@pytest.mark.parametrize(
    ("name", "text", "message"),
    [
        ("on", "yes", "on is 'yes'; give true or false"),
        ("level", "one", "level is 'one'; give a number"),
        ("level", "1.5", "level is '1.5'; give a number"),
        ("level", "-2", "level is -2; the least allowed is -1"),
        ("level", "10", "level is 10; the most allowed is 9"),
        ("short", "32768", "short is 32768, which does not fit a Kafka short"),
        ("policies", "a,c", "policies is 'a,c'; choose from a, b"),
        ("places", "1,two", "places has 'two'; give numbers from 0, such as 0,3"),
        ("places", "-1", "places has '-1'; give numbers from 0, such as 0,3"),
        ("places", "03", "places has '03'; give numbers from 0, such as 0,3"),
        ("other", "1", r"unknown setting other; did you mean other\.size\?"),
        ("zzz", "1", "unknown setting zzz"),
        ("other.size", "10", "other.size is 10; the most allowed is 9"),
        ("lock", "b", "lock cannot be set: no lock; leave it out"),
    ],
)
def test_a_bad_text_is_refused_with_cause_and_cure(name: str, text: str, message: str) -> None:
    with pytest.raises(ConfigError, match=f"^{message}$"):
        parse(_Example, {name: text})


@pytest.mark.parametrize("text", ["nan", "inf", "-inf", "1_000"])
def test_a_number_is_a_finite_one_in_plain_digits(text: str) -> None:
    with pytest.raises(ConfigError, match="give a number"):
        parse(_Example, {"ratio": text})


@pytest.mark.parametrize("settings", [BrokerSettings, TopicConfig])
def test_every_default_is_allowed_and_reads_back_from_its_shown_form(settings: type) -> None:
    for one in declarations(settings).values():
        if one.default is None:
            assert one.format(one.default) == ""
        else:
            assert one.parse(one.format(one.default)) == one.default, one.name


@pytest.mark.parametrize("settings", [BrokerSettings, TopicConfig])
def test_a_name_is_declared_once_and_has_a_meaning(settings: type) -> None:
    tables = [item.metadata["table"] for item in fields(settings) if "table" in item.metadata]
    lines = [line for table in tables for line in table.splitlines() if line[0] not in "#!="]
    of_listeners = [item for item in fields(settings) if "prefix" in item.metadata]
    assert len(declarations(settings)) == len(fields(settings)) - len(tables) - len(of_listeners) + len(lines)
    assert all(one.doc.endswith(".") for one in declarations(settings).values())


def test_a_setting_of_one_listener_is_that_of_all_under_its_prefix() -> None:
    name = "listener.name.inside.ssl.client.auth"
    found = parse(BrokerSettings, {name: "required", "ssl.client.auth": "requested"})
    assert listener_value(found, "INSIDE", "ssl.client.auth") == "required"
    assert listener_value(found, "OUTSIDE", "ssl.client.auth") == "requested"
    assert listener_value(BrokerSettings(), "INSIDE", "ssl.client.auth") == "none"
    assert tls_texts(found, "inside") == {"ssl.client.auth": "required"}
    one = declared(BrokerSettings, name)
    assert one is not None
    assert (one.name, one.of(found)) == (name, "required")
    with pytest.raises(ConfigError, match=rf"{name} is 'x'; choose from none, requested, required"):
        parse(BrokerSettings, {name: "x"})


def test_a_sasl_mechanism_may_stand_before_a_setting_of_one_listener() -> None:
    found = declared(BrokerSettings, "listener.name.inside.scram-sha-256.sasl.jaas.config")
    assert found is not None
    assert found.kind is Kind.PASSWORD


@pytest.mark.parametrize(
    "name", ["listener.name.", "listener.name.a", "listener.name.a.num.partitions", "listener.name.a.ssl.none"]
)
def test_what_is_no_setting_of_one_listener_is_unknown(name: str) -> None:
    assert declared(BrokerSettings, name) is None
    assert declared(TopicConfig, name) is None
    with pytest.raises(ConfigError, match="unknown setting listener"):
        parse(BrokerSettings, {name: "1"})


@pytest.mark.parametrize("settings", [BrokerSettings, TopicConfig])
def test_kafkas_names_are_attributes_with_underscores(settings: type) -> None:
    for one in declarations(settings).values():
        if not one.effective and not one.is_row:
            assert one.attribute == one.name.replace(".", "_")


def test_settings_without_effect_that_were_changed_are_named() -> None:
    assert set_in_vain(parse(_Example, {"on": "true", "vain": "x"})) == ["vain"]
    assert set_in_vain(_Example()) == []


def test_every_topic_config_of_kafka_is_declared() -> None:
    kafkas = {name for name in declarations(TopicConfig) if not name.startswith(("pq.", "value.", "key."))}
    assert kafkas == {
        "cleanup.policy", "compression.gzip.level", "compression.lz4.level", "compression.type",
        "compression.zstd.level", "delete.retention.ms", "file.delete.delay.ms", "flush.messages", "flush.ms",
        "follower.replication.throttled.replicas", "index.interval.bytes", "leader.replication.throttled.replicas",
        "local.retention.bytes", "local.retention.ms", "max.compaction.lag.ms", "max.message.bytes",
        "message.timestamp.after.max.ms", "message.timestamp.before.max.ms", "message.timestamp.type",
        "min.cleanable.dirty.ratio", "min.compaction.lag.ms", "min.insync.replicas", "preallocate",
        "remote.log.copy.disable", "remote.log.delete.on.disable", "remote.storage.enable", "retention.bytes",
        "retention.ms", "segment.bytes", "segment.index.bytes", "segment.jitter.ms", "segment.ms",
        "unclean.leader.election.enable",
    }  # fmt: skip


@dataclass(frozen=True, slots=True)
class _Renamed:
    size: int = setting("new.size", Kind.INT, 1, "Size.", low=1, earlier="old.size")
    other: int = setting("other", Kind.INT, 1, "Other.")


def test_a_setting_is_known_by_its_earlier_name_too() -> None:
    assert parse(_Renamed, {"old.size": "5"}) == parse(_Renamed, {"new.size": "5"}) == _Renamed(size=5)
    assert declared(_Renamed, "old.size") is declared(_Renamed, "new.size") is declarations(_Renamed)["new.size"]
    assert declared(_Renamed, "odd.size") is None
    assert list(declarations(_Renamed)) == ["new.size", "other"]
    assert declarations(_Renamed)["new.size"].meaning == "Size. Earlier name, still accepted: old.size."


def test_a_bad_text_under_an_earlier_name_is_refused_by_the_name_of_now() -> None:
    with pytest.raises(ConfigError, match=r"^new.size is 0; the least allowed is 1$"):
        parse(_Renamed, {"old.size": "0"})


@pytest.mark.parametrize("names", [["old.size", "new.size"], ["new.size", "old.size"]])
def test_of_both_names_the_one_of_now_wins(names: list[str]) -> None:
    texts = {name: {"old.size": "5", "new.size": "6"}[name] for name in names}
    assert parse(_Renamed, texts) == _Renamed(size=6)
    assert superseded(_Renamed, texts) == {"old.size": "new.size"}
    assert stored_names(_Renamed, texts) == {"old.size": "6"}


def test_stores_keep_the_earlier_name() -> None:
    assert stored_names(_Renamed, {"new.size": "5", "other": "2", "foreign": "x"}) == {
        "old.size": "5", "other": "2", "foreign": "x",
    }  # fmt: skip
    assert superseded(_Renamed, {"old.size", "other"}) == {}


@pytest.mark.parametrize("settings", [BrokerSettings, TopicConfig])
def test_an_earlier_name_is_no_name_of_another_setting(settings: type) -> None:
    known = declarations(settings)
    earlier = [one.earlier for one in known.values() if one.earlier]
    assert len(set(earlier)) == len(earlier)
    assert known.keys().isdisjoint(earlier)
