"""A topic grows under load, by Kafka's API, over HTTP and by our command.

Clients find the new partitions, and no record is at another place than it was acknowledged at.
"""

from collections.abc import Callable
from contextlib import ExitStack
from functools import partial

from tests.compat.clients import DRIVEN, AnyMember, Clients
from tests.support.drivers.librdkafka_driver import LibrdkafkaDriver
from tests.support.drivers.member import await_members
from tests.support.growth import WAYS_TO_GROW, Load, PartitionOffset, load
from tests.support.serving import Served

# A poll of kafka-python that ends between its JoinGroup and the answer to its SyncGroup loses the assignment for good.
READERS = [name for name in DRIVEN if name != "kafka-python"]


def test_growth_under_load_is_found_by_clients_and_moves_nothing(
    suite_broker: Served, clients: Clients, fresh_name: Callable[[], str]
) -> None:
    topic = fresh_name()
    reader = LibrdkafkaDriver(suite_broker.kafka)
    reader.create_topic(topic, partitions=2)
    with ExitStack() as stack:
        members = {name: stack.enter_context(clients.member(name, topic, f"{topic} {name}")) for name in READERS}
        with load(suite_broker.kafka, topic) as written:
            await_growth(members, written, 2)
            for count, grow in WAYS_TO_GROW:
                grow(suite_broker, topic, count)
                await_growth(members, written, count)
        places = set(written.places.values())
        for name, member in members.items():
            await_members(partial(has_all, member, places), f"{name} received all that was acknowledged")
    assert len(places) == len(written.places)
    for partition in range(6):
        kept = {offset: value for value, (index, offset) in written.places.items() if index == partition}
        read = reader.read(topic, partition=partition, count=len(kept))
        assert {offset: message.value for offset, message in read} == kept


def await_growth(members: dict[str, AnyMember], written: Load, count: int) -> None:
    """Until writers have written to all partitions, and all of them are read."""
    partitions = set(range(count))
    for writer in (b"aiokafka", b"librdkafka"):
        await_members(partial(has_written, written, writer, partitions), f"{writer!r} writes to {count} partitions")
    for name, member in members.items():
        await_members(partial(reads, member, partitions), f"{name} reads {count} partitions")


def has_written(written: Load, writer: bytes, partitions: set[int]) -> bool:
    return written.partitions_of(writer) == partitions


def reads(member: AnyMember, partitions: set[int]) -> bool:
    return member.owned == partitions and {partition for partition, _ in list(member.received)} == partitions


def has_all(member: AnyMember, places: set[PartitionOffset]) -> bool:
    return set(member.received) >= places
