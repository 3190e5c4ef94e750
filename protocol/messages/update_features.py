"""UpdateFeatures (key 57): set levels of finalized features (KIP-584, KIP-778)."""

from pqbroker.protocol.errors import ErrorCode
from pqbroker.protocol.schema import (
    BOOL,
    ERROR_CODE,
    INT8,
    INT16,
    INT32,
    STRING,
    array,
    field,
    request,
    response,
    struct,
)


@struct
class FeatureUpdateKey:
    feature: str = field(STRING)
    max_version_level: int = field(INT16)
    allow_downgrade: bool = field(BOOL, "0")
    upgrade_type: int = field(INT8, "1+", default=1)


@request(57, versions="0-2", flexible="0+")
class UpdateFeaturesRequest:
    timeout_ms: int = field(INT32, default=60_000)
    feature_updates: list[FeatureUpdateKey] = field(array(FeatureUpdateKey))
    validate_only: bool = field(BOOL, "1+")


@struct
class UpdatableFeatureResult:
    feature: str = field(STRING)
    error_code: ErrorCode = field(ERROR_CODE)
    error_message: str | None = field(STRING, nullable="0+")


@response(57, versions="0-2", flexible="0+")
class UpdateFeaturesResponse:
    throttle_time_ms: int = field(INT32)
    error_code: ErrorCode = field(ERROR_CODE)
    error_message: str | None = field(STRING, nullable="0+")
    results: list[UpdatableFeatureResult] = field(array(UpdatableFeatureResult), "0-1")
