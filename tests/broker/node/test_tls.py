"""Listeners under TLS: clients are served, users are those of certificates, whoever speaks plainly is refused."""

import asyncio
import json
import logging
import socket
import ssl
import struct
import subprocess
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from pqbroker.broker.ground.listeners import HTTP_NAME, Address, Listener, parse_listeners
from pqbroker.broker.ground.seldom_log import SeldomLog
from pqbroker.broker.ground.tls import handshakes, tls_connection, tls_listeners
from pqbroker.broker.kafka.net import connection
from pqbroker.broker.node.server import Server
from pqbroker.client import AsyncClient, ClientError
from pqbroker.client import Client as ClientOfTables
from pqbroker.conf.broker import BrokerSettings
from pqbroker.conf.declare import ConfigError, parse
from pqbroker.protocol.messages.api_versions import ApiVersionsRequest
from pqbroker.protocol.messages.describe_configs import DescribeConfigsRequest, DescribeConfigsResource
from pqbroker.protocol.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from pqbroker.protocol.messages.find_coordinator import FindCoordinatorRequest
from pqbroker.protocol.messages.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)
from pqbroker.protocol.messages.metadata import MetadataRequest, MetadataRequestTopic
from pqbroker.security.protocols import SecurityProtocol
from pqbroker.storage.memory import MemoryEngine
from tests.broker.conftest import Clock, make_batch, produce_request, until
from tests.broker.wire import Client
from tests.support.authority import Certificates, certificates, write_certificates

MIB = 1 << 20
VERSIONS = ApiVersionsRequest(client_software_name="t", client_software_version="1")
HTTPS = Listener(HTTP_NAME, Address("127.0.0.1", 0), protocol=SecurityProtocol.SSL)


@pytest.fixture(scope="module")
def made() -> Certificates:
    return certificates()


@pytest.fixture(autouse=True)
def every_line(monkeypatch: pytest.MonkeyPatch) -> None:
    """A line that a test before wrote hides none of this one."""
    for module in (handshakes, tls_connection, connection):
        monkeypatch.setattr(module, "seldom", SeldomLog(logging.getLogger("pqbroker")))


@asynccontextmanager
async def serving(
    listeners: str, settings: dict[str, str], http: Listener | None = None
) -> AsyncIterator[Server]:
    server = Server(
        parse(BrokerSettings, settings), MemoryEngine(256 * MIB), parse_listeners(listeners), http, Clock()
    )
    await server.start()
    try:
        yield server
    finally:
        await server.stop()


def context(made: Certificates, *, client: bool = False) -> ssl.SSLContext:
    found = ssl.create_default_context(cafile=str(made.ca))
    if client:
        found.load_cert_chain(made.client)
    return found


async def connect(server: Server, tls: ssl.SSLContext, index: int = 0) -> Client:
    port = server.listeners[index].address.port
    return Client(*await asyncio.open_connection("127.0.0.1", port, ssl=tls, server_hostname="localhost"))


async def refused(server: Server, tls: ssl.SSLContext) -> None:
    """Try a connection. In TLS 1.3 a client learns at its first read that its certificate is refused."""
    try:
        client = await connect(server, tls)
    except (ssl.SSLError, ConnectionError):
        return
    with pytest.raises((ssl.SSLError, ConnectionError, asyncio.IncompleteReadError)):
        await client.ask(VERSIONS)
    client.abort()


def principals(server: Server) -> list[str]:
    return [facts.principal for _, facts in server.node.connections.after(0, 100)]


