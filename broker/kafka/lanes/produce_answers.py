"""Answers of a Produce lane: one packing where every batch is stored, else what the handler would answer."""

from collections.abc import Callable, Sequence
from functools import cache
from struct import Struct, calcsize
from typing import Final

from pqbroker.broker.ground.refusals import translate
from pqbroker.broker.kafka.apis.context import Context
from pqbroker.broker.kafka.apis.exchange import Output
from pqbroker.pq.log.write_cycle import Written
from pqbroker.protocol.codec import encoder
from pqbroker.protocol.errors import KafkaError
from pqbroker.protocol.frames import frame as framed
from pqbroker.protocol.headers import encode_response_header
from pqbroker.protocol.layout import codes, count_bytes, encoded
from pqbroker.protocol.messages.produce import (
    PartitionProduceData,
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
    TopicProduceResponse,
)
from pqbroker.protocol.schema import is_flexible

API_KEY: Final = 0

Decided = Written | BaseException
"""Outcome of one batch."""
Respond = Callable[
    [Sequence[TopicProduceData], Sequence[Sequence[Decided | None]], int], tuple[ProduceResponse, BaseException | None]
]
"""The handler's answer when that is known of all batches of a request's topics; and why the first was refused."""


class ProduceAnswers:
    """Answers to requests of one version about one topic."""

    __slots__ = (
        "_count", "_encode", "_entry", "_head", "_is_flexible", "_is_silent", "_metrics", "_name", "_packing",
        "_respond", "_tags", "_tail", "_topic", "_version",
    )  # fmt: skip

    def __init__(self, context: Context, request: ProduceRequest, name: bytes, respond: Respond) -> None:
        """`name`: the topic's as it stands in the answer."""
        (asked,) = request.topic_data
        self._version = context.version
        self._metrics = context.node.metrics
        self._respond = respond
        self._name = name
        self._topic = (asked.name, asked.topic_id)
        self._is_silent = request.acks == 0
        flexible = is_flexible(API_KEY, context.version)
        self._is_flexible = flexible
        self._tags = b"\0" if flexible else b""
        self._entry, self._tail = _partition_layout(context.version)
        self._encode = encoder(ProduceResponse, context.version)
        self._prepare(1)

    def made(
        self, correlation_id: int, indexes: Sequence[int], decided: Sequence[Decided | None], throttle_ms: int
    ) -> Output | None:
        """The framed answer; None: there is none to send. With acks 0, KafkaError: only a closed connection can
        report that a batch was refused."""
        if len(indexes) != self._count:
            self._prepare(len(indexes))
        values: list[int | bytes] = []
        for index, each in zip(indexes, decided, strict=True):
            if not isinstance(each, Written):
                return self._refused(correlation_id, indexes, decided, throttle_ms)
            values += (index, 0, *each, self._tail)
        if self._is_silent:
            return None
        packing, tags = self._packing, self._tags
        return [packing.pack(packing.size - 4, correlation_id, self._head, *values, tags, throttle_ms, tags)]

    def _refused(
        self, correlation_id: int, indexes: Sequence[int], decided: Sequence[Decided | None], throttle_ms: int
    ) -> Output | None:
        name, topic_id = self._topic
        data = [PartitionProduceData(index=index, records=None) for index in indexes]
        asked = TopicProduceData(name=name, topic_id=topic_id, partition_data=data)
        response, refused = self._respond([asked], [decided], throttle_ms)
        if not self._is_silent:
            header = encode_response_header(API_KEY, self._version, correlation_id)
            body: Output = [header, *self._encode(response, self._metrics.count_error)]
            return framed(body)
        assert refused is not None
        failure = KafkaError(*translate(refused))
        self._metrics.count_error(failure.code)
        raise failure

    def _prepare(self, count: int) -> None:
        """Prepare for answers of `count` partitions."""
        self._count = count
        one, every = (count_bytes(each, flexible=self._is_flexible) for each in (1, count))
        self._head = self._tags + one + self._name + every
        tags, entry = f"{len(self._tags)}s", f"{self._entry}{len(self._tail)}s"
        throttle = codes(ProduceResponse, self._version, after="responses")
        self._packing = Struct(f">ii{len(self._head)}s{entry * count}{tags}{throttle}{tags}")


@cache
def _partition_layout(version: int) -> tuple[str, bytes]:
    """Return the codes of a partition's numbers, and what follows them: no record errors, no message, no tags."""
    numbers = codes(PartitionProduceResponse, version)
    topics = (TopicProduceResponse(partition_responses=each) for each in ([PartitionProduceResponse()], []))
    one, none = (encoded(ProduceResponse(responses=[topic]), version) for topic in topics)
    tail_bytes = len(one) - len(none) - calcsize(f">{numbers}")
    end = len(one) - calcsize(f">{codes(ProduceResponse, version, after='responses')}")
    end -= 2 * is_flexible(API_KEY, version)  # tags of the topic, of the answer
    return numbers, one[end - tail_bytes : end]
