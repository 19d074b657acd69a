"""Converters for what describes a probe: addresses, URLs, regular expressions, HTTP statuses.

A `${VAR}` inside may stand for anything until the unit is launched, so a value with one is taken as it is.
"""

from __future__ import annotations

import re
from urllib.parse import urlsplit

from supervisor.unit.process_values import variable_value
from supervisor.unit.values import Converter, Mismatch, list_of, table_of, word

_ADDRESS = r"(?:\[[0-9A-Fa-f:.%\w]+\]|[^\s:/\[\]]+):(\d{1,5})"


def _address(found: object) -> str:
    written = word.read(found)
    if "${" in written:
        return written
    match = re.fullmatch(_ADDRESS, written)
    if match is None or not 0 < int(match[1]) < 65536:
        raise Mismatch
    return written


def _url(found: object) -> str:
    written = word.read(found)
    if "${" in written:
        return written
    if re.fullmatch(r"https?://[^\s/]+(/\S*)?", written) is None:
        raise Mismatch
    urlsplit(written).port  # noqa: B018  # reading it checks it
    return written


def _peer(found: object) -> str:
    written = word.read(found)
    if written.startswith("tcp://"):
        return f"tcp://{_address(written.removeprefix('tcp://'))}"
    if not written.startswith(("http://", "https://")):
        raise Mismatch
    return _url(written)


address = Converter('HOST:PORT or "[IPv6]:PORT"', _address, {"type": "string", "pattern": r"\$\{|:\d{1,5}$"})
url = Converter('a URL such as "http://127.0.0.1:8000/health"', _url, {"type": "string", "pattern": r"\$\{|^https?://"})
peers = list_of(
    Converter("", _peer, {"type": "string", "pattern": "^(tcp|https?)://"}),
    'an array of "tcp://HOST:PORT" or "http://HOST:PORT/PATH"',
)


def _regular_expression(found: object) -> str:
    written = word.read(found)
    try:
        re.compile(written)
    except re.error as error:
        raise Mismatch(f"{error.msg} at character {(error.pos or 0) + 1}") from None
    except (OverflowError, RecursionError) as error:
        raise Mismatch(str(error)) from None
    return written


regular_expression = Converter("a regular expression", _regular_expression, {"type": "string"})


def _status_range(found: object) -> tuple[int, int]:
    match = re.fullmatch(r"(\d{3})(?:-(\d{3}))?", str(found)) if isinstance(found, str | int) else None
    if match is None:
        raise Mismatch
    first, last = int(match[1]), int(match[2] or match[1])
    if not 100 <= first <= last <= 599:
        raise Mismatch
    return first, last


statuses = list_of(
    Converter(
        "",
        _status_range,
        {
            "anyOf": [
                {"type": "string", "pattern": r"^\d{3}(-\d{3})?$"},
                {"type": "integer", "minimum": 100, "maximum": 599},
            ]
        },
    ),
    'HTTP statuses such as [204, "300-399"]',
)
headers = table_of(Converter("", variable_value, {"type": ["string", "number"]}), "a table of HTTP headers")
