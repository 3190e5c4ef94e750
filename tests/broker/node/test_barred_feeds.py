"""Change feeds at a restart of the broker: each has the rights of who named it, as they are then."""

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import Any

import pytest

from pqbroker.broker.ground.access import AclKind, AclOperation, DirectCaller, Principal
from pqbroker.broker.ground.listeners import Address
from pqbroker.broker.node.parts import Node
from pqbroker.broker.node.server import Server
from pqbroker.broker.services.access.changes import add_rules, remove_rules
from pqbroker.broker.services.access.rules import AclPattern, AclPermission, AclRule
from pqbroker.broker.services.sorted_tables.attributes import remount_sorted, set_sorted_attributes
from pqbroker.broker.services.sorted_tables.making import NewSortedTable, create_sorted
from pqbroker.broker.services.sorted_tables.rows import insert_sorted
from pqbroker.broker.services.tables.inserting import GivenRows
from pqbroker.conf.access import STANDARD_AUTHORIZER
from pqbroker.conf.broker import BrokerSettings
from pqbroker.storage.memory import MemoryEngine
from pqbroker.tables.refusals import TableError

SCHEMA = [{"name": "id", "type": "int64", "sort_order": "ascending"}, {"name": "text", "type": "utf8"}]


@asynccontextmanager
async def started(engine: MemoryEngine) -> AsyncIterator[Node]:
    settings = BrokerSettings(authorizer_class_name=STANDARD_AUTHORIZER, super_users="User:root")
    server = Server(settings, engine, Address("127.0.0.1", 0))
    await server.start()
    try:
        yield server.node
    finally:
        await server.stop()


def rules(*wanted: tuple[str, AclOperation]) -> Sequence[AclRule]:
    return [
        AclRule(AclKind.TOPIC, AclPattern.LITERAL, name, "User:bob", "*", operation, AclPermission.ALLOW)
        for name, operation in wanted
    ]


def caller(node: Node, user: str) -> DirectCaller[Node]:
    return DirectCaller(node, Principal("User", user))


async def insert(node: Node, number: int) -> Any:
    return await insert_sorted(caller(node, "root"), "t", GivenRows([{"id": number, "text": "a"}]), is_update=False)


async def test_a_feed_whose_creator_has_lost_its_rights_takes_no_changes_after_a_restart(
    caplog: pytest.LogCaptureFixture
) -> None:
    engine = MemoryEngine(64 << 20)
    reads = rules(("t", AclOperation.READ))
    others = rules(
        ("t", AclOperation.ALTER_CONFIGS), ("changes", AclOperation.CREATE), ("changes", AclOperation.ALTER)
    )
    async with started(engine) as node:
        await create_sorted(caller(node, "root"), NewSortedTable("//t", SCHEMA, {}))
        assert await add_rules(node, [rule._asdict() for rule in (*reads, *others)]) == [None] * 4
        await set_sorted_attributes(caller(node, "bob"), "t", {"changes": "changes"})
        await remount_sorted(caller(node, "root"), "t")
        await insert(node, 1)
    async with started(engine) as node:
        await insert(node, 2)
        assert await remove_rules(node, reads) == set(reads)
        await insert(node, 3)  # rights are looked at when a feed starts
    async with started(engine) as node:
        with pytest.raises(TableError, match="who named it: User:bob has no permission for READ") as found:
            await insert(node, 4)
        assert found.value.code == "CHANGE_FEED_CLOSED"
        assert "remount TABLE" in found.value.cure
        assert "//t takes no writes, since its change feed 'changes' has the rights of who named it" in caplog.text
        await add_rules(node, [rule._asdict() for rule in reads])
        await remount_sorted(caller(node, "root"), "t")
        await insert(node, 4)
