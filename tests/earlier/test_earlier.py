"""A directory that an earlier commit filled, and that its kill left behind, opens here with all that it holds.

`python -m tests.earlier COMMIT` makes one more.
"""

import json
import tarfile
from pathlib import Path

import pytest

from pqbroker.__main__ import main
from pqbroker.client import Client
from pqbroker.fixture.http_calls import HttpCalls
from pqbroker.testing import broker
from tests.earlier.__main__ import ARCHIVES, DIRECTORY, EXPECTED
from tests.earlier.contents import PASSWORDS, SETTINGS, TABLE, holds, insert, read_back

pytestmark = pytest.mark.spec("A.1", "B.4", "K.5", "K.6")


@pytest.mark.parametrize("archive", sorted(ARCHIVES.glob("directory-of-*.tar.xz")), ids=lambda path: path.name)
def test_a_directory_of_an_earlier_commit_opens_whole_and_takes_more(archive: Path, tmp_path: Path) -> None:
    with tarfile.open(archive) as packed:
        packed.extractall(tmp_path, filter="data")
    expected = json.loads((tmp_path / EXPECTED).read_text(encoding="utf-8"))
    with broker(tmp_path / DIRECTORY, SETTINGS) as running:
        ask = HttpCalls(lambda: running.http).ask
        found = json.loads(json.dumps(read_back(running, ask)))
        for part, value in expected.items():
            assert holds(value, found[part]), f"{part}: {value}\n{found[part]}"
        for user in expected.get("users", []):
            with Client(running.http, login=(user["name"], PASSWORDS[user["name"]])) as client:
                assert len(client.tables()) == (2 if user["super"] else 0), "a user's password and rights are known"
        assert insert(ask, TABLE, 3, sequence=2)["duplicate"], "a session's last batch is known"
        assert insert(ask, TABLE, 3, sequence=3)["tablets"][0]["first_row_index"] == 8
        for name, topic in expected["topics"].items():
            for index, partition in enumerate(topic["partitions"]):
                if name != TABLE:
                    assert running.produce(name, "more", key="more", partition=index).offset == partition["end_offset"]
    assert main(["doctor", str(tmp_path / DIRECTORY)]) == 0


def test_there_is_a_directory_to_open() -> None:
    assert list(ARCHIVES.glob("directory-of-*.tar.xz"))
