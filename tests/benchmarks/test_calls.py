"""What requests cost is counted the same each time, and hardly more than it was."""

from pathlib import Path

from tests.benchmarks.calls import Costs, measure

MOST = {
    "insert a row": 226, "count rows in SQL": 203, "move a tablet": 1_390, "create a topic": 641,
}  # fmt: skip
"""Calls, a tenth above what was last counted: more is a second way, or a loop that was not there."""


FEW, MANY = 3, 30
"""Requests of which the least counts; many where a busy machine had periodic work in each of the few."""


async def test_requests_take_no_more_calls_than_they_did(tmp_path: Path) -> None:
    costs = await measure(tmp_path / "few", FEW)
    if above(costs):
        costs = await measure(tmp_path / "many", MANY)
    assert above(costs) == {}
    assert all(files > 10 for _, files in costs.values())


def above(costs: Costs) -> dict[str, int]:
    return {name: calls for name, (calls, _) in costs.items() if calls > MOST[name]}
