"""Answers about configs, resource by resource: what both APIs that alter configs share."""

from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Protocol, TypeVar

from pqbroker.broker.ground.refusals import REFUSED, translate
from pqbroker.broker.kafka.apis.context import Context
from pqbroker.broker.kafka.apis.entries import each
from pqbroker.broker.services.configs.changes import alter
from pqbroker.broker.services.configs.operations import Change
from pqbroker.protocol.errors import ErrorCode, KafkaError


class NamedResource(Protocol):
    """A resource that a request names."""

    resource_type: int
    resource_name: str


class ResourceAnswer(Protocol):
    """The answer about one resource of a request; both APIs have a struct of this shape."""

    def __init__(
        self, *, error_code: ErrorCode, error_message: str | None, resource_type: int, resource_name: str
    ) -> None: ...

    error_code: ErrorCode
    error_message: str | None
    resource_type: int
    resource_name: str


A = TypeVar("A", bound=ResourceAnswer)


def refusals(make: type[A], asked: Sequence[NamedResource], code: ErrorCode, message: str) -> list[A]:
    """The same answer for each resource."""
    return each(asked, lambda resource: _answer(make, resource, code, message))


async def good_answers(context: Context, make: type[A], asked: Iterable[NamedResource]) -> list[A]:
    """An answer without an error for each resource, with turns for others between them."""
    answers = []
    for resource in asked:
        await context.breathe()
        answers.append(_answer(make, resource, ErrorCode.NONE, ""))
    return answers


def _answer(make: type[A], asked: NamedResource, code: ErrorCode, message: str) -> A:
    return make(
        error_code=code,
        error_message=message or None,
        resource_type=asked.resource_type,
        resource_name=asked.resource_name,
    )


async def alter_each(
    context: Context,
    answers: Sequence[ResourceAnswer],
    changes: Iterable[Iterable[Change]],
    *,
    replaces: bool,
    validate_only: bool,
) -> None:
    """Alter each resource that is to be answered for, and put what it was refused for into its answer."""
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
