"""Access rules and quotas in the scheme: stored, followed, and what earlier versions make of them."""

from collections.abc import Callable
from typing import Any

import pytest

from pqbroker.storage.memory import MemoryEngine
from pqbroker.storage.tablets.scheme import Scheme
from pqbroker.storage.tablets.scheme_acls import ACLS, AclChanges, rule_fields
from pqbroker.storage.tablets.scheme_quotas import QUOTAS, QuotaChanges, entity_key, stored_entity
from pqbroker.storage.tablets.scheme_state import SORTED_TABLES_FORMAT
from pqbroker.storage.unreadable import StoredUnreadable
from tests.storage.tablets.test_scheme import _open

RULE = (2, 3, "t", "User:ann", "*", 3, 3)
FORMAT = "pqbroker.storage.tablets.scheme_state.SCHEME_FORMAT"


@pytest.fixture
def engine() -> MemoryEngine:
    return MemoryEngine(8 << 20)


def noted(scheme: Scheme, row_set: str) -> list[tuple[Any, bool]]:
    """Return a list of what is reported: keys, and whether they have a row."""
    found: list[tuple[Any, bool]] = []
    follow: Callable[[Any, Any], None] = lambda key, row: found.append((key, row is not None))  # noqa: E731
    scheme.follow(row_set, follow)
    return found


async def test_rules_are_stored_once_removed_and_reported(engine: MemoryEngine) -> None:
    scheme = await _open(engine)
    told, changes = noted(scheme, ACLS), AclChanges(scheme)
    assert await changes.add([RULE, (*RULE[:2], "u", *RULE[3:])], 1) == [(2, 3, "u", "User:ann", "*", 3, 3)]
    assert await changes.add([RULE], 1) == []
    assert list((await _open(engine)).rows(ACLS)) == [RULE]
    scheme = await _open(engine)
    told_later, changes = noted(scheme, ACLS), AclChanges(scheme)
    assert await changes.remove([RULE, (*RULE[:2], "u", *RULE[3:])]) == [RULE]
    assert (told, told_later) == ([(RULE, True)], [(RULE, False)])
    assert not (await _open(engine)).rows(ACLS)


async def test_versions_before_rules_refuse_a_scheme_that_had_one(
    engine: MemoryEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    scheme = await _open(engine)
    with monkeypatch.context() as before:
        before.setattr(FORMAT, SORTED_TABLES_FORMAT)
        scheme = await _open(engine)
    await AclChanges(scheme).add([RULE], 10)
    await AclChanges(scheme).remove([RULE])
    monkeypatch.setattr(FORMAT, SORTED_TABLES_FORMAT)
    with pytest.raises(StoredUnreadable, match="newer version"):
        await _open(engine)


async def test_versions_before_quotas_leave_them_alone(engine: MemoryEngine, monkeypatch: pytest.MonkeyPatch) -> None:
    scheme = await _open(engine)
    key = entity_key(("ann", None, None))
    await QuotaChanges(scheme).change(lambda _: {key: {"producer_byte_rate": 1.5}})
    with monkeypatch.context() as before:
        before.setattr(FORMAT, SORTED_TABLES_FORMAT)
        scheme = await _open(engine)
    assert dict(scheme.rows(QUOTAS)) == {key: {"values": {"producer_byte_rate": 1.5}}}
    await QuotaChanges(scheme).change(lambda rows: {key: {}})
    assert not (await _open(engine)).rows(QUOTAS)


@pytest.mark.parametrize(
    "entity", [("ann", None, None), ("", "", None), (None, "default", None), (None, None, "name:")]
)
def test_an_entity_has_one_key(entity: tuple[str | None, str | None, str | None]) -> None:
    assert stored_entity(entity_key(entity)) == entity


@pytest.mark.parametrize("key", [("what", "", ""), ("name:", "", ""), (b"x", "", "")])
def test_a_key_of_no_version_is_refused(key: Any) -> None:
    with pytest.raises(ValueError, match="no part of an entity"):
        stored_entity(key)
    with pytest.raises(ValueError, match="fields"):
        rule_fields(key)
