"""Metrics of consumer groups, read at scrape time. The number of series is bounded: many offsets become a sum for
each group, many groups one sum."""

from collections import Counter
from collections.abc import Generator, Sequence

from pqbroker.broker.ground.metrics import Sample, Sampling
from pqbroker.broker.node.parts import Node
from pqbroker.broker.services.coordination.classic.states import GroupState
from pqbroker.broker.services.coordination.consumer_groups import list_groups
from pqbroker.broker.services.coordination.coordinators import GroupType, ListedGroup
from pqbroker.pq.serving.offsets import GroupOffsets
from pqbroker.pq.serving.topic import Topic

_SUMMED = ""
"""Label of what a sum runs over; Prometheus takes an empty label for none."""

Lag = tuple[tuple[str, str, str], int]
"""Group, topic, partition, and how many records the group has not read."""

_STATES = {
    GroupType.CLASSIC: (
        GroupState.EMPTY, GroupState.PREPARING_REBALANCE, GroupState.COMPLETING_REBALANCE, GroupState.STABLE,
    ),
    GroupType.CONSUMER: (GroupState.EMPTY, GroupState.ASSIGNING, GroupState.RECONCILING, GroupState.STABLE),
}  # fmt: skip
"""States that groups of each protocol have."""


def group_samples(node: Node) -> Sampling:
    """States, members and lag of the node's groups; nothing while the cell is lost, when they are unknown."""
    if not node.cell.current.coordinators.is_serving:
        return []
    groups = yield from list_groups(node)
    found = Counter((group.state, group.type) for group in groups)
    samples = [
        Sample("groups", found[state, protocol], (state, protocol))
        for protocol, states in _STATES.items()
        for state in states
    ]
    samples += _member_samples(groups, node.settings.metrics_offsets_max)
    return samples + (yield from _lag_samples(node))


def _member_samples(groups: list[ListedGroup], series_max: int) -> list[Sample]:
    if len(groups) <= series_max:
        return [Sample("group_members", group.members, (group.group_id,)) for group in groups]
    return [Sample("group_members", sum(group.members for group in groups), (_SUMMED,))]


def _lag_samples(node: Node) -> Sampling:
    """A series for each offset, at most `pqbroker.metrics.offsets.max` of them, or sums."""
    series_max = node.settings.metrics_offsets_max
    served = node.cell.current.topics
    topics = [topic for name in served.names() if (topic := served.get(name)) is not None]
    lags = yield from _lags(topics, served.offsets)
    is_summed = len(lags) > series_max
    if is_summed:
        lags = yield from _sums(lags, series_max)
    samples = [Sample("group_lag_summed", int(is_summed))]
    for labels, lag in lags:
        samples.append(Sample("group_lag_records", lag, labels))
        yield
    return samples


def _lags(topics: Sequence[Topic], known: GroupOffsets) -> Generator[None, None, list[Lag]]:
    """Return one lag for each offset."""
    lags: list[Lag] = []
    for topic in topics:
        for partition in topic.partitions:
            labels = topic.record.name, str(partition.index)
            end_offset = known.end_of(partition)
            offsets = partition.consumers.all()
            lags += [((group_id, *labels), state.lag(end_offset)) for group_id, state in offsets.items()]
            yield
    return lags


def _sums(lags: Sequence[Lag], series_max: int) -> Generator[None, None, list[Lag]]:
    """Return one sum for each group, or one for all where there are too many groups."""
    by_group: Counter[str] = Counter()
    for (group_id, _, _), lag in lags:
        by_group[group_id] += lag
        yield
    if len(by_group) > series_max:
        by_group = Counter({_SUMMED: by_group.total()})
    return [((group_id, _SUMMED, _SUMMED), lag) for group_id, lag in by_group.items()]
