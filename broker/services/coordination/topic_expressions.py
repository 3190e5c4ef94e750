"""Regular expressions by which members of groups of KIP-848 subscribe: checked, and resolved to topics.

An expression is compiled on a thread, which does not keep the loop, one at a time, and matched in slices. Both may be
long for one that means harm; its length and its memory are limited.
"""

import asyncio
from collections.abc import Callable, Generator, Iterable, Mapping
from typing import TYPE_CHECKING, Final

from pqbroker.protocol.errors import ErrorCode, KafkaError

if TYPE_CHECKING:
    from pqbroker.protocol.expression_engine import ExpressionMatch

KEPT_EXPRESSIONS_MAX: Final = 16
"""Compiled expressions that are kept for members that subscribe by the same."""
_SHOWN: Final = 100
"""Characters of a wrong expression that its error shows."""


class TopicExpressions:
    """Expressions of one opening of the cell. `names`: all topics that Kafka's clients see."""

    def __init__(self, names: Callable[[], Iterable[str]], characters_max: int) -> None:
        self._names = names
        self._characters_max = characters_max
        self._compiled: dict[str, ExpressionMatch] = {}
        """Expressions that were compiled last, the oldest first."""
        self._compiling = asyncio.Lock()

    async def check(self, text: str) -> None:
        """KafkaError INVALID_REGULAR_EXPRESSION."""
        await self._matches(text)

    async def resolve(
        self, texts: Iterable[str], may_describe: Callable[[str], bool]
    ) -> Generator[None, None, Mapping[str, frozenset[str]]]:
        """Return steps that find the topics of each expression that the caller may describe.

        An expression that was stored by a version with other limits, and is invalid here, has none.
        """
        matches: dict[str, ExpressionMatch] = {}
        for text in texts:
            try:
                matches[text] = await self._matches(text)
            except KafkaError:
                matches[text] = _nothing
        return self._find(matches, may_describe)

    def _find(
        self, matches: "Mapping[str, ExpressionMatch]", may_describe: Callable[[str], bool]
    ) -> Generator[None, None, Mapping[str, frozenset[str]]]:
        found: dict[str, set[str]] = {text: set() for text in matches}
        for name in tuple(self._names()):
            for text, is_match in matches.items():
                if is_match(name) and may_describe(name):
                    found[text].add(name)
                yield
        return {text: frozenset(names) for text, names in found.items()}

    async def _matches(self, text: str) -> "ExpressionMatch":
        if len(text) > self._characters_max:
            limit = f"pqbroker.group.expression.characters.max is {self._characters_max}"
            raise _invalid(text, f"it has {len(text)} characters, and {limit}")
        async with self._compiling:
            if text in self._compiled:
                return self._compiled[text]
            try:
                matches = await asyncio.to_thread(_compile, text)
            except ValueError as wrong:
                raise _invalid(text, str(wrong)) from None
            self._compiled[text] = matches
            if len(self._compiled) > KEPT_EXPRESSIONS_MAX:
                del self._compiled[next(iter(self._compiled))]
        return matches


def _compile(text: str) -> "ExpressionMatch":
    from pqbroker.protocol.expression_engine import compile_expression

    return compile_expression(text)


def _nothing(name: str) -> bool:
    return False


def _invalid(text: str, cause: str) -> KafkaError:
    shown = text if len(text) <= _SHOWN else f"{text[:_SHOWN]}…"
    return KafkaError(
        ErrorCode.INVALID_REGULAR_EXPRESSION,
        f"SubscribedTopicRegex `{shown}` is not a valid regular expression: {cause}.",
    )
