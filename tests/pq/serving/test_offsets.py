"""Offsets of consumer groups over partitions and tablets: one commit, order, restarts, deletion, expiry."""

import asyncio
from collections.abc import Mapping
from unittest.mock import ANY

import pytest
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, rule

from pqbroker.pq.log.consumers import NO_SESSION, ConsumerOffset
from pqbroker.pq.serving import offsets as serving
from pqbroker.pq.serving.elsewhere import KnownElsewhere, PartitionAway
from pqbroker.pq.serving.offsets import GroupOffsets, TopicPartition, nobody_knows
from pqbroker.protocol.errors import ErrorCode, KafkaError
from pqbroker.storage.outcome import Outcome
from tests.pq.rig import DAY_MS, START_MS, Node, batch, write
from tests.support.depth import examples

GONE = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


async def started(metadata_max: int = 4096) -> Node:
    """A node with topics t (5 partitions, 2 a tablet) and u (1)."""
    node = await Node(offset_metadata_max_bytes=metadata_max).start()
    await node.topics.create("t", 5, {"pq.partitions.per.tablet": "2"})
    await node.topics.create("u", 1, {})
    return node


async def commit(
    node: Node, offsets: Mapping[TopicPartition, ConsumerOffset | None], group_id: str = "g"
) -> dict[TopicPartition, ErrorCode | None]:
    outcomes = await node.topics.offsets.commit(group_id, offsets)
    return {place: None if refusal is None else refusal.code for place, refusal in outcomes.items()}


async def test_offsets_in_several_tablets_are_one_commit_and_survive_a_kill() -> None:
    node = await started()
    places = [("t", 0), ("t", 1), ("t", 4), ("u", 0)]
    offsets = {place: ConsumerOffset(number, 3, "m") for number, place in enumerate(places)}
    before = node.cell.stats().commits
    assert await commit(node, offsets) == dict.fromkeys(offsets)
    assert node.cell.stats().commits == before + 1
    for _ in range(2):
        assert node.topics.offsets.of("g") == offsets
        assert list(node.topics.offsets.groups()) == ["g"]
        assert node.partition(index=4).consumers.get("g") == offsets["t", 4]
        assert dict(node.partition(index=2).consumers.all()) == {}
        await node.restart()


async def two_cells() -> tuple[Node, Node, GroupOffsets]:
    """Topic t of one cell, u of another one, and the offsets of groups in both."""
    first, second = await Node().start(), await Node().start()
    servers = {("t", 0): await first.topic("t"), ("u", 0): await second.topic("u")}
    return first, second, GroupOffsets(lambda name, index: servers.get((name, index)))


class SlowWay:
    """A way to another node; a test settles its answers."""

    def __init__(self) -> None:
        self.outcomes: list[Outcome[None]] = []

    def commit_offsets(self, group_id: str, offsets: object) -> Outcome[None]:
        self.outcomes.append(Outcome())
        return self.outcomes[-1]

    def end_transaction(self, partition: object, marker: object) -> Outcome[int]:
        raise AssertionError("no transaction is ended")


@pytest.mark.parametrize("deletes", [False, True])
async def test_a_late_answer_of_the_node_that_had_a_partition_changes_nothing_later(*, deletes: bool) -> None:
    node = await started()
    offsets, server, way = node.topics.offsets, node.partition("u"), SlowWay()
    known = KnownElsewhere(PartitionAway(bytes(16), server.storage.tablet_id, 1, 0), way)
    offsets.take_copy("u", [server], {server: (known, {})})
    late = offsets.commit("g", {("u", 0): None if deletes else ConsumerOffset(34)})
    offsets.drop_copy("u", [server])  # its cell is opened here
    assert await commit(node, {("u", 0): ConsumerOffset(35)}) == {("u", 0): None}
    way.outcomes[0].settle(None)
    assert await late == {("u", 0): None}
    assert offsets.at("g", ("u", 0)) == ConsumerOffset(35, creator=ANY)
    assert offsets.groups() == ["g"]


