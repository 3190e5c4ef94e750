"""No message is declared in a version that Kafka's own definitions do not have."""

import pytest

from pqbroker.broker.kafka.served import APIS
from pqbroker.protocol.schema import Versions, message, parse_versions
from tests.protocol.kafka_versions import TABLE
from tests.protocol.strategies import message_classes

KAFKAS = {
    name: (int(key), parse_versions(versions), parse_versions(flexible))
    for key, name, versions, flexible in (line.split("\t") for line in TABLE.read_text("utf-8").splitlines())
}


@pytest.mark.parametrize("declared", message_classes(), ids=lambda declared: declared.__name__)
def test_a_message_has_the_key_and_versions_of_kafkas_definition(declared: type) -> None:
    ours = message(declared)
    key, versions, flexible = KAFKAS[declared.__name__]
    assert (-1 if ours.api_key is None else ours.api_key) == key
    assert ours.versions.low in versions, f"Kafka has versions {versions}"
    assert ours.versions.high in versions, f"Kafka has versions {versions}"
    assert _in_both(ours.flexible, ours.versions) == _in_both(flexible, ours.versions)


def test_a_request_and_its_response_have_the_same_versions() -> None:
    for api in APIS:
        request, response = message(api.request), message(api.response)
        assert (request.api_key, request.versions, request.flexible) == (
            response.api_key, response.versions, response.flexible
        ), api.name  # fmt: skip


def test_what_is_advertised_is_served_but_for_the_versions_that_librdkafka_looks_for() -> None:
    """KAFKA-18659: without versions 0 to 2 of Produce it compresses nothing."""
    different = {api.name: api.advertised[1:] for api in APIS if api.advertised[1:] != message(api.request).versions}
    assert different == {"Produce": (0, 13)}


def _in_both(some: Versions, others: Versions) -> list[int]:
    return [version for version in range(others.low, others.high + 1) if version in some]
