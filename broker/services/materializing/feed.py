"""One feed: records of a topic become rows of a sorted table, slice by slice.

    running --nothing to read--> running, until a partition moves
            --refused for now--> waiting --some time later--> running
            --refused until somebody does something--> stopped --it is done--> running

A slice is read as a consumer reads it, becomes rows in a worker, and is committed answer by answer: rows and the
partition's progress in one request, so that a crash neither loses nor repeats any.
"""

import asyncio
import logging
from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing, suppress
from typing import Any, Final, NamedTuple

from pqbroker.broker.ground.access import (
    ANONYMOUS,
    AclKind,
    AclOperation,
    AclResource,
    DirectCaller,
    Principal,
    check_access,
)
from pqbroker.broker.ground.refusals import translate
from pqbroker.broker.services.materializing.dead_letters import letter_bytes_max, send_letters
from pqbroker.broker.services.materializing.fed_elsewhere import FedElsewhere, look_elsewhere
from pqbroker.broker.services.materializing.fed_partitions import FedSlice, read_slice, span_of
from pqbroker.broker.services.materializing.fed_table import RESUME, FedTable, check_writable, find_fed, home_elsewhere
from pqbroker.broker.services.materializing.fed_writes import write_fed
from pqbroker.broker.services.materializing.feeding import NOTHING_ELSEWHERE, FeedShare
from pqbroker.broker.services.tables.callers import TablesNode
from pqbroker.pq.serving.partition_server import PartitionServer
from pqbroker.protocol.errors import KafkaError
from pqbroker.storage.engine import Buffer, CommitRefused, ShardLost
from pqbroker.storage.kv.commands import KeyValueError
from pqbroker.storage.tablets.scheme_materializations import MaterializationRecord
from pqbroker.storage.unreadable import StoredUnreadable
from pqbroker.tables.refusals import TableError
from pqbroker.tables.serving.feed_progress import LETTERS_MAX, DeadLetter, FeedMove, FeedProgress
from pqbroker.tables.sorted.fed_rows import read_fed_rows
from pqbroker.tables.work.messages import Message
from pqbroker.tables.work.process import MEMORY_EXIT, WorkerGone, WorkerProcess

QUIET_S: Final = 1.0
"""Time after which a feed looks again that nothing moves, or that is stopped."""
FEED_BACK_OFF_FIRST_S: Final = 0.1
FEED_BACK_OFF_MOST_S: Final = 5.0
PARTITIONS_AT_ONCE: Final = 500
"""Partitions that are looked at before the loop's other work has its turn."""
PASSING: Final = frozenset((
    "COMMIT_REFUSED", "COMMIT_TOO_SLOW", "FEED_FAILED", "FEED_MOVED", "KAFKA_STORAGE_ERROR", "LEADER_NOT_AVAILABLE",
    "NODE_SILENT", "NOT_LEADER_OR_FOLLOWER", "OFFSET_OUT_OF_RANGE", "OUT_OF_TABLET_MEMORY", "READ_FAN_IN_EXCEEDED",
    "ROW_LOCK_CONFLICT", "SHARD_LOST", "STORE_OVERFLOWN", "TABLET_BUSY", "TABLET_STARTING", "TABLE_CHANGED",
    "TOO_MANY_DYNAMIC_STORES", "TOO_MANY_EDEN_STORES", "TOO_MANY_OVERLAPPING_STORES", "TOO_MANY_STORES",
    "TRANSACTIONS_PAUSED", "WORKER_LOST",
))  # fmt: skip
"""Codes of refusals that end by themselves."""
_log = logging.getLogger(__name__)


class FeedRefusal(NamedTuple):
    """The reason why a feed does not run. `is_passing`: nobody has to do anything."""

    code: str
    message: str
    cure: str

    @property
    def is_passing(self) -> bool:
        return self.code in PASSING


