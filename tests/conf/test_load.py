"""Where settings come from, which place wins, and what a mistake is answered with."""

import string
from collections.abc import Mapping, Sequence
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pqbroker.conf.broker import BrokerSettings
from pqbroker.conf.declare import ConfigError, declarations, parse
from pqbroker.conf.load import environment_name, read_texts
from pqbroker.security.properties import read_properties


def load_settings(
    config_file: Path | None, environment: Mapping[str, str], assignments: Sequence[str] = ()
) -> BrokerSettings:
    return parse(BrokerSettings, read_texts(config_file, environment, assignments))


def _file(directory: Path, text: str) -> Path:
    path = directory / "server.properties"
    path.write_text(text, encoding="utf-8")
    return path


def test_nothing_given_is_all_defaults() -> None:
    assert load_settings(None, {"PATH": "/bin"}, []) == BrokerSettings()


def test_a_flag_wins_over_the_environment_over_the_file(tmp_path: Path) -> None:
    path = _file(tmp_path, "node.id=2\nnum.partitions=2\nmax.connections=2\n")
    environment = {"PQBROKER_NODE_ID": "3", "PQBROKER_NUM_PARTITIONS": "3"}
    settings = load_settings(path, environment, ["node.id=4"])
    assert (settings.node_id, settings.num_partitions, settings.max_connections) == (4, 3, 2)


def test_the_last_assignment_of_a_name_wins() -> None:
    assert load_settings(None, {}, ["node.id=4", "node.id=5"]).node_id == 5


def test_the_last_line_of_a_name_wins(tmp_path: Path) -> None:
    assert load_settings(_file(tmp_path, "node.id=4\nnode.id=5"), {}).node_id == 5


def test_a_value_may_hold_an_equals_sign() -> None:
    assert load_settings(None, {}, ["advertised.listeners=a=b"]).advertised_listeners == "a=b"


def test_every_setting_has_an_environment_variable_of_its_own() -> None:
    names = list(declarations(BrokerSettings))
    assert len({environment_name(name) for name in names}) == len(names)


def test_the_prefix_is_not_doubled_in_the_environment() -> None:
    assert environment_name("pqbroker.durability") == "PQBROKER_DURABILITY"
    assert load_settings(None, {"PQBROKER_DURABILITY": "none"}).durability == "none"


def test_what_others_put_under_our_prefix_is_let_be() -> None:
    for name in ("SERVICE_HOST", "PORT", "PORT_9092_TCP", "SPARK_JARS", "KAFKA_JARS", "BROKER", "HTTP", "PROFILE"):
        assert load_settings(None, {f"PQBROKER_{name}": "x"}) == BrokerSettings()


def test_the_settings_file_that_kafka_ships_is_taken(tmp_path: Path) -> None:
    text = """
# Licensed to nobody
process.roles=broker,controller
node.id=1
controller.quorum.bootstrap.servers=localhost:9093
listeners=PLAINTEXT://:9092,CONTROLLER://:9093
inter.broker.listener.name=PLAINTEXT
controller.listener.names=CONTROLLER
listener.security.protocol.map=CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT,SSL:SSL,SASL_PLAINTEXT:SASL_PLAINTEXT
num.network.threads=3
num.io.threads=8
socket.send.buffer.bytes=102400
socket.receive.buffer.bytes=102400
socket.request.max.bytes=104857600
log.dirs=/tmp/kraft-combined-logs
num.partitions=4
num.recovery.threads.per.data.dir=2
offsets.topic.replication.factor=1
share.coordinator.state.topic.replication.factor=1
share.coordinator.state.topic.min.isr=1
transaction.state.log.replication.factor=1
transaction.state.log.min.isr=1
#log.flush.interval.messages=10000
log.retention.hours=168
log.segment.bytes=1073741824
log.retention.check.interval.ms=300000
"""
    settings = load_settings(_file(tmp_path, text), {})
    assert (settings.num_partitions, settings.retention_check_interval_ms) == (4, 300_000)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("# c\n\nnod.id=1", ":3: unknown setting nod.id; did you mean node.id?"),
        ("zzz=1", ":1: unknown setting zzz; docs/settings.md lists the settings"),
        ("node.id=1\nnum.partitions=0", ":2: num.partitions is 0; the least allowed is 1"),
        ("a\\\nb=1\nnode.id=x", ":1: unknown setting ab"),
        ("ssl.client.auth=maybe", ":1: ssl.client.auth is 'maybe'; choose from none, requested, required"),
        ("listener.name.a.ssl.nothing=1", ":1: unknown setting listener.name.a.ssl.nothing"),
        ("authorizer.class.name=a.B", ":1: authorizer.class.name is 'a.B'; choose from '' (empty), org"),
    ],
)
def test_a_mistake_in_the_file_is_named_with_its_line(tmp_path: Path, text: str, message: str) -> None:
    path = _file(tmp_path, text)
    with pytest.raises(ConfigError) as caught:
        load_settings(path, {})
    assert str(caught.value).startswith(f"{path}{message}")


