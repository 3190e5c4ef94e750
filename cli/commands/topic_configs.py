"""`pqbroker topic configs`: look at a topic's configs, set and unset them."""

from collections.abc import Mapping
from typing import Annotated

from pqbroker.cli.command import Family, declare
from pqbroker.cli.kafka.cluster import Cluster, settled
from pqbroker.cli.kafka.configs import TOPIC, alter_configs, describe_configs, source
from pqbroker.cli.kafka.link import DEFAULT_KAFKA
from pqbroker.cli.notices import tell
from pqbroker.cli.options import Broker, Json, TopicName, assignments
from pqbroker.cli.output import say, show_json, show_table
from pqbroker.cli.parsing import option
from pqbroker.cli.refusals import WrongInput, near
from pqbroker.protocol.messages.describe_configs import DescribeConfigsResourceResult

_TOPIC_SOURCE = 1


def add_configs(app: Family) -> None:
    """Declare the command."""
    example = "pqbroker topic configs orders --set retention.ms=3600000 --unset cleanup.policy"
    declare(app, "configs", example)(configs)
    declare(app, "config", example, hidden=True)(configs)


def configs(
    topic: TopicName,
    set_: Annotated[list[str] | None, option("--set", metavar="NAME=VALUE", help="Config to set; repeatable.")] = None,
    unset: Annotated[list[str] | None, option(metavar="NAME", help="Config to reset; repeatable.")] = None,
    every: Annotated[bool, option("--all", help="Include configs at their default.")] = False,
    broker: Broker = DEFAULT_KAFKA,
    json: Json = False,
) -> None:
    """Show the configs of a topic; change them with --set and --unset."""
    changes: dict[str, str | None] = {**assignments("--set", set_ or [], "retention.ms=3600000")}
    for name in unset or []:
        if changes.get(name) is not None:
            raise WrongInput(f"{name} is both set and unset; choose one")
        changes[name] = None
    with Cluster(broker) as cluster:
        cluster.topic(topic)
        before = describe_configs(cluster, TOPIC, topic)
        if changes:
            changes = _by_known_names(cluster, topic, changes, before)
            alter_configs(cluster, TOPIC, topic, changes)
        now = settled(lambda: describe_configs(cluster, TOPIC, topic), lambda after: _have_come(changes, before, after))
    found = [each for each in now if every or is_own(each)]
    if json:
        shown = {each.name: {"value": each.value, "source": source(each)} for each in found}
        show_json({"topic": topic, "configs": shown})
    elif found:
        show_table(("config", "value", "source"), [(each.name, each.value, source(each)) for each in found])
    else:
        say(f"topic {topic} has every config from the broker; --all shows them")


def is_own(each: DescribeConfigsResourceResult) -> bool:
    """Return True if a config was set at the topic."""
    return each.config_source == _TOPIC_SOURCE


def _by_known_names(
    cluster: Cluster, topic: str, changes: Mapping[str, str | None], known: list[DescribeConfigsResourceResult]
) -> dict[str, str | None]:
    """The changes by the names that the broker shows: it may show a config that is asked for by an earlier name."""
    names = [each.name for each in known]
    renamed: dict[str, str | None] = {}
    for name, value in changes.items():
        if name in names:
            renamed[name] = value
            continue
        found = describe_configs(cluster, TOPIC, topic, [name])
        if not found:
            hint = near(name, names) or "`pqbroker topic configs TOPIC --all` lists them"
            raise WrongInput(f"unknown config {name}; {hint}")
        tell(f"{name} is now called {found[0].name}")
        if found[0].name not in changes:
            renamed[found[0].name] = value
    return renamed


def _have_come(
    changes: dict[str, str | None],
    before: list[DescribeConfigsResourceResult],
    after: list[DescribeConfigsResourceResult],
) -> bool:
    """Return True if a broker says what it has taken: Apache Kafka does so a little later. It may write a value
    otherwise."""
    earlier = {each.name: each.value for each in before}
    return all(
        is_own(each) == (changes[each.name] is not None)
        and (not is_own(each) or each.value == changes[each.name] or each.value != earlier[each.name])
        for each in after
        if each.name in changes
    )
