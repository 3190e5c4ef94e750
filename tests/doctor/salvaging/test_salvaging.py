"""`pqbroker doctor --salvage` on directories of a killed broker: what it names is given up, all else is there."""

import json
import re
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any
from urllib.request import urlopen

import pytest

from pqbroker.__main__ import main
from pqbroker.doctor.salvaging import cell_plan
from pqbroker.storage.disk.commits.commit_record import cell_seed
from pqbroker.storage.disk.commits.commit_scan import CommitAt
from pqbroker.storage.disk.commits.log_end import LogEnd
from pqbroker.storage.disk.directory import read_both
from pqbroker.storage.disk.mending.salvage_mark import read_mark
from pqbroker.storage.disk.offline import look_into
from pqbroker.testing import BrokerFailedError, broker
from tests.doctor.salvaging.directories import TOPICS, Client, Killed, killed
from tests.faults.power.recording import resident
from tests.storage.disk.mending.cells import IN_ROWS, damage, flip, rounds

FIRST, SECOND = TOPICS
HEADER = 20


@pytest.fixture(scope="module")
def left(tmp_path_factory: pytest.TempPathFactory) -> Killed:
    """A directory of a killed broker, of which each test has a copy."""
    return killed(tmp_path_factory.mktemp("killed") / "data")


@pytest.fixture
def data(left: Killed, tmp_path: Path) -> Killed:
    return replace(left, path=Path(shutil.copytree(left.path, tmp_path / "data")))


def salvage(path: Path, capsys: pytest.CaptureFixture[str], *options: str) -> dict[str, Any]:
    capsys.readouterr()
    assert main(["doctor", str(path), "--salvage", "--json", *options]) == 0
    found: dict[str, Any] = json.loads(capsys.readouterr().out)
    return found


def named(found: dict[str, Any], kind: str) -> list[tuple[str, str]]:
    return [(loss["where"], loss["what"]) for loss in found["losses"] if loss["kind"] == kind]


def perform(path: Path, capsys: pytest.CaptureFixture[str]) -> dict[str, Any]:
    """Salvage a directory that no broker starts on; what the dry run named before, which changed nothing."""
    with pytest.raises(BrokerFailedError, match="pqbroker doctor --salvage"), broker(path):
        pass
    before = resident(path)
    shown = salvage(path, capsys)
    assert resident(path) == before
    done = salvage(path, capsys, "--perform")
    assert shown["damaged"]
    assert done["performed"]
    assert done["losses"] == shown["losses"]
    return shown


