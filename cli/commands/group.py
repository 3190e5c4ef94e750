"""`pqbroker group`: list, describe and delete consumer groups. Moving their offsets stands beside."""

from pqbroker.cli.command import Family, declare
from pqbroker.cli.commands.group_members import member_facts, show_members
from pqbroker.cli.commands.group_reset import add_reset
from pqbroker.cli.confirmation import confirm
from pqbroker.cli.kafka.cluster import Cluster, OffsetRange, TopicPartition, leaderless
from pqbroker.cli.kafka.groups import Group, find_group, list_groups
from pqbroker.cli.kafka.link import DEFAULT_KAFKA
from pqbroker.cli.options import Broker, GroupName, GroupNames, Json, Yes
from pqbroker.cli.output import say, show_json, show_table
from pqbroker.cli.refusals import check
from pqbroker.protocol.messages.delete_groups import DeleteGroupsRequest, DeleteGroupsResponse

OFFSET_COLUMNS = ("topic", "partition", "offset", "end", "lag", "member", "client", "host")

app = Family("List, describe, reset and delete consumer groups.")


@declare(app, "list", "pqbroker group list --json")
def list_all(broker: Broker = DEFAULT_KAFKA, json: Json = False) -> None:
    """List consumer groups."""
    with Cluster(broker) as cluster:
        found = list_groups(cluster)
    columns = ("group", "state", "protocol_type", "type")
    rows = [(each.group_id, each.group_state, each.protocol_type, each.group_type or None) for each in found.values()]
    if json:
        for row in rows:
            show_json(dict(zip(columns, row, strict=True)))
    elif rows:
        show_table(columns, rows)
    else:
        say("no groups; `pqbroker consume TOPIC --group GROUP` makes one")


@declare(app, "describe", "pqbroker group describe billing")
def describe(group: GroupName, broker: Broker = DEFAULT_KAFKA, json: Json = False) -> None:
    """Show the members of a consumer group, and its offset and lag in each partition."""
    with Cluster(broker) as cluster:
        found = find_group(cluster, group)
        ends = {partition: None if span is None else span.end for partition, span in _spans(cluster, found).items()}
    rows = [_offset_row(found, partition, ends) for partition in ends]
    if json:
        offsets = [dict(zip(OFFSET_COLUMNS, row, strict=True)) for row in rows]
        about = {"group": group, "type": found.type, "state": found.state, "protocol": found.protocol}
        epochs = {"epoch": found.epoch, "target_epoch": found.target_epoch}
        members = [member_facts(found, each) for each in found.members]
        show_json({**about, **epochs, "members": members, "offsets": offsets})
        return
    lag = sum(row[4] or 0 for row in rows)
    epochs_told = "" if found.epoch is None else f", epoch: {found.epoch}, epoch of the targets: {found.target_epoch}"
    say(f"group {group}, {found.state}, members: {len(found.members)}, lag: {lag}{epochs_told}")
    if rows:
        numbers = {each.id: number for number, each in enumerate(found.members, 1)}
        say("")
        show_table(OFFSET_COLUMNS[:6], ([*row[:5], numbers.get(row[5] or "")] for row in rows))
    show_members(found)


def _offset_row(
    group: Group, partition: TopicPartition, ends: dict[TopicPartition, int | None]
) -> tuple[str, int, int | None, int | None, int | None, str | None, str | None, str | None]:
    offset = group.offsets.get(partition)
    member = next((each for each in group.members if partition in each.partitions), None)
    end = ends[partition]
    lag = None if offset is None or end is None else max(0, end - offset)
    who = (member.id, member.client, member.host) if member else (None, None, None)
    return *partition, offset, end, lag, *who


def _spans(cluster: Cluster, group: Group) -> dict[TopicPartition, OffsetRange | None]:
    """Return the end of each partition that the group reads or has read, None where it has no leader. Partitions of
    deleted topics are left out."""
    partitions = sorted({*group.offsets, *(partition for member in group.members for partition in member.partitions)})
    topics = cluster.topics() if partitions else {}
    spans: dict[TopicPartition, OffsetRange | None] = {}
    for name in dict.fromkeys(name for name, _ in partitions):
        if name in topics:
            indices = [index for each, index in partitions if each == name and index in topics[name].partitions]
            unled = leaderless(topics[name], indices)
            found = cluster.spans(topics[name], [index for index in indices if index not in unled])
            spans |= {(name, index): found.get(index) for index in indices}
    return spans


@declare(app, "delete", "pqbroker group delete billing --yes")
def delete(groups: GroupNames, yes: Yes = False, broker: Broker = DEFAULT_KAFKA, json: Json = False) -> None:
    """Delete consumer groups without members, and their offsets."""
    with Cluster(broker) as cluster:
        for group in groups:
            find_group(cluster, group)
        confirm(f"delete group {', '.join(groups)} with all offsets?", yes)
        for group in groups:
            request = DeleteGroupsRequest(groups_names=[group])
            result = cluster.ask(request, DeleteGroupsResponse, cluster.coordinator(group)).results[0]
            check(result.error_code, f"cannot delete group {group}")
            if json:
                show_json({"group": group, "deleted": True})
            else:
                say(f"deleted group {group}")


add_reset(app)
