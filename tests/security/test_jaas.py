"""Lines of JAAS: as Kafka's clients and servers have them, and those that are none."""

import pytest

from pqbroker.security.errors import SecurityError
from pqbroker.security.jaas import PLAIN_MODULE, parse_jaas


@pytest.mark.parametrize(
    ("text", "options"),
    [
        (f'{PLAIN_MODULE} required username="alice" password="a b;=";', {"username": "alice", "password": "a b;="}),
        (f"{PLAIN_MODULE} Required username=alice password='x\"y' ;\n", {"username": "alice", "password": 'x"y'}),
        (f'{PLAIN_MODULE} required\n  user_a = "\\"\\\\\\t"\n /* 2 */ user_b="é";', {"user_a": '"\\\t', "user_b": "é"}),
        (f'// first\n{PLAIN_MODULE} optional tokenauth=true;', {"tokenauth": "true"}),
        (f"{PLAIN_MODULE} required;", {}),
    ],
)  # fmt: skip
def test_an_entry_is_read(text: str, options: dict[str, str]) -> None:
    entry = parse_jaas(text)
    assert entry.module == PLAIN_MODULE
    assert entry.options == options
    assert repr(entry) == f"JaasEntry(module='{PLAIN_MODULE}')"


def test_users_are_listed_by_their_names() -> None:
    assert parse_jaas('m required username="x" user_alice="a" user_="b";').listed_users == {"alice": "a", "": "b"}


@pytest.mark.parametrize(
    "text",
    [
        "", ";", "m", "m;", "m required", "m sometimes a=b;", "m required a;", "m required a=;", "m required a=b c;",
        'm required a="Secret1', "m required a=b; m required c=d;", "m required = b;", "m required a==b;",
        'm required a="Secret1" \x00;', "m required a=b;c", "m required a='Secret1\n';",
    ],
)  # fmt: skip
def test_what_is_no_entry_is_refused_without_its_secrets(text: str) -> None:
    with pytest.raises(SecurityError) as refused:
        parse_jaas(text)
    assert "Secret1" not in str(refused.value)
