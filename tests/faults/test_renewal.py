"""Tablets of a running broker use up their commits and are started anew, over and over; its clients notice nothing."""

import asyncio
from functools import partial

import pytest
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer

from pqbroker.testing import Broker, broker
from tests.support.waiting import wait_until

RECORDS = 1200
COMMITS_MAX = 150


@pytest.mark.timeout(120)
async def test_clients_do_not_notice_that_tablets_are_started_anew() -> None:
    settings = {"pqbroker.tablet.commits.max": str(COMMITS_MAX)}
    with broker(settings=settings) as running:
        consumer = AIOKafkaConsumer(
            "t", bootstrap_servers=running.kafka, group_id="g", auto_offset_reset="earliest", enable_auto_commit=False
        )
        async with AIOKafkaProducer(bootstrap_servers=running.kafka, enable_idempotence=True) as producer, consumer:
            read = asyncio.ensure_future(_read(consumer))
            offsets = []
            for number in range(RECORDS):
                offsets.append((await producer.send_and_wait("t", b"%d" % number)).offset)
                if number in (400, 800):
                    renewed = partial(_renewals, running, number // 400)
                    await asyncio.to_thread(wait_until, renewed, "the partition's tablet is started anew")
            assert offsets == list(range(RECORDS))
            assert await read == [b"%d" % number for number in range(RECORDS)]
        log = running.log
    assert "ERROR" not in log
    assert "Traceback" not in log


def _renewals(running: Broker, count: int) -> bool:
    return running.log.count("its blob ids were nearly used up") >= count


async def _read(consumer: AIOKafkaConsumer) -> list[bytes | None]:
    """All records in order, each offset committed."""
    values = []
    async for record in consumer:
        values.append(record.value)
        if len(values) % 50 == 0:
            await consumer.commit()
        if len(values) == RECORDS:
            return values
    raise AssertionError("the consumer ended")
