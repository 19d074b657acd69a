"""Log lines of both programs: one JSON object a line, or text for people; always to standard error.

Callers log through the standard library with `extra={…}`; the fields of `extra` become fields of the line.
"""

from __future__ import annotations

import io
import logging
import re
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from datetime import UTC, datetime
from typing import TextIO

import trio
from pythonjsonlogger.json import JsonFormatter

from supervisor.shared import accept_errors
from supervisor.shared.accept_errors import AcceptErrors

_SPOKEN = frozenset({"unit", "pid"})
"""Names and numbers that cannot be taken for something else."""
_STANDARD = frozenset(logging.makeLogRecord({}).__dict__) | {"message", "asctime", "taskName"}


def configure(level: str, form: str, stream: TextIO = sys.stderr) -> None:
    """Send all log records of this process to `stream`; `form` is `json` or `text`."""
    handler = logging.StreamHandler(stream)
    handler.setFormatter(_json() if form == "json" else _Text())
    root = logging.getLogger()
    root.handlers = [handler]
    root.setLevel(level.upper())
    # One line for each request of ours to a supervisor would drown everything else.
    logging.getLogger("httpx").setLevel(logging.WARNING)
    logging.getLogger(accept_errors.LOGGER).filters = [AcceptErrors()]


@contextmanager
def written_by(write: Callable[[bytes], None]) -> Iterator[None]:
    """Meanwhile hand what is logged to `write`, which never blocks, as a pipe does that nobody reads.

    `write` belongs to this trio run: it is called by its loop, also for the lines of other threads. One of those that
    wrote to the stream itself would wait there with the handler's lock, and the loop's next line for that lock.
    """
    token = trio.lowlevel.current_trio_token()
    with ExitStack() as afterwards:
        for handler in logging.getLogger().handlers:
            if isinstance(handler, logging.StreamHandler):
                stream = handler.stream
                handler.setStream(_Handed(write, token, stream))
                afterwards.callback(handler.setStream, stream)
        yield


@contextmanager
def redacted_by(redact: Callable[[str], str]) -> Iterator[None]:
    """Meanwhile every line passes through `redact`, which takes out what nobody may read."""
    with ExitStack() as afterwards:
        for handler in logging.getLogger().handlers:
            afterwards.callback(handler.setFormatter, handler.formatter)
            handler.setFormatter(_Redacted(handler.formatter or logging.Formatter(), redact))
        yield


class _Redacted(logging.Formatter):
    def __init__(self, formatter: logging.Formatter, redact: Callable[[str], str]) -> None:
        super().__init__()
        self._formatter = formatter
        self._redact = redact

    def format(self, record: logging.LogRecord) -> str:
        return self._redact(self._formatter.format(record))


class _Handed(io.TextIOBase):
    def __init__(self, write: Callable[[bytes], None], token: trio.lowlevel.TrioToken, stream: TextIO) -> None:
        self._write = write
        self._token = token
        self._stream = stream

    def write(self, text: str) -> int:
        line = text.encode("utf-8", "backslashreplace")
        if trio.lowlevel.in_trio_run():
            self._write(line)
            return len(text)
        try:
            self._token.run_sync_soon(self._write, line)
        except trio.RunFinishedError:
            return self._stream.write(text)
        return len(text)


def _json() -> logging.Formatter:
    return _Json(
        "%(levelname)s %(name)s %(message)s",
        rename_fields={"levelname": "level", "name": "logger"},
    )


def _moment(record: logging.LogRecord) -> str:
    moment = datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds")
    return moment.replace("+00:00", "Z")


def _is_said(name: str, value: object, message: str) -> bool:
    """Whether a person who reads the message knows that field already."""
    return name in _SPOKEN and re.search(rf"\b{re.escape(str(value))}\b", message) is not None


class _Json(JsonFormatter):
    def add_fields(
        self,
        log_data: dict[str, object],
        record: logging.LogRecord,
        message_dict: dict[str, object],
    ) -> None:
        log_data["time"] = _moment(record)
        super().add_fields(log_data, record, message_dict)
        for name in [name for name, value in log_data.items() if value is None]:
            del log_data[name]


class _Text(logging.Formatter):
    def format(self, record: logging.LogRecord) -> str:
        message = record.getMessage()
        fields = " ".join(
            f"{name}={value}"
            for name, value in record.__dict__.items()
            if name not in _STANDARD and value is not None and not _is_said(name, value, message)
        )
        line = f"{_moment(record)} {record.levelname.lower():7} {message}"
        trace = f"\n{self.formatException(record.exc_info)}" if record.exc_info else ""
        return (f"{line}  {fields}" if fields else line) + trace
