"""Progress of consumer groups in one partition: what is durable, and the changes on their way to its KV tablet."""

from collections.abc import Callable, Mapping

from pqbroker.pq.log.consumers import ConsumerOffset, Consumers
from pqbroker.storage.kv.commands import Command
from pqbroker.storage.kv.tablet import KeyValueTablet


class PartitionConsumers:
    """`settled` is called with the id of each group whose change came to an end."""

    __slots__ = ("_consumers", "_kv", "_settled")

    def __init__(self, consumers: Consumers, kv: KeyValueTablet, settled: Callable[[str], None]) -> None:
        self._consumers = consumers
        self._kv = kv
        self._settled = settled

    def get(self, group_id: str) -> ConsumerOffset | None:
        """Return how far the group has read, durably; None when it never said."""
        return self._consumers.get(group_id)

    def all(self) -> Mapping[str, ConsumerOffset]:
        """Every group's offset by group id; only to be looked at."""
        return self._consumers.all()

    def take(self, states: dict[str, ConsumerOffset]) -> None:
        """Have these be the offsets that are durable, of a partition that another node runs."""
        self._consumers.take(states)

    def plan(self, group_id: str, state: ConsumerOffset | None) -> tuple[KeyValueTablet, Command]:
        """Return the command that stores a group's offset, or deletes it, and its KV tablet; `settle` has to follow.
        KafkaError as `Consumers.plan`."""
        return self._kv, self._consumers.plan(group_id, state)

    def settle(self, group_id: str, state: ConsumerOffset | None, *, is_durable: bool) -> None:
        """Settle what was planned for the group: it became durable, or came to nothing."""
        self._consumers.settle(group_id, state, is_durable=is_durable)
        self._settled(group_id)
