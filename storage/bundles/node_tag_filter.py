"""The formula that says on which nodes the cells of a bundle may run (D.6); pure.

    expr := or;  or := and ('|' and)*;  and := not ('&' not)*;  not := '!' not | '(' expr ')' | variable

Parsed without recursion, so that no nesting of a client's formula exhausts the stack.
"""

import re
from collections.abc import Collection, Iterator
from dataclasses import dataclass

FILTER_CHARS_MAX = 1024
_TOKEN = re.compile(r"[()!&|]|[A-Za-z_][A-Za-z0-9_/.-]*")
_STRENGTH = {"!": 3, "&": 2, "|": 1}
_RESERVED = ("in",)


class FilterInvalid(ValueError):
    """The text is no formula; the message names the place."""


@dataclass(frozen=True, slots=True)
class NodeTagFilter:
    """A parsed formula. Made by `parse_filter`."""

    text: str
    postfix: tuple[str, ...]
    """Variables and operators, each operator behind its operands. Empty: every node."""

    def matches(self, tags: Collection[str]) -> bool:
        """Return True if the formula is true on a node with these tags; a variable is true where the node has that
        tag."""
        if not self.postfix:
            return True
        values: list[bool] = []
        for token in self.postfix:
            if token == "!":
                values.append(not values.pop())
            elif token in _STRENGTH:
                right, left = values.pop(), values.pop()
                values.append((left and right) if token == "&" else (left or right))
            else:
                values.append(token in tags)
        return values.pop()


def parse_filter(text: str) -> NodeTagFilter:
    """The formula of a text; empty: every node. FilterInvalid."""
    if len(text) > FILTER_CHARS_MAX:
        raise FilterInvalid(f"node_tag_filter has {len(text)} characters; at most {FILTER_CHARS_MAX} are taken")
    postfix: list[str] = []
    operators: list[str] = []
    wants_operand = True
    for position, token in _tokens(text):
        if wants_operand:
            if token in "!(":
                operators.append(token)
            elif token in ")&|":
                raise _wrong(text, position, "a tag, '!' or '(' is expected")
            else:
                postfix.append(token)
                wants_operand = False
        elif token in "&|":
            postfix += _stronger(operators, _STRENGTH[token])
            operators.append(token)
            wants_operand = True
        elif token == ")":
            postfix += _stronger(operators, 0)
            if not operators:
                raise _wrong(text, position, "no '(' stands before it")
            operators.pop()
        else:
            raise _wrong(text, position, "'&', '|' or ')' is expected")
    if wants_operand and (postfix or operators):
        raise _wrong(text, len(text), "a tag is missing at the end")
    postfix += _stronger(operators, 0)
    if operators:
        raise _wrong(text, len(text), "a ')' is missing at the end")
    return NodeTagFilter(text, tuple(postfix))


def is_tag(text: str) -> bool:
    """Return True if a node may have this tag: if a formula can name it."""
    found = _TOKEN.fullmatch(text)
    return found is not None and text not in _STRENGTH and text not in ("(", ")", *_RESERVED)


def _tokens(text: str) -> Iterator[tuple[int, str]]:
    position = 0
    while position < len(text):
        if text[position].isspace():
            position += 1
            continue
        found = _TOKEN.match(text, position)
        if found is None:
            raise _wrong(text, position, "a tag begins with a letter or '_'; operators are '!', '&', '|', '(' and ')'")
        if found[0] in _RESERVED:
            raise _wrong(text, position, f"{found[0]!r} is not allowed as a tag")
        yield position, found[0]
        position = found.end()


def _stronger(operators: list[str], strength: int) -> list[str]:
    """The operators since the last open parenthesis that bind at least so strongly, the latest first; they go."""
    keep = len(operators)
    while keep and _STRENGTH.get(operators[keep - 1], -1) >= strength:
        keep -= 1
    found = operators[keep:][::-1]
    del operators[keep:]
    return found


def _wrong(text: str, position: int, cause: str) -> FilterInvalid:
    return FilterInvalid(f"node_tag_filter {text!r} is invalid at character {position + 1}: {cause}")
