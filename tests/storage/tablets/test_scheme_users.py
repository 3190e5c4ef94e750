"""Users of a scheme: their stored form, the format that they need, secrets, rows that no version wrote."""

from collections.abc import Mapping

import pytest

from pqbroker.storage.memory import MemoryEngine
from pqbroker.storage.tablets.cell import Cell
from pqbroker.storage.tablets.hosting import TabletHost
from pqbroker.storage.tablets.scheme import Scheme
from pqbroker.storage.tablets.scheme_objects import STORED_USERS
from pqbroker.storage.tablets.scheme_state import SORTED_TABLES_FORMAT
from pqbroker.storage.tablets.scheme_users import StoredCredential, UserChanges, UserRecord
from pqbroker.storage.unreadable import StoredUnreadable

CREDENTIAL = StoredCredential(b"salt", b"stored", b"server", 4096)
ALICE = UserRecord("alice", {"SCRAM-SHA-512": CREDENTIAL, "SCRAM-SHA-256": CREDENTIAL}, is_super=True, created_ms=7)


async def opened(engine: MemoryEngine) -> tuple[Cell, Scheme]:
    cell = await Cell.open(engine)
    return cell, await Scheme.open(TabletHost(cell))


async def put(scheme: Scheme, *records: UserRecord) -> None:
    names = [record.name for record in records]
    await UserChanges(scheme).change(names, lambda _: list(records))


async def test_users_are_read_as_they_were_stored() -> None:
    engine = MemoryEngine(1 << 20)
    cell, scheme = await opened(engine)
    assert scheme.next_row(STORED_USERS, ("a",)) is None
    await put(scheme, ALICE)
    await cell.close()
    _, scheme = await opened(engine)
    read = UserRecord.read("alice", scheme.rows(STORED_USERS)["alice",])
    assert read == ALICE
    assert list(read.credentials) == ["SCRAM-SHA-512", "SCRAM-SHA-256"]
    assert [scheme.next_row(STORED_USERS, (name,)) for name in ("a", "alice", "b")] == [("alice",)] * 3


async def test_a_user_without_credentials_is_removed() -> None:
    _, scheme = await opened(MemoryEngine(1 << 20))
    await put(scheme, ALICE)
    seen: list[Mapping[str, UserRecord]] = []

    def remove(known: Mapping[str, UserRecord]) -> list[UserRecord]:
        seen.append(known)
        return [UserRecord("alice", {}, is_super=True, created_ms=7)]

    await UserChanges(scheme).change(["alice", "bob"], remove)
    assert seen == [{"alice": ALICE}]
    assert not scheme.rows(STORED_USERS)


async def test_a_version_without_users_refuses_a_directory_that_has_some(monkeypatch: pytest.MonkeyPatch) -> None:
    engine = MemoryEngine(1 << 20)
    cell, scheme = await opened(engine)
    await put(scheme, ALICE)
    await cell.close()
    monkeypatch.setattr("pqbroker.storage.tablets.scheme_state.SCHEME_FORMAT", SORTED_TABLES_FORMAT)
    with pytest.raises(StoredUnreadable, match="a newer version wrote it"):
        await opened(engine)


async def test_a_secret_is_made_once() -> None:
    engine = MemoryEngine(1 << 20)
    cell, scheme = await opened(engine)
    assert await UserChanges(scheme).keep_secret("salt", b"first") == b"first"
    assert await UserChanges(scheme).keep_secret("salt", b"second") == b"first"
    assert await UserChanges(scheme).keep_secret("other", b"third") == b"third"
    await cell.close()
    _, scheme = await opened(engine)
    assert await UserChanges(scheme).keep_secret("salt", b"fourth") == b"first"


@pytest.mark.parametrize(
    "change",
    [
        {"credentials": {}}, {"credentials": None}, {"credentials": {"X": {}}}, {"credentials": {"X": 1}},
        {"credentials": {"X": {**CREDENTIAL.fields(), "salt": b""}}},
        {"credentials": {"X": {**CREDENTIAL.fields(), "salt": "text"}}},
        {"credentials": {"X": {**CREDENTIAL.fields(), "iterations": "many"}}}, {"created_ms": None}, {"is_super": ()},
    ],
)  # fmt: skip
def test_a_row_that_no_version_wrote_is_unreadable_and_shows_nothing(change: dict[str, object]) -> None:
    row = {**ALICE.fields(), **change}
    if change.get("is_super") == ():
        del row["is_super"]
    with pytest.raises(ValueError, match="the row of the user 'alice' is unreadable") as refused:
        UserRecord.read("alice", row)
    assert "stored" not in str(refused.value).replace("stored_key", "")
    assert "b'" not in repr(ALICE)
