"""Cost of forced and periodic compaction, and the administrator's word (C.6, K.3)."""

import pytest

from pqbroker.tables.refusals import TableError
from pqbroker.tables.sorted.picking.estimates import check_wave, due_bytes, forced_estimate, periodic_estimate
from tests.tables.sorted.picking.stores import DAY, GIB, NOW, chunk, tablet

pytestmark = pytest.mark.spec("C.6", "K.3")

TERABYTE = 10**12


def test_500_gib_in_a_day_on_two_nodes_is_3_1_mb_a_second_a_node() -> None:
    found = periodic_estimate(500 * GIB, nodes=2, period_ms=DAY)
    assert found.bytes_per_second / 10**6 == pytest.approx(3.1, abs=0.01)
    assert found.bytes_per_second / 2**20 == pytest.approx(2.96, abs=0.01)
    assert found.seconds == 86_400
    assert "3.1 MB/s a node take 24.0 hours" in found.text


def test_a_wave_takes_size_by_nodes_by_100_mb_a_second() -> None:
    assert forced_estimate(TERABYTE, nodes=1).seconds == 10_000
    assert forced_estimate(TERABYTE, nodes=4).seconds == 2_500
    assert forced_estimate(TERABYTE, nodes=1, bytes_per_second=50_000_000).seconds == 20_000
    assert "100.0 MB/s a node take 2.8 hours" in forced_estimate(TERABYTE, nodes=1).text


def test_a_first_period_starts_with_the_chunks_that_are_old_already() -> None:
    held = [chunk(1, 900, created_ms=NOW - 2 * DAY), chunk(2, 70)], [chunk(3, 5, created_ms=NOW - 2 * DAY)]
    assert due_bytes(tablet(*held, eden=[chunk(4, 1, created_ms=0)], auto_compaction_period=DAY), NOW) == 906
    assert due_bytes(tablet(*held), NOW) == 0


def test_above_20_tb_or_100_000_chunks_an_administrator_has_to_agree() -> None:
    check_wave(20 * TERABYTE, 100_000, is_agreed=False)
    for size, chunks in ((20 * TERABYTE + 1, 1), (1, 100_001)):
        with pytest.raises(TableError, match="administrator") as caught:
            check_wave(size, chunks, is_agreed=False)
        assert caught.value.code == "NEEDS_AGREEMENT"
        assert "remount" in caught.value.cure
        check_wave(size, chunks, is_agreed=True)
