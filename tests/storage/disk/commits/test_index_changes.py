"""Changes of the index as the commit log keeps them."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pqbroker.storage.disk.commits.index_changes import IndexChanges, decode_changes

KEYS = st.binary(max_size=40)
CHANGES = st.lists(
    st.one_of(
        st.tuples(st.just("put"), KEYS, st.binary(max_size=3000)),
        st.tuples(st.just("delete"), KEYS),
        st.tuples(st.just("delete_range"), KEYS, KEYS),
    ),
    max_size=30,
)
Called = list[tuple[str | bytes, ...]]


class Noted:
    """An index batch that notes what is called."""

    def __init__(self) -> None:
        self.called: Called = []

    def put(self, key: bytes, value: bytes) -> None:
        self.called.append(("put", key, value))

    def delete(self, key: bytes) -> None:
        self.called.append(("delete", key))

    def delete_range(self, begin: bytes, end: bytes) -> None:
        self.called.append(("delete_range", begin, end))


def changes_of(called: Called) -> IndexChanges:
    changes = IndexChanges()
    for name, *arguments in called:
        getattr(changes, str(name))(*arguments)
    return changes


def applied(changes: IndexChanges) -> Called:
    noted = Noted()
    changes.apply(noted)
    return noted.called


@given(CHANGES)
def test_what_is_encoded_is_decoded_in_the_same_order(called: Called) -> None:
    changes = changes_of(called)
    content = changes.encoded()
    assert len(content) == changes.encoded_bytes()
    assert applied(changes) == called
    assert applied(decode_changes(content)) == called


@given(CHANGES, st.data())
def test_what_is_cut_short_or_longer_is_refused(called: Called, data: st.DataObject) -> None:
    content = changes_of(called).encoded()
    with pytest.raises(ValueError, match="rows of a commit"):
        decode_changes(content[: data.draw(st.integers(0, len(content) - 1))])
    with pytest.raises(ValueError, match="rows of a commit"):
        decode_changes(content + b"\0")


def test_a_change_of_an_unknown_kind_is_refused() -> None:
    content = bytearray(changes_of([("put", b"k", b"v")]).encoded())
    content[4] = 9
    with pytest.raises(ValueError, match="a form that is not known"):
        decode_changes(bytes(content))


def test_a_value_is_replaced_without_another_size() -> None:
    changes = changes_of([("delete", b"a"), ("put", b"k", b"12"), ("put", b"l", b"34")])
    size = changes.encoded_bytes()
    changes.replace_value(1, b"56")
    assert applied(changes) == [("delete", b"a"), ("put", b"k", b"56"), ("put", b"l", b"34")]
    assert changes.encoded_bytes() == size
    with pytest.raises(AssertionError):
        changes.replace_value(2, b"longer")
