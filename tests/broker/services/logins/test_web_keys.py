"""Keys of an authorization server: where they are read, how often, and what is no key set."""

import asyncio
import json
import ssl
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from pqbroker.broker.node.bearer_start import load_keys
from pqbroker.broker.services.logins import web_keys
from pqbroker.broker.services.logins.web_keys import KeyAddress, WebKeys, backoff_ms, check_url, read_address
from pqbroker.conf.broker import BrokerSettings
from pqbroker.conf.declare import ConfigError, parse
from pqbroker.conf.oauth import JWKS_URL
from pqbroker.security.errors import SecurityError
from pqbroker.security.jaas import OAUTH_MODULE
from pqbroker.security.web_tokens import WEB_KEYS_MAX, read_web_keys
from tests.broker.conftest import until
from tests.support.authority import certificates
from tests.support.web_tokens import SigningKey, key_set, publish

KEY = SigningKey()


def address(url: str, context: ssl.SSLContext | None = None) -> KeyAddress:
    return KeyAddress(url, refresh_ms=3_600_000, backoff_ms=100, backoff_ms_max=10_000, context=context)


class Server:
    """A server over HTTP that answers what it is set to."""

    def __init__(self, context: ssl.SSLContext | None = None) -> None:
        """`context`: that of TLS; None: it is plain."""
        outer = self
        self.status, self.body, self.asked = 200, key_set(KEY), 0

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                outer.asked += 1
                self.send_response(outer.status)
                self.send_header("Location", "http://127.0.0.1:9/")
                self.send_header("Content-Length", str(len(outer.body)))
                self.end_headers()
                self.wfile.write(outer.body)

            def log_request(self, code: int | str = "-", size: int | str = "-") -> None:
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        if context is not None:
            self._server.socket = context.wrap_socket(self._server.socket, server_side=True)
        self.url = f"{'https' if context else 'http'}://127.0.0.1:{self._server.server_address[1]}/keys"
        self._thread = threading.Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.01})
        self._thread.start()

    def close(self) -> None:
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()


@pytest.fixture
def server() -> Iterator[Server]:
    made = Server()
    yield made
    made.close()


@pytest.mark.parametrize(
    "data",
    [b"", b"[]", b"{}", b'{"keys": 1}', b'{"keys": []}', b"[" * 100_000, json.dumps({"keys": [{}] * 101}).encode()],
)  # fmt: skip
def test_what_is_no_key_set_is_refused(data: bytes) -> None:
    with pytest.raises(SecurityError):
        read_web_keys(data)
    assert WEB_KEYS_MAX == 100


def test_keys_that_sign_no_tokens_are_left_out() -> None:
    kept = [SigningKey(name, name) for name in ("RS256", "ES256", "ES384", "ES512", "EdDSA")]
    weak = SigningKey("weak", "RS256", rsa_bits=1024).public
    others = [
        {"kty": "oct", "k": "c2VjcmV0", "kid": "secret"}, {**KEY.public, "use": "enc"}, {**KEY.public, "x": "!"},
        {**KEY.public, "alg": "HS256"}, {**KEY.public, "crv": "P-999"}, {"kty": "RSA"}, {"kty": 7}, 7, None,
        {**KEY.public, "kid": 7}, weak,
    ]  # fmt: skip
    keys = read_web_keys(json.dumps({"keys": [*others, *(key.public for key in kept)]}).encode())
    assert [key.key_id for key in keys] == [key.key_id for key in kept]


@pytest.mark.parametrize(
    "url", ["http://issuer.example/keys", "ftp://issuer.example/keys", "https:///keys", "file://other/keys", "keys", ""]
)
def test_keys_come_from_no_address_that_others_can_change(url: str) -> None:
    with pytest.raises(ConfigError, match=r"give https://HOST/PATH"):
        check_url(url)


@pytest.mark.parametrize("url", ["https://issuer.example/keys", "http://127.0.0.1:80/k", "http://[::1]/k", "file:///k"])
def test_an_address_that_is_protected_is_taken(url: str) -> None:
    check_url(url)


