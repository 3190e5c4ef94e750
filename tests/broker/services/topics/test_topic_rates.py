"""Rates of topics, by samples at times that are given."""

from pqbroker.broker.services.topics.topic_rates import SAMPLE_KEPT_MS, SAMPLE_MS, TopicRates

ONE, OTHER = b"one", b"other"


def test_a_rate_is_over_two_seconds_at_least_however_often_it_is_asked_for() -> None:
    rates = TopicRates()
    looks = [(0, 0), (500, 100), (1999, 100), (2000, 200), (2500, 200), (4000, 200), (6000, 200)]
    found = [rates.look(ONE, written, now_ms) for now_ms, written in looks]
    assert found == [None, None, None, 100, 80, 0, 0]


def test_a_rate_begins_again_after_a_pause_a_clock_set_back_or_a_count_that_fell() -> None:
    for now_ms, written in ((SAMPLE_KEPT_MS + 1, 9), (-1, 9), (SAMPLE_MS, 4)):
        rates = TopicRates()
        rates.look(ONE, 5, 0)
        assert rates.look(ONE, written, now_ms) is None
        assert rates.look(ONE, written + 3, now_ms + 3000) == 1


def test_topics_that_are_gone_are_forgotten() -> None:
    rates = TopicRates()
    for topic in (ONE, OTHER, ONE):
        rates.look(topic, 0, 0)
    rates.forget(1)
    assert len(rates) == 1
    assert rates.look(ONE, 2, 2000) == 1
