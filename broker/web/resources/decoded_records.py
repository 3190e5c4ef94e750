"""Records of an answer as they are shown, decoded too where their topic names a registry."""

from collections.abc import Callable
from functools import partial
from typing import Any

from pqbroker.broker.services.registries.decoding import RecordDecoding
from pqbroker.broker.services.topics.named_registries import decoding_of
from pqbroker.broker.web.routing.routes import Call
from pqbroker.pq.serving.topic import Topic
from pqbroker.protocol.record_json import show_record
from pqbroker.protocol.records import Record


class ShownRecords:
    """Shows records of one partition for one answer, and has them decoded at its end."""

    def __init__(self, call: Call, topic: Topic, partition: int) -> None:
        self._call = call
        self._decoding = decoding_of(topic, call.node.settings) if call.query.get("decode", True) else None
        self._contents: list[tuple[bytes | None, bytes | None]] = []
        plain = partial(show_record, topic.record.name, partition)
        self.show: Callable[[Record], Any] = plain if self._decoding is None else partial(self._note_and_show, plain)
        """Shows one record; a thread may call it."""

    async def decode(self, shown: list[Any]) -> None:
        """Add to all records that were shown what a worker made of them."""
        if self._decoding is None:
            return
        call = self._call
        decoder = RecordDecoding(call.node.workers, call.node.settings, call.holder)
        for record, decoded in zip(shown, await decoder.decode(self._decoding, self._contents), strict=True):
            record["decoded"] = decoded

    def _note_and_show(self, show: Callable[[Record], Any], record: Record) -> Any:
        self._contents.append((record.key, record.value))
        return show(record)
