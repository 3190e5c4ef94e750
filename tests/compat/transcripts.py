"""What Kafka's tools say, as transcripts in tests/compat/tools/, taken from Apache Kafka and compared with our broker.

A line `$ TOOL ARGUMENTS` is a run and `> TEXT` a line of its standard input; what it printed follows, `! TEXT` if as a
complaint, and `[STATUS]` if it failed. `$ join GROUP TOPIC [PROTOCOL]` lets a member live in a group until `$ leave`.
Take them anew with `python -m tests.compat.transcripts`, which starts Apache Kafka; only `$` and `>` lines are read
then.
"""

import json
import re
import shlex
import sys
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

from pqbroker.conf.access import STANDARD_AUTHORIZER
from tests.support.drivers.librdkafka_driver import LibrdkafkaDriver
from tests.support.drivers.member import Member, await_members
from tests.support.java.tools import Told, Tools
from tests.support.kafka.broker import ApacheKafka

DIRECTORY = Path(__file__).parent / "tools"
NODE_ID = "1"
"""What both brokers call themselves."""
OURS = {"node.id": NODE_ID}
THEIRS = {"log.segment.delete.delay.ms": None}
GUARDED_DIRECTORY = Path(__file__).parent / "guarded_tools"
GUARDED = {"authorizer.class.name": STANDARD_AUTHORIZER, "super.users": "User:ANONYMOUS"}
"""Settings of both brokers for the transcripts about access rules and quotas."""

_UUID = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}")
_TOPIC_ID = re.compile(r"TopicId: [\w-]{22}")
_MEMBER_ID = re.compile(r"(?<= )[\w+/-]{22}(?= )")
"""Id of a member of a group of KIP-848."""
_BLANKS = re.compile(r"[ \t]+")
_STACK = re.compile(r"^(\tat |\s*\.\.\. \d+ more|Caused by: )")
# Apache Kafka's format sets it for the cluster, so that it counts as set; with us it is a default.
_CLUSTER_DEFAULT = re.compile(r"^ *min\.insync\.replicas=1 .*$|min\.insync\.replicas=1,?", re.MULTILINE)
_PRODUCED = re.compile(r"^(\d+ records sent), .*$", re.MULTILINE)
_DIRECTORIES = re.compile(r'"log_dirs":\[[^]]*\]')
_OF_THE_METADATA = re.compile(r"^(ClusterId:|LeaderEpoch:|HighWatermark:).*$", re.MULTILINE)
_VOTER = re.compile(r'\{"id": 1,[^}]*\}')
_OWN_CONFIG = re.compile(r"^ *(pq(broker)?\.|(value|key)\.(invalid|format|avro\.schema|registry(\.subject)?)=)")
# Our texts say what to do about it.
_WHY = re.compile(r"((?:\.\w+Exception|Error while executing topic command) ?:).*$", re.MULTILINE)
_DOCUMENTS = ("api-versions", "broker-configs")
"""Transcripts that are compared in their own way."""


@dataclass(frozen=True, slots=True)
class Run:
    """One line with `$`, and the lines for its standard input."""

    command: str
    content: tuple[str, ...]

    @property
    def words(self) -> list[str]:
        return shlex.split(self.command)


def transcripts() -> list[Path]:
    """Every transcript."""
    return sorted(DIRECTORY.glob("*.txt"))


def compared() -> list[Path]:
    """Those that our broker must repeat word by word."""
    return [path for path in transcripts() if path.stem not in _DOCUMENTS]


def runs(text: str) -> Iterator[Run]:
    """The runs that a transcript asks for."""
    command = ""
    content: list[str] = []
    for line in text.splitlines():
        if line.startswith("$ "):
            if command:
                yield Run(command, tuple(content))
            command, content = line[2:], []
        elif line.startswith("> "):
            content.append(line[2:])
    if command:
        yield Run(command, tuple(content))


def perform(text: str, tools: Tools, address: str) -> str:
    """Do what a transcript asks for at a broker; the transcript of that."""
    lines = []
    with ExitStack() as members:
        for run in runs(text):
            lines += [f"$ {run.command}", *(f"> {line}" for line in run.content)]
            if run.words[0] == "join":
                members.enter_context(_member(address, *run.words[1:]))
            elif run.words[0] == "leave":
                members.close()
            else:
                lines += _told(run, tools, address)
    return "\n".join(lines) + "\n"


