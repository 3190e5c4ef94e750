"""A search over several nodes: each searches its own partitions, and the first one joins the lines that they send.

The limits hold for all nodes together. Where one is reached, partitions that were not looked at whole are continued
from the last progress of their node, or behind its last match.
"""

import json
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping, Sequence
from typing import Any, Final, NamedTuple

from pqbroker.broker.web.routing.joined_streams import JoinedStreams, Part, read_piece
from pqbroker.broker.web.routing.problems import Problem
from pqbroker.broker.web.routing.routes import Call, Route, Stream

_SUMS: Final = ("records", "offsets", "offsets_total", "bytes", "bytes_total", "decompressed_bytes", "unread")
"""Counts of a node that are added up; matches are counted here."""

_Line = tuple[str, Any, bytes]
"""The one field of a line, its content, and the line itself."""


class JoinedLimits(NamedTuple):
    """Limits of all nodes together, each by the reason that it ends a search with."""

    matches: int
    bytes: int
    decompressed_bytes: int
    answer_bytes: int


async def join_searches(
    route: Route, calls: Mapping[int, Call], search_here: Callable[[Call], Awaitable[Stream]], limits: JoinedLimits
) -> AsyncGenerator[bytes, None]:
    """Yield the lines of a search by several nodes. Problem, and what `search_here` raises, before the first piece;
    later a line names the error."""
    streams, joined = JoinedStreams(), _JoinedSearch(len(calls), limits)
    has_begun = False
    try:
        await streams.open(route, calls, search_here)
        while not joined.is_over:
            taken = await streams.take()
            assert taken is not None, "there is no limit of time"
            part, piece = taken
            if found := joined.take(part, await read_piece(_read_lines, part, piece)):
                has_begun = True
                yield b"".join(found)
            for waiting in joined.next_parts(part):
                streams.ask(waiting)
    except Problem as problem:
        if not has_begun:
            raise
        yield _line(problem.document())
    finally:
        await streams.close()


def _read_lines(piece: bytes) -> list[_Line]:
    """ValueError, TypeError for what no search sends."""
    found = []
    for text in piece.splitlines(keepends=True):
        line = json.loads(text)
        if not isinstance(line, dict):
            raise ValueError("a line of a search was expected")
        ((kind, content),) = line.items()
        names = ("partition", "offset") if kind == "match" else _SUMS if kind in ("progress", "end") else ()
        if not all(isinstance(content[name], int) for name in names):
            raise ValueError("counts were expected")
        found.append((kind, content, text))
    return found


class _JoinedSearch:
    """Findings of all nodes, and how far each is, by the number of its stream."""

    def __init__(self, nodes: int, limits: JoinedLimits) -> None:
        self._nodes = nodes
        self._limits = limits
        self._states: dict[int, Mapping[str, Any]] = {}
        """Last progress of each node, or its end."""
        self._last: dict[int, tuple[int, int]] = {}
        """Partition and offset of its last match since."""
        self._began: list[Part] = []
        self._ended: set[int] = set()
        self._matches = self._answer_bytes = 0
        self.is_over = False

    def next_parts(self, part: Part) -> Sequence[Part]:
        """Return the streams of which to ask for another piece behind one of this stream. Nothing is looked at before
        all have said where they begin: that is their first piece."""
        if self._nodes == len(self._states):
            parts, self._began = [*self._began, part], []
            return [each for each in parts if each.number not in self._ended]
        self._began.append(part)
        return ()

    def take(self, part: Part, lines: Sequence[_Line]) -> list[bytes]:
        """Take the lines of a node; return those of the answer."""
        answer: list[bytes] = []
        for kind, content, text in lines:
            reason = ""
            if kind == "match":
                reason = self._take_match(part, content, text, answer)
            elif kind in ("progress", "end"):
                reason = self._take_state(part, kind, content)
                if not reason and len(self._states) == self._nodes:
                    answer.append(_line({"progress": self._state()}))
            else:
                answer.append(text)
                self.is_over = kind == "error"
            if reason:
                self.is_over = True
                answer.append(_line({"end": {"reason": reason, **self._state()}}))
            if self.is_over:
                break
        return answer

    def _take_match(self, part: Part, match: Mapping[str, Any], text: bytes, answer: list[bytes]) -> str:
        """Return the limit that is reached; empty without. The match itself may have no room more."""
        limits = self._limits
        if self._matches and self._answer_bytes + len(text) > limits.answer_bytes:
            return "answer_bytes"
        answer.append(text)
        self._matches += 1
        self._answer_bytes += len(text)
        self._last[part.number] = match["partition"], match["offset"]
        return "matches" if self._matches >= limits.matches else ""

    def _take_state(self, part: Part, kind: str, state: Mapping[str, Any]) -> str:
        """Return why the search is over; empty while it is not."""
        self._states[part.number] = state
        self._last.pop(part.number, None)
        if kind == "end":
            if state["reason"] != "end":
                return str(state["reason"])
            self._ended.add(part.number)
            if len(self._ended) == self._nodes:
                return "end"
        limits = self._limits
        for name, most in (("bytes", limits.bytes), ("decompressed_bytes", limits.decompressed_bytes)):
            if sum(one[name] for one in self._states.values()) >= most:
                return name
        return ""

    def _state(self) -> dict[str, Any]:
        """Return what all nodes have looked at, and where another search continues."""
        states = self._states.values()
        following: dict[str, int] = {}
        for number, state in self._states.items():
            following |= _behind(state["next_offsets"], self._last.get(number))
        undecoded = [state["undecoded"] for state in states if "undecoded" in state]
        return {
            "matches": self._matches, **{name: sum(state[name] for state in states) for name in _SUMS},
            "next_offsets": dict(sorted(following.items(), key=lambda place: int(place[0]))),
            **({"undecoded": _sum_undecoded(undecoded)} if undecoded else {}),
        }  # fmt: skip


def _behind(offsets: Mapping[str, int], match: tuple[int, int] | None) -> dict[str, int]:
    """Return where a node continues that has found this since it named these offsets, in the order in which it looks at
    them."""
    if match is None:
        return dict(offsets)
    partition, offset = match
    names = list(offsets)
    first = names.index(str(partition)) if str(partition) in offsets else 0
    return {**{name: offsets[name] for name in names[first:]}, str(partition): offset + 1}


def _sum_undecoded(undecoded: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    return {**undecoded[0], "records": sum(one["records"] for one in undecoded)}


def _line(document: Mapping[str, Any]) -> bytes:
    return json.dumps(document, ensure_ascii=False, separators=(",", ":")).encode(errors="backslashreplace") + b"\n"
