"""A Fetch of which some partitions answer with an error on cue: at once, and the others with what they have."""

import inspect
from collections.abc import Awaitable
from dataclasses import replace
from typing import Any

from pqbroker.broker.kafka.apis.context import Context
from pqbroker.broker.kafka.apis.fetch_sessions import SessionPartition
from pqbroker.broker.kafka.cues.named_partitions import FETCH, Matches, join
from pqbroker.broker.kafka.lanes.fetch_lane import ServeFetch
from pqbroker.protocol.errors import ErrorCode
from pqbroker.protocol.messages.fetch import FetchableTopicResponse, FetchRequest, FetchResponse, PartitionData


def serve_refused(
    serve_fetch: ServeFetch, context: Context, request: FetchRequest, matches: Matches, code: ErrorCode
) -> FetchResponse | Awaitable[FetchResponse]:
    """Partitions of a session count too, whether this request names them or not."""
    session_fetch = context.node.sessions.begin(request, context.version, context.peer)
    refused = [wanted for wanted in session_fetch.wanted if matches(wanted.topic, wanted.topic_id, wanted.index)]
    session_fetch.wanted = [wanted for wanted in session_fetch.wanted if wanted not in refused]
    served = serve_fetch(context, replace(request, max_wait_ms=0), session_fetch)
    answer = FetchResponse(responses=[_refusal(wanted, code) for wanted in refused])
    if inspect.isawaitable(served):
        return _join_later(served, answer)
    joined: FetchResponse = join(FETCH, served, answer)
    return joined


async def _join_later(served: Awaitable[Any], refused: FetchResponse) -> FetchResponse:
    joined: FetchResponse = join(FETCH, await served, refused)
    return joined


def _refusal(wanted: SessionPartition, code: ErrorCode) -> FetchableTopicResponse:
    wanted.sent_high_watermark = -1  # so that its session lists the partition in the next answer (KIP-227)
    data = PartitionData(
        partition_index=wanted.index,
        error_code=code,
        high_watermark=-1,
        last_stable_offset=-1,
        log_start_offset=-1,
        records=(),
    )
    return FetchableTopicResponse(topic=wanted.topic, topic_id=wanted.topic_id, partitions=[data])