async def test_offsets_in_several_cells_are_a_commit_of_each() -> None:
    first, second, offsets = await two_cells()
    before = [node.cell.stats().commits for node in (first, second)]
    stored = {("t", 0): ConsumerOffset(1), ("u", 0): ConsumerOffset(2)}
    assert await offsets.commit("g", {**stored, ("u", 1): ConsumerOffset(3)}) == {
        ("t", 0): None, ("u", 0): None, ("u", 1): ANY,
    }  # fmt: skip
    assert offsets.of("g") == stored
    assert [node.cell.stats().commits for node in (first, second)] == [count + 1 for count in before]


async def test_a_cell_that_refuses_leaves_the_offsets_of_other_cells_alone() -> None:
    first, second, offsets = await two_cells()
    first.engine.faults.hold()
    second.engine.faults.refuse_next()
    answer = asyncio.ensure_future(
        offsets.commit("g", {("t", 0): ConsumerOffset(1), ("u", 0): ConsumerOffset(2)})
    )
    settled = asyncio.ensure_future(offsets.settled("g"))
    for _ in range(10):
        await asyncio.sleep(0)
    assert not answer.done()
    assert not settled.done()
    first.engine.faults.release()
    outcomes = await answer
    await settled
    assert outcomes["t", 0] is None
    refusal = outcomes["u", 0]
    assert refusal is not None
    assert refusal.code == ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert offsets.of("g") == {("t", 0): ConsumerOffset(1)}


async def test_an_unknown_group_has_no_offsets() -> None:
    node = await started()
    assert node.topics.offsets.of("nobody") == {}
    await node.topics.offsets.settled("nobody")
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
    assert node.topics.offsets.of("g") == {("t", 0): good}


async def test_what_is_given_up_changes_nothing_and_leaves_its_room_to_others() -> None:
    node = await Node(partition_consumers_max=1).start()
    await node.topics.create("u", 1, {})
    place, offset = ("u", 0), ConsumerOffset(1)
    for _ in range(2):
        changes = node.topics.offsets.begin("given up")
        changes.add(place, offset)
        assert await commit(node, {place: offset}) == {place: ErrorCode.POLICY_VIOLATION}
        changes.give_up()
    assert await commit(node, {place: offset}) == {place: None}
    assert node.topics.offsets.groups() == ["g"]


async def test_what_is_planned_in_steps_is_one_commit() -> None:
    node = await started()
    offsets = {("t", 0): ConsumerOffset(1), ("t", 4): ConsumerOffset(2), ("u", 0): ConsumerOffset(3)}
    changes = node.topics.offsets.begin("g")
    for place, offset in offsets.items():
        changes.add(place, offset)
        await asyncio.sleep(0)
    changes.add(("v", 0), ConsumerOffset(4))
    before = node.cell.stats().commits
    outcomes = await node.topics.offsets.enqueue(changes)
    assert {place: refusal and refusal.code for place, refusal in outcomes.items()} == {
        **dict.fromkeys(offsets), ("v", 0): GONE,
    }  # fmt: skip
    assert node.cell.stats().commits == before + 1
    assert node.topics.offsets.of("g") == offsets


async def test_what_was_planned_before_the_node_left_its_cell_is_refused() -> None:
    node = await started()
    changes = node.topics.offsets.begin("g")
    changes.add(("t", 0), ConsumerOffset(1))
    offsets = node.topics.offsets
    await node.restart()
    refusals = (await offsets.enqueue(changes)).values()
    assert {refusal and refusal.code for refusal in refusals} == {ErrorCode.NOT_COORDINATOR}
    assert node.topics.offsets.of("g") == {}


async def test_a_refused_commit_changes_no_partition() -> None:
    node = await started()
    old = {("t", 0): ConsumerOffset(1), ("u", 0): ConsumerOffset(1)}
    await commit(node, old)
    node.engine.faults.refuse_next()
    refused = await commit(node, {("t", 0): ConsumerOffset(2), ("t", 4): ConsumerOffset(2), ("u", 0): None})
    assert set(refused.values()) == {ErrorCode.COORDINATOR_NOT_AVAILABLE}
    for _ in range(2):
        assert node.topics.offsets.of("g") == old
        await node.restart()


