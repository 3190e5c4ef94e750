"""ApiVersions (key 18): what a broker serves. Its response always has header version 0 (KIP-511)."""

from pqbroker.protocol.errors import ErrorCode
from pqbroker.protocol.schema import (
    BOOL,
    ERROR_CODE,
    INT16,
    INT32,
    INT64,
    STRING,
    array,
    field,
    request,
    response,
    struct,
)


@request(18, versions="0-4", flexible="3+")
class ApiVersionsRequest:
    client_software_name: str = field(STRING, "3+")
    client_software_version: str = field(STRING, "3+")


@struct
class ApiVersion:
    api_key: int = field(INT16)
    min_version: int = field(INT16)
    max_version: int = field(INT16)


@struct
class SupportedFeatureKey:
    name: str = field(STRING)
    min_version: int = field(INT16)
    max_version: int = field(INT16)


@struct
class FinalizedFeatureKey:
    name: str = field(STRING)
    max_version_level: int = field(INT16)
    min_version_level: int = field(INT16)


@response(18, versions="0-4", flexible="3+")
class ApiVersionsResponse:
    error_code: ErrorCode = field(ERROR_CODE)
    api_keys: list[ApiVersion] = field(array(ApiVersion))
    throttle_time_ms: int = field(INT32, "1+")
    supported_features: list[SupportedFeatureKey] = field(array(SupportedFeatureKey), "3+", tag=0)
    finalized_features_epoch: int = field(INT64, "3+", tag=1, default=-1)
    finalized_features: list[FinalizedFeatureKey] = field(array(FinalizedFeatureKey), "3+", tag=2)
    zk_migration_ready: bool = field(BOOL, "3+", tag=3)
