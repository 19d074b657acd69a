"""What every converter takes, and what it says of everything else."""

from __future__ import annotations

import contextlib
import datetime
import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from supervisor.unit import probe_values, process_values, quantities, values
from supervisor.unit.keys import SECTIONS, Key, Table
from supervisor.unit.model import Command, KillMode, Repeat, ResourceLimit
from supervisor.unit.values import Converter, UnexpectedValue

duration = quantities.duration()
size = quantities.size()
nofile = process_values.resource_limit("NOFILE")

TAKEN: list[tuple[Converter[object], object, object]] = [
    (values.text, "", ""),
    (values.word, "a b", "a b"),
    (values.boolean, True, True),
    (values.integer(0, 5), 5, 5),
    (values.number(0, 1), 1, 1.0),
    (values.text_list, "a", ("a",)),
    (values.text_list, ["a", "b"], ("a", "b")),
    (values.one_of("a", "b"), "b", "b"),
    (values.member_of(KillMode), "mixed", KillMode.MIXED),
    (duration, 3, 3.0),
    (duration, 0.5, 0.5),
    (duration, "100ms", 0.1),
    (duration, "1min 30s", 90.0),
    (duration, "1min30s", 90.0),
    (duration, "2h", 7200.0),
    (duration, "1.5 s", 1.5),
    (duration, "7", 7.0),
    (duration, "1d 1w", 691200.0),
    (duration, "infinity", math.inf),
    (size, 7, 7),
    (size, "50MB", 50_000_000),
    (size, "256 KiB", 262144),
    (size, "1.5k", 1536),
    (size, "2G", 2 * 1024**3),
    (process_values.signal_name, "SIGTERM", "SIGTERM"),
    (process_values.signal_name, "usr1", "SIGUSR1"),
    (process_values.signal_name, 9, "SIGKILL"),
    (process_values.exit_statuses, [0, "75", "SIGKILL", "term", "TEMPFAIL"], (0, 75, "SIGKILL", "SIGTERM", 75)),
    (process_values.exit_statuses, 3, (3,)),
    (process_values.success_statuses, [0, 3], (0, 3)),
    (nofile, "1024:4096", ResourceLimit("NOFILE", 1024, 4096)),
    (nofile, 10, ResourceLimit("NOFILE", 10, 10)),
    (nofile, "infinity", ResourceLimit("NOFILE", math.inf, math.inf)),
    (nofile, "64M:infinity", ResourceLimit("NOFILE", 64 * 1024**2, math.inf)),
    (nofile, "5:", ResourceLimit("NOFILE", 5, None)),
    (nofile, ":5", ResourceLimit("NOFILE", None, 5)),
    (nofile, "18446744073709551615", ResourceLimit("NOFILE", math.inf, math.inf)),
    (nofile, 2**63, ResourceLimit("NOFILE", math.inf, math.inf)),
    (nofile, 2**63 - 1, ResourceLimit("NOFILE", 2**63 - 1, 2**63 - 1)),
    (nofile, f"1:{'9' * 400}", ResourceLimit("NOFILE", 1, math.inf)),
    (process_values.account, "nobody", "nobody"),
    (process_values.account, "4294967294", "4294967294"),
    (process_values.account, "${UID}", "${UID}"),
    (process_values.accounts, ["video", "44"], ("video", "44")),
    (process_values.umask, "0022", 0o022),
    (process_values.umask, "0o77", 0o077),
    (process_values.cpus, "0-3,8", frozenset({0, 1, 2, 3, 8})),
    (process_values.cpus, [1, "4-5"], frozenset({1, 4, 5})),
    (process_values.cpus, 2, frozenset({2})),
    (process_values.command, ["sleep", "5"], Command(("sleep", "5"))),
    (process_values.command, ["-/bin/false"], Command(("/bin/false",), ignore_failure=True)),
    (process_values.commands, ["a", "b"], (Command(("a", "b")),)),
    (process_values.commands, [["a"], ["-b", "c"]], (Command(("a",)), Command(("b", "c"), ignore_failure=True))),
    (process_values.commands, [], ()),
    (process_values.assignments, {"A": "x", "B": 2}, (("A", "x"), ("B", "2"))),
    (process_values.assignments, ["A=x=y", "A=z"], (("A", "z"),)),
    (process_values.variable_names, ["A_1"], ("A_1",)),
    (process_values.output, "file:/tmp/x", "file:/tmp/x"),
    (process_values.output, "file:${DIR}/x", "file:${DIR}/x"),
    (process_values.unit_names, "exporter@node", ("exporter@node",)),
    (process_values.credentials, ["token:/run/token"], (("token", "/run/token"),)),
    (
        process_values.flags,
        {"a": 1, "b": True, "c": ["x", 2], "d": {"repeat": ["x", 3]}, "e": {"json": [1]}},
        (("a", 1), ("b", True), ("c", ("x", "2")), ("d", Repeat(("x", "3"))), ("e", {"json": [1]})),
    ),
    (process_values.device_memory_probe, "off", "off"),
    (process_values.device_memory_probe, ["probe"], Command(("probe",))),
    (probe_values.address, "127.0.0.1:6379", "127.0.0.1:6379"),
    (probe_values.address, "[::1]:80", "[::1]:80"),
    (probe_values.address, "${POD_IP}:${PORT}", "${POD_IP}:${PORT}"),
    (probe_values.url, "https://[::1]:8000/health?x=1", "https://[::1]:8000/health?x=1"),
    (probe_values.peers, "tcp://${NODE_ADDR_1}:50052", ("tcp://${NODE_ADDR_1}:50052",)),
    (probe_values.peers, ["http://a/b"], ("http://a/b",)),
    (probe_values.statuses, [204, "300-399"], ((204, 204), (300, 399))),
    (probe_values.headers, {"X-A": "b", "X-N": 1}, (("X-A", "b"), ("X-N", "1"))),
    (probe_values.regular_expression, r"ready$", r"ready$"),
]


