"""The form of the log's lines: text for people, or a JSON object each for programs that collect them."""

import json
import logging
import sys
from datetime import UTC, datetime

_TEXT = "%(asctime)s %(levelname)s %(name)s: %(message)s"


def begin_log(level: str) -> None:
    """Log to standard error, as text until settings say otherwise."""
    logging.basicConfig(level=level.upper(), stream=sys.stderr, format=_TEXT)


def set_log_format(name: str) -> None:
    """`pqbroker.log.format`."""
    form = _JsonLines() if name == "json" else logging.Formatter(_TEXT)
    for handler in logging.getLogger().handlers:
        handler.setFormatter(form)


class _JsonLines(logging.Formatter):
    """Time in UTC, level, logger, message and, of an error, its traceback."""

    def format(self, record: logging.LogRecord) -> str:
        moment = datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds")
        line = {
            "time": moment.replace("+00:00", "Z"),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": record.getMessage(),
        }
        if record.exc_info:
            line["traceback"] = self.formatException(record.exc_info)
        return json.dumps(line, ensure_ascii=False)
