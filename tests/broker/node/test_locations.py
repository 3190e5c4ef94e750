"""Where a node listens and keeps its records: an option, the environment, a server.properties; and its log."""

import json
import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

import pytest

from pqbroker import __version__
from pqbroker.broker.ground.listeners import HTTP_NAME, AddressError, Listener, parse_address, parse_listeners
from pqbroker.broker.node.locations import Locations, Options, choose_locations
from pqbroker.conf.declare import ConfigError
from pqbroker.conf.load import read_texts

NOTHING = Options(None, None, None)
ENVIRONMENT = {
    "PQBROKER_LISTEN_KAFKA": "127.0.0.1:1", "PQBROKER_LISTEN_HTTP": "127.0.0.1:2", "PQBROKER_DATA_DIR": "/e",
}  # fmt: skip
TEXTS = {"listeners": "PLAINTEXT://127.0.0.1:3", "log.dirs": "/l"}


def places(options: Options, environment: Mapping[str, str], texts: Mapping[str, str]) -> tuple[str, str, str]:
    found = choose_locations(options, environment, texts)
    return ",".join(map(str, found.kafka)), str(found.http), found.data


def test_an_option_wins_over_the_environment_and_that_over_settings() -> None:
    typed = Options("127.0.0.1:4", "127.0.0.1:5", "/o")
    assert places(typed, ENVIRONMENT, TEXTS) == ("127.0.0.1:4", "127.0.0.1:5", "/o")
    assert places(NOTHING, ENVIRONMENT, TEXTS) == ("127.0.0.1:1", "127.0.0.1:2", "/e")
    assert places(NOTHING, {}, TEXTS) == ("127.0.0.1:3", "127.0.0.1:8092", "/l")
    assert places(NOTHING, dict.fromkeys(ENVIRONMENT, ""), {}) == ("127.0.0.1:9092", "127.0.0.1:8092", "./data")


def test_a_server_properties_of_kafka_takes_effect(tmp_path: Path) -> None:
    file = tmp_path / "server.properties"
    file.write_text(
        "process.roles=broker,controller\nlisteners=PLAINTEXT://:9092,CONTROLLER://:9093\n"
        "controller.listener.names=CONTROLLER\nlog.dirs=/tmp/logs\n"
    )
    found = choose_locations(NOTHING, {}, read_texts(file, ENVIRONMENT))
    http = Listener(HTTP_NAME, parse_address("127.0.0.1:8092"))
    assert found == Locations(parse_listeners("0.0.0.0:9092"), http, "/tmp/logs")


def test_the_map_gives_listeners_their_protocols(tmp_path: Path) -> None:
    file = tmp_path / "server.properties"
    text = "listeners=INSIDE://:9092,OUTSIDE://:9093,SSL://:9094\nlistener.security.protocol.map="
    file.write_text(text + "INSIDE:PLAINTEXT,outside:ssl,SSL:SASL_SSL,CONTROLLER:SSL\n")
    found = choose_locations(NOTHING, {}, read_texts(file, {})).kafka
    assert [each.protocol.value for each in found] == ["PLAINTEXT", "SSL", "SASL_SSL"]
    file.write_text(text + "INSIDE:PLAINTEXT\n")
    with pytest.raises(AddressError, match="map has no protocol for the listener OUTSIDE; add OUTSIDE:SSL"):
        choose_locations(NOTHING, {}, read_texts(file, {}))
    for wrong in ("INSIDE", "INSIDE:TLS", "A:SSL,a:SSL"):
        file.write_text(text + wrong + "\n")
        with pytest.raises(ConfigError, match=r"server\.properties:2: listener\.security\.protocol\.map is"):
            read_texts(file, {})


def test_a_listener_without_a_map_is_what_its_name_says() -> None:
    found = choose_locations(Options("SSL://127.0.0.1:1,OTHER://127.0.0.1:2", None, None), {}, {}).kafka
    assert [each.protocol.value for each in found] == ["SSL", "PLAINTEXT"]


@pytest.mark.parametrize("name", ["SASLPLAINTEXT", "SASL_SLL", "tls", "MY_SSL"])
def test_a_name_that_promises_a_protection_has_it_or_is_refused(name: str) -> None:
    options = Options(f"{name}://127.0.0.1:1", None, None)
    with pytest.raises(AddressError, match=f"the listener {name} would be plain"):
        choose_locations(options, {}, {})
    (one,) = choose_locations(options, {}, {"listener.security.protocol.map": f"{name}:SSL"}).kafka
    assert one.protocol.value == "SSL"


def test_http_is_encrypted_by_its_scheme_or_a_setting() -> None:
    encrypted = {"pqbroker.http.security.protocol": "SSL"}
    assert str(choose_locations(Options(None, "https://127.0.0.1:1", None), {}, {}).http) == "https://127.0.0.1:1"
    assert str(choose_locations(Options(None, "127.0.0.1:1", None), {}, encrypted).http) == "https://127.0.0.1:1"
    assert str(choose_locations(Options(None, "http://127.0.0.1:1/", None), {}, encrypted).http) == "127.0.0.1:1"
    assert str(choose_locations(NOTHING, {"PQBROKER_LISTEN_HTTP": "https://[::1]:1"}, {}).http) == "https://[::1]:1"
    with pytest.raises(AddressError, match="begins with ftp://; give HOST:PORT, http:// or https:// before it"):
        choose_locations(Options(None, "ftp://127.0.0.1:1", None), {}, {})


def test_what_is_wrong_is_named_by_its_place(tmp_path: Path) -> None:
    with pytest.raises(AddressError, match="PQBROKER_LISTEN_KAFKA: 'x'"):
        choose_locations(NOTHING, {"PQBROKER_LISTEN_KAFKA": "x"}, {})
    with pytest.raises(AddressError, match="PQBROKER_LISTEN_HTTP: 'x'"):
        choose_locations(NOTHING, {"PQBROKER_LISTEN_HTTP": "x"}, {})
    with pytest.raises(AddressError, match="listeners: 'x'"):
        choose_locations(NOTHING, {}, {"listeners": "x"})
    with pytest.raises(ConfigError, match=r"log\.dirs is '/a,/b'; give one directory"):
        choose_locations(NOTHING, {}, {"log.dirs": "/a,/b"})
    (tmp_path / "meta.properties").write_text("version=1\n")
    with pytest.raises(ConfigError, match="holds logs of Apache Kafka"):
        choose_locations(NOTHING, {}, {"log.dirs": str(tmp_path)})


@pytest.mark.parametrize("form", ["text", "json"])
def test_the_environment_starts_a_node_whose_first_line_says_what_it_found(tmp_path: Path, form: str) -> None:
    told = {
        "PQBROKER_LISTEN_KAFKA": "127.0.0.1:0", "PQBROKER_LISTEN_HTTP": "127.0.0.1:0",
        "PQBROKER_DATA_DIR": str(tmp_path / "data"), "PQBROKER_LOG_FORMAT": form,
    }  # fmt: skip
    process = subprocess.Popen(
        [sys.executable, "-P", "-m", "pqbroker", "serve"],
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=os.environ | told,
    )  # fmt: skip
    assert process.stdout is not None
    assert process.stdout.readline().endswith(f"data={tmp_path / 'data'}\n")
    process.terminate()
    _, errors = process.communicate(timeout=30)
    lines = errors.splitlines()
    said = [json.loads(line)["message"] for line in lines] if form == "json" else lines
    assert any(f"pqbroker {__version__} on Python " in line and "0 topics, 0 partitions" in line for line in said)
