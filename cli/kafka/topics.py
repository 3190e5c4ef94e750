"""Topics of a cluster: chosen by name and pattern, created, deleted; created by a writer where the broker may."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from fnmatch import fnmatchcase

from pqbroker.cli.kafka.cluster import Cluster, Topic
from pqbroker.cli.kafka.configs import BROKER, describe_configs
from pqbroker.cli.notices import tell
from pqbroker.cli.refusals import CommandError, check, near_name
from pqbroker.protocol.errors import ErrorCode
from pqbroker.protocol.messages.create_topics import (
    CreatableTopic,
    CreatableTopicConfig,
    CreateTopicsRequest,
    CreateTopicsResponse,
)
from pqbroker.protocol.messages.delete_topics import DeleteTopicsRequest, DeleteTopicsResponse, DeleteTopicState

DECIDED_BY_BROKER = -1
TIMEOUT_MS = 30_000
AUTO_CREATE = "auto.create.topics.enable"
_WILD = frozenset("*?[")


def matching(cluster: Cluster, names: Iterable[str]) -> list[Topic]:
    """The topics of names and patterns, each once; CommandError for a name or pattern without any."""
    found: dict[str, Topic] = {}
    for name in names:
        if _WILD.isdisjoint(name):
            found[name] = cluster.topic(name)
            continue
        fits = [each for each in cluster.topics().values() if fnmatchcase(each.name, name) and not each.is_internal]
        if not fits:
            raise CommandError(f"no topic matches {name!r} at {cluster.address}; `pqbroker topic list` shows all")
        found |= {each.name: each for each in sorted(fits)}
    return list(found.values())


def create_topic(cluster: Cluster, name: str, count: int, factor: int, configs: Mapping[str, str]) -> None:
    """Create a topic; CommandError."""
    error = _create(cluster, name, count, factor, configs)
    check(error[0], f"cannot create topic {name}", error[1])


def find_or_create(cluster: Cluster, name: str) -> Topic:
    """A topic to write to, created with a line on standard error where the broker creates topics for writers."""
    if cluster.lacks(name) and _creates(cluster):
        code, message = _create(cluster, name, DECIDED_BY_BROKER, DECIDED_BY_BROKER, {})
        if code != ErrorCode.TOPIC_ALREADY_EXISTS:
            check(code, f"cannot create topic {name}", message)
        topic = cluster.created(name)
        count = len(topic.partitions)
        hint = near_name(name, cluster.topics().keys() - {name})
        tell(f"created topic {name} with {count} partition{'s' * (count != 1)}{'; ' * bool(hint)}{hint}")
        return topic
    return cluster.topic(name)


def delete_topic(cluster: Cluster, name: str) -> None:
    """Delete a topic; CommandError."""
    for _ in delete_topics(cluster, [name]):
        pass


def delete_topics(cluster: Cluster, names: Sequence[str]) -> Iterator[str]:
    """Delete topics of different names in one request; yield the names of those that are gone. CommandError of the
    first that is not, at the end."""
    states = [DeleteTopicState(name=name) for name in names]
    request = DeleteTopicsRequest(topics=states, topic_names=list(names), timeout_ms=TIMEOUT_MS)
    results = {result.name: result for result in cluster.ask_controller(request, DeleteTopicsResponse).responses}
    for name in names:
        if not results[name].error_code:
            cluster.await_deletion(name)
            yield name
    for name in names:
        check(results[name].error_code, f"cannot delete topic {name}", results[name].error_message)


def _create(
    cluster: Cluster, name: str, count: int, factor: int, configs: Mapping[str, str]
) -> tuple[ErrorCode, str | None]:
    """The error, 0 for none, and what the broker says to it."""
    given = [CreatableTopicConfig(name=each, value=value) for each, value in configs.items()]
    topic = CreatableTopic(name=name, num_partitions=count, replication_factor=factor, configs=given)
    request = CreateTopicsRequest(topics=[topic], timeout_ms=TIMEOUT_MS)
    result = cluster.ask_controller(request, CreateTopicsResponse).topics[0]
    return result.error_code, result.error_message


def _creates(cluster: Cluster) -> bool:
    """Return True if the broker creates a topic that a producer names."""
    node = cluster.nodes()[0]
    found = describe_configs(cluster, BROKER, str(node), [AUTO_CREATE], node)
    return any(each.name == AUTO_CREATE and each.value == "true" for each in found)