async def test_records_of_all_sizes_come_back_whole(made: Certificates) -> None:
    async with serving("SSL://127.0.0.1:0", made.listener()) as server:
        client = await connect(server, context(made))
        await client.ask(MetadataRequest(topics=[MetadataRequestTopic(name="t")]))
        sizes = (1, 1000, 16_383, 16_384, 16_385, 65_536, 300_000, 900_000)
        for number, size in enumerate(sizes):
            batch = make_batch(bytes([number]) * size)
            response = await client.ask(produce_request("t", batch), 9)
            code = response.responses[0].partition_responses[0].error_code
            assert code == 0
        partition = FetchPartition(partition=0, fetch_offset=0, partition_max_bytes=50 * MIB)
        request = FetchRequest(
            max_wait_ms=0, min_bytes=1, max_bytes=50 * MIB, topics=[FetchTopic(topic="t", partitions=[partition])]
        )
        (found,) = (await client.ask(request, 11)).responses[0].partitions
        assert all(bytes([number]) * size in bytes(found.records) for number, size in enumerate(sizes))
        await client.close()


async def test_pipelined_requests_in_one_record_are_each_answered(made: Certificates) -> None:
    async with serving("SSL://127.0.0.1:0", made.listener()) as server:
        client = await connect(server, context(made))
        for _ in range(1000):
            client.send(VERSIONS)
        for _ in range(1000):
            assert (await client.receive()).error_code == 0
        await client.close()


async def test_a_certificate_is_the_user(made: Certificates) -> None:
    async with serving("SSL://127.0.0.1:0,PLAINTEXT://127.0.0.1:0", made.asks_clients()) as server:
        client = await connect(server, context(made, client=True))
        await client.ask(VERSIONS)
        plain = await Client.connect("127.0.0.1", server.listeners[1].address.port)
        await plain.ask(VERSIONS)
        assert sorted(principals(server)) == ["User:ANONYMOUS", "User:CN=client"]
        await client.close()
        await plain.close()


async def test_rules_make_the_user_of_a_certificate(made: Certificates) -> None:
    rules = {"listener.name.ssl.ssl.principal.mapping.rules": "RULE:^CN=(.*)$/$1-x/U,DEFAULT"}
    async with serving("SSL://127.0.0.1:0", {**made.asks_clients(), **rules}) as server:
        client = await connect(server, context(made, client=True))
        await client.ask(VERSIONS)
        assert principals(server) == ["User:CLIENT-X"]
        await client.close()


async def test_a_certificate_that_no_rule_fits_is_refused(
    made: Certificates, caplog: pytest.LogCaptureFixture
) -> None:
    rules = {"ssl.principal.mapping.rules": "RULE:^CN=other$/x/"}
    async with serving("SSL://127.0.0.1:0", {**made.asks_clients(), **rules}) as server:
        await refused(server, context(made, client=True))
        assert "no rule of ssl.principal.mapping.rules fits 'CN=client'" in caplog.text


@pytest.mark.parametrize(
    ("first", "reason"),
    [
        (struct.pack(">ihhih", 10, 18, 0, 1, 0), "the client speaks plain Kafka, not TLS; set its security.protocol"),
        (b"GET / HTTP/1.1\r\n\r\n", "the client speaks HTTP, not TLS"),
        (b"\x16\x03\x01\x00\x05hello", "TLS handshake of 127.0.0.1"),
    ],
)
async def test_what_is_no_tls_is_closed_with_a_line_in_the_log(
    made: Certificates, caplog: pytest.LogCaptureFixture, first: bytes, reason: str
) -> None:
    async with serving("SSL://127.0.0.1:0", made.listener()) as server:
        reader, writer = await asyncio.open_connection("127.0.0.1", server.kafka_address.port)
        writer.write(first)
        await reader.read()
        await until(lambda: reason in caplog.text)
        assert "TLS handshake of 127.0.0.1:" in caplog.text
        assert "with listener SSL failed" in caplog.text
        writer.close()


async def test_a_client_of_tls_on_a_plain_listener_is_named(
    made: Certificates, caplog: pytest.LogCaptureFixture
) -> None:
    async with serving("PLAINTEXT://127.0.0.1:0", {}) as server:
        with pytest.raises((ssl.SSLError, ConnectionError)):
            await connect(server, context(made))
        assert "a client at 127.0.0.1 speaks TLS to the listener PLAINTEXT" in caplog.text


