"""Rules that make a user's name of a certificate's distinguished name (`ssl.principal.mapping.rules`), as in Kafka.

RULE:PATTERN/REPLACEMENT/[LU] with commas, or DEFAULT, which leaves the name as it is. The first rule whose pattern fits
the whole name counts; where none fits there is no name, and the connection is refused.
"""

import re
from collections.abc import Sequence
from functools import lru_cache
from typing import NamedTuple

_RULE = re.compile(
    r"\s*(?P<rule>DEFAULT|RULE:(?P<pattern>(?:\\.|[^\\/])*)/(?P<made>(?:\\.|[^\\/])*)/(?P<case>[LU]?))\s*(?:,|$)",
    re.DOTALL,
)
_NAMED_IN_JAVA = re.compile(r"\(\?<(?=[A-Za-z])")
_REFERENCE = re.compile(r"\\(?P<literal>.)|\$(?P<number>[0-9]+)|\$\{(?P<name>[A-Za-z][A-Za-z0-9]*)\}", re.DOTALL)


class PrincipalRule(NamedTuple):
    """One rule. `pattern` None: DEFAULT."""

    pattern: re.Pattern[str] | None = None
    replacement: str = ""
    case: str = ""
    """L or U: the name is put in small letters, or in capitals."""

    def apply(self, name: str) -> str | None:
        """Return the user's name; None if the rule does not fit."""
        if self.pattern is None:
            return name
        if not self.pattern.fullmatch(name):
            return None
        made = self._replaced(self.pattern, name)
        if self.case == "L":
            return made.lower()
        return made.upper() if self.case == "U" else made

    def _replaced(self, pattern: re.Pattern[str], name: str) -> str:
        """Replace each place that the pattern fits, as Java does: behind an empty one it looks one character later."""
        made, at, search_at = "", 0, 0
        while search_at <= len(name) and (match := pattern.search(name, search_at)):
            made += name[at : match.start()] + _expanded(self.replacement, match)
            at = match.end()
            search_at = at + (match.end() == match.start())
        return made + name[at:]


def user_of(rules: Sequence[PrincipalRule], name: str) -> str | None:
    """Return the user's name for a distinguished name; None if no rule fits."""
    return next((made for rule in rules if (made := rule.apply(name)) is not None), None)


@lru_cache(maxsize=64)
def parse_principal_rules(text: str) -> tuple[PrincipalRule, ...]:
    """Read rules; ValueError names the one that is none."""
    rules: list[PrincipalRule] = []
    at = 0
    while text[at:].strip(" ,"):
        found = _RULE.match(text, at)
        if found is None:
            wrong = text[at:].strip()
            raise ValueError(f"{wrong!r} does not begin with a rule; write DEFAULT or RULE:PATTERN/REPLACEMENT/[LU]")
        rules.append(_rule(found))
        at = found.end()
    return tuple(rules)


def _rule(found: re.Match[str]) -> PrincipalRule:
    pattern = found["pattern"]
    if pattern is None:
        return PrincipalRule()
    try:
        return PrincipalRule(re.compile(_NAMED_IN_JAVA.sub("(?P<", pattern)), found["made"], found["case"])
    except re.error as error:
        raise ValueError(f"{pattern!r} is no regular expression: {error}") from None


def _expanded(replacement: str, match: re.Match[str]) -> str:
    """Return a replacement with its references to parts of the match, as Java's Matcher.replaceAll reads them.

    A number above the last part gives up its last digits; a reference to no part stays as it is.
    """

    def part(reference: re.Match[str]) -> str:
        if (literal := reference["literal"]) is not None:
            return literal
        if (name := reference["name"]) is not None:
            return (match[name] or "") if name in match.re.groupindex else reference[0]
        number, rest = reference["number"], ""
        last = len(match.regs) - 1
        while int(number) > last and len(number) > 1:
            number, rest = number[:-1], number[-1] + rest
        if int(number) > last:
            return reference[0]
        return (match[int(number)] or "") + rest

    return _REFERENCE.sub(part, replacement)
