"""The hot figures: every request is answered and its calls are counted; an earlier commit is what is measured."""

import asyncio
from pathlib import Path

import pytest

from pqbroker.storage.disk import free_space
from tests.benchmarks.earlier import UnknownCommit, earlier_tree
from tests.benchmarks.hot import Loop, measure


def test_the_node_answers_by_hand_and_its_calls_are_counted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(free_space, "LOOK_SECONDS", 1000)  # a slow machine would look more often
    with asyncio.Runner(loop_factory=Loop) as runner:
        figures = runner.run(measure(tmp_path / "data", 6))
    one, eight, spread, both, fetch, keyed, eight_keyed, in_transaction, keyed_in_transaction, ten, hundred = (
        figures.values()
    )
    assert 0 < eight.loop_python_calls < spread.loop_python_calls < one.loop_python_calls < both.loop_python_calls
    assert 0 < eight.commit_python_calls < one.commit_python_calls == both.commit_python_calls
    assert 0 < fetch.loop_python_calls < both.loop_python_calls
    assert fetch.commit_python_calls == 0
    assert keyed.loop_python_calls - one.loop_python_calls < 15  # a look at the keys
    assert eight_keyed.loop_python_calls - eight.loop_python_calls < 15
    assert in_transaction.loop_python_calls - one.loop_python_calls < 45  # the producer, and its open transaction
    assert keyed_in_transaction.loop_python_calls - keyed.loop_python_calls < 45
    assert both.loop_python_calls - one.loop_python_calls < 72  # a Fetch that parks, wakes up and is answered
    assert hundred.loop_python_calls < ten.loop_python_calls < one.loop_python_calls
    assert hundred.loop_c_calls < ten.loop_c_calls < one.loop_c_calls
    assert all(each.loop_us > 0 for each in figures.values())
    assert all(each.commit_us > 0 for each in (one, eight, both))


def test_an_earlier_commit_is_unpacked_and_found_by_its_processes() -> None:
    with earlier_tree("HEAD") as tree:
        assert (tree / "src" / "pqbroker" / "__init__.py").exists()
    with pytest.raises(UnknownCommit, match="no-such-commit"), earlier_tree("no-such-commit"):
        pass
