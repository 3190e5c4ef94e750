"""DescribeAcls (key 29), versions 1 to 3.

Behaviour: the rules that a filter matches, by resource pattern. ANY matches every value; MATCH every pattern that
applies to the name. A code that Kafka does not know is INVALID_REQUEST. Needs Describe on the cluster. Without access
rules (`authorizer.class.name`): SECURITY_DISABLED. MirrorMaker and consoles then continue without them.
Left out: nothing.
"""

from pqbroker.broker.ground.access import AclKind, AclOperation, check_access
from pqbroker.broker.kafka.apis.acl_entries import filter_of
from pqbroker.broker.kafka.apis.api import Api
from pqbroker.broker.kafka.apis.context import Context
from pqbroker.broker.services.access.changes import find_rules, rules_of
from pqbroker.broker.services.access.rules import AclPattern
from pqbroker.protocol.messages.describe_acls import (
    AclDescription,
    DescribeAclsRequest,
    DescribeAclsResource,
    DescribeAclsResponse,
)


async def serve(context: Context, request: DescribeAclsRequest) -> DescribeAclsResponse:
    check_access(context, AclOperation.DESCRIBE)
    rules = rules_of(context.node, "No Authorizer is configured on the broker")
    found: dict[tuple[AclKind, AclPattern, str], DescribeAclsResource] = {}
    for rule in await find_rules(context.node, rules, filter_of(request)):
        await context.breathe()
        key = (rule.kind, rule.pattern, rule.name)
        if key not in found:
            found[key] = DescribeAclsResource(
                resource_type=rule.kind, pattern_type=rule.pattern, resource_name=rule.name, acls=[]
            )
        found[key].acls.append(
            AclDescription(
                principal=rule.principal, host=rule.host, operation=rule.operation, permission_type=rule.permission
            )
        )
    return DescribeAclsResponse(error_message=None, resources=list(found.values()))


API = Api(request=DescribeAclsRequest, response=DescribeAclsResponse, serve=serve, answers_at_length=True)
