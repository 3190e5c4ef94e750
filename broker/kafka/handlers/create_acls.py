"""CreateAcls (key 30), versions 1 to 3.

Behaviour: each rule is checked and added by itself; one that exists already is no error. Kafka's checks in Kafka's
words, INVALID_REQUEST; a rule more than pqbroker.acls.max is POLICY_VIOLATION. The rules count from the answer on.
Needs Alter on the cluster. Without access rules (`authorizer.class.name`): SECURITY_DISABLED for each.
Left out: nothing.
"""

from pqbroker.broker.ground.access import CLUSTER, AclOperation, audit_change, check_access
from pqbroker.broker.kafka.apis.acl_entries import asked_rule
from pqbroker.broker.kafka.apis.api import Api
from pqbroker.broker.kafka.apis.context import Context
from pqbroker.broker.kafka.apis.entries import each
from pqbroker.broker.services.access.changes import add_rules, rules_of
from pqbroker.broker.services.access.rules import read_rule
from pqbroker.protocol.errors import ErrorCode
from pqbroker.protocol.messages.create_acls import AclCreationResult, CreateAclsRequest, CreateAclsResponse


async def serve(context: Context, request: CreateAclsRequest) -> CreateAclsResponse:
    check_access(context, AclOperation.ALTER)
    rules_of(context.node, "No Authorizer is configured.")
    asked = [asked_rule(entry) for entry in request.creations]
    outcomes = await add_rules(context.node, asked)
    for fields, refusal in zip(asked, outcomes, strict=True):
        if refusal is None:
            audit_change(context, AclOperation.ALTER.name, str(CLUSTER), f"access rule added: {read_rule(fields)}")
    return CreateAclsResponse(
        results=[
            AclCreationResult(error_code=ErrorCode.NONE, error_message=None)
            if refusal is None
            else AclCreationResult(error_code=refusal.code, error_message=str(refusal))
            for refusal in outcomes
        ]
    )


def refuse(_: Context, request: CreateAclsRequest, code: ErrorCode, text: str) -> CreateAclsResponse:
    results = each(request.creations, lambda _: AclCreationResult(error_code=code, error_message=text))
    return CreateAclsResponse(results=results)


API = Api(
    request=CreateAclsRequest, response=CreateAclsResponse, serve=serve, refuse=refuse, answers_at_length=True
)
