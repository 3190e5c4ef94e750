"""A tablet's entries against a plain dict, sorted whenever somebody walks."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pqbroker.storage.kv import ordered_entries
from pqbroker.storage.kv.ordered_entries import OrderedEntries
from pqbroker.storage.kv.rows import Entry

KEYS = st.binary(min_size=1, max_size=1)
CHANGES = st.dictionaries(KEYS, st.one_of(st.none(), st.builds(Entry.number, st.just(0), st.integers(0, 9))))


@given(st.lists(st.tuples(CHANGES, st.booleans()), max_size=20), KEYS, KEYS, st.tuples(st.booleans(), st.booleans()))
def test_keys_are_walked_in_order_whenever_they_are(
    rounds: list[tuple[dict[bytes, Entry | None], bool]], lo: bytes, hi: bytes, inclusive: tuple[bool, bool]
) -> None:
    entries, model = OrderedEntries(), dict[bytes, Entry]()
    for changes, is_walked in rounds:
        entries.apply(changes)
        model = {key: entry for key, entry in {**model, **changes}.items() if entry is not None}
        assert entries.by_key == model
        assert all(entries[key] is entries.get(key) is model[key] and key in entries for key in model)
        if is_walked:
            assert list(entries) == sorted(model)
    within = (key for key in sorted(model) if lo <= key <= hi)
    ends = {key for key, is_in in zip((lo, hi), inclusive, strict=True) if not is_in}
    assert list(entries.irange(lo, hi, inclusive)) == [key for key in within if key not in ends]
    assert list(entries.irange(lo, None, (True, False))) == [key for key in sorted(model) if key >= lo]
    assert len(entries) == len(model)


def test_what_the_order_lacks_is_limited(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ordered_entries, "CHANGED_MAX", 10)
    entries = OrderedEntries()
    for number in range(100):
        entries.apply({b"%03d" % number: Entry.number(0, number)})
        assert len(entries._changed) <= 10
    entries.apply({b"%03d" % number: None for number in range(95)})
    assert list(entries) == [b"%03d" % number for number in range(95, 100)]
