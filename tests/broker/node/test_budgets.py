"""Budgets of a broker with several nodes: each node takes its part of them."""

import asyncio
from pathlib import Path

import pytest

from pqbroker.broker.kafka.net.receiving import Receiving
from pqbroker.broker.node.commit_ways import CommitWays
from pqbroker.broker.node.node_place import NodePlace
from pqbroker.broker.node.server import Server
from pqbroker.broker.peers.link_rules import LinkTerms
from pqbroker.conf.broker import BrokerSettings
from pqbroker.storage.memory import MemoryEngine

MIB = 1 << 20


async def test_two_nodes_together_take_what_the_broker_may(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[Receiving] = []

    def receiving(settings: BrokerSettings, loop: asyncio.AbstractEventLoop) -> Receiving:
        made.append(Receiving(settings, loop))
        return made[-1]

    monkeypatch.setattr("pqbroker.broker.node.server.Receiving", receiving)
    settings, engine = BrokerSettings(), MemoryEngine(64 * MIB)
    ways = CommitWays(is_first=True)
    place = NodePlace(1, 2, (), engine, str(tmp_path / "door"), LinkTerms(b"s" * 32), ways)
    server = Server(settings, engine, place)
    await server.start()
    opened = server.node.cell.current
    memory, tables = opened.topics.memory, opened.sorted_tables.share.settings
    assert [2 * one.budget.bytes_max for one in made] == [settings.node_bytes_max]
    assert 2 * server.node.answers.bytes_max == settings.unsent_bytes_max
    assert 2 * memory.cache.bytes_max == settings.cache_bytes
    assert 2 * memory.heads.bytes_max == settings.head_bytes
    assert 2 * tables.stores_bytes_max == settings.table_stores_bytes_max
    assert 2 * tables.blocks_bytes_max == settings.table_blocks_bytes_max
    assert 2 * tables.flushes_max == settings.table_flushes_max
    await server.stop()
