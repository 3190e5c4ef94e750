"""Page checksums: how a blob is cut does not matter, and any wrong page is found, also by the sum over all."""

from itertools import pairwise

import pytest
from crc32c import crc32c
from hypothesis import given
from hypothesis import strategies as st

from pqbroker.storage.disk.checksums import SEGMENT_PAGE_BYTES as PAGE
from pqbroker.storage.disk.checksums import first_wrong_page, page_checksums
from tests.storage.cells import content


@given(st.binary(max_size=200), st.lists(st.integers(0, 200)), st.integers(1, 50))
def test_page_checksums_do_not_depend_on_how_a_blob_is_cut(data: bytes, cuts: list[int], scale: int) -> None:
    whole = data * (scale * 20)
    edges = sorted({0, len(whole), *(min(cut * scale * 20, len(whole)) for cut in cuts)})
    buffers = [whole[start:stop] for start, stop in pairwise(edges)]
    expected = [crc32c(whole[at : at + PAGE]) for at in range(0, len(whole), PAGE)]
    assert page_checksums(buffers) == expected


@pytest.mark.parametrize("size", [1, PAGE - 1, PAGE, PAGE + 1, 2 * PAGE, 9 * PAGE + 5])
def test_pages_as_they_were_written_are_right(size: int) -> None:
    whole = content(1, size)
    assert first_wrong_page(memoryview(whole), page_checksums([whole])) is None


@pytest.mark.parametrize("size", [700, 2 * PAGE, 9 * PAGE + 5])
def test_the_first_of_the_wrong_pages_is_told(size: int) -> None:
    whole = content(1, size)
    wanted = page_checksums([whole])
    for position in {0, size // 2, size - 1}:
        changed = bytearray(whole)
        changed[position] ^= 1
        changed[-1] ^= 2
        assert first_wrong_page(memoryview(changed), wanted) == position // PAGE


def test_pages_in_another_order_are_wrong() -> None:
    whole = content(1, 4 * PAGE)
    swapped = whole[:PAGE] + whole[2 * PAGE : 3 * PAGE] + whole[PAGE : 2 * PAGE]
    assert first_wrong_page(memoryview(swapped), page_checksums([whole])[:3]) == 1