@pytest.mark.parametrize("trusts", [True, False])
async def test_a_client_that_is_refused_is_named_with_the_cause(
    made: Certificates, caplog: pytest.LogCaptureFixture, tmp_path: Path, *, trusts: bool
) -> None:
    """Without a certificate, and with one of strangers."""
    tls = context(made)
    if not trusts:
        tls.load_cert_chain(write_certificates(tmp_path).client)
    async with serving("SSL://127.0.0.1:0", made.asks_clients()) as server:
        await refused(server, tls)
        cause = "has no certificate, and ssl.client.auth is required" if trusts else "certificate is refused: "
        await until(lambda: cause in caplog.text)


async def test_each_listener_sends_its_clients_to_its_own_address(made: Certificates) -> None:
    advertised = {"advertised.listeners": "SSL://secure.example:1,PLAINTEXT://plain.example:2"}
    async with serving("SSL://127.0.0.1:0,PLAINTEXT://127.0.0.1:0", {**made.listener(), **advertised}) as server:
        encrypted = await connect(server, context(made))
        plain = await Client.connect("127.0.0.1", server.listeners[1].address.port)
        for client, expected in ((encrypted, ("secure.example", 1)), (plain, ("plain.example", 2))):
            (broker,) = (await client.ask(MetadataRequest(topics=None))).brokers
            assert (broker.host, broker.port) == expected
            (found,) = (await client.ask(FindCoordinatorRequest(coordinator_keys=["g"], key_type=0))).coordinators
            assert (found.host, found.port) == expected
            await client.close()


async def test_handshakes_and_certificates_are_in_the_metrics(made: Certificates) -> None:
    plain_http = Listener(HTTP_NAME, Address("127.0.0.1", 0))
    async with serving("SSL://127.0.0.1:0", made.asks_clients(), plain_http) as server:
        await refused(server, context(made))
        client = await connect(server, context(made, client=True))
        await client.ask(VERSIONS)
        assert server.http_address is not None
        get = b"GET /metrics HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n"
        page = (await call(server.http_address.port, get, None)).decode()
        assert 'pqbroker_tls_handshakes_total{outcome="made"} 1.0' in page
        assert 'pqbroker_tls_handshakes_total{outcome="failed"} 1.0' in page
        assert "pqbroker_tls_handshakes_under_way 0.0" in page
        assert 'pqbroker_tls_certificate_days_left{listener="SSL"} 1.9' in page
        await client.close()


async def test_no_part_of_a_file_leaves_under_tls(made: Certificates) -> None:
    async with serving("SSL://127.0.0.1:0,PLAINTEXT://127.0.0.1:0", made.listener()) as server:
        client = await connect(server, context(made))
        await client.ask(VERSIONS)
        (encrypted,) = server.node.connections
        assert not encrypted.peer.takes_files
        await client.close()


async def test_a_listener_without_a_certificate_does_not_start(made: Certificates) -> None:
    with pytest.raises(ConfigError, match=r"listener SSL: no certificate is set: give ssl\.keystore\.location"):
        async with serving("SSL://127.0.0.1:0", {}):
            pass
    with pytest.raises(ConfigError, match="listener HTTP: no certificate is set"):
        async with serving("PLAINTEXT://127.0.0.1:0", {}, HTTPS):
            pass


async def call(port: int, request: bytes, tls: ssl.SSLContext | None) -> bytes:
    host = "localhost" if tls else None
    reader, writer = await asyncio.open_connection("127.0.0.1", port, ssl=tls, server_hostname=host)
    writer.write(request)
    answer = await reader.read()
    writer.close()
    return answer


async def test_http_is_served_under_tls_and_a_plain_request_is_sent_there(made: Certificates) -> None:
    own = {f"listener.name.http.{name}": value for name, value in made.listener().items()}
    async with serving("PLAINTEXT://127.0.0.1:0", own, HTTPS) as server:
        assert server.http_address is not None
        port = server.http_address.port
        assert server.http_url == f"https://127.0.0.1:{port}"
        get = b"GET /v1/topics?limit=1 HTTP/1.1\r\nHost: localhost:%d\r\nConnection: close\r\n\r\n" % port
        assert (await call(port, get, context(made))).startswith(b"HTTP/1.1 200 OK")
        assert b"Location: https://localhost:%d/v1/topics?limit=1\r\n" % port in await call(port, get, None)
        refused = await call(port, get.replace(b"GET", b"POST"), None)
        assert refused.startswith(b"HTTP/1.1 400 ")
        assert b"TLS_REQUIRED" in refused
        assert await call(port, b"\0\0\0\1", None) == b""


