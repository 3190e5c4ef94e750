"""What the tests ask of a broker's admin API beside what every client driver has."""

from confluent_kafka import ConsumerGroupTopicPartitions, TopicPartition
from confluent_kafka.admin import AdminClient

from tests.support.drivers.driver import REQUEST_TIMEOUT_S


def trim(address: str, topic: str, offset: int, partition: int = 0) -> None:
    """Delete the records below an offset."""
    place = TopicPartition(topic, partition, offset)
    client = AdminClient({"bootstrap.servers": address, "log_level": 0})
    client.delete_records([place])[place].result(REQUEST_TIMEOUT_S)


def committed(address: str, group: str) -> dict[tuple[str, int], int]:
    """The offsets a consumer group has committed, by topic and partition."""
    client = AdminClient({"bootstrap.servers": address, "log_level": 0})  # unless it is kept it takes its answers along
    asked = client.list_consumer_group_offsets([ConsumerGroupTopicPartitions(group)])
    found = asked[group].result(REQUEST_TIMEOUT_S).topic_partitions or []
    return {(place.topic, place.partition): place.offset for place in found}
