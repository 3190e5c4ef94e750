import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pqbroker.broker.services.topics.topic_names import check_topic_name
from pqbroker.protocol.errors import ErrorCode, KafkaError


@pytest.mark.spec("G.1")
@pytest.mark.parametrize("name", ["a", "a.b_c-9", "...", "_", "x" * 249])
def test_legal_names_are_taken(name: str) -> None:
    check_topic_name(name)


@pytest.mark.spec("G.1")
@pytest.mark.parametrize("name", ["", ".", "..", "x" * 250, "a b", "a/b", "é", "a\n"])
def test_other_names_are_refused(name: str) -> None:
    with pytest.raises(KafkaError) as refused:
        check_topic_name(name)
    assert refused.value.code == ErrorCode.INVALID_TOPIC_EXCEPTION
    assert refused.value.message


@given(st.text(max_size=300))
def test_a_name_is_taken_when_kafkas_rule_takes_it(name: str) -> None:
    is_legal = bool(re.fullmatch(r"[a-zA-Z0-9._-]{1,249}", name)) and name not in (".", "..")
    try:
        check_topic_name(name)
    except KafkaError:
        assert not is_legal
    else:
        assert is_legal