async def test_the_python_clients_take_https(made: Certificates) -> None:
    own = {f"listener.name.http.{name}": value for name, value in made.asks_clients().items()}
    async with serving("PLAINTEXT://127.0.0.1:0", own, HTTPS) as server:
        url, tls = server.http_url, context(made, client=True)

        def asked() -> list[Any]:
            with ClientOfTables(url, tls=tls) as client:
                return [client.tables(), client.tables()]  # the second on the connection of the first

        assert await asyncio.to_thread(asked) == [[], []]
        async with AsyncClient(url, tls=tls) as client:
            assert await client.tables() == []
        with pytest.raises(ClientError, match=r"NO_BROKER|CONNECTION_LOST"):
            await AsyncClient(url, ca=str(made.ca)).tables()
        with pytest.raises(ClientError, match=r"NO_BROKER.*CERTIFICATE_VERIFY_FAILED"):
            await AsyncClient(url).tables()
    for address, ca in (("127.0.0.1:1", str(made.ca)), ("https://127.0.0.1:1", "/nowhere")):
        with pytest.raises(ClientError, match="INVALID_"):
            ClientOfTables(address, ca=ca)


async def test_handshakes_that_are_never_finished_are_cut(
    made: Certificates, caplog: pytest.LogCaptureFixture
) -> None:
    settings = {**made.listener(), "pqbroker.handshake.timeout.ms": "100"}
    async with serving("SSL://127.0.0.1:0", settings) as server:
        reader, writer = await asyncio.open_connection("127.0.0.1", server.kafka_address.port)
        assert await reader.read() == b""
        assert "not finished within 0.1 s, the limit of pqbroker.handshake.timeout.ms" in caplog.text
        writer.close()


@pytest.mark.parametrize("attacker", ["127.0.0.2"])
async def test_handshakes_of_one_address_leave_room_for_another(made: Certificates, attacker: str) -> None:
    settings = {**made.listener(), "pqbroker.handshakes.max": "16"}
    async with serving("SSL://127.0.0.1:0", settings) as server:
        place = ("127.0.0.1", server.kafka_address.port)
        idle = [socket.create_connection(place, source_address=(attacker, 0)) for _ in range(40)]
        assert server.handshakes is not None
        await until(lambda: server.handshakes.failed >= 26)  # type: ignore[union-attr]
        assert server.handshakes.under_way == 14
        for _ in range(5):
            client = await connect(server, context(made))
            assert (await client.ask(VERSIONS)).error_code == 0
            await client.close()
        assert server.handshakes.under_way == 14
        for each in idle:
            each.close()


async def test_handshakes_of_one_address_give_way_to_its_own(
    made: Certificates, caplog: pytest.LogCaptureFixture
) -> None:
    settings = {**made.listener(), "pqbroker.handshakes.max": "8"}
    async with serving("SSL://127.0.0.1:0", settings) as server:
        idle = [socket.create_connection(("127.0.0.1", server.kafka_address.port)) for _ in range(30)]
        await until(lambda: "8 are under way, the limit of pqbroker.handshakes.max" in caplog.text)
        client = await connect(server, context(made))
        assert (await client.ask(VERSIONS)).error_code == 0
        await client.close()
        for each in idle:
            each.close()


async def test_a_handshake_of_too_many_bytes_is_cut(
    made: Certificates, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tls_connection, "_HANDSHAKE_BYTES_MAX", 100)
    async with serving("SSL://127.0.0.1:0", made.listener()) as server:
        await refused(server, context(made))
        assert "more than 100 bytes came before it was done" in caplog.text


