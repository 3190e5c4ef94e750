"""DeleteAcls (key 31), versions 1 to 3.

Behaviour: the rules that any of the filters matches are removed; each filter is answered with those that it matched. A
code that Kafka does not know is INVALID_REQUEST for its filter. The rules count no more from the answer on. Needs Alter
on the cluster. Without access rules (`authorizer.class.name`): SECURITY_DISABLED for each filter.
Left out: nothing. Rows that are no rules of this version stay; see `pqbroker acl remove --unreadable`.
"""

from pqbroker.broker.ground.access import CLUSTER, AclOperation, audit_change, check_access
from pqbroker.broker.kafka.apis.acl_entries import filter_of
from pqbroker.broker.kafka.apis.api import Api
from pqbroker.broker.kafka.apis.context import Context
from pqbroker.broker.kafka.apis.entries import each
from pqbroker.broker.services.access.changes import find_rules, remove_rules, rules_of
from pqbroker.broker.services.access.rules import AclRule
from pqbroker.protocol.errors import ErrorCode, KafkaError
from pqbroker.protocol.messages.delete_acls import (
    DeleteAclsFilterResult,
    DeleteAclsMatchingAcl,
    DeleteAclsRequest,
    DeleteAclsResponse,
)


async def serve(context: Context, request: DeleteAclsRequest) -> DeleteAclsResponse:
    check_access(context, AclOperation.ALTER)
    rules = rules_of(context.node, "No Authorizer is configured.")
    matched: list[list[AclRule] | KafkaError] = []
    for entry in request.filters:
        try:
            matched.append(await find_rules(context.node, rules, filter_of(entry)))
        except KafkaError as refusal:
            matched.append(refusal.with_traceback(None))
    named = {rule: None for found in matched if isinstance(found, list) for rule in found}
    for rule in await remove_rules(context.node, list(named)):
        audit_change(context, AclOperation.ALTER.name, str(CLUSTER), f"access rule removed: {rule}")
    results = []
    for found in matched:
        await context.breathe()
        results.append(_result(found))
    return DeleteAclsResponse(filter_results=results)


def refuse(_: Context, request: DeleteAclsRequest, code: ErrorCode, text: str) -> DeleteAclsResponse:
    results = each(request.filters, lambda _: DeleteAclsFilterResult(error_code=code, error_message=text))
    return DeleteAclsResponse(filter_results=results)


def _result(found: list[AclRule] | KafkaError) -> DeleteAclsFilterResult:
    if isinstance(found, KafkaError):
        return DeleteAclsFilterResult(error_code=found.code, error_message=str(found))
    return DeleteAclsFilterResult(
        error_message=None,
        matching_acls=each(
            found,
            lambda rule: DeleteAclsMatchingAcl(
                error_message=None, resource_type=rule.kind, resource_name=rule.name, pattern_type=rule.pattern,
                principal=rule.principal, host=rule.host, operation=rule.operation, permission_type=rule.permission,
            ),
        ),
    )  # fmt: skip


API = Api(
    request=DeleteAclsRequest, response=DeleteAclsResponse, serve=serve, refuse=refuse, answers_at_length=True
)
