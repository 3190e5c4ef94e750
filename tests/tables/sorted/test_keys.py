"""Encoded keys sort as their values do."""

import math
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pqbroker.tables.sorted.keys import ENCODED_KEY_BYTES_MAX, key_decoder, key_encoder, prefix_end

VALUES = {
    "int64": st.integers(-(1 << 63), (1 << 63) - 1),
    "uint64": st.integers(0, (1 << 64) - 1),
    "double": st.floats(allow_nan=False),
    "boolean": st.booleans(),
    "string": st.binary(max_size=6) | st.text("\0\xff", max_size=4).map(lambda text: text.encode("latin-1")),
    "utf8": st.text("\0aé￿😀", max_size=5),
}


def order(value: Any) -> Any:
    """Null first; texts by their bytes; -0 is 0."""
    if isinstance(value, str):
        value = value.encode()
    return (value is not None, 0 if value is None else value)


@pytest.mark.spec("C.1")
@given(st.data())
def test_keys_sort_as_their_values_do(data: st.DataObject) -> None:
    types = data.draw(st.lists(st.sampled_from(sorted(VALUES)), min_size=1, max_size=3))
    encode = key_encoder(types)
    rows = st.tuples(*(st.none() | VALUES[name] for name in types))
    left, right = data.draw(rows), data.draw(rows)
    one, other = [order(each) for each in left], [order(each) for each in right]
    assert (encode(left) < encode(right)) == (one < other)
    assert (encode(left) == encode(right)) == (one == other)
    assert encode(left[:1]) == encode(left)[: len(encode(left[:1]))], "a prefix of columns is a prefix of the bytes"


def test_a_key_that_begins_another_sorts_before_it() -> None:
    encode = key_encoder(["string", "int64"])
    assert encode((b"a", 9)) < encode((b"a\0", 1)) < encode((b"a\0\0", None)) < encode((b"a\1", None))


def test_nan_and_long_keys_are_refused() -> None:
    with pytest.raises(ValueError, match="NaN"):
        key_encoder(["double"])((math.nan,))
    with pytest.raises(ValueError, match=f"at most {ENCODED_KEY_BYTES_MAX} bytes"):
        key_encoder(["string"])((b"a" * ENCODED_KEY_BYTES_MAX,))


@given(st.data())
def test_a_key_gives_its_values_back(data: st.DataObject) -> None:
    types = data.draw(st.lists(st.sampled_from(sorted(VALUES)), min_size=1, max_size=4))
    values = data.draw(st.tuples(*(st.none() | VALUES[name] for name in types)))
    key = key_encoder(types)(values)
    assert [order(each) for each in key_decoder(types)(key)] == [order(each) for each in values]


@pytest.mark.parametrize("key", [b"\1", b"\1abc", b"\1" + b"a" * 20, b"\1a\0", b"\1a\0\xff", b"\1\xff\0\0"])
def test_bytes_that_are_no_key_are_refused(key: bytes) -> None:
    for name in ("int64", "utf8"):
        with pytest.raises(ValueError, match=r"int64|utf8"):
            key_decoder([name])(key)


@given(st.binary(max_size=4), st.binary(max_size=4))
def test_the_end_of_a_prefix(prefix: bytes, key: bytes) -> None:
    end = prefix_end(prefix)
    assert key.startswith(prefix) == (prefix <= key and (end is None or key < end))
