"""Log lines that programs can read: one JSON object per line on standard error."""

from __future__ import annotations

import json
import logging
import time
from typing import Literal

from ctta.base.text import harmless


class JsonLines(logging.Formatter):
    """A record as one line of JSON, with the fields of `extra={"fields": ...}`."""

    def format(self, record: logging.LogRecord) -> str:
        when = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(record.created)) + f".{int(record.msecs):03d}Z"
        line = {"time": when, "level": record.levelname.lower(), "logger": record.name, "message": record.getMessage()}
        line |= getattr(record, "fields", {})
        if record.exc_info:
            line["traceback"] = self.formatException(record.exc_info)
        return json.dumps(line, default=str)


class TextLines(logging.Formatter):
    """The same for people."""

    def format(self, record: logging.LogRecord) -> str:
        fields = " ".join(f"{name}={value}" for name, value in getattr(record, "fields", {}).items())
        trace = "\n" + self.formatException(record.exc_info) if record.exc_info else ""
        return harmless(f"{record.levelname.lower()} {record.getMessage()} {fields}".rstrip() + trace)


def set_up_logs(form: Literal["json", "text"]) -> None:
    """Send the log lines of ctta and of the server to standard error."""
    handler = logging.StreamHandler()
    handler.setFormatter(JsonLines() if form == "json" else TextLines())
    for name in ("ctta", "uvicorn"):
        logger = logging.getLogger(name)
        logger.handlers, logger.propagate = [handler], False
        logger.setLevel(logging.INFO if name == "ctta" else logging.WARNING)
