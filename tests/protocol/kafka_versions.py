"""Versions that Kafka's own definitions give each message: python -m tests.protocol.kafka_versions [--write]

The definitions are JSON files in Kafka's jar of clients. The table beside this file has them as key, name, versions and
flexible versions; a last version that Kafka calls unstable is left out.
"""

import argparse
import json
import re
import sys
import zipfile
from pathlib import Path
from typing import Any, Final

from tests.support.kafka.jars import clients_jar

TABLE: Final = Path(__file__).with_name("kafka_4_3_versions.tsv")
_COMMENT = re.compile(r"^\s*//.*$", re.MULTILINE)


def written() -> str:
    """Return the table as Kafka's definitions make it."""
    with zipfile.ZipFile(clients_jar()) as jar:
        names = [name for name in jar.namelist() if re.fullmatch(r"common/message/\w+\.json", name)]
        found = [json.loads(_COMMENT.sub("", jar.read(name).decode())) for name in names]
    rows = sorted((each.get("apiKey", -1), each["name"], _stable(each), each.get("flexibleVersions")) for each in found)
    return "".join(f"{key}\t{name}\t{versions}\t{flexible or 'none'}\n" for key, name, versions, flexible in rows)


def _stable(definition: dict[str, Any]) -> str:
    versions: str = definition["validVersions"]
    if not definition.get("latestVersionUnstable"):
        return versions
    low, _, high = versions.partition("-")
    return f"{low}-{int(high) - 1}"


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.protocol.kafka_versions", description=__doc__)
    parser.add_argument("--write", action="store_true", help="write the table; otherwise only compare")
    text = written()
    if parser.parse_args().write:
        TABLE.write_text(text, encoding="utf-8")
    elif text != TABLE.read_text(encoding="utf-8"):
        sys.exit(f"{TABLE.name} is not what Kafka's definitions say: write it with --write")


if __name__ == "__main__":
    main()
