"""Measure what access rules and quotas cost: python -m tests.benchmarks.guarded

Hot figures (`hot.py`) of a node without rules beside one with a thousand, and one with quotas for a thousand other
clients, turn and turn about; and the longest turn of the loop while a principal that nobody has seen asks for Metadata
of ten thousand topics, under ten thousand rules.
"""

import argparse
import asyncio
import gc
import statistics
import tempfile
import time
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path

import uvloop

from pqbroker.broker.ground.access import AclKind, AclOperation
from pqbroker.broker.node.server import Server
from pqbroker.broker.services.access.changes import add_rules
from pqbroker.broker.services.access.rules import AclPattern, AclPermission, AclRule
from pqbroker.broker.services.quotas.changes import QuotaAlteration, alter_quotas
from pqbroker.broker.services.quotas.quota_rules import QuotaEntity
from pqbroker.conf.access import STANDARD_AUTHORIZER
from pqbroker.conf.addresses import Address
from pqbroker.conf.broker import BrokerSettings
from pqbroker.protocol.messages.metadata import MetadataRequest
from pqbroker.storage.memory import MemoryEngine
from tests.benchmarks.hot import Loop, measure
from tests.broker.wire import Client

RULES = 1000
MANY = 10_000


def rules(count: int) -> Iterator[AclRule]:
    """Yield rules of many principals, literal and prefixed; every tenth allows clients that do not log in."""
    for number in range(count):
        principal = "User:ANONYMOUS" if not number % 10 else f"User:user-{number % 997}"
        name, pattern = (f"hot-{number}", AclPattern.LITERAL) if number % 3 else (f"h{number}", AclPattern.PREFIXED)
        yield AclRule(
            AclKind.TOPIC, pattern, name, principal, "*", AclOperation(3 + number % 5), AclPermission(2 + number % 2)
        )
    for operation in (AclOperation.READ, AclOperation.WRITE):
        yield AclRule(
            AclKind.TOPIC, AclPattern.PREFIXED, "hot", "User:ANONYMOUS", "*", operation, AclPermission.ALLOW
        )
    kind, operation = AclKind.TRANSACTIONAL_ID, AclOperation.WRITE
    yield AclRule(kind, AclPattern.LITERAL, "*", "User:ANONYMOUS", "*", operation, AclPermission.ALLOW)


async def prepare(server: Server) -> None:
    await add_rules(server.node, [rule._asdict() for rule in rules(RULES)])


async def set_quotas(server: Server) -> None:
    values = {"producer_byte_rate": 1000.0, "consumer_byte_rate": 1000.0, "request_percentage": 10.0}
    others = [QuotaAlteration(QuotaEntity(f"user-{number}"), values) for number in range(RULES)]
    await alter_quotas(server.node, others)


Prepare = Callable[[Server], Awaitable[None]]


def hot(settings: BrokerSettings, prepare: Prepare | None = None) -> dict[str, float]:
    """Return microseconds of the loop by what was sent."""
    with tempfile.TemporaryDirectory(dir="/dev/shm") as directory, asyncio.Runner(loop_factory=Loop) as runner:
        work = measure(Path(directory) / "data", 1000, settings, prepare)
        return {name: figures.loop_us for name, figures in runner.run(work).items()}


async def longest_turn_s() -> float:
    """Return the longest turn while Metadata of ten thousand topics is answered to somebody new."""
    settings = BrokerSettings(
        authorizer_class_name=STANDARD_AUTHORIZER, super_users="User:admin", partitions_max=2 * MANY
    )
    server = Server(settings, MemoryEngine(1 << 30), Address("127.0.0.1", 0))
    await server.start()
    topics = server.node.cell.current.topics
    await asyncio.gather(*(topics.create(f"hot-{number}", 1, {}) for number in range(MANY)))
    await add_rules(server.node, [rule._asdict() for rule in rules(MANY)])
    gc.collect()
    gc.freeze()
    client = await Client.connect("127.0.0.1", server.kafka_address.port)
    client.send(MetadataRequest(topics=None, include_topic_authorized_operations=True), 9)
    longest, done = 0.0, asyncio.ensure_future(client.receive_bytes())
    while not done.done():
        began = time.thread_time()
        await asyncio.sleep(0)
        longest = max(longest, time.thread_time() - began)
    await client.close()
    await server.stop()
    return longest


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.benchmarks.guarded", description=__doc__)
    parser.add_argument("--rounds", type=int, default=3)
    guarded = BrokerSettings(authorizer_class_name=STANDARD_AUTHORIZER, super_users="User:admin")
    ratios: dict[tuple[str, str], list[float]] = {}
    for _ in range(parser.parse_args().rounds):
        before = hot(BrokerSettings())
        for label, after in (
            (f"{RULES} rules", hot(guarded, prepare)), (f"quotas of {RULES} others", hot(BrokerSettings(), set_quotas)),
        ):  # fmt: skip
            for name in before:
                ratios.setdefault((label, name), []).append(before[name] / after[name])
                print(f"{name}: {before[name]} us, with {label} {after[name]} us", flush=True)
    for (label, name), found in ratios.items():
        print(f"{name}, {label}: {statistics.median(found):.3f} of the rate without")
    print(f"longest turn, {MANY} rules, {MANY} topics: {uvloop.run(longest_turn_s()) * 1000:.1f} ms")


if __name__ == "__main__":
    main()
