"""A line of JAAS, as `sasl.jaas.config` has it: a login module of Java's, a flag, and options. Pure.

    org.apache.kafka.common.security.plain.PlainLoginModule required username="alice" password="secret";
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from pqbroker.security.errors import SecurityError

PLAIN_MODULE: Final = "org.apache.kafka.common.security.plain.PlainLoginModule"
SCRAM_MODULE: Final = "org.apache.kafka.common.security.scram.ScramLoginModule"
OAUTH_MODULE: Final = "org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginModule"
LISTED_USER: Final = "user_"
"""Beginning of the options of PLAIN's module on a listener that each list a user: `user_alice="secret"`."""
_FLAGS: Final = ("required", "requisite", "sufficient", "optional")
_TOKEN: Final = re.compile(
    r"""\s*(?://[^\n]*\n|/\*.*?\*/)?\s*(?:(?P<mark>[;=])|(?P<word>[\w.$/+@:-]+)|"(?P<text>(?:[^"\\\n]|\\.)*)"|"""
    r"""'(?P<single>(?:[^'\\\n]|\\.)*)')""",
    re.DOTALL,
)
_ESCAPES: Final = {"n": "\n", "t": "\t", "r": "\r", "f": "\f", "b": "\b"}


@dataclass(frozen=True, slots=True)
class JaasEntry:
    """One login module and its options, which hold secrets."""

    module: str
    options: Mapping[str, str] = field(repr=False)

    @property
    def listed_users(self) -> Mapping[str, str]:
        """Return the passwords that a listener's entry lists, by user."""
        return {
            name.removeprefix(LISTED_USER): password
            for name, password in self.options.items() if name.startswith(LISTED_USER)
        }  # fmt: skip


def parse_jaas(text: str) -> JaasEntry:
    """Return the one entry of a text. SecurityError, which shows nothing of it but names."""
    tokens = _tokens(text)
    if len(tokens) < 3 or tokens[-1] != (";", True):
        raise SecurityError("sasl.jaas.config must be one login module, a flag and options, with ; at the end")
    (module, _), (flag, _), *rest = tokens[:-1]
    if flag.lower() not in _FLAGS:
        raise SecurityError(f"sasl.jaas.config has no flag behind its login module; write {module} required …;")
    if (";", True) in rest:
        raise SecurityError("sasl.jaas.config has several login modules; give one")
    options: dict[str, str] = {}
    while rest:
        name, is_mark = rest[0]
        if is_mark or len(rest) < 3 or rest[1] != ("=", True) or rest[2][1]:
            raise SecurityError(f"sasl.jaas.config has no value for the option {name!r}; write NAME=\"VALUE\"")
        options[name] = rest[2][0]
        del rest[:3]
    return JaasEntry(module, options)


def _tokens(text: str) -> list[tuple[str, bool]]:
    """Words and texts, each False, and marks, each True."""
    found: list[tuple[str, bool]] = []
    position, text = 0, text.rstrip()
    while position < len(text):
        token = _TOKEN.match(text, position)
        if token is None:
            raise SecurityError(
                f"sasl.jaas.config is unreadable from character {position + 1} on; put values into double quotes"
            )
        position = token.end()
        if token["mark"]:
            found.append((token["mark"], True))
        else:
            quoted = token["text"] if token["text"] is not None else token["single"]
            found.append((token["word"] if quoted is None else _unescape(quoted), False))
    return found


def _unescape(text: str) -> str:
    return re.sub(r"\\(.)", lambda match: _ESCAPES.get(match[1], match[1]), text, flags=re.DOTALL)