def test_an_answer_other_than_a_key_set_is_refused_and_a_redirect_not_followed(
    server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert read_address(address(server.url)) == key_set(KEY)
    for status in (302, 404, 500):
        server.status = status
        with pytest.raises(SecurityError, match=f"status {status}"):
            read_address(address(server.url))
    server.status = 200
    monkeypatch.setattr(web_keys, "KEY_SET_BYTES_MAX", 10)
    with pytest.raises(SecurityError, match="more than 10 bytes"):
        read_address(address(server.url))
    with pytest.raises(SecurityError, match="does not answer"):
        read_address(address("http://127.0.0.1:1/keys"))


async def test_the_certificate_of_an_address_is_checked_by_those_that_jaas_names() -> None:
    made = certificates()
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(made.broker)
    server = Server(context)
    trust = f'ssl.truststore.type="PEM" ssl.truststore.location="{made.ca}"'
    texts = {"sasl.enabled.mechanisms": "OAUTHBEARER", JWKS_URL: server.url}
    named = {"listener.name.a.oauthbearer.sasl.jaas.config": f"{OAUTH_MODULE} required {trust};"}
    try:
        strange = (await load_keys(parse(BrokerSettings, texts), ["A"]))["A"].keys
        assert (strange.known, "CERTIFICATE_VERIFY_FAILED" in strange.failure) == ((), True)
        known = (await load_keys(parse(BrokerSettings, texts | named), ["A"]))["A"].keys
        assert [key.key_id for key in known.known] == ["key-1"]
        strange.close()
        known.close()
    finally:
        server.close()


@pytest.mark.parametrize(
    ("jaas", "wrong"),
    [("x.PlainLoginModule required;", "has the login module x.PlainLoginModule"),
     (f'{OAUTH_MODULE} required ssl.truststore.location="/none";', "cannot read"), ("module", "one login module")],
)  # fmt: skip
async def test_a_trust_that_cannot_be_kept_stops_the_start(jaas: str, wrong: str) -> None:
    texts = {
        "sasl.enabled.mechanisms": "OAUTHBEARER", JWKS_URL: "https://issuer.example/keys",
        "listener.name.a.oauthbearer.sasl.jaas.config": jaas,
    }  # fmt: skip
    with pytest.raises(ConfigError, match=wrong):
        await load_keys(parse(BrokerSettings, texts), ["A"])


async def test_a_file_without_keys_stops_the_start_and_an_address_does_not(tmp_path: Path, server: Server) -> None:
    loop = asyncio.get_running_loop()
    with pytest.raises(ConfigError, match="cannot read"):
        await WebKeys(loop, address((tmp_path / "none").as_uri())).load()
    server.status = 500
    keys = WebKeys(loop, KeyAddress(server.url, 3_600_000, 1, 1, None))
    await keys.load()
    assert (keys.known, keys.failure) == ((), "it does not answer: status 500")
    server.status = 200
    await until(lambda: bool(keys.known))
    server.status = 500
    while not keys.failure:
        await keys.look_for_unknown()
        await asyncio.sleep(0)
    assert len(keys.known) == 1  # those of before count
    keys.close()


async def test_keys_are_read_again_from_time_to_time(tmp_path: Path) -> None:
    path = tmp_path / "keys"
    keys = WebKeys(asyncio.get_running_loop(), KeyAddress(publish(path, KEY), 5, 100, 10_000, None))
    await keys.load()
    publish(path, SigningKey("key-2"))
    await until(lambda: [key.key_id for key in keys.known] == ["key-2"])
    keys.close()


class SlowReading:
    """A reading of keys that a test lets end."""

    def __init__(self) -> None:
        self.count = 0
        self.may_end = threading.Event()

    def __call__(self, _: KeyAddress) -> bytes:
        self.count += 1
        assert self.may_end.wait(30)
        return key_set(KEY)


async def test_tokens_with_unknown_keys_wait_for_one_reading_and_cause_no_other_soon() -> None:
    reading = SlowReading()
    keys = WebKeys(asyncio.get_running_loop(), address("https://issuer.example/keys"), reading)
    loading = asyncio.ensure_future(keys.load())
    waiting = [asyncio.ensure_future(keys.look_for_unknown()) for _ in range(100)]
    await until(lambda: reading.count == 1)
    reading.may_end.set()
    await asyncio.gather(loading, *waiting)
    for _ in range(100):
        await keys.look_for_unknown()
    assert reading.count == 1
    keys.close()


def test_reads_that_bring_nothing_new_come_less_and_less_often() -> None:
    waits_ms = [backoff_ms(count, address("https://issuer.example/keys")) for count in range(10)]
    assert waits_ms == [100, 100, 200, 400, 800, 1600, 3200, 6400, 10_000, 10_000]
