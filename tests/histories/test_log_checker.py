"""Each anomaly is found in a history that has it alone; a history without one is clean."""

from dataclasses import replace

from hypothesis import given, settings
from hypothesis import strategies as st

from tests.histories.history import Ending
from tests.histories.log_checker import LogAnomaly, check_log
from tests.histories.log_history import Found, LogHistory, Place, Produced, Reading, Seen, Sent
from tests.support.depth import examples

P, Q = "p", "q"


def produced(*sends: Sent, ending: Ending = Ending.OK, asked: int | None = 10) -> Produced:
    return Produced(sends, ending, asked)


def reading(*found: tuple[int, int], partition: str = P, start: int = 0, is_last: bool = True) -> Reading:
    """A reader that got offsets and values, after all commits."""
    return Reading(partition, start, [Found(*one, 20) for one in found], is_last=is_last)


def anomalies(history: LogHistory) -> set[LogAnomaly]:
    return {one.anomaly for one in check_log(history)}


def test_a_history_that_keeps_all_promises_is_clean() -> None:
    done = produced(Sent(P, 1, 0), Sent(Q, 2, 0), Sent(P, 3))
    aborted = produced(Sent(P, 4, 2), ending=Ending.FAIL)
    unknown = produced(Sent(P, 5), Sent(Q, 6), ending=Ending.UNKNOWN)
    readings = [reading((0, 1), (1, 3)), reading((0, 2), partition=Q), reading((1, 3), start=1, is_last=False)]
    seen = [Seen("end", 3, 1, 2), Seen("end", 3, 3, 4), Seen("end", 5, 3, 5), Seen("end", 4, 4, 6)]
    assert not check_log(LogHistory([done, aborted, unknown], readings, seen))


def test_a_read_of_what_nobody_sent() -> None:
    assert anomalies(LogHistory([], [reading((0, 1))])) == {LogAnomaly.UNSENT}
    elsewhere = LogHistory([produced(Sent(Q, 1))], [reading((0, 1))])
    assert LogAnomaly.UNSENT in anomalies(elsewhere)


def test_a_read_of_what_was_aborted() -> None:
    history = LogHistory([produced(Sent(P, 1, 0), ending=Ending.FAIL)], [reading((0, 1), is_last=False)])
    assert anomalies(history) == {LogAnomaly.ABORTED}


def test_a_read_before_the_commit_was_asked_for() -> None:
    for asked in (21, None):
        history = LogHistory([produced(Sent(P, 1, 0), asked=asked, ending=Ending.UNKNOWN)], [reading((0, 1))])
        assert anomalies(history) == {LogAnomaly.EARLY}


def test_a_committed_record_that_is_lost() -> None:
    history = LogHistory([produced(Sent(P, 1, 0)), produced(Sent(P, 2, 2))], [reading((0, 1))])
    assert anomalies(history) == {LogAnomaly.LOST}
    assert not anomalies(LogHistory(history.produced, [reading((0, 1), is_last=False)]))


def test_a_record_that_was_read_once_and_is_lost() -> None:
    readings = [reading((0, 1), is_last=False), replace(reading(), end=3)]
    unknown = LogHistory([produced(Sent(P, 1), ending=Ending.UNKNOWN)], readings)
    assert anomalies(unknown) == {LogAnomaly.LOST, LogAnomaly.SKIPPED}


def test_a_torn_transaction() -> None:
    for ending in (Ending.OK, Ending.UNKNOWN):
        history = LogHistory([produced(Sent(P, 1), Sent(Q, 2), ending=ending)], [reading((0, 1))])
        assert anomalies(history) == {LogAnomaly.TORN}


def test_a_record_at_two_offsets() -> None:
    assert anomalies(LogHistory([produced(Sent(P, 1))], [reading((0, 1), (1, 1))])) == {LogAnomaly.DOUBLED}
    assert anomalies(LogHistory([produced(Sent(P, 1, 3))], [reading((0, 1))])) == {LogAnomaly.DOUBLED}


def test_an_offset_with_two_records() -> None:
    sent = produced(Sent(P, 1)), replace(produced(Sent(P, 2)), producer=1)
    history = LogHistory([*sent], [reading((0, 1)), reading((0, 2))])
    assert anomalies(history) == {LogAnomaly.CHANGED}


