"""Names of topics as an error lists them."""

from collections.abc import Sequence

_NAMED_TOPICS_MAX = 10


def shown_topics(topics: Sequence[str]) -> str:
    """Return a clause that names the topics that exist, the first of many."""
    if not topics:
        return "there are no topics yet"
    more = ", …" if len(topics) > _NAMED_TOPICS_MAX else ""
    return f"there are {', '.join(topics[:_NAMED_TOPICS_MAX])}{more}"
