"""ListTransactions (key 66), versions 0 to 2.

Behaviour: every transactional id with its producer and state, by name. Filters by state, producer id, age of the
transaction (version 1) and name (version 2); states that Kafka does not know are named as unknown. An id without a
transaction is older than any age, as in Kafka. A pattern that is invalid, or could take long, is
INVALID_REGULAR_EXPRESSION. Listed are those that the caller may describe.
A node that coordinates none lists none.
Left out: patterns with groups, or with more than two repetitions.
"""

from typing import Final

from pqbroker.broker.ground.access import AclKind, AclOperation, AclResource, is_allowed
from pqbroker.broker.kafka.apis.api import Api
from pqbroker.broker.kafka.apis.context import Context
from pqbroker.broker.kafka.apis.entries import each
from pqbroker.broker.services.transactional_producers.listing import Wanted, list_ids, read_pattern
from pqbroker.protocol.errors import ErrorCode, KafkaError
from pqbroker.protocol.messages.list_transactions import (
    ListTransactionsRequest,
    ListTransactionsResponse,
    TransactionState,
)

KNOWN_STATES: Final = frozenset(
    {
        "Empty", "Ongoing", "PrepareCommit", "PrepareAbort", "CompleteCommit", "CompleteAbort", "Dead",
        "PrepareEpochFence",
    }
)  # fmt: skip


async def serve(context: Context, request: ListTransactionsRequest) -> ListTransactionsResponse:
    if context.node.cell.current.coordinators.are_elsewhere:
        return ListTransactionsResponse()
    unknown = dict.fromkeys(state for state in request.state_filters if state not in KNOWN_STATES)
    wanted = Wanted(
        frozenset(request.state_filters),
        frozenset(request.producer_id_filters),
        request.duration_filter,
        None,
    )
    if request.transactional_id_pattern:
        try:
            wanted = wanted._replace(pattern=read_pattern(request.transactional_id_pattern))
        except ValueError as wrong:
            raise KafkaError(ErrorCode.INVALID_REGULAR_EXPRESSION, str(wrong)) from None
    found = await context.node.turns.finish(
        list_ids(context.node.cell.current.transactional_producers, wanted)
    )
    listed = [
        image
        for image in found
        if is_allowed(context, AclOperation.DESCRIBE, AclResource(AclKind.TRANSACTIONAL_ID, image.transactional_id))
    ]
    return ListTransactionsResponse(
        unknown_state_filters=list(unknown),
        transaction_states=each(
            listed,
            lambda image: TransactionState(
                transactional_id=image.transactional_id,
                producer_id=image.producer_id,
                transaction_state=image.state.value,
            ),
        ),
    )


API = Api(
    request=ListTransactionsRequest, response=ListTransactionsResponse, serve=serve, answers_at_length=True
)