async def test_a_lost_cell_answers_not_coordinator_and_tells_no_offsets() -> None:
    node = await started()
    await commit(node, {("t", 0): ConsumerOffset(1)})
    node.engine.faults.lose_next()
    assert await commit(node, {("t", 0): ConsumerOffset(2)}) == {("t", 0): ErrorCode.NOT_COORDINATOR}
    assert await commit(node, {("t", 0): ConsumerOffset(3)}) == {("t", 0): ErrorCode.NOT_COORDINATOR}
    with pytest.raises(KafkaError) as lost:
        node.topics.offsets.of("g")
    assert lost.value.code == ErrorCode.NOT_COORDINATOR
    await node.topics.retain(nobody_knows)
    await node.start()
    assert node.topics.offsets.of("g") == {("t", 0): ConsumerOffset(1)}


async def test_a_stopped_node_tells_no_offsets() -> None:
    node = await started()
    await commit(node, {("t", 0): ConsumerOffset(1)})
    await node.stop()
    with pytest.raises(KafkaError) as stopped:
        node.topics.offsets.of("g")
    assert stopped.value.code == ErrorCode.NOT_COORDINATOR
    assert await commit(node, {("t", 0): ConsumerOffset(2)}) == {("t", 0): ErrorCode.NOT_COORDINATOR}


async def test_a_reader_of_offsets_waits_for_commits_that_were_there_before() -> None:
    node = await started()
    await commit(node, {("t", 0): ConsumerOffset(1)})
    node.engine.faults.hold()
    zombie = node.topics.offsets.commit("g", {("t", 0): ConsumerOffset(2), ("u", 0): ConsumerOffset(2)})
    later = node.topics.offsets.commit("g", {("t", 0): ConsumerOffset(3)})
    settled = asyncio.ensure_future(node.topics.offsets.settled("g"))
    await asyncio.wait_for(node.topics.offsets.settled("other"), 1)
    for _ in range(10):
        await asyncio.sleep(0)
    assert not settled.done()
    assert node.topics.offsets.of("g") == {("t", 0): ConsumerOffset(1)}
    node.engine.faults.release()
    await settled
    assert node.topics.offsets.of("g") == {("t", 0): ConsumerOffset(3), ("u", 0): ConsumerOffset(2)}
    await zombie
    await later


async def test_a_caller_that_gives_up_does_not_hide_its_commit_from_readers() -> None:
    node = await started()
    node.engine.faults.hold()
    given_up = asyncio.ensure_future(node.topics.offsets.commit("g", {("t", 0): ConsumerOffset(2)}))
    given_up.cancel()
    settled = asyncio.ensure_future(node.topics.offsets.settled("g"))
    for _ in range(10):
        await asyncio.sleep(0)
    assert not settled.done()
    node.engine.faults.release()
    await settled
    assert node.topics.offsets.of("g") == {("t", 0): ConsumerOffset(2)}


async def test_deleted_offsets_are_gone_for_good() -> None:
    node = await started()
    await commit(node, {("t", 0): ConsumerOffset(1), ("t", 1): ConsumerOffset(1)})
    assert await commit(node, {("t", 0): None, ("t", 3): None}) == {("t", 0): None, ("t", 3): None}
    for _ in range(2):
        assert node.topics.offsets.of("g") == {("t", 1): ConsumerOffset(1)}
        await node.restart()
    await commit(node, {("t", 1): None})
    assert node.topics.offsets.of("g") == {}


async def test_a_group_outlives_its_last_offset_until_its_time_is_over() -> None:
    node = await started()
    await commit(node, {("t", 0): ConsumerOffset(1)})
    await commit(node, {("t", 0): None})
    assert (node.topics.offsets.groups(), node.topics.offsets.knows("g")) == (["g"], True)
    await commit(node, {("t", 0): ConsumerOffset(2, commit_ms=START_MS)})
    assert node.topics.offsets.groups() == ["g"]
    await commit(node, {("t", 0): None})
    for later_ms in (0, 599_999):
        node.now_ms = START_MS + later_ms
        await node.topics.retain(nobody_knows)
        assert node.topics.offsets.groups() == ["g"]
    node.now_ms += 1
    await node.topics.retain(nobody_knows)
    assert (node.topics.offsets.groups(), node.topics.offsets.knows("g")) == ([], False)