async def shown(server: Server, made: Certificates) -> str:
    """The common name of the broker's certificate for a new connection."""
    client = await connect(server, context(made))
    found: Any = client._writer.get_extra_info("peercert")
    await client.close()
    return str(found["subject"][0][0][1])


async def test_a_changed_file_is_taken_and_no_connection_is_dropped(
    made: Certificates, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    monkeypatch.setattr(tls_listeners, "CHANGE_LOOK_S", 0.02)
    path = tmp_path / "broker.pem"
    path.write_text(made.broker.read_text())
    async with serving("SSL://127.0.0.1:0", {**made.listener(), "ssl.keystore.location": str(path)}) as server:
        client = await connect(server, context(made))
        assert (await client.ask(VERSIONS)).error_code == 0
        path.write_text("cut")
        await until(lambda: "the certificate that was in force stays" in caplog.text)
        other = made.second_broker()
        path.write_text(other)
        async with asyncio.timeout(10):
            while await shown(server, made) != "second":
                pass
        assert "a changed certificate or setting of TLS is in force for new connections: CN=second" in caplog.text
        assert (await client.ask(VERSIONS)).error_code == 0
        await client.close()


PREFIX = "listener.name.ssl."


async def altered(client: Client, **values: str) -> tuple[int, str | None]:
    """Set settings of the listener SSL, names with _ for their dots."""
    configs = [
        AlterableConfig(name=PREFIX + name.replace("_", "."), config_operation=0, value=value)
        for name, value in values.items()
    ]
    resource = AlterConfigsResource(resource_type=4, resource_name="1", configs=configs)
    (answer,) = (await client.ask(IncrementalAlterConfigsRequest(resources=[resource]))).responses
    return answer.error_code, answer.error_message


async def test_a_key_store_is_changed_by_its_setting_and_a_wrong_one_is_refused(
    made: Certificates, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    other = tmp_path / "other.pem"
    other.write_text(made.second_broker())
    settings = {f"{PREFIX}{name}": value for name, value in made.listener().items()}
    async with serving("SSL://127.0.0.1:0", settings) as server:
        client = await connect(server, context(made))
        code, told = await altered(client, ssl_keystore_location="/nowhere")
        assert code == 42
        assert told == "listener SSL: cannot read ssl.keystore.location /nowhere: No such file or directory"
        code, told = await altered(client, ssl_keystore_location=str(other))
        assert code == 42
        assert told is not None
        assert "the new certificate is for CN=second, the one in force for CN=broker; set ssl.allow.dn.changes" in told
        assert await shown(server, made) == "broker"
        await client.close()
    async with serving("SSL://127.0.0.1:0", {**settings, "ssl.allow.dn.changes": "true"}) as server:
        client = await connect(server, context(made))
        assert await altered(client, ssl_keystore_location=str(other)) == (0, None)
        assert await shown(server, made) == "second"
        assert (await client.ask(VERSIONS)).error_code == 0
        await client.close()


async def test_secrets_of_a_listener_are_never_shown(made: Certificates, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    certificate, key = made.second_broker().split("-----BEGIN PRIVATE")
    key = f"-----BEGIN PRIVATE{key}"
    allowed = {"ssl.allow.dn.changes": "true"}
    settings = {**made.listener(), **allowed, f"{PREFIX}ssl.key.password": "hidden-1"}
    async with serving("SSL://127.0.0.1:0", settings, Listener(HTTP_NAME, Address("127.0.0.1", 0))) as server:
        client = await connect(server, context(made))
        code, told = await altered(client, ssl_keystore_key=f"hidden-2{key}")
        assert code == 42
        assert "hidden" not in str(told)
        given = {"ssl_keystore_key": key, "ssl_keystore_certificate_chain": certificate}
        assert await altered(client, **given, ssl_keystore_location="", ssl_key_password="hidden-3") == (0, None)
        assert await shown(server, made) == "second"
        asked = DescribeConfigsResource(resource_type=4, resource_name="1", configuration_keys=None)
        answer = await client.ask(DescribeConfigsRequest(resources=[asked], include_synonyms=True))
        found = {each.name: each for each in answer.results[0].configs}
        for name in ("ssl.keystore.key", "ssl.key.password", "ssl.keystore.certificate.chain"):
            assert found[PREFIX + name].is_sensitive
            assert found[PREFIX + name].value is None
            assert [each.value for each in found[PREFIX + name].synonyms] in ([None], [None, None])
        assert server.http_address is not None
        get = b"GET /v1/settings?limit=1000 HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n"
        page = await call(server.http_address.port, get, None)
        assert b"listener.name.ssl.ssl.key.password" in page
        secret = key.splitlines()[1]
        for text in (str(answer), page.decode(), caplog.text):
            assert "hidden" not in text.replace("[hidden]", "")
            assert secret not in text
        await client.close()


async def test_certificates_change_under_load_and_no_client_notices(
    made: Certificates, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tls_listeners, "CHANGE_LOOK_S", 0.005)
    path = tmp_path / "broker.pem"
    path.write_text(made.broker.read_text())
    async with serving("SSL://127.0.0.1:0", {**made.listener(), "ssl.keystore.location": str(path)}) as server:
        old = await connect(server, context(made))
        served = 0
        is_over = False

        async def load() -> None:
            nonlocal served
            while not is_over:
                client = await connect(server, context(made))
                for _ in range(5):
                    assert (await client.ask(VERSIONS)).error_code == 0
                served += 1
                await client.close()

        working = [asyncio.ensure_future(load()) for _ in range(4)]
        for number in range(20):
            beside = tmp_path / "new.pem"
            beside.write_text(made.second_broker() if number % 2 else made.broker.read_text())
            beside.rename(path)
            expected = "second" if number % 2 else "broker"
            while await shown(server, made) != expected:
                assert not any(task.done() for task in working)
            assert (await old.ask(VERSIONS)).error_code == 0
        is_over = True
        await asyncio.gather(*working)
        assert served > 20
        await old.close()


def test_a_start_without_security_loads_none_of_it() -> None:
    modules = "pqbroker.broker.node.serve, pqbroker.broker.node.server, pqbroker.broker.web.endpoints"
    text = f"import sys, {modules}\nprint(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", text], capture_output=True, text=True, check=True)
    loaded = set(done.stdout.split())
    assert loaded.isdisjoint(("cryptography", "jwt"))
    assert not {name for name in loaded if name.startswith("pqbroker.broker.ground.tls")}
    of_security = {name.removeprefix("pqbroker.security.") for name in loaded if name.startswith("pqbroker.security.")}
    kept_out = ("contexts", "distinguished_names", "issuing", "key_material", "pkcs12", "web_tokens")
    assert of_security.isdisjoint(kept_out)


async def test_handshakes_that_fail_are_in_the_audit_log(made: Certificates, tmp_path: Path) -> None:
    path = tmp_path / "audit.log"
    audited = {"pqbroker.audit.file": str(path), "pqbroker.handshake.timeout.ms": "3000"}
    async with serving("SSL://127.0.0.1:0", made.asks_clients() | audited) as server:
        address = (server.listeners[0].address.host, server.listeners[0].address.port)
        _, silent = await asyncio.open_connection(*address)
        plain, writer = await asyncio.open_connection(*address)
        writer.write(b"GET / HTTP/1.1\r\n\r\n")
        assert await plain.read() == b""
        writer.close()
        await refused(server, context(made))
        await until(lambda: "not finished" in path.read_text(encoding="utf-8"))
        silent.close()
    failed = [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]
    assert {(line["principal"], line["host"], line["operation"], line["resource"]) for line in failed} == {
        ("User:ANONYMOUS", "127.0.0.1", "HANDSHAKE", "listener SSL")
    }
    assert not any(line["allowed"] for line in failed)
    assert {line["detail"] for line in failed} == {
        "the client speaks HTTP, not TLS; set its security.protocol",
        "the client has no certificate, and ssl.client.auth is required",
        "cut: not finished within 3 s, pqbroker.handshake.timeout.ms",
    }
