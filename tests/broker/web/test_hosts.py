"""For which host a request may be: a page of another site must not reach a broker through a browser."""

import json
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from pqbroker.broker.web.hosts import Hosts
from pqbroker.broker.web.routing.problems import Problem
from pqbroker.conf.broker import BrokerSettings
from tests.broker.web.conftest import Web

Serve = Callable[..., Awaitable[Web]]


@pytest.mark.parametrize("host", ["evil.example", "evil.example:8092", "localhost.evil.example", "127.0.0.1.evil", ""])
async def test_a_request_for_another_host_is_refused_with_cause_and_cure(web: Web, host: str) -> None:
    status, document = await web.ask("GET", "/v1/topics", Host=host)
    assert (status, document["error"]["code"]) == (421, "UNKNOWN_HOST")
    assert repr(host) in document["error"]["message"]
    assert "pqbroker.http.hosts" in document["error"]["cure"]
    assert (await web.ask("GET", "/metrics", Host=host))[0] == 421
    assert (await web.ask("POST", "/v1/topics", {"name": "t"}, Host=host))[0] == 421


@pytest.mark.parametrize("host", ["127.0.0.1:1", "10.1.2.3", "[::1]:8092", "[::1]", "localhost", "LOCALHOST.:8092"])
async def test_addresses_and_localhost_are_taken(web: Web, host: str) -> None:
    assert (await web.ask("GET", "/v1/topics", Host=host))[0] == 200


async def test_names_that_are_set_are_taken(serve: Serve) -> None:
    web = await serve(http_hosts=("broker", "Kafka.example"))
    for host in ("broker:8092", "kafka.example"):
        assert (await web.ask("GET", "/v1/topics", Host=host))[0] == 200
    assert (await web.ask("GET", "/v1/topics", Host="other"))[0] == 421


async def test_health_answers_under_every_name(web: Web) -> None:
    assert (await web.ask("GET", "/health", Host="loadbalancer.example"))[0] == 200


@pytest.mark.parametrize("origin", ["https://evil.example", "null", "http://127.0.0.1.evil:8092", ""])
async def test_a_page_of_another_site_reads_and_changes_nothing(web: Web, origin: str) -> None:
    asked: dict[str, Any] = {"Host": "localhost", "Origin": origin}
    for method, path, body in (("POST", "/v1/topics", {"name": "t"}), ("GET", "/v1/topics", None)):
        status, code, message = await web.refusal(method, path, body, **asked)
        assert (status, code) == (421, "UNKNOWN_ORIGIN")
        assert repr(origin) in message


async def test_a_page_of_another_port_changes_nothing(web: Web) -> None:
    asked: dict[str, Any] = {"Host": "localhost", "Origin": "http://localhost:1"}
    refused = await web.refusal("POST", "/v1/topics", {"name": "t"}, **asked)
    assert refused[:2] == (403, "FOREIGN_ORIGIN")
    assert (await web.refusal("DELETE", "/v1/topics/t", **asked))[:2] == (403, "FOREIGN_ORIGIN")
    assert (await web.ask("GET", "/v1/topics", **asked))[0] == 200
    same = {"Host": "localhost:8092", "Origin": "http://localhost:8092"}
    assert (await web.ask("POST", "/v1/topics", {"name": "t"}, **same))[0] == 201


def test_the_host_that_is_listened_on_is_taken() -> None:
    class OneNode:
        settings = BrokerSettings()

    class Headers:
        def __init__(self, *hosts: str) -> None:
            self._hosts = hosts

        def getall(self, key: str, default: Any) -> Any:
            return self._hosts if key == "Host" else default

    hosts = Hosts("Inside.example", OneNode())  # type: ignore[arg-type]
    hosts.check("GET", "/v1/topics", Headers("inside.example:8092"))
    hosts.check("GET", "/v1/topics", Headers())  # HTTP/1.0; browsers always name a host
    with pytest.raises(Problem, match="several Host headers"):
        hosts.check("GET", "/v1/topics", Headers("127.0.0.1", "evil.example"))
    with pytest.raises(Problem) as refused:
        hosts.check("GET", "/v1/topics", Headers("x" * 5000))
    assert len(json.dumps(refused.value.document())) < 500
