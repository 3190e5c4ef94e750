"""UpdateFeatures (key 57), versions 0 to 2.

Behaviour: levels of features are set all or none, durably, and ApiVersions has them at once; `validate_only` only
checks. Refusals are one error for all, INVALID_UPDATE_VERSION with Kafka's texts. As in Kafka version 0 is an upgrade,
whatever its allow_downgrade says, and the last of two updates of one feature counts.
Left out: features that nothing here depends on, such as kraft.version; a downgrade of metadata.version.
"""

from pqbroker.broker.kafka.apis.api import Api
from pqbroker.broker.kafka.apis.context import Context
from pqbroker.broker.services.features.levels import FeatureUpdate, update_levels
from pqbroker.protocol.messages.update_features import (
    UpdatableFeatureResult,
    UpdateFeaturesRequest,
    UpdateFeaturesResponse,
)

_RESULTS_UNTIL_VERSION = 1


async def serve(context: Context, request: UpdateFeaturesRequest) -> UpdateFeaturesResponse:
    updates = [FeatureUpdate(key.feature, key.max_version_level, key.upgrade_type) for key in request.feature_updates]
    await update_levels(context, updates, validate_only=request.validate_only)
    listed = updates if context.version <= _RESULTS_UNTIL_VERSION else ()
    results = [UpdatableFeatureResult(feature=update.name, error_message="NONE") for update in listed]
    return UpdateFeaturesResponse(error_message=None, results=results)


API = Api(request=UpdateFeaturesRequest, response=UpdateFeaturesResponse, serve=serve)
