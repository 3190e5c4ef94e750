"""Room behind the ends of files: given back without changing a byte."""

import os
from pathlib import Path

import pytest

from pqbroker.storage.disk.spare_room import give_back, spare_bytes

MIB = 1 << 20


@pytest.mark.parametrize("data", [b"", b"a record", b"x" * 4096, b"x" * 65_536, b"z" + bytes(70_000) + b"z"])
def test_room_taken_beforehand_is_given_back_and_every_byte_stays(tmp_path: Path, data: bytes) -> None:
    file = tmp_path / "file"
    file.write_bytes(data)
    with file.open("r+b") as opened:
        os.posix_fallocate(opened.fileno(), len(data), 4 * MIB)
    before, taken = file.read_bytes(), file.stat().st_blocks
    assert spare_bytes([file]) > 3 * MIB
    give_back([file])
    assert file.read_bytes() == before
    assert taken - file.stat().st_blocks > 3 * MIB // 512
    assert spare_bytes([file]) < 65_536


def test_a_file_without_room_behind_its_end_has_none_to_give_back(tmp_path: Path) -> None:
    file = tmp_path / "file"
    file.write_bytes(b"x" * 100_000)
    empty = tmp_path / "empty"
    empty.touch()
    assert spare_bytes([file, empty]) == 0
    give_back([file, empty])
    assert file.read_bytes() == b"x" * 100_000