@pytest.mark.parametrize(("converter", "found", "expected"), TAKEN)
def test_takes(converter: Converter[object], found: object, expected: object) -> None:
    converted = converter(found)
    assert converted == expected
    assert type(converted) is type(expected)


REFUSED: list[tuple[Converter[object], object, str]] = [
    (values.text, 1, "found 1, expected a string"),
    (values.text, "a\0", 'found "a\\u0000", expected a string'),
    (values.word, " ", 'found " ", expected a string that is not empty'),
    (values.boolean, "true", 'found "true", expected true or false'),
    (values.integer(0, 5), 6, "found 6, expected a whole number from 0 to 5"),
    (values.integer(1), True, "found true, expected a whole number of at least 1"),
    (values.integer(None, 5), 5.5, "found 5.5, expected a whole number of at most 5"),
    (values.integer(), "5", 'found "5", expected a whole number'),
    (values.number(0, 1), 1.5, "found 1.5, expected a number from 0 to 1"),
    (values.number(), math.nan, "found nan, expected a number"),
    (values.text_list, ["a", 1], 'found ["a", 1], expected a string or an array of strings'),
    (values.one_of("a", "b"), "c", 'found "c", expected one of "a", "b"'),
    (values.one_of("a", "b"), ["a"], 'found ["a"], expected one of "a", "b"'),
    (values.port, 0, "found 0, expected a whole number from 1 to 65535"),
    (duration, "", 'found "", expected a duration such as "1min 30s", "infinity" or seconds'),
    (duration, -1, 'found -1, expected a duration such as "1min 30s", "infinity" or seconds'),
    (
        duration,
        "5x",
        'found "5x", expected a duration such as "1min 30s", "infinity" or seconds '
        "(unknown unit of time 'x'; known are us, ms, s, min, h, d, w)",
    ),
    (duration, {}, 'found an empty table, expected a duration such as "1min 30s", "infinity" or seconds'),
    (
        quantities.duration(1, 60),
        "2min",
        'found "2min", expected a duration such as "1min 30s" from 1s to 1min',
    ),
    (quantities.duration(1), 0, 'found 0, expected a duration such as "1min 30s" of at least 1s'),
    (quantities.duration(0, 60), 61, 'found 61, expected a duration such as "1min 30s" of at most 1min'),
    (size, "5 parsecs", 'found "5 parsecs", expected a size such as "50MB" or "256KiB" or a number of bytes'),
    (quantities.size(10), 9, 'found 9, expected a size such as "50MB" or "256KiB" of at least 10 bytes'),
    (process_values.signal_name, "SIGNOPE", 'found "SIGNOPE", expected a signal such as "SIGTERM"'),
    (process_values.signal_name, 0, 'found 0, expected a signal such as "SIGTERM"'),
    (
        process_values.exit_statuses,
        [256],
        'found [256], expected exit codes or signal names such as [75, "SIGKILL"] (an exit code is 0 to 255)',
    ),
    (
        nofile,
        "5:4",
        'found "5:4", expected "soft:hard", a number or "infinity" (the soft limit is above the hard one)',
    ),
    (nofile, ":", 'found ":", expected "soft:hard", a number or "infinity"'),
    (
        process_values.account,
        "4294967295",
        'found "4294967295", expected a name or a number (numbers are from 0 to 4294967294)',
    ),
    (process_values.account, "-1", 'found "-1", expected a name or a number (numbers are from 0 to 4294967294)'),
    (
        process_values.accounts,
        ["1", "9" * 25],
        f'found ["1", "{"9" * 25}"], expected an array of names or numbers (numbers are from 0 to 4294967294)',
    ),
    (
        process_values.credentials,
        ["x:/a\0b"],
        'found ["x:/a\\u0000b"], expected an array of "name:/path/of/the/secret"',
    ),
    (
        process_values.flags,
        {"a": {"b": [datetime.date(1979, 5, 27)]}},
        "found a table, expected a table of flags "
        "without their dashes (dates and times are strings in JSON, which a table becomes)",
    ),
    (
        quantities.size(),
        f"{'9' * 400}.0",
        f'found "{"9" * 78}…, expected a size such as "50MB" or "256KiB" or a number of bytes',
    ),
    (
        probe_values.url,
        "http://h:65536/",
        'found "http://h:65536/", expected a URL such as "http://127.0.0.1:8000/health"',
    ),
    (
        probe_values.regular_expression,
        "a{99999999999999999999}",
        'found "a{99999999999999999999}", expected a regular expression (the repetition number is too large)',
    ),
    (process_values.umask, 22, 'found 22, expected an octal number as a string, such as "0022"'),
    (process_values.umask, "0999", 'found "0999", expected an octal number as a string, such as "0022"'),
    (process_values.cpus, "3-1", 'found "3-1", expected CPU numbers such as "0-3,8"'),
    (process_values.cpus, "", 'found "", expected CPU numbers such as "0-3,8"'),
    (
        process_values.command,
        "sleep 5",
        'found "sleep 5", expected an argument array such as ["sleep", "5"] (an argument array, never a shell string)',
    ),
    (
        process_values.command,
        [],
        'found [], expected an argument array such as ["sleep", "5"] (the program is missing)',
    ),
    (
        process_values.command,
        ["sleep", 5],
        'found ["sleep", 5], expected an argument array such as ["sleep", "5"] (every argument is a string)',
    ),
    (
        process_values.assignments,
        {"A": True},
        'found a table, expected a table of variables, or an array such as ["NAME=value"] '
        "(values are strings or numbers)",
    ),
    (
        process_values.assignments,
        ["A"],
        'found ["A"], expected a table of variables, or an array such as ["NAME=value"]',
    ),
    (
        process_values.assignments,
        {"1A": "x"},
        'found a table, expected a table of variables, or an array such as ["NAME=value"]',
    ),
    (
        process_values.output,
        "journal",
        'found "journal", expected "pass", "prefix", "json", "null" or "file:/PATH"',
    ),
    (process_values.unit_names, ["a b"], 'found ["a b"], expected names of units'),
    (
        process_values.credentials,
        ["token"],
        'found ["token"], expected an array of "name:/path/of/the/secret"',
    ),
    (
        process_values.flags,
        {"--port": 1},
        "found a table, expected a table of flags without their dashes ('--port' is not a flag without its dashes)",
    ),
    (
        process_values.flags,
        {"a": {"repeat": [1], "x": 1}},
        "found a table, expected a table of flags without their dashes ({ repeat = [ … ] } stands alone)",
    ),
    (
        process_values.flags,
        {"a": [True]},
        "found a table, expected a table of flags without their dashes (the values of an array are strings or numbers)",
    ),
    (probe_values.address, "localhost", 'found "localhost", expected HOST:PORT or "[IPv6]:PORT"'),
    (probe_values.address, "::1:80", 'found "::1:80", expected HOST:PORT or "[IPv6]:PORT"'),
    (probe_values.address, "a:65536", 'found "a:65536", expected HOST:PORT or "[IPv6]:PORT"'),
    (
        probe_values.url,
        "localhost:80",
        'found "localhost:80", expected a URL such as "http://127.0.0.1:8000/health"',
    ),
    (
        probe_values.peers,
        ["udp://a:1"],
        'found ["udp://a:1"], expected an array of "tcp://HOST:PORT" or "http://HOST:PORT/PATH"',
    ),
    (probe_values.statuses, "500-400", 'found "500-400", expected HTTP statuses such as [204, "300-399"]'),
    (probe_values.statuses, 42, 'found 42, expected HTTP statuses such as [204, "300-399"]'),
    (
        probe_values.regular_expression,
        "a(",
        'found "a(", expected a regular expression (missing ), unterminated subpattern at character 2)',
    ),
]


