"""ApiVersions (key 18), versions 0 to 4.

Behaviour: lists exactly the APIs and versions that the dispatcher serves; a version above 4 is answered as version 0
with UNSUPPORTED_VERSION and this key's range (KIP-511); a client software name or version that is none is
INVALID_REQUEST. Of Kafka's features it lists transaction.version, level 2 (KIP-890).
Left out: other features, and changes of their levels.
"""

import re

from pqbroker.broker.kafka.apis.api import Api
from pqbroker.broker.kafka.apis.context import Context
from pqbroker.broker.kafka.apis.transactional_requests import TRANSACTION_LEVEL, TRANSACTION_VERSION
from pqbroker.protocol.errors import ErrorCode, KafkaError
from pqbroker.protocol.messages.api_versions import (
    ApiVersion,
    ApiVersionsRequest,
    ApiVersionsResponse,
    FinalizedFeatureKey,
    SupportedFeatureKey,
)

LEVEL_0_FROM_VERSION = 4
"""Clients of earlier versions cannot read a feature that begins at level 0."""
_SOFTWARE = re.compile(r"[a-zA-Z0-9](?:[a-zA-Z0-9\-.]*[a-zA-Z0-9])?")


def serve(context: Context, request: ApiVersionsRequest) -> ApiVersionsResponse:
    if context.version >= 3:
        for text in (request.client_software_name, request.client_software_version):
            if not _SOFTWARE.fullmatch(text):
                raise KafkaError(ErrorCode.INVALID_REQUEST, f"{text!r} names no client software")
    ranges = context.node.api_ranges
    return ApiVersionsResponse(
        api_keys=[ApiVersion(api_key=key, min_version=low, max_version=high) for key, low, high in ranges],
        supported_features=[] if context.version < LEVEL_0_FROM_VERSION else [
            SupportedFeatureKey(name=TRANSACTION_VERSION, min_version=0, max_version=TRANSACTION_LEVEL)
        ],
        finalized_features_epoch=0,
        finalized_features=[
            FinalizedFeatureKey(
                name=TRANSACTION_VERSION, max_version_level=TRANSACTION_LEVEL, min_version_level=TRANSACTION_LEVEL
            )
        ],
    )


def refuse(context: Context, request: ApiVersionsRequest | None, code: ErrorCode, message: str) -> ApiVersionsResponse:
    own = [ApiVersion(api_key=API.key, min_version=API.version_min, max_version=API.version_max)]
    return ApiVersionsResponse(error_code=code, api_keys=own if code is ErrorCode.UNSUPPORTED_VERSION else [])


API = Api(request=ApiVersionsRequest, response=ApiVersionsResponse, serve=serve, refuse=refuse)
