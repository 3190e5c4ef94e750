"""DescribeCluster (key 60), versions 0 to 2.

Behaviour: brokers, the controller and their addresses are Metadata's; none is ever fenced.
Left out: controllers as endpoints (KIP-919) are MISMATCHED_ENDPOINT_TYPE, since this is a broker's listener.
"""

from pqbroker.broker.kafka.apis.api import Api
from pqbroker.broker.kafka.apis.authorized_operations import authorized_operations
from pqbroker.broker.kafka.apis.context import Context
from pqbroker.protocol.errors import ErrorCode, KafkaError
from pqbroker.protocol.messages.describe_cluster import (
    DescribeClusterBroker,
    DescribeClusterRequest,
    DescribeClusterResponse,
)

BROKERS = 1
CONTROLLERS = 2


def serve(context: Context, request: DescribeClusterRequest) -> DescribeClusterResponse:
    if request.endpoint_type == CONTROLLERS:
        raise KafkaError(ErrorCode.MISMATCHED_ENDPOINT_TYPE, "this is a broker's address, not a controller's")
    if request.endpoint_type != BROKERS:
        raise KafkaError(ErrorCode.UNSUPPORTED_ENDPOINT_TYPE, f"endpoint type {request.endpoint_type} is unknown")
    response = DescribeClusterResponse(
        endpoint_type=BROKERS,
        cluster_id=context.node.cluster_id,
        controller_id=context.node.leaders.controller,
        brokers=[
            DescribeClusterBroker(broker_id=node_id, host=host, port=port, rack=None)
            for node_id, host, port in context.nodes()
        ],
    )
    if request.include_cluster_authorized_operations:
        response.cluster_authorized_operations = authorized_operations(context)
    return response


def refuse(
    context: Context, request: DescribeClusterRequest, code: ErrorCode, message: str
) -> DescribeClusterResponse:
    return DescribeClusterResponse(
        error_code=code, error_message=message, endpoint_type=request.endpoint_type, cluster_id=context.node.cluster_id
    )


API = Api(request=DescribeClusterRequest, response=DescribeClusterResponse, serve=serve, refuse=refuse)