@pytest.mark.parametrize(("converter", "found", "message"), REFUSED)
def test_refuses(converter: Converter[object], found: object, message: str) -> None:
    with pytest.raises(UnexpectedValue) as caught:
        converter(found)
    assert str(caught.value) == message


def test_a_long_value_is_cut_in_a_message() -> None:
    assert len(values.shown(["x" * 300])) == 80


@given(st.integers(0, 10**15))
def test_durations_round_trip(microseconds: int) -> None:
    written = quantities.format_duration(microseconds / 1_000_000)
    assert round(quantities.parse_duration(written) * 1_000_000) == microseconds


def test_what_is_more_microseconds_than_there_are_numbers_is_infinite() -> None:
    assert quantities.format_duration(1e308) == "infinity"


def test_infinity_round_trips() -> None:
    assert quantities.parse_duration(quantities.format_duration(math.inf)) == math.inf


ANYTHING = st.recursive(
    st.one_of(st.none(), st.booleans(), st.integers(), st.floats(), st.text(max_size=20), st.dates()),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=5,
)


def _converters(table: Table) -> list[Converter[object]]:
    converters: list[Converter[object]] = []
    for entry in table.entries.values():
        converters += [entry.convert] if isinstance(entry, Key) else _converters(entry)
    return converters


CONVERTERS = [converter for table in SECTIONS.values() for converter in _converters(table)]


@given(st.sampled_from(CONVERTERS), ANYTHING)
def test_no_converter_crashes(converter: Converter[object], found: object) -> None:
    # Anything but UnexpectedValue fails the test.
    with contextlib.suppress(UnexpectedValue):
        converter(found)
