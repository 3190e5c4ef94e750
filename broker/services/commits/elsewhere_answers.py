"""Answers of this node to what the first one asks about transactions; `elsewhere.py` says what that is."""

from typing import Any, Protocol

from pqbroker.broker.services.commits.commits import Commits
from pqbroker.broker.services.commits.elsewhere import CommitQuestion, WantedParts, encode_part
from pqbroker.pq.serving.topics import Topics
from pqbroker.pq.serving.transacted_batches import await_transactions, under_way


class AskedOpening(Protocol):
    """One opening of the node's cells."""

    @property
    def commits(self) -> Commits: ...
    @property
    def topics(self) -> Topics: ...


async def answer_of_commits(opened: AskedOpening, question: Any, asked: Any) -> Any:
    """Return the answer to a question. ValueError for what is no question of this version."""
    kind = CommitQuestion(question)
    if kind is CommitQuestion.UNFINISHED:
        return [encode_part(part) for part in WantedParts.decode(asked).among(opened.commits.unfinished())]
    if kind is CommitQuestion.AWAIT:
        topic = opened.topics.by_id(_topic_id(asked))
        return "" if topic is None else await await_transactions(topic.partitions) or ""
    if not isinstance(asked, list):
        raise ValueError("ids of topics were expected")
    known = ((topic_id, opened.topics.by_id(_topic_id(topic_id))) for topic_id in asked)
    return [topic_id for topic_id, topic in known if topic is not None and any(map(under_way, topic.partitions))]


def _topic_id(told: Any) -> bytes:
    """ValueError."""
    if not isinstance(told, str):
        raise ValueError("the id of a topic was expected")
    return bytes.fromhex(told)
