"""Parts that the commands' arguments have in common: the parser, checked values, and the work that they come to."""

import argparse
import os
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NoReturn

from pqbroker.pipeline.errors import JobError
from pqbroker.pipeline.lakes.value_registry import Registry
from pqbroker.pipeline.schema_text import read_columns
from pqbroker.security.profiles import (
    BROKER_VARIABLE,
    CONFIG_VARIABLE,
    PROFILE_VARIABLE,
    ProfileError,
    choose_profile,
)

PROGRAM = "pqbroker-pipeline"
_KAFKA_PORT = 9092
_BROKER = f"127.0.0.1:{_KAFKA_PORT}"
_JSON_EXAMPLE = '--format json --schema "id BIGINT NOT NULL, name STRING"'
_PORT_MAX = 65_535
_INTERVAL_S_MAX = 86_400
_ROWS_MAX = 2**63 - 1
_RATE_MAX = 1e9


Options = argparse.Namespace
_REGISTRY = "schema registry with Confluent's API; columns by the latest schema of TOPIC-value, the rest to TOPIC.dlq"
_REGISTRY_CONFIG = "properties for the registry: basic.auth.user.info or bearer.auth.token, schema.registry.ssl.…"
_REGISTRY_SUBJECT = "subject of the schema in place of TOPIC-value, such as shop.Order"


class Parser(argparse.ArgumentParser):
    """Prints what was wrong and an example that is right, instead of the whole usage."""

    example = "land events --to ./lake --once"
    """Arguments that are right."""

    def error(self, message: str) -> NoReturn:
        example = f"for example: {PROGRAM} {self.example}"
        self.exit(2, f"{self.prog}: {message}\n{example}\nall options: {self.prog} --help\n")


@dataclass(frozen=True, slots=True)
class Work:
    """A command that was understood."""

    title: str
    """Summary of what it does, for its first line."""
    brokers: tuple[str, ...]
    """Brokers that it needs."""
    check: Callable[[], None]
    """Raises JobError for what is known to fail without Spark."""
    perform: Callable[[Any, Callable[[str], None], Any], None]
    """Called with the SparkSession, what takes a line for people, and the event that asks the job to stop."""
    waits_for: str
    """Text of what is awaited first, once Spark runs."""
    topics: tuple[str, ...] = ()
    """Topics that have to exist at the first broker, by name or pattern."""
    schema: str | None = None
    """Schema in SQL that the values of the topics are to have."""
    look: Callable[[], None] | None = None
    """Raises JobError for what the broker shows to fail, before Spark starts."""
    needs_spark: bool = True
    """False: `perform` gets None for the session."""


@dataclass(frozen=True, slots=True)
class Answer:
    """A command that needed nothing but this machine's files: its lines for standard output."""

    lines: tuple[str, ...]


def add_broker(command: argparse.ArgumentParser) -> None:
    """Add the options of the broker and of the security of its connections; `choose_addresses` fills them in."""
    command.add_argument(
        "--broker", type=broker, metavar="HOST:PORT", help=f"Kafka address ({_BROKER}; ${BROKER_VARIABLE})"
    )
    command.add_argument(
        "--command-config", type=Path, metavar="FILE",
        help=f"security of the connection, in the form of Kafka's client.properties (${CONFIG_VARIABLE})",
    )  # fmt: skip
    command.add_argument(
        "--profile", metavar="NAME", help=f"cluster that `pqbroker profile add` saved (${PROFILE_VARIABLE})"
    )


def choose_addresses(parser: Parser, options: Options) -> str | None:
    """Fill in the broker and its security where the command line has none, by a profile or the environment.

    Return the name of the profile. What cannot be meant ends the command.
    """
    if options.profile is not None and options.broker is not None:
        parser.error("--profile does not go with --broker: a profile has the address of its cluster")
    try:
        chosen = choose_profile(os.environ, options.profile, is_addressed=options.broker is not None).profile
        environment = os.environ if chosen is None else chosen.in_place_of(os.environ)
        first = (environment.get(BROKER_VARIABLE) or _BROKER).split(",")[0]
        options.broker = options.broker or broker(first if ":" in first else f"{first}:{_KAFKA_PORT}")
    except (ProfileError, argparse.ArgumentTypeError) as error:
        parser.error(str(error))
    config = environment.get(CONFIG_VARIABLE)
    options.command_config = options.command_config or (Path(config) if config else None)
    if chosen is not None and chosen.user is not None and options.command_config is None:
        parser.error(f"profile {chosen.name} logs in as {chosen.user}; a job needs that in a file of --command-config")
    return None if chosen is None else chosen.name