def test_one_wrong_bit_in_the_middle_of_the_log_costs_nothing(data: Killed, capsys: pytest.CaptureFixture[str]) -> None:
    all_rounds = rounds(data.path)
    flip(all_rounds[len(all_rounds) // 2], IN_ROWS)
    shown = perform(data.path, capsys)
    assert [loss["kind"] for loss in shown["losses"]] == ["mended"]
    with broker(data.path) as node:
        client = Client(node.kafka)
        for topic in TOPICS:
            assert client.read(topic) == data.records_of(topic, 0, 1, 2, 3)
            assert client.send(topic, b"later") == 4
        assert client.committed("group", FIRST) == 3


@pytest.mark.parametrize("at", [IN_ROWS, HEADER])
def test_a_lost_record_between_others_is_unreadable_and_all_else_is_there(
    data: Killed, capsys: pytest.CaptureFixture[str], at: int
) -> None:
    damage(data.round_with(b"d0000000000_00000000000000000001_00000_0000000001", last=False), at)
    shown = perform(data.path, capsys)
    assert [where for where, _ in named(shown, "records")] == [f"{FIRST}-0"]
    assert "offsets 1 to 1 are lost" in named(shown, "records")[0][1]
    assert not named(shown, "offsets")
    with broker(data.path) as node:
        client = Client(node.kafka)
        assert client.read(FIRST)[:1] == data.records_of(FIRST, 0)
        assert client.read(FIRST, 1) == ["INVALID_MSG"]
        assert client.read(FIRST, 2) == data.records_of(FIRST, 2, 3)
        assert client.read(SECOND) == data.records_of(SECOND, 0, 1, 2, 3)
        assert client.committed("group", FIRST) == 3
        assert [client.send(topic, b"later") for topic in TOPICS] == [4, 4]


def test_a_lost_last_round_moves_offsets_beyond_all_that_it_can_have_given(
    data: Killed, capsys: pytest.CaptureFixture[str]
) -> None:
    damage(data.round_with(b"d0000000000_00000000000000000003_00000_0000000001"), IN_ROWS)
    damage(rounds(data.path)[-1], IN_ROWS)
    shown = perform(data.path, capsys)
    begins = {where: int(what.rpartition(" ")[2]) for where, what in named(shown, "offsets")}
    assert begins.keys() == {f"{topic}-0" for topic in TOPICS}
    assert all(offset > 4 for offset in begins.values())
    (groups,) = named(shown, "groups")
    assert groups[0] == f"{FIRST}-0"
    assert groups[1].endswith(": group at 2")
    with broker(data.path) as node:
        client = Client(node.kafka)
        assert client.committed("group", FIRST) == 2
        for topic in TOPICS:
            assert client.send(topic, b"later") == begins[f"{topic}-0"]
        assert client.read(FIRST) == [*data.records_of(FIRST, 0, 1, 2, 3), (begins[f"{FIRST}-0"], b"later")]
        later = (begins[f"{SECOND}-0"], b"later")
        assert client.read(SECOND) == [*data.records_of(SECOND, 0, 1, 2), later]
        assert client.read(SECOND, 3) == [later]
    assert read_mark(data.path).skipped[f"{SECOND}-0"] == [[3, begins[f"{SECOND}-0"]]]


def test_after_a_salvage_no_producer_id_is_given_again(data: Killed, capsys: pytest.CaptureFixture[str]) -> None:
    damage(rounds(data.path)[-1], IN_ROWS)
    counters = dict(named(perform(data.path, capsys), "scheme"))
    before = producer_ids(data.path)
    with broker(data.path) as node:
        Client(node.kafka).send(FIRST, b"later")
    (given,) = producer_ids(data.path) - before
    assert given >= int(counters["next producer id"].removeprefix("goes on at ")) > max(before)


def producer_ids(path: Path) -> set[int]:
    """Those that partitions remember."""
    with look_into(path, {}) as cell:
        keys = [key for key, _ in cell.rows(b"rK", b"rL") if key[10:11] == b"m" and key[21:22] == b"p"]
    return {int(key[22:]) for key in keys}


def test_after_a_salvage_nothing_is_removed_until_it_is_accepted(
    data: Killed, capsys: pytest.CaptureFixture[str]
) -> None:
    damage(rounds(data.path)[-1], IN_ROWS)
    perform(data.path, capsys)
    with broker(data.path) as node:
        with urlopen(f"http://{node.http}/health") as answer:
            health = json.load(answer)
        (shown,) = [one for one in health["conditions"] if one["kind"] == "damaged"]
        assert "commit " in shown["cause"]
        assert "the cell was salvaged, so nothing is removed from it: commit " in node.log
    assert main(["doctor", str(data.path)]) == 0
    assert "is not accepted yet" in capsys.readouterr().out
    assert main(["doctor", str(data.path), "--salvage", "--accept"]) == 0
    assert "accepted" in capsys.readouterr().out
    assert main(["doctor", str(data.path), "--salvage", "--accept"]) == 0
    assert "there is no salvage to accept" in capsys.readouterr().out
    assert main(["doctor", str(data.path)]) == 0
    assert "is not accepted yet" not in capsys.readouterr().out


def test_a_lost_topic_is_named_by_its_tablets_and_no_id_is_given_again(
    data: Killed, capsys: pytest.CaptureFixture[str]
) -> None:
    named_in = [each for each in rounds(data.path) if _changes_scheme(each) and SECOND.encode() in each.content()]
    damage(named_in[0], IN_ROWS)  # a later one may have a record of the topic beside some change of the scheme
    shown = perform(data.path, capsys)
    ((tablet, _),) = named(shown, "topics")
    counters = dict(named(shown, "scheme"))
    assert int(counters["next tablet id"].removeprefix("goes on at ")) > int(tablet.removeprefix("tablet "))
    assert counters["topics"].endswith(f": {FIRST}")
    with broker(data.path) as node:
        client = Client(node.kafka)
        assert client.read(FIRST) == data.records_of(FIRST, 0, 1, 2, 3)
        assert client.send(SECOND, b"of another topic of that name") == 0


def _changes_scheme(record: CommitAt) -> bool:
    """Return True if a round has a log blob of the scheme."""
    return b"b" + (1).to_bytes(8, "big") + b"\0" in record.content()


def test_records_in_a_torn_payload_of_a_synced_round_are_named_one_partition_at_a_time(
    data: Killed, capsys: pytest.CaptureFixture[str]
) -> None:
    with broker(data.path) as node:
        client = Client(node.kafka)
        assert client.send(SECOND, b"whole") == 4
        assert client.send(FIRST, b"x" * 50_000) == 4
        node.kill()
    (torn,) = [each for each in rounds(data.path) if each.header.payload_bytes >= 50_000]
    tear(data.path, torn)
    shown = perform(data.path, capsys)
    assert [loss["kind"] for loss in shown["losses"]] == ["payload", "records"]
    (records,) = named(shown, "records")
    merged = "some of the records with the offsets 0 to 4 are lost: CORRUPT_MESSAGE until a trim"
    assert records == (f"{FIRST}-0", merged)
    with broker(data.path) as node:
        client = Client(node.kafka)
        assert client.read(FIRST, 4) == ["INVALID_MSG"]
        assert client.read(SECOND, 4) == [(4, b"whole")]
        assert client.send(FIRST, b"later") == 5


def tear(path: Path, torn: CommitAt, back: int = 20_000) -> None:
    """Lose a sector of the payload of a round, which is known to be synced."""
    (index,) = path.glob("index-*")
    generation = int(index.name.removeprefix("index-"))
    end = LogEnd(index / "commits", generation, cell_seed(read_both(path)[0].cell), 0)
    end.tell(rounds(path)[-1].header.number)
    end.close()
    with torn.path.open("r+b") as file:
        file.seek((torn.position - back) // 512 * 512)
        file.write(bytes(512))


def test_a_directory_without_damage_has_nothing_to_salvage(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with broker(tmp_path / "data"):
        pass
    before = resident(tmp_path / "data")
    assert main(["doctor", str(tmp_path / "data"), "--salvage", "--perform"]) == 0
    assert "there is nothing to salvage" in capsys.readouterr().out
    assert resident(tmp_path / "data") == before


def test_a_running_broker_is_not_salvaged(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with broker(tmp_path / "data"):
        for options in ([], ["--perform"], ["--accept"]):
            assert main(["doctor", str(tmp_path / "data"), "--salvage", *options]) != 0
            assert "is in use by process" in capsys.readouterr().err


@pytest.mark.parametrize("options", [["--perform"], ["--accept"], ["--salvage", "--perform", "--accept"]])
def test_the_steps_of_a_salvage_are_taken_one_at_a_time(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], options: list[str]
) -> None:
    assert main(["doctor", str(tmp_path), *options]) != 0
    assert "two steps" in capsys.readouterr().err


def test_keys_of_a_tablet_of_any_kind_that_may_be_older_are_counted(
    data: Killed, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cell_plan, "_PLANS", {})
    damage(data.round_with(b"d0000000000_00000000000000000001_00000_0000000001", last=False), IN_ROWS)
    found = named(salvage(data.path, capsys), "keys")
    assert found
    assert all(re.fullmatch(r"tablet \d+", where) for where, _ in found)
    assert all("keys may be older than what was acknowledged" in what for _, what in found)
