"""Requests that a node with a mirror of the scheme answers itself: for topics, as long as it knows all of them, and
for its own settings.

A topic that it does not know may have been made a moment ago, or is to be made now: the first node knows.
"""

from collections.abc import Callable
from typing import Any, Final

from pqbroker.pq.serving.topics import Topics
from pqbroker.protocol.codec import decoder
from pqbroker.protocol.errors import ProtocolError
from pqbroker.protocol.headers import decode_request_header
from pqbroker.protocol.messages.describe_configs import DescribeConfigsRequest
from pqbroker.protocol.messages.describe_topic_partitions import DescribeTopicPartitionsRequest
from pqbroker.protocol.messages.metadata import MetadataRequest
from pqbroker.protocol.schema import message

TOPICS_MAX: Final = 500
"""Topics of a request that are looked up before it is served; a longer one goes to the first node."""
DESCRIBE_CONFIGS: Final = 32
_OF_NODES: Final = (4, 8)
"""Types of resources that a node has for itself: its settings, and the levels of its loggers."""
_NO_ID: Final = bytes(16)
_REQUESTS: Final[dict[int, Any]] = {3: MetadataRequest, 75: DescribeTopicPartitionsRequest}


def knows_all(topics: Callable[[], Topics], frame: memoryview) -> bool:
    """Return True for a request that names topics, all of which are known, or none. False too where it is invalid."""
    declared = _REQUESTS.get(int.from_bytes(frame[:2]))
    if declared is None:
        return False
    try:
        header, position = decode_request_header(frame)
        if header.api_version not in message(declared).versions:
            return False
        request = decoder(declared, header.api_version)(frame[position:], TOPICS_MAX)
    except ProtocolError:
        return False
    known = topics()
    return all(_is_known(known, asked) for asked in request.topics or ())


def is_of_node(node_id: int, frame: memoryview) -> bool:
    """Return True for a request that describes the configs of this node, or its loggers, and nothing else."""
    try:
        header, position = decode_request_header(frame)
        if header.api_key != DESCRIBE_CONFIGS or header.api_version not in message(DescribeConfigsRequest).versions:
            return False
        asked = decoder(DescribeConfigsRequest, header.api_version)(frame[position:], TOPICS_MAX).resources
    except ProtocolError:
        return False
    own = {(kind, str(node_id)) for kind in _OF_NODES}
    return bool(asked) and {(one.resource_type, one.resource_name) for one in asked} <= own


def _is_known(known: Topics, asked: Any) -> bool:
    topic_id = getattr(asked, "topic_id", _NO_ID)
    found = known.get(asked.name or "", or_static=True) if topic_id == _NO_ID else known.by_id(topic_id)
    return found is not None
