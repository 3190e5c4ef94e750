"""`pqbroker cluster`: the nodes of a cluster, whether its partitions are served, settings and clients of a node."""

import time
from collections.abc import Iterable, Mapping
from datetime import datetime
from typing import Annotated, Any

from pqbroker.cli.command import Family, declare
from pqbroker.cli.http_address import CredentialsKept, UnsetAddress, learnt_http
from pqbroker.cli.kafka.cluster import Cluster, Topic, settled
from pqbroker.cli.kafka.configs import BROKER, CHANGED, alter_configs, describe_configs, is_default, source
from pqbroker.cli.kafka.link import DEFAULT_KAFKA
from pqbroker.cli.notices import announce_wait, tell
from pqbroker.cli.options import INT32_MAX, Broker, Http, Json, assignments
from pqbroker.cli.output import say, show_bytes, show_json, show_table
from pqbroker.cli.parsing import option
from pqbroker.cli.profile_choice import of_profile, profile
from pqbroker.cli.refusals import CommandError, WrongInput, near
from pqbroker.cli.web import DEFAULT_HTTP, NobodyAnswers, Web
from pqbroker.protocol.messages.describe_configs import DescribeConfigsResourceResult

app = Family("Show a cluster's nodes, health, settings and clients; restart its nodes.")

RESTART_S = 600.0
"""Seconds that a restart of all nodes is waited for."""
RESTART_LOOK_S = 0.2


@declare(app, "info", "pqbroker cluster info")
def info(broker: Broker = DEFAULT_KAFKA, json: Json = False) -> None:
    """Show the nodes of a cluster and how many topics and partitions it has."""
    with Cluster(broker) as cluster:
        about, topics = cluster.about(), cluster.topics()
    partitions = sum(len(each.partitions) for each in topics.values())
    columns = ("node", "host", "port", "rack", "controller")
    rows = [(each.id, each.address.host, each.address.port, each.rack, each.is_controller) for each in about.nodes]
    if json:
        nodes = [dict(zip(columns, row, strict=True)) for row in rows]
        show_json({"cluster": about.id, "nodes": nodes, "topics": len(topics), "partitions": partitions})
        return
    say(f"cluster {about.id or '-'}, {len(topics)} topics, {partitions} partitions")
    show_table(columns, [(*row[:4], "yes" if row[4] else "no") for row in rows])


@declare(app, "health", "pqbroker cluster health")
def health(broker: Broker = DEFAULT_KAFKA, http: Http = DEFAULT_HTTP, json: Json = False) -> None:
    """Check that every partition has a leader and all its replicas, and that a pqbroker is well; exit status 1 if not.

    A pqbroker says over HTTP what is wrong with it, at the address of --http or the one that the broker names.
    """
    with Cluster(broker) as cluster:
        topics = cluster.topics()
        state = _state(cluster, http, broker)
    offline = list(_places(topics.values(), lacks_leader=True))
    behind = list(_places(topics.values(), lacks_leader=False))
    count = sum(len(each.partitions) for each in topics.values())
    is_well = not offline and not behind and (state is None or state["status"] == "ok")
    conditions = [] if state is None else state["conditions"]
    if json:
        found = {"healthy": is_well, "partitions": count, "offline": offline, "behind": behind}
        asked = {"broker": str(cluster.address), "profile": None if (one := profile()) is None else one.name}
        show_json({**asked, **found, "status": None if state is None else state["status"], "conditions": conditions})
    elif is_well:
        say(f"healthy: {count} partitions, each with a leader and all its replicas, at {cluster.address}{of_profile()}")
    for one in () if json else conditions:
        since = datetime.fromtimestamp(one["since"] / 1000).astimezone().isoformat(" ", "seconds")
        say(f"{one['severity']}: {one['kind']} at {one['place']} since {since}: {one['cause']}")
        say(f"  affects {one['affects']}")
        say(f"  to cure it: {one['cure']}")
    for places, what in ((offline, "have no leader"), (behind, "lack replicas")):
        if places and not json:
            say(f"{len(places)} of {count} partitions {what}: {', '.join(places)}")
    if not is_well:
        raise CommandError(f"the cluster at {cluster.address}{of_profile()} is not healthy")


def _state(cluster: Cluster, http: str, broker: str) -> dict[str, Any] | None:
    """Return what a pqbroker says of itself; None where none is asked."""
    try:
        address = learnt_http(cluster) if isinstance(http, UnsetAddress) else http
        if address is None:
            return None
        with Web(address, broker=broker) as web:
            return web.state("/health", "status")
    except (CredentialsKept, NobodyAnswers) as error:
        tell(f"the state of the node is unknown: {error}")
        return None


def _places(topics: Iterable[Topic], *, lacks_leader: bool) -> Iterable[str]:
    for topic in topics:
        for index, one in topic.partitions.items():
            if (one.leader < 0) if lacks_leader else (one.leader >= 0 and len(one.isr) < len(one.replicas)):
                yield f"{topic.name}-{index}"