def test_a_file_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"cannot read the config file .*none: No such file or directory"):
        load_settings(tmp_path / "none", {})


def test_a_file_in_another_encoding_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "latin"
    path.write_bytes(b"node.id=1\nx=\xe9")
    with pytest.raises(ConfigError, match="is not UTF-8 at byte 12"):
        load_settings(path, {})


def test_a_mistake_in_the_environment_is_named_with_its_variable() -> None:
    with pytest.raises(ConfigError, match=r"environment variable PQBROKER_NODE_ID: node.id is 'x'; give a number"):
        load_settings(None, {"PQBROKER_NODE_ID": "x"})
    with pytest.raises(ConfigError, match=r"variable PQBROKER_NODE_IT: unknown setting node.it; did you mean node.id?"):
        load_settings(None, {"PQBROKER_NODE_IT": "1"})


def test_a_mistake_in_a_flag_is_named_with_the_flag() -> None:
    with pytest.raises(ConfigError, match=r"--set node.id: give NAME=VALUE"):
        load_settings(None, {}, ["node.id"])
    with pytest.raises(ConfigError, match=r"--set node.id=: node.id is ''; give a number"):
        load_settings(None, {}, ["node.id="])


@pytest.mark.parametrize(
    ("text", "entries"),
    [
        ("a=1", [(1, "a", "1")]),
        ("a = 1", [(1, "a", "1")]),
        ("a:1", [(1, "a", "1")]),
        ("a 1", [(1, "a", "1")]),
        ("  a\t=\t1 ", [(1, "a", "1 ")]),
        ("a = = 1", [(1, "a", "= 1")]),
        ("a", [(1, "a", "")]),
        ("a=", [(1, "a", "")]),
        ("#a=1\n ! b=2\n\n c=3", [(4, "c", "3")]),
        ("a=1\\\n   2\nb=3", [(1, "a", "12"), (3, "b", "3")]),
        ("a=1\\\\\nb=3", [(1, "a", "1\\"), (2, "b", "3")]),
        ("a=1\\", [(1, "a", "1")]),
        ("a\\=b\\ c=1", [(1, "a=b c", "1")]),
        ("a=\\u00e9\\t\\n\\q", [(1, "a", "é\t\nq")]),
        ("a=1\v2\u20283\nb=4", [(1, "a", "1\v2\u20283"), (2, "b", "4")]),
        ("a=1\r\nb=2\r\n", [(1, "a", "1"), (2, "b", "2")]),
    ],
)
def test_a_properties_file_is_read_as_java_reads_it(text: str, entries: list[tuple[int, str, str]]) -> None:
    assert list(read_properties(text)) == entries


@given(st.text(string.printable, max_size=200))
def test_any_text_reads_as_some_entries(text: str) -> None:
    assert len(list(read_properties(text))) <= text.count("\n") + text.count("\r") + 1


@given(st.text(st.characters(codec="utf-8"), max_size=20), st.text(st.characters(codec="utf-8"), max_size=20))
def test_an_escaped_entry_reads_back(name: str, value: str) -> None:
    line = "".join(f"\\u{ord(c):04x}" if ord(c) < 0x10000 else c for c in name)
    line += "=" + "".join(f"\\u{ord(c):04x}" if ord(c) < 0x10000 else c for c in value)
    assert list(read_properties(line)) == [(1, name, value)]


EARLIER, NOW = "pqbroker.compaction.dead.percent", "pqbroker.segment.emptying.dead.percent"


@pytest.mark.parametrize("place", ["file", "environment", "flag"])
def test_an_earlier_name_is_taken_from_every_place_and_the_log_says_the_new_one(
    place: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    path = _file(tmp_path, f"{EARLIER}=60\n") if place == "file" else None
    environment = {"PQBROKER_COMPACTION_DEAD_PERCENT": "60"} if place == "environment" else {}
    settings = load_settings(path, environment, [f"{EARLIER}=60"] if place == "flag" else [])
    assert settings.emptying_dead_percent == 60
    [line] = caplog.messages
    assert line.endswith(f"{EARLIER} is now called {NOW}; the next version accepts that name alone")


def test_of_both_names_the_new_one_wins_wherever_it_stands(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    path = _file(tmp_path, f"\n{NOW}=70\n")
    assert load_settings(path, {}, [f"{EARLIER}=60"]).emptying_dead_percent == 70
    told = f"--set {EARLIER}=60: {EARLIER} is ignored: {NOW}, its name now, is set too ({path}:2)"
    assert caplog.messages == [told]


def test_a_mistake_under_an_earlier_name_is_named_with_its_place() -> None:
    with pytest.raises(ConfigError, match=f"^--set {EARLIER}=0: {NOW} is 0; the least allowed is 1"):
        load_settings(None, {}, [f"{EARLIER}=0"])
