"""Offsets of consumer groups over partitions and tablets: one commit, order, restarts, deletion, expiry."""

import asyncio
from collections.abc import Mapping

import pytest
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, rule

from pqbroker.pq.consumers import NO_SESSION, ConsumerOffset
from pqbroker.pq.offsets import Place
from pqbroker.protocol.errors import ErrorCode, KafkaError
from tests.pq.rig import DAY_MS, START_MS, Node, batch, write

GONE = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


async def started(metadata_max: int = 4096) -> Node:
    """A node with topics t (5 partitions, 2 a tablet) and u (1)."""
    node = await Node(offset_metadata_max_bytes=metadata_max).start()
    await node.groups.create("t", 5, {"pq.partitions.per.tablet": "2"})
    await node.groups.create("u", 1, {})
    return node


async def commit(
    node: Node, offsets: Mapping[Place, ConsumerOffset | None], group_id: str = "g"
) -> dict[Place, ErrorCode | None]:
    outcomes = await node.groups.commit_offsets(group_id, offsets)
    return {place: None if refusal is None else refusal.code for place, refusal in outcomes.items()}


async def test_offsets_in_several_tablets_are_one_commit_and_survive_a_kill() -> None:
    node = await started()
    places = [("t", 0), ("t", 1), ("t", 4), ("u", 0)]
    offsets = {place: ConsumerOffset(number, 3, "m") for number, place in enumerate(places)}
    before = node.cell.stats().commits
    assert await commit(node, offsets) == dict.fromkeys(offsets)
    assert node.cell.stats().commits == before + 1
    for _ in range(2):
        assert node.groups.offsets_of("g") == offsets
        assert list(node.groups.groups_with_offsets()) == ["g"]
        assert node.partition(index=4).consumer("g") == offsets["t", 4]
        assert dict(node.partition(index=2).consumers()) == {}
        await node.restart()


async def test_an_unknown_group_has_no_offsets() -> None:
    node = await started()
    assert node.groups.offsets_of("nobody") == {}
    await node.groups.settled("nobody")
    assert await commit(node, {}) == {}


async def test_what_cannot_be_stored_leaves_the_rest_alone() -> None:
    node = await started(metadata_max=3)
    good = ConsumerOffset(1)
    outcomes = await commit(
        node,
        {("t", 0): good, ("t", 5): good, ("t", -1): good, ("v", 0): good, ("u", 0): ConsumerOffset(1, metadata="long")},
    )
    assert outcomes == {
        ("t", 0): None, ("t", 5): GONE, ("t", -1): GONE, ("v", 0): GONE,
        ("u", 0): ErrorCode.OFFSET_METADATA_TOO_LARGE,
    }  # fmt: skip
    assert node.groups.offsets_of("g") == {("t", 0): good}


async def test_a_refused_commit_changes_no_partition() -> None:
    node = await started()
    old = {("t", 0): ConsumerOffset(1), ("u", 0): ConsumerOffset(1)}
    await commit(node, old)
    node.engine.faults.refuse_next()
    refused = await commit(node, {("t", 0): ConsumerOffset(2), ("t", 4): ConsumerOffset(2), ("u", 0): None})
    assert set(refused.values()) == {ErrorCode.COORDINATOR_NOT_AVAILABLE}
    for _ in range(2):
        assert node.groups.offsets_of("g") == old
        await node.restart()


async def test_a_lost_cell_answers_not_coordinator_and_tells_no_offsets() -> None:
    node = await started()
    await commit(node, {("t", 0): ConsumerOffset(1)})
    node.engine.faults.lose_next()
    assert await commit(node, {("t", 0): ConsumerOffset(2)}) == {("t", 0): ErrorCode.NOT_COORDINATOR}
    assert await commit(node, {("t", 0): ConsumerOffset(3)}) == {("t", 0): ErrorCode.NOT_COORDINATOR}
    with pytest.raises(KafkaError) as lost:
        node.groups.offsets_of("g")
    assert lost.value.code == ErrorCode.NOT_COORDINATOR
    await node.groups.retain()
    await node.start()
    assert node.groups.offsets_of("g") == {("t", 0): ConsumerOffset(1)}


async def test_a_stopped_node_tells_no_offsets() -> None:
    node = await started()
    await commit(node, {("t", 0): ConsumerOffset(1)})
    await node.groups.stop()
    with pytest.raises(KafkaError) as stopped:
        node.groups.offsets_of("g")
    assert stopped.value.code == ErrorCode.NOT_COORDINATOR
    assert await commit(node, {("t", 0): ConsumerOffset(2)}) == {("t", 0): ErrorCode.NOT_COORDINATOR}


