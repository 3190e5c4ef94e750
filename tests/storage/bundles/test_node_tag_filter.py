"""The grammar of D.6 with its vectors."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pqbroker.storage.bundles.node_tag_filter import FILTER_CHARS_MAX, FilterInvalid, is_tag, parse_filter

pytestmark = pytest.mark.spec("D.6")

INVALID = ("!", "a&", "&a", "a!b", "a||b", "a&&b", "()", "a&()", "1", "a+b", "a^b", "a==b", "/a", "-")
TAGS = ("a", "b", "c")


@pytest.mark.parametrize("text", [*INVALID, "(a", "a)", "((a)", "(a))", ")a(", "in", "a & in", "a b", "(a)b", "a(b)"])
def test_what_is_no_formula_is_refused_with_its_place(text: str) -> None:
    with pytest.raises(FilterInvalid, match="at character"):
        parse_filter(text)


@pytest.mark.parametrize("text", ["", " ", "\t "])
def test_an_empty_formula_is_true_on_every_node(text: str) -> None:
    assert parse_filter(text).matches(())
    assert parse_filter(text).matches(("a",))


@pytest.mark.parametrize("tag", ["var/2", "var-var", "tablet_common/news-queue", "_x", "a.b", "inner", "x1"])
def test_a_variable_is_true_where_the_node_has_the_tag(tag: str) -> None:
    assert is_tag(tag)
    assert parse_filter(tag).matches({tag})
    assert not parse_filter(tag).matches({tag + "x"})


@pytest.mark.parametrize("text", ["1", "in", "", "a b", "!", "(", "&", "-a", "é"])
def test_no_node_has_a_tag_that_no_formula_can_name(text: str) -> None:
    assert not is_tag(text)


@pytest.mark.parametrize(
    ("text", "tags", "found"),
    [
        ("foo | (bar & !baz)", {"foo", "baz"}, True),
        ("foo | (bar & !baz)", {"bar"}, True),
        ("foo | (bar & !baz)", {"bar", "baz"}, False),
        ("a|b&c", {"a"}, True),
        ("(a|b)&c", {"a"}, False),
        ("a&b|c", {"c"}, True),
        ("!a&b", {"b"}, True),
        ("!(a&b)", {"a"}, True),
        ("!a|b", {"a"}, False),
        ("!!a", {"a"}, True),
        ("  a&b ", {"a", "b"}, True),
    ],
)
def test_not_binds_before_and_and_before_or(text: str, tags: set[str], found: bool) -> None:
    assert parse_filter(text).matches(tags) is found


def test_formulas_have_a_length_and_any_nesting() -> None:
    deep = "(" * 500 + "a" + ")" * 500
    assert parse_filter(deep).matches({"a"})
    assert not parse_filter("!" * 501 + "a").matches({"a"})
    with pytest.raises(FilterInvalid, match=f"at most {FILTER_CHARS_MAX}"):
        parse_filter("a" * (FILTER_CHARS_MAX + 1))


FORMULAS = st.recursive(
    st.sampled_from(TAGS),
    lambda inner: st.one_of(
        inner.map(lambda text: f"(! {text})"),
        st.tuples(inner, st.sampled_from("&|"), inner).map(lambda parts: f"({parts[0]} {parts[1]}{parts[2]})"),
    ),
    max_leaves=12,
)


@given(FORMULAS, st.sets(st.sampled_from(TAGS)))
def test_formulas_say_what_python_says(text: str, tags: set[str]) -> None:
    said = text.replace("!", " not ").replace("&", " and ").replace("|", " or ")
    model = eval(said, {"__builtins__": {}}, {tag: tag in tags for tag in TAGS})
    assert parse_filter(text).matches(tags) is model
