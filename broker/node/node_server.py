"""Server of one node of several: the first one has the data, the others have an engine in memory in place of the
system cell, and forward what they do not serve themselves.
"""

from dataclasses import replace

from pqbroker.broker.node.commit_ways import CommitWays
from pqbroker.broker.node.member_link import MemberLink
from pqbroker.broker.node.node_place import FIRST, AskParent, NodePlace
from pqbroker.broker.node.orders import Orders
from pqbroker.broker.node.server import Server
from pqbroker.broker.peers.link_rules import LinkTerms
from pqbroker.conf.broker import BrokerSettings
from pqbroker.storage.engine_kinds import MEMORY, kind_of
from pqbroker.storage.ids import CellId, TabletId
from pqbroker.storage.tablets.start_check import check_start


async def make_node_server(orders: Orders, settings: BrokerSettings, ask_parent: AskParent) -> Server:
    """Return the server that a parent process orders. EngineError, ConfigError."""
    terms = LinkTerms(
        orders.secret, orders.node, settings.peer_frame_bytes_max, silence_s=settings.node_silence_ms / 1000
    )
    own = replace(settings, node_id=settings.node_id + orders.node - FIRST)
    kind, member = kind_of(orders.data), None
    elsewhere: dict[CellId, dict[TabletId, int]] = {}
    engine = system = kind.engine(orders.data, own)
    if orders.node == FIRST:
        await kind.preview(orders.data, own, check_start)
    else:
        system, member = kind_of(MEMORY).engine(MEMORY, own), MemberLink(orders, terms, settings, elsewhere)
    ways = CommitWays(is_first=True) if member is None else member.ways
    place = NodePlace(
        orders.node, orders.nodes, orders.kafka, engine, orders.door, terms, ways, member, elsewhere,
        ask_parent=ask_parent,
    )  # fmt: skip
    return Server(own, system, place, orders.http)
