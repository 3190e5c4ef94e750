"""Parts of a sorted table's tablet, for answers that are too large."""

from pqbroker.pipeline.ordered_tables.sorted_rows import TabletPart


def test_smaller_parts_have_each_hash_once() -> None:
    parts = [TabletPart(3, 7)]
    for _ in range(3):
        parts += parts.pop().smaller()
        for hashed in range(1000):
            owners = [part for part in parts if hashed % part.parts == part.part]
            assert len(owners) == 1
    assert {(part.tablet, part.timestamp) for part in parts} == {(3, 7)}
    assert max(part.parts for part in parts) == 64