async def test_a_group_goes_with_offsets_that_expire() -> None:
    node = await started()
    await commit(node, {("t", 0): ConsumerOffset(1, commit_ms=START_MS)})
    node.now_ms = START_MS + 8 * DAY_MS
    await node.topics.retain(nobody_knows)
    assert node.topics.offsets.groups() == []


async def test_as_many_groups_outlive_their_offsets_as_there_is_room_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("pqbroker.pq.serving.offsets.EMPTIED_GROUPS_MAX", 2)
    node = await started()
    for group_id in ("a", "b", "c"):
        await commit(node, {("t", 0): ConsumerOffset(1)}, group_id)
        await commit(node, {("t", 0): None}, group_id)
    assert node.topics.offsets.groups() == ["b", "c"]


async def test_a_deleted_topic_takes_its_offsets_along() -> None:
    node = await started()
    kept = {("u", 0): ConsumerOffset(1)}
    await commit(node, {("t", 0): ConsumerOffset(1), ("t", 4): ConsumerOffset(1), **kept})
    await commit(node, {("t", 0): ConsumerOffset(1)}, "only t")
    await node.topics.delete("t")
    assert node.topics.offsets.of("g") == kept
    assert node.topics.offsets.of("only t") == {}
    await node.topics.create("t", 5, {})
    assert node.topics.offsets.of("g") == kept


async def test_a_commit_on_its_way_when_its_topic_is_deleted_does_not_come_back() -> None:
    node = await started()
    node.engine.faults.hold()
    before = node.topics.offsets.commit("g", {("t", 0): ConsumerOffset(1)})
    behind = node.topics.offsets.commit("g", {("t", 0): ConsumerOffset(2), ("u", 0): ConsumerOffset(2)})
    deletion = asyncio.ensure_future(node.topics.delete("t"))
    for _ in range(10):
        await asyncio.sleep(0)
    asyncio.ensure_future(before).add_done_callback(lambda _: node.engine.faults.hold())
    node.engine.faults.release()
    assert (await before) == {("t", 0): None}
    await deletion
    node.engine.faults.release()
    await node.topics.create("t", 1, {})
    outcomes = await behind
    assert outcomes["u", 0] is None
    assert outcomes["t", 0] is not None
    assert outcomes["t", 0].code == GONE
    assert node.topics.offsets.of("g") == {("u", 0): ConsumerOffset(2)}


