"""ApiVersions (key 18), versions 0 to 4.

Behaviour: lists exactly the APIs and versions that the dispatcher serves; a version above 4 is answered as version 0
with UNSUPPORTED_VERSION and this key's range (KIP-511); a client software name or version that is none is
INVALID_REQUEST. Features have the levels that UpdateFeatures has set; one at level 0 is not finalized.
Left out: features that nothing here depends on.
"""

import re

from pqbroker.broker.kafka.apis.api import Api
from pqbroker.broker.kafka.apis.context import Context
from pqbroker.broker.services.features.levels import FEATURES, finalized_levels
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
    if context.peer.login is not None:
        context.peer.login.list_versions()
    ranges, scheme = context.node.api_ranges, context.node.cell.current.scheme
    return ApiVersionsResponse(
        api_keys=[ApiVersion(api_key=key, min_version=low, max_version=high) for key, low, high in ranges],
        supported_features=[
            SupportedFeatureKey(name=name, min_version=least, max_version=greatest)
            for name, (least, greatest) in FEATURES.items()
            if least or context.version >= LEVEL_0_FROM_VERSION
        ],
        finalized_features_epoch=scheme.features_epoch,
        finalized_features=[
            FinalizedFeatureKey(name=name, max_version_level=level, min_version_level=level)
            for name, level in finalized_levels(scheme).items()
        ],
    )


def refuse(context: Context, request: ApiVersionsRequest | None, code: ErrorCode, message: str) -> ApiVersionsResponse:
    own = [ApiVersion(api_key=API.key, min_version=API.version_min, max_version=API.version_max)]
    return ApiVersionsResponse(error_code=code, api_keys=own if code is ErrorCode.UNSUPPORTED_VERSION else [])


API = Api(request=ApiVersionsRequest, response=ApiVersionsResponse, serve=serve, refuse=refuse)
