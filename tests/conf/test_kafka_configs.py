"""Every public config of Kafka 4.3 is declared, with its type and default. The table beside this file lists them.

It was written from `LogConfig` and `AbstractKafkaConfig` of Kafka 4.3.1: kind, name, type, default, whether Kafka
documents it, whether a broker of Kafka's takes it while it runs, and the least and most or the words it takes.
"""

from pathlib import Path

import pytest

from pqbroker.conf.broker import BrokerSettings
from pqbroker.conf.declare import Effect, declarations
from pqbroker.conf.defaults import NODE_SETTINGS
from pqbroker.conf.dynamic import DYNAMIC
from pqbroker.conf.topic import TopicConfig

TABLE = Path(__file__).with_name("kafka_4_3_configs.tsv").read_text(encoding="utf-8")
ROWS = [tuple(line.split("\t")) for line in TABLE.splitlines()]
PUBLIC = [row[:4] for row in ROWS if row[4] == "public"]
SETTINGS = {"topic": TopicConfig, "broker": BrokerSettings}

# Described, and only their defaults taken: nothing would be protected by them.
ACCESS_CONTROL = ("sasl.", "ssl.engine.", "security.providers", "principal.builder.", "delegation.token.")
# Of these, what promises nothing by itself is taken, and so are those of logins.
TUNING = (
    "sasl.enabled.mechanisms", "sasl.jaas.config", "sasl.kerberos.", "sasl.login.refresh.",
    "sasl.oauthbearer.clock.", "sasl.oauthbearer.expected.", "sasl.oauthbearer.jwks.",
    "sasl.oauthbearer.scope.claim.name", "sasl.oauthbearer.sub.claim.name", "sasl.server.callback.handler.class",
    "sasl.server.max.receive.size",
)  # fmt: skip

# Type and default of ours that are not Kafka's.
DIFFERENT = {
    "node.id": (("INT", "1"), "Kafka has no default; a node alone needs none to be given"),
    "advertised.listeners": (("STRING", ""), "empty means the address that a client came on"),
    "max.connections": (("INT", "10000"), "everything has a limit"),
    "log.retention.check.interval.ms": (("LONG", "5000"), "a look costs microseconds"),
    "log.cleaner.io.max.bytes.per.second": (("DOUBLE", "1.7976931348623157e+308"), "Python writes it so"),
    "process.roles": (("LIST", ""), "Kafka has no default; a node has every role"),
    "controller.listener.names": (("LIST", ""), "Kafka has no default; a node is its own controller"),
}

OTHERWISE_LIMITED = {
    "segment.bytes": "topics of before Kafka 4.2 are set to less, and it changes nothing here",
    "log.segment.bytes": "as segment.bytes",
    "process.roles": "a list of roles that a node of Kafka's has; any is taken",
}

# Of replication, which Kafka takes while it runs and not from a file; its tools delete them.
THROTTLES = {
    "leader.replication.throttled.rate", "follower.replication.throttled.rate",
    "replica.alter.log.dirs.io.max.bytes.per.second",
}  # fmt: skip

OF_THE_AUTHORIZER = {"super.users", "allow.everyone.if.no.acl.found"}
"""Configs that StandardAuthorizer reads, and no list of Kafka's has."""
OF_EARLIER_KAFKAS = {"leader.imbalance.per.broker.percentage"}


@pytest.mark.parametrize(("kind", "name", "type_name", "default"), PUBLIC, ids=[f"{row[0]}-{row[1]}" for row in PUBLIC])
def test_a_config_of_kafkas_is_declared_as_kafka_has_it(kind: str, name: str, type_name: str, default: str) -> None:
    ours = declarations(SETTINGS[kind])[name]
    shown = "null" if ours.default is None else ours.format(ours.default)
    expected, _reason = DIFFERENT.get(name, ((type_name, default), ""))
    assert (ours.kind.name, shown) == expected
    assert (ours.effect is Effect.REFUSED) == (name.startswith(ACCESS_CONTROL) and not name.startswith(TUNING))


@pytest.mark.parametrize("row", ROWS, ids=[f"{row[0]}-{row[1]}" for row in ROWS])
def test_a_config_without_effect_takes_what_kafka_takes(row: tuple[str, ...]) -> None:
    kind, name, *_, allowed = row
    ours = declarations(SETTINGS[kind]).get(name)
    if ours is None or ours.effect is not Effect.NONE or name in OTHERWISE_LIMITED:
        return
    if ".." in allowed:
        least, most = ("" if limit is None else str(limit) for limit in (ours.low, ours.high))
        assert f"{least}..{most}" == allowed
    else:
        assert " ".join(sorted(ours.choices)) == allowed


def test_what_differs_is_something_of_kafkas_and_differs() -> None:
    theirs = {name: (type_name, default) for _, name, type_name, default in PUBLIC}
    assert all(theirs[name] != ours for name, (ours, _reason) in DIFFERENT.items())


def test_what_is_not_kafkas_says_so_by_its_name() -> None:
    theirs = {(kind, name) for kind, name, *_ in ROWS}
    own = {name for kind, of in SETTINGS.items() for name in declarations(of) if (kind, name) not in theirs}
    of_tables = {"value.invalid", "value.format", "value.avro.schema", "key.format", "key.avro.schema"}
    of_tables |= {f"{part}.registry{suffix}" for part in ("key", "value") for suffix in ("", ".subject")}
    others = {name for name in own if not name.startswith(("pq.", "pqbroker."))}
    assert others == OF_THE_AUTHORIZER | OF_EARLIER_KAFKAS | THROTTLES | of_tables


def test_what_kafka_changes_while_it_runs_is_changed_here() -> None:
    theirs = {row[1] for row in ROWS if row[5] == "dynamic"}
    assert theirs | THROTTLES == DYNAMIC


def test_what_a_node_gives_a_topic_are_configs_and_settings() -> None:
    assert declarations(TopicConfig).keys() >= NODE_SETTINGS.keys()
    assert all(name in declarations(BrokerSettings) for names in NODE_SETTINGS.values() for name in names)