async def test_many_offsets_are_commits_one_behind_the_other_and_later_ones_stand_behind_them_all(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(serving, "COMMITTED_AT_ONCE_MAX", 2)
    node = await started()
    partitions = [("t", index) for index in range(5)]
    before = node.cell.stats().commits
    many = node.topics.offsets.commit("g", dict.fromkeys(partitions, ConsumerOffset(1)))
    one = node.topics.offsets.commit("g", {("t", 4): ConsumerOffset(2)})
    await node.topics.offsets.settled("g")
    assert not node.topics.offsets.is_committing("g")
    assert (await many, await one) == (dict.fromkeys(partitions), {("t", 4): None})
    assert node.cell.stats().commits == before + 4
    assert node.topics.offsets.of("g") == {each: ConsumerOffset(2 if each[1] == 4 else 1) for each in partitions}


async def test_a_refused_slice_of_many_offsets_leaves_the_others(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(serving, "COMMITTED_AT_ONCE_MAX", 2)
    node = await started()
    node.engine.faults.refuse_next()
    outcomes = await commit(node, {("t", index): ConsumerOffset(1) for index in range(5)})
    assert [*outcomes.values()] == [ErrorCode.COORDINATOR_NOT_AVAILABLE] * 2 + [None] * 3
    assert sorted(node.topics.offsets.of("g")) == [("t", 2), ("t", 3), ("t", 4)]


async def test_many_offsets_are_planned_for_deletion_in_slices_with_those_that_come_meanwhile(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(serving, "LOOKED_AT_ONCE_MAX", 1)
    node = await started()
    await commit(node, {("t", index): ConsumerOffset(1) for index in range(4)})
    planned = asyncio.ensure_future(node.topics.offsets.plan_deletion("g"))
    await asyncio.sleep(0)
    assert await commit(node, {("t", 4): ConsumerOffset(1)}) == {("t", 4): None}
    outcomes = await node.topics.offsets.enqueue(await planned)
    assert outcomes == {("t", index): None for index in range(5)}
    assert not node.topics.offsets.has("g")


async def test_many_offsets_expire_in_slices(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(serving, "COMMITTED_AT_ONCE_MAX", 2)
    monkeypatch.setattr(serving, "LOOKED_AT_ONCE_MAX", 1)
    node = await started()
    await commit(node, {("t", index): ConsumerOffset(1, commit_ms=START_MS) for index in range(5)})
    looked = asyncio.ensure_future(node.topics.offsets.expire(START_MS + 8 * DAY_MS, DAY_MS, lambda *_: 0))
    await asyncio.sleep(0)
    renewed = ConsumerOffset(2, commit_ms=START_MS + 8 * DAY_MS)
    assert await commit(node, {("t", 4): renewed}) == {("t", 4): None}
    await looked
    assert node.topics.offsets.of("g") == {("t", 4): renewed}


async def test_offsets_of_many_groups_are_looked_at_in_slices(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(serving, "LOOKED_AT_ONCE_MAX", 3)
    node = await started()
    for number in range(10):
        await node.topics.offsets.commit(f"g{number}", {("t", 0): ConsumerOffset(1, commit_ms=START_MS)})
    looked: list[str] = []

    def unread_since(group_id: str, topic: str) -> None:
        looked.append(group_id)

    expired = asyncio.ensure_future(node.topics.offsets.expire(START_MS, DAY_MS, unread_since))
    in_turns = []
    while not expired.done():
        await asyncio.sleep(0)
        in_turns.append(len(looked))
        looked.clear()
    assert sum(in_turns) == 10
    assert max(in_turns) <= 3


@pytest.mark.spec("K.1")
async def test_offsets_are_stored_as_they_are_given() -> None:
    node = await started()
    await write(node.partition(), batch(b"a"))
    for offset in (100, 0, 5, 1 << 62):
        await commit(node, {("t", 0): ConsumerOffset(offset)})
        assert node.topics.offsets.of("g") == {("t", 0): ConsumerOffset(offset)}


async def test_lag_is_what_lies_between_offset_and_end() -> None:
    node = await started()
    await write(node.partition(), batch(b"a"), batch(b"b"), batch(b"c"))
    await commit(node, {("t", 0): ConsumerOffset(1), ("t", 1): ConsumerOffset(9)})
    assert dict(node.topics.offsets.each_lag("g")) == {("t", 0): 2, ("t", 1): 0}


async def test_offsets_expire_after_the_retention_of_a_group_that_nobody_is_in() -> None:
    node = await started()
    since: dict[str, int | None] = {"t": None, "u": START_MS + DAY_MS}

    def unread_since(_group_id: str, topic: str) -> int | None:
        return since[topic]

    await commit(node, dict.fromkeys([("t", 0), ("u", 0)], ConsumerOffset(1, commit_ms=START_MS)))
    node.now_ms = START_MS + 8 * DAY_MS - 1
    await node.topics.retain(unread_since)
    assert set(node.topics.offsets.of("g")) == {("t", 0), ("u", 0)}
    node.now_ms += 1
    await node.topics.retain(unread_since)
    assert set(node.topics.offsets.of("g")) == {("t", 0)}
    since["t"] = 0
    await node.topics.retain(unread_since)
    assert node.topics.offsets.of("g") == {}
    await node.restart()
    assert node.topics.offsets.of("g") == {}


async def test_a_commit_may_say_when_its_offset_expires() -> None:
    node = await started()
    await commit(node, {("t", 0): ConsumerOffset(1, commit_ms=START_MS, expire_ms=START_MS + 5)})
    node.now_ms = START_MS + 4
    await node.topics.retain(nobody_knows)
    assert node.topics.offsets.of("g")
    node.now_ms += 1
    node.engine.faults.refuse_next()
    await node.topics.retain(nobody_knows)
    assert node.topics.offsets.of("g")
    await node.topics.retain(nobody_knows)
    assert not node.topics.offsets.of("g")


async def test_an_offset_does_not_expire_under_a_commit_on_its_way() -> None:
    node = await started()
    await commit(node, {("t", 0): ConsumerOffset(1, commit_ms=START_MS)})
    node.now_ms = START_MS + 30 * DAY_MS
    newer = node.topics.offsets.commit("g", {("t", 0): ConsumerOffset(2, commit_ms=node.now_ms)})
    await node.topics.retain(nobody_knows)
    await newer
    assert set(node.topics.offsets.of("g")) == {("t", 0)}


PLACES = st.sampled_from([("t", 0), ("t", 1), ("t", 2), ("t", 4), ("u", 0)])
TIMES = st.integers(-1, 9)
METADATA = st.text("ab", max_size=3)
STATES = st.none() | st.builds(ConsumerOffset, TIMES, TIMES, METADATA, TIMES, TIMES, st.just(NO_SESSION), st.just(""))


class OffsetsMachine(RuleBasedStateMachine):
    """Offsets of a node against a dict, through refusals, kills, topics deleted and re-created.

    Groups that outlived their last offset are against a set, which a restart forgets.
    """

    def __init__(self) -> None:
        super().__init__()
        self.loop = asyncio.new_event_loop()
        self.model: dict[tuple[str, str, int], ConsumerOffset] = {}
        self.outlived: set[str] = set()

    @initialize()
    def begin(self) -> None:
        self.node = self.loop.run_until_complete(started())

    @rule(
        commits=st.lists(st.tuples(st.sampled_from("gh"), st.dictionaries(PLACES, STATES, min_size=1)), max_size=4),
        refused=st.integers(0, 4),
    )
    def commit_together(
        self, commits: list[tuple[str, dict[TopicPartition, ConsumerOffset | None]]], refused: int
    ) -> None:
        self.loop.run_until_complete(self._commit(commits, refused))

    @rule(name=st.sampled_from("tu"))
    def recreate(self, name: str) -> None:
        async def recreate() -> None:
            topic = self.node.topics.get(name)
            assert topic is not None
            await self.node.topics.delete(name)
            await self.node.topics.create(name, topic.record.partitions, dict(topic.record.config))

        self.loop.run_until_complete(recreate())
        before = {key[0] for key in self.model}
        self.model = {key: state for key, state in self.model.items() if key[1] != name}
        self.outlived |= before - {key[0] for key in self.model}
        self._check()

    @rule()
    def restart(self) -> None:
        self.loop.run_until_complete(self.node.restart())
        self.outlived.clear()
        self._check()

    async def _commit(
        self, commits: list[tuple[str, dict[TopicPartition, ConsumerOffset | None]]], refused: int
    ) -> None:
        waiting = []
        for number, (group_id, offsets) in enumerate(commits):
            if number == refused:
                self.node.engine.faults.refuse_next()
            waiting.append(self.node.topics.offsets.commit(group_id, offsets))
        await self.node.topics.offsets.settled("g")
        await self.node.topics.offsets.settled("h")
        for (group_id, offsets), answer in zip(commits, waiting, strict=True):
            outcomes = await answer
            assert outcomes.keys() == offsets.keys()
            assert len({outcome and outcome.code for outcome in outcomes.values()}) == 1
            for place, state in offsets.items():
                if outcomes[place] is None:
                    self._settle((group_id, *place), state)
        self._check()

    def _settle(self, key: tuple[str, str, int], state: ConsumerOffset | None) -> None:
        if state is not None:
            self.model[key] = state
            self.outlived.discard(key[0])
        elif self.model.pop(key, None) is not None and key[0] not in {other[0] for other in self.model}:
            self.outlived.add(key[0])

    def _check(self) -> None:
        groups = self.node.topics
        found = {
            (group_id, *place): state
            for group_id in groups.offsets.groups()
            for place, state in groups.offsets.of(group_id).items()
        }
        assert found == self.model
        assert sorted(groups.offsets.groups()) == sorted({key[0] for key in self.model} | self.outlived)

    def teardown(self) -> None:
        self.loop.run_until_complete(self.node.stop())
        self.loop.run_until_complete(self.node.cell.close())
        self.loop.close()


TestOffsetsModel = OffsetsMachine.TestCase
TestOffsetsModel.settings = hypothesis_settings(max_examples=examples(60), stateful_step_count=15, deadline=None)
