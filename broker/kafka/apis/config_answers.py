"""Answers about configs, resource by resource: what both APIs that alter configs share."""

from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Protocol

from pqbroker.broker.ground.refusals import REFUSED, translate
from pqbroker.broker.kafka.apis.context import Context
from pqbroker.broker.kafka.apis.entries import each
from pqbroker.broker.services.configs.changes import alter
from pqbroker.broker.services.configs.operations import Change
from pqbroker.protocol.errors import ErrorCode, KafkaError
from pqbroker.protocol.messages.alter_configs import AlterConfigsResourceResponse


class NamedResource(Protocol):
    """A resource that a request names."""

    resource_type: int
    resource_name: str


def refusals(asked: Sequence[NamedResource], code: ErrorCode, message: str) -> list[AlterConfigsResourceResponse]:
    """Return the same answer for each resource."""
    return each(asked, lambda resource: _answer(resource, code, message))


async def alter_each(
    context: Context,
    asked: Iterable[NamedResource],
    changes: Iterable[Iterable[Change]],
    *,
    replaces: bool,
    validate_only: bool,
) -> list[AlterConfigsResourceResponse]:
    """Alter each resource, with turns for others between them, and return the answers."""
    answers = []
    for named in asked:
        await context.breathe()
        answers.append(_answer(named, ErrorCode.NONE, ""))
    await context.breathe()
    times = Counter((answer.resource_type, answer.resource_name) for answer in answers)
    for answer, wanted in zip(answers, changes, strict=True):
        await context.breathe()
        resource = (answer.resource_type, answer.resource_name)
        try:
            if times[resource] > 1:
                text = f"{answer.resource_name!r} is named more than once; name each resource once"
                raise KafkaError(ErrorCode.INVALID_REQUEST, text)
            await alter(context, resource, wanted, replaces=replaces, validate_only=validate_only)
        except REFUSED as error:
            answer.error_code, answer.error_message = translate(error)
    return answers


def _answer(asked: NamedResource, code: ErrorCode, message: str) -> AlterConfigsResourceResponse:
    return AlterConfigsResourceResponse(
        error_code=code,
        error_message=message or None,
        resource_type=asked.resource_type,
        resource_name=asked.resource_name,
    )