async def test_a_reader_of_offsets_waits_for_commits_that_were_there_before() -> None:
    node = await started()
    await commit(node, {("t", 0): ConsumerOffset(1)})
    node.engine.faults.hold()
    zombie = node.groups.commit_offsets("g", {("t", 0): ConsumerOffset(2), ("u", 0): ConsumerOffset(2)})
    later = node.groups.commit_offsets("g", {("t", 0): ConsumerOffset(3)})
    settled = asyncio.ensure_future(node.groups.settled("g"))
    await asyncio.wait_for(node.groups.settled("other"), 1)
    for _ in range(10):
        await asyncio.sleep(0)
    assert not settled.done()
    assert node.groups.offsets_of("g") == {("t", 0): ConsumerOffset(1)}
    node.engine.faults.release()
    await settled
    assert node.groups.offsets_of("g") == {("t", 0): ConsumerOffset(3), ("u", 0): ConsumerOffset(2)}
    await zombie
    await later


async def test_a_caller_that_gives_up_does_not_hide_its_commit_from_readers() -> None:
    node = await started()
    node.engine.faults.hold()
    given_up = asyncio.ensure_future(node.groups.commit_offsets("g", {("t", 0): ConsumerOffset(2)}))
    given_up.cancel()
    settled = asyncio.ensure_future(node.groups.settled("g"))
    for _ in range(10):
        await asyncio.sleep(0)
    assert not settled.done()
    node.engine.faults.release()
    await settled
    assert node.groups.offsets_of("g") == {("t", 0): ConsumerOffset(2)}


async def test_deleted_offsets_are_gone_for_good() -> None:
    node = await started()
    await commit(node, {("t", 0): ConsumerOffset(1), ("t", 1): ConsumerOffset(1)})
    assert await commit(node, {("t", 0): None, ("t", 3): None}) == {("t", 0): None, ("t", 3): None}
    for _ in range(2):
        assert node.groups.offsets_of("g") == {("t", 1): ConsumerOffset(1)}
        await node.restart()
    await commit(node, {("t", 1): None})
    assert list(node.groups.groups_with_offsets()) == []


async def test_a_deleted_topic_takes_its_offsets_along() -> None:
    node = await started()
    kept = {("u", 0): ConsumerOffset(1)}
    await commit(node, {("t", 0): ConsumerOffset(1), ("t", 4): ConsumerOffset(1), **kept})
    await commit(node, {("t", 0): ConsumerOffset(1)}, "only t")
    await node.groups.delete("t")
    assert node.groups.offsets_of("g") == kept
    assert list(node.groups.groups_with_offsets()) == ["g"]
    await node.groups.create("t", 5, {})
    assert node.groups.offsets_of("g") == kept


async def test_a_commit_on_its_way_when_its_topic_is_deleted_does_not_come_back() -> None:
    node = await started()
    node.engine.faults.hold()
    before = node.groups.commit_offsets("g", {("t", 0): ConsumerOffset(1)})
    behind = node.groups.commit_offsets("g", {("t", 0): ConsumerOffset(2), ("u", 0): ConsumerOffset(2)})
    deletion = asyncio.ensure_future(node.groups.delete("t"))
    for _ in range(10):
        await asyncio.sleep(0)
    asyncio.ensure_future(before).add_done_callback(lambda _: node.engine.faults.hold())
    node.engine.faults.release()
    assert (await before) == {("t", 0): None}
    await deletion
    node.engine.faults.release()
    await node.groups.create("t", 1, {})
    outcomes = await behind
    assert outcomes["u", 0] is None
    assert outcomes["t", 0] is not None
    assert outcomes["t", 0].code == GONE
    assert node.groups.offsets_of("g") == {("u", 0): ConsumerOffset(2)}


async def test_offsets_are_stored_as_they_are_given() -> None:
    node = await started()
    await write(node.partition(), batch(b"a"))
    for offset in (100, 0, 5, 1 << 62):
        await commit(node, {("t", 0): ConsumerOffset(offset)})
        assert node.groups.offsets_of("g") == {("t", 0): ConsumerOffset(offset)}


async def test_lag_is_what_lies_between_offset_and_end() -> None:
    node = await started()
    await write(node.partition(), batch(b"a"), batch(b"b"), batch(b"c"))
    await commit(node, {("t", 0): ConsumerOffset(1), ("t", 1): ConsumerOffset(9)})
    assert node.groups.lag("g") == {("t", 0): 2, ("t", 1): 0}


