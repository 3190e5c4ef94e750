"""Members of a consumer group as `pqbroker group describe` shows them, and how far a reconciliation has come."""

from typing import Any

from pqbroker.cli.kafka.cluster import TopicPartition
from pqbroker.cli.kafka.groups import CONSUMER, Group, Member
from pqbroker.cli.output import say, show_table


def member_facts(group: Group, member: Member) -> dict[str, Any]:
    """Return one member as JSON has it. What it has and is to have is shown in groups of the consumer protocol."""
    facts = {
        "member": member.id, "client": member.client, "host": member.host, "partitions": len(member.partitions),
    }  # fmt: skip
    if group.type != CONSUMER:
        return facts
    return {
        **facts, "epoch": member.epoch, "assigned": _by_topic(member.partitions),
        "target": _by_topic(member.target or []),
    }  # fmt: skip


def show_members(group: Group) -> None:
    """Show the members as a table, and the partitions that are on their way from one to another."""
    if not group.members:
        return
    say("")
    if group.type != CONSUMER:
        rows = [[number, *member_facts(group, each).values()] for number, each in enumerate(group.members, 1)]
        show_table(("member", "id", "client", "host", "partitions"), rows)
        return
    show_table(
        ("member", "id", "client", "host", "epoch", "partitions", "target"),
        (
            (number, each.id, each.client, each.host, each.epoch, len(each.partitions), len(each.target or ()))
            for number, each in enumerate(group.members, 1)
        ),
    )
    moving = [row for number, each in enumerate(group.members, 1) for row in _moving(number, each)]
    if moving:
        say("")
        show_table(("member", "topic", "partition", "change"), moving)


def _moving(number: int, member: Member) -> list[tuple[int, str, int, str]]:
    """Return the partitions that a member is to let go, and those that it is to get."""
    has, is_to_have = set(member.partitions), set(member.target or ())
    changes = [*((place, "lets go") for place in has - is_to_have), *((place, "gets") for place in is_to_have - has)]
    return [(number, *place, change) for place, change in sorted(changes)]


def _by_topic(partitions: list[TopicPartition]) -> list[dict[str, Any]]:
    by_topic: dict[str, list[int]] = {}
    for topic, index in partitions:
        by_topic.setdefault(topic, []).append(index)
    return [{"topic": topic, "partitions": indexes} for topic, indexes in by_topic.items()]
