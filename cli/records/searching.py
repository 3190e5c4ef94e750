"""Search of a topic by the broker itself, where it is a pqbroker that serves HTTP: it sends only what matches."""

import json
from collections.abc import Iterator, Mapping
from typing import Any, Final, NamedTuple
from urllib.parse import quote

from pqbroker.cli.http_address import learnt_http
from pqbroker.cli.kafka.cluster import Cluster
from pqbroker.cli.kafka.isolation import ReadIsolation
from pqbroker.cli.notices import tell
from pqbroker.cli.output import write
from pqbroker.cli.progress import Progress, prints_to_file
from pqbroker.cli.records.filters import TermsDocument
from pqbroker.cli.records.selection import PrintOptions
from pqbroker.cli.refusals import CommandError, with_cure
from pqbroker.cli.web import BrokerRefusal, NobodyAnswers, Web
from pqbroker.protocol.record_json import read_content

LIMIT_AT_ONCE: Final = 1000
"""Matches that one request asks for at most; another one continues where it ended."""
_TIMEOUT_S: Final = 600.0
"""A search that waits for its turn says nothing meanwhile."""


class FoundRecord(NamedTuple):
    """A record that a broker has found."""

    topic: str
    partition: int
    offset: int
    timestamp: int
    key: bytes | None
    value: bytes | None
    headers: list[tuple[str, bytes | None]]


class TopicSpans(NamedTuple):
    """Offsets of partitions at which the search of a topic begins, and those that it does not reach."""

    topic: str
    starts: Mapping[int, int]
    ends: Mapping[int, int]


class BrokerSearch:
    """Searches that a broker does for a command; each record that it finds is printed."""

    def __init__(self, address: str, terms: TermsDocument, isolation: ReadIsolation, wanted: PrintOptions) -> None:
        self._address = address
        self._terms = terms
        self._isolation = isolation
        self._wanted = wanted
        self._count = 0
        self._undecoded = 0
        """Records of the topic that its registry did not decode; `_why`: the first reason."""
        self._why = ""
        self._has_begun = False
        """True once a broker has answered with a line."""

    def run(self, spans: list[TopicSpans]) -> bool:
        """Print what matches. False: the broker does not search, and nothing was printed. CommandError."""
        total = sum(each.ends[index] - start for each in spans for index, start in each.starts.items())
        try:
            progress = Progress("records read", total, shown=prints_to_file())
            with Web(self._address, _TIMEOUT_S) as web, progress as shown:
                for each in spans:
                    self._search(web, each, shown)
        except (BrokerRefusal, NobodyAnswers) as refusal:
            if self._has_begun:
                raise
            tell(f"the broker does not search, so this command reads all records itself: {refusal}")
            return False
        return True

    def _search(self, web: Web, spans: TopicSpans, shown: Progress) -> None:
        """Print what matches in a topic, up to the limit. CommandError."""
        lines = self._lines(web, spans)
        self._undecoded, self._why = 0, ""
        while self._left != 0 and (line := next(lines, None)) is not None:
            self._has_begun = True
            self._take(line, shown)
        if self._undecoded:
            tell(f"records of {spans.topic} that were not decoded: {self._undecoded}; the first because {self._why}")

    @property
    def _left(self) -> int | None:
        return None if self._wanted.limit is None else self._wanted.limit - self._count

    def _lines(self, web: Web, spans: TopicSpans) -> Iterator[dict[str, Any]]:
        """The lines of an answer, and of those that continue it, up to the end of the topic. CommandError."""
        path = f"/v1/topics/{quote(spans.topic, safe='')}/search"
        offsets = {str(index): start for index, start in spans.starts.items() if start < spans.ends[index]}
        while offsets:
            left = self._left
            body = {
                **self._terms, "offsets": offsets, "end_offsets": {index: spans.ends[int(index)] for index in offsets},
                "isolation": str(self._isolation), "limit": min(LIMIT_AT_ONCE if left is None else left, LIMIT_AT_ONCE),
            }  # fmt: skip
            line: dict[str, Any] = {}
            for line in _documents(web.stream(path, body)):
                yield line
            following = line.get("end", {}).get("next_offsets", offsets)
            if following == offsets:
                raise CommandError(f"the search in {spans.topic} broke off; the log of the broker may say why")
            offsets = following

    def _take(self, line: Mapping[str, Any], shown: Progress) -> None:
        """Print a match; say what cannot be read. CommandError for an error."""
        if "match" in line:
            write(self._wanted.form(_record(line["match"])) + b"\n")
            self._count += 1
        elif "progress" in line:
            shown.reach(max(line["progress"]["offsets"], shown.done))
        elif "unread" in line:
            place = line["unread"]
            offsets = f"offsets {place['offset']} to {place['end_offset'] - 1}"
            tell(f"partition {place['partition']}, {offsets} cannot be read: {place['reason']}")
        elif "end" in line and "undecoded" in line["end"]:
            self._undecoded += line["end"]["undecoded"]["records"]
            self._why = self._why or line["end"]["undecoded"]["reason"]
        elif "error" in line:
            raise CommandError(with_cure(line["error"]["message"], line["error"]["cure"]))


def search_address(cluster: Cluster) -> str | None:
    """Return the HTTP address of a broker that may search; None where it has none, as Apache Kafka."""
    try:
        return learnt_http(cluster)
    except CommandError:
        return None


def _documents(pieces: Iterator[bytes]) -> Iterator[dict[str, Any]]:
    rest = b""
    for piece in pieces:
        *lines, rest = (rest + piece).split(b"\n")
        for line in lines:
            yield json.loads(line)


def _record(found: Mapping[str, Any]) -> FoundRecord:
    timestamp = found["timestamp"]
    return FoundRecord(
        found["topic"], found["partition"], found["offset"], -1 if timestamp is None else timestamp,
        _content(found, "key"), _content(found, "value"),
        [(each["key"], read_content(each["value"], "value")) for each in found["headers"]],
    )  # fmt: skip


def _content(found: Mapping[str, Any], part: str) -> bytes | None:
    """Return a key or a value: JSON where the broker decoded it by the registry of its topic."""
    decoded = found.get("decoded", {}).get(part, {})
    if "content" not in decoded:
        return read_content(found[part], part)
    text = json.dumps(decoded["content"], ensure_ascii=False, separators=(",", ":"))
    return text.encode(errors="backslashreplace")