class Feed:
    """One materialization, as one opening of the cells feeds it."""

    def __init__(self, node: TablesNode, record: MaterializationRecord, row: Any, share: FeedShare) -> None:
        self.opened = node.cell.current
        self.record = record
        self.row = row
        """Stored row of the record: another one means that it was changed."""
        self.refusal: FeedRefusal | None = None
        self._node = node
        self._share = share
        self._moved = asyncio.Event()
        self._watched: Sequence[PartitionServer] = ()
        self._elsewhere = NOTHING_ELSEWHERE
        """Parts of the topic and the table at other nodes, as of this pass."""
        self._task: asyncio.Task[None] | None = None

    def start(self) -> None:
        """Begin to feed."""
        self._task = asyncio.get_running_loop().create_task(self._run())
        self._task.add_done_callback(self._ended)

    async def stop(self) -> None:
        """End. A commit on its way is not waited for: it counts if it becomes durable."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.wait([self._task])

    async def _run(self) -> None:
        backoff_s = FEED_BACK_OFF_FIRST_S
        try:
            while True:
                refusal = await self._try()
                if refusal is None:
                    backoff_s = FEED_BACK_OFF_FIRST_S
                else:
                    await asyncio.sleep(backoff_s if refusal.is_passing else QUIET_S)
                    backoff_s = min(2 * backoff_s, FEED_BACK_OFF_MOST_S)
        finally:
            self._unwatch()

    async def _try(self) -> FeedRefusal | None:
        """Feed all that there is, or wait until there is something; return what refused it."""
        try:
            fed = find_fed(self._node, self.opened, self.record)
            self._check_rights(fed)
            self._watch(fed.topic.partitions)
            self._moved.clear()
            has_fed = await self._pass(fed)
        except TableError as error:
            refusal = FeedRefusal(error.code, error.message, error.cure)
        except CommitRefused as error:
            refusal = FeedRefusal("COMMIT_REFUSED", str(error), "It is tried again; the text says what to do.")
        except ShardLost as error:
            refusal = FeedRefusal("SHARD_LOST", str(error), "It continues when the cell is open again.")
        except (KeyValueError, OSError, StoredUnreadable) as error:
            refusal = FeedRefusal("FEED_FAILED", str(error), "It is tried again; the log of the broker may say more.")
        except KafkaError as error:
            code, text = translate(error)
            refusal = FeedRefusal(code.name, text, "GET /v1/topics/NAME shows what keeps the topic from serving.")
        else:
            self._follow(None)
            if not has_fed:
                await self._wait_for_records()
            return None
        self._follow(refusal)
        return refusal

    def _check_rights(self, fed: FedTable) -> None:
        """KafkaError TOPIC_AUTHORIZATION_FAILED where its creator may not read the topic or write the table now."""
        if self._node.access is None:
            return
        kind, _, name = self.record.creator.partition(":")
        caller = DirectCaller(self._node, Principal(kind, name) if name else ANONYMOUS)
        check_access(caller, AclOperation.READ, AclResource(AclKind.TOPIC, fed.topic.record.name))
        written = [fed.table.record.name, self.record.letter_topic]
        for topic in filter(None, written):
            check_access(caller, AclOperation.WRITE, AclResource(AclKind.TOPIC, topic))

    def _ended(self, task: "asyncio.Task[None]") -> None:
        if not task.cancelled() and (defect := task.exception()) is not None:
            self.refusal = FeedRefusal("DEFECT", f"the feed failed: {defect}", f"Report it; {RESUME} begins it again.")
            _log.critical("a table is fed no more; this is a defect", exc_info=defect)

    def _follow(self, refusal: FeedRefusal | None) -> None:
        before, self.refusal = self.refusal, refusal
        if refusal is not None and (before is None or before.code != refusal.code):
            what = "waits" if refusal.is_passing else "stopped"
            _log.warning("feeding from %s %s: %s; %s", self.record.topic, what, refusal.message, refusal.cure)
        elif refusal is None and before is not None:
            _log.info("feeding from %s continues", self.record.topic)

    async def _wait_for_records(self) -> None:
        """Wait until a partition moves, but not for long: topic and table are looked at again."""
        with suppress(TimeoutError):
            async with asyncio.timeout(QUIET_S):
                await self._moved.wait()

    def _watch(self, partitions: Sequence[PartitionServer]) -> None:
        if self._watched != partitions:
            self._unwatch()
            self._watched = list(partitions)
            for partition in partitions:
                partition.watchers.put(self, self._moved.set)

    def _unwatch(self) -> None:
        for partition in self._watched:
            partition.watchers.forget(self)
        self._watched = ()

    async def _pass(self, fed: FedTable) -> bool:
        """Feed a slice of each partition that has any, those of this node first. Return True if one had."""
        topic, leaders = fed.topic, self._node.leaders
        by_node = leaders.by_number(topic)
        here = by_node.pop(leaders.number, [])
        self._elsewhere = await look_elsewhere(self._node, fed.topic, fed.table, self.record)
        self._share.elsewhere[self.record.table_id] = self._elsewhere
        has_fed = False
        for number, index in enumerate(here):
            if number % PARTITIONS_AT_ONCE == PARTITIONS_AT_ONCE - 1:
                await asyncio.sleep(0)
            partition = topic.partitions[index]
            span = span_of(partition)
            start = fed.next_offset(self._progress(fed), span)
            if start < span.end_offset:
                await self._feed(index, start, await read_slice(partition, start))
                has_fed = True
        node_of = {index: node for node, indexes in by_node.items() for index in indexes}
        for span in self._elsewhere.spans:
            start = fed.next_offset(self._progress(fed), span)
            if start < span.end_offset and span.partition in node_of:
                there = FedElsewhere(self._node, node_of[span.partition])
                await self._feed(span.partition, start, await there.slice(topic, span.partition, start))
                has_fed = True
        return has_fed

    def _progress(self, fed: FedTable) -> FeedProgress:
        """Return the progress as it is known here, the commits of this feed included."""
        return fed.table.tablets[0].progress if self._elsewhere.progress is None else self._elsewhere.progress

    async def _feed(self, partition: int, start: int, found: FedSlice) -> None:
        """Feed records of a partition from an offset on. Raises as `_commit`."""
        fed = find_fed(self._node, self.opened, self.record)
        document = {
            **fed.document(), "partition": partition, "start": start, "end": found.end,
            "aborted": found.aborted, "letters_max": LETTERS_MAX,
            "letter_batch_bytes_max": letter_bytes_max(self.opened, self.record),
            "memory_bytes_max": self._node.settings.sql_memory_bytes_max,
        }  # fmt: skip
        async with self._share.slots, aclosing(self._answers(document, found.records)) as answers:
            async for answer in answers:
                await self._share.rate.take(answer.document["records"])
                await self._commit(fed, partition, start, answer)
                start = answer.document["next_offset"]

    async def _answers(self, document: Any, payload: Sequence[Buffer]) -> AsyncGenerator[Message, None]:
        """Yield what a worker makes of records. TableError."""
        workers, settings = self._node.workers, self._node.settings
        idle_s, memory_bytes_max = settings.sql_worker_idle_ms / 1000, settings.sql_memory_bytes_max // 2
        worker = await workers.take()
        has_ended = False
        try:
            await worker.send("materialize", document, payload)
            while (message := await self._received(worker)).kind == "rows":
                yield message
            has_ended = True
        except WorkerGone:
            has_ended = True
            raise _lost(await workers.end(worker), settings.sql_memory_bytes_max) from None
        finally:
            if not has_ended:
                await workers.stop(worker, idle_s, memory_bytes_max)
        if message.document.get("resident_bytes", 0) < memory_bytes_max:
            workers.give_back(worker, idle_s)
        else:
            await workers.end(worker)
        if message.kind == "refused":
            raise TableError(**message.document)

    async def _received(self, worker: WorkerProcess) -> Message:
        """Return the next message. WorkerGone; TableError where it takes too long."""
        time_ms = self._node.settings.sql_time_ms_max
        try:
            async with asyncio.timeout(time_ms / 1000):
                return await worker.receive()
        except TimeoutError:
            text = f"records took longer to become rows than pqbroker.sql.time.ms.max = {time_ms}"
            raise TableError("WORKER_LOST", text, "It is tried again; or raise the setting.") from None

    async def _commit(self, fed: FedTable, partition: int, start: int, answer: Message) -> None:
        """Write the rows of an answer and the progress. TableError, CommitRefused, ShardLost, KafkaError."""
        said = answer.document
        table, home = fed.table, home_elsewhere(self._node, fed.table)
        by_tablet, batches = read_fed_rows(memoryview(answer.payload), said["tablets"], said["batches"])
        check_writable(self._node, table, {0, *by_tablet})
        await send_letters(self._node, self.opened, self.record, batches)
        letters = None
        if said["letter_count"]:
            last = [DeadLetter(partition, offset, reason) for offset, reason in said["letters"]]
            letters = self._progress(fed).letters_of(self.record.run).followed_by(said["letter_count"], last)
        move = FeedMove(self.record.run, partition, start, said["next_offset"], letters)
        if home is None:
            await write_fed(self.opened.commits, self._node.settings, table, by_tablet, move)
        else:
            await FedElsewhere(self._node, home).write(table, by_tablet, move)
            self._progress(fed).apply(move)
        counters = self._share.counters
        counters.records += said["records"]
        counters.rows += sum(count for _, count in said["tablets"])
        counters.dead_letters += said["letter_count"]


def _lost(status: int, memory_bytes_max: int) -> TableError:
    if status == MEMORY_EXIT:
        text = f"the records need more memory than pqbroker.sql.memory.bytes.max = {memory_bytes_max}"
        return TableError("RECORDS_TOO_LARGE", text, "Raise the setting.")
    text = f"the process that made rows of the records ended with status {status}"
    return TableError("WORKER_LOST", text, "It is tried again; the log of the broker may say why it ended.")
