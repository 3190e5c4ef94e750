"""`pqbroker backup` and `pqbroker restore`, of a broker that runs."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from pqbroker.testing import Broker, broker, memory_broker
from tests.cli.shell import Shell, run

RECORDS = "".join(f"{number}\n" for number in range(500))


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("backup") / "data"


@pytest.fixture(scope="module")
def running(data: Path) -> Iterator[Broker]:
    with broker(data) as one:
        assert run("produce", "t", "--broker", one.kafka, given=RECORDS).status == 0
        yield one


@pytest.fixture
def shell(running: Broker, capsys: pytest.CaptureFixture[str]) -> Shell:
    return Shell(running.kafka, capsys)


def test_a_backup_is_restored_and_served(shell: Shell, running: Broker, data: Path, tmp_path: Path) -> None:
    made = shell.raw("backup", "one", "--http", running.http, "--json").object
    assert list(made) == ["cell", "directory", "commit", "files", "linked_bytes", "copied_bytes"]
    assert made["directory"] == str(data / "backups" / "one")
    assert shell.raw("doctor", made["directory"]).status == 0
    restored = shell.raw("restore", made["directory"], str(tmp_path / "new"))
    assert restored.status == 0, restored.errors
    assert restored.output == (
        f"{tmp_path / 'new'}: restored and healthy; `pqbroker serve --data {tmp_path / 'new'}` serves it\n"
    )
    with broker(tmp_path / "new") as again:
        assert shell.raw("consume", "t", "--broker", again.kafka).output == RECORDS


def test_people_read_where_the_backup_is_and_what_it_took(shell: Shell, running: Broker, data: Path) -> None:
    said = shell.raw("backup", "two", "--http", running.http)
    assert said.output.startswith(f"{data / 'backups' / 'two'}: ")
    assert said.output.endswith(" copied\n")


def test_a_refusal_says_what_to_do(shell: Shell, running: Broker, tmp_path: Path) -> None:
    elsewhere = shell.raw("backup", str(tmp_path / "x"), "--http", running.http)
    assert elsewhere.status == 1
    assert "give a name, or set pqbroker.backup.dir" in elsewhere.errors
    assert shell.raw("backup", "again", "--http", running.http).status == 0
    assert "choose another name" in shell.raw("backup", "again", "--http", running.http).errors


def test_a_setting_says_where_backups_go(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "kept").mkdir()
    settings = {"pqbroker.backup.dir": str(tmp_path / "kept"), "pqbroker.backups.max": "1"}
    with broker(tmp_path / "data", settings) as one:
        shell = Shell(one.kafka, capsys)
        made = shell.raw("backup", str(tmp_path / "kept" / "b"), "--http", one.http, "--json").object
        assert made["directory"] == str(tmp_path / "kept" / "b")
        assert "pqbroker.backups.max is 1" in shell.raw("backup", "c", "--http", one.http).errors


def test_a_broker_in_memory_has_no_backup(capsys: pytest.CaptureFixture[str]) -> None:
    with memory_broker() as one:
        said = Shell(one.kafka, capsys).raw("backup", "b", "--http", one.http)
    assert said.status == 1
    assert "the memory engine cannot make a backup" in said.errors


def test_a_damaged_backup_is_told_when_it_is_restored(shell: Shell, running: Broker, tmp_path: Path) -> None:
    backup = Path(shell.raw("backup", "damaged", "--http", running.http, "--json").object["directory"])
    log = max(backup.glob("index-*/commits/*.commits"))
    content = bytearray(log.read_bytes())
    content[len(content) // 2] ^= 1
    log.write_bytes(content)
    said = shell.raw("restore", str(backup), str(tmp_path / "new"))
    assert said.status == 1
    assert "commit" in said.errors


def test_what_is_no_backup_is_not_restored(shell: Shell, tmp_path: Path) -> None:
    said = shell.raw("restore", str(tmp_path), str(tmp_path / "new"))
    assert said.status == 1
    assert "is no backup" in said.errors
