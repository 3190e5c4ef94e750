"""Metrics of consumer groups, read at scrape time. The number of series is bounded: many offsets are told per group,
many groups as one."""

from collections import Counter
from collections.abc import Iterable, Iterator

from pqbroker.broker.consumer_groups import list_groups
from pqbroker.broker.context import Node
from pqbroker.broker.coordinators import ListedGroup
from pqbroker.broker.groups.states import GroupState
from pqbroker.broker.metrics import Sample
from pqbroker.pq.group import Group

_NOT_TOLD = ""
"""Label of what a sum runs over; Prometheus takes an empty label for none."""

Labels = tuple[str, str, str]
"""Group, topic, partition."""

_STATES = tuple(state for state in GroupState if state is not GroupState.DEAD)


def group_samples(node: Node) -> list[Sample]:
    """States, members and lag of the node's groups; nothing while the cell is lost, when nobody knows them."""
    if not node.coordinators.is_serving:
        return []
    groups = list_groups(node)
    states = Counter(group.state for group in groups)
    samples = [Sample("groups", states[state], (state,)) for state in _STATES]
    return samples + _member_samples(groups, node.settings.metrics_offsets_max) + _lag_samples(node)


def _member_samples(groups: list[ListedGroup], series_max: int) -> list[Sample]:
    if len(groups) <= series_max:
        return [Sample("group_members", group.members, (group.group_id,)) for group in groups]
    return [Sample("group_members", sum(group.members for group in groups), (_NOT_TOLD,))]


def _lag_samples(node: Node) -> list[Sample]:
    """A series for each offset, at most `pqbroker.metrics.offsets.max` of them, or sums."""
    series_max = node.settings.metrics_offsets_max
    topics = [topic for name in node.groups.names() if (topic := node.groups.get(name)) is not None]
    is_summed = sum(len(partition.consumers()) for topic in topics for partition in topic.partitions) > series_max
    told = _sums(topics, series_max) if is_summed else _each(topics)
    samples = [Sample("group_lag_records", lag, labels) for labels, lag in told]
    return [Sample("group_lag_summed", int(is_summed)), *samples]


def _each(topics: Iterable[Group]) -> Iterator[tuple[Labels, int]]:
    for topic in topics:
        for partition in topic.partitions:
            end_offset = partition.end_offset
            for group_id, state in partition.consumers().items():
                yield (group_id, topic.topic.name, str(partition.index)), state.lag(end_offset)


def _sums(topics: Iterable[Group], series_max: int) -> Iterator[tuple[Labels, int]]:
    """One for each group, or one for all where there are too many groups."""
    by_group: Counter[str] = Counter()
    for (group_id, _, _), lag in _each(topics):
        by_group[group_id] += lag
    if len(by_group) > series_max:
        by_group = Counter({_NOT_TOLD: by_group.total()})
    return (((group_id, _NOT_TOLD, _NOT_TOLD), lag) for group_id, lag in by_group.items())