def _member(address: str, group: str, topic: str, protocol: str = "classic") -> Member:
    """Lives in a group, and has at least one partition already."""
    member = Member(lambda: LibrdkafkaDriver(address).consumer(topic, group, protocol=protocol))
    await_members(lambda: member.owned, "partitions assigned")
    return member


def _told(run: Run, tools: Tools, address: str) -> list[str]:
    tool, *arguments = run.words
    told = tools.run(tool, arguments, "".join(f"{line}\n" for line in run.content))
    lines = [line for line in _normal(tool, told.out, address) if line]
    if "brokers" in arguments and "--all" in arguments:  # values are the node's own: ports, paths
        lines = [line.partition("=")[0] + "=" for line in lines]
    if "--list" in arguments and tool != "kafka-acls":
        lines.sort()
    if tool == "kafka-acls":
        lines = _sorted_rules(lines)
    lines += [f"! {line}" for line in _normal(tool, _complaints(told), address) if line]
    return lines + ([f"[{told.status}]"] if told.status else [])


def _complaints(told: Told) -> str:
    return "\n".join(line for line in told.err.splitlines() if not _STACK.match(line))


def _normal(tool: str, text: str, address: str) -> list[str]:
    """Without what differs from broker to broker and run to run: addresses, ids, sizes, times, widths of columns."""
    text = text.replace(address, "HOST:PORT")
    text = _TOPIC_ID.sub("TopicId: ID", _UUID.sub("UUID", text))
    if tool == "kafka-consumer-groups":
        text = _MEMBER_ID.sub("UUID", text)
    if tool == "kafka-log-dirs":
        text = "\n".join(_log_directories(line) for line in text.splitlines())
    if tool == "kafka-producer-perf-test":
        text = _PRODUCED.sub(r"\1", text)
    if tool == "kafka-consumer-perf-test":
        text = "\n".join(_consumed(line) for line in text.splitlines())
    if tool == "kafka-reassign-partitions":
        text = _DIRECTORIES.sub('"log_dirs":[DIRECTORY]', text)
    if tool == "kafka-metadata-quorum":
        text = _OF_THE_METADATA.sub(r"\1 NUMBER OR ID", _VOTER.sub('{"id": 1}', text))
    if tool in ("kafka-configs", "kafka-topics"):
        text = _CLUSTER_DEFAULT.sub("", _WHY.sub(r"\1", text))
    return [_BLANKS.sub(" ", line).strip() for line in text.splitlines() if not _OWN_CONFIG.match(line)]


def _sorted_rules(lines: list[str]) -> list[str]:
    """Return the blocks of resources, and the rules in each, in order: Kafka keeps them in hash tables."""
    blocks: list[list[str]] = [[]]
    for line in lines:
        if line.startswith(("Current ACLs", "Adding ACLs", "Deleting")):
            blocks.append([line])
        elif line.endswith("already exists."):  # comes when the answer does, amid other lines
            blocks[0].append(line)
        elif not line.startswith("at "):  # a stack that the tool prints
            blocks[-1].append(line)
    return [line for block in sorted([*block[:1], *sorted(block[1:])] for block in blocks) for line in block]


def _log_directories(line: str) -> str:
    """The JSON without paths and sizes, a partition a line, in order."""
    if not line.startswith("{"):
        return line
    found = [
        f"broker {broker['broker']} {each['partition']} lag {each['offsetLag']} future {each['isFuture']}"
        for broker in json.loads(line)["brokers"]
        for directory in broker["logDirs"]
        for each in directory["partitions"]
        if directory["error"] is None and each["size"] >= 0
    ]
    return "\n".join(sorted(found))


def _consumed(line: str) -> str:
    """Of the line with figures only megabytes and records."""
    figures = line.split(", ")
    return f"{figures[2]} MB, {figures[4]} records" if line[:1].isdigit() else line


def main() -> None:
    """Take every transcript again; those of directories that are named, where some are."""
    for directory, properties in ((DIRECTORY, THEIRS), (GUARDED_DIRECTORY, {**THEIRS, **GUARDED})):
        if sys.argv[1:] and directory.name not in sys.argv[1:]:
            continue
        with ApacheKafka(properties=properties) as kafka, Tools(kafka.kafka) as tools:
            for path in sorted(directory.glob("*.txt")):
                path.write_text(perform(path.read_text(encoding="utf-8"), tools, kafka.kafka), encoding="utf-8")


if __name__ == "__main__":
    main()
