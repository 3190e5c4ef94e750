"""Answers of this node to what the first one asks about a materialization; `fed_elsewhere.py` says what that is."""

from typing import Any

import msgspec

from pqbroker.broker.ground.refusals import translate
from pqbroker.broker.services.materializing.dead_letters import write_letters
from pqbroker.broker.services.materializing.fed_elsewhere import FedWork
from pqbroker.broker.services.materializing.fed_partitions import read_slice, span_of
from pqbroker.broker.services.materializing.fed_writes import write_fed
from pqbroker.broker.services.tables.callers import TablesNode, TablesOpening
from pqbroker.broker.services.topics.partitions import unknown_topic
from pqbroker.pq.serving.partition_server import PartitionServer
from pqbroker.pq.serving.store_refusals import not_leader
from pqbroker.pq.serving.topic import Topic
from pqbroker.protocol.errors import KafkaError
from pqbroker.storage.engine import CommitRefused, ShardLost
from pqbroker.storage.ids import TabletId
from pqbroker.storage.kv.commands import KeyValueError
from pqbroker.storage.unreadable import StoredUnreadable
from pqbroker.tables.refusals import TableError
from pqbroker.tables.serving.feed_progress import FeedMove, RunLetters
from pqbroker.tables.serving.table import SortedTable
from pqbroker.tables.sorted.fed_rows import read_fed_rows


async def answer_fed(node: TablesNode, asked: dict[str, Any], body: bytes) -> tuple[Any, bytes]:
    """Return head and body of the answer. ValueError for what is no work of this version."""
    try:
        return await _done(node, FedWork(asked["feed"]), asked, body)
    except TableError as refusal:
        return {"refused": [refusal.code, refusal.message, refusal.cure]}, b""
    except CommitRefused as refusal:
        return {"refused": ["COMMIT_REFUSED", str(refusal), "It is tried again; the text says what to do."]}, b""
    except ShardLost as loss:
        return {"refused": ["SHARD_LOST", str(loss), "It continues when the cell is open again."]}, b""
    except (KeyValueError, OSError, StoredUnreadable) as error:
        return {"refused": ["FEED_FAILED", str(error), "It is tried again; the log of the node may say more."]}, b""
    except KafkaError as error:
        code, text = translate(error)
        return {"refused": [code.name, text, "GET /v1/topics/NAME shows what keeps the topic from serving."]}, b""
    except (LookupError, TypeError) as bad:
        raise ValueError(f"work on a materialization was expected: {bad!r}") from None


async def _done(node: TablesNode, work: FedWork, asked: dict[str, Any], body: bytes) -> tuple[Any, bytes]:
    opened = node.cell.current
    if work is FedWork.SPANS:
        topic = _topic(opened, asked)
        spans = [span_of(_partition(topic, int(index))) for index in asked["partitions"]]
        return {"spans": spans}, b""
    if work is FedWork.SLICE:
        found = await read_slice(_partition(_topic(opened, asked), int(asked["partition"])), int(asked["start"]))
        return {"end": found.end, "aborted": found.aborted}, b"".join(found.records)
    if work is FedWork.LETTERS:
        topic = _topic(opened, asked)
        _partition(topic, 0)
        await write_letters(topic, memoryview(bytearray(body)))  # offsets are stamped into it
        return {}, b""
    table = opened.sorted_tables.by_id(bytes.fromhex(asked["table"]))
    if table is None:
        raise TableError("TABLE_CHANGED", "the table was deleted meanwhile", "Nothing is left to do.")
    if work is FedWork.PROGRESS:
        if not table.tablets[0].is_loaded:
            raise TableError("TABLET_STARTING", f"{table.tablets[0].name} is not open there", "Ask again.")
        run, progress = bytes.fromhex(asked["run"]), table.tablets[0].progress
        return {"offsets": progress.offsets_of(run), "letters": msgspec.to_builtins(progress.letters_of(run))}, b""
    await _write(node, table, asked, body)
    return {}, b""


async def _write(node: TablesNode, table: SortedTable, asked: dict[str, Any], body: bytes) -> None:
    run, partition, start, end, letters = asked["move"]
    kept = None if letters is None else msgspec.convert(letters, RunLetters)
    move = FeedMove(bytes.fromhex(run), int(partition), int(start), int(end), kept)
    tablets = table.record.tablets
    if [*table.record.columns] != asked["columns"] or not {tablet for tablet, _ in asked["tablets"]} <= {*tablets}:
        text = f"{table.record.name} was altered or resharded before its rows were committed"
        raise TableError("TABLE_CHANGED", text, "It continues by itself.")
    counts = [(tablets.index(TabletId(tablet)), int(count)) for tablet, count in asked["tablets"]]
    by_tablet, _ = read_fed_rows(memoryview(body), counts, ())
    for index in {0, *by_tablet}:
        table.check_takes_rows(index)
    await write_fed(node.cell.current.commits, node.settings, table, by_tablet, move)


def _topic(opened: TablesOpening, asked: dict[str, Any]) -> Topic:
    """KafkaError."""
    topic = opened.topics.by_id(bytes.fromhex(asked["topic"]))
    if topic is None:
        raise unknown_topic()
    return topic


def _partition(topic: Topic, index: int) -> PartitionServer:
    """Return a partition that this node runs. KafkaError."""
    if not 0 <= index < len(topic.partitions):
        raise unknown_topic()
    partition = topic.partitions[index]
    if not partition.is_loaded and not partition.is_unmounted:
        raise not_leader()
    partition.check_readable()
    return partition
