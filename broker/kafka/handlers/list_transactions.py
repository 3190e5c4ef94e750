"""ListTransactions (key 66), versions 0 to 2.

Behaviour: an empty list; states of the filter that Kafka does not know are named as unknown.
Left out: transactions. The pattern of version 2 is not checked, since it could match nothing.
"""

from typing import Final

from pqbroker.broker.kafka.apis.api import Api
from pqbroker.broker.kafka.apis.context import Context
from pqbroker.protocol.errors import ErrorCode
from pqbroker.protocol.messages.list_transactions import ListTransactionsRequest, ListTransactionsResponse

STATES: Final = frozenset(
    {
        "Empty", "Ongoing", "PrepareCommit", "PrepareAbort", "CompleteCommit", "CompleteAbort", "Dead",
        "PrepareEpochFence",
    }
)  # fmt: skip


def serve(context: Context, request: ListTransactionsRequest) -> ListTransactionsResponse:
    unknown = dict.fromkeys(state for state in request.state_filters if state not in STATES)
    return ListTransactionsResponse(unknown_state_filters=list(unknown))


def refuse(
    context: Context, request: ListTransactionsRequest, code: ErrorCode, message: str
) -> ListTransactionsResponse:
    return ListTransactionsResponse(error_code=code)


API = Api(
    key=66, name="ListTransactions", version_min=0, version_max=2,
    request=ListTransactionsRequest, response=ListTransactionsResponse, serve=serve, refuse=refuse,
)  # fmt: skip