def add_stream(command: argparse.ArgumentParser, interval_s: float = 10.0, batch_rows: int = 1_000_000) -> None:
    """Add options that say when a job that reads a topic ends, and how often it works until then."""
    often, most = f"seconds between batches ({interval_s:g})", f"most rows of a batch ({batch_rows:,})"
    command.add_argument("--once", action="store_true", help="stop at the current end of the topic")
    command.add_argument("--interval", type=seconds, default=interval_s, metavar="S", help=often)
    command.add_argument("--batch-rows", type=count, default=batch_rows, metavar="N", help=most)


def add_values(command: argparse.ArgumentParser) -> None:
    """Add options that say what values are."""
    command.add_argument("--format", choices=("raw", "json"), default="raw", help="format of values (raw: bytes)")
    schema = f"JSON schema: {_JSON_EXAMPLE}; other values go to TOPIC.dlq"
    command.add_argument("--schema", metavar="SQL", help=schema)


def add_registry(command: argparse.ArgumentParser) -> None:
    """Add options that name the schema registry of values."""
    command.add_argument("--registry", type=registry, metavar="URL", help=_REGISTRY)
    command.add_argument("--registry-config", type=Path, metavar="FILE", help=_REGISTRY_CONFIG)
    command.add_argument("--registry-subject", metavar="SUBJECT", default="", help=_REGISTRY_SUBJECT)


def read_registry(parser: Parser, options: Options) -> Registry | None:
    """Return the registry of the options; ends the command where they do not go together."""
    if options.registry is not None and options.format == "json":
        parser.error("--registry and --format json do not go together: the registry has the schema")
    if options.registry is not None:
        return Registry(options.registry, str(options.registry_config or ""), options.registry_subject)
    if options.registry_config is not None:
        parser.error("--registry-config is for --registry: give the registry's address too")
    if options.registry_subject:
        parser.error("--registry-subject is for --registry: give the registry's address too")
    return None


def check_values(parser: Parser, options: Options) -> None:
    """A schema stands beside the format that needs it, and is one; ends the command when it does not."""
    if (options.format == "json") != (options.schema is not None):
        parser.error(f"--format json and --schema go together: {_JSON_EXAMPLE}")
    if options.schema is not None:
        try:
            read_columns(options.schema)
        except JobError as error:
            parser.error(str(error))


def add_reports(command: argparse.ArgumentParser, group: str) -> None:
    """Add options that say what shows the job from outside, and whether it may pass over records that are gone."""
    shown = f"consumer group that shows offsets and lag; default: {group}"
    command.add_argument("--group", help=shown)
    command.add_argument("--no-group", dest="group", action="store_const", const="", help="show offsets in no group")
    command.add_argument("--allow-loss", action="store_true", help="continue if unread records are gone")
    command.add_argument("--metrics", type=Path, metavar="FILE", help="file for metrics in Prometheus' text form")


def broker(text: str) -> str:
    """HOST:PORT."""
    host, _, port = text.rpartition(":")
    if not host or not (port.isascii() and port.isdigit() and 0 < int(port) <= _PORT_MAX):
        raise argparse.ArgumentTypeError(f"{text!r} is not HOST:PORT, such as 127.0.0.1:9092")
    return text


def registry(text: str) -> str:
    """The address of a schema registry."""
    if not text.startswith(("http://", "https://")) or "@" in text:
        raise argparse.ArgumentTypeError(f"{text!r} is not http[s]://HOST[:PORT][/PATH]; credentials are in a file")
    return text


def directory(text: str) -> Path:
    """A local directory."""
    if "://" in text or text.startswith("file:"):
        raise argparse.ArgumentTypeError(f"{text} is a URI; rows go to a directory of this machine, such as ./lake")
    return Path(text)


def seconds(text: str) -> float:
    """Seconds of at most a day."""
    with suppress(ValueError):
        value = float(text)
        if 0 <= value <= _INTERVAL_S_MAX:
            return value
    raise argparse.ArgumentTypeError(f"{text} is not between 0 and {_INTERVAL_S_MAX} seconds")


def rate(text: str) -> float:
    """Records a second."""
    with suppress(ValueError):
        value = float(text)
        if 0 < value <= _RATE_MAX:
            return value
    raise argparse.ArgumentTypeError(f"{text} is not a rate: records a second, above 0")


def count(text: str) -> int:
    """A count of at least one."""
    with suppress(ValueError):
        value = int(text)
        if 1 <= value <= _ROWS_MAX:
            return value
    raise argparse.ArgumentTypeError(f"{text} is not a count of at least 1")