@declare(app, "settings", "pqbroker cluster settings --set log.retention.ms=172800000")
def settings(
    set_: Annotated[
        list[str] | None, option("--set", metavar="NAME=VALUE", help="Setting to change; repeatable.")
    ] = None,
    unset: Annotated[list[str] | None, option("--unset", metavar="NAME", help="Setting to reset; repeatable.")] = None,
    every: Annotated[bool, option("--all", help="Include settings at their default.")] = False,
    node: Annotated[
        int | None,
        option("--node", metavar="NUMBER", least=0, most=INT32_MAX, help="Node to ask; without it: the first."),
    ] = None,
    broker: Broker = DEFAULT_KAFKA,
    json: Json = False,
) -> None:
    """Show the settings of a node; change them with --set and --unset."""
    changes: dict[str, str | None] = {**assignments("--set", set_ or [], "log.retention.ms=172800000")}
    for name in unset or []:
        if changes.get(name) is not None:
            raise WrongInput(f"{name} is both set and unset; choose one")
        changes[name] = None
    with Cluster(broker) as cluster:
        nodes = cluster.nodes()
        asked = nodes[0] if node is None else node
        if asked not in nodes:
            raise CommandError(f"no node {asked} at {cluster.address}; there are {', '.join(map(str, nodes))}")
        known = {each.name: each.value for each in describe_configs(cluster, BROKER, str(asked), None, asked)}
        for name in changes.keys() - known:
            hint = near(name, known) or "`pqbroker cluster settings --all` lists them"
            raise WrongInput(f"unknown setting {name}; {hint}")
        if changes:
            alter_configs(cluster, BROKER, str(asked), changes, asked)
        found = settled(
            lambda: describe_configs(cluster, BROKER, str(asked), None, asked),
            lambda after: all(_has_come(each, changes[each.name], known) for each in after if each.name in changes),
        )
    shown = [each for each in found if every or not is_default(each)]
    if json:
        named = {each.name: {"value": each.value, "source": source(each)} for each in shown}
        show_json({"node": asked, "settings": named})
    elif shown:
        show_table(("setting", "value", "source"), [(each.name, each.value, source(each)) for each in shown])
    else:
        say(f"node {asked} has every setting at its default; --all shows them")


@declare(app, "connections", "pqbroker cluster connections")
def connections(http: Http = DEFAULT_HTTP, json: Json = False) -> None:
    """List the Kafka clients connected to a pqbroker: who they are and what they have requested."""
    with Web(http) as web:
        found = list(web.items("/v1/connections", "connections", "after"))
    if json:
        for each in found:
            show_json(each)
        return
    shown = ("id", "client_id", "address", "principal", "apis", "in", "out", "idle")
    show_table(shown, map(_connection_row, found))


@declare(app, "restart", "pqbroker cluster restart")
def restart(http: Http = DEFAULT_HTTP, json: Json = False) -> None:
    """Restart all nodes of a pqbroker with several, one by one, while clients are served.

    Each node stops once others have its cells open; the next one follows when it has them again. The command waits
    until all were restarted; Ctrl-C ends the waiting, not the restart.
    """
    with Web(http) as web:
        found = web.post("/v1/restart", {}, "state")
    with announce_wait(f"restarting {found['nodes']} nodes", RESTART_S):
        found = _until_restarted(http, found)
    restarted = ", ".join(map(str, found["restarted"])) or "none"
    if json:
        show_json(found)
    elif found["state"] == "done":
        say(f"restarted the nodes {restarted}")
    if found["state"] != "done":
        raise CommandError(found["failure"] or f"not all nodes were restarted, only these: {restarted}")


def _until_restarted(http: str, found: dict[str, Any]) -> dict[str, Any]:
    """Return how far a restart of all nodes is, once it has ended. The first node, which answers, is restarted too."""
    deadline = time.monotonic() + RESTART_S
    while found["state"] == "running" and time.monotonic() < deadline:
        time.sleep(RESTART_LOOK_S)
        try:
            with Web(http) as web:
                found = web.get("/v1/restart", "state")
        except CommandError:  # it stops or starts
            continue
    return found


def _connection_row(one: Mapping[str, Any]) -> tuple[object, ...]:
    traffic = (show_bytes(one["bytes_in"]), show_bytes(one["bytes_out"]), f"{one['idle_ms'] // 1000} s")
    return (one["id"], one["client_id"], one["address"], one["principal"], ", ".join(one["apis"]), *traffic)


def _has_come(now: DescribeConfigsResourceResult, wanted: str | None, before: Mapping[str, str | None]) -> bool:
    """Return True if a node shows what it took: Apache Kafka does a little later, and may write a value otherwise."""
    if wanted is None:
        return now.config_source != CHANGED
    return now.value == wanted or now.value != before[now.name]
