"""The ways of a node to parts of commits at other nodes, and its answers to them.

The first node is linked to all others, and reaches what they run. Another one asks the first, which answers for what it
runs itself, and passes on what others run.
"""

import asyncio
from collections import defaultdict
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any, Final, NamedTuple

from pqbroker.broker.node import commit_calls as calls
from pqbroker.broker.peers.link_rules import LinkBusy
from pqbroker.broker.peers.peer_frames import LinkBroken
from pqbroker.broker.peers.peer_link import PeerRefused
from pqbroker.broker.peers.peer_methods import PeerMethod, decode_peer_call, encode_peer_call
from pqbroker.broker.services.commits import preparing
from pqbroker.broker.services.commits.away import NEVER, HomeState, HomeWord, PreparedEnds
from pqbroker.broker.services.commits.commits import Commits
from pqbroker.pq.transactions.participants import SentRows
from pqbroker.pq.transactions.stored_forms import PARTICIPANTS_MAX, ParticipantId, PreparedHead, TransactionId
from pqbroker.storage.engine import CommitRefused
from pqbroker.storage.ids import TabletId
from pqbroker.storage.uninterrupted import uninterrupted

COMMIT_STEP_S: Final = 5.0
"""Seconds that another node has for an end of prepared rows, or for the word of a home."""
COMMIT_STEPS: Final = (PeerMethod.PREPARE_ROWS, PeerMethod.END_ROWS, PeerMethod.ASK_HOME)


class Way(NamedTuple):
    """A link that is open: the number of the node at its end, and what asks it. PeerRefused, LinkBusy."""

    node: int
    ask: Callable[[bytes, float], Awaitable[bytes]]


def _no_way(_tablet_id: TabletId) -> Way | None:
    return None


class CommitWays:
    """An `AwayNodes`, and answers to those of other nodes. Not `is_first`: all ways lead to the first node."""

    def __init__(self, *, is_first: bool, reach: Callable[[TabletId], Way | None] = _no_way) -> None:
        """`reach`: returns the way to the node that runs a tablet."""
        self._is_first = is_first
        self._reach = reach

    def use(self, reach: Callable[[TabletId], Way | None]) -> None:
        """Reach other nodes so from now on: the first node has links by now."""
        self._reach = reach

    @property
    def is_first(self) -> bool:
        return self._is_first

    def node_of(self, tablet_id: TabletId) -> int | None:
        way = self._reach(tablet_id)
        return None if way is None else way.node

    async def prepare(self, node: int, head: PreparedHead, parts: Sequence[SentRows], limit_s: float) -> Sequence[int]:
        way = self._reach(parts[0].participant.tablet_id)
        if way is None or way.node != node:
            raise CommitRefused(f"node {node} was lost before it could prepare its rows; try again")
        asked, body = calls.RowsAsked(head, parts, max(int(limit_s * 1000), 0)).encode()
        told = await _asked(way, PeerMethod.PREPARE_ROWS, asked, body, limit_s)
        try:
            return calls.decode_positions(told, len(parts))
        except ValueError as bad:
            raise calls.as_refused(bad) from bad

    async def finish(self, ends: PreparedEnds) -> Mapping[ParticipantId, str]:
        by_way, left = self._by_way(ends.participants)
        some = [self._finish_at(way, ends._replace(participants=found)) for way, found in by_way]
        for found in await asyncio.gather(*some):
            left.update(found)
        return left

    def _by_way(
        self, participants: Sequence[ParticipantId]
    ) -> tuple[Sequence[tuple[Way, Sequence[ParticipantId]]], dict[ParticipantId, str]]:
        """Return participants by the way to their node, and why some have none."""
        found: defaultdict[int, list[ParticipantId]] = defaultdict(list)
        ways: dict[int, Way] = {}
        left: dict[ParticipantId, str] = {}
        for number in participants:
            way = self._reach(number.tablet_id)
            if way is None:
                left[number] = "no node has its cell open"
            else:
                ways[way.node] = way
                found[way.node].append(number)
        by_way = [
            (ways[node], some[begin : begin + PARTICIPANTS_MAX])
            for node, some in sorted(found.items())
            for begin in range(0, len(some), PARTICIPANTS_MAX)
        ]
        return by_way, left

    async def _finish_at(self, way: Way, ends: PreparedEnds) -> Mapping[ParticipantId, str]:
        try:
            told = await _asked(way, PeerMethod.END_ROWS, calls.encode_ends(ends), b"", COMMIT_STEP_S)
            return calls.decode_left(told, ends)
        except (CommitRefused, ValueError) as refused:
            return dict.fromkeys(ends.participants, str(refused))

    async def word_of(self, homes: Sequence[ParticipantId], transaction: TransactionId) -> HomeWord:
        by_way, left = self._by_way(homes)
        word = HomeWord(HomeState.UNKNOWN) if left else NEVER
        for way, some in by_way:
            told = await _asked(way, PeerMethod.ASK_HOME, calls.encode_question(some, transaction), b"", COMMIT_STEP_S)
            try:
                word = word.with_another(calls.decode_word(told, transaction))
            except ValueError as bad:
                raise calls.as_refused(bad) from bad
        return word

    async def answer(self, commits: Commits, method: PeerMethod, head: Any, body: memoryview) -> bytes:
        """Answer another node. PeerRefused."""
        try:
            if method is PeerMethod.PREPARE_ROWS:
                told = await uninterrupted(_prepare(commits, calls.RowsAsked.decode(head, body)))
            elif method is PeerMethod.END_ROWS:
                told = calls.encode_left(await self._end(commits, calls.decode_ends(head)))
            else:
                told = calls.encode_word(await self._word(commits, *calls.decode_question(head)))
        except (CommitRefused, ValueError) as bad:
            raise PeerRefused(str(bad)) from bad
        return encode_peer_call(method, told)

    async def _end(self, commits: Commits, ends: PreparedEnds) -> Mapping[ParticipantId, str]:
        """End what is here; the first node has others end the rest."""
        left = await preparing.end(commits, ends)
        away = [number for number in left if self._is_first and commits.is_elsewhere(number.tablet_id)]
        if away:
            for number in away:
                del left[number]
            left.update(await self.finish(ends._replace(participants=away)))
        return {number: why for number, why in left.items() if commits.has(number)}

    async def _word(self, commits: Commits, homes: Sequence[ParticipantId], transaction: TransactionId) -> HomeWord:
        """Return what is known here; the first node asks others about the rest. CommitRefused."""
        if commits.is_under_way(transaction):
            return HomeWord(HomeState.UNDECIDED)
        away = [home for home in homes if self._is_first and commits.is_elsewhere(home.tablet_id)]
        word = NEVER
        for home in homes:
            if home not in away:
                word = word.with_another(commits.word_of(home, transaction))
        return word.with_another(await self.word_of(away, transaction)) if away else word


async def _prepare(commits: Commits, asked: calls.RowsAsked) -> Any:
    """Return the positions of prepared rows, or the refusal. ValueError."""
    try:
        limit_s = asked.limit_ms / 1000
        return calls.encode_positions(await preparing.prepare(commits, asked.head, asked.parts, limit_s))
    except calls.REFUSALS as refusal:
        return calls.encode_refusal(refusal)


async def _asked(way: Way, method: PeerMethod, head: Any, body: bytes, timeout_s: float) -> Any:
    """Return the head of an answer. CommitRefused: nobody knows what was done."""
    try:
        _, told, _ = decode_peer_call(await way.ask(encode_peer_call(method, head, body), timeout_s))
    except (LinkBroken, LinkBusy, PeerRefused) as refused:
        raise calls.as_refused(refused) from refused
    return told
