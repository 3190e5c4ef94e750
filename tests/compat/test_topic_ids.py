"""Java clients name topics by their ids since KIP-516: seen in the versions of the requests that they sent."""

import re
import urllib.request

import pytest

from tests.compat.clients import JAVA, Clients
from tests.support.drivers.driver import Message
from tests.support.java.program import NEWER, OLDER
from tests.support.serving import Served

BY_ID_FROM = {"Produce": 13, "Fetch": 13}
_COUNT = re.compile(r'^pqbroker_request_seconds_count\{api="(\w+)",version="(\d+)"\} (\d+)', re.MULTILINE)


@pytest.mark.parametrize(("version", "by_id"), [(NEWER, ["Produce", "Fetch"]), (OLDER, ["Fetch"])])
def test_java_writes_and_reads_by_topic_id(
    suite_broker: Served, clients: Clients, topic: str, version: str, by_id: list[str]
) -> None:
    if suite_broker.http is None:
        pytest.skip("only our broker counts requests by their version")
    before = requests(suite_broker.http)
    name = f"Java kafka-clients {version}"
    assert name in JAVA
    with clients.driver(name) as driver:
        driver.produce(topic, [Message(b"a")])
        assert [message.value for _, message in driver.read(topic, count=1)] == [b"a"]
    after = requests(suite_broker.http)
    sent = {place for place, count in after.items() if count > before.get(place, 0)}
    for api, first in BY_ID_FROM.items():
        versions = {sent_version for sent_api, sent_version in sent if sent_api == api}
        assert versions, f"{api} was not asked for"
        assert {each >= first for each in versions} == {api in by_id}, (api, versions)


def requests(http: str) -> dict[tuple[str, int], int]:
    """How many requests the broker has answered, by API and version."""
    with urllib.request.urlopen(f"http://{http}/metrics", timeout=10) as answer:
        text = answer.read().decode()
    return {(api, int(version)): int(count) for api, version, count in _COUNT.findall(text)}
