"""Rows that another node's commit has prepared here, and the end of prepared rows that another node knows.

received --all hold--> prepared: durable, cell by cell  --finish-->  visible, or gone
         --refused---> gone; what is prepared in other cells waits for its end
prepared --nobody ends it within ASKS_AFTER_S--> `finishing.py` asks the home
"""

import asyncio
from collections.abc import Sequence
from contextlib import suppress
from functools import partial
from typing import Final

from pqbroker.broker.services.commits import joint_parts
from pqbroker.broker.services.commits.away import PreparedEnds
from pqbroker.broker.services.commits.commits import Commits
from pqbroker.pq.transactions.participants import CommitPart, LookAgain, ReceivedPart, SentRows
from pqbroker.pq.transactions.stored_forms import ParticipantId, PreparedHead
from pqbroker.protocol.errors import KafkaError
from pqbroker.storage.engine import CommitRefused, ShardLost
from pqbroker.storage.kv.joint_request import execute_together
from pqbroker.storage.outcome import Outcome
from pqbroker.tables.refusals import TableError

ASKS_AFTER_S: Final = 1.0
"""Seconds after which the home of prepared rows is asked: most often their commit ends them before."""
TRIES_MAX: Final = 10
"""Tries of parts whose tables get new chunks meanwhile."""


async def prepare(commits: Commits, head: PreparedHead, sent: Sequence[SentRows], limit_s: float) -> Sequence[int]:
    """Prepare rows of another node's commit; return the position of each part. ValueError for what is no rows;
    KafkaError, TableError, CommitRefused, ShardLost: some may be prepared."""
    try:
        async with asyncio.timeout(limit_s):
            return await _tried(commits, head, sent)
    except TimeoutError:
        text = f"rows were not prepared within {limit_s:g} s"
        cure = "Try again; pqbroker.transaction.prepare.ms.max is the limit, GET /v1/cells shows cells that are slow."
        raise TableError("COMMIT_TOO_SLOW", text, cure) from None


async def _tried(commits: Commits, head: PreparedHead, sent: Sequence[SentRows]) -> Sequence[int]:
    """Prepare; what has changed meanwhile is looked at again."""
    for _ in range(TRIES_MAX):
        parts = [await commits.received(one) for one in sent]
        for part in parts:
            part.prepares(head)
            await part.look_ahead()
        with suppress(LookAgain):
            return await _prepared(commits, head, parts)
    raise TableError("TABLET_BUSY", f"chunks of the tables were replaced {TRIES_MAX} times", "Try again.")


async def _prepared(commits: Commits, head: PreparedHead, parts: Sequence[ReceivedPart]) -> Sequence[int]:
    holding: list[CommitPart] = []
    requests: list[Outcome[None]] = []
    try:
        await joint_parts.enter(parts, holding)
        await joint_parts.encode(parts, None)
        joint_parts.check(holding)
        for cell in joint_parts.by_cell(parts):
            commands = list(joint_parts.commands_of(cell, None).items())
            for one in cell:
                holding.remove(one)
            request = joint_parts.told(cell, execute_together(commands))
            request.add_done_callback(partial(_watch, commits, head, cell))
            requests.append(request)
        for request in requests:
            await request.wait()
    finally:
        for part in holding:
            part.leave()
    for request in requests:
        request.result()
    return [part.position for part in parts]


def _watch(commits: Commits, head: PreparedHead, parts: Sequence[CommitPart], request: Outcome[None]) -> None:
    """Have the home be asked if what is prepared now does not end soon, however late it was prepared."""
    if request.exception() is None:
        ids = [part.participant.participant_id for part in parts]
        asyncio.get_running_loop().call_later(ASKS_AFTER_S, _ask_home, commits, head, ids)


def _ask_home(commits: Commits, head: PreparedHead, participants: Sequence[ParticipantId]) -> None:
    for number in participants:
        participant = commits.find(number)
        if participant is not None and head.transaction in participant.prepared:
            commits.look_after(number)


async def end(commits: Commits, ends: PreparedEnds) -> dict[ParticipantId, str]:
    """End prepared rows that are here; return why some are not ended, also of those that are not here."""
    left: dict[ParticipantId, str] = {}
    for number in ends.participants:
        participant = commits.find(number)
        if participant is None or not participant.is_known or participant.is_lost:
            left[number] = f"{commits.describe(number)} is not open"
            continue
        head = participant.prepared.get(ends.transaction)
        if head is None or (ends.timestamp is None and head.least_timestamp != ends.least_timestamp):
            continue
        try:
            await participant.finish(ends.transaction, ends.timestamp)
        except (CommitRefused, KafkaError, ShardLost, TableError) as refusal:
            left[number] = str(refusal)
    return left
