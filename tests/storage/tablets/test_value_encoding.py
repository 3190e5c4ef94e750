"""The encoding of values."""

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pqbroker.storage.tablets.value_encoding import (
    Decoding,
    decode,
    decode_items,
    encode,
    encode_list_head,
    encode_some,
)
from tests.support.depth import examples

values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text() | st.binary(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
)


@given(values)
def test_a_value_comes_back(value: object) -> None:
    found = decode(memoryview(encode(value)))
    assert found == value
    assert type(found) is type(value)


@given(values, st.integers(1, 9))
def test_a_value_encoded_in_steps_has_the_same_bytes(value: object, step: int) -> None:
    out, waiting = bytearray(), [value]
    while waiting:
        before = len(out)
        encode_some(out, waiting, before + step)
        assert len(out) > before
    assert out == encode(value)


@given(values, st.integers(1, 9))
def test_a_value_decoded_in_steps_is_the_same(value: object, step: int) -> None:
    decoding = Decoding(encode(value))
    for _ in range(2 * len(encode(value)) + 1):
        if decoding.go_on(step):
            break
    assert decoding.value == value


@given(st.binary(), st.integers(1, 9))
def test_bytes_decoded_in_steps_are_refused_as_in_one(data: bytes, step: int) -> None:
    found: list[object] = []
    for size in (step, 1 << 30):
        decoding = Decoding(data)
        try:
            while not decoding.go_on(size):
                pass
            found.append(repr(decoding.value))
        except ValueError as refusal:
            found.append(str(refusal))
    assert found[0] == found[1]


def test_a_value_of_any_depth_comes_back() -> None:
    value: list[Any] = []
    for _ in range(10_000):
        value = [value]
    found: Any = decode(encode(value))
    depth = 0
    while found:
        (found,) = found
        depth += 1
    assert (depth, found) == (10_000, [])


def test_a_dict_whose_key_is_a_deep_list_is_refused() -> None:
    of_list, of_dict = encode([[]])[:2], encode({"": None})[:2]
    with pytest.raises(ValueError, match="cut or damaged"):
        decode(of_dict + of_list * 10_000 + encode([]) + encode(None))


@given(values, st.data())
def test_a_cut_value_is_refused(value: object, data: st.DataObject) -> None:
    whole = encode(value)
    end = data.draw(st.integers(0, len(whole) - 1))
    with pytest.raises(ValueError, match=r"cut or damaged|no value|texts"):
        decode(whole[:end])


@given(st.binary())
def test_any_bytes_are_a_value_or_a_value_error(data: bytes) -> None:
    try:
        decode(data)
    except ValueError:
        return


def test_bytes_behind_a_value_are_refused() -> None:
    with pytest.raises(ValueError, match="behind"):
        decode(encode(1) + b"x")


@pytest.mark.parametrize("value", [object(), {1: 2}, {3}])
def test_what_is_no_value_is_refused(value: object) -> None:
    with pytest.raises(TypeError):
        encode(value)


def test_a_tuple_becomes_a_list() -> None:
    assert decode(encode((1, (2,)))) == [1, [2]]


@settings(max_examples=examples(50))
@given(st.lists(st.integers() | st.text() | st.lists(st.binary())), st.data())
def test_a_list_comes_item_by_item_and_can_be_written_so(items: list[object], data: st.DataObject) -> None:
    whole = encode_list_head(len(items)) + b"".join(map(encode, items))
    assert whole == encode(items)
    found = list(decode_items(whole))
    assert [item for item, _ in found] == items
    assert [end for _, end in found][-1:] in ([], [len(whole)])
    with pytest.raises(ValueError, match=r"cut or damaged|no value|texts"):
        list(decode_items(whole[: data.draw(st.integers(0, len(whole) - 1))]))
    with pytest.raises(ValueError, match="behind"):
        list(decode_items(whole + b"x"))


def test_what_is_no_list_has_no_items() -> None:
    with pytest.raises(ValueError, match="a list was expected"):
        list(decode_items(encode({})))