async def test_offsets_expire_after_the_retention_of_a_group_that_nobody_is_in() -> None:
    node = await started()
    since: dict[str, int | None] = {"t": None, "u": START_MS + DAY_MS}
    node.groups.tell_unread(lambda group_id, topic: since[topic])
    await commit(node, dict.fromkeys([("t", 0), ("u", 0)], ConsumerOffset(1, commit_ms=START_MS)))
    node.now_ms = START_MS + 8 * DAY_MS - 1
    await node.groups.retain()
    assert set(node.groups.offsets_of("g")) == {("t", 0), ("u", 0)}
    node.now_ms += 1
    await node.groups.retain()
    assert set(node.groups.offsets_of("g")) == {("t", 0)}
    since["t"] = 0
    await node.groups.retain()
    assert node.groups.offsets_of("g") == {}
    await node.restart()
    assert node.groups.offsets_of("g") == {}


async def test_a_commit_may_say_when_its_offset_expires() -> None:
    node = await started()
    await commit(node, {("t", 0): ConsumerOffset(1, commit_ms=START_MS, expire_ms=START_MS + 5)})
    node.now_ms = START_MS + 4
    await node.groups.retain()
    assert node.groups.offsets_of("g")
    node.now_ms += 1
    node.engine.faults.refuse_next()
    await node.groups.retain()
    assert node.groups.offsets_of("g")
    await node.groups.retain()
    assert not node.groups.offsets_of("g")


async def test_an_offset_does_not_expire_under_a_commit_on_its_way() -> None:
    node = await started()
    await commit(node, {("t", 0): ConsumerOffset(1, commit_ms=START_MS)})
    node.now_ms = START_MS + 30 * DAY_MS
    newer = node.groups.commit_offsets("g", {("t", 0): ConsumerOffset(2, commit_ms=node.now_ms)})
    await node.groups.retain()
    await newer
    assert set(node.groups.offsets_of("g")) == {("t", 0)}


PLACES = st.sampled_from([("t", 0), ("t", 1), ("t", 2), ("t", 4), ("u", 0)])
TIMES = st.integers(-1, 9)
METADATA = st.text("ab", max_size=3)
STATES = st.none() | st.builds(ConsumerOffset, TIMES, TIMES, METADATA, TIMES, TIMES, st.just(NO_SESSION))


class OffsetsMachine(RuleBasedStateMachine):
    """Offsets of a node against a dict, through refusals, kills, topics deleted and made anew."""

    def __init__(self) -> None:
        super().__init__()
        self.loop = asyncio.new_event_loop()
        self.model: dict[tuple[str, str, int], ConsumerOffset] = {}

    @initialize()
    def begin(self) -> None:
        self.node = self.loop.run_until_complete(started())

    @rule(
        commits=st.lists(st.tuples(st.sampled_from("gh"), st.dictionaries(PLACES, STATES, min_size=1)), max_size=4),
        refused=st.integers(0, 4),
    )
    def commit_together(self, commits: list[tuple[str, dict[Place, ConsumerOffset | None]]], refused: int) -> None:
        self.loop.run_until_complete(self._commit(commits, refused))

    @rule(topic=st.sampled_from("tu"))
    def recreate(self, topic: str) -> None:
        async def recreate() -> None:
            group = self.node.groups.get(topic)
            assert group is not None
            await self.node.groups.delete(topic)
            await self.node.groups.create(topic, group.topic.partitions, dict(group.topic.config))

        self.loop.run_until_complete(recreate())
        self.model = {key: state for key, state in self.model.items() if key[1] != topic}
        self._check()

    @rule()
    def restart(self) -> None:
        self.loop.run_until_complete(self.node.restart())
        self._check()

    async def _commit(self, commits: list[tuple[str, dict[Place, ConsumerOffset | None]]], refused: int) -> None:
        waiting = []
        for number, (group_id, offsets) in enumerate(commits):
            if number == refused:
                self.node.engine.faults.refuse_next()
            waiting.append(self.node.groups.commit_offsets(group_id, offsets))
        await self.node.groups.settled("g")
        await self.node.groups.settled("h")
        for (group_id, offsets), answer in zip(commits, waiting, strict=True):
            outcomes = await answer
            assert outcomes.keys() == offsets.keys()
            assert len({outcome and outcome.code for outcome in outcomes.values()}) == 1
            for place, state in offsets.items():
                if outcomes[place] is None:
                    self.model.pop((group_id, *place), None)
                    if state is not None:
                        self.model[(group_id, *place)] = state
        self._check()

    def _check(self) -> None:
        groups = self.node.groups
        found = {
            (group_id, *place): state
            for group_id in groups.groups_with_offsets()
            for place, state in groups.offsets_of(group_id).items()
        }
        assert found == self.model
        assert set(groups.groups_with_offsets()) == {key[0] for key in self.model}

    def teardown(self) -> None:
        self.loop.run_until_complete(self.node.groups.stop())
        self.loop.run_until_complete(self.node.cell.close())
        self.loop.close()


TestOffsetsModel = OffsetsMachine.TestCase
TestOffsetsModel.settings = hypothesis_settings(max_examples=60, stateful_step_count=15, deadline=None)
