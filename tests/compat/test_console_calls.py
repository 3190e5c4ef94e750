"""The calls that AKHQ and Kafbat make through Kafka's Java admin client are answered, or refused as they expect."""

import pytest

from tests.compat.clients import JAVA, Clients
from tests.support.drivers.driver import Message
from tests.support.drivers.java_driver import JavaDriver
from tests.support.drivers.librdkafka_driver import LibrdkafkaDriver
from tests.support.drivers.member import await_members

REFUSED = {
    "describeAcls": {"SecurityDisabledException"},
    "describeDelegationToken": {"UnsupportedVersionException", "DelegationTokenDisabledException"},
    "describeTransactions": {"TransactionalIdNotFoundException", "UnsupportedVersionException"},
}
"""What consoles take as "not here": they try, and hide what they would show."""


@pytest.mark.parametrize("name", JAVA)
def test_every_call_of_a_web_console_is_answered(name: str, clients: Clients, kafka: str) -> None:
    topic = group = f"console-{JAVA[name]}"
    writer = LibrdkafkaDriver(kafka)
    writer.create_topic(topic, partitions=2)
    for partition in range(2):
        writer.produce(topic, [Message(b"first"), Message(b"second")], partition=partition)
    with clients.member(name, topic, group) as member:
        await_members(lambda: len(member.received) == 4, "four records")
        member.commit()
    with clients.driver(name) as driver:
        assert isinstance(driver, JavaDriver)
        told = driver.calls(topic, group)
    assert len(told) > 25
    unexpected = {
        call: outcome for call, outcome in told.items() if outcome not in {"answered", *REFUSED.get(call, ())}
    }
    assert unexpected == {}
