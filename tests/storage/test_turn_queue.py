"""Commits of one turn of the loop go to the store together, and nobody's failure is another's."""

import asyncio

from pqbroker.storage.engine import Batch, CommitRefused, ShardLost
from pqbroker.storage.turn_queue import Queued, TurnQueue


class Rig:
    """A queue, what it handed over, and what was told."""

    def __init__(self) -> None:
        self.handed_over: list[list[Queued]] = []
        self.told: list[tuple[str, BaseException | None]] = []
        self.queue = TurnQueue(asyncio.get_running_loop(), self.handed_over.append)
        asyncio.get_running_loop().set_exception_handler(lambda *_: None)

    def commit(self, name: str) -> None:
        self.queue.commit(Batch(), lambda error: self.told.append((name, error)))

    def fail(self, error: BaseException | None = None) -> None:
        self.told.append(("fails", error))
        raise ValueError("a defect")

    def sizes(self) -> list[int]:
        return [len(item) for item in self.handed_over]


async def test_plans_of_a_turn_and_commits_beside_them_are_one_item_of_the_next() -> None:
    rig = Rig()
    rig.queue.plan(lambda: rig.commit("planned"))
    rig.commit("beside")
    rig.queue.plan(lambda: rig.queue.plan(lambda: rig.commit("planned by a plan")))
    assert rig.handed_over == []
    await asyncio.sleep(0)
    assert rig.sizes() == [3]


async def test_what_the_news_of_a_round_brings_is_handed_over_in_that_call() -> None:
    rig = Rig()
    rig.queue.commit(Batch(), lambda _: rig.commit("next"))
    await asyncio.sleep(0)
    (round_,) = rig.handed_over
    rig.queue.tell(round_, {})
    assert rig.sizes() == [1, 1]


async def test_a_plan_that_raises_leaves_the_others_alone() -> None:
    rig = Rig()
    rig.queue.plan(lambda: rig.commit("before"))
    rig.queue.plan(rig.fail)
    rig.queue.plan(lambda: rig.commit("behind"))
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    assert rig.sizes() == [1, 1]
    rig.commit("later")
    await asyncio.sleep(0)
    assert rig.sizes() == [1, 1, 1]


async def test_a_listener_that_raises_leaves_the_others_alone() -> None:
    rig = Rig()
    rig.commit("first")
    rig.queue.commit(Batch(), rig.fail)
    rig.commit("refused")
    rig.commit("last")
    await asyncio.sleep(0)
    refusal = CommitRefused("no room")
    asyncio.get_running_loop().call_soon(rig.queue.tell, rig.handed_over[0], {2: refusal})
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    assert rig.told == [("first", None), ("fails", None), ("refused", refusal), ("last", None)]


async def test_a_loss_fails_what_is_on_its_way_and_not_handed_over_and_everything_later() -> None:
    rig = Rig()
    rig.commit("on its way")
    await asyncio.sleep(0)
    rig.commit("gathered")
    lost = ShardLost("gone")
    rig.queue.lose(lost, rig.handed_over[0])
    rig.commit("later")
    assert rig.told == [("on its way", lost), ("gathered", lost)]
    await asyncio.sleep(0)
    assert rig.told[2:] == [("later", lost)]
    assert rig.sizes() == [1]