def test_records_in_another_order() -> None:
    within = LogHistory([produced(Sent(P, 1), Sent(P, 2))], [reading((0, 2), (1, 1))])
    assert anomalies(within) == {LogAnomaly.REORDERED}
    across = LogHistory([produced(Sent(P, 1)), produced(Sent(P, 2))], [reading((0, 2), (1, 1))])
    assert anomalies(across) == {LogAnomaly.REORDERED}
    others = LogHistory([produced(Sent(P, 1)), replace(produced(Sent(P, 2)), producer=1)], across.readings)
    assert not anomalies(others)


def test_a_reader_that_goes_back() -> None:
    sent = [produced(Sent(P, 1), Sent(P, 2))]
    assert anomalies(LogHistory(sent, [reading((0, 1), (1, 2), (0, 1))])) == {LogAnomaly.POLL_BACKWARDS}
    assert LogAnomaly.POLL_BACKWARDS in anomalies(LogHistory(sent, [reading((0, 1), (1, 2), start=1)]))


def test_a_reader_that_passes_over_a_record() -> None:
    sent = [produced(Sent(P, 1), Sent(P, 2), Sent(P, 3))]
    whole = reading((0, 1), (1, 2), (2, 3))
    for passing in (
        reading((0, 1), (2, 3), is_last=False), reading((1, 2), (2, 3), is_last=False),
        replace(reading((0, 1), (1, 2), is_last=False), end=3),
    ):  # fmt: skip
        assert anomalies(LogHistory(sent, [whole, passing])) == {LogAnomaly.SKIPPED}
    assert not anomalies(LogHistory(sent, [whole, replace(reading((0, 1), is_last=False), end=1)]))


def test_a_compacted_record_may_be_gone_behind_a_later_one_of_its_key_alone() -> None:
    first, second = produced(Sent(P, 1, 0, "k")), produced(Sent(P, 2, 1, "k"))
    readings = [reading((0, 1), (1, 2), is_last=False), replace(reading((1, 2)), end=2)]
    assert not anomalies(LogHistory([first, second], readings))
    other = produced(Sent(P, 2, 1, "l"))
    assert anomalies(LogHistory([first, other], readings)) == {LogAnomaly.LOST, LogAnomaly.SKIPPED}


def test_an_offset_that_goes_back() -> None:
    assert anomalies(LogHistory(seen=[Seen("end", 3, 1, 2), Seen("end", 2, 3, 4)])) == {LogAnomaly.BACKWARDS}
    assert not anomalies(LogHistory(seen=[Seen("end", 3, 1, 4), Seen("end", 2, 3, 5)])), "they overlap"
    assert not anomalies(LogHistory(seen=[Seen("end", 3, 1, 2), Seen("other", 2, 3, 4)]))


def test_an_input_of_two_committed_transactions() -> None:
    once = replace(produced(Sent(P, 1)), inputs=[Place("in", 0)])
    again = replace(produced(Sent(P, 2)), inputs=[Place("in", 0)])
    readings = [reading((0, 1), (1, 2))]
    assert anomalies(LogHistory([once, again], readings)) == {LogAnomaly.INPUT_TWICE}
    unknown = [once, replace(again, ending=Ending.UNKNOWN)]
    assert anomalies(LogHistory(unknown, readings)) == {LogAnomaly.INPUT_TWICE}
    assert not anomalies(LogHistory(unknown, [reading((0, 1))]))


@settings(max_examples=examples(400))
@given(st.data())
def test_a_log_that_is_written_as_promised_is_clean(data: st.DataObject) -> None:
    """Transactions of two producers, appended to two partitions, and readers that begin and stop anywhere."""
    logs: dict[str, list[int | None]] = {P: [], Q: []}
    history, value = LogHistory(), 0
    for _ in range(data.draw(st.integers(0, 8))):
        ending = data.draw(st.sampled_from(Ending))
        is_seen = ending is Ending.OK or (ending is Ending.UNKNOWN and data.draw(st.booleans()))
        sends = []
        for partition in data.draw(st.lists(st.sampled_from((P, Q)), max_size=4)):
            value += 1
            offset = len(logs[partition])
            logs[partition].append(value if is_seen else None)
            sends.append(Sent(partition, value, data.draw(st.sampled_from((None, offset)))))
        history.produced.append(Produced(sends, ending, 10, producer=data.draw(st.integers(0, 1))))
    for partition, values in logs.items():
        for is_last in (True, False):
            start = 0 if is_last else data.draw(st.integers(0, len(values)))
            end = len(values) if is_last else data.draw(st.integers(start, len(values)))
            found = [Found(at, each, 20) for at, each in enumerate(values[start:end], start) if each is not None]
            history.readings.append(Reading(partition, start, found, end, is_last))
    assert not check_log(history)
