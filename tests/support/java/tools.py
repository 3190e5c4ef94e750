"""Kafka's command line tools by the names of their scripts, run in one Java process."""

import json
import select
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Self
from urllib.parse import quote

from tests.support.java import program
from tests.support.kafka.jars import tools_jar

CLASSES = {
    "kafka-topics": "org.apache.kafka.tools.TopicCommand",
    "kafka-acls": "org.apache.kafka.tools.AclCommand",
    "kafka-configs": "kafka.admin.ConfigCommand",
    "kafka-groups": "org.apache.kafka.tools.GroupsCommand",
    "kafka-consumer-groups": "org.apache.kafka.tools.consumer.group.ConsumerGroupCommand",
    "kafka-get-offsets": "org.apache.kafka.tools.GetOffsetShell",
    "kafka-log-dirs": "org.apache.kafka.tools.LogDirsCommand",
    "kafka-broker-api-versions": "org.apache.kafka.tools.BrokerApiVersionsCommand",
    "kafka-console-producer": "org.apache.kafka.tools.ConsoleProducer",
    "kafka-console-consumer": "org.apache.kafka.tools.consumer.ConsoleConsumer",
    "kafka-producer-perf-test": "org.apache.kafka.tools.ProducerPerformance",
    "kafka-consumer-perf-test": "org.apache.kafka.tools.ConsumerPerformance",
    "kafka-reassign-partitions": "org.apache.kafka.tools.reassign.ReassignPartitionsCommand",
    "kafka-leader-election": "org.apache.kafka.tools.LeaderElectionCommand",
    "kafka-metadata-quorum": "org.apache.kafka.tools.MetadataQuorumCommand",
    "kafka-features": "org.apache.kafka.tools.FeatureCommand",
    "kafka-transactions": "org.apache.kafka.tools.TransactionsCommand",
    "kafka-share-groups": "org.apache.kafka.tools.consumer.group.ShareGroupCommand",
    "kafka-streams-groups": "org.apache.kafka.tools.streams.StreamsGroupCommand",
}
_RUN_TIMEOUT_S = 40


@dataclass(frozen=True, slots=True)
class Told:
    """What a run of a tool said, and the status it ended with."""

    out: str
    err: str
    status: int


class Tools:
    """A context manager: the tools of Kafka against the broker at `address`."""

    def __init__(self, address: str) -> None:
        self._address = address
        self._process: subprocess.Popen[str] = program.start("Tools", [tools_jar()], program.NEWER)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        program.stop(self._process)

    def run(self, tool: str, arguments: Sequence[str], content: str = "") -> Told:
        """Run a tool; the option that says where the broker is need not be among the arguments."""
        words = [CLASSES[tool], content, "--bootstrap-server", self._address, *arguments]
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write("\t".join(map(quote, words)) + "\n")
        self._process.stdin.flush()
        if not select.select([self._process.stdout], [], [], _RUN_TIMEOUT_S)[0]:
            self._process.kill()
            raise AssertionError(f"{tool} {' '.join(arguments)} did not end within {_RUN_TIMEOUT_S} s")
        told = json.loads(self._process.stdout.readline())
        return Told(told["out"], told["err"], told["status"])
