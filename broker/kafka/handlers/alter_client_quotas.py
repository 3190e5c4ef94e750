"""AlterClientQuotas (key 49), versions 0 to 1.

Behaviour: quotas of users, client ids, both, and addresses are set and removed; a null name is the default of those
without a quota of their own. Each entity is checked by itself, in Kafka's words; those that pass are changed in one
commit, and count from the answer on. One entity more than pqbroker.quotas.max is POLICY_VIOLATION. Needs AlterConfigs
on the cluster.
Left out: host names in place of addresses, which Kafka resolves.
"""

from collections.abc import Sequence

from pqbroker.broker.ground.access import CLUSTER, AclOperation, audit_change, check_access
from pqbroker.broker.kafka.apis.api import Api
from pqbroker.broker.kafka.apis.context import Context
from pqbroker.broker.kafka.apis.entries import each
from pqbroker.broker.services.quotas.changes import QuotaAlteration, alter_quotas, check_alteration
from pqbroker.broker.services.quotas.quota_rules import quota_entity
from pqbroker.protocol.errors import ErrorCode, KafkaError
from pqbroker.protocol.messages.alter_client_quotas import (
    AlterClientQuotasRequest,
    AlterClientQuotasResponse,
    EntryData,
    EntryResult,
)

CheckedEntry = tuple[EntryData, KafkaError | None]


async def serve(context: Context, request: AlterClientQuotasRequest) -> AlterClientQuotasResponse:
    check_access(context, AclOperation.ALTER_CONFIGS)
    outcomes: list[CheckedEntry] = []
    wanted: dict[object, QuotaAlteration] = {}
    for entry in request.entries:
        await context.breathe()
        try:
            alteration = _read(entry)
            if alteration.entity in wanted:
                raise KafkaError(ErrorCode.INVALID_REQUEST, f"Ignoring duplicate entity {alteration.entity}")
            check_alteration(context.node, alteration)
        except KafkaError as refusal:
            outcomes.append((entry, refusal.with_traceback(None)))
        else:
            wanted[alteration.entity] = alteration
            outcomes.append((entry, None))
    if not request.validate_only:
        await alter_quotas(context.node, list(wanted.values()))
        for changed in wanted.values():
            audit_change(context, AclOperation.ALTER_CONFIGS.name, str(CLUSTER), str(changed))
    return _answer(outcomes)


def refuse(
    _: Context, request: AlterClientQuotasRequest, code: ErrorCode, message: str
) -> AlterClientQuotasResponse:
    return _answer([(entry, KafkaError(code, message)) for entry in request.entries])


def _read(entry: EntryData) -> QuotaAlteration:
    entity = quota_entity([(part.entity_type, part.entity_name) for part in entry.entity])
    values: dict[str, float | None] = {}
    for op in entry.ops:
        if op.key in values:
            raise KafkaError(ErrorCode.INVALID_REQUEST, f"Duplicate quota key {op.key}")
        values[op.key] = None if op.remove else op.value
    return QuotaAlteration(entity, values)


def _answer(outcomes: Sequence[CheckedEntry]) -> AlterClientQuotasResponse:
    return AlterClientQuotasResponse(
        entries=each(
            outcomes,
            lambda outcome: EntryResult(
                error_code=ErrorCode.NONE if outcome[1] is None else outcome[1].code,
                error_message=None if outcome[1] is None else outcome[1].message,
                entity=list({part.entity_type: part for part in outcome[0].entity}.values()),
            ),
        )
    )


API = Api(
    request=AlterClientQuotasRequest, response=AlterClientQuotasResponse, serve=serve, refuse=refuse,
    answers_at_length=True,
)  # fmt: skip
